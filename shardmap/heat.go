package shardmap

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// HeatPrefix is before a member's id in the key of the record with its [HeatReport].
const HeatPrefix = "heat/"

// Bounds of a report.
const (
	// HeatUnitsMax bounds the assignments that a report names; the load of the others is
	// one figure for each keyspace.
	HeatUnitsMax = 2000
	// HeatKeysMax bounds its hot keys.
	HeatKeysMax = 32
	// heatKeyspacesMax bounds the keyspaces that have a figure for the rest.
	heatKeyspacesMax = 256
	// heatKeyBytes bounds the stored form of a hot key; a longer one is left out.
	heatKeyBytes = 512
)

// HotKey is a key with a large share of the load.
type HotKey struct {
	Keyspace string   `json:"keyspace"`
	Key      []string `json:"key"`
	// Statements is how many a second name it, about.
	Statements float64 `json:"statements"`
}

// HeatReport is what one member has measured: a record of the directory. All figures are of
// the last minutes, what is older counts less.
type HeatReport struct {
	Format  int    `json:"format"`
	Version uint64 `json:"version"` // of the map, whose units the numbers are
	Units   []int  `json:"units,omitempty"`
	// Statements per second of each of Units, and the time that they took, in seconds per second.
	Statements []float64 `json:"statements,omitempty"`
	Busy       []float64 `json:"busy,omitempty"`
	// Rest are the statements per second of what is not in Units, by keyspace.
	Rest map[string]float64 `json:"rest,omitempty"`
	Keys []HotKey           `json:"keys,omitempty"`
}

// heatFormat is the version of a report's stored form.
const heatFormat = 1

// NewHeatReport makes the report of figures by unit of the map.
func NewHeatReport(s *Snapshot, statements, busy []float64, keys []HotKey) HeatReport {
	r := HeatReport{Format: heatFormat, Version: s.Version()}
	for _, k := range keys {
		k.Statements = brief(k.Statements)
		if b, err := json.Marshal(k); err == nil && len(b) <= heatKeyBytes && len(r.Keys) < HeatKeysMax {
			r.Keys = append(r.Keys, k)
		}
	}
	var order []int
	for i, n := range statements {
		if n > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(statements[b], statements[a]), cmp.Compare(a, b))
	})
	r.Units = slices.Clone(order[:min(len(order), HeatUnitsMax)])
	slices.Sort(r.Units)
	for _, i := range r.Units {
		r.Statements, r.Busy = append(r.Statements, brief(statements[i])), append(r.Busy, brief(busy[i]))
	}
	if len(order) > HeatUnitsMax {
		r.Rest = map[string]float64{}
		for _, i := range order[HeatUnitsMax:] {
			if name := s.keyspaceOf(i); len(r.Rest) < heatKeyspacesMax || r.Rest[name] > 0 {
				r.Rest[name] += statements[i]
			}
		}
		for name := range r.Rest {
			r.Rest[name] = brief(r.Rest[name])
		}
	}
	return r
}

// brief keeps three digits.
func brief(f float64) float64 {
	f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'g', 3, 64), 64) // a number that was just printed
	return f
}

// keyspaceOf is the name of the keyspace that a unit is of.
func (s *Snapshot) keyspaceOf(unit int) string {
	i, _ := slices.BinarySearchFunc(s.state.Keyspaces, unit, func(k Keyspace, unit int) int {
		ix := s.keyspaces[k.Name]
		switch {
		case ix.first+ix.UnitCount() <= unit:
			return -1
		case ix.first > unit:
			return 1
		}
		return 0
	})
	return s.state.Keyspaces[i].Name
}

// Encode returns the stored form.
func (r *HeatReport) Encode() ([]byte, error) { return json.Marshal(r) }

// DecodeHeatReport reads the stored form. XX001 for what is none.
func DecodeHeatReport(b []byte) (HeatReport, error) {
	var r HeatReport
	bad := func(err error) (HeatReport, error) {
		return HeatReport{}, sqlstate.Wrap(err, sqlstate.DataCorrupted, "the record of a member's load is damaged")
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return bad(err)
	}
	if r.Format != heatFormat || len(r.Units) != len(r.Statements) || len(r.Units) != len(r.Busy) {
		return bad(errors.New("it contradicts itself"))
	}
	for i, n := range r.Units {
		if n < 0 || i > 0 && n <= r.Units[i-1] || !finite(r.Statements[i]) || !finite(r.Busy[i]) {
			return bad(errors.New("a figure is none"))
		}
	}
	for _, n := range r.Rest {
		if !finite(n) {
			return bad(errors.New("a figure is none"))
		}
	}
	for _, k := range r.Keys {
		if !finite(k.Statements) {
			return bad(errors.New("a figure is none"))
		}
	}
	return r, nil
}

func finite(f float64) bool { return f >= 0 && f <= math.MaxFloat32 }

