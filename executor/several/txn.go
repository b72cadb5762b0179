package several

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// endUnit ends what is one transaction outside of a block: the frames up to Sync,
// or a Query. Inside a block it does nothing.
func (c *Conn) endUnit() error {
	if c.block {
		return nil
	}
	defer func() { c.failed, c.lost, c.proven = false, false, nil }()
	defer c.unclock()
	var held map[string]*cursor
	var err error
	if !c.failed {
		held, err = c.hold(c.ctx)
	}
	c.closePortals()
	if c.failed || err != nil {
		drop(held)
		c.rollBack()
		return err
	}
	return c.commitHolding(held)
}

// commitHolding is commit, and what it makes of WITH HOLD cursors.
func (c *Conn) commitHolding(held map[string]*cursor) error {
	err := c.commit()
	c.told()
	if err != nil {
		drop(held)
		return err
	}
	c.keep(held)
	return nil
}

// control runs transaction control, which comes as simple Queries.
func (c *Conn) control(st *planner.Statement) error {
	switch st.Tx.Op {
	case "begin":
		if c.block {
			return sqlstate.New(sqlstate.ActiveTransaction, "there is already a transaction in progress")
		}
		c.block, c.opt.Begin, c.readOnly = true, st.Text, st.Tx.ReadOnly
	case "commit", "rollback":
		return c.finish(st)
	case "savepoint", "release", "rollback to":
		if err := c.savepoint(st); err != nil {
			return err
		}
	case "set":
		if c.failed {
			return errFailed
		}
		if err := c.setsReadOnly(st); err != nil {
			return err
		}
		if err := c.setsMode(st); err != nil {
			return err
		}
	case "constraints":
		if c.failed {
			return errFailed
		}
		if err := c.setsConstraints(c.ctx, st); err != nil {
			return err
		}
	default:
		return sqlstate.Refusal("CLV-1012", "%s is not supported", st.Tag).WithHint("use BEGIN, COMMIT, ROLLBACK and SAVEPOINT")
	}
	c.out = wire.AppendCommandComplete(c.out, st.Tag)
	return nil
}

// setsMode runs what holds for the transaction on its parts, and on those to come.
func (c *transaction) setsMode(st *planner.Statement) error {
	c.modes = append(c.modes, st.Text)
	for _, p := range c.parts {
		if !p.begun {
			continue
		}
		if _, err := c.exec(p, st.Text); err != nil {
			return err
		}
	}
	return nil
}

// setsReadOnly is asked before SET TRANSACTION is run. READ ONLY forbids the record
// that a commit on several shards needs, so nothing may have been written before; and
// a savepoint's end would undo it.
func (c *transaction) setsReadOnly(st *planner.Statement) error {
	if !st.Tx.ReadOnly {
		// Shards on which nothing has run yet follow it.
		c.readOnly = c.readOnly && !strings.Contains(strings.ToUpper(st.Text), "WRITE")
		return nil
	}
	if c.readOnly {
		return nil
	}
	wrote := slices.ContainsFunc(c.parts, func(p *part) bool { return p.wrote })
	if wrote || c.saves.Len() > 0 {
		return sqlstate.Refusal("CLV-1013", "SET TRANSACTION READ ONLY after a write or a savepoint is not supported in a transaction over several shards").
			WithHint("BEGIN READ ONLY, or leave it out")
	}
	c.readOnly = true
	return nil
}

func (c *Conn) finish(st *planner.Statement) error {
	commit := st.Tx.Op == "commit" && !c.failed
	var held map[string]*cursor
	var err error
	if commit {
		held, err = c.hold(c.ctx)
	}
	c.closePortals()
	if c.readOnly {
		for _, p := range c.parts {
			p.wrote = false // it could not
		}
	}
	c.block, c.readOnly = false, false
	c.modes = nil
	c.saves.Clear()
	defer func() { c.failed, c.lost, c.proven = false, false, nil }()
	defer c.unclock()
	switch {
	case err != nil:
		drop(held)
		c.stopAll()
		c.rollBack()
		return err
	case !commit:
		c.stopAll()
		c.rollBack()
		c.out = wire.AppendCommandComplete(c.out, "ROLLBACK")
		return nil
	}
	if err := c.commitHolding(held); err != nil {
		return err
	}
	c.out = wire.AppendCommandComplete(c.out, st.Tag)
	return nil
}

