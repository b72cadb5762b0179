package workflow

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Size is what one unit of a keyspace (see shardmap.Keyspace.PlacementUnits) holds.
type Size struct {
	Rows  int64   `json:"rows"`
	Bytes int64   `json:"bytes"`
	Load  float64 `json:"load"` // statements per second, 0 if it is not known
}

// What a plan makes even.
const (
	ByBytes = "bytes"
	ByRows  = "rows"
	ByLoad  = "load"
	// ByBoth evens out the sum of both shares: of the bytes and of the load.
	ByBoth = "both"
)

// BalanceOptions are what a plan is made for.
type BalanceOptions struct {
	// By is what is to be even by the shards' weights: ByBytes ("" too), ByRows, ByLoad, ByBoth.
	By string `json:"by,omitempty"`
	// Tolerance is how far above its share a shard may be, as a part of it, and give
	// nothing away. One that is further above gives its whole surplus.
	Tolerance float64 `json:"tolerance"`
	// SplitBytes and SplitLoad are the sizes above which a range is cut into halves, and those
	// again; MergeBytes that below which neighbours of one shard become one range. 0: never.
	SplitBytes int64   `json:"split_bytes,omitempty"`
	SplitLoad  float64 `json:"split_load,omitempty"`
	MergeBytes int64   `json:"merge_bytes,omitempty"`
	// MergeLoad is the load below which neighbours of one shard may become one. Where both are
	// given they have to be small in both.
	MergeLoad float64 `json:"merge_load,omitempty"`
	// AloneLoad is the load above which a hot key is placed by itself; 0: never.
	AloneLoad float64 `json:"alone_load,omitempty"`
	// MovedBytesMax bounds what the moves copy; what is left is for the next plan. 0: no bound.
	MovedBytesMax int64 `json:"moved_bytes_max,omitempty"`
	// AtOnce bounds the moves under way at a time; 0: MaxChildren.
	AtOnce int `json:"at_once,omitempty"`
	// BytesPerSecond is the rate that the time is reckoned with; 0: DefaultMoveRate.
	BytesPerSecond float64 `json:"bytes_per_second,omitempty"`
}

// DefaultMoveRate is the rate of moves that plans reckon with, bytes per second.
const DefaultMoveRate = 20 << 20

// PlanStep is one thing that a plan wants done.
type PlanStep struct {
	Kind     Kind          `json:"kind"` // Split, Pin, Move or Merge
	Keyspace string        `json:"keyspace"`
	Part     shardmap.Part `json:"part"`           // move: what; split: the range that is cut
	At       []string      `json:"at,omitempty"`   // split and merge: the bound
	From     string        `json:"from,omitempty"` // move
	To       string        `json:"to,omitempty"`
	Pinned   bool          `json:"pinned,omitempty"` // move: of a key that has a pin then
	// Repairs is the constraint that is broken without it; "": none.
	Repairs string `json:"repairs,omitempty"`
	// Phase: moves of a later one wait until those before have ended.
	Phase int `json:"phase,omitempty"`
	Size
}

// Skew is the greatest Over of a measure, before and after a plan.
type Skew struct {
	By     string  `json:"by"`
	Before float64 `json:"before"`
	After  float64 `json:"after"`
}

// HotKey is a key with a large share of the load.
type HotKey struct {
	Keyspace string
	Key      []string
	Load     float64 // statements per second
}

// ShardShare is what a shard holds before or after a plan.
type ShardShare struct {
	Shard string `json:"shard"`
	Size
	// Over is what it holds over its share by weight: 1 is even.
	Over float64 `json:"over"`
}

