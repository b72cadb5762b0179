package planner

import (
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/datetime"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// A schema change runs on each shard in a transaction of its own. What it takes from the
// time would be another on each: the values that it gives to rows that are there
// (ADD COLUMN ... DEFAULT now(), USING now()), and the words that PostgreSQL reads once,
// when the statement runs (DEFAULT 'now'). Such a text has marks in their place, for which
// the default shard is asked (DDL.Times).

// TimeMark begins the marks; the number of the expression in DDL.Times follows, and an underscore.
const TimeMark = "cleave_time_"

// freezing makes the texts of one schema change.
type freezing struct {
	*analyzer
	columns map[string]*pg.TypeName // those that the statement declares
	table   *shardmap.Table         // that it changes, nil if it makes one
	changed bool
}

// freeze puts marks in the place of times, and notes what rows get that are there.
func (a *analyzer) freeze(d *declaration) {
	st := a.Statement
	if !st.DDL.AllShards {
		return
	}
	tree, err := a.p.parse(st.Text)
	if err != nil || len(tree.Stmts) != 1 {
		return // the shards will say
	}
	f := &freezing{analyzer: a, columns: map[string]*pg.TypeName{}}
	n := tree.Stmts[0].Stmt
	sqltree.Inspect(n, func(m proto.Message) bool {
		if c, ok := m.(*pg.ColumnDef); ok && c.TypeName != nil {
			f.columns[c.Colname] = c.TypeName
		}
		return true
	})
	if d != nil {
		f.table = d.table
	}
	switch v := n.GetNode().(type) {
	case *pg.Node_CreateStmt:
		for _, e := range append(append([]*pg.Node(nil), v.CreateStmt.TableElts...), v.CreateStmt.Constraints...) {
			f.element(e)
		}
	case *pg.Node_AlterTableStmt:
		f.alter(d, v.AlterTableStmt)
	case *pg.Node_CreateDomainStmt:
		for _, c := range v.CreateDomainStmt.Constraints {
			f.constraint(c.GetConstraint(), v.CreateDomainStmt.TypeName, "")
			if x := c.GetConstraint(); x.GetContype() == pg.ConstrType_CONSTR_DEFAULT {
				f.domainOwn(x.RawExpr, serverdependent.TypeBase(v.CreateDomainStmt.TypeName))
			}
		}
	case *pg.Node_AlterDomainStmt:
		f.expression(&v.AlterDomainStmt.Def)
		if v.AlterDomainStmt.Subtype == "T" {
			f.domainOwn(v.AlterDomainStmt.Def, "")
		}
	case *pg.Node_IndexStmt:
		f.expression(&v.IndexStmt.WhereClause)
	case *pg.Node_CreateTrigStmt:
		f.expression(&v.CreateTrigStmt.WhenClause)
	}
	if !f.changed {
		return
	}
	if strings.Contains(a.SQL, TimeMark) {
		fail(sqlstate.Refusal("CLV-0616", "the statement depends on the time, and has a name that begins with %s", TimeMark).
			WithHint("Choose another name."))
	}
	if st.DDL.Concurrent {
		fail(sqlstate.Refusal("CLV-0617", "a word for the time in a statement outside of transactions is not supported").
			WithHint("Write the time itself."))
	}
	st.Text = a.written(n)
}

// element freezes a column's definition, or a constraint.
func (f *freezing) element(n *pg.Node) {
	if c := n.GetConstraint(); c != nil {
		f.constraint(c, nil, "")
	}
	if c := n.GetColumnDef(); c != nil {
		for _, x := range c.Constraints {
			f.constraint(x.GetConstraint(), c.TypeName, "")
		}
	}
}

func (f *freezing) constraint(c *pg.Constraint, typ *pg.TypeName, own string) {
	switch c.GetContype() {
	case pg.ConstrType_CONSTR_DEFAULT, pg.ConstrType_CONSTR_GENERATED:
		c.RawExpr = f.typed(c.RawExpr, typ, own)
		f.expression(&c.RawExpr)
	case pg.ConstrType_CONSTR_CHECK:
		f.expression(&c.RawExpr)
	case pg.ConstrType_CONSTR_EXCLUSION:
		f.expression(&c.WhereClause)
	}
}

// alter freezes the commands of an ALTER TABLE.
func (f *freezing) alter(d *declaration, t *pg.AlterTableStmt) {
	if f.table == nil {
		return
	}
	var more []*pg.Node
	for _, n := range t.Cmds {
		c := n.GetAlterTableCmd()
		switch c.Subtype {
		case pg.AlterTableType_AT_AddColumn:
			def := c.Def.GetColumnDef()
			if c.MissingOk && d.has(def.GetColname()) {
				continue
			}
			f.element(c.Def)
			if datetime.AsText != datetime.ReadingOfType(def.GetTypeName(), f.Typer.Hidden()) && !slices.ContainsFunc(def.Constraints, hasDefault) {
				f.Statement.DDL.Defaults = append(f.Statement.DDL.Defaults, def.Colname)
			}
			for _, x := range def.Constraints {
				if x := x.GetConstraint(); x.GetContype() == pg.ConstrType_CONSTR_DEFAULT {
					if now := f.filled(x.RawExpr, "the default of column "+sqltext.QuoteIdent(def.Colname)); now != nil {
						more = append(more, &pg.Node{Node: &pg.Node_AlterTableCmd{AlterTableCmd: &pg.AlterTableCmd{
							Subtype: pg.AlterTableType_AT_ColumnDefault, Name: def.Colname, Def: x.RawExpr, Behavior: pg.DropBehavior_DROP_RESTRICT}}})
						x.RawExpr = now
					}
				}
			}
		case pg.AlterTableType_AT_AlterColumnType:
			def := c.Def.GetColumnDef()
			typ := serverdependent.TypeBase(def.GetTypeName())
			if def.GetRawDefault() == nil {
				own := keyColumnOrUnknown(f.table, c.Name).Type
				was, is := strings.HasPrefix(own, "reg"), strings.HasPrefix(typ, "reg")
				if was && !is && !serverdependent.Textual(typ) || is && !was && !serverdependent.Textual(own) {
					f.ownFill("the change of column "+sqltext.QuoteIdent(c.Name), "the OID of an object")
				}
				continue
			}
			if what := serverdependent.In(def.RawDefault, typ, f.table); what != "" {
				f.ownFill("USING for column "+sqltext.QuoteIdent(c.Name), what)
			}
			def.RawDefault = f.typed(def.RawDefault, def.TypeName, "")
			f.expression(&def.RawDefault)
			f.look(def.RawDefault)
			if now := f.filled(def.RawDefault, "USING for column "+sqltext.QuoteIdent(c.Name)); now != nil {
				def.RawDefault = now
			}
		case pg.AlterTableType_AT_ColumnDefault:
			if c.Def != nil {
				typ := f.columns[c.Name]
				own := ""
				if col := d.columnNamed(c.Name); typ == nil && col != nil {
					if own = datetime.TypeNames[col.OID]; datetime.ReadingOf(col.OID) == datetime.Unsure {
						own = col.Type
					}
				}
				c.Def = f.typed(c.Def, typ, own)
				f.expression(&c.Def)
			}
		case pg.AlterTableType_AT_AddConstraint:
			f.constraint(c.Def.GetConstraint(), nil, "")
		case pg.AlterTableType_AT_SetExpression:
			f.expression(&c.Def)
		}
	}
	t.Cmds = append(t.Cmds, more...)
}

func hasDefault(n *pg.Node) bool {
	switch n.GetConstraint().GetContype() {
	case pg.ConstrType_CONSTR_DEFAULT, pg.ConstrType_CONSTR_GENERATED, pg.ConstrType_CONSTR_IDENTITY:
		return true
	}
	return false
}

// SameOnShards reports whether a default, as a shard prints it, gives rows that are there the same values on
// each shard: one time, and for copies of the same rows nothing that is another each time.
func (p *Planner) SameOnShards(text string, snap *shardmap.Snapshot, copies bool) bool {
	tree, err := p.parse("SELECT " + text)
	if err != nil || len(tree.Stmts) != 1 {
		return false
	}
	n, a := tree.Stmts[0].Stmt, p.analyzer(text, snap, nil)
	same := serverdependent.InDefault(text, "") == "" && !sqltree.UsesClock(n) && !serverdependent.UsesShardState(n) && !(copies && differsByRow(&a.Namespace, n))
	sqltree.Inspect(n, func(m proto.Message) bool {
		if call, ok := m.(*pg.FuncCall); ok && timedFunction(&a.Namespace, call) != nil {
			same = false
		}
		return same
	})
	return same
}

// filled is an expression with one time for all rows of all shards; nil if it does not depend on
// the time. It notes expressions that cannot be the same on all shards, in case that there are rows.
func (f *freezing) filled(e *pg.Node, what string) *pg.Node {
	sqltree.Inspect(e, func(m proto.Message) bool {
		if call, ok := m.(*pg.FuncCall); ok {
			if own := timedFunction(&f.Namespace, call); own != nil {
				f.unfillable(sqlstate.Refusal("CLV-0618", "%s calls %s(), which uses the time at which the transaction began, of which each shard has its own", what, own.QualifiedName()).
					WithHint("Add the column without a default (or of the old type), write the values with UPDATE, and then: ALTER TABLE ... ALTER COLUMN ... SET DEFAULT."))
			}
		}
		return true
	})
	if f.table.Kind == shardmap.Reference && (differsByRow(&f.Namespace, e) || usesOwnState(e)) {
		f.unfillable(sqlstate.Refusal("CLV-0619", "%s would give the rows that are there other values on each shard, and a reference table has the same rows on all", what).
			WithHint("Add the column without a default (or of the old type), write the values with UPDATE, and then: ALTER TABLE ... ALTER COLUMN ... SET DEFAULT."))
	}
	found := false
	out := sqltree.Replace(sqltree.Clone(e), func(n *pg.Node) *pg.Node {
		switch v := n.GetNode().(type) {
		case *pg.Node_FuncCall:
			switch {
			case sqltree.IsClock(v.FuncCall):
				f.Native(v.FuncCall)
				found = true
				return f.time("pg_catalog.now()", "timestamptz", nil)
			case sqltree.CallName(v.FuncCall) == "statement_timestamp" && len(v.FuncCall.Args) == 0:
				found = true
				return f.time("pg_catalog.statement_timestamp()", "timestamptz", nil)
			case sqltree.IsAge(v.FuncCall):
				f.Native(v.FuncCall)
				found = true
				day := sqltree.CastNode(f.time("CURRENT_DATE", "date", nil), "timestamp", nil)
				v.FuncCall.Args = []*pg.Node{day, v.FuncCall.Args[0]}
			}
		case *pg.Node_TypeCast:
			if word, typ := sqltree.ClockLiteral(v.TypeCast); word != "" { // a text that is read when it is needed
				found = true
				return f.time(sqltext.QuoteString(word)+"::pg_catalog."+typ, typ, v.TypeCast.TypeName.Typmods)
			}
		case *pg.Node_SqlvalueFunction:
			if typ := sqltree.ClockOps[v.SqlvalueFunction.Op]; typ != "" {
				found = true
				var mod []*pg.Node
				if m := v.SqlvalueFunction.Typmod; m >= 0 {
					mod = []*pg.Node{sqltree.IntNode(int64(m))}
				}
				return f.time(map[string]string{"date": "CURRENT_DATE", "timetz": "CURRENT_TIME", "timestamptz": "CURRENT_TIMESTAMP", "time": "LOCALTIME", "timestamp": "LOCALTIMESTAMP"}[typ], typ, mod)
			}
		}
		return n
	})
	if !found {
		return nil
	}
	return out
}

// usesOwnState reports whether an expression reads what differs from shard to shard.
func usesOwnState(e *pg.Node) bool {
	state := sqltree.Clone(e)
	sqltree.Replace(state, func(n *pg.Node) *pg.Node {
		if f := n.GetFuncCall(); f != nil && sqltree.CallName(f) == "statement_timestamp" {
			return sqltree.IntNode(0)
		}
		return n
	})
	return serverdependent.UsesShardState(state)
}

func (f *freezing) domainOwn(e *pg.Node, typ string) {
	if what := serverdependent.In(e, typ, nil); what != "" {
		fail(sqlstate.Refusal("CLV-0620", "the default of the domain says %s, which is another on each shard", what).WithHint(serverdependent.Hint))
	}
}

// look has the casts in what fills rows look for words for the time.
func (f *freezing) look(e *pg.Node) {
	f.texts.guard = f.guarding()
	defer func() { f.texts.guard = false }()
	if f.table == nil || !f.guards(e) {
		return
	}
	sc := &semantics.Scope{Items: []*semantics.Item{f.TableItem(semantics.Relation{Schema: f.table.Schema, Name: f.table.Name, Table: f.table}, f.NewRTE())}}
	sqltree.Descend(e.ProtoReflect(), func(m protoreflect.Message) bool {
		if n, ok := m.Interface().(*pg.Node); ok {
			f.MarkCast(n, sc)
		}
		return true
	})
	if f.guards(e) {
		f.guarded(e)
		f.changed = true
	}
}

// ownFill notes that rows that are there would get what is another on each shard.
func (f *freezing) ownFill(where, what string) {
	f.Statement.DDL.Unfillable = sqlstate.Refusal("CLV-0621", "%s says %s, which is another on each shard", where, what).
		WithHint(serverdependent.Hint)
}

func (f *freezing) unfillable(e *sqlstate.Error) {
	f.Statement.DDL.Unfillable = e
}

// time is a literal that will be what the default shard says of an expression.
func (f *freezing) time(expr, typ string, mods []*pg.Node) *pg.Node {
	return sqltree.CastNode(f.mark(expr), typ, mods)
}

func (f *freezing) mark(expr string) *pg.Node {
	f.changed = true
	list := &f.Statement.DDL.Times
	at := -1
	for i, have := range *list {
		if have == expr {
			at = i
		}
	}
	if at < 0 {
		at = len(*list)
		*list = append(*list, expr)
	}
	return textConst(TimeMark + strconv.Itoa(at) + "_")
}

func textConst(s string) *pg.Node {
	return &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Val: &pg.A_Const_Sval{Sval: &pg.String{Sval: s}}}}}
}

