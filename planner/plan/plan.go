package plan

import (
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/ownership"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/shardmap"
)

// Plan says how a statement that concerns several shards is carried out. It is
// immutable and shared. docs/design/several.md has the rules.
//
// All texts keep the client's parameters, by their numbers; each may use a part
// of them only, so the executor gives the types of all when it prepares a text.
type Plan struct {
	Op PlanOp

	// Relations are fetched first. Gather: into temporary relations on the scratch
	// connection. Modify and Insert: onto each shard that the statement changes, or
	// onto the scratch connection that the source of an INSERT is read from.
	Relations []Relation

	// Text is what each shard of Target runs (Scatter, Modify; see On), or what the
	// scratch connection runs (Gather).
	Text   string
	Target Target

	// Combine says how the shards' rows become the answer (Scatter).
	Combine Combine

	// Clock: the texts use parameter Params+1 (of the statement, Fill included) for
	// the time at which the transaction began, a timestamptz: what now() gives has
	// to be the same on every shard.
	Clock bool

	// Steps of the operations that write; see their types.
	Insert *InsertPlan
	Modify *ModifyPlan
	Copy   *CopyPlan

	// Apart is what the statement changes, if WITH queries do: they are run one after
	// the other, so that no foreign key may tie them together.
	Apart []Change

	// Why says, for EXPLAIN (ROUTE), what kept the statement from the cheaper
	// operation: "" for Scatter.
	Why string

	Ownership *ownership.Filter // of Text, see On
}

// PlanOp is what a Plan does.
type PlanOp uint8

const (
	// Scatter runs Text on each shard and combines the rows as they stream.
	Scatter PlanOp = iota + 1
	// Gather fetches Relations and runs Text on them on one scratch connection.
	Gather
	// Modify runs an UPDATE, DELETE, or a write to a reference table on each shard
	// of Target.
	Modify
	// Insert splits rows by their shard key.
	Insert
	// CopyIn splits the rows of COPY ... FROM STDIN, CopyOut gathers those of
	// COPY ... TO STDOUT.
	CopyIn
	CopyOut
)

// Relation is one temporary relation: the union of the rows that Text gives on
// each shard of Target; see On.
type Relation struct {
	// Name is what the texts that read it call it. It cannot meet a name of the
	// user's: it begins with cleave_rel_.
	Name   string
	Text   string
	Target Target
	// Index are column lists on which the scratch connection makes an index once
	// the rows are there, if there are many.
	Index [][]string
	// Table is the table that the relation stands for, nil if it is made of several.
	Table *shardmap.Table
	// Keyed: the text may group by the table's primary key and use its other
	// columns, so the relation needs that key.
	Keyed bool
	// Exact: the text looks at the relation's row type, or at its columns' declared
	// types, so it has to be a table.
	Exact bool

	Ownership *ownership.Filter
}

// Target is a set of shards, known when the statement is run.
type Target struct {
	Where Where
	// Keyspace, Keys and Spans are those of KeyShards: the owners of the
	// alternatives in Keys, or of the intervals in Spans; of the whole keyspace if
	// both are nil.
	Keyspace string
	Keys     [][]KeyExpr
	Spans    []Span
}

// Where is a Target's sort.
type Where uint8

const (
	// KeyShards own keys of a keyspace.
	KeyShards Where = iota
	// AnyOne is any one shard, best one that takes part anyway: reference tables,
	// or no table at all.
	AnyOne
	// Default is the default shard.
	Default
	// Every is every shard of the cluster: writes to reference tables.
	Every
)

// Span is an interval of the first shard key column of a range keyspace; nil is
// open.
type Span struct {
	Low, High         *KeyExpr
	LowOpen, HighOpen bool // the bound itself is not in it
}

// Combine makes one stream of rows of the shards' streams.
type Combine struct {
	// Order merges streams that the shards have sorted; nil: one after the other.
	Order []OrderKey
	// Hidden is how many of the last columns the client does not get.
	Hidden int
	// Unique drops rows that are equal in the Order columns to the row before:
	// DISTINCT and DISTINCT ON.
	Unique int // the first Unique keys of Order decide; 0: keep all
	// Limit and Offset are applied to the combined rows; nil: none.
	Limit, Offset *Count
}

