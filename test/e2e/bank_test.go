package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/etcdtest"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// soakVariable makes TestBank longer: a duration such as 30m. `make soak` sets it.
const soakVariable = "CLEAVE_SOAK"

const (
	bankAccounts = 24
	bankBalance  = 1000
)

// bank is a cluster on servers of its own whose every process is killed.
type bank struct {
	t       *testing.T
	etcd    *etcdtest.Cluster
	url     string
	servers []*localpg.Server // the shards'
	restart []localpg.Options
	routers []*cluster
	seed    uint64

	mu      sync.Mutex
	history map[int][]porcupine.Operation // by account
	begun   time.Time

	committed, unknown, failed, read, refused atomic.Int64
}

// add is what a transfer does to one account; the output is the balance after it,
// or a maybe.
type (
	add   struct{ account, by int }
	after struct {
		balance int
		maybe   bool // the COMMIT was not answered
	}
)

// account is the sequential behaviour of one account.
var account = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{bankBalance} },
	Step: func(state, input, output any) []any {
		was, by, out := state.(int), input.(add).by, output.(after)
		switch {
		case out.maybe:
			return []any{was, was + by}
		case was+by == out.balance:
			return []any{was + by}
		}
		return nil
	},
}).ToModel()

func newBank(t *testing.T) *bank {
	b := &bank{t: t, history: map[int][]porcupine.Operation{}, begun: time.Now(), seed: uint64(time.Now().UnixNano())}
	b.etcd = etcdtest.New(t, etcdtest.Options{})
	b.url = b.etcd.URL()
	args := []string{"init", "--directory", b.url}
	for i := range 2 {
		s := pgtest.NewServer(t, nil)
		b.servers = append(b.servers, s)
		b.restart = append(b.restart, localpg.Options{Installation: s.Installation(), DataDir: s.DataDir(), SocketDir: s.SocketDir(), Port: s.Port(), Settings: pgtest.Settings()})
		if err := s.CreateDatabase(t.Context(), "bank"); err != nil {
			t.Fatal(err)
		}
		args = append(args, fmt.Sprintf("shard-%d=%s", i, s.URL("bank")))
	}
	t.Cleanup(func() {
		for _, s := range b.servers {
			ctx, stop := context.WithTimeout(context.Background(), waitfor.Max)
			if err := s.Stop(ctx); err != nil {
				t.Error(err)
			}
			stop()
		}
	})
	if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for range 2 {
		b.routers = append(b.routers, startRouter(t, b.url))
	}
	b.routers[0].exec(t, `CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL) WITH (cleave.shard_key = 'id')`,
		fmt.Sprintf(`INSERT INTO account SELECT g, %d FROM generate_series(0, %d) AS g`, bankBalance, bankAccounts-1))
	waitfor.True(t, "all routers know the table", func() bool {
		for _, r := range b.routers {
			if n, err := b.sum(t.Context(), r.url()); err != nil || n != bankAccounts*bankBalance {
				return false
			}
		}
		return true
	})
	return b
}

// dial connects to a router, which has to answer within a few seconds.
func (b *bank) dial(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.ConnectTimeout = 5 * time.Second
	cfg.DialFunc = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	return pgx.ConnectConfig(ctx, cfg)
}

// sum is a read of all accounts, which is atomic by default.
func (b *bank) sum(ctx context.Context, url string) (n int64, err error) {
	conn, err := b.dial(ctx, url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, "SELECT sum(balance)::bigint FROM account").Scan(&n)
	return n, err
}

// transfer moves money between two accounts and notes what it knows of it.
func (b *bank) transfer(ctx context.Context, conn *pgx.Conn, client int, r *rand.Rand) error {
	from, to := r.IntN(bankAccounts), r.IntN(bankAccounts-1)
	if to >= from {
		to++
	}
	amount := 1 + r.IntN(9)
	adds := []add{{from, -amount}, {to, amount}}
	if r.IntN(4) > 0 { // mostly in one order; else some wait for each other in a ring
		slices.SortFunc(adds, func(a, b add) int { return a.account - b.account })
	}
	ops := make([]porcupine.Operation, 0, 2)
	called := time.Since(b.begun).Nanoseconds()
	if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
		return err
	}
	for _, a := range adds {
		var balance int
		if err := conn.QueryRow(ctx, "UPDATE account SET balance = balance + $1 WHERE id = $2 RETURNING balance", a.by, a.account).Scan(&balance); err != nil {
			_, _ = conn.Exec(ctx, "ROLLBACK")
			return err // nothing of it is committed, whatever it was
		}
		ops = append(ops, porcupine.Operation{ClientId: client, Input: a, Output: after{balance: balance}, Call: called})
	}
	tag, err := conn.Exec(ctx, "COMMIT")
	now := time.Since(b.begun).Nanoseconds()
	switch {
	case err == nil && tag.String() == "COMMIT":
		b.committed.Add(1)
	case err == nil:
		return errors.New("rolled back")
	case code(err) != "08007" && isAnswer(err):
		return err // nothing is committed
	default:
		b.unknown.Add(1)
		now = 1 << 62 // it may take effect later
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, op := range ops {
		op.Return = now
		if err != nil {
			op.Output = after{maybe: true}
		}
		id := op.Input.(add).account
		b.history[id] = append(b.history[id], op)
	}
	return err
}

// isAnswer reports whether an error is a server's, as opposed to a lost connection.
func isAnswer(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg)
}

