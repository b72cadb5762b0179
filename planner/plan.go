package planner

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/ownership"
	"github.com/cleavedb/cleave/planner/plpgsql"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Kind says how a statement is carried out.
type Kind uint8

const (
	// Empty has no statement at all (a comment, a lone semicolon).
	Empty Kind = iota
	// OneShard goes to the owner of its shard key, unchanged.
	OneShard
	// DefaultShard goes to the default shard: tables that are not sharded, the catalogue.
	DefaultShard
	// AnyShard touches no table (SELECT 1, SELECT now()), or only reads
	// reference tables: the shard that the transaction is bound to, else any live one.
	AnyShard
	// DDLKind changes the schema; see Statement.DDL.
	DDLKind
	// Transaction control: see Statement.Tx.
	TxKind
	// Set, Reset, Show, Discard of session state; see Statement.Set.
	SetKind
	// PrepareKind, ExecuteKind, DeallocateKind are the SQL-level prepared
	// statements; see Statement.Prepared.
	PrepareKind
	ExecuteKind
	DeallocateKind
	// Virtual reads the schema "cleave"; runs on the virtual database.
	Virtual
	// Call runs one of Cleave's functions; see Statement.Call.
	Call
	// ExplainRoute answers EXPLAIN (ROUTE); see Statement.Inner.
	ExplainRoute
	// Several concerns several shards, or may; see Statement.Plan.
	Several
	// ListenKind is LISTEN and UNLISTEN; see Statement.Listen.
	ListenKind
	// BlockKind is a DO block that the router carries out; see Statement.Block.
	BlockKind
	// RoleKind changes the cluster's users; see Statement.Role.
	RoleKind
)

// Statement is one analysed statement. It is immutable and shared by sessions.
type Statement struct {
	Kind Kind
	// Text is what shards receive: the statement's own text, with Cleave's
	// options cut out of it.
	Text string
	// Judged is what a shard describes in place of Text, where that has calls that no shard knows; "" else.
	Judged string
	// Views: views are written out in Text, so that shards look at privileges on the tables, not on them.
	Views bool
	// Tag is the command tag's first words ("SELECT", "CREATE TABLE").
	Tag string
	// Unread is true when a literal stands for a shard key that the planner cannot read: see [Planner.KeyTexts].
	Unread bool
	// ReadOnly is true when the statement provably writes nothing and locks no row.
	ReadOnly bool
	// ReplicaSafe is true for a SELECT of tables on one shard that a replica
	// answers as the primary would, but for its age: it writes nothing, locks
	// nothing and calls no volatile function.
	ReplicaSafe bool
	// Sequenced: it calls nextval() and its kin of sequences that are the default shard's own.
	Sequenced bool
	// Stable is true for a SELECT that writes nothing, locks nothing and calls no
	// volatile function: it means the same outside of a transaction.
	Stable bool
	// ReturnsRows is true when a RowDescription comes first.
	ReturnsRows bool
	// Params is the highest parameter number used. Numbers: one of them may be of a type of one's
	// own, or of one that names an object (regclass), for what the text says beside the Tables' columns.
	Params  int
	Numbers bool

	// Tables are the known tables touched, Writes those changed.
	Tables []*shardmap.Table
	Writes []*shardmap.Table
	// Strange: it names a relation that the map does not know, which the default shard is asked for.
	Strange bool
	// Keyspace is that of the sharded tables; "" if there is none.
	Keyspace string
	// Keys are the alternatives for the shard key: one element for a = 1,
	// several for a IN (1, 2). Each has one expression per shard key column.
	Keys [][]KeyExpr
	// Shape is the fingerprint of the text with literals removed, for logs and
	// metrics, and the key under which a cache can keep the statement for texts
	// that differ in literals only (see Reusable).
	Shape string
	// Reusable is true when the analysis used no literal's value except through
	// Keys, so that RouteText may route every text of the same Shape.
	Reusable bool
	// Class is a mark of the caller's, set before the statement is shared (the
	// executor's: telemetry.Class). The planner does not read it.
	Class uint16
	// Copy is true for COPY ... FROM STDIN and COPY ... TO STDOUT: after the
	// statement the connection changes to the copy sub-protocol.
	Copy bool
	// CopyRows is the query of a COPY (query) TO STDOUT in binary that is not one of several shards.
	CopyRows string

	// Pins: it leaves something in the shard's session (a temporary table, an advisory
	// lock until the session's end), so the client's session keeps the conversation.
	Pins bool
	// TempCall: it calls a function in pg_temp, whose text has to be one that the planner takes by the map of now.
	TempCall bool
	// Temp is the name of the temporary table or view that it makes. TempType is that of a type in pg_temp, or the new name of
	// a type which may be there.
	Temp, TempType string
	// Types are the names of types in it that may be of pg_temp, AnyType among them.
	Types []string
	// Unlocks: it calls pg_advisory_unlock() or one like it, which is about the locks of the session that made them.
	Unlocks bool
	// Traces: it is not proved to leave nothing in the session of a shard that the router does not follow.
	Traces bool
	// Secret is what it reads that PostgreSQL shows to superusers only (hashes of passwords, a server's files), or does that takes an administrator; "" if
	// nothing. It takes an administrator.
	Secret string
	// Notifies: it is NOTIFY, or calls pg_notify().
	Notifies bool

	arrays bool // some of Keys are array parameters
	// timeKeys are the parameters that stand for shard keys of a time type.
	timeKeys []KeyExpr

	// Fill is what the router evaluates for each execution and puts into Text;
	// nil for nearly all statements. Such a statement is never Reusable.
	Fill *Fill

	// Plan is how a statement of kind Several is carried out.
	Plan *Plan

	Listen *Listen
	Block  *plpgsql.Block
	DDL    *DDL
	Tx     *Tx
	Set    *Set
	// Sets are the calls of set_config(): all that a statement with Set does, or what one of another kind does besides.
	Sets     []SetCall
	Prepared *Prepared
	Call     *CallExpr
	Role     *Role
	Inner    *Statement // ExplainRoute: the statement explained
	Analyze  bool       // ExplainRoute: EXPLAIN (ROUTE, ANALYZE)
	// Cursor is DECLARE, FETCH, MOVE or CLOSE.
	Cursor *Cursor
	// Explained is a plain EXPLAIN, of which Plan, if there is one, is the explained
	// statement's.
	Explained *Explain
	// Refused is, with ExplainRoute, why the explained statement would be
	// refused; Inner is nil then.
	Refused *sqlstate.Error
}

