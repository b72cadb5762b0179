package txn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/etcdtest"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/etcd"
	"github.com/cleavedb/cleave/shardmap/sqlitedir"
	"github.com/cleavedb/cleave/sqlstate"
)

// This file kills with SIGKILL, at every step of a commit on three shards: the
// router, each shard's server, the directory.

// steps are all steps of a commit on three shards, in order. "prepare X" is before
// X prepares and after the one before it has, and so on.
var steps = []string{"prepare shard-1", "prepare shard-2", "decide shard-0", "decided shard-0", "commit shard-1", "commit shard-2", "finished"}

// decidedAt reports whether a transaction is decided at a step.
func decidedAt(step string) bool {
	return slices.Index(steps, step) >= slices.Index(steps, "decided shard-0")
}

// onStep calls do at one step.
func (t *Transactions) onStep(at string, do func() error) {
	t.step = func(step, shard string) error {
		if strings.TrimSpace(step+" "+shard) == at {
			return do()
		}
		return nil
	}
}

const dyingEnv = "CLEAVE_TEST_DYING"

// dying is what the process does: it dies at a step, or transfers until it is killed.
type dying struct{ Directory, Step, Loop string }

// die is a router that transfers money and kills itself at a step. Its directory is
// a SQLite file: where there is only that, the router is the directory as well.
func die(plan string) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	var d dying
	must(json.Unmarshal([]byte(plan), &d))
	dir, err := sqlitedir.OpenWith(d.Directory, sqlitedir.Options{LeaseTTL: shardmap.MinLeaseTTL})
	must(err)
	_, _, err = dir.Join(context.Background(), shardmap.Member{ID: d.Step + d.Loop, Role: "router"})
	must(err)
	ex, err := openBank(dir)
	must(err)
	if d.Loop != "" {
		transfers(ex, d.Loop, len(ex.Snapshot().Shards()))
	}
	parts, err := begin(ex, len(ex.Snapshot().Shards()))
	must(err)
	tx := NewTransactions(TransactionsOptions{Executor: ex, Member: d.Step})
	must(tx.CanWrite(context.Background(), parts))
	tx.onStep(d.Step, func() error {
		must(syscall.Kill(os.Getpid(), syscall.SIGKILL))
		select {}
	})
	_, _, err = tx.Commit(context.Background(), parts)
	panic(fmt.Sprintf("it lives: %v", err))
}

// TestKilledRouter kills a router at each step. Another one does nothing while the
// lease of the first may still run, and ends the transaction then.
func TestKilledRouter(t *testing.T) {
	testrun.Long(t, "routers are killed at each step, on each engine; TestStopAtEveryStep stops without a kill")
	t.Parallel()
	for name, urls := range map[string]func(t *testing.T) []string{
		"postgres": func(t *testing.T) (urls []string) {
			for range 3 {
				urls = append(urls, pgtest.Database(t))
			}
			return urls
		},
		"sqlite": files,
	} {
		t.Run(name, func(t *testing.T) {
			dir, path := fileDirectory(t)
			b := newBankOn(t, dir, urls(t))
			other, want := b.transactions(), "100 100 100"
			for _, at := range steps {
				plan, err := json.Marshal(dying{Directory: path, Step: at})
				if err != nil {
					t.Fatal(err)
				}
				cmd := exec.Command(os.Args[0], "-test.run=^$")
				cmd.Env = append(os.Environ(), dyingEnv+"="+string(plan))
				out, err := cmd.CombinedOutput()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("%s: %s, %v", at, out, err)
				}
				b.settled(other)
				if decidedAt(at) {
					want = b.after(want)
				}
				if got := b.balances(); got != want {
					t.Fatalf("killed at %q: balances %s, want %s", at, got, want)
				}
			}
		})
	}
}

// files are the URLs of three SQLite shards that are not made yet.
func files(t *testing.T) (urls []string) {
	dir := t.TempDir()
	for i := range 3 {
		urls = append(urls, "file:"+filepath.Join(dir, shardName(i)+".db"))
	}
	return urls
}

func fileDirectory(t *testing.T) (shardmap.Directory, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "directory.db")
	dir, err := sqlitedir.OpenWith(path, sqlitedir.Options{LeaseTTL: shardmap.MinLeaseTTL})
	if err != nil {
		t.Fatal(err)
	}
	return dir, path
}