// BalancePlan is what would make a cluster even, in this order: splits, moves, merges.
type BalancePlan struct {
	Version uint64         `json:"version"` // of the map that it was made from
	Options BalanceOptions `json:"options"`
	Steps   []PlanStep     `json:"steps"`
	// Rows and Bytes are what is moved, Seconds for how long at the rate of the options.
	Rows    int64   `json:"rows"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	// Before and After are the shards in the order of the map, SkewBefore and SkewAfter
	// the greatest Over among them.
	Before     []ShardShare `json:"before"`
	After      []ShardShare `json:"after"`
	SkewBefore float64      `json:"skew_before"`
	SkewAfter  float64      `json:"skew_after"`
	// Skews are those of bytes, rows and load, as far as they are known.
	Skews []Skew `json:"skews,omitempty"`
	// Left is how many moves the bound on bytes has left for the next plan, Broken how
	// many constraints are broken without the plan.
	Left   int `json:"left,omitempty"`
	Broken int `json:"broken,omitempty"`

	weigh func(Size) float64
}

// piece is a unit of the plan: a unit of the map, or a half of one that is cut.
type piece struct {
	ks    string
	part  shardmap.Part
	kind  string // "range", "value" or "pin"
	owner string
	fixed bool
	// pinned: it is of a key with a pin; repairs: a constraint wants it elsewhere.
	pinned  bool
	repairs string
	// spots are the hot keys in a range.
	spots []spot
	// cuts are where a range of a range keyspace can be cut, from and to the shares of the rows
	// of the measured range that it is a piece of, at its ends.
	cuts     []cutAt
	from, to float64
	size     Size
	unit     placement.Unit
}

// Labels by which what must stay is kept where it is.
const (
	fixedLabel = "cleave/fixed"
	nameLabel  = "cleave/name"
)

// Found is what was measured, for a plan.
type Found struct {
	// Sizes are those of each keyspace's placement units, in their order. A keyspace that is
	// not in it stays as it is.
	Sizes map[string][]Size
	Hot   []HotKey
	// Cuts are where ranges of range keyspaces can be cut, by keyspace and number of the range, in
	// order. One that has none stays whole.
	Cuts map[string]map[int][]Cut
	// Moving are parts that moves want which are not in the map yet, by keyspace: they stay where
	// they are.
	Moving map[string][]shardmap.Part
}

// Balance makes a plan. Pins stay where somebody put them, but for what a constraint of the map
// wants elsewhere, and so does what is in transit or on a shard that is not in service. What constraints need is
// cut out and pinned first; hot keys above o.AloneLoad are pinned too, so that they can be placed by themselves. Errors: those
// of placement.Propose, 22023 for options and sizes that make no sense.
func Balance(snap *shardmap.Snapshot, found Found, o BalanceOptions) (*BalancePlan, error) {
	if o.By == "" {
		o.By = ByBytes
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	p := &BalancePlan{Version: snap.Version(), Options: o}
	measured := snap
	if err := checkSizes(snap, found.Sizes); err != nil {
		return nil, err
	}
	snap, sizes, free, err := p.prepare(snap, &found)
	if err != nil {
		return nil, err
	}
	units := map[string][]placement.Unit{}
	for _, k := range snap.State().Keyspaces {
		units[k.Name] = k.PlacementUnits()
	}
	constraints := snap.PlacementConstraints(units)
	broken := brokenUnits(snap, units, constraints)
	where := cutting{measured: measured, cuts: found.Cuts, spots: spotsOf(snap, found.Hot), moving: found.Moving}
	pieces := p.cut(snap, sizes, units, free, broken, &where)
	p.weigh = weighing(o.By, pieces)
	// A shard that is read-only or out of service gets nothing and gives nothing.
	rest := resting(snap)
	shards := slices.DeleteFunc(shardmap.PlacementShards(snap.Shards()), func(s placement.Shard) bool { return rest[s.Name] })
	for i := range shards {
		shards[i].Labels = withLabel(shards[i].Labels, nameLabel, shards[i].Name)
	}
	var all []placement.Unit
	var at []int // in pieces
	held := map[string]bool{}
	owners := make([]string, len(pieces))
	for i := range pieces {
		c := &pieces[i]
		if owners[i] = c.owner; rest[c.owner] {
			continue
		}
		u := c.unit
		u.Size = p.weigh(c.size)
		u.Labels = maps.Clone(u.Labels)
		if c.fixed {
			u.Labels[fixedLabel] = c.owner
			if !held[c.owner] {
				held[c.owner] = true
				constraints = append(constraints, stays(c.owner))
			}
		}
		all, at = append(all, u), append(at, i)
	}
	before := slices.Clone(owners)
	p.Before, p.SkewBefore = shares(snap, pieces, before, p.weigh)
	if len(all) > 0 {
		proposal, err := placement.Propose(placement.Request{Units: all, Shards: shards, Constraints: constraints, Algorithm: placement.Balanced, Tolerance: o.Tolerance})
		if err != nil {
			return nil, err
		}
		for n, i := range at {
			owners[i] = proposal.Owners[n]
		}
	}
	p.moves(pieces, owners, constraints)
	p.merge(pieces, owners)
	p.After, p.SkewAfter = shares(snap, pieces, owners, p.weigh)
	p.skews(snap, pieces, before, owners)
	rate := o.BytesPerSecond
	if rate == 0 {
		rate = DefaultMoveRate
	}
	p.Seconds = float64(p.Bytes) / rate
	return p, nil
}

// withLabel is a copy of labels with one more.
func withLabel(labels map[string]string, name, value string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out[name] = value
	return out
}

// skews says how uneven the shards are by each measure, before and after.
func (p *BalancePlan) skews(snap *shardmap.Snapshot, pieces []piece, before, after []string) {
	for _, by := range []string{ByBytes, ByRows, ByLoad} {
		weigh := weighing(by, pieces)
		s := Skew{By: by}
		if _, s.Before = shares(snap, pieces, before, weigh); s.Before > 0 {
			_, s.After = shares(snap, pieces, after, weigh)
			p.Skews = append(p.Skews, s)
		}
	}
}

// Fits says why a plan that was made from an older map cannot be carried out in this one: what it
// moves has another owner, or another move has some of it. 55000.
func (p *BalancePlan) Fits(id string, snap *shardmap.Snapshot) error {
	if snap.Version() == p.Version {
		return nil
	}
	bad := func(ks string, part shardmap.Part, format string, args ...any) error {
		e := sqlstate.New(sqlstate.ObjectNotInState, "plan %s was made from version %d of the shard map, and since then "+format, append([]any{id, p.Version}, args...)...).
			WithHint("make another plan: cleave plan cancel %s; cleave plan", id)
		e.Keyspace, e.Range = ks, part.Text()
		return e
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Kind != Move {
			continue
		}
		owner, err := snap.OwnerOf(s.Keyspace, s.Part)
		switch ix, ok := snap.Keyspace(s.Keyspace); {
		case !ok:
			return bad(s.Keyspace, s.Part, "keyspace %s was dropped", s.Keyspace)
		case err != nil:
			return bad(s.Keyspace, s.Part, "%s of keyspace %s is not on one shard any more", s.Part.Text(), s.Keyspace)
		case !serves(snap, s.To):
			return bad(s.Keyspace, s.Part, "shard %s, which is to get %s of keyspace %s, was removed or taken out of use", s.To, s.Part.Text(), s.Keyspace)
		case owner != s.From:
			return bad(s.Keyspace, s.Part, "%s of keyspace %s has gone from shard %s to shard %s", s.Part.Text(), s.Keyspace, s.From, owner)
		default:
			for _, t := range ix.Def().Transits {
				if snap.Overlap(s.Keyspace, t.Part, s.Part) {
					return bad(s.Keyspace, s.Part, "%s of keyspace %s is being moved by %s, or can still come back", t.Text(), s.Keyspace, t.ID)
				}
			}
		}
	}
	return nil
}

func serves(snap *shardmap.Snapshot, shard string) bool {
	s, ok := snap.Shard(shard)
	return ok && s.Service == shardmap.InService
}

func stays(shard string) placement.Constraint {
	return placement.Constraint{Name: "what is pinned to " + shard + " stays there", Kind: placement.Residency,
		Units: map[string]string{fixedLabel: shard}, Shards: map[string]string{nameLabel: shard}}
}

// resting are the shards that are read-only or out of service.
func resting(snap *shardmap.Snapshot) map[string]bool {
	out := map[string]bool{}
	for _, s := range snap.Shards() {
		if s.Service != shardmap.InService || s.Drain != "" {
			out[s.Name] = true
		}
	}
	return out
}

// weighing returns what a size counts for.
func weighing(by string, pieces []piece) func(Size) float64 {
	switch by {
	case ByRows:
		return func(s Size) float64 { return float64(s.Rows) }
	case ByLoad:
		return func(s Size) float64 { return s.Load }
	case ByBoth:
		var all Size
		for i := range pieces {
			all.add(pieces[i].size)
		}
		return func(s Size) float64 {
			return float64(s.Bytes)/max(1, float64(all.Bytes)) + s.Load/max(1e-9, all.Load)
		}
	}
	return func(s Size) float64 { return float64(s.Bytes) }
}

func (s Size) plus(o Size) Size {
	s.add(o)
	return s
}

func (s *Size) add(o Size) {
	s.Rows, s.Bytes, s.Load = s.Rows+o.Rows, s.Bytes+o.Bytes, s.Load+o.Load
}

// cut is what both parts of a range hold of which one has a share of the rows, if the rest is spread
// like these.
func (s Size) cut(share float64) (lower, upper Size) {
	of := func(share float64) Size {
		return Size{int64(math.Ceil(float64(s.Rows) * share)), int64(math.Ceil(float64(s.Bytes) * share)), s.Load * share}
	}
	return of(share), of(1 - share)
}

// Check says what of the options makes no sense: 22023.
func (o *BalanceOptions) Check() error {
	if o.By != "" && o.By != ByBytes && o.By != ByRows && o.By != ByLoad && o.By != ByBoth {
		return sqlstate.New(sqlstate.InvalidParameterValue, "a plan cannot make %q even", shorten(o.By)).WithHint("use bytes, rows, load or both")
	}
	for _, n := range []struct {
		name  string
		value float64
	}{{"tolerance", o.Tolerance}, {"split_bytes", float64(o.SplitBytes)}, {"split_load", o.SplitLoad}, {"merge_bytes", float64(o.MergeBytes)}, {"merge_load", o.MergeLoad},
		{"alone_load", o.AloneLoad}, {"moved_bytes_max", float64(o.MovedBytesMax)}, {"at_once", float64(o.AtOnce)}, {"bytes_per_second", o.BytesPerSecond}} {
		if !(n.value >= 0) { // nor NaN
			return sqlstate.New(sqlstate.InvalidParameterValue, "%s of a plan must not be negative: %g", n.name, n.value).WithHint("0 is no bound")
		}
	}
	if o.SplitBytes > 0 && o.MergeBytes > o.SplitBytes/2 {
		return sqlstate.New(sqlstate.InvalidParameterValue, "ranges are merged below %d bytes and split above %d: they would be split and merged for ever", o.MergeBytes, o.SplitBytes).
			WithHint("merge below half of the size for splits, or less")
	}
	if o.SplitLoad > 0 && o.MergeLoad > o.SplitLoad/2 {
		return sqlstate.New(sqlstate.InvalidParameterValue, "ranges are merged below %g statements a second and split above %g: they would be split and merged for ever", o.MergeLoad, o.SplitLoad).
			WithHint("merge below half of the load for splits, or less")
	}
	return nil
}

func checkSizes(snap *shardmap.Snapshot, sizes map[string][]Size) error {
	for name, have := range sizes {
		if ix, ok := snap.Keyspace(name); ok && len(have) != ix.UnitCount() {
			return sqlstate.New(sqlstate.InvalidParameterValue, "keyspace %s has %d units, and %d sizes were given", name, ix.UnitCount(), len(have))
		}
	}
	return nil
}

// moves adds the moves: first those that repair a constraint, then those that take most
// off the fullest shards. owners of what is left for another plan are set back.
func (p *BalancePlan) moves(pieces []piece, owners []string, constraints []placement.Constraint) {
	over := map[string]float64{}
	for _, s := range p.Before {
		over[s.Shard] = s.Over
	}
	// A shard is free for what is isolated when all others have left it, and for others when
	// that has left.
	var alone []string
	for i := range constraints {
		if constraints[i].Kind == placement.Isolation {
			for label := range constraints[i].Units {
				alone = append(alone, label)
			}
		}
	}
	isolated := func(c *piece) bool {
		return slices.ContainsFunc(alone, func(label string) bool { return c.unit.Labels[label] != "" })
	}
	held := map[string]bool{}
	for i := range pieces {
		if isolated(&pieces[i]) {
			held[pieces[i].owner] = true
		}
	}
	var order []int
	phase := map[int]int{}
	for i := range pieces {
		c := &pieces[i]
		if owners[i] == c.owner {
			continue
		}
		order = append(order, i)
		switch {
		case isolated(c):
			phase[i] = 1
		case held[owners[i]]:
			phase[i] = 2
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &pieces[a], &pieces[b]
		return cmp.Or(cmp.Compare(phase[a], phase[b]), cmp.Compare(strings.Compare(y.repairs, ""), strings.Compare(x.repairs, "")),
			cmp.Compare(over[y.owner], over[x.owner]), cmp.Compare(p.weigh(y.size), p.weigh(x.size)))
	})
	last := 2
	for _, i := range order {
		c := &pieces[i]
		if most := p.Options.MovedBytesMax; phase[i] > last || most > 0 && p.Bytes+c.size.Bytes > most {
			last = min(last, phase[i])
			owners[i] = c.owner
			p.Left++
			continue
		}
		p.Steps = append(p.Steps, PlanStep{Kind: Move, Keyspace: c.ks, Part: c.part, From: c.owner, To: owners[i], Pinned: c.pinned, Repairs: c.repairs, Phase: phase[i], Size: c.size})
		p.Rows += c.size.Rows
		p.Bytes += c.size.Bytes
	}
}

// merge adds the merges of neighbours that are small together.
func (p *BalancePlan) merge(pieces []piece, owners []string) {
	o := &p.Options
	if o.MergeBytes <= 0 && o.MergeLoad <= 0 {
		return
	}
	var sum Size
	for i := range pieces {
		c := &pieces[i]
		joins := i > 0 && neighbours(&pieces[i-1], c) && owners[i] == owners[i-1] && o.small(sum.plus(c.size))
		if !joins {
			sum = c.size
			continue
		}
		sum.add(c.size)
		p.Steps = append(p.Steps, PlanStep{Kind: Merge, Keyspace: c.ks, Part: c.part, At: c.part.Low, To: owners[i], Size: sum})
	}
}

// small reports whether ranges of that size together are to be one.
func (o *BalanceOptions) small(s Size) bool {
	return (o.MergeBytes <= 0 || s.Bytes < o.MergeBytes) && (o.MergeLoad <= 0 || s.Load < o.MergeLoad) &&
		(o.SplitBytes <= 0 || s.Bytes <= o.SplitBytes/2) && (o.SplitLoad <= 0 || s.Load <= o.SplitLoad/2)
}

// neighbours reports whether a piece and the one before it are ranges that can be one.
func neighbours(before, c *piece) bool {
	return c.kind == "range" && before.kind == "range" && before.ks == c.ks && !c.fixed && !before.fixed && sameRules(&c.unit, &before.unit)
}

// shares says what each shard holds.
func shares(snap *shardmap.Snapshot, pieces []piece, owners []string, weigh func(Size) float64) (all []ShardShare, skew float64) {
	index := map[string]int{}
	weights, total := 0.0, 0.0
	for i, s := range snap.Shards() {
		index[s.Name] = i
		all = append(all, ShardShare{Shard: s.Name})
		weights += s.Weight
	}
	for i := range pieces {
		all[index[owners[i]]].add(pieces[i].size)
		total += weigh(pieces[i].size)
	}
	for i, s := range snap.Shards() {
		have := weigh(all[i].Size)
		switch share := total * s.Weight / weights; {
		case share > 0:
			all[i].Over = have / share
		case have > 0:
			all[i].Over = math.MaxFloat32 // a shard that is to have nothing
		}
		skew = max(skew, all[i].Over)
	}
	return all, skew
}