// typed freezes a literal that has a type's place: a default. The type is typ, or has the name own
// in SQL; neither if it is none that could read it as a time.
func (f *freezing) typed(e *pg.Node, typ *pg.TypeName, own string) *pg.Node {
	s := e.GetAConst().GetSval()
	if s == nil || !datetime.HasSpecial(s.Sval) || typ == nil && own == "" {
		return e
	}
	if typ != nil {
		if datetime.ReadingOfType(typ, f.Typer.Hidden()) == datetime.AsText {
			return e
		}
		cast := sqltree.SelectOf([]*pg.Node{{Node: &pg.Node_TypeCast{TypeCast: &pg.TypeCast{Arg: e, TypeName: typ}}}}, nil, nil)
		if strings.ContainsAny(s.Sval, "{}[]()") || len(typ.ArrayBounds) > 0 {
			f.inside(s.Sval)
		}
		return f.mark(strings.TrimPrefix(f.written(cast), "SELECT "))
	}
	if strings.ContainsAny(s.Sval, "{}[]()") || strings.HasSuffix(own, "]") {
		f.inside(s.Sval)
	}
	return f.mark(sqltext.QuoteString(s.Sval) + "::" + own)
}

func (f *freezing) inside(s string) {
	fail(sqlstate.Refusal("CLV-0622", "the text %s has a word for the time inside, which each shard would read by its own clock", sqltext.QuoteString(s)).
		WithHint("Write the time itself, or an expression with now()."))
}

