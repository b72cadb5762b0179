package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// progressEvery is how often progress is stored while there is some.
const progressEvery = time.Second

// progress counts what a job does, and stores it beside the record now and then.
type progress struct {
	j *job

	rows, bytes, changes, lagBytes atomic.Int64

	mu        sync.Mutex
	step      workflow.StepName
	op        workflow.Op
	rev       uint64
	last      time.Time // of the last store
	lastRows  int64
	lastBytes int64
	note      string
	// waits says for whom the work waits on a shard, trouble is that as its error, when it has lasted.
	waits, trouble string
	// anew says what of an interrupted copy is copied again; before is how many rows that had copied, -1 as long as nobody has looked.
	anew   string
	before int64

	store sync.Mutex // held while it is stored
}

func newProgress(j *job) *progress {
	p := &progress{j: j, before: -1}
	p.lagBytes.Store(-1)
	return p
}

// begin starts to count for a step.
func (p *progress) begin(step workflow.StepName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.step != step {
		p.step = step
		p.rows.Store(0)
		p.bytes.Store(0)
		p.changes.Store(0)
		p.lastRows, p.lastBytes = 0, 0
	}
	p.note, p.waits, p.trouble, p.anew, p.before = "", "", "", "", -1
}

// interrupted returns how many rows an earlier coordinator or try has copied in the step that is under way. It is asked before
// progress is stored in the step.
func (p *progress) interrupted(ctx context.Context, s *workflow.State) int64 {
	p.mu.Lock()
	before := p.before
	p.mu.Unlock()
	if before >= 0 {
		return before
	}
	if before = p.rows.Load(); before == 0 {
		r, err := p.j.t.c.opts.Directory.Record(ctx, workflow.ProgressPrefix+p.j.id)
		var w workflow.Progress
		if err == nil && json.Unmarshal(r.Value, &w) == nil && w.Step == s.Step && w.At >= s.StepSince() {
			before = w.Rows
		}
	}
	p.mu.Lock()
	p.before = before
	p.mu.Unlock()
	return before
}

// copiesAgain notes what of an interrupted copy is copied again, for as long as the step goes on.
func (p *progress) copiesAgain(what string) {
	p.mu.Lock()
	p.anew = what
	p.mu.Unlock()
	p.now()
}

func (p *progress) doing(op workflow.Op) {
	p.mu.Lock()
	p.op = op
	p.mu.Unlock()
}

func (p *progress) copied(rows, bytes int64) {
	p.rows.Add(rows)
	p.bytes.Add(bytes)
	p.save()
}

// copiedSoFar begins to count again, from the rows and bytes that are on the target already.
func (p *progress) copiedSoFar(rows, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rows.Store(rows)
	p.bytes.Store(bytes)
	p.lastRows, p.lastBytes = rows, bytes
}

func (p *progress) change() {
	if p.changes.Add(1)%256 == 0 {
		p.save()
	}
}

// lag asks how far a stream is behind.
func (p *progress) lag(ctx context.Context, st *stream, at engine.Position) {
	if n, err := st.from.Lag(ctx, st.id, at); err == nil {
		p.lagBytes.Store(n)
	}
	p.save()
}

// say notes why the work waits or is slow, or, with "", that it does not any more. It is stored at once.
func (p *progress) say(note string) {
	p.mu.Lock()
	is := p.note
	p.note = note
	p.mu.Unlock()
	if is != note {
		p.now()
	}
}

// said reports whether it is noted why the work waits or is slow, by itself.
func (p *progress) said() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.note != ""
}

// waitsFor is say for somebody on a shard, with an error when that has lasted. It comes before other notes.
func (p *progress) waitsFor(waits, trouble string) {
	p.mu.Lock()
	same := p.waits == waits && p.trouble == trouble
	p.waits, p.trouble = waits, trouble
	p.mu.Unlock()
	if !same {
		p.now()
	}
}

func (p *progress) now() {
	p.store.Lock()
	defer p.store.Unlock()
	p.write(time.Now())
}

// save stores it, if that was not done just now. The first goroutine that comes does it,
// while the others go on.
func (p *progress) save() {
	now := time.Now()
	p.mu.Lock()
	due := now.Sub(p.last) >= progressEvery
	p.mu.Unlock()
	if due && p.store.TryLock() {
		defer p.store.Unlock()
		p.write(now)
	}
}

// write stores it; p.store is held.
func (p *progress) write(now time.Time) {
	p.mu.Lock()
	spent := now.Sub(p.last).Seconds()
	w := workflow.Progress{At: now.UnixMilli(), Step: p.step, Doing: p.op, Rows: p.rows.Load(), Bytes: p.bytes.Load(), Changes: p.changes.Load(), LagBytes: p.lagBytes.Load(), Note: cmp.Or(p.waits, p.note, p.anew), Error: p.trouble}
	if !p.last.IsZero() && spent < 10*progressEvery.Seconds() {
		w.RowsPerSecond, w.BytesPerSecond = float64(w.Rows-p.lastRows)/spent, float64(w.Bytes-p.lastBytes)/spent
	}
	p.last, p.lastRows, p.lastBytes = now, w.Rows, w.Bytes
	rev := p.rev
	p.mu.Unlock()
	rev = p.put(w, rev)
	p.mu.Lock()
	p.rev = rev
	p.mu.Unlock()
}

// put writes the record and returns its revision. Progress that is lost is no harm.
func (p *progress) put(w workflow.Progress, rev uint64) uint64 {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	b, err := json.Marshal(w)
	if err != nil {
		return rev
	}
	key := workflow.ProgressPrefix + p.j.id
	for range 2 {
		next, err := p.j.t.records.PutRecord(ctx, key, b, rev)
		if err == nil {
			return next
		}
		if !errors.Is(err, shardmap.ErrConflict) {
			return rev
		}
		r, err := p.j.t.records.Record(ctx, key)
		if err != nil {
			return 0
		}
		rev = r.Revision
	}
	return rev
}
