package plan

import (
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/cleavedb/cleave/internal/sqlguard"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/ownership"
	"github.com/cleavedb/cleave/shardmap"
)

// On is the template that a shard runs, as [Plan.On].
func (t *Template) On(shard string, maps ...*shardmap.Snapshot) (*Template, error) {
	text, err := t.Ownership.On("", shard, maps)
	if err != nil || text == "" {
		return t, err
	}
	mine := NewTemplate(text)
	return &mine, nil
}

// On is Text for a shard, as [Plan.On], or Next for one that is not the first.
func (p *CopyPlan) On(first bool, shard string, maps ...*shardmap.Snapshot) (string, error) {
	if first {
		return p.Ownership.On(p.Text, shard, maps)
	}
	return p.OwnershipNext.On(p.Next, shard, maps)
}

// InsertPlan is how an INSERT puts its rows on the shards that own them.
//
// Rows of VALUES are split as text: a shard gets Head, its rows with commas
// between them, and Tail. Rows of a query are read first (Source), and reach a
// shard as the relation of Write.
//
// Texts hold marks, each between two NUL bytes: see [Expand].
type InsertPlan struct {
	Table *shardmap.Table
	// Types are those of the shard key.
	Types []keyspace.Type

	// Head, Rows and Tail are those of VALUES.
	Head, Tail string
	Rows       []InsertRow
	// Computed are queries of one row each, whose columns are the values that
	// have to be known, or made once, before the rows are split. Casts are the
	// types that a key's value is cast to.
	Computed []*Statement

	// Source gives the rows of INSERT ... SELECT; nil for VALUES. Its columns are
	// for Columns; those of Made follow.
	Source  *Statement
	Columns []*shardmap.Column
	Made    []FillValue
	// KeyAt are the places of the shard key's columns in Columns, Keys what they do
	// to a value.
	KeyAt []int
	Keys  []KeyExpr
	// Write is the text that inserts relation 0. Copy is the COPY that does the same with
	// rows of the columns' own types; "" if there is none.
	Write Template
	Copy  string

	// Returning: the shards give rows. Matched: rows may be left out (ON
	// CONFLICT), and the last columns, as many as the shard key has, are the keys
	// of the rows that were not, for the order.
	Returning, Matched bool
}

// InsertRow is one row of VALUES.
type InsertRow struct {
	// Text is the row with its brackets.
	Text string
	// Key is its shard key.
	Key []InsertKey
}

// InsertKey is one column of a row's shard key: an expression, or a computed value.
type InsertKey struct {
	KeyExpr
	// Computed is 1 + the number of the computed value; 0: KeyExpr has it.
	Computed int
}

// Template is a text with places for relations.
type Template struct {
	Pieces []string
	At     []int // which relation follows a piece

	Ownership *ownership.Filter // see On
}

// Join returns the text with each relation in its place.
func (t *Template) Join(relation func(n int) string) string {
	var b strings.Builder
	for i, p := range t.Pieces {
		b.WriteString(p)
		if i < len(t.At) {
			b.WriteString(relation(t.At[i]))
		}
	}
	return b.String()
}

// MarkKind says what stands at a mark.
type MarkKind byte

// MarkFill is a value of Statement.Fill, MarkComputed one of InsertPlan.Computed.
const (
	MarkFill     MarkKind = 'f'
	MarkComputed MarkKind = 'e'
)

// Expand replaces the marks of a text.
func Expand(text string, value func(kind MarkKind, n int) string) string {
	if strings.IndexByte(text, 0) < 0 {
		return text
	}
	var b strings.Builder
	for i, part := range strings.Split(text, "\x00") {
		if i%2 == 0 {
			b.WriteString(part)
			continue
		}
		kind := MarkFill
		if part[0] < '0' || part[0] > '9' {
			kind, part = MarkKind(part[0]), part[1:]
		}
		n, _ := strconv.Atoi(part) // written by mark and markOf
		b.WriteString(value(kind, n))
	}
	return b.String()
}

