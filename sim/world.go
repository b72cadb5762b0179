package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// Break is a safeguard that is left out.
type Break string

// The safeguards.
const (
	Whole         Break = ""               // none is left out
	NoAck         Break = "no-ack"         // the cutover does not wait for the members' acknowledgements
	NoWriterLock  Break = "no-writer-lock" // the fence does not wait for writers
	NoToken       Break = "no-token"       // shards listen to deposed coordinators
	NoDrain       Break = "no-drain"       // the target opens before everything was applied
	NoLease       Break = "no-lease"       // routers answer without a lease
	NoFilter      Break = "no-filter"      // scans count strangers
	NoTransaction Break = "no-transaction" // acknowledgements do not wait for open transactions
	NoTerm        Break = "no-term"        // transactions go on after their router has lost its lease and joined anew
	NoMark        Break = "no-mark"        // reverse replication begins where its capture did, not at the cutover
	NoCatchUp     Break = "no-catch-up"    // a copy that goes on does not bring what is loaded to the position of the rest
	BlindBack     Break = "blind-back"     // an opening is taken back by a leader who does not know whether it was done, and does not shut the target
)

// Breaks are those that are missed: all but Whole; and NoTerm, which takes some thousand clusters.
var Breaks = []Break{NoAck, NoWriterLock, NoToken, NoDrain, NoLease, NoFilter, NoMark, NoCatchUp, NoTransaction, BlindBack}

// Options are what a run is made of.
type Options struct {
	Seed  uint64
	Ticks int // of chaos; then everything is healed and has to end. 0: 3,000
	Break Break
	// Aim makes the situation likely in which a safeguard is needed; Whole: none in particular.
	Aim Break
	// Trace is told every step, nil: nobody is.
	Trace func(line string)
}

// Report says what happened in a run.
type Report struct {
	Ticks, Writes, Reads, Scans, Moved, RolledBack, Cancelled, Failed, Crashes int
}

// Violation is an invariant that did not hold.
type Violation struct {
	Seed       uint64
	Break, Aim Break
	Tick       int
	What       string
}

// Error gives the seed and the command that shows the run.
func (v *Violation) Error() string {
	broken := ""
	if v.Break != Whole {
		broken = " -break " + string(v.Break)
	}
	if v.Aim != Whole {
		broken += " -aim " + string(v.Aim)
	}
	return fmt.Sprintf("seed %d, tick %d: %s\nsee it: go test ./sim -run TestSeed -seed %d%s -v", v.Seed, v.Tick, v.What, v.Seed, broken)
}

const ks = "k"

// keys are those that clients use. Their bounds are in newWorld.
var keys = []int{50, 110, 120, 130, 210, 220, 310}

func keyOf(n int) keyspace.Key { return keyspace.Key{keyspace.Int(keyspace.Int8, int64(n))} }

// world is a cluster.
type world struct {
	o    Options
	rand *rand.Rand
	skew atomic.Int64  // by how much the wall clock is ahead, milliseconds; it jumps
	nap  time.Duration // passes at the end of a tick
	tick int

	// mu is held by the tick, or by the coordinator whose turn it is.
	mu      sync.Mutex
	snap    *shardmap.Snapshot
	views   map[uint64]*view
	records map[string]shardmap.Record
	flows   map[string]workflow.State // what the records say of workflows
	rev     uint64
	leader  uint64 // token
	tokens  uint64
	members []member // by router

	shards  map[string]*shard
	routers []*router
	coords  []*process
	lives   []*life // of all processes
	spawned int
	stopped bool // no new statements, no faults
	files   bool // every shard has one writer at a time

	moods   moods
	orphans []orphan // transactions whose router is gone
	psql    []*psql

	nextID int
	acked  map[int][]int // writes that were acknowledged, by key
	dirty  map[int]bool  // keys to look at
	report Report
	bad    string
}

// moods are how often things happen in a run: each run has its own.
type moods struct {
	learn                 []int // per cent of a router's steps, by router
	acknowledge, talk     int   // per cent of a router's steps
	routers, coordinators int   // per cent of all ticks
	lease, crash, failure int   // once in so many steps
	hot, spread           int   // statements use so many keys, from that one on
	trouble               int   // per cent of the crashes of shards, ends of leaders, pauses and cancellations that could be
	openings              int   // per cent of the calls that open a target's guards which fail, or lose their answer
	hold                  int64 // for how many milliseconds a move holds statements at most; 0: as long as it does by itself
	kinds                 []kind
	routersOnly           bool // nobody writes on a shard himself
}