// KeyExpr is a shard key column's value: a literal, or a parameter.
type KeyExpr struct {
	Type  keyspace.Type
	Param int            // 1-based; 0 for a literal
	Value keyspace.Value // literal
	Never bool           // the literal is NULL or out of the column's domain: no row can match
	// Cast is the type of an explicit cast around the parameter, 0 if none.
	Cast keyspace.Type
	// Array: the parameter is an array, of which the value is one element.
	Array bool
	// Strict is set when the statement uses the parameter elsewhere too, where
	// PostgreSQL could take another type for it: then the client has to say it.
	Strict bool

	into *shardmap.Table // the table that an INSERT stores the value in, nil for a comparison
	// selected: rows of a query are stored, which may give none. What it says of them
	// comes from its conditions, so that there are none with NULL.
	selected bool
	mod      keyspace.Modifier // what the column does to a stored value (INSERT)
	lit      int32             // 1-based index into the literals of Normalize; 0: not a plain literal
	loc      int32             // byte offset of the literal in the text + 1
	as       keyspace.Type     // the type that the literal is read as, before it becomes Type
}

// Args are the bound parameters of one execution. Slices are as in Bind: one
// format for all, or one each, or none (text). OIDs may be shorter than Values
// or hold 0 where the client left the type open.
type Args struct {
	OIDs    []uint32
	Formats []int16
	Values  [][]byte // nil element is NULL
}

// Param is a parameter, from 1: its bytes, nil for NULL, its type as the client gave it, and its format; ok: there is one.
func (a *Args) Param(p int) (raw []byte, oid uint32, format int16, ok bool) {
	if a == nil || p > len(a.Values) {
		return nil, 0, 0, false
	}
	if p <= len(a.OIDs) {
		oid = a.OIDs[p-1]
	}
	switch {
	case len(a.Formats) == 1:
		format = a.Formats[0]
	case p <= len(a.Formats):
		format = a.Formats[p-1]
	}
	return a.Values[p-1], oid, format, true
}

