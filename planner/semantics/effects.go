package semantics

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/clustercatalog"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/planner/utility"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Effects are what the functions and types of a statement do beyond giving a value: where it may run then.
type Effects struct {
	typer   *Typer
	src     *sourcetext.Text
	touched *Touched
	st      *plan.Statement
	one     *OneShard

	aggregates, windows int
	Sequence            string // a sequence function
	temporaryCall       string // a function in pg_temp
	advisory            string // a function of advisory locks, or of notifications
	largeObject         string // a function of large objects
	LastAlone           bool   // lastval() is the only one of a SELECT without FROM
	PreferDefault       bool
	MayType             bool // see ownType
	Volatile            bool // it calls a volatile function
	Traces              bool // it calls one that may leave something in its session
	MaySet              bool // it may call set_config()
	Locks, Changes      bool
	OwnSession          bool   // plan.SessionCalls are the router's in this statement
	Numbers             bool   // see Statement.Numbers
	Objects             bool   // it may take the OID of an object
	Number              string // what it takes one as, see TakesOID
}

// CatalogType notes a cast to a type that is looked up in a database's catalogue:
// object ids differ between shards, so the default shard answers if it can.
func (fx *Effects) CatalogType(n *pg.TypeName) {
	names := sqltree.Strings(n.GetNames())
	if len(names) > 0 && (strings.HasPrefix(names[len(names)-1], "reg") || names[len(names)-1] == "oid") {
		fx.PreferDefault, fx.Objects = true, true
	}
	if n.GetPctType() {
		fx.PreferDefault = true
	}
	if len(names) > 0 && !serverdependent.WithoutOID[names[len(names)-1]] {
		fx.ownType(names)
	}
	fx.Numbers = fx.Numbers || len(names) == 0 || len(names) > 1 && names[0] != "pg_catalog" || !serverdependent.WithoutOID[names[len(names)-1]]
}

// ownType notes a type that may be one of the user's: the row type of a table that is not on every shard, perhaps. A
// statement without tables goes where every type is then.
func (fx *Effects) ownType(names []string) {
	if len(names) > 2 || names[0] == "pg_catalog" || names[0] == "information_schema" {
		return
	}
	v := &pg.RangeVar{Relname: names[len(names)-1]}
	if len(names) == 2 {
		v.Schemaname = names[0]
	}
	t := fx.typer.Relation(v).Table
	fx.MayType = fx.MayType || t == nil
	fx.PreferDefault = fx.PreferDefault || t != nil && t.Kind == shardmap.Whole
}

// CheckCall checks that a call can be let through.
func (fx *Effects) CheckCall(f *pg.FuncCall) {
	names := sqltree.Strings(f.Funcname)
	name := names[len(names)-1]
	if RouterFunctions[name] || RouterNative[name] {
		fx.unfilled(f)
	}
	fx.foreignSession(f)
	if len(names) > 1 {
		switch names[len(names)-2] {
		case "pg_catalog":
			clustercatalog.RefuseShared(name)
		case "information_schema":
			fx.PreferDefault = true
			return
		case VirtualSchema:
			fail(sqlstate.Refusal("CLV-0232", "cleave.%s can only be called by itself: SELECT cleave.%s(...)", name, name))
		case InternalSchema:
			fail(InternalSchemaError())
		default:
			if fx.typer.KindOf(f) == "" {
				fx.typer.userCode("function " + strings.Join(names, ".") + "()")
			}
		}
	}
	if InTemp(names) {
		fx.tempCall(names)
	}
	kind := fx.typer.KindOf(f)
	if kind == "" {
		fx.typer.userCode("function " + name + "()")
	} else if len(names) == 1 {
		clustercatalog.RefuseShared(name)
	}
	fx.Volatile = fx.Volatile || strings.HasPrefix(kind, "v")
	fx.tracing(name, kind)
	if f.Over != nil {
		fx.windows++
	} else if strings.Contains(kind, "a") || f.AggStar || f.AggDistinct || f.AggFilter != nil || f.AggWithinGroup || len(f.AggOrder) > 0 {
		fx.aggregates++
	}
	ours := builtin.Has(name)
	if name == "set_config" {
		fx.setsWithin(f)
	} else if ours || name == "set_limit" { // pg_trgm's
		fx.checkFunction(name, len(f.Args))
	}
	fx.Numbers = fx.Numbers || !ours || serverdependent.NamesObjects[name]
	fx.Objects = fx.Objects || name == "pg_typeof" || name == "regclass" || strings.HasPrefix(name, "to_reg")
}

