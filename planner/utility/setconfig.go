package utility

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/internal/virtual"
	"github.com/cleavedb/cleave/planner/bail"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// onlySets reads a SELECT without FROM whose columns are calls of set_config() with literals and parameters, and others that do
// nothing. It changes the settings that it names, in their order, and nothing else. So the session's own conversation runs it.
func (ss *Statement) onlySets(s *pg.SelectStmt) bool {
	if ss.analysis.Hidden() {
		return false
	}
	var calls []plan.SetCall
	others := map[int]bool{}
	for _, n := range s.TargetList {
		n = n.GetResTarget().GetVal()
		f := n
		for f.GetTypeCast() != nil && builtinType(f.GetTypeCast().TypeName) {
			f = f.GetTypeCast().Arg
		}
		switch call := f.GetFuncCall(); {
		case IsSetConfig(call):
			c := SetCall(ss.Text, call)
			if c.Name.Computed || c.Value.Computed || c.Local.Computed {
				return false
			}
			calls = append(calls, c)
		case !harmless(n, others):
			return false
		}
	}
	texts, bools := setParams(calls)
	if len(calls) == 0 {
		return false
	}
	for p := range others {
		if texts[p]+bools[p] > 0 {
			return false // of which type it is there decides what it is here
		}
	}
	for _, params := range []map[int]int{texts, bools} {
		for p := range params {
			if ss.analysis.Param(p); texts[p] > 0 && bools[p] > 0 {
				return false
			}
		}
	}
	for p := range others {
		ss.analysis.Param(p)
	}
	for _, c := range calls {
		CheckLiterals(c)
	}
	st := ss.st
	st.Kind, st.ReturnsRows, st.ReadOnly = plan.SetKind, true, true
	st.Set, st.Sets = &plan.Set{Op: "set_config"}, calls
	return true
}

// setParams counts where the parameters of calls stand: as texts, and as what is true or false.
func setParams(calls []plan.SetCall) (texts, bools map[int]int) {
	texts, bools = map[int]int{}, map[int]int{}
	for _, c := range calls {
		for _, arg := range []plan.SetArg{c.Name, c.Value} {
			if arg.Param > 0 {
				texts[arg.Param]++
			}
		}
		if c.Local.Param > 0 {
			bools[c.Local.Param]++
		}
	}
	return texts, bools
}

// IsSetConfig reports whether a call is one of PostgreSQL's set_config() with three arguments.
func IsSetConfig(f *pg.FuncCall) bool {
	names := sqltree.Strings(f.GetFuncname())
	if len(names) == 0 || len(names) > 2 || names[len(names)-1] != "set_config" || len(names) == 2 && names[0] != "pg_catalog" {
		return false
	}
	return len(f.Args) == 3 && !f.AggStar && !f.AggDistinct && f.Over == nil && !f.FuncVariadic && f.AggFilter == nil && len(f.AggOrder) == 0
}

// builtinType reports whether a type name is one of PostgreSQL's that every shard has.
func builtinType(t *pg.TypeName) bool {
	names := sqltree.Strings(t.GetNames())
	if len(names) == 0 || len(names) > 2 || len(names) == 2 && names[0] != "pg_catalog" || len(t.ArrayBounds) > 0 || t.Setof || t.PctType {
		return false
	}
	return typeOIDs[names[len(names)-1]] != 0
}

// harmless reports whether an expression is a literal, a parameter, current_setting() of them or a cast. It notes the parameters.
func harmless(n *pg.Node, params map[int]bool) bool {
	switch v := n.GetNode().(type) {
	case *pg.Node_AConst:
		return true
	case *pg.Node_ParamRef:
		params[int(v.ParamRef.Number)] = true
		return true
	case *pg.Node_TypeCast:
		return builtinType(v.TypeCast.TypeName) && harmless(v.TypeCast.Arg, params)
	case *pg.Node_FuncCall:
		names := sqltree.Strings(v.FuncCall.Funcname)
		if names[len(names)-1] != "current_setting" || len(names) > 2 || len(names) == 2 && names[0] != "pg_catalog" || len(v.FuncCall.Args) == 0 || len(v.FuncCall.Args) > 2 {
			return false
		}
		for _, arg := range v.FuncCall.Args {
			if arg.GetAConst() == nil || strings.HasPrefix(strings.ToLower(arg.GetAConst().GetSval().GetSval()), virtual.Schema+".") {
				return false
			}
		}
		return true
	}
	return false
}

// CheckLiterals refuses what set_config() must not set, as far as the text says it.
func CheckLiterals(c plan.SetCall) {
	name := strings.ToLower(c.Name.Text)
	if OfTransaction(name) {
		bail.With(sqlstate.Refusal("CLV-1215", "set_config() of a transaction's setting, %s, is not supported", name).
			WithHint("Run SET TRANSACTION ISOLATION LEVEL ..., READ ONLY or DEFERRABLE."))
	}
	if c.Name.Param == 0 && c.Value.Param == 0 && !c.Value.Computed && !c.Value.Null {
		if err := CheckSetting(name, c.Value.Text); err != nil {
			bail.With(err)
		}
	}
}

