// Package load measures where the load is: by unit of the map, and by key for the hottest ones.
package load

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/telemetry"
	"github.com/cleavedb/cleave/telemetry/heat"
)

// DefaultWindow is the half-life of load figures: what was so long ago counts half.
const DefaultWindow = 2 * time.Minute

const (
	// hotKeys is how many keys the sketch has, hotShare from which share of all on one is hot.
	hotKeys  = 256
	hotShare = 0.02
)

// metered is a map and the counters of its units.
type metered struct {
	snap  *shardmap.Snapshot
	meter *heat.Meter
}

// Meter measures where the load is, see package heat, and tells metrics and the directory of it.
type Meter struct {
	directory      shardmap.Directory
	metrics        *telemetry.Metrics
	log            *slog.Logger
	member         string        // "": the directory is not told
	connectTimeout time.Duration // for the directory
	now            atomic.Pointer[metered]
	keys           *heat.Sketch
	lookups        atomic.Uint64 // samples of CountLookup

	mu     sync.Mutex
	window time.Duration
	rates  *heat.Rates
	began  time.Time // of the time since the last fold
}

// Options are what a Meter is made of.
type Options struct {
	Directory shardmap.Directory
	Metrics   *telemetry.Metrics
	Log       *slog.Logger
	// Member is the id under which the directory is told; "": it is not.
	Member string
	// Window is the half-life of the figures; 0 is DefaultWindow.
	Window         time.Duration
	ConnectTimeout time.Duration // bounds a report to the directory
}

// New returns a Meter that counts nothing until Install.
func New(o Options) *Meter {
	if o.Window <= 0 {
		o.Window = DefaultWindow
	}
	return &Meter{
		directory: o.Directory, metrics: o.Metrics, log: o.Log, member: o.Member, connectTimeout: o.ConnectTimeout,
		window: o.Window, rates: heat.NewRates(o.Window), keys: heat.NewSketch(hotKeys), began: time.Now(),
	}
}

// Install begins to count by another map.
func (l *Meter) Install(snap *shardmap.Snapshot) {
	next := &metered{snap: snap, meter: heat.NewMeter(snap.Units())}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fold()
	last := l.now.Swap(next)
	l.rates.Reset(snap.Units(), func(figures []float64) []float64 {
		if last == nil {
			return make([]float64, snap.Units())
		}
		return snap.Carry(last.snap, figures)
	})
}

// Count counts a statement that is about to run, routed by a map, and returns where its time
// is to be counted. sample: its key is worth a call of Named. It allocates nothing.
func (l *Meter) Count(snap *shardmap.Snapshot, r *plan.Route) (c *heat.Cell, sample bool) {
	return l.CountUnit(snap, r.Unit-1)
}

// CountUnit is Count for an assignment of the map by its number.
func (l *Meter) CountUnit(snap *shardmap.Snapshot, unit int) (c *heat.Cell, sample bool) {
	if m := l.now.Load(); m != nil && m.snap == snap {
		return m.meter.Count(unit)
	}
	return nil, false // by a transaction's own map, or one that was just replaced
}

// CountSeveral counts a statement that is about to run on several shards: once for each of them, in equal
// parts for the assignments of the map that it touches, so that a range's load goes with it where it goes
// and halves have less than the whole. Its time is not counted. It allocates nothing.
func (l *Meter) CountSeveral(snap *shardmap.Snapshot, units []plan.Units, shards int) {
	m := l.now.Load()
	if m == nil || m.snap != snap {
		return
	}
	all := 0
	for _, u := range units {
		all += u.To - u.From
	}
	if all == 0 {
		return // a keyspace without a range
	}
	for _, u := range units {
		m.meter.Spread(u.From, u.To, uint64(shards)*heat.One/uint64(all))
	}
}

// rowsAsOne is how many rows that a COPY or an INSERT brings to several shards count as one statement.
const rowsAsOne = 16

// CountRow counts a row that is written by its assignment.
func (l *Meter) CountRow(snap *shardmap.Snapshot, unit int) {
	if m := l.now.Load(); m != nil && m.snap == snap {
		m.meter.Spread(unit, unit+1, heat.One/rowsAsOne)
	}
}

// Named counts the key of a statement for the hot keys.
func (l *Meter) Named(ks string, key []string) {
	l.keys.Add(ks + "\x00" + strings.Join(key, "\x00"))
}

// lookedAt is of how many samples of CountLookup one is named: finding an owner takes less time than that.
const lookedAt = 8

