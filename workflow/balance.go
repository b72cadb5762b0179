package workflow

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/cleavedb/cleave/keyspace"
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
)

// BalanceOptions are what a plan is made for.
type BalanceOptions struct {
	// By is what is to be even by the shards' weights: ByBytes ("" too), ByRows, ByLoad.
	By string `json:"by,omitempty"`
	// Tolerance is how far above its share a shard may be, as a part of it, and give
	// nothing away. One that is further above gives its whole surplus.
	Tolerance float64 `json:"tolerance"`
	// SplitBytes and SplitLoad are the sizes above which a range of a hash keyspace is cut
	// into halves, and those again; MergeBytes that below which neighbours of one shard
	// become one range. 0: never.
	SplitBytes int64   `json:"split_bytes,omitempty"`
	SplitLoad  float64 `json:"split_load,omitempty"`
	MergeBytes int64   `json:"merge_bytes,omitempty"`
	// BytesPerSecond is the rate that the time is reckoned with; 0: DefaultMoveRate.
	BytesPerSecond float64 `json:"bytes_per_second,omitempty"`
}

// DefaultMoveRate is the rate of moves that plans reckon with, bytes per second.
const DefaultMoveRate = 20 << 20

// maxCuts bounds how often one range is halved in a plan.
const maxCuts = 10

// PlanStep is one thing that a plan wants done.
type PlanStep struct {
	Kind     Kind          `json:"kind"` // Split, Move or Merge
	Keyspace string        `json:"keyspace"`
	Part     shardmap.Part `json:"part"`           // move: what; split: the range that is cut
	At       []string      `json:"at,omitempty"`   // split and merge: the bound
	From     string        `json:"from,omitempty"` // move
	To       string        `json:"to,omitempty"`
	Size
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
}

// piece is a unit of the plan: a unit of the map, or a half of one that is cut.
type piece struct {
	ks    string
	part  shardmap.Part
	kind  string // "range", "value" or "pin"
	owner string
	fixed bool
	size  Size
	unit  placement.Unit
}

// Labels by which what must stay is kept where it is.
const (
	fixedLabel = "cleave/fixed"
	nameLabel  = "cleave/name"
)

// Balance makes a plan. sizes are those of each keyspace's placement units, in their
// order; a keyspace that is not in it stays as it is. Pins stay where somebody put them,
// and so does what is in transit. Errors: those of placement.Propose, 22023 for options
// and sizes that make no sense.
func Balance(snap *shardmap.Snapshot, sizes map[string][]Size, constraints []placement.Constraint, o BalanceOptions) (*BalancePlan, error) {
	if o.By == "" {
		o.By = ByBytes
	}
	if o.By != ByBytes && o.By != ByRows && o.By != ByLoad || !(o.Tolerance >= 0) || o.SplitBytes < 0 || o.MergeBytes < 0 || !(o.SplitLoad >= 0) || !(o.BytesPerSecond >= 0) {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "a plan by %q with tolerance %v makes no sense", shorten(o.By), o.Tolerance).
			WithHint("use bytes, rows or load, and numbers of 0 or above")
	}
	if o.SplitBytes > 0 && o.MergeBytes > o.SplitBytes/2 {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "ranges are merged below %d bytes and split above %d: they would be split and merged for ever", o.MergeBytes, o.SplitBytes).
			WithHint("merge below half of the size for splits, or less")
	}
	p := &BalancePlan{Version: snap.Version(), Options: o}
	pieces, err := p.cut(snap, sizes)
	if err != nil {
		return nil, err
	}
	shards := shardmap.PlacementShards(snap.Shards())
	for i := range shards {
		labels := maps.Clone(shards[i].Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[nameLabel] = shards[i].Name
		shards[i].Labels = labels
	}
	units := make([]placement.Unit, len(pieces))
	constraints = slices.Clone(constraints)
	held := map[string]bool{}
	for i := range pieces {
		c := &pieces[i]
		u := c.unit
		u.Size = c.size.by(o.By)
		u.Labels = maps.Clone(u.Labels)
		if c.fixed {
			u.Labels[fixedLabel] = c.owner
			if !held[c.owner] {
				held[c.owner] = true
				constraints = append(constraints, stays(c.owner))
			}
		}
		units[i] = u
	}
	owners := make([]string, len(units))
	for i := range pieces {
		owners[i] = pieces[i].owner
	}
	p.Before, p.SkewBefore = shares(snap, pieces, owners, o.By)
	if len(units) > 0 {
		proposal, err := placement.Propose(placement.Request{Units: units, Shards: shards, Constraints: constraints, Algorithm: placement.Balanced, Tolerance: o.Tolerance})
		if err != nil {
			return nil, err
		}
		owners = proposal.Owners
	}
	first := len(p.Steps)
	for i := range pieces {
		if c := &pieces[i]; owners[i] != c.owner {
			p.Steps = append(p.Steps, PlanStep{Kind: Move, Keyspace: c.ks, Part: c.part, From: c.owner, To: owners[i], Size: c.size})
			p.Rows += c.size.Rows
			p.Bytes += c.size.Bytes
		}
	}
	p.order(first, o.By)
	p.merge(pieces, owners)
	p.After, p.SkewAfter = shares(snap, pieces, owners, o.By)
	rate := o.BytesPerSecond
	if rate == 0 {
		rate = DefaultMoveRate
	}
	p.Seconds = float64(p.Bytes) / rate
	return p, nil
}