// transfers moves money for ever, and says after each that was acknowledged.
func transfers(ex *executor.Executor, member string, shards int) {
	tx := NewTransactions(TransactionsOptions{Executor: ex, Member: member})
	for {
		parts, err := begin(ex, shards)
		if err == nil {
			var ok bool
			if ok, _, err = tx.Commit(context.Background(), parts); err == nil && ok {
				fmt.Println("acknowledged")
			}
		}
		for _, p := range parts {
			if err != nil {
				p.Conn.Break()
			}
			p.Conn.Release()
		}
	}
}

// TestKilledRouters: two processes at a time transfer money between three SQLite
// files, and are killed again and again, while atomic reads look. Every sum is
// right, and nothing that was acknowledged is lost.
func TestKilledRouters(t *testing.T) {
	testrun.Long(t, "processes are killed again and again; TestStopAtEveryStep stops without a kill")
	t.Parallel()
	dir, path := fileDirectory(t)
	b := newBankOn(t, dir, files(t))
	reader := b.transactions()
	acknowledged, reads := 0, 0
	// On a machine that does much else a process may not get as far as to a transfer in its time.
	for round := 0; round < 6 || acknowledged == 0 && round < 60; round++ {
		var cmds []*exec.Cmd
		outs := []*bytes.Buffer{{}, {}}
		for i := range outs {
			plan, err := json.Marshal(dying{Directory: path, Loop: fmt.Sprintf("router-%d-%d", round, i)})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], "-test.run=^$")
			cmd.Env = append(os.Environ(), dyingEnv+"="+string(plan))
			cmd.Stdout = outs[i]
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			cmds = append(cmds, cmd)
		}
		for end := time.Now().Add(500*time.Millisecond + time.Duration(round)*time.Duration(round)*7*time.Millisecond); time.Now().Before(end); {
			got, err := b.sum(context.Background(), reader)
			if sqlstate.CodeOf(err) == sqlstate.SerializationFailure {
				continue
			}
			if err != nil || got != 300 {
				t.Errorf("round %d: sum %d, %v", round, got, err)
			}
			reads++
		}
		for i, cmd := range cmds {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed
			acknowledged += strings.Count(outs[i].String(), "acknowledged")
		}
		b.settled(reader)
	}
	var first, second, third int
	if _, err := fmt.Sscan(b.balances(), &first, &second, &third); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d were acknowledged; %d, %d, %d; %d atomic reads", acknowledged, first, second, third, reads)
	if n := second - 100; first != 100-2*n || third != second || n < acknowledged || acknowledged == 0 || reads == 0 {
		t.Fatal("money was lost or made")
	}
}

// TestKilledShard kills the server of each shard at each step.
func TestKilledShard(t *testing.T) {
	testrun.Long(t, "servers are killed at each step; TestKilledInTheMiddle kills two")
	t.Parallel()
	servers := make([]*localpg.Server, 3)
	for i := range servers {
		servers[i] = pgtest.NewServer(t, nil)
	}
	b := newBank(t, servers...)
	want := "100 100 100"
	for _, at := range steps {
		for victim := range servers {
			b.kill(t, servers, victim, at, &want)
		}
	}
}

// kill is one transaction during which a server is killed.
func (b *bank) kill(t *testing.T, servers []*localpg.Server, victim int, at string, want *string) {
	t.Helper()
	what := fmt.Sprintf("shard %d killed at %q", victim, at)
	// What is not prepared is lost; the coordinating shard never is.
	lost := !decidedAt(at) && (victim == 0 || slices.Index(steps, at) <= slices.Index(steps, fmt.Sprint("prepare shard-", victim)))
	// While the coordinating shard is away nobody knows. Only one case waits that long.
	away := at == "decide shard-0" || victim != 0
	tx := b.transactions()
	tx.onStep(at, func() error {
		servers[victim].Kill()
		if !away {
			servers[victim] = pgtest.Restart(t, servers[victim], nil)
		}
		return nil
	})
	ok, err := b.commit(tx, b.beginSoon())
	if away {
		servers[victim] = pgtest.Restart(t, servers[victim], nil)
	}
	b.settled(b.transactions())
	switch {
	case lost && away && victim == 0:
		if sqlstate.CodeOf(err) != sqlstate.TransactionUnknown {
			t.Fatalf("%s: %v, %v", what, ok, err)
		}
	case lost:
		if e := sqlstate.As(err); ok || e.Code != sqlstate.SerializationFailure || e.Retry != sqlstate.RetryTransaction || e.Shard != shardName(victim) {
			t.Fatalf("%s: %v, %v", what, ok, err)
		}
	case !ok || err != nil:
		t.Fatalf("%s: %v, %v", what, ok, err)
	default:
		*want = b.after(*want)
	}
	if got := b.balances(); got != *want {
		t.Fatalf("%s: balances %s, want %s", what, got, *want)
	}
}