func (fx *Effects) checkFunction(name string, args int) {
	if secretFunctions[name] {
		fx.typer.Secret("function " + name)
	}
	switch name {
	case "nextval", "setval":
		fx.Sequence = name
		return
	case "currval", "lastval":
		if fx.Sequence == "" {
			fx.Sequence = name
		}
		return
	case "setseed":
		fail(sqlstate.Refusal("CLV-0233", "setseed() would seed random() in one session of one shard only").
			WithHint("Make the numbers in the client."))
	case "set_config":
		fail(sqlstate.Refusal("CLV-0234", "set_config() written so is not supported").
			WithHint("Run SELECT set_config('name', 'value', false) by itself, or SET."))
	case "ts_rewrite":
		if args == 2 {
			fail(sqlstate.Refusal("CLV-0235", "ts_rewrite() with two arguments runs a query given as text").
				WithHint("Use the form with three arguments."))
		}
		return
	}
	if builtin.IsAdvisory(name) {
		// All of them are on the default shard, so that they exclude each other.
		fx.advisory, fx.PreferDefault, fx.Locks = name, true, true
		fx.st.Unlocks = fx.st.Unlocks || strings.HasPrefix(name, "pg_advisory_unlock")
		fx.st.Notifies = fx.st.Notifies || name == "pg_notify"
		if (strings.HasPrefix(name, "pg_advisory_lock") || strings.HasPrefix(name, "pg_try_advisory_lock")) && !fx.touched.defining {
			fx.st.Pins = true
		}
		return
	}
	why, denied := builtin.Reach[name]
	if builtin.IsLargeObject(name) && fx.st.DDL == nil { // what a definition says is evaluated on every shard
		fx.largeObject, fx.PreferDefault, fx.Locks = name, true, true
		return
	}
	for _, p := range builtin.ReachPrefixes {
		if !denied && strings.HasPrefix(name, p.Prefix) {
			why, denied = p.Why, true
		}
	}
	if name == "pg_listening_channels" {
		fail(sqlstate.Refusal("CLV-0236", "pg_listening_channels() is not supported: the router listens for its sessions, a shard's session to nothing of theirs").
			WithHint("Keep the names in the client; LISTEN may be said again, and UNLISTEN * ends all."))
	}
	if denied && why != "" {
		fail(sqlstate.Refusal("CLV-0237", "%s() %s", name, why).WithHint("Call it on the shard that you mean, directly."))
	}
	if builtin.Anywhere[name] {
		return
	}
	if strings.HasPrefix(name, "pg_") || strings.HasPrefix(name, "to_reg") || strings.HasPrefix(name, "has_") || strings.HasSuffix(name, "_description") ||
		strings.HasPrefix(name, "inet_") || name == "format_type" || name == "row_security_active" || name == "current_database" {
		fx.PreferDefault = true
	}
}

// FillCall reads a call that the router evaluates. ok is false for every other call.
func (fx *Effects) FillCall(f *pg.FuncCall) (v plan.FillValue, ok bool) {
	names := sqltree.Strings(f.Funcname)
	name := names[len(names)-1]
	own := len(names) == 2 && (names[0] == VirtualSchema || names[0] == InternalSchema) && RouterFunctions[name]
	native := (len(names) == 1 || len(names) == 2 && names[0] == "pg_catalog") && RouterNative[name]
	if !own && !native || f.AggStar || f.AggDistinct || f.Over != nil || f.FuncVariadic || f.AggFilter != nil || len(f.AggOrder) > 0 {
		return v, false
	}
	if native {
		fx.typer.Native(f)
	}
	switch name {
	case "next_id":
		v.Source = shardmap.NextID
		return v, len(f.Args) == 0
	case "uuidv7":
		v.Source = shardmap.UUIDv7
		return v, len(f.Args) == 0
	case "lastval":
		v.Source = name
		return v, len(f.Args) == 0 && (fx.LastAlone || len(fx.typer.Snapshot.State().Sequences) > 0 || fx.typer.Lonely())
	case "nextval", "currval":
		if len(f.Args) < 1 || len(f.Args) > 2 || len(f.Args) == 2 && !own {
			return v, false
		}
	case "setval":
		if !fx.IsSetval(f) {
			return v, false
		}
	}
	q := fx.typer.SequenceArg(f.Args[0])
	if q == nil {
		return v, false
	}
	v.Source, v.Sequence = name, q
	if name != "setval" {
		return v, true
	}
	args, simple := SetvalArgs(f)
	if !simple {
		fail(sqlstate.Refusal("CLV-0512", "setval() of a sequence of the cluster stands by itself in a SELECT, or takes a number or a parameter, and true or false").
			WithHint("Write SELECT setval('name', max(id)) FROM t, without parameters, GROUP BY, ORDER BY, DISTINCT, LIMIT, WITH and other columns."))
	}
	args.Source, args.Sequence = name, q
	return args, true
}

