package workflow

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/shardmap"
)

// maxCuts bounds how often one range is halved in a plan.
const maxCuts = 10

// leastHalf is the least share that both halves of a range of a range keyspace have of what it is
// cut for: a key that has the rest stays where it is.
const leastHalf = 0.05

// Cut is a key at which a range of a range keyspace can be cut.
type Cut struct {
	At []string
	// Below is the share of the range's rows that are below it, above 0 and below 1.
	Below float64
}

// cutting is where ranges can be cut.
type cutting struct {
	measured *shardmap.Snapshot // the map of cuts' numbers
	cuts     map[string]map[int][]Cut
	spots    map[int][]spot // by unit
	moving   map[string][]shardmap.Part
}

// cutAt is a Cut, its key as keys are ordered.
type cutAt struct {
	at    []string
	enc   string
	below float64
}

// spot is a hot key in a range.
type spot struct {
	at   int64    // of a hash keyspace: the position
	enc  string   // of a range keyspace: as keys are ordered
	key  []string // likewise
	load float64
}

// cut lists the pieces, those that are too large cut, with the splits as steps. free are pins
// that may move, broken the units that a constraint wants elsewhere.
func (p *BalancePlan) cut(snap *shardmap.Snapshot, sizes map[string][]Size, units map[string][]placement.Unit, free map[string]bool, broken map[string]string, where *cutting) []piece {
	var pieces []piece
	st, rest := snap.State(), resting(snap)
	for i := range st.Keyspaces {
		k := &st.Keyspaces[i]
		have, measured := sizes[k.Name]
		ix, _ := snap.Keyspace(k.Name)
		cuts := where.of(k)
		for n, u := range units[k.Name] {
			c := piece{ks: k.Name, owner: u.Owner, unit: u, kind: u.Labels["kind"], repairs: broken[u.Name]}
			c.part, _, _ = ix.Unit(n)
			c.pinned = c.kind == "pin"
			// Where nothing was measured only constraints move something.
			c.fixed = c.repairs == "" && (!measured || c.pinned && !free[u.Name])
			if measured {
				c.size = have[n]
			}
			c.fixed = c.fixed || rest[u.Owner] || moving(snap, k.Name, c.part, where.moving)
			c.spots = where.spots[ix.FirstUnit()+n]
			switch {
			case c.kind != "range" || c.fixed:
				pieces = append(pieces, c)
			case k.Strategy == keyspace.Hash:
				pieces = p.halve(pieces, c, 0)
			default:
				c.from, c.to, c.cuts = cuts.within(k.Types, c.part)
				pieces = p.halveKeys(pieces, c, k.Seed, 0)
			}
		}
	}
	return pieces
}

// large reports whether a range is to be cut. A key cannot be cut: what it has alone is no reason
// to go on. hot is the load of its hot keys.
func (p *BalancePlan) large(c *piece) (byBytes, byLoad bool, hot float64) {
	o, hottest := &p.Options, 0.0
	for _, s := range c.spots {
		hottest, hot = max(hottest, s.load), hot+s.load
	}
	return o.SplitBytes > 0 && c.size.Bytes > o.SplitBytes, o.SplitLoad > 0 && c.size.Load > o.SplitLoad && c.size.Load-hottest > o.SplitLoad/2, hot
}

// halve adds a hash range, cut as often as it is too large.
func (p *BalancePlan) halve(pieces []piece, c piece, depth int) []piece {
	byBytes, byLoad, hot := p.large(&c)
	low, high := bound(c.part.Low, math.MinInt64), bound(c.part.High, math.MaxInt64)
	half := int64(uint64(high-low) / 2)
	if !byBytes && !byLoad || depth == maxCuts || half == 0 {
		return append(pieces, c)
	}
	lower, upper := p.split(c, []string{strconv.FormatInt(low+half, 10)}, 0.5, hot, func(s *spot) bool { return s.at < low+half })
	upper.unit.Position = low + half
	return p.halve(p.halve(pieces, lower, depth+1), upper, depth+1)
}

// split adds the step that cuts a range at a bound, with that share of the rows below, and returns
// both halves. hot is the load of the hot keys.
func (p *BalancePlan) split(c piece, at []string, share, hot float64, below func(*spot) bool) (lower, upper piece) {
	p.Steps = append(p.Steps, PlanStep{Kind: Split, Keyspace: c.ks, Part: c.part, At: at, Size: c.size})
	lower, upper = c, c
	lower.size, upper.size = c.size.cut(share)
	lower.part.High, upper.part.Low = at, at
	lower.spots, upper.spots = nil, nil
	even := max(0, c.size.Load-hot)
	lower.size.Load, upper.size.Load = even*share, even*(1-share)
	for _, s := range c.spots {
		side := &lower
		if !below(&s) {
			side = &upper
		}
		side.spots = append(side.spots, s)
		side.size.Load += s.load
	}
	for _, h := range []*piece{&lower, &upper} {
		h.unit.Name = fmt.Sprintf("%s range %s", c.ks, h.part.Text())
	}
	return lower, upper
}

