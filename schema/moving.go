package schema

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// copiedWait bounds the wait for the lock of a table that a move copies. The copy has it locked against changes until it
// is done. A transaction that writes to the table waits behind a change that waits.
const copiedWait = 300 * time.Millisecond

// copying is a move that has not changed its owner yet, of a part of a table that a statement changes.
type copying struct {
	id, table string
	wait      time.Duration
}

// copiedBy returns the first such move, nil if there is none.
func copiedBy(base *shardmap.Snapshot, lockTimeout time.Duration, d *plan.DDL) *copying {
	for _, n := range namesOf(d) {
		table, ok := base.Table(n.Schema, n.Name)
		if !ok || table.Keyspace == "" {
			continue
		}
		ix, ok := base.Keyspace(table.Keyspace)
		if !ok {
			continue
		}
		for i := range ix.Def().Transits {
			m := &ix.Def().Transits[i]
			if owner, _ := ix.Sides(m); owner == m.From {
				return &copying{id: m.ID, table: n.Name, wait: min(copiedWait, lockTimeout)}
			}
		}
	}
	return nil
}

// patience bounds the waits for locks on a shard by those of a move that copies the table, if there is one.
func (p *part) patience(ctx context.Context, m *copying) error {
	if m == nil || !p.can.Locks {
		return nil
	}
	_, err := p.run(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", m.wait.Milliseconds()))
	return err
}

// copied is the error of a lock that was not to be had for a move's sake.
func copied(err error, m *copying) error {
	if m == nil || sqlstate.CodeOf(err) != sqlstate.LockNotAvailable {
		return err
	}
	own := sqlstate.As(err)
	e := sqlstate.Wrap(err, sqlstate.LockNotAvailable, "could not lock table \"%s\" within %d ms: move %s is copying rows of it", m.table, m.wait.Milliseconds(), m.id)
	e.Shard = own.Shard
	return e.WithHint("nothing was changed: run it again when the rows are copied (cleave moves %s), or end the move: cleave cancel %s", m.id, m.id)
}

// moving is the error of a check of all rows of a table of which a part is being moved: two shards have its rows, and what
// statements of the transaction did to those of the owner the other has not got yet.
func moving(over *shardmap.Snapshot, err error) error {
	own := sqlstate.As(err)
	table, ok := over.Table(own.Schema, own.Table)
	if !strings.HasPrefix(string(own.Code), "23") || !ok || table.Keyspace == "" {
		return err
	}
	for _, k := range over.State().Keyspaces {
		for _, m := range k.Transits {
			if k.Name == table.Keyspace && (m.From == own.Shard || m.To == own.Shard) {
				e := sqlstate.Refusal("CLV-0981", "a change that all rows of table %s have to fit is not supported while a part of them is being moved", own.Table).
					WithHint("Run it when move %s has ended, or end that: cleave moves %s.", m.ID, m.ID).OnShard(own.Shard)
				e.Keyspace = k.Name
				return e.WithDetail("Shard %s said: %s", own.Shard, own.Message)
			}
		}
	}
	return err
}