// beginSoon is begin with shards that may just have come back.
func (b *bank) beginSoon() []*Participant {
	b.t.Helper()
	for end := time.Now().Add(waitfor.Max); ; time.Sleep(20 * time.Millisecond) {
		parts, err := begin(b.ex, len(b.urls))
		if err == nil {
			return parts
		}
		if time.Now().After(end) {
			b.t.Fatal(err)
		}
	}
}

// TestKilledInTheMiddle kills servers while they prepare and while they decide:
// a deferred trigger waits there for the kill.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	servers := []*localpg.Server{pgtest.NewServer(t, nil), pgtest.NewServer(t, nil)}
	b := newBank(t, servers...)
	for i := range servers {
		b.query(i, `CREATE TABLE victim (n int);
			CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600) FROM victim; RETURN NULL; END';
			CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON account DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()`)
	}
	for victim, at := range []string{"decide shard-0", "prepare shard-1"} {
		tx, back := b.transactions(), make(chan *localpg.Server, 1)
		b.query(victim, "INSERT INTO victim VALUES (1)")
		tx.onStep(at, func() error {
			go func() {
				waitfor.True(t, "the trigger waits", func() bool {
					return b.query(victim, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'").Rows[0][0].String == "1"
				})
				servers[victim].Kill()
				back <- pgtest.Restart(t, servers[victim], nil)
			}()
			return nil
		})
		ok, err := b.commit(tx, b.beginSoon())
		servers[victim] = <-back
		b.query(victim, "TRUNCATE victim")
		if ok || sqlstate.CodeOf(err) != sqlstate.SerializationFailure {
			t.Errorf("%s: %v, %v", at, ok, err)
		}
		b.settled(b.transactions())
		if got := b.balances(); got != "100 100" {
			t.Fatalf("%s: balances %s", at, got)
		}
	}
}

// TestKilledDirectory kills members of etcd at each step. A commit needs none of
// them. Where the router dies too, what it left is ended when they are back.
func TestKilledDirectory(t *testing.T) {
	testrun.Long(t, "etcd servers are killed at each step; TestStopAtEveryStep stops without them")
	t.Parallel()
	members := etcdtest.New(t, etcdtest.Options{})
	dir, err := etcd.Open(context.Background(), members.URL(), etcd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := newBankIn(t, dir, same(pgtest.Server(t), 3)...)
	want := "100 100 100"
	for _, at := range steps {
		for _, killed := range [][]int{{members.Leader(t)}, {0, 1, 2}} {
			for _, crash := range []bool{false, true} {
				what := fmt.Sprintf("etcd members %v killed at %q, the router as well: %v", killed, at, crash)
				tx := b.transactions()
				tx.onStep(at, func() error {
					for _, m := range killed {
						members.Kill(t, m)
					}
					if crash {
						return errors.New("stop")
					}
					return nil
				})
				ok, err := b.commit(tx, b.beginSoon())
				if crash != errors.Is(err, errCrash) || !crash && (!ok || err != nil) {
					t.Fatalf("%s: %v, %v", what, ok, err)
				}
				for _, m := range killed {
					members.Start(t, m)
				}
				b.settled(b.transactions())
				if !crash || decidedAt(at) {
					want = b.after(want)
				}
				if got := b.balances(); got != want {
					t.Fatalf("%s: balances %s, want %s", what, got, want)
				}
			}
		}
	}
}