// TestBank moves money between accounts on two shards through two routers, while
// routers, shards and members of the directory are killed with SIGKILL and started
// again. No atomic read ever sees another sum than all the money; when all is
// settled nothing is prepared, the sum is right, and each account's history is one
// that a single account could have.
func TestBank(t *testing.T) {
	testrun.Long(t, "everything is killed for half a minute; TestKillUnderLoad kills the router")
	b := newBank(t)
	length := 25 * time.Second
	if v := os.Getenv(soakVariable); v != "" {
		var err error
		if length, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d", b.seed)
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for client := range 6 {
		work.Go(func() {
			r := rand.New(rand.NewPCG(b.seed, uint64(client)))
			for ctx.Err() == nil {
				limit, end := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
				b.client(limit, ctx, client, r)
				end()
			}
		})
	}
	for reader := range 2 {
		work.Go(func() {
			for ctx.Err() == nil {
				limit, end := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
				n, err := b.sum(limit, b.routers[reader].url())
				end()
				switch {
				case err != nil:
					b.refused.Add(1)
					time.Sleep(20 * time.Millisecond)
				case n != bankAccounts*bankBalance:
					t.Errorf("an atomic read saw %d, not %d", n, bankAccounts*bankBalance)
				default:
					b.read.Add(1)
				}
			}
		})
	}
	defer work.Wait() // a Fatal too leaves nobody behind that still reports
	defer stop()
	b.havoc(length)
	// How much is done between the kills is the machine's business; that it goes on
	// when they end is the product's.
	waitfor.True(t, "enough was done to show anything", func() bool { return b.committed.Load() >= 50 && b.read.Load() >= 5 })
	stop()
	work.Wait()
	t.Logf("%d committed, %d unknown, %d failed; %d sums read, %d refused", b.committed.Load(), b.unknown.Load(), b.failed.Load(), b.read.Load(), b.refused.Load())
	b.settled()
	b.check()
}

// client is one connection's life.
func (b *bank) client(ctx, until context.Context, client int, r *rand.Rand) {
	conn, err := b.dial(ctx, b.routers[r.IntN(len(b.routers))].url())
	if err != nil {
		time.Sleep(20 * time.Millisecond)
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for until.Err() == nil && !conn.IsClosed() && ctx.Err() == nil {
		if err := b.transfer(ctx, conn, client, r); err != nil {
			b.failed.Add(1)
			if c := code(err); c != "40P01" && c != "40001" {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
}

// havoc kills and starts one process after the other.
func (b *bank) havoc(length time.Duration) {
	r := rand.New(rand.NewPCG(b.seed, 1000))
	end := time.Now().Add(length)
	for n := 0; time.Now().Before(end) && !b.t.Failed(); n++ {
		time.Sleep(time.Duration(800+r.IntN(800)) * time.Millisecond)
		switch n % 3 {
		case 0:
			c := b.routers[r.IntN(len(b.routers))]
			c.kill()
			b.revive(c)
		case 1:
			b.killShard(r.IntN(len(b.servers)))
		default:
			i := r.IntN(3)
			b.etcd.Kill(b.t, i)
			time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
			b.etcd.Start(b.t, i)
		}
	}
}

// revive starts a router again at its address.
func (b *bank) revive(c *cluster) {
	c.run()
	waitfor.True(b.t, "the router is ready again", c.healthy)
}

func (b *bank) killShard(i int) {
	b.servers[i].Kill()
	ctx, stop := context.WithTimeout(context.Background(), waitfor.Max)
	defer stop()
	s, err := localpg.Start(ctx, b.restart[i])
	if err != nil {
		b.t.Fatal(err)
	}
	b.servers[i] = s
}

// settled waits until nothing is prepared and nothing is in doubt.
func (b *bank) settled() {
	from := time.Now()
	waitfor.True(b.t, "nothing is prepared, and the sum is right", func() bool {
		for _, s := range b.servers {
			conn, err := b.dial(b.t.Context(), s.URL("bank"))
			if err != nil {
				return false
			}
			var n int
			err = conn.QueryRow(b.t.Context(), "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()").Scan(&n)
			_ = conn.Close(b.t.Context())
			if err != nil || n > 0 {
				return false
			}
		}
		n, err := b.sum(b.t.Context(), b.routers[0].url())
		return err == nil && n == bankAccounts*bankBalance
	})
	b.t.Logf("settled after %v", time.Since(from).Round(time.Millisecond))
}

// check compares each account with its history.
func (b *bank) check() {
	conn := b.routers[0].connect(b.t)
	now := time.Since(b.begun).Nanoseconds()
	unproven := 0
	for id := range bankAccounts {
		var balance int
		if err := conn.QueryRow(b.t.Context(), "SELECT balance FROM account WHERE id = $1", id).Scan(&balance); err != nil {
			b.t.Fatal(err)
		}
		history := b.history[id]
		for i := range history {
			// What was not answered has taken effect by now, if ever.
			history[i].Return = min(history[i].Return, now)
		}
		history = append(history, porcupine.Operation{ClientId: 100, Input: add{id, 0}, Output: after{balance: balance}, Call: now + 1, Return: now + 2})
		switch res := porcupine.CheckOperationsTimeout(account, history, 20*time.Second); res {
		case porcupine.Ok:
		case porcupine.Unknown: // the search has no bound of its own
			unproven++
		default:
			var all []string
			for _, op := range history {
				all = append(all, fmt.Sprintf("%+v -> %+v [%d, %d]", op.Input, op.Output, op.Call, op.Return))
			}
			b.t.Errorf("account %d: %s\n%s", id, res, strings.Join(all, "\n"))
		}
	}
	if b.t.Logf("%d of %d histories were too long to check", unproven, bankAccounts); unproven > bankAccounts/2 {
		b.t.Error("too few histories were checked to show anything")
	}
}