// ModifyPlan is how rows on several shards are changed, or rows of one place with
// what shards have.
type ModifyPlan struct {
	Table *shardmap.Table
	// Reads are answered once, before the write: relation i of the templates is
	// the rows of Reads[i].
	Reads []*Statement
	// Made gives the rows of a read values that the router makes; nil: none.
	Made *MadePlan
	// Write is what each shard of Plan.Target runs.
	Write Template
	// Split gives a shard only those rows of a read that it owns; nil: all.
	Split *SplitPlan
	// Reference says how a reference table is changed.
	Reference *ReferencePlan
	// Locks: Write is a query that the default shard runs alone. It has a hidden
	// column for each, the ctid of the row that is to be locked on the other shards too.
	Locks []CopiesLock
	// Move is the other way to run an UPDATE that may give rows another shard.
	Move *MovePlan
	// Returning: the shards give rows.
	Returning bool
}

// MadePlan is what the router makes for the rows of an INSERT ... SELECT.
type MadePlan struct {
	// Read is the SELECT's number among the Reads. Its columns are for Columns; those of Values follow.
	Read    int
	Columns []*shardmap.Column
	Values  []FillValue
}

// SplitPlan is how the rows of a MERGE's source go to the shards that own their shard key.
type SplitPlan struct {
	// Read is the source's number among the Reads; Columns are the names of its columns that ON equates with
	// the target's shard key, in that one's order, and Types are the key's.
	Read    int
	Columns []string
	Types   []keyspace.Type
	// All: shards that own none of the rows run the statement as well. Inserts: rows
	// that meet none of the target may be inserted under the same key.
	All, Inserts bool
}

// ReferencePlan is how every copy of a reference table is changed alike. The
// default shard is first and alone: two writers meet there.
type ReferencePlan struct {
	// Whole: Write returns, after the client's columns, the Columns as they are
	// now. The rows of an INSERT are then inserted on the other shards as they are
	// (Replay); those of an UPDATE have to be the same on each.
	Whole   bool
	Columns []*shardmap.Column
	// Replay inserts relation 0, all columns of the table, on the other shards; no
	// pieces: they run Write as well.
	Replay Template
}

// MovePlan carries out an UPDATE of shard key columns. Templates have the reads
// as relations; the parameter Tuples, a tid[], says which rows of a shard are meant.
type MovePlan struct {
	Types []keyspace.Type
	// Keys are the new shard key's columns, for what the column does to a value.
	Keys []KeyExpr
	// Lock locks the rows that match and returns ctid, the new shard key and the old.
	Lock Template
	// Look reads what Take returns, and Probe is Put of the rows that meet no other.
	Look, Probe Template
	// Stay updates rows that keep their shard, Take deletes those that leave it and
	// returns their new values: one column for each of Columns, then the shard key.
	Stay, Take Template
	Tuples     int
	Columns    []*shardmap.Column
	// Put inserts the relation after those of the reads, which has Columns.
	Put Template
	// Joined: RETURNING names other tables, so that rows that leave have no answer.
	Joined bool
}

// NewTemplate cuts a text at the names of relations.
func NewTemplate(text string) Template {
	var t Template
	at := 0
	for _, tok := range sqlguard.Tokens(text) {
		if tok.Kind != sqlguard.Ident {
			continue
		}
		rest, ok := strings.CutPrefix(text[tok.Start:tok.End], RelationPrefix)
		if !ok {
			continue
		}
		n, err := strconv.Atoi(rest)
		if err != nil {
			continue
		}
		t.Pieces = append(t.Pieces, text[at:tok.Start])
		t.At = append(t.At, n)
		at = tok.End
	}
	t.Pieces = append(t.Pieces, text[at:])
	return t
}

