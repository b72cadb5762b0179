package admin

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// Recovery ends what transactions over several shards have prepared, on the shards of the map alone. So nothing is to be prepared
// on a shard that leaves it. A transaction that is prepared there nevertheless ends when the database comes back.

// stays gives a shard that was to leave the guards of the map again.
func (o *Ops) stays(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), regainMax)
	defer cancel()
	snap, err := o.load(ctx)
	if err != nil {
		o.opts.Log.Warn("guards of reference tables refuse writes on a shard that was not removed", "shard", name, "error", err, "next", "cleave doctor --repair")
		return
	}
	if _, ok := snap.Shard(name); ok {
		o.settleOn(ctx, snap, name)
	}
}

// there returns the name of a shard that answers, and has the reference tables, "" for another one.
func (o *Ops) there(ctx context.Context, name string, tables []*shardmap.Table) string {
	bound, cancel := context.WithTimeout(ctx, checkMax)
	defer cancel()
	conn, release, err := o.connect(bound, name)
	if err == nil {
		defer func() { release(true) }()
		for _, t := range tables {
			if _, err = engine.ExecContext(bound, conn, "SELECT 1 FROM "+quotedTable(t)+" LIMIT 0"); err != nil {
				break
			}
		}
	}
	if err != nil {
		o.opts.Log.Warn("a shard is removed without being asked what is prepared there", "shard", name, "error", err)
		return ""
	}
	return name
}

// partMax bounds the wait for transactions that have something prepared on a shard that is to leave.
const partMax = 30 * time.Second

// part waits until all transactions have ended that have something prepared on a shard, or that it decides, as of now: once it
// is not in the map any more, nobody ends them. Errors: 55006 when one does not end.
func (o *Ops) part(ctx context.Context, name string) error {
	var first map[string]bool
	for began := time.Now(); ; {
		found, _, err := txn.Recovery{Directory: o.opts.Directory, Connect: o.connect}.Settle(ctx)
		if err != nil {
			return err
		}
		open := slices.DeleteFunc(found, func(d txn.InDoubt) bool {
			return d.State == "committed" || d.State == "rolled back" || d.Decider != name && !slices.Contains(d.Shards, name) || first != nil && !first[d.ID]
		})
		if len(open) == 0 {
			return nil
		}
		if first == nil {
			first = map[string]bool{}
			for _, d := range open {
				first[d.ID] = true
			}
		}
		if time.Since(began) > partMax {
			return notEnded(name, &open[0])
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// notEnded is the error of a transaction that does not end, and keeps a shard from being removed.
func notEnded(name string, d *txn.InDoubt) error {
	e := sqlstate.New(sqlstate.ObjectInUse, "shard %s cannot be removed: transaction %s is prepared on %s, and %s has its decision", name, d.ID, strings.Join(d.Shards, ", "), d.Decider).OnShard(name)
	e.Hint = "nothing was changed; the router that committed it ends it, or another one: see cleave doctor, and run it again"
	if d.Err != nil {
		e.Detail = sqlstate.As(d.Err).Message
	}
	return e
}

// clear ends what is left prepared in a database that is to become a shard. It was one of this name, or it is new: its mark says so,
// so that it is no shard of the map under another URL. Errors: 55006 for what cannot be ended.
func (o *Ops) clear(ctx context.Context, sh engine.Shard, def shardmap.Shard, cur *shardmap.Snapshot) error {
	connect := func(ctx context.Context, name string) (engine.Conn, func(bool), error) {
		if name == def.Name {
			return dial(ctx, sh)
		}
		return o.connect(ctx, name)
	}
	conn, release, err := dial(ctx, sh)
	if err != nil {
		return err
	}
	defer release(false)
	if err := schema.SettleOutside(ctx, schema.RecoverOptions{Directory: o.opts.Directory, Connect: connect, Actor: "system"}, conn, def); err != nil {
		return err
	}
	found, err := txn.Recovery{Directory: o.opts.Directory, Connect: connect}.SettleOutside(ctx, cur, def)
	for _, d := range found {
		if d.Err != nil {
			own := sqlstate.As(d.Err)
			e := sqlstate.New(sqlstate.ObjectInUse, "transaction %s is prepared in the database and cannot be ended: %s", d.ID, own.Message).OnShard(def.Name)
			e.Hint = own.Hint
			return e
		}
		o.opts.Log.Info("a transaction over several shards was left prepared in a database that is to be a shard: "+d.State, "shard", def.Name, "transaction", d.ID, "decided on", d.Decider)
	}
	return err
}

// lost reports whether a shard does not answer.
func (o *Ops) lost(ctx context.Context, name string) bool {
	bound, cancel := context.WithTimeout(ctx, checkMax)
	defer cancel()
	conn, release, err := o.connect(bound, name)
	if err != nil {
		return true
	}
	_, err = engine.ExecContext(bound, conn, "SELECT 1")
	release(err == nil)
	return err != nil
}

// givenUp returns the shard on which a move only deletes what is left of it: it was given up, or completed. ""
// while the shard may still be needed.
func (o *Ops) givenUp(ctx context.Context, id string) string {
	s, err := o.workflow(ctx, id)
	switch {
	case err != nil:
		return ""
	case s.Step == workflow.Cancelling:
		return s.Target()
	case s.Step == workflow.Cleaning:
		return s.Source()
	}
	return ""
}
