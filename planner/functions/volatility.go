package functions

import (
	"encoding/json"
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/internal/prototree"
	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/datetime"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
)

// Source is a function as a shard's catalogue has it.
type Source struct {
	Schema, Name string
	Kind         string // pg_proc.prokind
	Volatility   string // pg_proc.provolatile
	Language     string
	// Body is the function's body in SQL, or the whole CREATE FUNCTION of one in PL/pgSQL.
	Body      string
	Defaults  string   // of its last parameters, separated by commas
	Args      int      // pg_proc.pronargs
	Types     []int64  // OIDs: of its result, and of its parameters
	Names     []string // of the parameters
	Extension string   // that it belongs to, "" if to none
	Trigger   bool     // it returns trigger
}

// plainExtensions are extensions whose functions read no table, volatile ones too.
var plainExtensions = map[string]bool{
	"uuid-ossp": true, "pgcrypto": true, "citext": true, "hstore": true, "ltree": true, "pg_trgm": true, "unaccent": true, "fuzzystrmatch": true,
	"intarray": true, "btree_gin": true, "btree_gist": true, "cube": true, "earthdistance": true, "isn": true, "seg": true, "vector": true,
}

// function is what is found out of one.
type function struct {
	impure   bool
	body     *Body // nil if it is believed
	defaults *Body // nil if it has none
	// acts: it may act on its session; does has what it calls, nil if it cannot be read.
	acts bool
	does *Body
}

// readFunction reads the body and the defaults.
func readFunction(f Source) (out function) {
	if f.Defaults != "" {
		out.defaults = NewBody()
		out.impure = !out.defaults.ReadSQL("SELECT " + f.Defaults)
		out.defaults.clock = out.defaults.clock || out.defaults.word && out.defaults.timely
	}
	if f.Extension == "" && f.Kind != "a" {
		out.does = NewBody()
		out.does.acts, out.does.Reads = true, true
		out.acts = f.Language == "sql" && !out.does.ReadSQL(f.Body) || f.Language == "plpgsql" && !out.does.ReadPLpgSQL(f.Body)
	}
	switch {
	case plainExtensions[f.Extension], f.Volatility == "i" && (f.Extension != "" || f.Kind != "a" && Readable(f.Language)):
	default:
		out.body = readBody(f)
		out.impure = out.impure || out.body == nil
	}
	return out
}

// Readable reports whether the router can tell from a body in a language what it does to its session. IMMUTABLE is not
// believed of others: LANGUAGE internal names any function of the server, set_config() too.
func Readable(language string) bool { return language == "sql" || language == "plpgsql" }

// uses reports whether the body, or a default, has what test finds.
func (f *function) uses(test func(b *Body) bool) bool {
	return f.body != nil && test(f.body) || f.defaults != nil && test(f.defaults)
}

// Pure returns, of all functions of a database, those that read no table. A
// name is among them only if all functions of that name, in whatever schema, are
// such ones: which of them a call means depends on its arguments. Besides, with kind "u",
// those others that have the name of one of PostgreSQL's own, or that x.name calls.
func Pure(all []Source) []shardmap.Function {
	fs := functions{all: all, read: make([]function, len(all)), known: map[string]bool{}}
	for i, f := range all {
		fs.read[i], fs.known[f.Name] = readFunction(f), true
	}
	bad, volatile, times := fs.bad(), fs.volatile(), fs.times()
	type name struct{ schema, name string }
	at := map[name]int{}
	field := map[name]bool{}
	var out []shardmap.Function
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
		field[n] = field[n] || f.Args == 1 || f.Args > 1 && f.Defaults != ""
		if bad[f.Name] || out[j].Kind != kind {
			out[j].Kind = "" // not known, or of several kinds: nothing is promised
			if builtin.Has(f.Name) || field[n] {
				out[j].Kind = "u"
			}
		}
		out[j].Volatile = out[j].Volatile || volatile[f.Name]
		out[j].Clocked, out[j].ClockedBelow, out[j].Casts = times.clocked[f.Name], times.below[f.Name], times.casts[f.Name]
	}
	return slices.DeleteFunc(out, func(f shardmap.Function) bool { return f.Kind == "" })
}

