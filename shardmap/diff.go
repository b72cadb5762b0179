package shardmap

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/cleavedb/cleave/keyspace"
)

// DifferenceKind says what kind of thing differs between two maps.
type DifferenceKind string

// The kinds, in the order in which Diff returns them.
const (
	DefaultShardDiffers DifferenceKind = "default shard"
	ShardDiffers        DifferenceKind = "shard"
	KeyspaceDiffers     DifferenceKind = "keyspace"
	// BoundDiffers is a bound at which a range was split (added) or two were
	// merged (removed).
	BoundDiffers DifferenceKind = "bound"
	// RangeDiffers is a key range that another shard owns now. It is given by
	// its own bounds, which need not be those of a range of either map.
	RangeDiffers DifferenceKind = "range"
	ValueDiffers DifferenceKind = "value"
	PinDiffers   DifferenceKind = "pin"
	// TransitDiffers is a part that is being moved. Its ID is in From and To.
	TransitDiffers DifferenceKind = "transit"
	TableDiffers   DifferenceKind = "table"
	// SequenceDiffers is a sequence of the cluster.
	SequenceDiffers DifferenceKind = "sequence"
	// ViewDiffers is a view, FunctionDiffers a function that reads no table.
	ViewDiffers     DifferenceKind = "view"
	FunctionDiffers DifferenceKind = "function"
	// DeclarationDiffers is what a table is to become when it is made.
	DeclarationDiffers DifferenceKind = "declaration"
	// ConstraintDiffers is a rule about where keys may be.
	ConstraintDiffers DifferenceKind = "constraint"
)

// Action says how it differs.
type Action string

// The actions.
const (
	Added   Action = "added"
	Removed Action = "removed"
	Changed Action = "changed"
)

// Difference is one difference between two maps, as data; String prints it.
type Difference struct {
	Kind   DifferenceKind `json:"kind"`
	Action Action         `json:"action"`
	// Name is the shard, the schema.name of the table, or the keyspace: also
	// that of a bound, range, value or pin.
	Name string `json:"name"`
	// Key is the bound, value or pinned key; Low and High are the bounds of a
	// range, nil where unbounded.
	Key  []string `json:"key,omitempty"`
	Low  []string `json:"low,omitempty"`
	High []string `json:"high,omitempty"`
	// From and To are the owners before and after, or what a changed attribute
	// was and is. Empty for what was or is not there.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Epoch is that of the assignment in the newer map, 0 where there is none.
	Epoch uint64 `json:"epoch,omitempty"`
}

// String returns the difference as one line, without secrets.
func (d Difference) String() string {
	var what string
	switch d.Kind {
	case DefaultShardDiffers:
		what = string(d.Kind)
	case BoundDiffers, ValueDiffers, PinDiffers:
		what = fmt.Sprintf("%s %s of keyspace %s", d.Kind, keyText(d.Key), d.Name)
	case TransitDiffers:
		what = fmt.Sprintf("transit of %s of keyspace %s", Part{Low: d.Low, High: d.High, Key: d.Key}.Text(), d.Name)
	case RangeDiffers:
		what = fmt.Sprintf("range %s of keyspace %s", boundsText(d.Low, d.High), d.Name)
	default:
		what = fmt.Sprintf("%s %s", d.Kind, d.Name)
	}
	line := what + " " + string(d.Action)
	switch {
	case d.From != "" && d.To != "":
		line += ": " + d.From + " -> " + d.To
	case d.To != "":
		line += ": " + d.To
	case d.From != "":
		line += ": was " + d.From
	}
	if d.Epoch != 0 {
		line += fmt.Sprintf(" (epoch %d)", d.Epoch)
	}
	return line
}

// Diff returns what differs from a to b, in a fixed order. nil stands for the
// map before the first version. Versions and epochs alone are no difference.
// URLs appear without their secrets; two that differ in a secret alone are told
// apart by "changed credentials".
func Diff(a, b *Snapshot) []Difference {
	if a == nil {
		a = &Snapshot{}
	}
	if b == nil {
		b = &Snapshot{}
	}
	var out []Difference
	if a.state.DefaultShard != b.state.DefaultShard {
		out = append(out, Difference{Kind: DefaultShardDiffers, Action: action(a.state.DefaultShard != "", b.state.DefaultShard != ""),
			From: a.state.DefaultShard, To: b.state.DefaultShard})
	}
	out = append(out, diffShards(a, b)...)
	for _, name := range union(a.keyspaces, b.keyspaces) {
		out = append(out, diffKeyspace(a.keyspaces[name], b.keyspaces[name])...)
	}
	return append(append(append(out, diffTables(a, b)...), diffSequences(a, b)...), diffObjects(a, b)...)
}

func action(before, after bool) Action {
	switch {
	case !before:
		return Added
	case !after:
		return Removed
	}
	return Changed
}

// union returns the keys of both maps, sorted.
func union[V any](a, b map[string]V) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	return slices.Compact(names)
}