// IsSetval reports whether a call is one of PostgreSQL's setval() with as many arguments as that takes.
func (fx *Effects) IsSetval(f *pg.FuncCall) bool {
	names := sqltree.Strings(f.Funcname)
	return names[len(names)-1] == "setval" && (len(names) == 1 || len(names) == 2 && names[0] == "pg_catalog") && len(f.Args) >= 2 && len(f.Args) <= 3 &&
		!f.AggStar && !f.AggDistinct && f.Over == nil && !f.FuncVariadic && f.AggFilter == nil && len(f.AggOrder) == 0
}

// SetvalArgs reads the arguments of setval() behind the sequence. simple: they are a number or a parameter, and true or false.
func SetvalArgs(f *pg.FuncCall) (v plan.FillValue, simple bool) {
	v.Called = true
	if len(f.Args) == 3 {
		b := f.Args[2].GetAConst().GetBoolval()
		if b == nil {
			return v, false
		}
		v.Called = b.Boolval
	}
	arg := f.Args[1]
	for arg.GetTypeCast() != nil {
		arg = arg.GetTypeCast().Arg
	}
	if p := ParamOf(arg); p > 0 {
		v.ValueParam = p
		return v, true
	}
	sign := int64(1)
	if e := arg.GetAExpr(); e != nil && e.Lexpr == nil && sqltree.Operator(e) == "-" {
		sign, arg = -1, e.Rexpr
	}
	n, sure := int64(0), false
	switch c := arg.GetAConst(); {
	case c.GetIval() != nil:
		n, sure = int64(c.GetIval().Ival), true
	case c.GetFval() != nil:
		whole := false
		n, whole, sure = keytype.WholeNumber(c.GetFval().Fval)
		sure = sure && whole
	case c != nil && !c.Isnull && c.Val == nil:
		sure = true // the parser leaves a zero out
	}
	v.Value = sign * n
	return v, sure
}

// unfilled refuses a call that the router evaluates where it cannot.
func (fx *Effects) unfilled(f *pg.FuncCall) {
	v, ok := fx.FillCall(f)
	if !ok || v.Source == "lastval" && len(fx.typer.Snapshot.State().Sequences) == 0 && !fx.typer.Lonely() {
		return // the default shard knows
	}
	names := sqltree.Strings(f.Funcname)
	name := strings.Join(names, ".") + "()"
	if v.Source == shardmap.UUIDv7 {
		if len(names) == 2 && names[0] != "pg_catalog" {
			fail(sqlstate.Refusal("CLV-0514", "cleave.uuidv7() is evaluated by the router: in VALUES of an INSERT and in SELECT without FROM only").
				WithHint("Write uuidv7()."))
		}
		return // a shard of PostgreSQL 18 has it
	}
	what := ""
	if v.Sequence != nil {
		what = " of the sequence " + sqltext.QuoteName(v.Sequence.Schema, v.Sequence.Name)
	} else if v.Source == "lastval" {
		what = " of this session"
	}
	call := strings.TrimSuffix(name, "()") + "("
	if v.Sequence != nil {
		call += sqltext.QuoteString(sqltext.QuoteName(v.Sequence.Schema, v.Sequence.Name))
	}
	switch {
	case fx.st.DDL != nil:
		fx.one.refuseBoth(sqlstate.Refusal("CLV-0515", "%s%s is evaluated by the router, which does not see where views, defaults and conditions are", name, what).
			WithHint("A column's default can be %s) by itself.", call))
	case v.Source == "setval":
		fx.one.refuseBoth(sqlstate.Refusal("CLV-0516", "%s%s is evaluated by the router, by itself in a SELECT only", name, what).
			WithHint("Run it in a statement of its own: SELECT %s, ...).", call))
	case v.Source == "currval", v.Source == "lastval":
		fx.one.refuseBoth(sqlstate.Refusal("CLV-0517", "%s%s is evaluated by the router: in VALUES of an INSERT and in SELECT without FROM only", name, what).
			WithHint("Read it in a statement of its own, and pass the value: SELECT %s).", call))
	}
	fx.one.refuseBoth(sqlstate.Refusal("CLV-0518", "%s%s is evaluated by the router, once for each row: in VALUES of an INSERT, by itself in the list of an INSERT ... SELECT into a sharded or reference table (without DISTINCT, UNION or ORDER BY of it), and in SELECT without FROM", name, what).
		WithHint("Take the values first, as many as there are rows, and pass them: SELECT %s) FROM generate_series(1, 10).", call))
}

