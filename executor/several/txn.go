package several

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// endUnit ends what is one transaction outside of a block: the frames up to Sync,
// or a Query. Inside a block it does nothing.
func (c *Conn) endUnit() error {
	if c.Block {
		return nil
	}
	defer c.Forget()
	var held map[string]*cursor
	var err error
	if !c.Aborted {
		held, err = c.hold(c.Ctx)
	}
	c.closePortals()
	if c.Aborted || err != nil {
		drop(held)
		c.RollBack()
		return err
	}
	return c.commitHolding(held)
}

// commitHolding is commit, and what it makes of WITH HOLD cursors.
func (c *Conn) commitHolding(held map[string]*cursor) error {
	frames, err := c.Commit()
	c.aside.notice(frames)
	c.told()
	if err != nil {
		drop(held)
		return err
	}
	c.keep(held)
	return nil
}

// control runs transaction control, which comes as simple Queries.
func (c *Conn) control(st *plan.Statement) error {
	switch st.Tx.Op {
	case "begin":
		if c.Block {
			return sqlstate.New(sqlstate.ActiveTransaction, "there is already a transaction in progress")
		}
		c.Block, c.BeginText, c.ReadOnly = true, st.Text, st.Tx.ReadOnly
	case "commit", "rollback":
		return c.finish(st)
	case "savepoint", "release", "rollback to":
		if err := c.savepoint(st); err != nil {
			return err
		}
	default:
		if err := c.setMode(st); err != nil {
			return err
		}
	}
	c.out = wire.AppendCommandComplete(c.out, st.Tag)
	return nil
}

// setMode runs SET TRANSACTION and SET CONSTRAINTS.
func (c *Conn) setMode(st *plan.Statement) error {
	if c.Aborted {
		return errFailed
	}
	switch st.Tx.Op {
	case "set":
		if err := c.SetReadOnly(st); err != nil {
			return err
		}
		return c.SetMode(st)
	case "snapshot":
		return c.imports(c.Ctx, st.Tx.Name)
	case "constraints":
		return c.SetConstraints(c.Ctx, st)
	}
	return sqlstate.Refusal("CLV-1012", "%s is not supported", st.Tag).WithHint("Use BEGIN, COMMIT, ROLLBACK and SAVEPOINT.")
}

