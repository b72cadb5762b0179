package txn

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/utility"
	"github.com/cleavedb/cleave/sqlstate"
)

// SET CONSTRAINTS holds for all parts of the transaction, those to come as well. A
// constraint of a sharded or a reference table is on every shard, one of an unsharded table on
// the default shard only: so that one says whether names are right, and each other
// shard gets those that it has.

// SetConstraints runs SET CONSTRAINTS.
func (c *Transaction) SetConstraints(ctx context.Context, st *plan.Statement) error {
	if c.Saves.Len() > 0 {
		return sqlstate.Refusal("CLV-1006", "SET CONSTRAINTS after a savepoint is not supported in a transaction over several shards: ROLLBACK TO SAVEPOINT would undo it").
			WithHint("Run SET CONSTRAINTS before the SAVEPOINT.")
	}
	if names, _ := utility.NamedConstraints(st.Text); names == nil {
		return c.SetMode(st)
	}
	first, err := c.Participant(ctx, c.defaultShard(), false)
	if err != nil {
		return err
	}
	for _, p := range append([]*Participant{first}, c.Joined...) {
		if p != first && !p.Begun {
			continue
		}
		if p == first || p.Shard != first.Shard {
			if _, err := c.Exec(p, "SELECT 1"); err != nil { // it has begun
				return err
			}
			if err := c.setsNamed(p, st.Text); err != nil {
				return err
			}
		}
	}
	c.Modes = append(c.Modes, st.Text)
	return nil
}

func (c *Transaction) defaultShard() string { return c.host.Snapshot().State().DefaultShard }

// setsNamed runs SET CONSTRAINTS with names on a part that has begun, for those constraints that the shard has.
func (c *Transaction) setsNamed(p *Participant, text string) error {
	names, deferred := utility.NamedConstraints(text)
	if names != nil && p.Shard != c.defaultShard() {
		var all []string
		for _, n := range names {
			res, err := p.Conn.Exec(firstSchemaOf(n))
			if err != nil {
				return c.Failure(p, err)
			}
			if len(res.Rows) > 0 {
				all = append(all, executor.QuoteIdentifier(res.Rows[0][0].String)+"."+executor.QuoteIdentifier(n.Name))
			}
		}
		if len(all) == 0 {
			return nil
		}
		text = "SET CONSTRAINTS " + strings.Join(all, ", ") + " IMMEDIATE"
		if deferred {
			text = strings.TrimSuffix(text, "IMMEDIATE") + "DEFERRED"
		}
	}
	if _, err := p.Conn.Exec(text); err != nil {
		return c.Failure(p, err)
	}
	return nil
}

// firstSchemaOf asks for the schema of the constraint that a name means; no row: there is none. In words that SQLite shards know as well.
func firstSchemaOf(n utility.Constraint) string {
	const constraints = " JOIN pg_catalog.pg_constraint AS c ON c.connamespace = n.oid WHERE c.conname = "
	if n.Schema != "" {
		return "SELECT n.nspname FROM pg_catalog.pg_namespace AS n" + constraints + executor.QuoteLiteral(n.Name) + " AND n.nspname = " + executor.QuoteLiteral(n.Schema) + " LIMIT 1"
	}
	return "SELECT n.nspname FROM pg_catalog.unnest(pg_catalog.current_schemas(true)) WITH ORDINALITY AS s (name, place) JOIN pg_catalog.pg_namespace AS n ON n.nspname = s.name" +
		constraints + executor.QuoteLiteral(n.Name) + " ORDER BY s.place LIMIT 1"
}

// SetMode runs what holds for the transaction on its parts, and on those to come.
func (c *Transaction) SetMode(st *plan.Statement) error {
	c.Modes = append(c.Modes, st.Text)
	for _, p := range c.Joined {
		if !p.Begun {
			continue
		}
		if _, err := c.Exec(p, st.Text); err != nil {
			return err
		}
	}
	return nil
}

// SetReadOnly is asked before SET TRANSACTION is run. READ ONLY forbids the record
// that a commit on several shards needs, so nothing may have been written before; and
// a savepoint's end would undo it.
func (c *Transaction) SetReadOnly(st *plan.Statement) error {
	if !st.Tx.ReadOnly {
		// Shards on which nothing has run yet follow it.
		c.ReadOnly = c.ReadOnly && !strings.Contains(strings.ToUpper(st.Text), "WRITE")
		return nil
	}
	if c.ReadOnly {
		return nil
	}
	wrote := slices.ContainsFunc(c.Joined, func(p *Participant) bool { return p.Wrote })
	if wrote || c.Saves.Len() > 0 {
		return sqlstate.Refusal("CLV-1013", "SET TRANSACTION READ ONLY after a write or a savepoint is not supported in a transaction over several shards").
			WithHint("Run BEGIN READ ONLY, or leave it out.")
	}
	c.ReadOnly = true
	return nil
}

// Savepoint keeps the savepoints of all participants the same: it runs SAVEPOINT, RELEASE or ROLLBACK TO ("savepoint", ...). at is the
// number of the one that is named. Portals are the caller's.
func (c *Transaction) Savepoint(op, name string, at int) error {
	sql := strings.ToUpper(op) + " " + executor.QuoteIdentifier(name)
	for _, p := range c.Joined {
		if p.Busy != nil && p.Begun {
			return p.Unread()
		}
	}
	if c.Change != nil {
		if err := c.Change.Savepoint(c.Ctx, op, name); err != nil {
			c.Aborted = true
			return err
		}
	}
	for _, p := range c.Joined {
		if !p.Begun || c.Change != nil {
			continue
		}
		if _, err := p.Conn.Exec(sql); err != nil {
			// Parts differ now: only the end of the transaction makes them equal.
			c.Lost = true
			return c.Failure(p, err)
		}
	}
	c.NoteSavepoint(op, name, at)
	return nil
}

// ClockPart makes sure that there is a shard whose transaction's time is that of the
// whole transaction: the one where it began first, else p's.
func (c *Transaction) ClockPart(p *Participant) {
	if c.ClockOn != "" {
		return
	}
	for _, o := range c.Joined {
		if o.Begun {
			c.ClockOn = o.Shard
			return
		}
	}
	c.ClockOn = p.Shard
}

// Clock is the time at which the transaction began: the value of Plan.Clock's
// parameter.
func (c *Transaction) Clock(ctx context.Context) (text string, err error) {
	if c.clockText != "" {
		return c.clockText, nil
	}
	p, err := c.Participant(ctx, c.ClockOn, false)
	if err != nil {
		return "", err
	}
	c.ClockPart(p)
	if p.Shard != c.ClockOn {
		if p, err = c.Participant(ctx, c.ClockOn, false); err != nil {
			return "", err
		}
	}
	// In a form that no setting changes.
	sql := "SELECT pg_catalog.to_char(pg_catalog.now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00'"
	if !c.Can(p.Shard).Styles {
		sql = "SELECT pg_catalog.now()"
	}
	res, err := c.Exec(p, sql)
	if err != nil {
		return "", err
	}
	row, err := res.OneRow(1, p.Shard)
	if err != nil {
		return "", err
	}
	c.clockText = row[0].String
	return c.clockText, nil
}