// expression freezes the literals that are cast to times: they are read once, when the statement runs.
func (f *freezing) expression(at **pg.Node) {
	if *at == nil {
		return
	}
	*at = sqltree.Replace(*at, func(n *pg.Node) *pg.Node {
		switch v := n.GetNode().(type) {
		case *pg.Node_TypeCast:
			c := v.TypeCast
			if s := c.Arg.GetAConst().GetSval(); s != nil && datetime.HasSpecial(s.Sval) && datetime.ReadingOfType(c.TypeName, f.Typer.Hidden()) != datetime.AsText {
				out := sqltree.Clone(n)
				out.GetTypeCast().Arg = f.typed(c.Arg, c.TypeName, "")
				return out
			}
		case *pg.Node_AExpr:
			f.comparison(v.AExpr)
		}
		return n
	})
}

// comparison refuses a word that is compared with a column that may be of times: CHECK (at > 'now').
func (f *freezing) comparison(e *pg.A_Expr) {
	word, times := "", false
	for _, side := range []*pg.Node{e.Lexpr, e.Rexpr} {
		items := []*pg.Node{side}
		if l := side.GetList(); l != nil {
			items = l.Items
		}
		for _, n := range items {
			if s := n.GetAConst().GetSval(); s != nil && datetime.HasSpecial(s.Sval) {
				word = s.Sval
			}
			sqltree.Inspect(n, func(m proto.Message) bool {
				switch v := m.(type) {
				case *pg.ColumnRef:
					names := sqltree.Strings(v.Fields)
					if len(names) == 0 {
						break
					}
					name := names[len(names)-1]
					if typ := f.columns[name]; typ != nil {
						times = times || datetime.ReadingOfType(typ, f.Typer.Hidden()) != datetime.AsText
					} else if f.table != nil {
						times = times || datetime.ReadingOf(keyColumnOrUnknown(f.table, name).OID) != datetime.AsText
					}
				case *pg.TypeCast:
					times = times || datetime.ReadingOfType(v.TypeName, f.Typer.Hidden()) == datetime.AsTime
				case *pg.FuncCall:
					times = times || sqltree.IsClock(v)
				}
				return true
			})
		}
	}
	if word != "" && times {
		fail(sqlstate.Refusal("CLV-0623", "the text %s is read as the time at which the statement runs, by each shard as its own", sqltext.QuoteString(word)).
			WithHint("Cast it: %s::timestamptz.", sqltext.QuoteString(word)))
	}
}
