package explain

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Step is what one part of a statement's work was, for EXPLAIN (ROUTE, ANALYZE).
type Step struct {
	// Name says what was done ("rows", "relation cleave_rel_1", ...), Shard where.
	Name, Shard string
	Rows, Bytes int64 // of the shard's answer
	Took        time.Duration
}

// Progress is how much of a statement's rows has come from the shards, or from the
// client of a COPY FROM STDIN. It is read by other goroutines.
type Progress struct{ rows, bytes atomic.Int64 }

// Add counts rows and bytes that have come.
func (p *Progress) Add(rows, bytes int64) {
	p.rows.Add(rows)
	p.bytes.Add(bytes)
}

// Read returns the rows and the bytes so far. Rows of a client are not counted.
func (p *Progress) Read() (rows, bytes int64) { return p.rows.Load(), p.bytes.Load() }

// Reset begins another statement.
func (p *Progress) Reset() {
	p.rows.Store(0)
	p.bytes.Store(0)
}

// stepsMax bounds the steps that are kept.
const stepsMax = 1000

// Trace is how far the statement that is run has come, and its steps if somebody wants them. NewTrace makes it.
type Trace struct {
	progress *Progress
	stepsMu  sync.Mutex
	recorded bool // steps are kept
	steps    []Step
}

// NewTrace is one of a conversation that has run nothing yet.
func NewTrace() Trace { return Trace{progress: new(Progress)} }

// Progress is that of the statement that is run, or was run last.
func (t *Trace) Progress() *Progress { return t.progress }

// Record begins to keep the steps of what is run; Recorded ends it.
func (t *Trace) Record() {
	t.stepsMu.Lock()
	defer t.stepsMu.Unlock()
	t.recorded, t.steps = true, nil
}

// Recorded returns the steps since Record, those of one name together.
func (t *Trace) Recorded() []Step {
	t.stepsMu.Lock()
	defer t.stepsMu.Unlock()
	steps := t.steps
	t.recorded, t.steps = false, nil
	first := map[string]int{}
	for i, s := range steps {
		if _, ok := first[s.Name]; !ok {
			first[s.Name] = i
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int {
		if d := first[a.Name] - first[b.Name]; d != 0 {
			return d
		}
		return strings.Compare(a.Shard, b.Shard)
	})
	return steps
}

// Steps is how many are kept so far.
func (t *Trace) Steps() int {
	t.stepsMu.Lock()
	defer t.stepsMu.Unlock()
	return len(t.steps)
}

// Cut forgets the steps after the first n.
func (t *Trace) Cut(n int) {
	t.stepsMu.Lock()
	defer t.stepsMu.Unlock()
	t.steps = t.steps[:min(n, len(t.steps))]
}

// Note records a step, if anybody wants to know.
func (t *Trace) Note(s Step) {
	t.stepsMu.Lock()
	defer t.stepsMu.Unlock()
	if t.recorded && len(t.steps) < stepsMax {
		t.steps = append(t.steps, s)
	}
}