// Route is where one execution goes.
type Route struct {
	Shard    string
	Keyspace string // "" where no key decided
	// Range is printable where the caller has filled it with Text; Route leaves
	// it empty so that the hot path builds no string.
	Range  string
	Epoch  uint64 // of the range or pin; the highest of several
	Pinned bool
	// Several: the keys are on several shards, so the statement has to be planned
	// for them: Planner.Several.
	Several bool
	// Held is a transit with a hold that has a key of the statement, nil nearly
	// always. Of a route to several shards it may be missing, see [Statement.Held].
	Held *shardmap.Transit
	// Unit is 1 more than the number of the assignment that decided, of the first one where
	// there are several (see shardmap.Snapshot.Units); 0 where no key did.
	Unit int

	index   *shardmap.Index
	rangeAt int // index into the keyspace's ranges, negative for a pin or listed value
}

// DDL is a schema change.
type DDL struct {
	// Op is "create table", "alter table", "drop table", "create index", ...
	Op string
	// AllShards: every shard receives Text, else only the default shard.
	AllShards bool
	// Create is the table that comes into being; nil else.
	Create *CreateTable
	// Altered are the tables whose definition must be read again afterwards,
	// Dropped those that go, Renamed the old name of Altered[0] if it changes.
	Altered []TableName
	Dropped []TableName
	Renamed *TableName
	// DropsSchema holds the names of schemas dropped with CASCADE.
	DropsSchema []string
	// Truncated tables: the shard's guard wants the router's epoch.
	Truncated []TableName
	// Cascades are the tables of a TRUNCATE ... CASCADE, which reaches those that refer to them as well. Restarts
	// says that the sequences of all of them begin anew.
	Cascades []TableName
	Restarts bool
	// Concurrent statements cannot run in a transaction (CREATE INDEX CONCURRENTLY).
	Concurrent bool
	// Refused is why it is refused, wherever it might run; nil if it is not.
	Refused error
	// Elsewhere is what shards other than the default shard receive if it is not
	// Text: DROP INDEX with IF EXISTS, since an index of an unsharded table is on the
	// default shard only.
	Elsewhere string
	// DropsParts is a DROP ... CASCADE of what parts of tables may depend on: columns, defaults, constraints.
	DropsParts bool
	// Mixed: it names what every shard has, and what only the default shard has.
	Mixed bool
	// RenamedColumn is the old and the new name, in Altered[0]; "" if none.
	RenamedColumn [2]string
	// RenamedSchema is the old and the new name of a schema; "" if none.
	RenamedSchema [2]string
	// MapOnly: no shard hears of it, only the map changes.
	MapOnly bool
	// Sequences are the sequences of the cluster that come, change and go.
	// Besides these, those that a table or column owns go with it.
	Sequences []SequenceChange
	// Objects: it may have made, changed or dropped views or functions, whose
	// definitions are to be read again.
	Objects bool
	// Language is that of the function which it makes; "" if it names none.
	Language string
	// Index is the index that the statement makes, nil if the shard is to choose a
	// name; Schema is "" for a table that the map does not know.
	Index *TableName
	// Unknown are the names of tables that the map does not know, as the statement
	// has them: they may be temporary tables of the session.
	Unknown []string
	// Hides is the refusal of a new name, if what gets it is a temporary table: the map has one of that name.
	Hides error
	// OfTypes are the types that it changes, if it names none of them with a schema: they may be the session's, in pg_temp. Plain is
	// the text then, without what Text has for all shards.
	OfTypes []string
	Plain   string
	// Spread: the view that it makes reads sharded tables. A view that reads one of
	// Unknown which is a temporary table is temporary, and cannot.
	Spread bool
	// Source is the query whose rows a CREATE TABLE AS puts into the table that Text
	// makes: rows of several shards. "" if Text does it itself.
	Source string
	// As is a CREATE TABLE AS of a sharded or reference table, which Text does not make.
	As *CreateAs
	// Loose is what it changes, as it is written (Schema may be ""), if the map knows no table or view of that name; nil
	// else. Whether there is such a thing, and where, the default shard knows.
	Loose *TableName
	// Passing: it leaves nothing that a new shard would have to do (REINDEX, VACUUM).
	Passing bool
	// Functions: Text calls functions of the schema cleave_internal that the shards have to have.
	Functions bool
	// Times are expressions whose values stand in Text, in texts' quotes, in place of the marks (TimeMark): of the
	// transaction's time, and of words for it.
	Times []string
	// Unfillable is the error if a shard's part of Altered[0] has rows; nil if there is none. Defaults are the columns added
	// to it without a DEFAULT, which may get the default of their type.
	Unfillable *sqlstate.Error
	Defaults   []string
}

