package txn

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// session is a host without a client.
type session struct {
	ex     *executor.Executor
	begins *executor.Settings
	joined []string
	wrote  []string
}

func (s *session) Snapshot() *shardmap.Snapshot { return s.ex.Snapshot() }
func (s *session) Settings() *executor.Settings { return s.begins }
func (s *session) Timeout() time.Duration       { return 0 }
func (s *session) Holds() error                 { return nil }
func (s *session) Repeats() bool                { return false }
func (s *session) Reader(context.Context, string, *executor.Settings) (*executor.Conn, error) {
	return nil, nil
}
func (s *session) Wrote(c *executor.Conn)     { s.wrote = append(s.wrote, c.Shard()) }
func (s *session) Holder() *executor.Holder   { return new(executor.Holder) }
func (s *session) Joined(shard string)        { s.joined = append(s.joined, shard) }
func (s *session) Kept(string) *executor.Conn { return nil }
func (s *session) Spreads() bool              { return false }
func (s *session) Counter() *executor.Counter { return new(executor.Counter) }

// open is a block of which nothing is open on shards.
func (b *bank) open(s *session) *Transaction {
	b.t.Helper()
	var err error
	if s.begins, err = b.ex.Begin(context.Background(), nil); err != nil {
		b.t.Fatal(err)
	}
	t := New(b.ex, b.transactions(), s, func(*sqlstate.Error) *sqlstate.Error { return nil })
	t.BeginBlock("BEGIN", s.begins)
	t.Enter()
	return t
}

// begun is a conversation on which texts have run, as a session runs them.
func (b *bank) begun(s *session, i int, sql string) *executor.Conn {
	b.t.Helper()
	c, err := b.ex.Acquire(context.Background(), shardName(i), s.begins)
	if err != nil {
		b.t.Fatal(err)
	}
	b.ask(c, sql)
	return c
}

func (b *bank) ask(c *executor.Conn, sql string) *engine.Result {
	b.t.Helper()
	res, err := c.Exec(sql)
	if err != nil {
		b.t.Fatal(sql, err)
	}
	return res
}

// TestSecondParticipant: the conversation on which the session has begun the transaction stays the shard's part when another
// shard joins. Both have its savepoints, and it is committed on both or none.
func TestSecondParticipant(t *testing.T) {
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		b := newBank(t, same(pgtest.Server(t), 2)...)
		s := &session{ex: b.ex}
		tx := b.open(s)
		was := b.balances()
		first := b.begun(s, 0, "BEGIN; SAVEPOINT a; UPDATE account SET balance = balance - 1 WHERE id = 0")
		tx.NoteSavepoint("savepoint", "a", 0)
		tx.BegunOn(first, b.ex.Snapshot(), []*executor.Settings{s.begins}).Wrote = true
		begun := b.ask(first, "SELECT now()").Rows[0][0].String
		tx.Spread(s.begins)
		second, err := tx.Participant(t.Context(), shardName(1), true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(second, "UPDATE account SET balance = balance + 1 WHERE id = 1"); err != nil {
			t.Fatal(err)
		}
		switch {
		case !slices.Equal(tx.Shards(), []string{"shard-0", "shard-1"}) || tx.Find("shard-0").Conn != first:
			t.Error("participants:", tx.Shards())
		case !slices.Equal(s.joined, []string{"shard-1"}) || !slices.Equal(s.wrote, []string{"shard-1"}):
			t.Error("the session was told of", s.joined, s.wrote)
		case b.ask(first, "SELECT now()").Rows[0][0].String != begun:
			t.Error("the first one began anew")
		}
		// What is behind the savepoint is undone on both.
		if err := tx.Savepoint("savepoint", "b", 0); err != nil {
			t.Fatal(err)
		}
		for i, p := range []*Participant{tx.Find("shard-0"), second} {
			if _, err := tx.Exec(p, "UPDATE account SET balance = balance + 100"); err != nil {
				t.Fatal(i, err)
			}
		}
		if err := tx.Savepoint("rollback to", "b", 1); err != nil {
			t.Fatal(err)
		}
		if tx.EndBlock(); end == "COMMIT" {
			_, err = tx.Commit()
		} else {
			tx.RollBack()
		}
		if err != nil {
			t.Fatal(err)
		}
		tx.Leave(false)
		tx.Release()
		if now := b.balances(); (now == was) != (end == "ROLLBACK") || end == "COMMIT" && now != "99 101" {
			t.Errorf("%s: %s, was %s", end, now, was)
		}
	}
}

// TestWeakParticipantLeaves: a block whose only participant has shown nothing begins anew on another shard, with what its
// statements have made of it. The first shard does not take part any more.
func TestWeakParticipantLeaves(t *testing.T) {
	b := newBank(t, same(pgtest.Server(t), 2)...)
	s := &session{ex: b.ex}
	tx := b.open(s)
	tx.Modes = append(tx.Modes, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
	tx.NoteSavepoint("savepoint", "a", 0)
	weak := b.begun(s, 0, "BEGIN; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SAVEPOINT a; SELECT 1")
	tx.BegunOn(weak, b.ex.Snapshot(), []*executor.Settings{s.begins})
	next := tx.Anew()
	b.ask(weak, "ROLLBACK")
	weak.Release()
	if len(next.Joined) > 0 || next.Saves.Len() != 1 || len(next.Modes) != 1 || !next.Block {
		t.Fatalf("%+v", next)
	}
	next.Enter()
	p, err := next.Participant(t.Context(), shardName(1), true)
	if err != nil {
		t.Fatal(err)
	}
	res, err := next.Exec(p, "UPDATE account SET balance = 7 RETURNING current_setting('transaction_isolation')")
	if err != nil || res.Rows[0][0].String != "repeatable read" {
		t.Fatal(res, err)
	}
	if err := next.Savepoint("rollback to", "a", 0); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(next.Shards(), []string{"shard-1"}) {
		t.Error(next.Shards())
	}
	next.EndBlock()
	if _, err := next.Commit(); err != nil {
		t.Fatal(err)
	}
	next.Leave(false)
	next.Release()
	if got := b.balances(); got != "100 100" {
		t.Error(got)
	}
}