func newMoods(r *rand.Rand) moods {
	pick := func(of ...int) int { return of[r.IntN(len(of))] }
	learn := pick(2, 6, 12, 30)
	return moods{
		learn: []int{learn, learn}, acknowledge: pick(6, 12, 30), talk: pick(5, 15, 60),
		routers: pick(20, 45, 60), coordinators: pick(20, 30),
		lease: pick(30, 100, 400, 2000), crash: pick(150, 400, 2000), failure: pick(50, 150, 1000),
		hot: r.IntN(len(keys)), spread: pick(1, 2, len(keys)), trouble: pick(0, 20, 100),
		kinds: []kind{readKey, writeKey, scanAll, inTxn, twoReads, across},
	}
}

// aim makes a situation likely: what is at work in it is quick, and little else goes wrong.
func (m *moods) aim(at Break) {
	if at == Whole {
		return
	}
	m.lease, m.crash, m.failure, m.trouble = 5000, 5000, 2000, 0
	m.routers, m.coordinators, m.acknowledge, m.spread = 45, 40, 30, 1
	m.learn = []int{30, 30}
	switch at {
	case NoTransaction: // a transaction idles on the old owner, whose router learns late that there is a new one; another one writes there
		m.learn[0], m.talk = 2, 4
		m.kinds = []kind{twoReads, writeKey}
	case BlindBack: // an opening is done and its answer lost, and the next tries fail until its time is over
		// Who writes on the target himself, between an opening whose answer was lost and its end, loses that: docs/design/workflow.md.
		m.openings, m.hold, m.routersOnly = 80, 400, true
	}
}

// orphan is a transaction that nobody talks to any more.
type orphan struct {
	shard     string
	t         *txn
	committed bool // COMMIT is on its way
}

type member struct {
	listed bool
	acked  uint64
}

// view is what a version of the map says, prepared.
type view struct {
	snap      *shardmap.Snapshot
	owners    map[int]string
	transits  []transit
	strangers map[string]*keyspace.Owner
	// shards are those that the change to it concerned; all: every one.
	shards []string
	all    bool
}

type transit struct {
	shardmap.Transit
	keys  *keyspace.Owner
	owner string
}

func newWorld(o Options) *world {
	if o.Ticks == 0 {
		o.Ticks = 3000
	}
	w := &world{
		o: o, rand: rand.New(rand.NewPCG(o.Seed, 0x636c6561766521)),
		views: map[uint64]*view{}, records: map[string]shardmap.Record{}, flows: map[string]workflow.State{}, shards: map[string]*shard{},
		acked: map[int][]int{}, dirty: map[int]bool{}, members: make([]member, 2),
	}
	w.moods, w.files = newMoods(w.rand), w.chance(40)
	w.moods.aim(o.Aim)
	w.files = w.files && o.Aim != BlindBack // the guards of a file are opened as those of a source are fenced
	var state shardmap.State
	state.Format, state.Cluster, state.DefaultShard = shardmap.Format, "8a4e7f7c-3c44-4f0e-9a80-0c8f3b8e2a11", "a"
	for _, name := range []string{"a", "b", "c"} {
		state.Shards = append(state.Shards, shardmap.Shard{Name: name, Engine: "sqlite", URL: "file:" + name, Weight: 1})
		w.shards[name] = newShard(w, name)
	}
	k, err := shardmap.NewRangeKeyspace(ks, []keyspace.Type{keyspace.Int8}, [][]string{{"100"}, {"200"}, {"300"}}, []string{"a", "b", "a", "c"})
	if err != nil {
		panic(err)
	}
	state.PutKeyspace(k)
	for _, key := range keys {
		state.PutTable(shardmap.Table{Schema: "public", Name: tableOf(key), Kind: shardmap.Sharded, Keyspace: ks, ShardKey: []string{"k"},
			Columns: []shardmap.Column{{Name: "k", Type: "bigint", OID: 20, NotNull: true}, {Name: "v", Type: "text", OID: 25}}})
	}
	w.snap, err = shardmap.Advance(nil, shardmap.Change{By: "sim", Op: "create"}, state)
	if err != nil {
		panic(err)
	}
	for _, s := range w.shards {
		s.owned = schema.GuardsOf(w.snap, ks, s.name)[0].Owned
		s.guard = keyspace.NewOwner(s.owned)
	}
	w.newest()
	for i := range w.members {
		w.members[i] = member{listed: true, acked: 1}
		w.routers = append(w.routers, newRouter(w, i))
	}
	for i := range 2 {
		w.coords = append(w.coords, &process{w: w, n: i})
	}
	return w
}

func (w *world) trace(format string, args ...any) {
	if w.o.Trace != nil {
		w.o.Trace(fmt.Sprintf("%5d  ", w.tick) + fmt.Sprintf(format, args...))
	}
}

// fail notes the first violation.
func (w *world) fail(format string, args ...any) {
	if w.bad == "" {
		w.bad = fmt.Sprintf(format, args...)
		w.trace("VIOLATED: %s", w.bad)
	}
}

// key is what a statement uses.
func (w *world) key() int { return keys[(w.moods.hot+w.rand.IntN(w.moods.spread))%len(keys)] }