// CheckCalls checks the functions that are called where no statement is analysed: in partition keys and bounds, exclusion
// constraints, and definitions of what the map does not know. A shard runs them for every row.
func (fx *Effects) CheckCalls(m proto.Message) {
	sqltree.Inspect(m, func(m proto.Message) bool {
		if f, ok := m.(*pg.FuncCall); ok {
			fx.CheckCall(f)
		}
		fx.typer.field(m, nil)
		return true
	})
}

// foreignSession refuses a call that would say something of a shard's connection.
func (fx *Effects) foreignSession(f *pg.FuncCall) {
	name := sqltree.NativeCall(&pg.Node{Node: &pg.Node_FuncCall{FuncCall: f}})
	if fx.OwnSession && plan.SessionCalls[name] != "" && !fx.src.OfProcesses() {
		fail(sqlstate.Refusal("CLV-0417", "%s() in FROM, in a cursor and in COPY is not supported: the router gives it", name).
			WithHint("Run SELECT %s(), and give the value.", name))
	}
}

// setsWithin notes a call of set_config() in a statement that does more. What comes of it, its shard is asked.
func (fx *Effects) setsWithin(f *pg.FuncCall) {
	switch {
	case !fx.MaySet || fx.touched.defining:
		fail(sqlstate.Refusal("CLV-1243", "set_config() is supported in SELECT, INSERT, UPDATE, DELETE and MERGE only").
			WithHint("Run SELECT set_config('name', 'value', false) by itself, or SET."))
	case !utility.IsSetConfig(f):
		return // PostgreSQL says that there is no such function
	}
	c := utility.SetCall(fx.src, f)
	if c.Name.Computed {
		fail(sqlstate.Refusal("CLV-1244", "set_config() of a name that is computed is not supported: the router has to know the setting").
			WithHint("Give the name as a literal or a parameter."))
	}
	if c.Local.Computed {
		fail(sqlstate.Refusal("CLV-1245", "set_config() whose third argument is computed is not supported: the router has to know how long the setting holds").
			WithHint("Give true or false, or a parameter."))
	}
	utility.CheckLiterals(c)
	fx.st.Sets = append(fx.st.Sets, c)
}

// tempCall notes the call of a function in pg_temp, which is what createTempFunction lets through. It may write.
func (fx *Effects) tempCall(names []string) {
	if fx.st.DDL != nil || fx.touched.defining {
		fail(sqlstate.Refusal("CLV-0829", "a function in pg_temp cannot be called in a definition").
			WithHint("Make the function in another schema."))
	}
	fx.st.TempCall = true
	fx.temporaryCall, fx.PreferDefault, fx.Locks, fx.Volatile = strings.Join(names, "."), true, true, true
}

// tracing notes a call of a function of a kind, see KindOf.
func (fx *Effects) tracing(name, kind string) {
	fx.Traces = fx.Traces || strings.HasPrefix(kind, "v") && !(builtin.Kind(name) == kind && (Traceless[name] || builtin.IsLargeObject(name)))
}

// A shard's session serves many sessions of the router. What a statement leaves in it, and the router does not follow, is put back
// before another session gets it. So it has to be proved which statements leave nothing. The proof is a list of what is known to do so: kinds
// of statements, PostgreSQL's functions that are not volatile and some that are, and functions of users that call no others. What is
// not on the list costs time, not safety.

// Traceless are volatile functions of PostgreSQL's that leave nothing in their session that the router does not follow. Those of advisory locks until the transaction's end, and of
// notifications, end with it, as do descriptors of large objects.
var Traceless = sqltext.WordSet(`array_sample array_shuffle bernoulli clock_timestamp current_query currval gen_random_uuid lastval nextval setval pg_advisory_xact_lock
	pg_advisory_xact_lock_shared pg_blocking_pids pg_collation_actual_version pg_current_wal_flush_lsn pg_current_wal_insert_lsn pg_current_wal_lsn
	pg_database_size pg_get_wal_replay_pause_state pg_indexes_size pg_is_in_backup pg_is_in_recovery pg_is_wal_replay_paused pg_jit_available
	pg_last_wal_receive_lsn pg_last_wal_replay_lsn pg_last_xact_replay_timestamp pg_lock_status pg_notification_queue_usage pg_notify
	pg_partition_ancestors pg_partition_tree pg_prepared_xact pg_relation_size pg_safe_snapshot_blocking_pids pg_sequence_last_value pg_sleep
	pg_sleep_for pg_sleep_until pg_table_size pg_tablespace_size pg_total_relation_size pg_try_advisory_xact_lock
	pg_try_advisory_xact_lock_shared pg_xact_commit_timestamp random random_normal system timeofday timezone txid_status uuidv4 uuidv7`)
