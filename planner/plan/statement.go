package plan

import (
	"math"
	"slices"

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
	// Asks: the text has literals that may be special date/time inputs, and a shard is to be asked of which types they are
	// (planner.Planner.With). Until then Plan is that of texts, and may not be run. nil: nothing is to be asked.
	Asks *InputQuestion
	// Judged is what a shard describes in place of Text, where that has calls that no shard knows; "" else.
	Judged string
	// Views: views are written out in Text, so that shards look at privileges on the tables, not on them.
	Views bool
	// Tag is the command tag's first words ("SELECT", "CREATE TABLE").
	Tag string
	// Unread is true when a literal stands for a shard key that the planner cannot read: see KeyTexts of the planner.
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
	// Shown: Text asks the default shard for what the cluster has in its catalogue. It is not the client's, and is not to be analysed again.
	Shown bool
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

	ArrayKeys bool // some of Keys are array parameters
	// TimeKeys are the parameters that stand for shard keys of a time type.
	TimeKeys []KeyExpr

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

// Listen is LISTEN, or UNLISTEN of one channel or of all.
type Listen struct {
	Channel string // "" is UNLISTEN *
	Off     bool   // UNLISTEN
}

// Tx is transaction control.
type Tx struct {
	// Op is "begin", "commit", "rollback", "savepoint", "release",
	// "rollback to", "set" for SET TRANSACTION and SET SESSION CHARACTERISTICS, "snapshot" for SET TRANSACTION SNAPSHOT, or
	// "constraints" for SET CONSTRAINTS.
	Op       string
	Name     string // savepoint; snapshot; one of the constraints, "" is ALL
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

// SetCall is a call of set_config() in a statement.
type SetCall struct{ Name, Value, Local SetArg }

// SetArg is an argument of set_config(): a literal, a parameter, or an expression that a shard computes.
type SetArg struct {
	Text     string
	Null     bool
	Param    int // 1-based
	Computed bool
	// From and To are the bytes of a literal in Statement.Text, 0 where it cannot be replaced by another.
	From, To int
}

// Role is CREATE, ALTER and DROP ROLE and USER: of the cluster's users, as `cleave user` changes them. Nothing of the
// statement's text is kept beside it, for it may hold a password.
type Role struct {
	Op    string   // "create", "alter" or "drop"
	Names []string // one, but for "drop"; "" is the session's own user
	// IfExists: DROP ROLE IF EXISTS.
	IfExists bool
	// Password is nil if none is given.
	Password *string
	// Admin is SUPERUSER or NOSUPERUSER, nil if neither is given.
	Admin *bool
}

// String returns the name of a kind of plan, as EXPLAIN (ROUTE) and metrics print it.
func (k Kind) String() string {
	names := [...]string{"empty", "one shard", "default shard", "any shard", "schema change", "transaction", "session setting",
		"prepare", "execute", "deallocate", "router tables", "router function", "explain", "several shards", "notifications", "block", "users"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Cursor is DECLARE, FETCH, MOVE or CLOSE.
type Cursor struct {
	// Op is "declare", "fetch", "move" or "close".
	Op   string
	Name string // "" with close: ALL
	// Query is the text of DECLARE's query. Scroll and NoScroll: it is declared so; Hold: WITH HOLD;
	// Binary: its rows come in the binary format.
	Query                          string
	Scroll, NoScroll, Hold, Binary bool
	// Backward: PostgreSQL reads it backward without SCROLL too, unless it happens to choose a bitmap scan.
	Backward bool
	// Direction and Count say what FETCH and MOVE want; [All] is every row.
	Direction Direction
	Count     int64
}

// All is a Cursor's Count for ALL.
const All = math.MaxInt64

// Direction is where FETCH and MOVE go.
type Direction uint8

// The directions.
const (
	Forward Direction = iota
	Backward
	Absolute
	Relative
)

// Explain is a plain EXPLAIN.
type Explain struct {
	// Prefix is the text up to the explained statement: "EXPLAIN (COSTS OFF) "; JSON is the same with FORMAT JSON.
	Prefix, JSON string
	// Query is the explained statement, Tag its tag, and ReturnsRows whether it answers rows.
	Query, Tag  string
	ReturnsRows bool
	Format      string // "text", "json", "yaml" or "xml"
	// Analyze: the statement is run. Timing and Summary: times, and the times of the whole, are told.
	Analyze, Timing, Summary bool
}