func stays(shard string) placement.Constraint {
	return placement.Constraint{Name: "what is pinned to " + shard + " stays there", Kind: placement.Residency,
		Units: map[string]string{fixedLabel: shard}, Shards: map[string]string{nameLabel: shard}}
}

func (s Size) by(what string) float64 {
	switch what {
	case ByRows:
		return float64(s.Rows)
	case ByLoad:
		return s.Load
	}
	return float64(s.Bytes)
}

func (s *Size) add(o Size) {
	s.Rows, s.Bytes, s.Load = s.Rows+o.Rows, s.Bytes+o.Bytes, s.Load+o.Load
}

// half is what one half of a range holds, if keys are spread evenly.
func (s Size) half() Size { return Size{(s.Rows + 1) / 2, (s.Bytes + 1) / 2, s.Load / 2} }

// cut lists the pieces, those that are too large cut, with the splits as steps.
func (p *BalancePlan) cut(snap *shardmap.Snapshot, sizes map[string][]Size) ([]piece, error) {
	var pieces []piece
	st := snap.State()
	for i := range st.Keyspaces {
		k := &st.Keyspaces[i]
		have, ok := sizes[k.Name]
		if !ok {
			continue
		}
		units := k.PlacementUnits()
		if len(have) != len(units) {
			return nil, sqlstate.New(sqlstate.InvalidParameterValue, "keyspace %s has %d units, and %d sizes were given", k.Name, len(units), len(have))
		}
		for n, u := range units {
			c := piece{ks: k.Name, owner: u.Owner, size: have[n], unit: u, kind: u.Labels["kind"]}
			switch {
			case n < len(k.Ranges):
				c.part = shardmap.Part{Low: k.Ranges[n].Low, High: k.Ranges[n].High}
			case n < len(k.Ranges)+len(k.Values):
				c.part = shardmap.Part{Key: k.Values[n-len(k.Ranges)].Key}
			default:
				c.part = shardmap.Part{Key: k.Pins[n-len(k.Ranges)-len(k.Values)].Key}
				c.fixed = true
			}
			if !c.fixed && len(k.Transits) > 0 {
				// Bounds of a transit are bounds of ranges, or it is of one key.
				c.fixed = slices.ContainsFunc(k.Transits, func(t shardmap.Transit) bool { return overlaps(snap, k.Name, t.Part, c.part) })
			}
			if c.kind == "range" && k.Strategy == keyspace.Hash && !c.fixed {
				pieces = p.halve(pieces, c, 0)
			} else {
				pieces = append(pieces, c)
			}
		}
	}
	return pieces, nil
}

