package simulate

import (
	"math"

	"github.com/cleavedb/cleave/placement"
)

// windowsMax bounds the pieces of time in which the evenness of writes is seen.
const windowsMax = 64

// Tally counts what one strategy does with each row. It is used by one goroutine.
type Tally struct {
	name     string
	position func(Position) int64
	before   placement.Locator
	rows     uint64
	counts   []uint64
	after    []*changeTally
	// windows[i] are the counts of windowRows rows that came one after the
	// other; the last is being filled. When there are windowsMax, neighbours
	// are added up and windowRows doubles.
	windows    [][]uint64
	windowRows uint64
	inWindow   uint64
}

type changeTally struct {
	Change
	locator placement.Locator
	counts  []uint64
	moved   uint64
	between uint64
	keys    *distinct
}

func newTally(s *Spec, name string, l []placement.Locator, position func(Position) int64) *Tally {
	t := &Tally{name: name, position: position, before: l[0], counts: make([]uint64, s.Shards),
		windowRows: uint64(max(1024, 128*s.Shards))}
	for i, c := range s.changes() {
		t.after = append(t.after, &changeTally{Change: c, locator: l[i+1], counts: make([]uint64, len(c.shards)), keys: newDistinct(14)})
	}
	return t
}

// Add counts a row.
func (t *Tally) Add(p Position) {
	at := t.position(p)
	shard := t.before.Locate(at)
	t.rows++
	t.counts[shard]++
	for _, c := range t.after {
		now := c.locator.Locate(at)
		c.counts[now]++
		// Shards are added and removed at the end: an index means the same shard.
		if now == shard {
			continue
		}
		c.moved++
		c.keys.add(p.ID)
		if shard < len(c.shards) && now < len(t.counts) {
			c.between++
		}
	}
	if t.inWindow == 0 {
		t.openWindow()
	}
	t.windows[len(t.windows)-1][shard]++
	if t.inWindow++; t.inWindow == t.windowRows {
		t.inWindow = 0
	}
}

func (t *Tally) openWindow() {
	if len(t.windows) == windowsMax {
		for i := 0; i < windowsMax; i += 2 {
			sum := t.windows[i]
			for s, n := range t.windows[i+1] {
				sum[s] += n
			}
			t.windows[i/2] = sum
		}
		t.windows = t.windows[:windowsMax/2]
		t.windowRows *= 2
	}
	t.windows = append(t.windows, make([]uint64, len(t.counts)))
}

// Placed is what one strategy does with the rows.
type Placed struct {
	Strategy string `json:"strategy"`
	// Rows is how many were counted, PerShard how many of them each shard has.
	Rows     uint64   `json:"rows"`
	PerShard []uint64 `json:"per_shard"`
	// Skew is the fullest shard's rows over what its weight asks for: 1 is even.
	Skew float64 `json:"skew"`
	// Deviation is the standard deviation of the shards' rows over what their
	// weights ask for, as a share of that (coefficient of variation).
	Deviation float64 `json:"deviation"`
	// Fullest is the index of the fullest shard, FullestShare its share of all rows.
	Fullest      int     `json:"fullest"`
	FullestShare float64 `json:"fullest_share"`
	// WriteSkew is the Skew of rows that arrive one after the other, the mean of
	// up to 64 pieces of the input: the number of shards if one at a time takes
	// all writes. 0 if there were too few rows to say.
	WriteSkew float64 `json:"write_skew"`
	Changes   []Moved `json:"changes"`
}

// Moved is what a change of the cluster does.
type Moved struct {
	Change string `json:"change"` // "add 1", "remove 1"
	Shards int    `json:"shards"` // afterwards
	// Rows and Keys that get another shard. Keys are counted exactly up to 16,384,
	// and estimated above, with the standard error KeysError as a share.
	Rows      uint64  `json:"rows"`
	RowShare  float64 `json:"row_share"`
	Keys      uint64  `json:"keys"`
	KeysError float64 `json:"keys_error"`
	KeyShare  float64 `json:"key_share"`
	// Minimum is the share of rows that must move for the shards to be even.
	Minimum float64 `json:"minimum"`
	// Between counts rows that move from a shard that stays to another one that
	// was there before: for nothing.
	Between uint64 `json:"between"`
	// PerShard and Skew are those after the change.
	PerShard []uint64 `json:"per_shard"`
	Skew     float64  `json:"skew"`
}

// Placed returns what was counted by now. keys is the number of distinct keys.
func (t *Tally) Placed(keys uint64) Placed {
	p := Placed{Strategy: t.name, Rows: t.rows, PerShard: append([]uint64{}, t.counts...), Changes: []Moved{}}
	p.Skew, p.Deviation, p.Fullest = skew(t.counts, t.before.Shards())
	if t.rows > 0 {
		p.FullestShare = float64(t.counts[p.Fullest]) / float64(t.rows)
	}
	p.WriteSkew = t.writeSkew()
	for _, c := range t.after {
		m := Moved{Change: c.Name, Shards: len(c.shards), Rows: c.moved, Between: c.between,
			PerShard: append([]uint64{}, c.counts...), Minimum: minimum(t.before.Shards(), c.shards)}
		m.Keys, m.KeysError = c.keys.count()
		m.Keys = min(m.Keys, keys)
		m.Skew, _, _ = skew(c.counts, c.shards)
		if t.rows > 0 {
			m.RowShare = float64(c.moved) / float64(t.rows)
		}
		if keys > 0 {
			m.KeyShare = float64(m.Keys) / float64(keys)
		}
		p.Changes = append(p.Changes, m)
	}
	return p
}

// skew compares rows with what weights ask for. fullest is the shard that has
// most of what it should have.
func skew(rows []uint64, shards []placement.Shard) (most, deviation float64, fullest int) {
	total, weight := 0.0, 0.0
	for i, n := range rows {
		total += float64(n)
		weight += shards[i].Weight
	}
	if total == 0 {
		return 0, 0, 0
	}
	squares := 0.0
	for i, n := range rows {
		share := shards[i].Weight / weight
		if share == 0 {
			continue // drained: no algorithm puts a row there
		}
		r := float64(n) / (total * share)
		if r > most {
			most, fullest = r, i
		}
		squares += share * (r - 1) * (r - 1)
	}
	return most, math.Sqrt(squares), fullest
}

// writeSkew is the mean over whole windows; an unfinished one counts if it is
// the only one and has enough rows to tell.
func (t *Tally) writeSkew() float64 {
	whole := len(t.windows)
	if whole > 1 && t.inWindow > 0 {
		whole--
	}
	if t.rows < uint64(64*len(t.counts)) {
		return 0
	}
	sum := 0.0
	for _, w := range t.windows[:whole] {
		s, _, _ := skew(w, t.before.Shards())
		sum += s
	}
	return sum / float64(whole)
}

// minimum is the share of rows that has to move for each shard to have what its
// weight asks for before and after: what shards get that they did not have.
func minimum(before, after []placement.Shard) float64 {
	sum := func(shards []placement.Shard) (w float64) {
		for i := range shards {
			w += shards[i].Weight
		}
		return w
	}
	was, is, moved := sum(before), sum(after), 0.0
	for i := range after {
		have := 0.0
		if i < len(before) {
			have = before[i].Weight / was
		}
		moved += max(0, after[i].Weight/is-have)
	}
	return moved
}