// halveKeys adds a range of a range keyspace, cut as often as it is too large and as the keys that
// are known allow: where about half of the bytes is below, or of the load if only that is too much.
func (p *BalancePlan) halveKeys(pieces []piece, c piece, seed int64, depth int) []piece {
	byBytes, byLoad, hot := p.large(&c)
	if !byBytes && !byLoad || depth == maxCuts || c.to <= c.from {
		return append(pieces, c)
	}
	share := func(below float64) float64 { return min(max((below-c.from)/(c.to-c.from), 0), 1) }
	var best cutAt
	most := 0.0 // the share of the smaller half
	try := func(at cutAt) {
		below := share(at.below)
		if !byBytes {
			sum := max(0, c.size.Load-hot) * below
			for _, s := range c.spots {
				if s.enc < at.enc {
					sum += s.load
				}
			}
			below = sum / c.size.Load
		}
		if least := min(below, 1-below); least > most {
			best, most = at, least
		}
	}
	for _, at := range c.cuts {
		try(at)
	}
	if !byBytes {
		// A hot key has rows below it if a cut is below.
		for _, s := range c.spots {
			if n, same := slices.BinarySearchFunc(c.cuts, s.enc, compareCut); n > 0 && !same {
				try(cutAt{s.key, s.enc, c.cuts[n-1].below})
			}
		}
	}
	if most < leastHalf {
		return append(pieces, c)
	}
	lower, upper := p.split(c, best.at, share(best.below), hot, func(s *spot) bool { return s.enc < best.enc })
	n, same := slices.BinarySearchFunc(c.cuts, best.enc, compareCut)
	lower.cuts, upper.cuts = c.cuts[:n], c.cuts[n:]
	if same {
		upper.cuts = c.cuts[n+1:]
	}
	lower.to, upper.from = best.below, best.below
	upper.unit.Position = shardmap.UnitPosition(seed, best.at)
	return p.halveKeys(p.halveKeys(pieces, lower, seed, depth+1), upper, seed, depth+1)
}

func compareCut(c cutAt, enc string) int { return cmp.Compare(c.enc, enc) }

// cutsOf are the cuts of a keyspace's measured ranges, in order.
type cutsOf []measuredRange

type measuredRange struct {
	high string // as keys are ordered, "" in the last
	cuts []cutAt
}

// of returns the cuts of a range keyspace.
func (w *cutting) of(k *shardmap.Keyspace) cutsOf {
	ix, ok := w.measured.Keyspace(k.Name)
	if !ok || k.Strategy != keyspace.Range || len(w.cuts[k.Name]) == 0 {
		return nil
	}
	out := make(cutsOf, len(ix.Def().Ranges))
	for n := range out {
		if high := ix.Def().Ranges[n].High; high != nil {
			out[n].high = ordered(k.Types, high)
		}
		for _, c := range w.cuts[k.Name][n] {
			if enc := ordered(k.Types, c.At); enc != "" {
				out[n].cuts = append(out[n].cuts, cutAt{c.At, enc, c.Below})
			}
		}
		slices.SortFunc(out[n].cuts, func(a, b cutAt) int { return cmp.Compare(a.enc, b.enc) })
	}
	return out
}

// within returns the cuts in a range, which is in one of the measured ranges, and which shares of
// that one's rows are about below it and below its end.
func (m cutsOf) within(types []keyspace.Type, p shardmap.Part) (from, to float64, cuts []cutAt) {
	low, high := ordered(types, p.Low), ordered(types, p.High)
	n, _ := slices.BinarySearchFunc(m, low, func(r measuredRange, low string) int {
		if r.high != "" && r.high <= low {
			return -1
		}
		return 1
	})
	if n == len(m) || len(m[n].cuts) == 0 {
		return 0, 0, nil
	}
	to, cuts = 1, m[n].cuts
	at, same := slices.BinarySearchFunc(cuts, low, compareCut)
	if same {
		at++
	}
	if at > 0 {
		from = cuts[at-1].below
	}
	cuts = cuts[at:]
	if high != "" && high != m[n].high {
		if end, _ := slices.BinarySearchFunc(cuts, high, compareCut); end < len(cuts) {
			to, cuts = cuts[end].below, cuts[:end]
		}
	}
	return from, to, cuts
}

// ordered is a key, or the beginning of one, as keys are ordered; "" for none.
func ordered(types []keyspace.Type, texts []string) string {
	key, err := keyspace.ParseKey(types[:min(len(texts), len(types))], texts)
	if err != nil || len(texts) == 0 {
		return ""
	}
	return string(keyspace.AppendOrdered(nil, key))
}

// spotsOf are the hot keys that are in ranges, by the numbers of these.
func spotsOf(snap *shardmap.Snapshot, hot []HotKey) map[int][]spot {
	out := map[int][]spot{}
	for _, k := range hot {
		ix, ok := snap.Keyspace(k.Keyspace)
		if !ok {
			continue
		}
		key, err := keyspace.ParseKey(ix.Def().Types, k.Key)
		if err != nil {
			continue // of a keyspace that was made anew
		}
		a, err := ix.Locate(key)
		if err != nil || a.Range < 0 {
			continue
		}
		s := spot{load: k.Load}
		if ix.Def().Strategy == keyspace.Hash {
			s.at = keyspace.HashKey(ix.Def().Seed, key)
		} else {
			s.enc, s.key = string(keyspace.AppendOrdered(nil, key)), key.Texts()
		}
		out[a.Unit] = append(out[a.Unit], s)
	}
	return out
}

func bound(texts []string, none int64) int64 {
	if len(texts) == 0 {
		return none
	}
	n, _ := strconv.ParseInt(texts[0], 10, 64) // a bound of a valid map
	return n
}
