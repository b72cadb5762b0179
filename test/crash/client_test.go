package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The bank: accounts by tenant, and for each change of one an entry that says it, in the same
// transaction. So each balance is what it was and its entries, and nothing can be lost, half done or
// done twice unseen. Nobody changes the rows of bulk: they are what is copied.
const (
	tenants  = 24
	accounts = 3
	balance  = 1000
	clients  = 4
	bulkRows = 1500
	// callMax bounds what a client waits for an answer; a statement that is held takes 10 s.
	callMax = time.Minute
)

// place is an account.
type place struct{ tenant, id int }

// entry is one change of an account: by a client's call, of which each has up to two.
type entry struct {
	client, n int // n is twice the number of the call, and one more for its second entry
	at        place
	amount    int
}

// outcome is what a client was told of a call.
type outcome int

const (
	refused outcome = iota // nothing was done
	acknowledged
	unknown // the answer did not come, or says that nobody knows
)

// call is one transaction of a client.
type call struct {
	entries []entry
	outcome outcome
	err     error
}

// bank is the clients and what they were told.
type bank struct {
	l *lane
	// gate: a call is made under its read lock.
	gate sync.RWMutex
	stop context.CancelFunc
	done sync.WaitGroup
	// did counts each client's acknowledged calls.
	did [clients]atomic.Int64

	mu       sync.Mutex
	calls    []call
	base     map[place]int // balances before the calls
	wrong    []string      // answers to reads that cannot be
	counts   [3]int        // of all outcomes
	problems map[string]int
	said     []string // the first of each
}

func (l *lane) startBank() *bank {
	ctx, stop := context.WithCancel(context.Background())
	b := &bank{l: l, stop: stop, base: map[place]int{}, problems: map[string]int{}}
	for t := range tenants {
		for a := range accounts {
			b.base[place{t, a}] = balance
		}
	}
	for i := range clients {
		b.done.Go(func() { b.client(ctx, i) })
	}
	return b
}

func (b *bank) end() {
	b.stop()
	b.done.Wait()
}

// dial connects to a router, which has to answer within some seconds.
func dial(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.ConnectTimeout = 5 * time.Second
	cfg.DialFunc = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	return pgx.ConnectConfig(ctx, cfg)
}

// code is the SQLSTATE of an answer, "" if there was none.
func code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// client makes calls until ctx ends, on one connection as long as it lasts.
func (b *bank) client(ctx context.Context, client int) {
	r := rand.New(rand.NewPCG(uint64(client), uint64(time.Now().UnixNano())))
	var conn *pgx.Conn
	drop := func() {
		if conn != nil {
			_ = conn.Close(context.Background())
			conn = nil
		}
	}
	defer drop()
	for n := 1; ctx.Err() == nil; n++ {
		b.gate.RLock()
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), callMax)
		err := func() error {
			if conn == nil {
				var err error
				if conn, err = dial(one, b.l.routers[r.IntN(len(b.l.routers))].url); err != nil {
					return err
				}
			}
			if n%4 == 0 {
				return b.read(one, conn)
			}
			return b.write(one, conn, client, n, r)
		}()
		cancel()
		b.gate.RUnlock()
		if err != nil {
			b.mu.Lock()
			if key := code(err); key != "" {
				if b.problems[key]++; b.problems[key] == 1 && key != "57P03" {
					b.said = append(b.said, err.Error())
				}
			} else {
				b.problems["no answer"]++
			}
			b.mu.Unlock()
			if code(err) == "" || conn == nil || conn.IsClosed() || r.IntN(4) == 0 {
				drop() // also to come to the other router
			}
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if r.IntN(40) == 0 {
			drop()
		}
		time.Sleep(time.Duration(2+r.IntN(20)) * time.Millisecond) // the machine has other things to do
	}
}