// CountLookup is CountUnit for a key whose owner is all that was asked for. named: the key is to be given
// to NamedLookup.
func (l *Meter) CountLookup(snap *shardmap.Snapshot, unit int) (named bool) {
	_, sample := l.CountUnit(snap, unit)
	return sample && l.lookups.Add(1)%lookedAt == 0
}

// NamedLookup is Named for such a key.
func (l *Meter) NamedLookup(ks string, key []string) {
	l.keys.AddTimes(ks+"\x00"+strings.Join(key, "\x00"), lookedAt)
}

// fold takes in what was counted; mu is held.
func (l *Meter) fold() {
	now := time.Now()
	since := now.Sub(l.began)
	l.began = now
	if m := l.now.Load(); m != nil {
		l.rates.Fold(m.meter, since)
		l.keys.Fade(math.Exp2(-since.Seconds() / l.window.Seconds()))
	}
}

// Load returns the load that this process sees: statements per second and busy seconds per
// second by unit of the map, and the hot keys.
func (l *Meter) Load() (snap *shardmap.Snapshot, statements, busy []float64, keys []shardmap.HotKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fold()
	m := l.now.Load()
	if m == nil {
		return nil, nil, nil, nil
	}
	snap = m.snap
	statements, busy = make([]float64, snap.Units()), make([]float64, snap.Units())
	all := 0.0
	for i := range statements {
		statements[i], busy[i] = l.rates.Of(i)
		all += statements[i]
	}
	top, seen := l.keys.Top(shardmap.HeatKeysMax, hotShare)
	for _, k := range top {
		parts := strings.Split(k.Key, "\x00")
		// The sketch sees a sample of all: shares are what it knows.
		if rate := all * k.Count / seen; seen >= 8 && rate > 0 {
			keys = append(keys, shardmap.HotKey{Keyspace: parts[0], Key: parts[1:], Statements: rate})
		}
	}
	return snap, statements, busy, keys
}

// Report tells the directory what this member has measured, four times in a window, where
// it differs from what was told before.
func (l *Meter) Report(ctx context.Context) {
	every := max(l.window/4, 100*time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var told shardmap.HeatReport
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		snap, statements, busy, keys := l.Load()
		l.metrics.Load(served(snap, statements, busy))
		r := shardmap.NewHeatReport(snap, statements, busy, keys)
		if l.member == "" || !r.Differs(&told) {
			continue
		}
		if err := l.tell(ctx, &r); err != nil {
			l.log.Debug("the directory was not told of the load", telemetry.KeyError, err)
			continue
		}
		told = r
	}
}

// served is what metrics tell: the load of every shard and of the hottest ranges.
func served(snap *shardmap.Snapshot, statements, busy []float64) (map[string]float64, []telemetry.RangeLoad) {
	shards := map[string]float64{}
	for _, s := range snap.Shards() {
		shards[s.Name] = 0
	}
	var top []telemetry.RangeLoad
	for _, k := range snap.State().Keyspaces {
		ix, _ := snap.Keyspace(k.Name)
		for i := range ix.UnitCount() {
			n := statements[ix.FirstUnit()+i]
			if n == 0 {
				continue
			}
			p, shard, _ := ix.Unit(i)
			shards[shard] += n
			if len(top) == telemetry.RangesMax && n <= top[len(top)-1].Statements {
				continue
			}
			at, _ := slices.BinarySearchFunc(top, n, func(r telemetry.RangeLoad, n float64) int { return cmp.Compare(n, r.Statements) })
			top = slices.Insert(top, at, telemetry.RangeLoad{Keyspace: k.Name, Range: p.Text(), Shard: shard, Statements: n, Busy: busy[ix.FirstUnit()+i]})
			top = top[:min(len(top), telemetry.RangesMax)]
		}
	}
	return shards, top
}

// tell writes a report. A directory that cannot be reached is told the next time.
func (l *Meter) tell(ctx context.Context, r *shardmap.HeatReport) error {
	ctx, stop := context.WithTimeout(ctx, l.connectTimeout)
	defer stop()
	b, err := r.Encode()
	if err != nil {
		return err
	}
	key := shardmap.HeatPrefix + l.member
	old, err := l.directory.Record(ctx, key)
	if err != nil && !errors.Is(err, shardmap.ErrNotFound) {
		return err
	}
	_, err = l.directory.PutRecord(ctx, key, b, old.Revision)
	return err
}