// functions are all those of a database.
type functions struct {
	all   []Source
	read  []function // of each, what is found out
	known map[string]bool
}

// calls says of a body whether it calls one of the names.
func calls(names map[string]bool) func(b *Body) bool {
	return func(b *Body) bool {
		for call := range b.Calls {
			if names[call] {
				return true
			}
		}
		for field := range b.Fields {
			if names[field] {
				return true
			}
		}
		return false
	}
}

// grow returns the names of what has a property by itself, or calls what has it.
func (fs *functions) grow(has func(f *function, source *Source) bool) map[string]bool {
	return fs.growBy((*function).uses, has)
}

func (fs *functions) growBy(uses func(f *function, test func(b *Body) bool) bool, has func(f *function, source *Source) bool) map[string]bool {
	names := map[string]bool{}
	for again := true; again; {
		again = false
		for i := range fs.all {
			if name := fs.all[i].Name; !names[name] && (has(&fs.read[i], &fs.all[i]) || uses(&fs.read[i], calls(names))) {
				names[name], again = true, true
			}
		}
	}
	return names
}

// bad are the names of which nothing is promised.
func (fs *functions) bad() map[string]bool {
	acting := fs.growBy(func(f *function, test func(b *Body) bool) bool { return f.does != nil && test(f.does) },
		func(f *function, _ *Source) bool { return f.acts })
	strange := func(b *Body) bool {
		for call := range b.Calls {
			if !builtin.Has(call) && !fs.known[call] {
				return true
			}
		}
		return false
	}
	return fs.grow(func(f *function, source *Source) bool {
		return f.impure || source.Volatility == "i" && f.does != nil && acting[source.Name] || f.uses(strange)
	})
}

func (fs *functions) volatile() map[string]bool {
	calls := func(b *Body) bool {
		for call := range b.Calls {
			if strings.HasPrefix(builtin.Kind(call), "v") && call != "timezone" {
				return true
			}
		}
		return false
	}
	return fs.grow(func(f *function, source *Source) bool { return source.Volatility == "v" || f.uses(calls) })
}

// functionTimes is what functions have to do with the transaction's time, by their names: see shardmap.Function.
type functionTimes struct {
	clocked map[string]bool
	below   map[string]int
	casts   map[string]int
}

// times finds out which functions use the time. What casts texts reads the clock, if it may make a word of them; else
// those who call it look at them.
func (fs *functions) times() functionTimes {
	cast := fs.grow(func(f *function, source *Source) bool {
		return f.body != nil && f.body.casts && !source.Trigger
	})
	parts := fs.grow(func(f *function, _ *Source) bool { return f.body != nil && f.body.parts })
	texts := map[string]bool{}
	for _, f := range fs.all {
		texts[f.Name] = texts[f.Name] || len(f.Types) == 0 || !plainOIDs[uint32(f.Types[0])] && !f.Trigger
	}
	made := fs.grow(func(f *function, source *Source) bool {
		return f.body != nil && cast[source.Name] && !source.Trigger && (f.body.makes || calls(texts)(f.body))
	})
	late := fs.grow(func(f *function, source *Source) bool {
		return made[source.Name] || f.uses(func(b *Body) bool { return b.clock })
	})
	out := functionTimes{clocked: map[string]bool{}, below: map[string]int{}, casts: map[string]int{}}
	for i, f := range fs.all {
		b := fs.read[i].body
		switch {
		case b == nil || !cast[f.Name] || f.Trigger:
		case made[f.Name]:
			out.casts[f.Name], out.clocked[f.Name] = castsMade, true
		case b.texts && parts[f.Name]:
			out.casts[f.Name] = max(out.casts[f.Name], castsParts)
		case b.texts:
			out.casts[f.Name] = max(out.casts[f.Name], CastsTexts)
		}
		if b != nil && (b.clock || calls(late)(b)) {
			out.clocked[f.Name] = true
		}
		// Who calls one may leave out arguments.
		if d := fs.read[i].defaults; d != nil && (d.clock || d.casts || calls(late)(d) || d.word && out.casts[f.Name] > 0) {
			out.below[f.Name] = max(out.below[f.Name], f.Args)
		}
	}
	return out
}

