package planner

import (
	"encoding/json"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/shardmap"
)

// A function of the user's is let into statements on sharded tables when it is
// known to read no table, so that it gives the same on every shard: it is declared
// IMMUTABLE (which forbids reading tables; PostgreSQL takes the declaration at its
// word, and so does the router), or its body in SQL or PL/pgSQL calls nothing but
// such functions and names no table. Bodies in other languages are not read.

// FunctionSource is a function as a shard's catalogue has it.
type FunctionSource struct {
	Schema, Name string
	Kind         string // pg_proc.prokind
	Volatility   string // pg_proc.provolatile
	Language     string
	// Body is the function's body in SQL, or the whole CREATE FUNCTION of one in PL/pgSQL.
	Body      string
	Extension string // that it belongs to, "" if to none
	Trigger   bool   // it returns trigger
}

// plainExtensions are extensions whose functions read no table, volatile ones too.
var plainExtensions = map[string]bool{
	"uuid-ossp": true, "pgcrypto": true, "citext": true, "hstore": true, "ltree": true, "pg_trgm": true, "unaccent": true, "fuzzystrmatch": true,
	"intarray": true, "btree_gin": true, "btree_gist": true, "cube": true, "earthdistance": true, "isn": true, "seg": true, "vector": true,
}

// PureFunctions returns, of all functions of a database, those that read no table. A
// name is among them only if all functions of that name, in whatever schema, are
// such ones: which of them a call means depends on its arguments.
func PureFunctions(all []FunctionSource) []shardmap.Function {
	type name struct{ schema, name string }
	impure := make([]bool, len(all))
	bodies := make([]*body, len(all))
	for i, f := range all {
		if f.Volatility == "i" && (f.Kind != "a" || f.Extension != "") || plainExtensions[f.Extension] {
			continue
		}
		if bodies[i] = readBody(f); bodies[i] == nil {
			impure[i] = true
		}
	}
	// Calls among them: what calls an impure one is impure.
	for again := true; again; {
		again = false
		bad := map[string]bool{}
		known := map[string]bool{}
		for i, f := range all {
			known[f.Name] = true
			bad[f.Name] = bad[f.Name] || impure[i]
		}
		for i := range all {
			if impure[i] || bodies[i] == nil {
				continue
			}
			for call := range bodies[i].calls {
				_, own := catalogFunctions[call]
				if bad[call] || !own && !known[call] {
					impure[i], again = true, true
				}
			}
		}
	}
	clocked := clockedNames(all, bodies)
	at := map[name]int{}
	var out []shardmap.Function
	bad := map[string]bool{}
	for i, f := range all {
		bad[f.Name] = bad[f.Name] || impure[i]
	}
	for _, f := range all {
		kind := f.Kind
		if f.Trigger {
			kind = "t"
		}
		n := name{f.Schema, f.Name}
		j, ok := at[n]
		if !ok {
			j = len(out)
			at[n] = j
			out = append(out, shardmap.Function{Schema: f.Schema, Name: f.Name, Kind: kind})
		}
		if bad[f.Name] || out[j].Kind != kind {
			out[j].Kind = "" // not known, or of several kinds: nothing is promised
		}
		out[j].Volatile = out[j].Volatile || f.Volatility == "v"
		out[j].Clocked = out[j].Clocked || clocked[f.Name]
	}
	pure := out[:0]
	for _, f := range out {
		if f.Kind != "" {
			pure = append(pure, f)
		}
	}
	return pure
}

// clockedNames are the names of functions that use the transaction's time, or call
// one that does.
func clockedNames(all []FunctionSource, bodies []*body) map[string]bool {
	names := map[string]bool{}
	for again := true; again; {
		again = false
		for i, f := range all {
			if bodies[i] == nil || names[f.Name] {
				continue
			}
			uses := bodies[i].clock
			for call := range bodies[i].calls {
				uses = uses || names[call]
			}
			if uses {
				names[f.Name], again = true, true
			}
		}
	}
	return names
}

// body is what a function's body was found to do.
type body struct {
	calls map[string]bool
	clock bool // it uses the transaction's time
	// reads: it may name tables, which are collected, and change their rows.
	reads  bool
	tables []*pg.RangeVar
}

// readBody returns the functions that a body calls, nil if it may read a table.
func readBody(f FunctionSource) *body {
	b := &body{calls: map[string]bool{}}
	switch f.Language {
	case "sql":
		if b.sql(f.Body) {
			return b
		}
	case "plpgsql":
		if b.plpgsql(f.Body) {
			return b
		}
	}
	return nil
}

// sql reads statements that must be SELECTs without tables.
func (b *body) sql(text string) bool {
	tree, err := New(Limits{}).parse(text)
	if err != nil {
		return false
	}
	for _, s := range tree.Stmts {
		changes := s.Stmt.GetInsertStmt() != nil || s.Stmt.GetUpdateStmt() != nil || s.Stmt.GetDeleteStmt() != nil
		if s.Stmt.GetSelectStmt() == nil && s.Stmt.GetReturnStmt() == nil && !(b.reads && changes) || !b.node(s.Stmt.ProtoReflect()) || !b.reads && objectNumber(s.Stmt) != "" {
			return false
		}
	}
	return true
}