// FinishSets is for a statement with calls of set_config(): it has to run once, on one shard, which is asked for the settings then.
// sql is the statement as it came, into says that it has INTO, and uses counts the uses of a parameter.
func FinishSets(st *plan.Statement, sql string, into bool, uses func(n int) int) {
	if len(st.Sets) == 0 || st.Kind == plan.SetKind {
		return
	}
	switch st.Kind {
	case plan.OneShard, plan.DefaultShard, plan.AnyShard:
	default:
		bail.With(sqlstate.Refusal("CLV-1246", "set_config() in a statement that several shards or the router carry out is not supported").
			WithHint("Run SELECT set_config('name', 'value', false) by itself, or SET."))
	}
	if st.Plan != nil || st.Fill != nil || st.Judged != "" || st.DDL != nil || st.Temp != "" || into {
		bail.With(sqlstate.Refusal("CLV-1247", "set_config() in such a statement is not supported: the router carries out a part of it").
			WithHint("Run SELECT set_config('name', 'value', false) by itself, or SET."))
	}
	st.Reusable, st.Stable, st.ReplicaSafe = false, false, false
	texts, bools := setParams(st.Sets)
	for i := range st.Sets {
		c := &st.Sets[i]
		for _, arg := range []*plan.SetArg{&c.Name, &c.Value, &c.Local} {
			if st.Text != sql {
				arg.From, arg.To = 0, 0
			}
			p := arg.Param
			if p == 0 || uses(p) == texts[p]+bools[p] && (texts[p] == 0 || bools[p] == 0) {
				continue
			}
			if arg != &c.Value {
				bail.With(sqlstate.Refusal("CLV-1248", "a parameter that names a setting of set_config(), or says how long it holds, and stands elsewhere too is not supported").
					WithHint("Give it as a parameter of its own."))
			}
			*arg = plan.SetArg{Computed: true} // of which type it is there decides what it is here
		}
	}
}

// ownSettings are the settings of the router's own; package gateway knows what
// values they take.
var ownSettings = map[string]bool{
	"cleave.read_policy":      true,
	"cleave.max_replica_lag":  true,
	"cleave.traceparent":      true,
	"cleave.scatter":          true,
	"cleave.shards_max":       true,
	"cleave.rows_max":         true,
	"cleave.bytes_max":        true,
	"cleave.several_timeout":  true,
	"cleave.gather_rows_max":  true,
	"cleave.gather_bytes_max": true,
	"cleave.hold_timeout":     true,
	"cleave.read_consistency": true,
	"cleave.transaction_mode": true,
	"cleave.deadlock_timeout": true,
}

// OwnSetting reports whether a setting, in lower case, is one of the router's
// own that sessions may set: no shard gets it.
func OwnSetting(name string) bool { return ownSettings[name] }

// Constraint is a constraint's name in SET CONSTRAINTS; Schema is "" if the search_path finds it.
type Constraint struct{ Schema, Name string }

// NamedConstraints reads SET CONSTRAINTS, as [plan.Statement.Text] has it. none: it is
// SET CONSTRAINTS ALL, or another statement.
func NamedConstraints(text string) (names []Constraint, deferred bool) {
	tree, err := pg.Parse(text)
	if err != nil || len(tree.Stmts) != 1 {
		return nil, false
	}
	set := tree.Stmts[0].Stmt.GetConstraintsSetStmt()
	for _, n := range set.GetConstraints() {
		names = append(names, Constraint{n.GetRangeVar().GetSchemaname(), n.GetRangeVar().GetRelname()})
	}
	return names, set.GetDeferred()
}

// SetCall reads the arguments of set_config().
func SetCall(src *sourcetext.Text, f *pg.FuncCall) plan.SetCall {
	return plan.SetCall{Name: setArg(src, f.Args[0], "text"), Value: setArg(src, f.Args[1], "text"), Local: setArg(src, f.Args[2], "bool")}
}

func setArg(src *sourcetext.Text, n *pg.Node, as string) plan.SetArg {
	for t := n.GetTypeCast(); t != nil; t = n.GetTypeCast() {
		name := ""
		if builtinType(t.TypeName) && len(t.TypeName.Typmods) == 0 {
			names := sqltree.Strings(t.TypeName.Names)
			name = names[len(names)-1]
		}
		if name != as && !(as == "text" && name == "varchar") {
			return plan.SetArg{Computed: true}
		}
		n = t.Arg
	}
	switch c := n.GetAConst(); {
	case n.GetParamRef() != nil:
		return plan.SetArg{Param: int(n.GetParamRef().Number)}
	case c == nil:
	case c.Isnull:
		from, to := src.LiteralSpan(c)
		return plan.SetArg{Null: true, From: from, To: to}
	case c.GetSval() != nil:
		from, to := src.LiteralSpan(c)
		return plan.SetArg{Text: c.GetSval().Sval, From: from, To: to}
	case as == "bool" && c.GetBoolval() != nil:
		from, to := src.LiteralSpan(c)
		return plan.SetArg{Text: map[bool]string{true: "true", false: "false"}[c.GetBoolval().Boolval], From: from, To: to}
	}
	return plan.SetArg{Computed: true}
}
