package gateway_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// faulty opens PostgreSQL shards, of whose messages one panics in the session that sends or receives it.
type faulty struct {
	postgres.Driver
	left *atomic.Int64 // messages until that one; 0 is none
}

func (f faulty) Open(cfg engine.Config) (engine.Shard, error) {
	sh, err := f.Driver.Open(cfg)
	return faultyShard{sh, f.left}, err
}

type faultyShard struct {
	engine.Shard
	left *atomic.Int64
}

func (s faultyShard) Connect(ctx context.Context, params map[string]string) (engine.Conn, error) {
	c, err := s.Shard.Connect(ctx, params)
	if err != nil {
		return nil, err
	}
	return &faultyConn{Conn: c, TwoPhase: c.(engine.TwoPhase), Backend: c.(engine.Backend), Severer: c.(engine.Severer), Prober: c.(engine.Prober), left: s.left}, nil
}

type faultyConn struct {
	engine.Conn
	engine.TwoPhase
	engine.Backend
	engine.Severer
	engine.Prober
	left *atomic.Int64
}

func (c *faultyConn) Send(frames []byte) error {
	c.passes()
	return c.Conn.Send(frames)
}

func (c *faultyConn) Receive() ([]byte, error) {
	c.passes()
	return c.Conn.Receive()
}

func (c *faultyConn) passes() {
	if c.left.Load() > 0 && strings.Contains(string(debug.Stack()), "gateway.(*session)") && c.left.Add(-1) == 0 {
		panic("a fault between two messages")
	}
}

// TestFaultOverSeveralShards makes the router panic at every message of statements over several shards: the session ends, and its
// connections are back in the pools, whose shards have rolled back what was open.
func TestFaultOverSeveralShards(t *testing.T) {
	t.Parallel()
	var left atomic.Int64
	cl, conn, keys := orders(t, config{executor: limitsOf(8), driver: faulty{left: &left}, recovers: true})
	total := fill(t, conn, keys, 1)
	row := func(i int) string { return fmt.Sprintf("(%d, 77, 'n')", keys[i][0]) }
	insert := "INSERT INTO orders VALUES " + row(0) + ", " + row(1) + ", " + row(2)
	back := func() bool {
		for _, h := range cl.ex.Health() {
			if h.Open != h.Idle {
				return false
			}
		}
		return true
	}
	for _, c := range []struct {
		name  string
		block []string // all but the last statement run without a fault
		mode  pgx.QueryExecMode
	}{
		{"a read", []string{"SELECT count(*) FROM orders"}, pgx.QueryExecModeSimpleProtocol},
		{"a sorted read, extended", []string{"SELECT * FROM orders ORDER BY id LIMIT 4"}, pgx.QueryExecModeExec},
		{"a gather", []string{"SELECT count(*) FROM orders a JOIN orders b ON a.note = b.note"}, pgx.QueryExecModeSimpleProtocol},
		{"a write, extended", []string{insert}, pgx.QueryExecModeExec},
		{"a write in a block", []string{"BEGIN", fmt.Sprintf("INSERT INTO orders VALUES (%d, 77, 'n')", keys[1][1]), insert}, pgx.QueryExecModeSimpleProtocol},
		{"a schema change", []string{"ALTER TABLE orders ALTER COLUMN note SET DEFAULT 'n'"}, pgx.QueryExecModeSimpleProtocol},
		{"a cursor", []string{"BEGIN", "DECLARE c CURSOR FOR SELECT * FROM orders ORDER BY id"}, pgx.QueryExecModeSimpleProtocol},
	} {
		faults := 0
		for at := int64(1); ; at++ {
			session := cl.connect(t)
			last := len(c.block) - 1
			for _, sql := range c.block[:last] {
				exec(t, session, sql, pgx.QueryExecModeSimpleProtocol)
			}
			left.Store(at)
			_, err := session.Exec(t.Context(), c.block[last], c.mode)
			fault := left.Swap(0) <= 0
			if fault && (codeOf(err) != "XX000" || !session.IsClosed()) {
				t.Fatalf("%s, message %d: %v", c.name, at, err)
			}
			if fault {
				faults++
			} else if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			_ = session.Close(context.Background())
			waitfor.True(t, fmt.Sprintf("after %s with a fault at message %d all connections are back", c.name, at), back)
			exec(t, conn, "DELETE FROM orders WHERE id = 77")
			if n := one[int](t, conn, "SELECT count(*) FROM orders"); n != total {
				t.Fatalf("%s, message %d: %d rows, not %d", c.name, at, n, total)
			}
			if !fault {
				break
			}
		}
		if faults < 3 {
			t.Errorf("%s: %d faults", c.name, faults)
		}
	}
	waitfor.True(t, "no watch of a statement's locks outlives it", func() bool {
		all := make([]byte, 1<<22)
		return !strings.Contains(string(all[:runtime.Stack(all, true)]), "txn.(*LockWatch)")
	})
}