func diffShards(a, b *Snapshot) []Difference {
	var out []Difference
	for _, name := range union(a.shards, b.shards) {
		before, after := a.shards[name], b.shards[name]
		switch {
		case before == nil:
			out = append(out, Difference{Kind: ShardDiffers, Action: Added, Name: name, To: shardText(after)})
			continue
		case after == nil:
			out = append(out, Difference{Kind: ShardDiffers, Action: Removed, Name: name, From: shardText(before)})
			continue
		case reflect.DeepEqual(before, after):
			continue
		}
		from, to := shardText(before), shardText(after)
		if from == to {
			from, to = "", "changed credentials"
		}
		out = append(out, Difference{Kind: ShardDiffers, Action: Changed, Name: name, From: from, To: to})
	}
	return out
}

func shardText(s *Shard) string {
	parts := []string{s.Engine, Redacted(s.URL), fmt.Sprintf("weight %g", s.Weight)}
	if s.Service != InService {
		parts = append(parts, string(s.Service)+because(quoteWhy(s.ServiceWhy)))
	}
	if s.Drain != "" {
		parts = append(parts, "drained by "+s.Drain)
	}
	for _, url := range s.Replicas {
		parts = append(parts, "replica "+Redacted(url))
	}
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		parts = append(parts, quoteText(k)+"="+quoteText(s.Labels[k]))
	}
	return strings.Join(parts, ", ")
}

func keyspaceText(k *Keyspace) string {
	text := fmt.Sprintf("%s (%s)", k.Strategy, typeList(k.Types))
	if k.Seed != 0 {
		text += fmt.Sprintf(" seed %d", k.Seed)
	}
	return text
}

func diffKeyspace(a, b *Index) []Difference {
	switch {
	case b == nil:
		return []Difference{{Kind: KeyspaceDiffers, Action: Removed, Name: a.def.Name, From: keyspaceText(a.def)}}
	case a == nil:
		return append([]Difference{{Kind: KeyspaceDiffers, Action: Added, Name: b.def.Name, To: keyspaceText(b.def)}}, diffContents(nil, b)...)
	case !sameDefinition(a.def, b.def):
		// Positions of different definitions cannot be compared.
		d := Difference{Kind: KeyspaceDiffers, Action: Changed, Name: b.def.Name, From: keyspaceText(a.def), To: keyspaceText(b.def)}
		return append([]Difference{d}, diffContents(nil, b)...)
	}
	return diffContents(a, b)
}

// diffContents compares the assignments of a keyspace; a may be nil.
func diffContents(a, b *Index) []Difference {
	var out []Difference
	name := b.def.Name
	if a != nil {
		out = append(out, diffBounds(a, b)...)
	}
	if b.def.Strategy != keyspace.List {
		out = append(out, diffRanges(a, b)...)
	}
	var before Keyspace
	if a != nil {
		before = *a.def
	}
	owners := func(values []ListValue) map[string]owner {
		m := make(map[string]owner, len(values))
		for _, v := range values {
			m[joinKey(v.Key)] = owner(v)
		}
		return m
	}
	out = append(out, diffOwners(ValueDiffers, name, owners(before.Values), owners(b.def.Values))...)
	pinned := func(pins []Pin) map[string]owner {
		m := make(map[string]owner, len(pins))
		for _, p := range pins {
			m[joinKey(p.Key)] = owner(p)
		}
		return m
	}
	out = append(out, diffOwners(PinDiffers, name, pinned(before.Pins), pinned(b.def.Pins))...)
	return append(out, diffTransits(&before, b.def)...)
}

// diffTransits compares the transits of a keyspace.
func diffTransits(a, b *Keyspace) []Difference {
	byID := func(all []Transit) map[string]*Transit {
		m := make(map[string]*Transit, len(all))
		for i := range all {
			m[all[i].ID] = &all[i]
		}
		return m
	}
	before, after := byID(a.Transits), byID(b.Transits)
	var out []Difference
	for _, id := range union(before, after) {
		was, is := before[id], after[id]
		if was != nil && is != nil && was.same(is) {
			continue
		}
		d := Difference{Kind: TransitDiffers, Action: action(was != nil, is != nil), Name: b.Name}
		part := Part{}
		if was != nil {
			part, d.From = was.Part, transitText(was)
		}
		if is != nil {
			part, d.To, d.Epoch = is.Part, transitText(is), is.Epoch
		}
		part = part.Clone()
		d.Low, d.High, d.Key = part.Low, part.High, part.Key
		out = append(out, d)
	}
	return out
}

func transitText(t *Transit) string {
	text := fmt.Sprintf("%s from %s to %s", t.ID, t.From, t.To)
	if t.Hold != NoHold {
		text += ", held (" + string(t.Hold) + ")"
	}
	return text
}

// owner is a listed value or a pin: they have the same fields.
type owner struct {
	Key   []string `json:"key"`
	Shard string   `json:"shard"`
	Epoch uint64   `json:"epoch"`
}

