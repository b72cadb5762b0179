package shardmap

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/sqlstate"
)

// The editing methods change the State that they are called on and nothing
// that it shares with others: each replaces the lists that it changes, so even
// a plain copy of a snapshot's state can be edited. Key texts may be in any
// form that parses; [Directory.Update] stamps epochs, so they are left alone.

// Clone returns a deep copy.
func (s State) Clone() State {
	c := s
	c.Shards = slices.Clone(s.Shards)
	for i := range c.Shards {
		c.Shards[i].Labels, c.Shards[i].Replicas = maps.Clone(c.Shards[i].Labels), slices.Clone(c.Shards[i].Replicas)
	}
	c.Keyspaces = slices.Clone(s.Keyspaces)
	for i := range c.Keyspaces {
		c.Keyspaces[i] = c.Keyspaces[i].Clone()
	}
	c.Tables = slices.Clone(s.Tables)
	for i := range c.Tables {
		c.Tables[i] = c.Tables[i].Clone()
	}
	c.Sequences = cloneSequences(s.Sequences)
	c.Views, c.Functions = slices.Clone(s.Views), slices.Clone(s.Functions)
	c.Declarations = slices.Clone(s.Declarations)
	for i := range c.Declarations {
		c.Declarations[i].ShardKey = slices.Clone(c.Declarations[i].ShardKey)
	}
	c.Constraints = cloneConstraints(s.Constraints)
	return c
}

// Clone returns a deep copy.
func (k Keyspace) Clone() Keyspace {
	k.Types = slices.Clone(k.Types)
	k.Ranges = slices.Clone(k.Ranges)
	for i := range k.Ranges {
		k.Ranges[i].Low = slices.Clone(k.Ranges[i].Low)
		k.Ranges[i].High = slices.Clone(k.Ranges[i].High)
	}
	k.Values = slices.Clone(k.Values)
	for i := range k.Values {
		k.Values[i].Key = slices.Clone(k.Values[i].Key)
	}
	k.Pins = slices.Clone(k.Pins)
	for i := range k.Pins {
		k.Pins[i].Key = slices.Clone(k.Pins[i].Key)
	}
	k.Transits = slices.Clone(k.Transits)
	for i := range k.Transits {
		k.Transits[i].Part = k.Transits[i].Part.Clone()
	}
	return k
}

// Clone returns a deep copy.
func (t Table) Clone() Table {
	t.ShardKey = slices.Clone(t.ShardKey)
	t.Columns = slices.Clone(t.Columns)
	return t
}

// QualifiedName returns schema.name for people, each part quoted unless it is
// plain lower case. Reserved words are not quoted.
func (t *Table) QualifiedName() string {
	return quoteIdentifier(t.Schema) + "." + quoteIdentifier(t.Name)
}