// read looks at rows that never change: none is missed, none counted twice.
func (b *bank) read(ctx context.Context, conn *pgx.Conn) error {
	var count, sum int64
	if err := conn.QueryRow(ctx, `SELECT count(*), sum(n)::bigint FROM bulk`).Scan(&count, &sum); err != nil {
		return err
	}
	if count != bulkRows || sum != bulkRows*(bulkRows-1)/2 {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.wrong = append(b.wrong, fmt.Sprintf("%s: a read of %d rows gave %d, their sum %d instead of %d", time.Now().Format("15:04:05.000"), bulkRows, count, sum, bulkRows*(bulkRows-1)/2))
	}
	return nil
}

// write moves money within a tenant or between two, or only writes an entry, and notes what it was told.
func (b *bank) write(ctx context.Context, conn *pgx.Conn, client, n int, r *rand.Rand) error {
	c := call{}
	from := place{r.IntN(tenants), r.IntN(accounts)}
	if n%4 == 1 {
		c.entries = []entry{{client, 2 * n, from, 0}}
	} else {
		to := place{from.tenant, (from.id + 1 + r.IntN(accounts-1)) % accounts}
		if n%12 == 2 {
			to.tenant = (from.tenant + 1 + r.IntN(tenants-1)) % tenants
		}
		amount := 1 + r.IntN(9)
		c.entries = []entry{{client, 2 * n, from, -amount}, {client, 2*n + 1, to, amount}}
		// Always in the same order, so that clients do not wait for each other in a ring.
		slices.SortFunc(c.entries, func(a, b entry) int { return (a.at.tenant-b.at.tenant)*accounts + a.at.id - b.at.id })
	}
	const insert = `INSERT INTO entry VALUES ($1, $2, $3, $4, $5)`
	committing := false
	c.err = func() error {
		if len(c.entries) == 1 {
			committing = true
			e := c.entries[0]
			_, err := conn.Exec(ctx, insert, e.at.tenant, e.client, e.n, e.at.id, e.amount)
			return err
		}
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		for _, e := range c.entries {
			tag, err := tx.Exec(ctx, `UPDATE account SET balance = balance + $3 WHERE tenant = $1 AND id = $2`, e.at.tenant, e.at.id, e.amount)
			if err != nil {
				return err
			}
			if tag.RowsAffected() != 1 {
				b.mu.Lock()
				b.wrong = append(b.wrong, fmt.Sprintf("%s: an UPDATE of account %v met %d rows", time.Now().Format("15:04:05.000"), e.at, tag.RowsAffected()))
				b.mu.Unlock()
			}
			if _, err := tx.Exec(ctx, insert, e.at.tenant, e.client, e.n, e.at.id, e.amount); err != nil {
				return err
			}
		}
		committing = true
		return tx.Commit(ctx)
	}()
	switch {
	case c.err == nil:
		c.outcome = acknowledged
	case committing && (code(c.err) == "" && !errors.Is(c.err, pgx.ErrTxCommitRollback) || code(c.err) == "08007"):
		c.outcome = unknown
	}
	b.mu.Lock()
	b.calls = append(b.calls, c)
	b.counts[c.outcome]++
	b.mu.Unlock()
	if c.outcome == acknowledged {
		b.did[client].Add(1)
	}
	return c.err
}

// progress waits until every client has been served again.
func (b *bank) progress(t testing.TB) {
	t.Helper()
	var was [clients]int64
	for i := range was {
		was[i] = b.did[i].Load()
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		waiting := -1
		for i := range was {
			if b.did[i].Load() == was[i] {
				waiting = i
			}
		}
		if waiting < 0 {
			return
		}
		if time.Now().After(end) {
			b.mu.Lock()
			defer b.mu.Unlock()
			t.Fatalf("client %d was not served any more after everything was back; all problems: %v", waiting, b.problems)
		}
	}
}