// overlaps reports whether a transit is of something of a range or key.
func overlaps(snap *shardmap.Snapshot, ks string, t, part shardmap.Part) bool {
	if t.Equal(part) {
		return true
	}
	ix, ok := snap.Keyspace(ks)
	if !ok || part.Key != nil {
		return false
	}
	if t.Key != nil {
		key, err := keyspace.ParseKey(ix.Def().Types, t.Key)
		own := snap.Keys(ks, part)
		return err == nil && own.Owns(key)
	}
	// Both begin and end at bounds of ranges, so one holds the beginning of the other.
	own, other := snap.Keys(ks, t), snap.Keys(ks, part)
	for _, a := range own.Intervals {
		for _, b := range other.Intervals {
			if ix.Def().Strategy == keyspace.Hash {
				if a.ContainsHash(b.Low) || b.ContainsHash(a.Low) {
					return true
				}
			} else if a.ContainsKey([]byte(b.LowKey)) || b.ContainsKey([]byte(a.LowKey)) {
				return true
			}
		}
	}
	return false
}

// halve adds a hash range, cut as often as it is too large.
func (p *BalancePlan) halve(pieces []piece, c piece, depth int) []piece {
	o := &p.Options
	large := o.SplitBytes > 0 && c.size.Bytes > o.SplitBytes || o.SplitLoad > 0 && c.size.Load > o.SplitLoad
	low, high := bound(c.part.Low, math.MinInt64), bound(c.part.High, math.MaxInt64)
	half := int64(uint64(high-low) / 2)
	if !large || depth == maxCuts || half == 0 {
		return append(pieces, c)
	}
	at := []string{strconv.FormatInt(low+half, 10)}
	p.Steps = append(p.Steps, PlanStep{Kind: Split, Keyspace: c.ks, Part: c.part, At: at, Size: c.size})
	lower, upper := c, c
	lower.size, upper.size = c.size.half(), c.size.half()
	lower.part.High, upper.part.Low = at, at
	for _, h := range []*piece{&lower, &upper} {
		h.unit.Name = fmt.Sprintf("%s range %s", c.ks, h.part.Text())
	}
	upper.unit.Position = low + half
	return p.halve(p.halve(pieces, lower, depth+1), upper, depth+1)
}

func bound(texts []string, none int64) int64 {
	if len(texts) == 0 {
		return none
	}
	n, _ := strconv.ParseInt(texts[0], 10, 64) // a bound of a valid map
	return n
}

// order puts moves first that take most off the fullest shards.
func (p *BalancePlan) order(first int, by string) {
	over := map[string]float64{}
	for _, s := range p.Before {
		over[s.Shard] = s.Over
	}
	slices.SortStableFunc(p.Steps[first:], func(a, b PlanStep) int {
		if x, y := over[a.From], over[b.From]; x != y {
			if x > y {
				return -1
			}
			return 1
		}
		if x, y := a.by(by), b.by(by); x != y {
			if x > y {
				return -1
			}
			return 1
		}
		return 0
	})
}

// merge adds the merges of neighbours that are small together.
func (p *BalancePlan) merge(pieces []piece, owners []string) {
	limit := p.Options.MergeBytes
	if limit <= 0 {
		return
	}
	var sum Size
	for i := range pieces {
		c := &pieces[i]
		joins := i > 0 && c.kind == "range" && pieces[i-1].kind == "range" && pieces[i-1].ks == c.ks &&
			!c.fixed && !pieces[i-1].fixed && owners[i] == owners[i-1] && sum.Bytes+c.size.Bytes < limit
		if !joins {
			sum = c.size
			continue
		}
		sum.add(c.size)
		p.Steps = append(p.Steps, PlanStep{Kind: Merge, Keyspace: c.ks, Part: c.part, At: c.part.Low, To: owners[i], Size: sum})
	}
}

// shares says what each shard holds.
func shares(snap *shardmap.Snapshot, pieces []piece, owners []string, by string) (all []ShardShare, skew float64) {
	index := map[string]int{}
	weights, total := 0.0, 0.0
	for i, s := range snap.Shards() {
		index[s.Name] = i
		all = append(all, ShardShare{Shard: s.Name})
		weights += s.Weight
	}
	for i := range pieces {
		all[index[owners[i]]].add(pieces[i].size)
		total += pieces[i].size.by(by)
	}
	for i, s := range snap.Shards() {
		have := all[i].by(by)
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