// OrderKey is a column of the shards' rows to merge by.
type OrderKey struct {
	Column     int // 0-based; negative: from the end, -1 is the last column
	Desc       bool
	NullsFirst bool
}

// Count is a LIMIT or OFFSET: a number or a parameter.
type Count struct {
	Value int64
	Param int // 1-based; 0 is Value
	// Type is the integer type that the parameter is cast to.
	Type keyspace.Type
}

// On is the text that a shard runs: Text, without the rows that it has but does
// not own by any of the maps. There is one map, that of now; where a transaction
// sees rows as they were at its beginning, there is that of its beginning as well,
// since rows that are gone now may have been there. Errors: 0A000 for a form in
// which that cannot be written.
func (p *Plan) On(shard string, maps ...*shardmap.Snapshot) (string, error) {
	return p.Ownership.On(p.Text, shard, maps)
}

// On is the text that a shard runs, as [Plan.On].
func (r *Relation) On(shard string, maps ...*shardmap.Snapshot) (string, error) {
	return r.Ownership.On(r.Text, shard, maps)
}

// confined are those of the texts that write or copy.
func (p *Plan) confined() (all []*ownership.Filter) {
	if p.Copy != nil {
		all = append(all, p.Copy.Ownership)
	}
	if m := p.Modify; m != nil {
		all = append(all, m.Write.Ownership)
		if m.Move != nil {
			all = append(all, m.Move.Lock.Ownership)
		}
	}
	return all
}

// Sorted is a scatter's plan in the form of a gather, for rows that only
// PostgreSQL can compare: the rows that the shards give, limited as they are
// there, become a relation of so many columns, from which the statement's order,
// DISTINCT, LIMIT and OFFSET are made.
func (p *Plan) Sorted(columns int) *Plan {
	name := RelationPrefix + "1"
	names := make([]string, columns)
	for i := range names {
		names[i] = "c" + strconv.Itoa(i+1)
	}
	all := strings.Join(names, ", ")
	out := &Plan{Op: Gather, Clock: p.Clock, Why: "the order of its columns is the database's to know"}
	before, after := "SELECT "+all+" FROM (", ") AS s("+all+")"
	out.Relations = []Relation{{Name: name, Text: before + p.Text + after, Target: p.Target, Ownership: p.Ownership.Around(before, after)}}
	order := make([]string, len(p.Combine.Order))
	var unique []string
	for i, k := range p.Combine.Order {
		at := k.Column
		if at < 0 {
			at += columns
		}
		if i < p.Combine.Unique {
			unique = append(unique, names[at])
		}
		order[i] = names[at]
		if k.Desc {
			order[i] += " DESC"
		}
		if k.NullsFirst {
			order[i] += " NULLS FIRST"
		} else {
			order[i] += " NULLS LAST"
		}
	}
	var b strings.Builder
	b.WriteString("SELECT ")
	if len(unique) > 0 {
		b.WriteString("DISTINCT ON (" + strings.Join(unique, ", ") + ") ")
	}
	b.WriteString(strings.Join(names[:columns-p.Combine.Hidden], ", ") + " FROM " + name)
	if len(order) > 0 {
		b.WriteString(" ORDER BY " + strings.Join(order, ", "))
	}
	for _, x := range []struct {
		word  string
		count *Count
	}{{" LIMIT ", p.Combine.Limit}, {" OFFSET ", p.Combine.Offset}} {
		switch {
		case x.count == nil:
		case x.count.Param > 0:
			b.WriteString(x.word + sqltext.Dollar(x.count.Param) + "::bigint")
		default:
			b.WriteString(x.word + strconv.Itoa(int(x.count.Value)))
		}
	}
	out.Text = b.String()
	return out
}

// RelationPrefix begins the names of a plan's temporary relations, and of the columns that the router adds to texts.
const RelationPrefix = "cleave_rel_"