// Body is what a function's body was found to do.
type Body struct {
	Calls map[string]bool
	// Fields are names behind a point, which are functions' if the value before them has no such column. rows: a name alone
	// before the point may stand for a whole row.
	Fields         map[string]bool
	rows, variable bool // variable: a name may be a variable's, of PL/pgSQL
	clock          bool // it uses the transaction's time
	// word: a text in it is a word for the time; timely: so that something may read it as such.
	word, timely bool
	// Reads: it may name tables, which are collected, and change their rows.
	Reads  bool
	Tables []*pg.RangeVar
	// acts: only what acts on the session matters.
	acts bool
	// casts: it casts texts to what may be times; parts: parts of them; makes: those that it makes, which may be words.
	casts, parts, makes bool
	// texts: a parameter may have a text in it. plain has the variables: true for those that have none. assigns: a text may be
	// made a time where it is assigned, or returned.
	texts, assigns bool
	plain          map[string]bool
}

// NewBody is a body of which nothing is read yet.
func NewBody() *Body { return &Body{Calls: map[string]bool{}, Fields: map[string]bool{}} }

// readBody returns the functions that a body calls, nil if it may read a table.
func readBody(f Source) *Body {
	b := NewBody()
	b.parameters(&f)
	ok := false
	switch f.Language {
	case "sql":
		ok = b.ReadSQL(f.Body)
	case "plpgsql":
		ok = b.ReadPLpgSQL(f.Body)
	}
	if !ok {
		return nil
	}
	for _, oid := range f.Types {
		b.timely = b.timely || datetime.ReadingOf(uint32(oid)) != datetime.AsText
	}
	b.clock = b.clock || b.word && b.timely
	return b
}

// ReadSQL reads statements that must be SELECTs without tables.
func (b *Body) ReadSQL(text string) bool {
	text = standardBody(text)
	if strings.TrimSpace(text) == "" {
		return true
	}
	tree, err := (sqltext.Parser{}).Parse(text)
	if err != nil {
		return false
	}
	for _, s := range tree.Stmts {
		b.rows = !b.variable || sqltree.HasRows(s.Stmt)
		changes := s.Stmt.GetInsertStmt() != nil || s.Stmt.GetUpdateStmt() != nil || s.Stmt.GetDeleteStmt() != nil
		if s.Stmt.GetSelectStmt() == nil && s.Stmt.GetReturnStmt() == nil && !(b.Reads && changes) || !b.node(s.Stmt.ProtoReflect()) || !b.Reads && serverdependent.TakesOID(s.Stmt) != "" {
			return false
		}
	}
	return true
}

// standardBody makes statements of a body as the standard has it: RETURN ..., BEGIN ATOMIC ... END.
func standardBody(text string) string {
	s := strings.TrimSpace(text)
	if rest, ok := strings.CutPrefix(s, "RETURN "); ok {
		return "SELECT " + rest
	}
	if rest, ok := strings.CutPrefix(s, "BEGIN ATOMIC"); ok {
		if rest, ok = strings.CutSuffix(rest, "END"); ok {
			return rest
		}
	}
	return text
}

