package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/clustercatalog"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/planner/utility"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// effects are what the functions and types of a statement do beyond giving a value: where it may run then.
type effects struct {
	typer   *typer
	src     *sourceText
	touched *touched
	st      *plan.Statement
	one     *oneShard

	aggregates, windows int
	sequence            string // a sequence function
	temporaryCall       string // a function in pg_temp
	advisory            string // a function of advisory locks, or of notifications
	largeObject         string // a function of large objects
	lastAlone           bool   // lastval() is the only one of a SELECT without FROM
	preferDefault       bool
	mayType             bool // see ownType
	volatile            bool // it calls a volatile function
	traces              bool // it calls one that may leave something in its session
	maySet              bool // it may call set_config()
	locks, changes      bool
	pids                bool   // pg_backend_pid() is the router's in this statement
	numbers             bool   // see Statement.Numbers
	objects             bool   // it may take the OID of an object
	number              string // what it takes one as, see TakesOID
}

// catalogType notes a cast to a type that is looked up in a database's catalogue:
// object ids differ between shards, so the default shard answers if it can.
func (fx *effects) catalogType(n *pg.TypeName) {
	names := sqltree.Strings(n.GetNames())
	if len(names) > 0 && (strings.HasPrefix(names[len(names)-1], "reg") || names[len(names)-1] == "oid") {
		fx.preferDefault, fx.objects = true, true
	}
	if n.GetPctType() {
		fx.preferDefault = true
	}
	if len(names) > 0 && !serverdependent.WithoutOID[names[len(names)-1]] {
		fx.ownType(names)
	}
	fx.numbers = fx.numbers || len(names) == 0 || len(names) > 1 && names[0] != "pg_catalog" || !serverdependent.WithoutOID[names[len(names)-1]]
}

// ownType notes a type that may be one of the user's: the row type of a table that is not on every shard, perhaps. A
// statement without tables goes where every type is then.
func (fx *effects) ownType(names []string) {
	if len(names) > 2 || names[0] == "pg_catalog" || names[0] == "information_schema" {
		return
	}
	v := &pg.RangeVar{Relname: names[len(names)-1]}
	if len(names) == 2 {
		v.Schemaname = names[0]
	}
	t := fx.typer.relation(v).table
	fx.mayType = fx.mayType || t == nil
	fx.preferDefault = fx.preferDefault || t != nil && t.Kind == shardmap.Whole
}

// function checks that a call can be let through.
func (fx *effects) function(f *pg.FuncCall) {
	names := sqltree.Strings(f.Funcname)
	name := names[len(names)-1]
	if fillOwn[name] || fillNative[name] {
		fx.unfilled(f)
	}
	fx.foreignPID(f)
	if len(names) > 1 {
		switch names[len(names)-2] {
		case "pg_catalog":
			clustercatalog.RefuseShared(name)
		case "information_schema":
			fx.preferDefault = true
			return
		case VirtualSchema:
			fail(sqlstate.Refusal("CLV-0232", "cleave.%s can only be called by itself: SELECT cleave.%s(...)", name, name))
		case InternalSchema:
			fail(internalSchemaError())
		default:
			if fx.typer.kindOf(f) == "" {
				fx.typer.userCode("function " + strings.Join(names, ".") + "()")
			}
		}
	}
	if inTemp(names) {
		fx.tempCall(names)
	}
	kind := fx.typer.kindOf(f)
	if kind == "" {
		fx.typer.userCode("function " + name + "()")
	} else if len(names) == 1 {
		clustercatalog.RefuseShared(name)
	}
	fx.volatile = fx.volatile || strings.HasPrefix(kind, "v")
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
	fx.numbers = fx.numbers || !ours || serverdependent.NamesObjects[name]
	fx.objects = fx.objects || name == "pg_typeof" || name == "regclass" || strings.HasPrefix(name, "to_reg")
}

