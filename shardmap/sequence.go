package shardmap

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/cleavedb/cleave/sqlstate"
)

// Sequence is a sequence of the cluster: routers hand its values out in blocks
// that they take from a record of the directory. The shards know nothing of it.
type Sequence struct {
	// ID names the record that says where the sequence is. It is of this life of
	// the sequence: RESTART gives a new one, so that blocks taken before count no more.
	ID     string `json:"id"`
	Schema string `json:"schema"`
	Name   string `json:"name"`
	Type   string `json:"type"` // "smallint", "integer" or "bigint"
	// First is the first value that this life gives; Start that of RESTART without WITH.
	First     int64 `json:"first"`
	Start     int64 `json:"start"`
	Increment int64 `json:"increment"`
	Min       int64 `json:"min"`
	Max       int64 `json:"max"`
	Cache     int64 `json:"cache,omitempty"` // CACHE as declared; 0: the default block
	Cycle     bool  `json:"cycle,omitempty"`
	// Owner is the column that the sequence goes with; nil if there is none.
	Owner *SequenceOwner `json:"owner,omitempty"`
	// Identity: it belongs to an identity column, which cannot be without it.
	Identity bool `json:"identity,omitempty"`
}

// SequenceOwner is the column that owns a sequence.
type SequenceOwner struct {
	Schema string `json:"schema"`
	Table  string `json:"table"`
	Column string `json:"column"`
}

// What a Column's Generated is, besides SequenceValue and a sequence's name.
const (
	NextID  = "next_id"         // cleave.next_id()
	UUIDv7  = "uuidv7"          // uuidv7(), of shard key columns
	UUIDv4  = "gen_random_uuid" // gen_random_uuid(), of shard key columns
	seqKind = "sequence:"
)

// What a Column's Identity is.
const (
	IdentityAlways    = "always"
	IdentityByDefault = "by default"
)

// SequenceValue is a Column's Generated for the next value of a sequence, given
// as "schema.name", each part quoted where SQL needs it.
func SequenceValue(name string) string { return seqKind + name }

// SequenceOf returns the "schema.name" of the sequence that a Column's Generated
// names, "" if it is something else.
func SequenceOf(generated string) string {
	if len(generated) > len(seqKind) && generated[:len(seqKind)] == seqKind {
		return generated[len(seqKind):]
	}
	return ""
}

// QualifiedName returns schema.name for people, as [Table.QualifiedName].
func (q *Sequence) QualifiedName() string {
	return quoteIdentifier(q.Schema) + "." + quoteIdentifier(q.Name)
}

// Sequence returns the sequence of that schema and name.
func (s *Snapshot) Sequence(schema, name string) (*Sequence, bool) {
	q, ok := s.sequences[tableName{schema, name}]
	return q, ok
}

// SequenceNamed returns the sequence of a qualified name as [SequenceOf] gives it.
func (s *Snapshot) SequenceNamed(name string) (*Sequence, bool) {
	for i := range s.state.Sequences {
		if s.state.Sequences[i].QualifiedName() == name {
			return &s.state.Sequences[i], true
		}
	}
	return nil, false
}

// PutSequence adds a sequence or replaces the one of its schema and name.
func (s *State) PutSequence(q Sequence) {
	if q.Owner != nil {
		owner := *q.Owner
		q.Owner = &owner
	}
	s.Sequences = put(s.Sequences, q, func(o *Sequence) bool { return o.Schema == q.Schema && o.Name == q.Name })
}

// DropSequence removes a sequence and reports whether it was there.
func (s *State) DropSequence(schema, name string) bool {
	var ok bool
	s.Sequences, ok = drop(s.Sequences, func(o *Sequence) bool { return o.Schema == schema && o.Name == name })
	if len(s.Sequences) == 0 {
		s.Sequences = nil
	}
	return ok
}

func cloneSequences(list []Sequence) []Sequence {
	list = slices.Clone(list)
	for i := range list {
		if o := list[i].Owner; o != nil {
			owner := *o
			list[i].Owner = &owner
		}
	}
	return list
}

// indexSequences validates the sequences. A table may have the name of one: the
// shards see to it that names differ.
func (s *Snapshot) indexSequences() *sqlstate.Error {
	s.sequences = make(map[tableName]*Sequence, len(s.state.Sequences))
	ids := make(map[string]bool, len(s.state.Sequences))
	for i := range s.state.Sequences {
		q := &s.state.Sequences[i]
		if err := checkIdentifier("a schema", q.Schema); err != nil {
			return err
		}
		if err := checkIdentifier("a sequence", q.Name); err != nil {
			return err
		}
		if _, dup := s.sequences[tableName{q.Schema, q.Name}]; dup {
			return invalid(sqlstate.DuplicateTable, "sequence %s is there twice", q.QualifiedName())
		}
		if err := checkName("a sequence's id", q.ID, true); err != nil {
			return err
		}
		if ids[q.ID] {
			return invalid(sqlstate.DuplicateObject, "two sequences have the id %q", q.ID)
		}
		ids[q.ID] = true
		if q.Increment == 0 || q.Min > q.Max || q.First < q.Min || q.First > q.Max || q.Start < q.Min || q.Start > q.Max || q.Cache < 0 {
			return invalid(sqlstate.InvalidObjectDefinition, "the numbers of sequence %s do not fit together", q.QualifiedName())
		}
		s.sequences[tableName{q.Schema, q.Name}] = q
	}
	return nil
}

func sameSequences(prev, next *Snapshot) bool {
	if len(prev.sequences) != len(next.sequences) {
		return false
	}
	for name, q := range next.sequences {
		if old, ok := prev.sequences[name]; !ok || !reflect.DeepEqual(old, q) {
			return false
		}
	}
	return true
}

func diffSequences(a, b *Snapshot) []Difference {
	byName := func(s *Snapshot) map[string]*Sequence {
		m := make(map[string]*Sequence, len(s.state.Sequences))
		for i := range s.state.Sequences {
			m[s.state.Sequences[i].QualifiedName()] = &s.state.Sequences[i]
		}
		return m
	}
	before, after := byName(a), byName(b)
	var out []Difference
	for _, n := range union(before, after) {
		was, is := before[n], after[n]
		if reflect.DeepEqual(was, is) {
			continue
		}
		d := Difference{Kind: SequenceDiffers, Action: action(was != nil, is != nil), Name: n}
		if was != nil {
			d.From = was.text()
		}
		if is != nil {
			d.To = is.text()
		}
		out = append(out, d)
	}
	return out
}

func (q *Sequence) text() string {
	t := fmt.Sprintf("%s, %d by %d from %d to %d", q.Type, q.First, q.Increment, q.Min, q.Max)
	if q.Cycle {
		t += ", cycle"
	}
	if q.Cache > 0 {
		t += fmt.Sprintf(", cache %d", q.Cache)
	}
	if q.Owner != nil {
		t += fmt.Sprintf(", of %s.%s.%s", quoteIdentifier(q.Owner.Schema), quoteIdentifier(q.Owner.Table), quoteIdentifier(q.Owner.Column))
	}
	return t
}