// savepoint keeps the savepoints of all parts the same.
func (c *Conn) savepoint(st *planner.Statement) error {
	op, name := st.Tx.Op, st.Tx.Name
	if !c.block {
		return sqlstate.New(sqlstate.NoActiveTransaction, "%s can only be used in transaction blocks", st.Tag)
	}
	if c.lost || c.failed && op != "rollback to" {
		return errFailed
	}
	at, err := c.saves.Find(name)
	if op != "savepoint" && err != nil {
		return err
	}
	if op == "rollback to" {
		c.portals.RolledBack(at)
		c.cursors.RolledBack(at)
		c.stopAll()
	}
	sql := strings.ToUpper(op) + " " + quote(name)
	if c.opt.Owner != nil {
		for _, p := range c.parts {
			if p.busy != nil {
				return p.unread()
			}
		}
		if err := c.opt.Owner.Savepoint(c.ctx, op, name); err != nil {
			c.failed = true
			return err
		}
	}
	for _, p := range c.parts {
		if !p.begun {
			continue
		}
		if p.busy != nil {
			return p.unread()
		}
		if p.lent {
			// The owner has done it.
		} else if _, err := p.conn.Exec(sql); err != nil {
			// Parts differ now: only the end of the transaction makes them equal.
			c.lost = true
			return c.failure(p, err)
		}
		switch op {
		case "savepoint":
			c.known(p)
			p.saves = append(p.saves, p.conn.Settings())
		case "release":
			p.saves = p.saves[:min(at, len(p.saves))]
		case "rollback to":
			if p.stale = false; at < len(p.saves) {
				p.conn.SetSettings(p.saves[at])
				p.saves = p.saves[:at+1]
			}
		}
	}
	switch op {
	case "savepoint":
		c.saves.Set(name, struct{}{})
	case "release":
		c.saves.Release(at)
		c.portals.Released(at)
		c.cursors.Released(at)
	case "rollback to":
		c.saves.RollBack(at)
		c.failed = false
	}
	return nil
}

// set runs SET and RESET on one part until the end of the transaction, so that a
// shard judges the value. The others get the session's settings when they are
// used next.
func (c *Conn) set(st *planner.Statement) error {
	if c.failed {
		return errFailed
	}
	p, err := c.part(c.ctx, "", false)
	if err != nil {
		return err
	}
	sql := st.Text
	if s := st.Set; !s.Local {
		switch {
		case s.Op == "set" && s.Value != "":
			var none *executor.Settings
			sql = "SET LOCAL " + strings.TrimPrefix(none.With(s.Name, s.Value).Statements()[0], "SET ")
		case s.Op == "set", s.Op == "reset":
			sql = "SET LOCAL " + quoteSetting(s.Name) + " TO DEFAULT"
		default:
			return sqlstate.Refusal("CLV-1014", "%s inside a transaction over several shards is not supported", st.Tag).
				WithHint("RESET the settings one by one, or end the transaction first")
		}
	}
	c.aside.setting = true
	defer func() { c.aside.setting = false }()
	s, err := c.send(p, request{text: sql})
	if err != nil {
		return err
	}
	if _, err := s.Next(); err != nil {
		return err
	}
	// The session takes note of it when it has the answer.
	p.stale = true
	c.told()
	c.completed(st.Tag, true)
	return nil
}

func quoteSetting(name string) string {
	parts := strings.Split(name, ".")
	for i := range parts {
		parts[i] = quote(parts[i])
	}
	return strings.Join(parts, ".")
}

// clockPart makes sure that there is a shard whose transaction's time is that of the
// whole transaction: the one where it began first, else p's.
func (c *transaction) clockPart(p *part) {
	if c.clockOn != "" {
		return
	}
	for _, o := range c.parts {
		if o.begun {
			c.clockOn = o.shard
			return
		}
	}
	c.clockOn = p.shard
}

// clock is the time at which the transaction began: the value of Plan.Clock's
// parameter.
func (c *transaction) clock(ctx context.Context) (text string, err error) {
	if c.clockText != "" {
		return c.clockText, nil
	}
	p, err := c.part(ctx, c.clockOn, false)
	if err != nil {
		return "", err
	}
	c.clockPart(p)
	if p.shard != c.clockOn {
		if p, err = c.part(ctx, c.clockOn, false); err != nil {
			return "", err
		}
	}
	// In a form that no setting changes.
	sql := "SELECT pg_catalog.to_char(pg_catalog.now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00'"
	if !c.can(p.shard).Styles {
		sql = "SELECT pg_catalog.now()"
	}
	res, err := c.exec(p, sql)
	if err != nil {
		return "", err
	}
	row, err := res.OneRow(1, p.shard)
	if err != nil {
		return "", err
	}
	c.clockText = row[0].String
	return c.clockText, nil
}

// unclock forgets the time, at the end of the transaction.
func (c *transaction) unclock() { c.clockOn, c.clockText = "", "" }

// atTime returns the execution and the text of a statement of one shard on its part:
// where that is not the part whose transaction began first, with the time of that one.
func (c *transaction) atTime(ctx context.Context, e *execution, p *part) (*execution, string, error) {
	t := c.shared.timed(c, e.st)
	if t.text == "" && t.err == nil {
		return e, e.st.Text, nil
	}
	alone := *e
	alone.lasts = true
	if c.clockPart(p); p.shard == c.clockOn {
		return &alone, e.st.Text, nil
	}
	if t.err != nil {
		return nil, "", t.err
	}
	if !t.clock {
		return &alone, t.text, nil
	}
	next, err := c.clocked(ctx, &alone)
	return next, t.text, err
}