func (w *world) chance(percent int) bool { return w.rand.IntN(100) < percent }

func (w *world) view(version uint64) *view {
	if v, ok := w.views[version]; ok {
		return v
	}
	panic("no such version")
}

// concerned reports whether a map after one and up to another concerned a shard.
func (w *world) concerned(shard string, after, upTo uint64) bool {
	for n := after + 1; n <= upTo; n++ {
		if v := w.view(n); v.all || slices.Contains(v.shards, shard) {
			return true
		}
	}
	return false
}

// newest is the view of the newest map.
func (w *world) newest() *view {
	version := w.snap.Version()
	if v, ok := w.views[version]; ok {
		return v
	}
	v := &view{snap: w.snap, owners: map[int]string{}, strangers: map[string]*keyspace.Owner{}}
	ix, _ := w.snap.Keyspace(ks)
	for _, k := range keys {
		a, err := ix.Locate(keyOf(k))
		if err != nil {
			panic(err)
		}
		v.owners[k] = a.Shard
	}
	for _, t := range ix.Def().Transits {
		owner, err := w.snap.OwnerOf(ks, t.Part)
		if err != nil {
			panic(err)
		}
		v.transits = append(v.transits, transit{t, keyspace.NewOwner(w.snap.Keys(ks, t.Part)), owner})
	}
	for name := range w.shards {
		if own, ok := w.snap.Strangers(ks, name); ok {
			v.strangers[name] = keyspace.NewOwner(own)
		}
	}
	w.views[version] = v
	return v
}

// concerns reports whether a shard is one of the two.
func (t *transit) concerns(shard string) bool { return t.From == shard || t.To == shard }

// held returns the transit that holds a key, nil if none does.
func (v *view) held(key int) *transit {
	for i := range v.transits {
		if t := &v.transits[i]; t.Hold != shardmap.NoHold && t.keys.Owns(keyOf(key)) {
			return t
		}
	}
	return nil
}

func (v *view) holding() bool {
	return slices.ContainsFunc(v.transits, func(t transit) bool { return t.Hold != shardmap.NoHold })
}

// update changes the map for an operator.
func (w *world) update(op string, edit func(*shardmap.State) error) {
	next := w.snap.State().Clone()
	if edit(&next) == nil {
		// Refused within a transit, or between two owners.
		_, _ = w.advance(shardmap.Change{Expect: w.snap.Version(), By: "sim", Op: op}, next)
	}
}

// monotone: the epoch of a key's assignment never falls, and grows when its owner changes. A key
// whose pin goes is of its range again.
func (w *world) monotone(before, after *shardmap.Snapshot) {
	x, _ := before.Keyspace(ks)
	y, _ := after.Keyspace(ks)
	for _, k := range keys {
		a, _ := x.Locate(keyOf(k))
		b, _ := y.Locate(keyOf(k))
		if a.Pinned && !b.Pinned {
			continue
		}
		if b.Epoch < a.Epoch || a.Shard != b.Shard && b.Epoch != after.Version() {
			w.fail("key %d went from %s at epoch %d to %s at epoch %d in version %d", k, a.Shard, a.Epoch, b.Shard, b.Epoch, after.Version())
		}
	}
}

// store stores a workflow for an operator, on top of what he has read, and tells the leader.
func (w *world) store(id string, s workflow.State) bool {
	b, err := s.Encode()
	if err != nil {
		panic(err)
	}
	key := workflow.RecordPrefix + id
	if _, err := w.put(0, key, b, w.records[key].Revision); err != nil {
		return false
	}
	_, err = w.put(0, coordinator.KickRecord, []byte("kick"), w.records[coordinator.KickRecord].Revision)
	return err == nil
}

func (w *world) ids() []string { return slices.Sorted(maps.Keys(w.flows)) }

// invariants hold after every step.
func (w *world) invariants() {
	for _, k := range keys {
		if !w.dirty[k] {
			continue
		}
		delete(w.dirty, k)
		var open []string
		for _, s := range w.names() {
			if w.shards[s].guard.Owns(keyOf(k)) {
				open = append(open, s)
			}
		}
		if len(open) > 1 {
			w.fail("shards %v all take writes of key %d", open, k)
		}
		for _, s := range open {
			w.whole(w.shards[s], k, "takes writes of")
		}
	}
}

func (w *world) names() []string { return []string{"a", "b", "c"} }

// whole: a shard has every acknowledged write of a key, each once.
func (w *world) whole(s *shard, key int, why string) {
	have := s.rows[key]
	for _, id := range w.acked[key] {
		n := 0
		for _, h := range have {
			if h == id {
				n++
			}
		}
		if n != 1 {
			w.fail("shard %s %s key %d and has the acknowledged write %d %d times: %v", s.name, why, key, id, n, have)
			return
		}
	}
}