// check holds the clients up, compares what is stored with what they were told, and begins a new
// account of it. What nobody knows may take a moment to be settled.
func (b *bank) check(t testing.TB) {
	t.Helper()
	b.gate.Lock()
	defer b.gate.Unlock()
	var found []string
	for end := time.Now().Add(settleMax); ; time.Sleep(50 * time.Millisecond) {
		next, bad, err := b.compare()
		if err == nil && len(bad) == 0 {
			b.base, b.calls = next, nil
			break
		}
		if found = bad; err != nil {
			found = append(found, err.Error())
		}
		if time.Now().After(end) {
			t.Fatalf("what is stored is not what the clients were told:\n%s", lines(found, 20))
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.wrong) > 0 {
		t.Errorf("answers that cannot be:\n%s", lines(b.wrong, 20))
		b.wrong = nil
	}
	// So that the next account is short. It is a write over several shards, too.
	for end := time.Now().Add(settleMax); ; time.Sleep(50 * time.Millisecond) {
		err := b.l.exec(`DELETE FROM entry`)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the entries cannot be deleted: %v", err)
		}
	}
}

func lines(list []string, most int) (out string) {
	for i, s := range list {
		if i == most {
			return out + fmt.Sprintf("... and %d more\n", len(list)-most)
		}
		out += s + "\n"
	}
	return out
}

// compare returns the balances that are stored and what is wrong with them.
func (b *bank) compare() (is map[place]int, bad []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), callMax)
	defer cancel()
	conn, err := dial(ctx, b.l.routers[0].url)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close(context.Background())
	is = map[place]int{}
	rows, err := conn.Query(ctx, `SELECT tenant, id, balance FROM account`)
	if err != nil {
		return nil, nil, err
	}
	for rows.Next() {
		var p place
		var n int
		if err := rows.Scan(&p.tenant, &p.id, &n); err != nil {
			return nil, nil, err
		}
		if _, twice := is[p]; twice {
			bad = append(bad, fmt.Sprintf("account %v is there twice", p))
		}
		is[p] = n
	}
	if rows.Err() != nil {
		return nil, nil, rows.Err()
	}
	type key struct{ client, n int }
	stored := map[key]entry{}
	want := map[place]int{}
	for p, n := range b.base {
		want[p] = n
	}
	if rows, err = conn.Query(ctx, `SELECT tenant, client, n, account, amount FROM entry`); err != nil {
		return nil, nil, err
	}
	for rows.Next() {
		var e entry
		if err := rows.Scan(&e.at.tenant, &e.client, &e.n, &e.at.id, &e.amount); err != nil {
			return nil, nil, err
		}
		if _, twice := stored[key{e.client, e.n}]; twice {
			bad = append(bad, fmt.Sprintf("entry %+v is there twice", e))
		}
		stored[key{e.client, e.n}] = e
		want[e.at] += e.amount
	}
	if rows.Err() != nil {
		return nil, nil, rows.Err()
	}
	known := 0
	for i := range b.calls {
		c := &b.calls[i]
		there := 0
		for _, e := range c.entries {
			if is, ok := stored[key{e.client, e.n}]; ok {
				there++
				if known++; is != e {
					bad = append(bad, fmt.Sprintf("entry %+v was written as %+v", is, e))
				}
			}
		}
		switch {
		case c.outcome == acknowledged && there < len(c.entries):
			bad = append(bad, fmt.Sprintf("of the acknowledged %+v %d are there", c.entries, there))
		case c.outcome == refused && there > 0:
			bad = append(bad, fmt.Sprintf("of the refused %+v %d are there (the client was told: %v)", c.entries, there, c.err))
		case c.outcome == unknown && there > 0 && there < len(c.entries):
			bad = append(bad, fmt.Sprintf("half of %+v is there (the client was told: %v)", c.entries, c.err))
		}
	}
	if known != len(stored) {
		bad = append(bad, fmt.Sprintf("%d entries are of no call", len(stored)-known))
	}
	for p, n := range want {
		if have, ok := is[p]; !ok || have != n {
			bad = append(bad, fmt.Sprintf("account %v has %d; what it had and its entries give %d", p, have, n))
		}
	}
	if len(is) != len(want) {
		bad = append(bad, fmt.Sprintf("%d accounts, not %d", len(is), len(want)))
	}
	return is, bad, nil
}
