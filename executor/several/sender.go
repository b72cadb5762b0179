package several

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cleavedb/cleave/executor/several/explain"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// sender runs texts on the participants of a transaction, and reads what they answer. It knows nothing of the client's
// messages, portals and cursors.
type sender struct {
	*txn.Transaction
	explain.Trace
	aside  asides
	shared *Shared
	host   Host
	setter string // the shard that ran the last statement with set_config()

	// Of the statement that is under way:

	bounds   limits.Bounds
	proof    *proving      // of the read that begins, nil if it needs none
	units    [4]plan.Units // of shardsOf
	portalNo int           // names of portals on shards
}

// shardsOf returns the shards of a target that is about to be read or changed, and counts it for the load
// of the ranges that it touches.
func (c *sender) shardsOf(t *plan.Target, snap *shardmap.Snapshot, args *plan.Args) ([]string, error) {
	units := c.units[:0]
	shards, err := t.Touch(snap, args, &units)
	if err == nil {
		c.Ex.CountSeveral(snap, units, len(shards))
	}
	return shards, err
}

// partsOf are the participants of several shards, within the session's bound of shards.
func (c *sender) partsOf(ctx context.Context, shards []string, write bool) ([]*txn.Participant, error) {
	if err := c.bounds.Touches(shards...); err != nil {
		return nil, err
	}
	return c.Participants(ctx, shards, write)
}

// asides are what shards say beside their answers, until the client is told.
type asides struct {
	mu     sync.Mutex
	frames []byte
	cut    map[string]bool // notices of names that are too long, since the last ReadyForQuery
	// setting: a statement that changes settings is run.
	setting bool
}

// nameTooLong is the code with which PostgreSQL says that it cuts a name short.
const nameTooLong = "42622"

// notice passes a shard's notice on.
func (a *asides) notice(frame []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(frame) > wire.Header && frame[0] == wire.NoticeResponse && wire.ParseReport(frame[wire.Header:]).Code == nameTooLong {
		if a.cut[string(frame)] {
			return // the notice is about the text, which several shards read
		}
		if a.cut == nil {
			a.cut = map[string]bool{}
		}
		a.cut[string(frame)] = true
	}
	if len(a.frames)+len(frame) <= noticesMax {
		a.frames = append(a.frames, frame...)
	}
}

// noticesMax bounds the notices that wait to be passed on, bytes.
const noticesMax = 1 << 20

// take appends what the client is to be told.
func (a *asides) take(out []byte) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	out = append(out, a.frames...)
	a.frames = a.frames[:0]
	return out
}

// mark is what was said so far; back forgets what was said since.
func (a *asides) mark() (m said) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return said{len(a.frames), maps.Clone(a.cut)}
}

type said struct {
	frames int
	cut    map[string]bool
}

func (a *asides) back(m said) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.frames < len(a.frames) {
		a.frames, a.cut = a.frames[:m.frames], m.cut
	}
}

// parameter passes a changed parameter on, if the statement was one that changes
// the session's settings.
func (a *asides) parameter(name, value string) {
	if !a.setting {
		return
	}
	a.notice(wire.AppendParameterStatus(nil, name, value))
}

// consistent takes the snapshots of an atomic read before anything of it is run. Inside a block with one snapshot all shards get
// theirs with its first statement, but for those that cannot be reached: what needs one of them fails. By default that is so only
// if that statement reads several shards. Outside, those get theirs that the statement reads. It may be called again.
func (c *sender) consistent(ctx context.Context, e *execution) error {
	if !txn.Atomic(c.host.Settings()) || c.Proven != nil && c.Block || txn.ReadsReplicas(c.Transaction) {
		return nil
	}
	insists := txn.Insists(c.host.Settings())
	var shards []string
	switch {
	case c.Block && (!c.lasting() || txn.Serializable(c.Isolation())):
		return nil // SERIALIZABLE is of one shard: a second one is refused when it joins
	case c.Block && !insists && (!c.beginsSeveral(e) || c.HasNamed()):
		return nil
	case c.Block:
		for _, s := range c.host.Snapshot().Shards() {
			shards = append(shards, s.Name)
		}
	case e == nil || !e.st.ReadOnly || e.st.Explained != nil:
		return nil // a write; or a description, which reads nothing; or a plan, whose rows nobody gets
	default:
		var err error
		if shards, err = c.reads(e); err != nil || len(shards) < 2 {
			return err
		}
	}
	for _, p := range c.Joined {
		switch {
		case !p.Begun || c.Proven[p.Shard]:
		case insists:
			return hasSnapshot(p.Shard)
		default:
			return nil
		}
	}
	switch {
	case c.Proven == nil:
	case !insists || !slices.ContainsFunc(shards, func(s string) bool { return !c.Proven[s] }):
		return nil // an earlier statement of the unit has them
	default:
		return sqlstate.Refusal("CLV-0208", "an atomic read needs snapshots of other shards than the one before it in the same transaction").
			WithHint("Sync between them.").OnShard(shards[0])
	}
	if c.Block {
		return c.takeAll(ctx, shards)
	}
	parts, err := c.partsOf(ctx, shards, false)
	if err != nil {
		return err
	}
	return c.TakeSnapshots(ctx, parts)
}

// lasting reports whether the transaction has one snapshot for all statements.
func (c *sender) lasting() bool {
	level := strings.ToUpper(c.Isolation())
	return strings.Contains(level, "REPEATABLE") || strings.Contains(level, "SERIALIZABLE")
}

// beginsSeveral reports whether a read over several shards is the first statement of its transaction that uses a shard. One that is
// only described may read all that it can.
func (c *sender) beginsSeveral(e *execution) bool {
	if e == nil || !e.st.ReadOnly || txn.Single(c.host.Settings()) || slices.ContainsFunc(c.Joined, func(p *txn.Participant) bool { return p.Begun }) {
		return false
	}
	if e.desc == nil {
		return e.st.Kind == plan.Several
	}
	shards, err := c.reads(e)
	return err == nil && len(shards) > 1
}

// reads are the shards that a statement reads, one or none where its own
// snapshot is all that matters.
func (c *sender) reads(e *execution) ([]string, error) {
	snap, st := c.host.Snapshot(), e.st
	if st.Kind == plan.OneShard {
		r, err := st.Route(snap, e.args)
		if err != nil || !r.Several {
			return nil, err
		}
		// Types of literals do not matter for the shards.
		if st, err = c.Ex.PlanSeveral(c, []byte(st.Text), c.host.Settings(), snap, c.Change != nil); err != nil {
			return nil, err
		}
	}
	if st.Kind != plan.Several || st.Plan == nil {
		return nil, nil
	}
	targets := []plan.Target{}
	switch st.Plan.Op {
	case plan.Scatter:
		targets = append(targets, st.Plan.Target)
	case plan.CopyOut:
		if query := st.Plan.Copy.Source; query != nil {
			return c.reads(&execution{st: query, args: &plan.Args{}})
		}
		targets = append(targets, st.Plan.Target)
	}
	for i := range st.Plan.Relations {
		targets = append(targets, st.Plan.Relations[i].Target)
	}
	var shards []string
	for i := range targets {
		if targets[i].Where == plan.AnyOne && len(targets) > 1 {
			continue
		}
		names, err := targets[i].Shards(snap, e.args)
		if err != nil {
			return nil, err
		}
		shards = append(shards, names...)
	}
	slices.Sort(shards)
	return slices.Compact(shards), nil
}
