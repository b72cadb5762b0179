package sim

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// directory is the world's map and records, as a coordinator sees them. Changes of the map and of workflows take their turn. The
// methods that it does not have are called by nobody here.
type directory struct {
	shardmap.Directory
	l     *life
	token uint64
}

func (d *directory) Fenced(token uint64) shardmap.Records { return &directory{l: d.l, token: token} }

func (d *directory) Load(context.Context) (*shardmap.Snapshot, error) {
	if err := d.l.peek(); err != nil {
		return nil, err
	}
	defer d.l.p.w.mu.Unlock()
	return d.l.p.w.snap, nil
}

func (d *directory) At(_ context.Context, version uint64) (*shardmap.Snapshot, error) {
	if err := d.l.peek(); err != nil {
		return nil, err
	}
	defer d.l.p.w.mu.Unlock()
	v, ok := d.l.p.w.views[version]
	if !ok {
		return nil, shardmap.NotFound("there is no version %d", version)
	}
	return v.snap, nil
}

func (d *directory) Update(ctx context.Context, change shardmap.Change, next shardmap.State) (*shardmap.Snapshot, error) {
	w := d.l.p.w
	after, err := d.l.pass(ctx, "", change.Transit+" changes the map: "+change.Op, nil)
	if err != nil {
		return nil, unknown(err)
	}
	snap, err := w.advance(change, next)
	if err = unknown(after(err)); err != nil {
		return nil, err
	}
	return snap, nil
}

// unknown is the error of a change of which nobody knows whether it was stored.
func unknown(err error) error {
	if err == nil || errors.Is(err, errKilled) || sqlstate.CodeOf(err) != "" || errors.Is(err, context.Canceled) {
		return err
	}
	return sqlstate.Wrap(err, sqlstate.TransactionUnknown, "nobody knows whether it was stored")
}

// takes is how long a read of a record takes. Jobs that begin in the same instant, or are due in the one in which the leader looks,
// would go on in an order that no seed gives.
func takes(key string) time.Duration {
	if key != coordinator.KickRecord && !strings.HasPrefix(key, workflow.RecordPrefix) {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(key))
	return time.Duration(h.Sum32() % uint32(time.Millisecond))
}

func (d *directory) Record(_ context.Context, key string) (shardmap.Record, error) {
	time.Sleep(takes(key))
	if err := d.l.peek(); err != nil {
		return shardmap.Record{}, err
	}
	defer d.l.p.w.mu.Unlock()
	r, ok := d.l.p.w.records[key]
	if !ok {
		return r, shardmap.NoRecord(key)
	}
	return r, nil
}

func (d *directory) Records(_ context.Context, prefix, after string, limit int) (list []shardmap.Record, err error) {
	if err := d.l.peek(); err != nil {
		return nil, err
	}
	defer d.l.p.w.mu.Unlock()
	for key, r := range d.l.p.w.records {
		if strings.HasPrefix(key, prefix) && key > after {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b shardmap.Record) int { return cmp.Compare(a.Key, b.Key) })
	return list[:min(len(list), limit)], nil
}

// PutRecord takes its turn for a workflow; how far one is and who was told of it may be written at any time.
func (d *directory) PutRecord(ctx context.Context, key string, value []byte, expect uint64) (rev uint64, err error) {
	w := d.l.p.w
	id, ok := strings.CutPrefix(key, workflow.RecordPrefix)
	if !ok {
		if err := d.l.peek(); err != nil {
			return 0, err
		}
		defer w.mu.Unlock()
		return w.put(d.token, key, value, expect)
	}
	after, err := d.l.pass(ctx, "", id+" is stored", nil)
	if err != nil {
		return 0, unknown(err)
	}
	rev, err = w.put(d.token, key, value, expect)
	return rev, unknown(after(err))
}

func (d *directory) DeleteRecord(_ context.Context, key string, expect uint64) error {
	w := d.l.p.w
	if err := d.l.peek(); err != nil {
		return err
	}
	defer w.mu.Unlock()
	switch {
	case d.token != 0 && d.token != w.leader:
		return shardmap.Deposed(d.token)
	case w.records[key].Revision != expect:
		return shardmap.RecordConflict(key, expect)
	}
	delete(w.records, key)
	return nil
}

func (d *directory) Members(context.Context) (list []shardmap.MemberState, err error) {
	if err := d.l.peek(); err != nil {
		return nil, err
	}
	w := d.l.p.w
	defer w.mu.Unlock()
	for i, m := range w.members {
		if !m.listed {
			continue
		}
		s := shardmap.MemberState{Acknowledged: m.acked, Left: 5 * time.Second}
		s.Role, s.Host = "router", string(rune('a'+i))
		if !w.routers[i].live {
			s.Left = time.Second
		}
		if w.o.Break == NoAck {
			s.Acknowledged = w.snap.Version()
		}
		list = append(list, s)
	}
	return list, nil
}

func (d *directory) Campaign(ctx context.Context, _, _ string) (*shardmap.Leadership, error) {
	return d.l.campaign(ctx)
}

// advance stores the next map.
func (w *world) advance(change shardmap.Change, next shardmap.State) (*shardmap.Snapshot, error) {
	if change.Token != 0 && change.Token != w.leader {
		return nil, shardmap.Deposed(change.Token)
	}
	before := w.snap
	snap, err := shardmap.Advance(before, change, next)
	if err != nil {
		return nil, err
	}
	w.monotone(before, snap)
	w.snap = snap
	v := w.newest()
	c := shardmap.Concerned(before, snap)
	v.shards, v.all = c.Shards, c.All || c.Strangers()
	w.trace("map %d: %s %s", snap.Version(), change.Op, change.Transit)
	return snap, nil
}

// put stores a record by compare-and-set; token 0: an operator's.
func (w *world) put(token uint64, key string, value []byte, expect uint64) (uint64, error) {
	if token != 0 && token != w.leader {
		return 0, shardmap.Deposed(token)
	}
	if w.records[key].Revision != expect {
		return 0, shardmap.RecordConflict(key, expect)
	}
	w.rev++
	w.records[key] = shardmap.Record{Key: key, Value: slices.Clone(value), Revision: w.rev}
	if id, ok := strings.CutPrefix(key, workflow.RecordPrefix); ok {
		w.became(id, value)
	}
	return w.rev, nil
}

// became notes what a workflow is now.
func (w *world) became(id string, value []byte) {
	s, err := workflow.Decode(value)
	if err != nil {
		w.fail("workflow %s cannot be read: %v", id, err)
		return
	}
	was := w.flows[id]
	w.flows[id] = s
	if s.Step == was.Step {
		if s.Error != was.Error {
			w.trace("workflow %s: %s: %s", id, s.Step, s.Error)
		}
		return
	}
	w.trace("workflow %s: %s -> %s %s", id, was.Step, s.Step, s.Error)
	if strings.Contains(s.Cause, "differ") {
		w.fail("workflow %s: %s", id, s.Cause)
	}
	switch s.Step {
	case workflow.Opened:
		w.report.Moved++
	case workflow.RolledBack:
		w.report.RolledBack++
	case workflow.Cancelled:
		w.report.Cancelled++
	case workflow.Failed:
		w.report.Failed++
	}
}