// Differs reports whether a report says something else than another one: a figure is off by
// more than a tenth of the sum of all, or the hottest key is another.
func (r *HeatReport) Differs(o *HeatReport) bool {
	if r.Version != o.Version && len(r.Units)+len(o.Units) > 0 || len(r.Rest) != len(o.Rest) || len(r.Keys) != len(o.Keys) {
		return true
	}
	figures := map[int]float64{}
	all, off := 0.0, 0.0
	for i, n := range r.Units {
		figures[n] = r.Statements[i]
		all += r.Statements[i]
	}
	for i, n := range o.Units {
		off += math.Abs(figures[n] - o.Statements[i])
		delete(figures, n)
	}
	for _, n := range figures {
		off += n
	}
	for name, n := range r.Rest {
		all, off = all+n, off+math.Abs(n-o.Rest[name])
	}
	for i := range r.Keys {
		if r.Keys[i].Keyspace != o.Keys[i].Keyspace || !slices.Equal(r.Keys[i].Key, o.Keys[i].Key) {
			return true
		}
	}
	return off > all/10
}

// Heat is the load of a map's assignments, of all members together.
type Heat struct {
	// Statements per second and Busy seconds per second, by unit of the map.
	Statements, Busy []float64
	// Keys are the hot keys, the hottest first.
	Keys []HotKey
	// Members is how many have reported.
	Members int
	// Left are the keys of records whose members are gone.
	Left []Record
}

// ReadHeat adds the reports of all live members up, for the units of a map. A report by a
// version that the directory does not keep any more is left out.
func ReadHeat(ctx context.Context, dir Directory, s *Snapshot) (*Heat, error) {
	members, err := dir.Members(ctx)
	if err != nil {
		return nil, err
	}
	live := map[string]bool{}
	for _, m := range members {
		live[m.ID] = true
	}
	h := &Heat{Statements: make([]float64, s.Units()), Busy: make([]float64, s.Units())}
	sum := heatSum{h: h, versions: map[uint64]*Snapshot{s.Version(): s}, units: map[*Snapshot]*[2][]float64{}, keys: map[string]*HotKey{}}
	for after := ""; ; {
		page, err := dir.Records(ctx, HeatPrefix, after, 64)
		if err != nil {
			return nil, err
		}
		for _, rec := range page {
			after = rec.Key
			if !live[strings.TrimPrefix(rec.Key, HeatPrefix)] {
				rec.Value = nil
				h.Left = append(h.Left, rec)
				continue
			}
			r, err := DecodeHeatReport(rec.Value)
			if err != nil {
				continue // of another release; it is written anew all the time
			}
			if err := sum.add(ctx, dir, r); err != nil {
				return nil, err
			}
		}
		if len(page) < 64 {
			sum.end(s)
			return h, nil
		}
	}
}

// heatSum adds reports up.
type heatSum struct {
	h        *Heat
	versions map[uint64]*Snapshot        // that reports are by; nil for one that the directory does not keep
	units    map[*Snapshot]*[2][]float64 // statements and busy time, by the units of a version
	keys     map[string]*HotKey
}

func (m *heatSum) add(ctx context.Context, dir Directory, r HeatReport) (err error) {
	from, ok := m.versions[r.Version]
	if !ok {
		if from, err = dir.At(ctx, r.Version); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		m.versions[r.Version] = from
	}
	if from == nil {
		return nil
	}
	m.h.Members++
	if m.units[from] == nil {
		m.units[from] = &[2][]float64{make([]float64, from.Units()), make([]float64, from.Units())}
	}
	r.addTo(from, m.units[from])
	for _, k := range r.Keys {
		id := k.Keyspace + "\x00" + joinKey(k.Key)
		if m.keys[id] == nil {
			m.keys[id] = &HotKey{Keyspace: k.Keyspace, Key: k.Key}
		}
		m.keys[id].Statements += k.Statements
	}
	return nil
}

// end gives the sums to the units of s, and orders the keys.
func (m *heatSum) end(s *Snapshot) {
	for from, sum := range m.units {
		for i, n := range s.Carry(from, sum[0]) {
			m.h.Statements[i] += n
		}
		for i, n := range s.Carry(from, sum[1]) {
			m.h.Busy[i] += n
		}
	}
	for _, k := range m.keys {
		m.h.Keys = append(m.h.Keys, *k)
	}
	slices.SortFunc(m.h.Keys, func(a, b HotKey) int {
		return cmp.Or(cmp.Compare(b.Statements, a.Statements), strings.Compare(a.Keyspace, b.Keyspace), slices.Compare(a.Key, b.Key))
	})
}

// addTo adds a report's figures by unit of its map.
func (r *HeatReport) addTo(from *Snapshot, sum *[2][]float64) {
	named := make(map[int]bool, len(r.Units))
	for i, n := range r.Units {
		if n < from.units {
			sum[0][n] += r.Statements[i]
			sum[1][n] += r.Busy[i]
			named[n] = true
		}
	}
	for name, n := range r.Rest {
		ix, ok := from.keyspaces[name]
		if !ok {
			continue
		}
		others := 0
		for i := range ix.UnitCount() {
			if !named[ix.first+i] {
				others++
			}
		}
		for i := range ix.UnitCount() {
			if !named[ix.first+i] {
				sum[0][ix.first+i] += n / float64(others)
			}
		}
	}
}