func (fx *effects) checkFunction(name string, args int) {
	if secretFunctions[name] {
		fx.typer.secret("function " + name)
	}
	switch name {
	case "nextval", "setval":
		fx.sequence = name
		return
	case "currval", "lastval":
		if fx.sequence == "" {
			fx.sequence = name
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
		fx.advisory, fx.preferDefault, fx.locks = name, true, true
		fx.st.Unlocks = fx.st.Unlocks || strings.HasPrefix(name, "pg_advisory_unlock")
		fx.st.Notifies = fx.st.Notifies || name == "pg_notify"
		if (strings.HasPrefix(name, "pg_advisory_lock") || strings.HasPrefix(name, "pg_try_advisory_lock")) && !fx.touched.defining {
			fx.st.Pins = true
		}
		return
	}
	why, denied := builtin.Reach[name]
	if builtin.IsLargeObject(name) && fx.st.DDL == nil { // what a definition says is evaluated on every shard
		fx.largeObject, fx.preferDefault, fx.locks = name, true, true
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
		fx.preferDefault = true
	}
}

// fillCall reads a call that the router evaluates. ok is false for every other call.
func (fx *effects) fillCall(f *pg.FuncCall) (v plan.FillValue, ok bool) {
	names := sqltree.Strings(f.Funcname)
	name := names[len(names)-1]
	own := len(names) == 2 && (names[0] == VirtualSchema || names[0] == InternalSchema) && fillOwn[name]
	native := (len(names) == 1 || len(names) == 2 && names[0] == "pg_catalog") && fillNative[name]
	if !own && !native || f.AggStar || f.AggDistinct || f.Over != nil || f.FuncVariadic || f.AggFilter != nil || len(f.AggOrder) > 0 {
		return v, false
	}
	if native {
		fx.typer.native(f)
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
		return v, len(f.Args) == 0 && (fx.lastAlone || len(fx.typer.snap.State().Sequences) > 0 || fx.typer.lonely())
	case "nextval", "currval":
		if len(f.Args) < 1 || len(f.Args) > 2 || len(f.Args) == 2 && !own {
			return v, false
		}
	case "setval":
		if !fx.isSetval(f) {
			return v, false
		}
	}
	q := fx.typer.sequenceArg(f.Args[0])
	if q == nil {
		return v, false
	}
	v.Source, v.Sequence = name, q
	if name != "setval" {
		return v, true
	}
	args, simple := setvalArgs(f)
	if !simple {
		fail(sqlstate.Refusal("CLV-0512", "setval() of a sequence of the cluster stands by itself in a SELECT, or takes a number or a parameter, and true or false").
			WithHint("Write SELECT setval('name', max(id)) FROM t, without parameters, GROUP BY, ORDER BY, DISTINCT, LIMIT, WITH and other columns."))
	}
	args.Source, args.Sequence = name, q
	return args, true
}

// isSetval reports whether a call is one of PostgreSQL's setval() with as many arguments as that takes.
func (fx *effects) isSetval(f *pg.FuncCall) bool {
	names := sqltree.Strings(f.Funcname)
	return names[len(names)-1] == "setval" && (len(names) == 1 || len(names) == 2 && names[0] == "pg_catalog") && len(f.Args) >= 2 && len(f.Args) <= 3 &&
		!f.AggStar && !f.AggDistinct && f.Over == nil && !f.FuncVariadic && f.AggFilter == nil && len(f.AggOrder) == 0
}

// setvalArgs reads the arguments of setval() behind the sequence. simple: they are a number or a parameter, and true or false.
func setvalArgs(f *pg.FuncCall) (v plan.FillValue, simple bool) {
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
	if p := paramOf(arg); p > 0 {
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
func (fx *effects) unfilled(f *pg.FuncCall) {
	v, ok := fx.fillCall(f)
	if !ok || v.Source == "lastval" && len(fx.typer.snap.State().Sequences) == 0 && !fx.typer.lonely() {
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

// called checks the functions that are called where no statement is analysed: in partition keys and bounds, exclusion
// constraints, and definitions of what the map does not know. A shard runs them for every row.
func (fx *effects) called(m proto.Message) {
	sqltree.Inspect(m, func(m proto.Message) bool {
		if f, ok := m.(*pg.FuncCall); ok {
			fx.function(f)
		}
		fx.typer.field(m, nil)
		return true
	})
}

// foreignPID refuses a call of pg_backend_pid() that would give the number of a shard's connection.
func (fx *effects) foreignPID(f *pg.FuncCall) {
	if fx.pids && sqltree.NativeCall(&pg.Node{Node: &pg.Node_FuncCall{FuncCall: f}}) == plan.SourcePID && !fx.src.OfProcesses() {
		fail(sqlstate.Refusal("CLV-0417", "pg_backend_pid() in FROM, in a cursor and in COPY is not supported: the router gives it").
			WithHint("Run SELECT pg_backend_pid(), and give the number."))
	}
}

// setsWithin notes a call of set_config() in a statement that does more. What comes of it, its shard is asked.
func (fx *effects) setsWithin(f *pg.FuncCall) {
	switch {
	case !fx.maySet || fx.touched.defining:
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
func (fx *effects) tempCall(names []string) {
	if fx.st.DDL != nil || fx.touched.defining {
		fail(sqlstate.Refusal("CLV-0829", "a function in pg_temp cannot be called in a definition").
			WithHint("Make the function in another schema."))
	}
	fx.st.TempCall = true
	fx.temporaryCall, fx.preferDefault, fx.locks, fx.volatile = strings.Join(names, "."), true, true, true
}

// tracing notes a call of a function of a kind, see kindOf.
func (fx *effects) tracing(name, kind string) {
	fx.traces = fx.traces || strings.HasPrefix(kind, "v") && !(builtin.Kind(name) == kind && (traceless[name] || builtin.IsLargeObject(name)))
}