// CopyPlan is how COPY is carried out over several shards: FROM STDIN splits the
// client's rows, TO STDOUT puts those of the shards one after the other.
type CopyPlan struct {
	// Table is nil for COPY (query) TO STDOUT, Source its query.
	Table  *shardmap.Table
	Source *Statement

	// Text is what a shard runs. TO: Next is that of the shards after the first,
	// without a header. Of a query it is the same COPY of no rows, to have the options checked.
	Text, Next string
	// AsQuery is COPY (SELECT ...) TO with the same rows, of COPY table TO.
	AsQuery string

	Ownership, OwnershipNext *ownership.Filter // of them, see On

	CopyFormat

	// Columns are the columns named, in their order; nil: all of the table.
	Columns []string
	// KeyAt is the place of each column of the shard key among the values of a
	// client's row; -1-n is value n of Made. Keys says what the columns do to a value.
	KeyAt []int
	Keys  []KeyExpr
	// Made are values that the router makes for each row, for the columns MadeFor,
	// which the text names before the client's.
	Made    []FillValue
	MadeFor []*shardmap.Column
	// Timed are the defaults of the last columns of MadeFor, which depend on the time
	// at which the transaction began: parameter 1. All rows get the same.
	Timed []string
	// Omitted are the columns of a reference table that the rows have no value for:
	// their defaults have to be constants.
	Omitted []string
}

// CopyFormat is the form of the data.
type CopyFormat struct {
	CSV, Binary              bool
	Header, Match            bool // the first line names the columns; they have to match
	Delimiter, Quote, Escape byte
	Null                     string
	// Default stands for a column's default in a row; HasDefault says that there is such a mark.
	Default    string
	HasDefault bool
	// ForceNull and ForceNotNull name columns, ForceQuote too; "*" is all.
	ForceNull, ForceNotNull, ForceQuote []string
}

// Forced reports whether a list of columns as in FORCE_NULL has the column.
func Forced(list []string, column string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, column)
}

// Change is what one part of a statement changes.
type Change struct {
	Table *shardmap.Table
	Op    string   // INSERT, UPDATE, DELETE
	Set   []string // the columns that an UPDATE gives values
}

// CopiesLock locks rows of a reference table on the shards that have not locked them yet.
type CopiesLock struct {
	Table *shardmap.Table
	// Clause is FOR UPDATE or FOR NO KEY UPDATE, with NOWAIT if that was said.
	Clause string
}

// Compares reports whether values of a type are compared with column i of the shard key by what
// the router reads them as.
func (s *SplitPlan) Compares(i int, oid uint32) bool {
	typ, _ := keyspace.TypeByOID(oid)
	return keytype.SameFamily(typ, s.Types[i])
}

// Plain reports whether column i of the shard key takes any text as it is.
func (p *CopyPlan) Plain(i int) bool {
	return p.Keys[i].Type.IsText() && p.Keys[i].Modifier == keyspace.NoModifier
}

// Key is column i of the shard key as the table stores a value of a row; nil is
// NULL. The result may point into the value: it is good as long as that is.
// Errors: those of StoredKey, and 22P03.
func (p *CopyPlan) Key(i int, value []byte) (keyspace.Value, error) {
	e := &p.Keys[i]
	switch {
	case value == nil:
		return keyspace.Value{}, NullKey(p.Table, p.Table.ShardKey[i])
	case p.Binary:
		v, err := keyspace.ParseBinary(e.Type, value)
		if err != nil {
			return v, err
		}
		return e.Modifier.Coerce(v)
	}
	return StoredKey(p.Table, i, e, value)
}

// TextKey is Key of a column for which Plain is true, without a copy; valid has to
// be UTF-8 without zero bytes.
func (p *CopyPlan) TextKey(i int, valid []byte) keyspace.Value {
	return keyspace.Str(p.Keys[i].Type, unsafe.String(unsafe.SliceData(valid), len(valid)))
}

// Type is the type of column i of the shard key.
func (p *CopyPlan) Type(i int) keyspace.Type { return p.Keys[i].Type }