func quoteIdentifier(name string) string {
	plain := name != ""
	for i := 0; i < len(name) && plain; i++ {
		c := name[i]
		plain = c >= 'a' && c <= 'z' || c == '_' || i > 0 && (c >= '0' && c <= '9' || c == '$')
	}
	if plain {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// put returns list with item in the place of the element that same accepts, or
// at the end, in a new array.
func put[T any](list []T, item T, same func(*T) bool) []T {
	out := slices.Clone(list)
	for i := range out {
		if same(&out[i]) {
			out[i] = item
			return out
		}
	}
	return append(out, item)
}

// drop returns list without the elements that same accepts, in a new array.
func drop[T any](list []T, same func(*T) bool) ([]T, bool) {
	out := make([]T, 0, len(list))
	for i := range list {
		if !same(&list[i]) {
			out = append(out, list[i])
		}
	}
	return out, len(out) < len(list)
}

// PutShard adds a shard or replaces the one of its name.
func (s *State) PutShard(sh Shard) {
	sh.Labels, sh.Replicas = maps.Clone(sh.Labels), slices.Clone(sh.Replicas)
	s.Shards = put(s.Shards, sh, func(o *Shard) bool { return o.Name == sh.Name })
}

// DropShard removes a shard and reports whether it was there. A state in which
// it still owns something is invalid.
func (s *State) DropShard(name string) bool {
	var ok bool
	s.Shards, ok = drop(s.Shards, func(o *Shard) bool { return o.Name == name })
	return ok
}

// PutTable adds a table or replaces the one of its schema and name.
func (s *State) PutTable(t Table) {
	s.Tables = put(s.Tables, t.Clone(), func(o *Table) bool { return o.Schema == t.Schema && o.Name == t.Name })
}

// DropTable removes a table and reports whether it was there.
func (s *State) DropTable(schema, name string) bool {
	var ok bool
	s.Tables, ok = drop(s.Tables, func(o *Table) bool { return o.Schema == schema && o.Name == name })
	return ok
}

// PutKeyspace adds a keyspace or replaces the one of its name.
func (s *State) PutKeyspace(k Keyspace) {
	s.Keyspaces = put(s.Keyspaces, k.Clone(), func(o *Keyspace) bool { return o.Name == k.Name })
}

// DropKeyspace removes a keyspace and reports whether it was there. A state in
// which a table still uses it is invalid.
func (s *State) DropKeyspace(name string) bool {
	var ok bool
	s.Keyspaces, ok = drop(s.Keyspaces, func(o *Keyspace) bool { return o.Name == name })
	return ok
}

// PutPin pins a whole key of a keyspace to a shard, over an earlier pin of the
// same key. Errors: 42704 if there is no such keyspace, 22P02 and its kin if
// the texts are not a key of it.
func (s *State) PutPin(ks string, key []string, shard string) error {
	k, texts, err := s.editPins(ks, key)
	if err != nil {
		return err
	}
	k.Pins = put(k.Pins, Pin{Key: texts, Shard: shard}, func(o *Pin) bool { return slices.Equal(o.Key, texts) })
	s.PutKeyspace(k)
	return nil
}

// DropPin removes the pin of a key, which then lives where its position says,
// and reports whether there was one. Errors as in PutPin.
func (s *State) DropPin(ks string, key []string) (bool, error) {
	k, texts, err := s.editPins(ks, key)
	if err != nil {
		return false, err
	}
	pins, ok := drop(k.Pins, func(o *Pin) bool { return slices.Equal(o.Key, texts) })
	if ok {
		k.Pins = pins
		s.PutKeyspace(k)
	}
	return ok, nil
}

// editPins returns the keyspace with its pins in canonical form, and the
// canonical form of key.
func (s *State) editPins(ks string, key []string) (Keyspace, []string, error) {
	i := slices.IndexFunc(s.Keyspaces, func(k Keyspace) bool { return k.Name == ks })
	if i < 0 {
		return Keyspace{}, nil, sqlstate.New(sqlstate.UndefinedObject, "keyspace %q does not exist", clip(ks)).
			WithHint("list the keyspaces with \"cleave keyspace list\"")
	}
	k := s.Keyspaces[i]
	k.Pins = slices.Clone(k.Pins)
	texts := slices.Clone(key)
	if _, err := parseWhole(&k, texts); err != nil {
		return Keyspace{}, nil, err
	}
	for i := range k.Pins {
		k.Pins[i].Key = slices.Clone(k.Pins[i].Key)
		if _, err := parseWhole(&k, k.Pins[i].Key); err != nil {
			return Keyspace{}, nil, err
		}
	}
	return k, texts, nil
}

// DefaultKeyspaceName is the name of the hash keyspace that tables with these
// shard key types share unless they say otherwise: hash_bigint, hash_text_uuid.
// A name that would be longer than MaxNameBytes is cut and made unique by a
// checksum of the whole.
func DefaultKeyspaceName(types []keyspace.Type) string {
	short := map[keyspace.Type]string{
		keyspace.Int2: "smallint", keyspace.Int4: "integer", keyspace.Int8: "bigint",
		keyspace.Text: "text", keyspace.Varchar: "varchar", keyspace.UUID: "uuid",
		keyspace.Date: "date", keyspace.Timestamp: "timestamp", keyspace.Timestamptz: "timestamptz",
		keyspace.Bytea: "bytea", keyspace.Bool: "boolean",
	}
	name := "hash"
	for _, t := range types {
		name += "_" + short[t]
	}
	if len(name) <= MaxNameBytes {
		return name
	}
	// FNV-1a, written out: the name must never change with a library.
	sum := uint32(2166136261)
	for i := 0; i < len(name); i++ {
		sum = (sum ^ uint32(name[i])) * 16777619
	}
	tail := "_" + strconv.FormatUint(1<<32|uint64(sum), 16)[1:]
	return name[:MaxNameBytes-len(tail)] + tail
}

// NewHashKeyspace returns a hash keyspace of that many equal ranges, given to
// the shards in contiguous runs in the order of shards, in proportion to their
// weights. Every shard gets at least one range while there are enough. It owns
// nothing of the arguments.
func NewHashKeyspace(name string, types []keyspace.Type, shards []Shard, ranges int) (Keyspace, error) {
	if ranges < 1 || ranges > MaxAssignments {
		return Keyspace{}, sqlstate.New(sqlstate.InvalidParameterValue, "a hash keyspace cannot have %d ranges", ranges).
			WithHint("use 1 to %d; 4 for each shard is a good start", MaxAssignments)
	}
	if len(shards) == 0 {
		return Keyspace{}, sqlstate.New(sqlstate.InvalidParameterValue, "keyspace %q would have no shard", clip(name)).
			WithHint("add a shard first: cleave shard add NAME URL")
	}
	for i := range shards {
		if err := checkShard(&shards[i]); err != nil {
			return Keyspace{}, err
		}
	}
	k := Keyspace{
		Name:     name,
		Strategy: keyspace.Hash,
		Types:    slices.Clone(types),
		Seed:     keyspace.DefaultSeed,
		Ranges:   make([]Range, 0, ranges),
	}
	inner := keyspace.EvenRanges(ranges)
	for i, n := range placement.Apportion(PlacementShards(shards), ranges) {
		for range n {
			at := len(k.Ranges)
			r := Range{Shard: shards[i].Name}
			if at > 0 {
				r.Low = []string{strconv.FormatInt(inner[at-1], 10)}
			}
			if at < ranges-1 {
				r.High = []string{strconv.FormatInt(inner[at], 10)}
			}
			k.Ranges = append(k.Ranges, r)
		}
	}
	return k, checkNew(&k, shards)
}

// NewRangeKeyspace returns a range keyspace that is cut at the bounds, given in
// ascending order; range i belongs to shards[i], so there is one shard more
// than bounds. A bound has one text for each key column, or for a prefix of them.
func NewRangeKeyspace(name string, types []keyspace.Type, bounds [][]string, shards []string) (Keyspace, error) {
	if len(shards) != len(bounds)+1 {
		return Keyspace{}, sqlstate.New(sqlstate.InvalidParameterValue, "%d bounds make %d ranges, but %d shards are given", len(bounds), len(bounds)+1, len(shards)).
			WithHint("give one shard for each range, in the order of the ranges")
	}
	k := Keyspace{Name: name, Strategy: keyspace.Range, Types: slices.Clone(types), Ranges: make([]Range, len(shards))}
	for i, sh := range shards {
		k.Ranges[i].Shard = sh
		if i > 0 {
			k.Ranges[i].Low = slices.Clone(present(bounds[i-1]))
		}
		if i < len(bounds) {
			k.Ranges[i].High = slices.Clone(present(bounds[i]))
		}
	}
	return k, checkNew(&k, named(shards))
}

// NewListKeyspace returns a list keyspace in which key values[i] belongs to
// shards[i].
func NewListKeyspace(name string, types []keyspace.Type, values [][]string, shards []string) (Keyspace, error) {
	if len(shards) != len(values) {
		return Keyspace{}, sqlstate.New(sqlstate.InvalidParameterValue, "%d values are listed, but %d shards are given", len(values), len(shards)).
			WithHint("give one shard for each value, in the same order")
	}
	k := Keyspace{Name: name, Strategy: keyspace.List, Types: slices.Clone(types), Values: make([]ListValue, len(values))}
	for i, v := range values {
		k.Values[i] = ListValue{Key: slices.Clone(v), Shard: shards[i]}
	}
	return k, checkNew(&k, named(shards))
}

// named makes stand-ins for shards that are known by name alone: whether they
// exist is checked when the keyspace is put into a map.
func named(names []string) []Shard {
	shards := make([]Shard, len(names))
	for i, n := range names {
		shards[i] = Shard{Name: n, Engine: "any", Weight: 1}
	}
	return shards
}

// checkNew validates a new keyspace by itself and makes its texts canonical.
func checkNew(k *Keyspace, shards []Shard) error {
	if err := checkName("a keyspace", k.Name, false); err != nil {
		return err
	}
	s := Snapshot{shards: make(map[string]*Shard, len(shards))}
	for i := range shards {
		s.shards[shards[i].Name] = &shards[i]
	}
	if _, err := s.indexKeyspace(k); err != nil {
		err.Keyspace = k.Name
		return err
	}
	return nil
}
