package utility

import (
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/internal/virtual"
	"github.com/cleavedb/cleave/planner/bail"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

var typeOIDs = map[string]uint32{
	"bool": 16, "bytea": 17, "char": 18, "name": 19, "int8": 20, "int2": 21, "int4": 23, "text": 25, "oid": 26, "json": 114, "xml": 142,
	"float4": 700, "float8": 701, "bpchar": 1042, "varchar": 1043, "date": 1082, "time": 1083, "timestamp": 1114, "timestamptz": 1184,
	"interval": 1186, "timetz": 1266, "numeric": 1700, "uuid": 2950, "jsonb": 3802,
}

// Analysis is what a statement about the session needs of its analysis.
type Analysis interface {
	// Hidden reports whether a schema of the search path comes before pg_catalog.
	Hidden() bool
	// Param notes that the statement has a parameter, Uses that it uses it once more.
	Param(n int)
	Uses(n int)
	// Called checks the functions that a tree calls.
	Called(m proto.Message)
	// Makes reports whether the router makes the value of a function of the schema cleave.
	Makes(name string) bool
}

// Statement reads one statement that is about the session, and no table.
type Statement struct {
	*sourcetext.Text

	analysis Analysis
	st       *plan.Statement
}

// New reads a statement into st.
func New(src *sourcetext.Text, st *plan.Statement, analysis Analysis) *Statement {
	return &Statement{Text: src, analysis: analysis, st: st}
}

// Read reports whether the statement is one of these.
func (ss *Statement) Read(n *pg.Node) bool {
	switch v := n.GetNode().(type) {
	case *pg.Node_TransactionStmt:
		ss.transaction(v.TransactionStmt)
	case *pg.Node_VariableSetStmt:
		ss.set(v.VariableSetStmt)
	case *pg.Node_DiscardStmt:
		ss.discard(v.DiscardStmt)
	case *pg.Node_CreateRoleStmt, *pg.Node_AlterRoleStmt, *pg.Node_DropRoleStmt, *pg.Node_AlterRoleSetStmt, *pg.Node_GrantRoleStmt:
		ss.role(n)
	default:
		return ss.named(n) || ss.plain(n)
	}
	return true
}

// named is read of what is about prepared statements and cursors.
func (ss *Statement) named(n *pg.Node) bool {
	st := ss.st
	switch v := n.GetNode().(type) {
	case *pg.Node_FetchStmt:
		ss.fetch(v.FetchStmt)
	case *pg.Node_ClosePortalStmt:
		st.Kind, st.Tag, st.ReadOnly = plan.AnyShard, "CLOSE CURSOR", true
		st.Cursor = &plan.Cursor{Op: "close", Name: v.ClosePortalStmt.Portalname}
	case *pg.Node_PrepareStmt:
		ss.prepare(v.PrepareStmt)
	case *pg.Node_ExecuteStmt:
		ss.Execute(v.ExecuteStmt)
	case *pg.Node_DeallocateStmt:
		st.Kind, st.Tag, st.ReadOnly = plan.DeallocateKind, "DEALLOCATE", true
		if v.DeallocateStmt.Isall {
			st.Tag = "DEALLOCATE ALL"
		}
		st.Prepared = &plan.Prepared{Name: v.DeallocateStmt.Name}
	default:
		return false
	}
	return true
}

// plain is read of SHOW, LISTEN, UNLISTEN and NOTIFY.
func (ss *Statement) plain(n *pg.Node) bool {
	st := ss.st
	switch v := n.GetNode().(type) {
	case *pg.Node_VariableShowStmt:
		st.Kind, st.Tag, st.ReadOnly, st.ReturnsRows = plan.SetKind, "SHOW", true, true
		st.Set = &plan.Set{Op: "show", Name: strings.ToLower(v.VariableShowStmt.Name)}
		if st.Set.Name == "all" {
			st.Set = &plan.Set{Op: "show all"}
		}
	case *pg.Node_ListenStmt:
		st.Kind, st.Tag, st.ReadOnly, st.Listen = plan.ListenKind, "LISTEN", true, &plan.Listen{Channel: v.ListenStmt.Conditionname}
	case *pg.Node_UnlistenStmt:
		st.Kind, st.Tag, st.ReadOnly, st.Listen = plan.ListenKind, "UNLISTEN", true, &plan.Listen{Channel: v.UnlistenStmt.Conditionname, Off: true}
	case *pg.Node_NotifyStmt:
		st.Kind, st.Tag, st.Notifies = plan.DefaultShard, "NOTIFY", true // where the routers listen
	default:
		return false
	}
	return true
}

func (ss *Statement) transaction(t *pg.TransactionStmt) {
	st := ss.st
	st.Kind, st.ReadOnly = plan.TxKind, true
	tx := &plan.Tx{Name: t.SavepointName, Chain: t.Chain}
	st.Tx = tx
	switch t.Kind {
	case pg.TransactionStmtKind_TRANS_STMT_BEGIN:
		tx.Op, st.Tag = "begin", "BEGIN"
	case pg.TransactionStmtKind_TRANS_STMT_START:
		tx.Op, st.Tag = "begin", "START TRANSACTION"
	case pg.TransactionStmtKind_TRANS_STMT_COMMIT:
		tx.Op, st.Tag = "commit", "COMMIT"
	case pg.TransactionStmtKind_TRANS_STMT_ROLLBACK:
		tx.Op, st.Tag = "rollback", "ROLLBACK"
	case pg.TransactionStmtKind_TRANS_STMT_SAVEPOINT:
		tx.Op, st.Tag = "savepoint", "SAVEPOINT"
	case pg.TransactionStmtKind_TRANS_STMT_RELEASE:
		tx.Op, st.Tag = "release", "RELEASE"
	case pg.TransactionStmtKind_TRANS_STMT_ROLLBACK_TO:
		tx.Op, st.Tag = "rollback to", "ROLLBACK"
	default:
		bail.With(sqlstate.Refusal("CLV-1115", "two-phase commit belongs to the router: PREPARE TRANSACTION, COMMIT PREPARED and ROLLBACK PREPARED are not supported").
			WithHint("Use COMMIT."))
	}
	tx.ReadOnly = readOnlyOption(t.Options)
}

func readOnlyOption(list []*pg.Node) bool {
	on := false
	for _, n := range list { // the last one holds
		if d := n.GetDefElem(); d.GetDefname() == "transaction_read_only" {
			on = sqltree.DefText(d.Arg) == "1" || sqltree.DefText(d.Arg) == "true"
		}
	}
	return on
}

// ParseBool reads a setting's value that is on or off, as PostgreSQL does: words may be cut short.
func ParseBool(v string) (on, ok bool) {
	v = strings.ToLower(strings.TrimSpace(v))
	starts := func(word string, least int) bool { return len(v) >= least && strings.HasPrefix(word, v) }
	switch {
	case starts("true", 1), starts("yes", 1), v == "on", v == "1":
		return true, true
	case starts("false", 1), starts("no", 1), starts("off", 2), v == "0":
		return false, true
	}
	return false, false
}

// CheckSetting refuses a session setting under which the router could no longer
// read statements as a shard does, or under which a shard's guard would not
// work. value is the setting's text; the name may have any case. It is meant for
// SET, set_config and the startup parameters of a connection. Errors: 0A000, 42501.
func CheckSetting(name, value string) error {
	on := func() bool {
		is, _ := ParseBool(strings.Trim(value, "'"))
		return is
	}
	switch name = strings.ToLower(name); {
	case name == "standard_conforming_strings":
		if !on() {
			return sqlstate.Refusal("CLV-1233", "standard_conforming_strings = off is not supported: the router would read strings otherwise than the shards").
				WithHint("Write E'...' where a backslash is to escape.")
		}
	case name == "transform_null_equals":
		if on() {
			return sqlstate.Refusal("CLV-1234", "transform_null_equals = on is not supported").WithHint("Write IS NULL.")
		}
	case name == "session_replication_role":
		if !strings.EqualFold(strings.Trim(value, "' "), "origin") {
			return sqlstate.New(sqlstate.InsufficientPrivilege, "session_replication_role cannot be changed through the router: it would switch off the shards' guards")
		}
	case name == "restrict_nonsystem_relation_kind":
		if strings.Trim(value, "' ") != "" {
			return sqlstate.Refusal("CLV-1235", "restrict_nonsystem_relation_kind is not supported: the router writes the queries of views out").
				WithHint("Grant privileges instead.")
		}
	case name == "seed":
		return sqlstate.Refusal("CLV-1236", "SET seed is not supported: it would seed random() in one session of one shard only").
			WithHint("Make the numbers in the client.")
	case OwnSetting(name):
	case strings.HasPrefix(name, "cleave."):
		return sqlstate.New(sqlstate.InsufficientPrivilege, "settings cleave.* belong to the router").
			WithHint("SELECT cleave.… functions and the configuration file change the router")
	}
	return nil
}

func (ss *Statement) set(v *pg.VariableSetStmt) {
	st := ss.st
	st.Kind, st.Tag, st.ReadOnly = plan.SetKind, "SET", true
	name := strings.ToLower(v.Name)
	switch v.Kind {
	case pg.VariableSetKind_VAR_SET_MULTI:
		switch v.Name {
		case "TRANSACTION":
			st.Kind, st.Tx = plan.TxKind, &plan.Tx{Op: "set", ReadOnly: readOnlyOption(v.Args)}
		case "SESSION CHARACTERISTICS":
			st.Kind, st.Tx = plan.TxKind, &plan.Tx{Op: "set", Session: true, ReadOnly: readOnlyOption(v.Args)}
		case "TRANSACTION SNAPSHOT":
			if v.IsLocal {
				bail.With(sqlstate.New(sqlstate.FeatureNotSupported, "SET LOCAL TRANSACTION SNAPSHOT is not implemented"))
			}
			st.Kind, st.Tx = plan.TxKind, &plan.Tx{Op: "snapshot", Name: v.Args[0].GetAConst().GetSval().GetSval()}
		}
		return
	case pg.VariableSetKind_VAR_RESET:
		st.Tag, st.Set = "RESET", &plan.Set{Op: "reset", Name: name}
		return
	case pg.VariableSetKind_VAR_RESET_ALL:
		st.Tag, st.Set = "RESET", &plan.Set{Op: "reset all"}
		return
	case pg.VariableSetKind_VAR_SET_DEFAULT:
		if name == "session_authorization" {
			refuseAuthorization()
		}
		st.Set = &plan.Set{Op: "set", Name: name, Local: v.IsLocal}
		return
	case pg.VariableSetKind_VAR_SET_CURRENT:
		bail.With(sqlstate.Refusal("CLV-1238", "SET ... FROM CURRENT is for functions only"))
	}
	if name == "session_authorization" {
		refuseAuthorization()
	}
	values := make([]string, 0, len(v.Args))
	for _, n := range v.Args {
		c := n.GetAConst()
		switch {
		case c != nil && c.GetSval() != nil:
			values = append(values, sqltext.QuoteString(c.GetSval().Sval))
		case c != nil:
			values = append(values, sqltree.DefText(n))
		default:
			// SET TIME ZONE INTERVAL '...' HOUR TO MINUTE
			if tc := n.GetTypeCast(); tc != nil && int(tc.Location) < len(ss.SQL) {
				values = append(values, "INTERVAL "+sqltext.QuoteString(tc.Arg.GetAConst().GetSval().GetSval())+ss.IntervalFields())
			}
		}
	}
	value := strings.Join(values, ", ")
	if err := CheckSetting(name, value); err != nil {
		bail.With(err)
	}
	if mode := modeOf(name, strings.Trim(value, "'")); mode != "" {
		st.Kind, st.Tx, st.Text = plan.TxKind, &plan.Tx{Op: "set", ReadOnly: mode == "READ ONLY", Setting: true, Local: v.IsLocal}, "SET TRANSACTION "+mode
		return
	}
	st.Set = &plan.Set{Op: "set", Name: name, Local: v.IsLocal, Value: value}
}

// OfTransaction reports whether a setting is the transaction's, as SET TRANSACTION sets it: it ends with
// the transaction, and no shard takes a RESET of it.
func OfTransaction(name string) bool {
	return name == "transaction_isolation" || name == "transaction_read_only" || name == "transaction_deferrable"
}

// modeOf is what SET TRANSACTION says instead of a setting; "" for other settings, and for a value that is wrong.
func modeOf(name, value string) string {
	on, ok := ParseBool(value)
	switch {
	case name == "transaction_isolation":
		switch value = strings.ToUpper(value); value {
		case "SERIALIZABLE", "REPEATABLE READ", "READ COMMITTED", "READ UNCOMMITTED":
			return "ISOLATION LEVEL " + value
		}
	case !ok || !OfTransaction(name):
	case name == "transaction_read_only" && on:
		return "READ ONLY"
	case name == "transaction_read_only":
		return "READ WRITE"
	case on:
		return "DEFERRABLE"
	default:
		return "NOT DEFERRABLE"
	}
	return ""
}

func refuseAuthorization() {
	bail.With(sqlstate.Refusal("CLV-1239", "SET SESSION AUTHORIZATION is not supported: the router's connections to the shards have a user of their own").
		WithHint("SET ROLE changes the current user."))
}

func (ss *Statement) discard(d *pg.DiscardStmt) {
	ss.st.Kind, ss.st.ReadOnly = plan.SetKind, true
	what := map[pg.DiscardMode]string{
		pg.DiscardMode_DISCARD_ALL: "all", pg.DiscardMode_DISCARD_PLANS: "plans",
		pg.DiscardMode_DISCARD_SEQUENCES: "sequences", pg.DiscardMode_DISCARD_TEMP: "temp",
	}[d.Target]
	ss.st.Tag = "DISCARD " + strings.ToUpper(what)
	ss.st.Set = &plan.Set{Op: "discard", What: what}
}

func (ss *Statement) prepare(p *pg.PrepareStmt) {
	st := ss.st
	st.Kind, st.Tag, st.ReadOnly = plan.PrepareKind, "PREPARE", true
	st.Prepared = &plan.Prepared{Name: p.Name}
	for _, n := range p.Argtypes {
		t := n.GetTypeName()
		names := sqltree.Strings(t.GetNames())
		name := ""
		if len(names) > 0 {
			name = names[len(names)-1]
		}
		oid := typeOIDs[name]
		if len(names) > 1 && names[0] != "pg_catalog" || len(names) == 1 && ss.analysis.Hidden() {
			oid = 0
		}
		if oid == 0 {
			for i := range names {
				names[i] = sqltext.QuoteAlways(names[i])
			}
			name = strings.Join(names, ".")
		}
		if len(t.GetArrayBounds()) > 0 {
			oid = 0
			name += "[]"
		}
		st.Prepared.OIDs = append(st.Prepared.OIDs, oid)
		st.Prepared.Types = append(st.Prepared.Types, name)
		st.Prepared.At = append(st.Prepared.At, ss.Position(t.GetLocation()))
	}
	ts, depth := ss.Top()
	for i, t := range ts {
		if i >= 2 && depth[i] == 0 && t.Is(ss.SQL, "as") {
			st.Prepared.Text = ss.After(ts, i+1)
			return
		}
	}
}

// Execute reads EXECUTE, also that of EXPLAIN.
func (ss *Statement) Execute(x *pg.ExecuteStmt) {
	ss.analysis.Called(x) // the arguments are a shard's to evaluate
	ss.st.Kind, ss.st.Tag, ss.st.Prepared = plan.ExecuteKind, "EXECUTE", &plan.Prepared{Name: x.Name}
	ss.st.Prepared.Args, ss.st.Prepared.At = ss.ExecuteArgs(x.Params)
}

// MaySpecial reports whether SelectSpecial may know a SELECT: most need no look of it.
func MaySpecial(s *pg.SelectStmt) bool {
	return len(s.FromClause) == 0 || len(s.FromClause) == 1 && (s.FromClause[0].GetRangeFunction() != nil || s.FromClause[0].GetRangeVar().GetRelname() == "pg_settings")
}

// SelectSpecial handles the SELECTs that are the router's business: calls of
// set_config() alone, and a call of one function of the schema cleave.
func (ss *Statement) SelectSpecial(s *pg.SelectStmt) bool {
	if s.Op != pg.SetOperation_SETOP_NONE || len(s.ValuesLists) > 0 || s.WithClause != nil || s.IntoClause != nil {
		return false
	}
	bare := s.WhereClause == nil && s.GroupClause == nil && s.HavingClause == nil && s.SortClause == nil &&
		s.LimitCount == nil && s.LimitOffset == nil && s.DistinctClause == nil && s.WindowClause == nil
	if bare && len(s.TargetList) == 1 && len(s.FromClause) == 0 {
		t := s.TargetList[0].GetResTarget()
		if f := t.GetVal().GetFuncCall(); f != nil {
			if names := sqltree.Strings(f.Funcname); len(names) == 2 && names[0] == virtual.Schema && !ss.analysis.Makes(names[1]) {
				ss.call(f, names[1], t.Name)
				return true
			}
		}
	}
	if bare && len(s.FromClause) == 0 {
		return len(s.LockingClause) == 0 && ss.onlySets(s)
	}
	if len(s.FromClause) == 1 && len(s.TargetList) == 1 && s.WhereClause != nil && ss.dumpSetting(s) {
		return true
	}
	if bare && len(s.FromClause) == 1 && len(s.TargetList) == 1 {
		r := s.FromClause[0].GetRangeFunction()
		if r == nil || len(r.Functions) != 1 || r.Ordinality || r.Coldeflist != nil {
			return false
		}
		items := r.Functions[0].GetList().GetItems()
		c := s.TargetList[0].GetResTarget().GetVal().GetColumnRef()
		if len(items) == 0 || c == nil || len(c.Fields) != 1 || c.Fields[0].GetAStar() == nil {
			return false
		}
		if f := items[0].GetFuncCall(); f != nil {
			if names := sqltree.Strings(f.Funcname); len(names) == 2 && names[0] == virtual.Schema && !ss.analysis.Makes(names[1]) {
				column := r.Alias.GetAliasname()
				if cols := sqltree.Strings(r.Alias.GetColnames()); len(cols) > 0 {
					column = cols[0]
				}
				ss.call(f, names[1], column)
				return true
			}
		}
	}
	return false
}

func (ss *Statement) call(f *pg.FuncCall, name, column string) {
	if f.AggStar || f.AggDistinct || f.Over != nil || f.FuncVariadic || f.AggFilter != nil || f.AggOrder != nil {
		bail.With(sqlstate.Refusal("CLV-1249", "cleave.%s() takes plain arguments only", name))
	}
	if column == "" {
		column = name
	}
	c := &plan.CallExpr{Function: name, Column: column}
	for _, n := range f.Args {
		c.Args = append(c.Args, ss.callArg(n, name))
	}
	st := ss.st
	st.Kind, st.ReturnsRows, st.Call = plan.Call, true, c
	st.Shape = "SELECT cleave." + name + "(...)"
}

func (ss *Statement) callArg(n *pg.Node, fn string) plan.CallArg {
	switch v := n.GetNode().(type) {
	case *pg.Node_NamedArgExpr:
		arg := ss.callArg(v.NamedArgExpr.Arg, fn)
		arg.Name = v.NamedArgExpr.Name
		return arg
	case *pg.Node_ParamRef:
		p := int(v.ParamRef.Number)
		ss.analysis.Uses(p)
		return plan.CallArg{Param: p}
	case *pg.Node_AConst:
		if v.AConst.Isnull {
			return plan.CallArg{Null: true}
		}
		if v.AConst.GetBsval() == nil {
			return plan.CallArg{Text: sqltree.DefText(n)}
		}
	case *pg.Node_TypeCast:
		return ss.callArg(v.TypeCast.Arg, fn)
	case *pg.Node_AExpr:
		if v.AExpr.Lexpr == nil && sqltree.Operator(v.AExpr) == "-" {
			arg := ss.callArg(v.AExpr.Rexpr, fn)
			if arg.Param == 0 && !arg.Null && arg.Array == nil && arg.Text != "" && arg.Text[0] >= '0' && arg.Text[0] <= '9' {
				arg.Text = "-" + arg.Text
				return arg
			}
		}
	case *pg.Node_AArrayExpr:
		arg := plan.CallArg{Array: []plan.CallArg{}}
		for _, e := range v.AArrayExpr.Elements {
			arg.Array = append(arg.Array, ss.callArg(e, fn))
		}
		return arg
	}
	bail.With(sqlstate.Refusal("CLV-1250", "cleave.%s() takes literals, parameters and ARRAY[...] of them only", fn).
		WithHint("Compute the value first."))
	return plan.CallArg{}
}

// ExplainOf reads the options of EXPLAIN, as PostgreSQL does.
func ExplainOf(e *pg.ExplainStmt, prefix string) *plan.Explain {
	x := &plan.Explain{Prefix: prefix, Format: "text", Timing: true}
	options := "FORMAT json"
	summary := ""
	for _, n := range e.Options {
		d := n.GetDefElem()
		switch name := strings.ToLower(d.GetDefname()); name {
		case "format":
			switch f := strings.ToLower(sqltree.DefText(d.Arg)); f {
			case "json", "yaml", "xml":
				x.Format = f
			}
			continue // another one is a shard's to refuse
		case "analyze":
			x.Analyze = sqltree.OptionOn(d)
		case "timing":
			x.Timing = sqltree.OptionOn(d)
		case "summary":
			summary = "off"
			if sqltree.OptionOn(d) {
				summary = "on"
			}
		}
		options += ", " + sqltext.QuoteAlways(d.GetDefname()) // any text in quotes can be a name: the shard refuses those that it does not know
		if n := d.GetArg().GetInteger(); n != nil {
			options += " " + strconv.Itoa(int(n.Ival))
		} else if d.GetArg() != nil {
			options += " '" + strings.ReplaceAll(sqltree.DefText(d.Arg), "'", "''") + "'"
		}
	}
	x.Summary = summary == "on" || summary == "" && x.Analyze
	x.JSON = "EXPLAIN (" + options + ") "
	return x
}

func (ss *Statement) fetch(f *pg.FetchStmt) {
	st := ss.st
	st.Kind, st.Tag, st.ReadOnly, st.ReturnsRows = plan.AnyShard, "FETCH", true, !f.Ismove
	st.Cursor = &plan.Cursor{Op: "fetch", Name: f.Portalname, Count: f.HowMany}
	if f.Ismove {
		st.Tag, st.Cursor.Op = "MOVE", "move"
	}
	switch f.Direction {
	case pg.FetchDirection_FETCH_BACKWARD:
		st.Cursor.Direction = plan.Backward
	case pg.FetchDirection_FETCH_ABSOLUTE:
		st.Cursor.Direction = plan.Absolute
	case pg.FetchDirection_FETCH_RELATIVE:
		st.Cursor.Direction = plan.Relative
	}
}

// dumpSetting reads the statement with which pg_dump restricts itself to tables, if
// the server knows the setting. It counts for the transaction only: another session
// of the router's may be the next to use the shard's.
func (ss *Statement) dumpSetting(s *pg.SelectStmt) bool {
	const setting = "restrict_nonsystem_relation_kind"
	f := s.TargetList[0].GetResTarget().GetVal().GetFuncCall()
	w := s.WhereClause.GetAExpr()
	if f == nil || w == nil || len(f.Args) != 3 || w.Rexpr.GetAConst().GetSval().GetSval() != setting || s.FromClause[0].GetRangeVar().GetRelname() != "pg_settings" {
		return false
	}
	names, value := sqltree.Strings(f.Funcname), f.Args[1].GetAConst().GetSval()
	if names[len(names)-1] != "set_config" || f.Args[0].GetColumnRef() == nil || value == nil {
		return false
	}
	ss.st.Kind, ss.st.ReadOnly, ss.st.ReturnsRows = plan.DefaultShard, true, true
	ss.st.Text = "SELECT pg_catalog.set_config(name, " + sqltext.QuoteString(value.Sval) + ", true) FROM pg_catalog.pg_settings WHERE name = '" + setting + "'"
	return true
}