// node goes through a tree of any shape.
func (b *Body) node(m protoreflect.Message) bool {
	b.casting(m.Interface())
	b.making(m.Interface())
	switch v := m.Interface().(type) {
	case *pg.A_Const:
		b.word = b.word || v.GetSval() != nil && datetime.HasSpecial(v.GetSval().Sval)
	case *pg.RangeVar:
		b.Tables = append(b.Tables, v)
		return b.Reads
	case *pg.LockingClause, *pg.InsertStmt, *pg.UpdateStmt, *pg.DeleteStmt:
		if !b.Reads {
			return false
		}
	case *pg.IntoClause, *pg.MergeStmt:
		return false
	case *pg.FuncCall:
		names := sqltree.Strings(v.Funcname)
		name := names[len(names)-1]
		switch {
		case semantics.InTemp(names):
			return false // its text is the session's, and is read at a call of the session's alone
		case b.acts:
			if builtin.ActsOnSession(name) {
				return false
			}
		case builtin.ReachesFurther(name) || !b.Reads && serverdependent.OfServer(name):
			return false
		}
		b.Calls[name] = true
		b.clock = b.clock || sqltree.IsClock(v) || sqltree.IsAge(v) || name == "statement_timestamp"
		b.timely = b.timely || !textCalls[name]
	case *pg.ColumnRef, *pg.A_Indirection:
		if !b.field(sqltree.FieldOf(v)) {
			return false
		}
	case *pg.SQLValueFunction:
		if !b.Reads && serverdependent.Call(v) != "" {
			return false
		}
		b.clock = b.clock || sqltree.ClockOps[v.Op] != ""
	case *pg.ColumnDef: // of jsonb_to_record() and the like
		b.timely = b.timely || !sqltree.TextType(v.TypeName)
	case *pg.TypeCast:
		word, _ := sqltree.ClockLiteral(v)
		b.clock = b.clock || word != ""
		b.timely = b.timely || !sqltree.TextType(v.TypeName)
	case *pg.A_Expr:
		if names := sqltree.Strings(v.Name); len(names) > 1 && names[0] != "pg_catalog" && !b.acts {
			return false
		}
	}
	ok := true
	prototree.EachField(m, func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
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

// ReadPLpgSQL reads a whole CREATE FUNCTION.
func (b *Body) ReadPLpgSQL(text string) bool {
	if (sqltext.Parser{}).Check(text) != nil {
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
	b.variables(tree)
	b.variable = true
	return b.json(tree)
}

// variables notes what is declared, before the statements are read.
func (b *Body) variables(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			b.variables(e)
		}
	case map[string]any:
		for k, e := range v {
			if x, ok := e.(map[string]any); ok && k == "PLpgSQL_var" && x["refname"] != "found" {
				name, _ := x["refname"].(string)
				typ, _ := x["datatype"].(map[string]any)
				typ, _ = typ["PLpgSQL_type"].(map[string]any)
				text, _ := typ["typname"].(string)
				b.declared(name, text)
			}
			b.assigns = b.assigns || k == "PLpgSQL_rec"
			b.variables(e)
		}
	}
}

// plainSteps are the statements of PL/pgSQL that do nothing but what their
// expressions do.
var plainSteps = map[string]bool{
	"block": true, "assign": true, "if": true, "case": true, "loop": true, "while": true, "fori": true, "fors": true, "foreach_a": true, "exit": true,
	"return": true, "return_next": true, "return_query": true, "raise": true, "assert": true, "execsql": true, "perform": true, "getdiag": true,
}

// textNames are types that read a word for the time as a text, or as none of theirs, as PL/pgSQL's parser writes them.
var textNames = map[string]bool{"text": true, "varchar": true, "int": true, "integer": true, "bigint": true, "int4": true, "int8": true, "boolean": true, "bool": true, "numeric": true,
	"uuid": true, "json": true, "jsonb": true, "float8": true, "double precision": true, "UNKNOWN": true}

// cursorSteps are about cursors, which are read as what they are opened for.
var cursorSteps = map[string]bool{"forc": true, "open": true, "fetch": true, "close": true}

func (b *Body) json(v any) bool {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if !b.json(e) {
				return false
			}
		}
	case map[string]any:
		for k, e := range v {
			if step, ok := strings.CutPrefix(k, "PLpgSQL_stmt_"); ok && !plainSteps[step] && !(b.acts && cursorSteps[step]) {
				return false
			}
			if k == "dynquery" { // RETURN QUERY EXECUTE
				return false
			}
			if k == "PLpgSQL_type" {
				x, _ := e.(map[string]any)
				name, _ := x["typname"].(string)
				b.timely = b.timely || !textNames[strings.Trim(strings.TrimPrefix(strings.TrimSpace(name), "pg_catalog."), "\"")]
			}
			b.timely = b.timely || k == "PLpgSQL_rec" // its fields have types of their own: NEW
			if k == "PLpgSQL_expr" {
				x, _ := e.(map[string]any)
				q, _ := x["query"].(string)
				mode, _ := x["parseMode"].(float64)
				if !b.expression(q, mode >= assignMode) {
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
func (b *Body) expression(q string, assignment bool) bool {
	if !assignment {
		if _, err := (sqltext.Parser{}).Parse(q); err == nil && strings.TrimSpace(q) != "" {
			b.assigned(q)
			return b.ReadSQL(q)
		}
		if text := "SELECT " + q; parses(text) {
			b.assigned(text)
			return b.ReadSQL(text)
		}
	}
	for _, sign := range []string{":=", "="} {
		if to, from, ok := strings.Cut(q, sign); ok && !strings.ContainsAny(to, "('\"") && parses("SELECT "+from) {
			b.assigned("SELECT " + from)
			return b.ReadSQL("SELECT " + from)
		}
	}
	return false
}

// assignMode is the first of the modes in which PL/pgSQL's parser reads assignments.
const assignMode = 3

// assigned notes values that are assigned or returned, which PL/pgSQL casts, or may be.
func (b *Body) assigned(text string) {
	tree, err := (sqltext.Parser{}).Parse(text)
	if err != nil || !b.assigns {
		return
	}
	for _, s := range tree.Stmts {
		q := s.Stmt.GetSelectStmt()
		b.casts = b.casts || q == nil || len(q.TargetList) == 0
		for _, n := range q.GetTargetList() {
			b.casts = b.casts || b.mayHold(n.GetResTarget().GetVal())
		}
	}
}

func parses(text string) bool {
	_, err := (sqltext.Parser{}).Parse(text)
	return err == nil
}

// field notes the names behind a point in a body. It reports whether they may stand there.
func (b *Body) field(names []string, alone bool) bool {
	if alone && !b.rows {
		return true // of a variable of PL/pgSQL
	}
	for _, name := range names {
		if builtin.Field(name) && (builtin.ReachesFurther(name) && !b.acts || builtin.ActsOnSession(name)) {
			return false
		}
		b.Fields[name] = true
	}
	return true
}

// Acting returns, of all functions of a database, the schemas and names of those that are not known to leave their session
// alone: they are in a language that the router does not read, call what acts on a session, or run texts.
func Acting(all []Source) [][2]string {
	read := make([]function, len(all))
	acting := map[string]bool{}
	for i, f := range all {
		read[i] = readFunction(f)
	}
	for again := true; again; {
		again = false
		for i, f := range all {
			r := &read[i]
			if acting[f.Name] || !(r.acts || r.does != nil && (!Readable(f.Language) || r.does.callsAny(acting)) || f.Trigger && f.Extension != "" && !plainExtensions[f.Extension]) {
				continue
			}
			acting[f.Name], again = true, true
		}
	}
	var out [][2]string
	for _, f := range all {
		if acting[f.Name] {
			out = append(out, [2]string{f.Schema, f.Name})
		}
	}
	return out
}

// callsAny reports whether a body calls one of the names.
func (b *Body) callsAny(names map[string]bool) bool {
	for call := range b.Calls {
		if names[call] {
			return true
		}
	}
	for name := range b.Fields { // x.f is f(x)
		if names[name] {
			return true
		}
	}
	return false
}