// TableName is a resolved table name.
type TableName struct{ Schema, Name string }

// CreateTable is a table declared with Cleave's options, before shards have
// said what its columns really are.
type CreateTable struct {
	TableName
	Kind        shardmap.TableKind
	Keyspace    string // "" means: the hash keyspace of the key's types
	ShardKey    []string
	IfNotExists bool
	// InPath: the schema is the first of the search_path, and may not exist.
	InPath bool
}

// Listen is LISTEN, or UNLISTEN of one channel or of all.
type Listen struct {
	Channel string // "" is UNLISTEN *
	Off     bool   // UNLISTEN
}

// Tx is transaction control.
type Tx struct {
	// Op is "begin", "commit", "rollback", "savepoint", "release",
	// "rollback to", "set" for SET TRANSACTION and SET SESSION CHARACTERISTICS, or
	// "constraints" for SET CONSTRAINTS.
	Op       string
	Name     string // savepoint; one of the constraints, "" is ALL
	Chain    bool   // AND CHAIN
	ReadOnly bool
	Session  bool // SET SESSION CHARACTERISTICS
	// Setting: it is SET transaction_..., Local with LOCAL.
	Setting, Local bool
}

// Counts reports whether the statement may call nextval() of a sequence that is the default shard's own, by a
// default or a trigger too, or asks for what that gave.
func (s *Statement) Counts() bool {
	switch s.Kind {
	case DefaultShard:
		return s.Sequenced || !s.ReadOnly
	case Several:
		return slices.ContainsFunc(s.Writes, func(t *shardmap.Table) bool { return t.Kind == shardmap.Whole })
	}
	return false
}

// Set is SET, RESET, SHOW, DISCARD or SELECT set_config(...), of which Statement.Sets has the calls.
type Set struct {
	// Op is "set", "reset", "reset all", "show", "show all", "discard" or "set_config".
	Op    string
	Name  string // lower case
	Local bool
	// Value is the SQL text after SET name TO, ready to be replayed; "" for DEFAULT.
	Value string
	// What is the DISCARD target: "all", "plans", "sequences", "temp".
	What string
}

// Prepared is PREPARE, EXECUTE or DEALLOCATE.
type Prepared struct {
	Name  string // "" with DEALLOCATE is ALL
	Text  string // PREPARE: the statement
	OIDs  []uint32
	Types []string // PREPARE: type names as written
	Args  []string // EXECUTE: SQL text of the arguments
	At    []int    // the characters, from 1, at which Types or Args begin
	// Explain is what stands before EXECUTE in EXPLAIN EXECUTE.
	Explain string
}

// CallExpr is a call of one of Cleave's functions: SELECT cleave.pin('k', 5, 'shard-1').
type CallExpr struct {
	Function string // without the schema
	Args     []CallArg
	// Column is the name of the result column.
	Column string
}

// CallArg is one argument: a literal in text form, or a parameter.
type CallArg struct {
	Name  string // name => value; "" if positional
	Text  string
	Null  bool
	Param int // 1-based; 0 for a literal
	// Array holds the elements of ARRAY[...]; nil if it is not an array.
	Array []CallArg
}

// Sorted is a scatter's plan in the form of a gather, for rows that only
// PostgreSQL can compare: the rows that the shards give, limited as they are
// there, become a relation of so many columns, from which the statement's order,
// DISTINCT, LIMIT and OFFSET are made.
func (p *Plan) Sorted(columns int) *Plan {
	name := RelationPrefix + "1"
	names := make([]string, columns)
	for i := range names {
		names[i] = "c" + itoa(i+1)
	}
	all := strings.Join(names, ", ")
	out := &Plan{Op: Gather, Clock: p.Clock, Why: "the order of its columns is the database's to know"}
	before, after := "SELECT "+all+" FROM (", ") AS s("+all+")"
	out.Relations = []Relation{{Name: name, Text: before + p.Text + after, Target: p.Target, own: p.own.Around(before, after)}}
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
			b.WriteString(x.word + dollar(x.count.Param) + "::bigint")
		default:
			b.WriteString(x.word + itoa(int(x.count.Value)))
		}
	}
	out.Text = b.String()
	return out
}

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

	own *ownership.Filter // of Text, see On
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

	own *ownership.Filter
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