func diffOwners(kind DifferenceKind, ks string, a, b map[string]owner) []Difference {
	var out []Difference
	ids := union(a, b)
	key := func(id string) []string {
		if o, ok := b[id]; ok {
			return o.Key
		}
		return a[id].Key
	}
	slices.SortFunc(ids, func(x, y string) int { return slices.Compare(key(x), key(y)) })
	for _, id := range ids {
		before, inA := a[id]
		after, inB := b[id]
		if inA && inB && before.Shard == after.Shard {
			continue
		}
		out = append(out, Difference{Kind: kind, Action: action(inA, inB), Name: ks, Key: slices.Clone(key(id)),
			From: before.Shard, To: after.Shard, Epoch: after.Epoch})
	}
	return out
}

// diffBounds returns splits and merges: inner bounds of one map alone.
func diffBounds(a, b *Index) []Difference {
	var out []Difference
	for i, j := 1, 1; i < len(a.def.Ranges) || j < len(b.def.Ranges); {
		c := compareLows(a, i, b, j)
		switch {
		case c < 0:
			out = append(out, Difference{Kind: BoundDiffers, Action: Removed, Name: b.def.Name, Key: slices.Clone(a.def.Ranges[i].Low)})
			i++
		case c > 0:
			out = append(out, Difference{Kind: BoundDiffers, Action: Added, Name: b.def.Name, Key: slices.Clone(b.def.Ranges[j].Low)})
			j++
		default:
			i, j = i+1, j+1
		}
	}
	return out
}

// compareLows orders the lower bounds of range i of a and range j of b, of the
// same definition; one beyond the last range is above all.
func compareLows(a *Index, i int, b *Index, j int) int {
	endA, endB := i >= len(a.def.Ranges), j >= len(b.def.Ranges)
	switch {
	case endA && endB:
		return 0
	case endA:
		return 1
	case endB:
		return -1
	}
	if b.def.Strategy == keyspace.Hash {
		return cmp.Compare(a.lowHash(i), b.lowHash(j))
	}
	return strings.Compare(a.lowKey(i), b.lowKey(j))
}

// diffRanges walks both chains of ranges at once, and returns the spans whose
// owner differs, merged where neighbours moved alike. With a nil, every range
// is new.
func diffRanges(a, b *Index) []Difference {
	var out []Difference
	name := b.def.Name
	if a == nil {
		for i := range b.def.Ranges {
			r := &b.def.Ranges[i]
			out = append(out, Difference{Kind: RangeDiffers, Action: Added, Name: name,
				Low: slices.Clone(r.Low), High: slices.Clone(r.High), To: r.Shard, Epoch: r.Epoch})
		}
		return out
	}
	joined := false // whether the last difference ends where this piece begins
	for i, j := 0, 0; i < len(a.def.Ranges) && j < len(b.def.Ranges); {
		ra, rb := &a.def.Ranges[i], &b.def.Ranges[j]
		// The piece begins at the higher of the lows and ends at the lower of the highs.
		low := ra.Low
		if compareLows(a, i, b, j) < 0 {
			low = rb.Low
		}
		end := compareLows(a, i+1, b, j+1)
		high := ra.High
		if end > 0 {
			high = rb.High
		}
		switch {
		case ra.Shard == rb.Shard:
			joined = false
		case joined && out[len(out)-1].From == ra.Shard && out[len(out)-1].To == rb.Shard:
			last := &out[len(out)-1]
			last.High, last.Epoch = slices.Clone(high), max(last.Epoch, rb.Epoch)
		default:
			out = append(out, Difference{Kind: RangeDiffers, Action: Changed, Name: name,
				Low: slices.Clone(low), High: slices.Clone(high), From: ra.Shard, To: rb.Shard, Epoch: rb.Epoch})
			joined = true
		}
		if end <= 0 {
			i++
		}
		if end >= 0 {
			j++
		}
	}
	return out
}

func diffTables(a, b *Snapshot) []Difference {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a.tables)), maps.Keys(b.tables))
	sort.Slice(names, func(i, j int) bool {
		if names[i].schema != names[j].schema {
			return names[i].schema < names[j].schema
		}
		return names[i].name < names[j].name
	})
	var out []Difference
	for _, n := range slices.Compact(names) {
		before, after := a.tables[n], b.tables[n]
		if reflect.DeepEqual(before, after) {
			continue
		}
		d := Difference{Kind: TableDiffers, Action: action(before != nil, after != nil)}
		if before != nil {
			d.Name, d.From = before.QualifiedName(), tableText(before)
		}
		if after != nil {
			d.Name, d.To = after.QualifiedName(), tableText(after)
		}
		if before != nil && after != nil && !reflect.DeepEqual(before.Columns, after.Columns) {
			d.From += " " + columnsText(before)
			d.To += " " + columnsText(after)
		}
		out = append(out, d)
	}
	return out
}

func tableText(t *Table) string {
	if t.Kind != Sharded {
		return string(t.Kind)
	}
	return fmt.Sprintf("sharded by (%s) in %s", strings.Join(t.ShardKey, ", "), t.Keyspace)
}

func columnsText(t *Table) string {
	cols := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		cols[i] = quoteIdentifier(c.Name) + " " + c.Type
		if c.NotNull {
			cols[i] += " not null"
		}
	}
	return "(" + strings.Join(cols, ", ") + ")"
}