// node goes through a tree of any shape.
func (b *body) node(m protoreflect.Message) bool {
	switch v := m.Interface().(type) {
	case *pg.RangeVar:
		b.tables = append(b.tables, v)
		return b.reads
	case *pg.LockingClause, *pg.InsertStmt, *pg.UpdateStmt, *pg.DeleteStmt:
		if !b.reads {
			return false
		}
	case *pg.IntoClause, *pg.MergeStmt:
		return false
	case *pg.FuncCall:
		names := strs(v.Funcname)
		name := names[len(names)-1]
		if reachesFurther(name) || !b.reads && ofServer(name) {
			return false
		}
		b.calls[name] = true
		b.clock = b.clock || isClock(v) || name == "age" && len(v.Args) == 1
	case *pg.SQLValueFunction:
		if !b.reads && ownCall(v) != "" {
			return false
		}
		b.clock = b.clock || clockOps[v.Op] != ""
	case *pg.TypeCast:
		word, _ := clockLiteral(v)
		b.clock = b.clock || word != ""
	case *pg.A_Expr:
		if names := strs(v.Name); len(names) > 1 && names[0] != "pg_catalog" {
			return false
		}
	}
	ok := true
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Kind() != protoreflect.MessageKind {
			return true
		}
		if fd.IsList() {
			for i := range v.List().Len() {
				ok = ok && b.node(v.List().Get(i).Message())
			}
		} else {
			ok = b.node(v.Message())
		}
		return ok
	})
	return ok
}

// reachesFurther reports whether a function of PostgreSQL's reads more than its
// arguments, or acts on a session or a server.
func reachesFurther(name string) bool {
	switch name {
	case "nextval", "setval", "currval", "lastval", "setseed", "set_config", "ts_rewrite":
		return true
	}
	if advisory(name) {
		return true
	}
	if _, denied := functionReach[name]; denied {
		return true
	}
	for _, p := range reachPrefixes {
		if strings.HasPrefix(name, p.prefix) {
			return true
		}
	}
	return !anywhere[name] && (strings.HasPrefix(name, "pg_") || strings.HasPrefix(name, "to_reg") || strings.HasPrefix(name, "has_") || strings.HasSuffix(name, "_description"))
}

// plpgsql reads a whole CREATE FUNCTION.
func (b *body) plpgsql(text string) bool {
	if New(Limits{}).check(text) != nil {
		return false
	}
	out, err := pg.ParsePlPgSqlToJSON(text)
	if err != nil {
		return false
	}
	var tree any
	if json.Unmarshal([]byte(out), &tree) != nil {
		return false
	}
	return b.json(tree)
}

// plainSteps are the statements of PL/pgSQL that do nothing but what their
// expressions do.
var plainSteps = map[string]bool{
	"block": true, "assign": true, "if": true, "case": true, "loop": true, "while": true, "fori": true, "fors": true, "foreach_a": true, "exit": true,
	"return": true, "return_next": true, "return_query": true, "raise": true, "assert": true, "execsql": true, "perform": true, "getdiag": true,
}

func (b *body) json(v any) bool {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if !b.json(e) {
				return false
			}
		}
	case map[string]any:
		for k, e := range v {
			if step, ok := strings.CutPrefix(k, "PLpgSQL_stmt_"); ok && !plainSteps[step] {
				return false
			}
			if k == "PLpgSQL_expr" {
				x, _ := e.(map[string]any)
				q, _ := x["query"].(string)
				if !b.expression(q) {
					return false
				}
			}
			if !b.json(e) {
				return false
			}
		}
	}
	return true
}

// expression reads what stands in a PL/pgSQL statement: a query, an expression, or
// an assignment.
func (b *body) expression(q string) bool {
	if _, err := New(Limits{}).parse(q); err == nil && strings.TrimSpace(q) != "" {
		return b.sql(q)
	}
	if text := "SELECT " + q; parses(text) {
		return b.sql(text)
	}
	for _, sign := range []string{":=", "="} {
		if to, from, ok := strings.Cut(q, sign); ok && !strings.ContainsAny(to, "('\"") && parses("SELECT "+from) {
			return b.sql("SELECT " + from)
		}
	}
	return false
}

func parses(text string) bool {
	_, err := New(Limits{}).parse(text)
	return err == nil
}

// userFunction returns what the map knows of the functions that a call may mean,
// nil if one of them may read a table.
func (a *analyzer) userFunction(names []string) *shardmap.Function {
	name := names[len(names)-1]
	if len(names) > 1 {
		f, ok := a.snap.Function(names[len(names)-2], name)
		if !ok {
			return nil
		}
		return f
	}
	// Which of several schemas' functions is meant depends on the arguments: all of
	// the name are known to be pure, see PureFunctions.
	for _, s := range a.path {
		if f, ok := a.snap.Function(s, name); ok {
			return f
		}
	}
	return nil
}

// kindOf returns what catalogFunctions says of a call's function, or the same of a
// function of the user's: f, a, w, with v in front of a volatile one; "" if the
// call is of a function that is not let through.
func (a *analyzer) kindOf(f *pg.FuncCall) string {
	names := strs(f.Funcname)
	if len(names) == 1 || names[len(names)-2] == "pg_catalog" {
		if kind, ok := catalogFunctions[names[len(names)-1]]; ok {
			return kind
		}
	}
	own := a.userFunction(names)
	switch {
	case own == nil || own.Kind == "t" || own.Kind == "p":
		return ""
	case own.Volatile:
		return "v" + own.Kind
	}
	return own.Kind
}