func (c *Conn) finish(st *plan.Statement) error {
	commit := st.Tx.Op == "commit" && !c.Aborted
	var held map[string]*cursor
	var err error
	if commit {
		held, err = c.hold(c.Ctx)
	}
	c.closePortals()
	c.EndBlock()
	defer c.Forget()
	switch {
	case err != nil:
		drop(held)
		c.StopAll()
		c.RollBack()
		return err
	case !commit:
		c.StopAll()
		c.RollBack()
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
func (c *Conn) savepoint(st *plan.Statement) error {
	op, name := st.Tx.Op, st.Tx.Name
	if !c.Block {
		return sqlstate.New(sqlstate.NoActiveTransaction, "%s can only be used in transaction blocks", st.Tag)
	}
	if c.Lost || c.Aborted && op != "rollback to" {
		return errFailed
	}
	at, err := c.Saves.Find(name)
	if op != "savepoint" && err != nil {
		return err
	}
	if op == "rollback to" {
		c.portals.RolledBack(at)
		c.cursors.RolledBack(at)
		c.StopAll()
	}
	if err := c.Savepoint(op, name, at); err != nil {
		return err
	}
	switch op {
	case "release":
		c.portals.Released(at)
		c.cursors.Released(at)
	}
	return nil
}

// set runs SET and RESET on one part until the end of the transaction, so that a
// shard judges the value. The others get the session's settings when they are
// used next.
func (c *Conn) set(st *plan.Statement) error {
	if c.Aborted {
		return errFailed
	}
	p, err := c.Participant(c.Ctx, "", false)
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
				WithHint("Reset the settings one by one, or end the transaction first.")
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
	p.Stale = true
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

// atTime returns the execution and the text of a statement of one shard on its part:
// where that is not the part whose transaction began first, with the time of that one.
func (c *sender) atTime(ctx context.Context, e *execution, p *txn.Participant) (*execution, string, error) {
	t := c.shared.timed(c, e.st)
	if t.text == "" && t.asks == nil && t.err == nil {
		return e, e.st.Text, nil
	}
	alone := *e
	alone.lasts = true
	if c.ClockPart(p); p.Shard == c.ClockOn {
		return &alone, e.st.Text, nil
	}
	if t.asks != nil {
		types, err := c.literalTypes(ctx, t.asks, e.desc.params, func() (*txn.Participant, error) { return p, nil })
		if err != nil {
			return nil, "", err
		}
		t = new(timed)
		if t.text, t.clock, _, t.err = c.Ex.AtTime(e.st, types, c.host.Settings(), c.host.Snapshot()); t.text == "" && t.err == nil {
			return &alone, e.st.Text, nil
		}
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

// Export takes a snapshot of each shard, as one moment, if the block has not done so, and gives their name.
func (c *Conn) Export() (name string, err error) {
	err = c.within(func() error {
		name, err = c.exports(c.Ctx)
		return err
	})
	return name, err
}

func (c *sender) exports(ctx context.Context) (string, error) {
	shards, err := c.exporting()
	if err != nil {
		return "", err
	}
	begun := slices.ContainsFunc(c.Joined, func(p *txn.Participant) bool { return p.Begun })
	switch {
	case c.Proven != nil:
	case len(shards) == 1:
		_, err = c.Participant(ctx, shards[0], false)
	case !c.lasting():
		err = sqlstate.Refusal("CLV-1036", "pg_export_snapshot() at READ COMMITTED over several shards is not supported").
			WithHint("Run it in a transaction of BEGIN ISOLATION LEVEL REPEATABLE READ.")
	case begun:
		err = sqlstate.Refusal("CLV-1037", "pg_export_snapshot() after a statement whose snapshot is its shard's own is not supported").
			WithHint("Run it as the first statement of the transaction, or run SET cleave.read_consistency = 'atomic' before the transaction.")
	default:
		if err = txn.CheckIsolation(c.Isolation(), shards[0], shards[1]); err == nil {
			err = c.takeAll(ctx, shards)
		}
	}
	if err != nil {
		return "", err
	}
	return c.shared.transactions.Export(c.Transaction)
}

// exporting are all shards, each of which has to be able to give its snapshot to others.
func (c *sender) exporting() (names []string, err error) {
	for _, s := range c.host.Snapshot().Shards() {
		if !s.Can().Exports {
			return nil, sqlstate.Refusal("CLV-1035", "a snapshot is not exported or imported where shards are SQLite files: nobody else can have what a transaction sees there").
				WithHint("Read in one transaction: BEGIN ISOLATION LEVEL REPEATABLE READ.").OnShard(s.Name)
		}
		names = append(names, s.Name)
	}
	return names, nil
}

// imports begins the block on all shards with what another one has exported.
func (c *sender) imports(ctx context.Context, name string) error {
	if _, err := c.exporting(); err != nil {
		return err
	}
	e, err := c.shared.transactions.Exported(ctx, name)
	if err != nil {
		return err
	}
	if now := c.host.Snapshot().Version(); now != e.Version {
		err := sqlstate.New(sqlstate.SerializationFailure, "the snapshot was exported by version %d of the shard map, and the map has changed since (version %d)", e.Version, now).
			WithHint("nothing was done: export a snapshot again, and import that")
		err.Retry = sqlstate.RetryTransaction
		return err
	}
	shards := slices.Sorted(maps.Keys(e.Shards))
	if len(shards) > 1 && txn.Serializable(c.Isolation()) {
		return sqlstate.New(sqlstate.FeatureNotSupported, "a serializable transaction cannot import a snapshot from a non-serializable transaction")
	}
	parts, err := c.reachable(ctx, shards)
	if err != nil {
		return err
	}
	return c.shared.transactions.Import(ctx, c.Transaction, parts, e, name)
}

// takeAll takes the snapshots of the block on shards.
func (c *sender) takeAll(ctx context.Context, shards []string) error {
	parts, err := c.reachable(ctx, shards)
	if err != nil {
		return err
	}
	return c.TakeSnapshots(ctx, parts)
}

// reachable are the participants of shards, without those that cannot be reached: what needs these fails.
func (c *sender) reachable(ctx context.Context, shards []string) ([]*txn.Participant, error) {
	for {
		parts, err := c.Participants(ctx, shards, false)
		at := -1
		if sqlstate.CodeOf(err) == sqlstate.CannotConnectNow {
			at = slices.Index(shards, sqlstate.As(err).Shard)
		}
		if at < 0 || len(shards) == 1 {
			return parts, err
		}
		shards = slices.Delete(slices.Clone(shards), at, at+1)
	}
}
