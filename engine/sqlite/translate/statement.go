package translate

import (
	"fmt"
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/prototree"
	"github.com/cleavedb/cleave/sqlstate"
)

// Statement is the translation of one statement.
type Statement struct {
	SQL      string
	Params   []uint32
	Columns  []Column
	Returns  bool // gives rows, even if it has no columns
	Tag      string
	Write    bool
	Locks    bool // takes the write lock without writing (FOR UPDATE)
	Systems  []*catalog.System
	Table    *catalog.Table // target of INSERT, UPDATE, DELETE
	OnceEach bool           // ON CONFLICT DO UPDATE over several rows: no row twice
}

// Column is a column of the rows that a statement gives.
type Column struct {
	Name   string
	Type   uint32
	Mod    int32
	Table  uint32
	Attnum int16
	Class  value.Class
}

// Statement translates a statement of a SELECT, INSERT, UPDATE or DELETE kind.
func (t *Translator) Statement(raw *pg.RawStmt, oids []uint32, fixed bool) (p *Statement, err error) {
	defer fault.Catch(&err)
	t.params, t.fixed = append([]uint32(nil), oids...), fixed
	p = &Statement{}
	n := raw.Stmt
	switch s := n.GetNode().(type) {
	case *pg.Node_SelectStmt:
		q := t.query(n, queryOptions{resolve: true})
		p.SQL, p.Tag, p.Returns = q.sql(), "SELECT", true
		p.Columns = columnsOf(q.targets)
	case *pg.Node_InsertStmt:
		(&change{Translator: t, out: p}).insert(s.InsertStmt)
	case *pg.Node_UpdateStmt:
		(&change{Translator: t, out: p}).update(s.UpdateStmt)
	case *pg.Node_DeleteStmt:
		(&change{Translator: t, out: p}).delete(s.DeleteStmt)
	default:
		fault.Refuse("CLV-2167", "this statement")
	}
	p.Write = p.Write || t.writes
	p.Locks = t.locks
	for s := range t.systems {
		p.Systems = append(p.Systems, s)
	}
	if p.Write && len(p.Systems) > 0 && p.Table != nil && p.Table.System != nil {
		fault.Raisef(sqlstate.InsufficientPrivilege, "permission denied for table %s", p.Table.Name)
	}
	for i, o := range t.params {
		if o == 0 {
			fault.Raisef(sqlstate.IndeterminateDatatype, "could not determine data type of parameter $%d", i+1)
		}
	}
	p.Params = t.params
	return p, nil
}

func columnsOf(targets []target) []Column {
	out := make([]Column, len(targets))
	for i, tg := range targets {
		out[i] = Column{Name: tg.name, Type: tg.e.typ, Mod: tg.e.mod, Table: tg.e.table, Attnum: tg.e.attnum, Class: value.ClassOf(tg.e.typ)}
		if out[i].Class == value.ClassNone {
			fault.Raise(noValues(tg.e.typ))
		}
	}
	return out
}

// dmlTarget opens the table that a statement changes as the scope's first entry.
func (t *resolver) dmlTarget(v *pg.RangeVar) (*catalog.Table, *rte) {
	d := t.FindTable(v)
	if d.System != nil || d.Static {
		t.failAt(v.Location, sqlstate.InsufficientPrivilege, "permission denied for table %s", d.Name)
	}
	r := &rte{alias: v.Relname, schema: d.Schema, sql: "r0"}
	if v.Alias != nil {
		r.alias, r.schema = v.Alias.Aliasname, ""
	}
	fillRTE(r, d)
	return d, r
}

// assign converts an expression for storing in a column.
func (t *converter) assign(e expr, c *catalog.Column, loc int32) expr {
	from := e.typ
	if e.row != nil {
		fault.Refuse("CLV-2148", "a row as a value")
	}
	r, ok := t.tryCoerce(e, c.Type, c.Mod, pgcatalog.Assignment)
	if !ok {
		fault.Raise(t.at(loc, sqlstate.New(sqlstate.DatatypeMismatch, "column \"%s\" is of type %s but expression is of type %s", c.Name, value.TypeName(c.Type), value.TypeName(from)).
			WithHint("You will need to rewrite or cast the expression.")))
	}
	if c.Mod >= 0 && r.mod != c.Mod {
		r = t.applyTypmod(r, c.Mod, pgcatalog.Assignment)
	}
	return r
}

// defaultOf is the SQL of a column's default, converted for storing.
func (t *Translator) defaultOf(d *catalog.Table, c *catalog.Column) expr {
	if c.Default == "" {
		return expr{sql: "NULL", typ: c.Type, mod: c.Mod, constant: true}
	}
	n, err := syntax.Expr(c.Default)
	if err != nil {
		fault.Raise(err)
	}
	inCheck, scope, text := t.inCheck, t.scope, t.text
	t.scope, t.text = nil, ""
	e := t.expr(n)
	e = t.assign(e, c, -1)
	t.inCheck, t.scope, t.text = inCheck, scope, text
	return e
}

// change translates an INSERT, UPDATE or DELETE.
type change struct {
	*Translator
	out    *Statement
	target *rte // the table that is changed
	sql    strings.Builder
}

func (t *change) insert(s *pg.InsertStmt) {
	p := t.out
	p.Write, p.Tag = true, "INSERT 0"
	// SYSTEM VALUE says that values are given, which they always may be here.
	if s.Override == pg.OverridingKind_OVERRIDING_USER_VALUE {
		fault.Refuse("CLV-2168", "OVERRIDING")
	}
	t.push()
	defer t.pop()
	with := t.withClause(s.WithClause)
	d, r := t.dmlTarget(s.Relation)
	p.Table, t.target = d, r
	cols := t.insertColumns(s, d)
	b := &t.sql
	b.WriteString(with + "INSERT INTO main." + quote.Ident(d.SQLName()) + " AS r0 (")
	// Every column is given: SQLite holds no defaults.
	order := append([]*catalog.Column(nil), cols...)
	sel := s.SelectStmt.GetSelectStmt()
	var rows [][]expr
	var source *query
	switch {
	case sel == nil:
		order = nil
		rows = [][]expr{{}}
	case len(sel.ValuesLists) > 0 && sel.WithClause == nil && !ordered(sel):
		order, rows = t.insertValues(s, sel, order, len(d.Live()))
	default:
		source = t.query(s.SelectStmt, queryOptions{})
		checkInsertWidth(len(source.targets), len(cols), len(s.Cols) > 0)
		order = order[:len(source.targets)]
	}
	order, defaults := t.withDefaults(d, order)
	for i, c := range order {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quote.Ident(c.Name))
	}
	b.WriteString(") ")
	if len(order) == 0 {
		fault.Refuse("CLV-2170", "a row without columns")
	}
	if source != nil {
		b.WriteString(t.insertSource(source, order, defaults))
	} else {
		for i := range rows {
			// The defaults' text is repeated: a volatile one is evaluated for each row.
			rows[i] = append(rows[i], defaults...)
		}
		b.WriteString("VALUES ")
		writeValues(b, rows)
	}
	s0 := t.scope
	if s.OnConflictClause != nil {
		t.onConflict(s.OnConflictClause)
		p.OnceEach = s.OnConflictClause.Action == pg.OnConflictAction_ONCONFLICT_UPDATE && (source != nil || len(rows) > 1)
	}
	s0.rtes = []*rte{r}
	t.returning(s.ReturningList)
	p.SQL = b.String()
}

// withDefaults adds to the columns that are given the others, which get their defaults.
func (t *change) withDefaults(d *catalog.Table, given []*catalog.Column) (order []*catalog.Column, defaults []expr) {
	for _, c := range d.Live() {
		if !slices.ContainsFunc(given, func(g *catalog.Column) bool { return g.Num == c.Num }) {
			order = append(order, c)
			defaults = append(defaults, t.defaultOf(d, c))
		}
	}
	return append(slices.Clone(given), order...), defaults
}

// checkInsertWidth wants as many expressions as columns. Without a list of columns there may be fewer.
func checkInsertWidth(expressions, columns int, listed bool) {
	if expressions > columns {
		fault.Raisef(sqlstate.SyntaxError, "INSERT has more expressions than target columns")
	}
	if expressions < columns && listed {
		fault.Raisef(sqlstate.SyntaxError, "INSERT has more target columns than expressions")
	}
}

// insertColumns are the columns that an INSERT names, all if it names none.
func (t *change) insertColumns(s *pg.InsertStmt, d *catalog.Table) []*catalog.Column {
	if len(s.Cols) == 0 {
		return d.Live()
	}
	var cols []*catalog.Column
	seen := map[string]bool{}
	for _, n := range s.Cols {
		rt := n.GetResTarget()
		c := d.Column(rt.Name)
		if c == nil {
			t.failAt(rt.Location, sqlstate.UndefinedColumn, "column \"%s\" of relation \"%s\" does not exist", rt.Name, d.Name)
		}
		if seen[rt.Name] {
			t.failAt(rt.Location, sqlstate.DuplicateColumn, "column \"%s\" specified more than once", rt.Name)
		}
		if len(rt.Indirection) > 0 {
			fault.Refuse("CLV-2169", "assignment to a part of a column")
		}
		seen[rt.Name] = true
		cols = append(cols, c)
	}
	return cols
}

// insertValues translates the rows of VALUES, for the first of the columns. There will be width values in a row.
func (t *change) insertValues(s *pg.InsertStmt, sel *pg.SelectStmt, cols []*catalog.Column, width int) (order []*catalog.Column, rows [][]expr) {
	given := len(sel.ValuesLists[0].GetList().GetItems())
	if given > len(cols) {
		t.failAt(nodeLocation(sel.ValuesLists[0].GetList().GetItems()[len(cols)]), sqlstate.SyntaxError, "INSERT has more expressions than target columns")
	}
	if given < len(cols) && len(s.Cols) > 0 {
		t.failAt(s.Cols[given].GetResTarget().Location, sqlstate.SyntaxError, "INSERT has more target columns than expressions")
	}
	order = cols[:given]
	t.push()
	for _, l := range sel.ValuesLists {
		items := l.GetList().GetItems()
		if len(items) != given {
			fault.Raisef(sqlstate.SyntaxError, "VALUES lists must all be the same length")
		}
		row := make([]expr, 0, width)
		for i, n := range items {
			if n.GetSetToDefault() != nil {
				row = append(row, t.defaultOf(t.out.Table, order[i]))
				continue
			}
			t.scope.sel.clause = "VALUES"
			e := t.expr(n)
			t.scope.sel.clause = ""
			row = append(row, t.assign(e, order[i], nodeLocation(n)))
		}
		rows = append(rows, row)
	}
	t.pop()
	return order, rows
}

// insertSource is the query whose rows are inserted. The conversion to the columns' types goes around it.
func (t *change) insertSource(source *query, order []*catalog.Column, defaults []expr) string {
	outer := make([]string, 0, len(order))
	for i := range source.targets {
		e := source.targets[i].e
		if e.typ == pgoid.Unknown && source.op == "" && source.values == nil {
			source.targets[i].e = t.assign(e, order[i], -1)
			outer = append(outer, fmt.Sprintf("q.c%d", i+1))
			continue
		}
		e = t.resolveText(e)
		t.retarget(source, i, e)
		outer = append(outer, t.assign(expr{sql: fmt.Sprintf("q.c%d", i+1), typ: e.typ, mod: e.mod}, order[i], -1).sql)
	}
	for _, e := range defaults {
		outer = append(outer, e.sql)
	}
	// WHERE true: else SQLite takes ON CONFLICT for a join's condition.
	return "SELECT " + strings.Join(outer, ", ") + " FROM (" + source.sql() + ") AS q WHERE true"
}

func (t *change) onConflict(oc *pg.OnConflictClause) {
	d, r, b := t.out.Table, t.target, &t.sql
	b.WriteString(" ON CONFLICT")
	if in := oc.Infer; in != nil {
		b.WriteString(" (" + conflictColumns(d, t.conflictKey(in)) + ")")
	} else if oc.Action == pg.OnConflictAction_ONCONFLICT_UPDATE {
		fault.Raisef(sqlstate.SyntaxError, "ON CONFLICT DO UPDATE requires inference specification or constraint name")
	}
	if oc.Action == pg.OnConflictAction_ONCONFLICT_NOTHING {
		b.WriteString(" DO NOTHING")
		return
	}
	ex := &rte{alias: "excluded", sql: "excluded"}
	for _, c := range d.Live() {
		ex.cols = append(ex.cols, rteCol{name: c.Name, sql: "excluded." + quote.Ident(c.Name), typ: c.Type, mod: c.Mod})
	}
	t.scope.rtes = []*rte{r, ex}
	b.WriteString(" DO UPDATE SET " + t.setClause(oc.TargetList, true))
	if oc.WhereClause != nil {
		reads := len(t.reads)
		b.WriteString(" WHERE " + t.where(oc.WhereClause))
		if len(t.reads) != reads {
			fault.Refuse("CLV-2173", "a subquery in ON CONFLICT DO UPDATE")
		}
	}
}

// conflictKey is the columns of the constraint, or of the unique index, that ON CONFLICT is about.
func (t *change) conflictKey(in *pg.InferClause) []int16 {
	d := t.out.Table
	if in.Conname != "" {
		k := d.Constraint(in.Conname)
		if k == nil {
			t.failAt(in.Location, sqlstate.UndefinedObject, "constraint \"%s\" for table \"%s\" does not exist", in.Conname, d.Name)
		}
		if k.Type != "p" && k.Type != "u" {
			fault.Raisef(sqlstate.WrongObjectType, "constraint in ON CONFLICT clause has no associated index")
		}
		return k.Columns
	}
	want := map[int16]bool{}
	for _, n := range in.IndexElems {
		el := n.GetIndexElem()
		if el.Name == "" || len(el.Opclass) > 0 || len(el.Collation) > 0 {
			fault.Refuse("CLV-2171", "ON CONFLICT with an expression")
		}
		c := d.Column(el.Name)
		if c == nil {
			fault.Raisef(sqlstate.UndefinedColumn, "column \"%s\" does not exist", el.Name)
		}
		want[c.Num] = true
	}
	if in.WhereClause != nil {
		fault.Refuse("CLV-2172", "ON CONFLICT with a WHERE for a partial index")
	}
	nums := uniqueIndexOn(d, want)
	if nums == nil {
		fault.Raisef("42P10", "there is no unique or exclusion constraint matching the ON CONFLICT specification")
	}
	return nums
}

// uniqueIndexOn is the columns, in their order, of the first unique index of exactly these columns; nil without one.
func uniqueIndexOn(d *catalog.Table, want map[int16]bool) []int16 {
	for _, ix := range d.Indexes {
		if !ix.Unique || ix.Where != "" || len(ix.Columns) != len(want) {
			continue
		}
		var nums []int16
		for _, ic := range ix.Columns {
			if want[ic.Num] {
				nums = append(nums, ic.Num)
			}
		}
		if len(nums) == len(ix.Columns) {
			return nums
		}
	}
	return nil
}

func conflictColumns(d *catalog.Table, nums []int16) string {
	parts := make([]string, len(nums))
	for i, n := range nums {
		c := d.ByNum(n)
		parts[i] = c.Indexed()
	}
	return strings.Join(parts, ", ")
}

// setClause translates SET a = x, (b, c) = (y, z).
func (t *change) setClause(list []*pg.Node, noSubquery bool) string {
	d := t.out.Table
	var parts []string
	seen := map[string]bool{}
	reads := t.aliases
	for _, n := range list {
		rt := n.GetResTarget()
		c := d.Column(rt.Name)
		if c == nil {
			t.failAt(rt.Location, sqlstate.UndefinedColumn, "column \"%s\" of relation \"%s\" does not exist", rt.Name, d.Name)
		}
		if seen[rt.Name] {
			fault.Raisef(sqlstate.SyntaxError, "multiple assignments to same column \"%s\"", rt.Name)
		}
		if len(rt.Indirection) > 0 {
			fault.Refuse("CLV-2169", "assignment to a part of a column")
		}
		seen[rt.Name] = true
		var e expr
		t.scope.sel.clause = "UPDATE"
		switch v := rt.Val.GetNode().(type) {
		case *pg.Node_SetToDefault:
			e = t.defaultOf(d, c)
		case *pg.Node_MultiAssignRef:
			row := v.MultiAssignRef.Source.GetRowExpr()
			if row == nil {
				fault.Refuse("CLV-2174", "SET (...) = (SELECT ...)")
			}
			if len(row.Args) != int(v.MultiAssignRef.Ncolumns) {
				fault.Raisef(sqlstate.SyntaxError, "number of columns does not match number of values")
			}
			src := row.Args[v.MultiAssignRef.Colno-1]
			if src.GetSetToDefault() != nil {
				e = t.defaultOf(d, c)
			} else {
				e = t.assign(t.expr(src), c, nodeLocation(src))
			}
		default:
			e = t.assign(t.expr(rt.Val), c, nodeLocation(rt.Val))
		}
		t.scope.sel.clause = ""
		parts = append(parts, quote.Ident(c.Name)+" = "+e.sql)
	}
	if noSubquery && t.aliases != reads {
		fault.Refuse("CLV-2173", "a subquery in ON CONFLICT DO UPDATE")
	}
	return strings.Join(parts, ", ")
}

func (t *change) returning(list []*pg.Node) {
	p, r, b := t.out, t.target, &t.sql
	if len(list) == 0 {
		if p.OnceEach {
			b.WriteString(" RETURNING rowid")
		}
		return
	}
	for i := range r.cols {
		r.cols[i].sql = quote.Ident(p.Table.SQLName()) + "." + quote.Ident(p.Table.Live()[i].Name)
	}
	saved := t.scope.rtes
	t.scope.rtes = []*rte{r}
	t.scope.sel.clause = "RETURNING"
	targets := t.targetList(list, queryOptions{resolve: true})
	t.scope.sel.clause = ""
	t.scope.rtes = saved
	var parts []string
	for i := range targets {
		targets[i].e = t.resolveText(targets[i].e)
		parts = append(parts, targets[i].e.sql)
	}
	p.Columns, p.Returns = columnsOf(targets), true
	if p.OnceEach {
		parts = append(parts, "rowid")
	}
	b.WriteString(" RETURNING " + strings.Join(parts, ", "))
}

func (t *change) update(s *pg.UpdateStmt) {
	p := t.out
	p.Write, p.Tag = true, "UPDATE"
	t.push()
	defer t.pop()
	with := t.withClause(s.WithClause)
	d, r := t.dmlTarget(s.Relation)
	p.Table, t.target = d, r
	t.addRTE(t.scope, r, -1)
	b := &t.sql
	from, rtes := t.from(s.FromClause)
	t.scope.rtes = append(t.scope.rtes, rtes...)
	set := t.setClause(s.TargetList, false)
	where := ""
	if s.WhereClause != nil {
		if s.WhereClause.GetCurrentOfExpr() != nil {
			fault.Refuse("CLV-2175", "WHERE CURRENT OF")
		}
		where = " WHERE " + t.where(s.WhereClause)
	}
	b.WriteString(with + "UPDATE main." + quote.Ident(d.SQLName()) + " AS r0 SET " + set)
	if from != "" {
		b.WriteString(" FROM " + from)
	} else if t.reads[d.OID] {
		// With FROM, SQLite computes all new rows before it writes the first, so
		// that a subquery sees the table as it was when the statement began.
		b.WriteString(" FROM (SELECT 1)")
	}
	b.WriteString(where)
	t.returningTarget(s.ReturningList)
	p.SQL = b.String()
}

// returningTarget is RETURNING of UPDATE and DELETE: only the target's columns.
func (t *change) returningTarget(list []*pg.Node) {
	if len(list) == 0 {
		return
	}
	others := len(t.scope.rtes) > 1
	if others {
		for _, n := range list {
			if c := n.GetResTarget().Val.GetColumnRef(); c != nil && len(c.Fields) == 1 && c.Fields[0].GetAStar() != nil {
				fault.Refuse("CLV-2176", "RETURNING * with FROM or USING")
			}
			t.ambiguous(n.ProtoReflect())
		}
	}
	defer func() {
		if x := recover(); x != nil {
			if err := fault.Of(x); err != nil && others {
				switch sqlstate.CodeOf(err) {
				case sqlstate.UndefinedColumn, sqlstate.UndefinedTable:
					fault.Refuse("CLV-2177", "RETURNING columns of the tables in FROM or USING")
				}
			}
			panic(x)
		}
	}()
	t.returning(list)
}

// ambiguous fails for a column without a table's name that several tables have: the
// scope of RETURNING knows the target alone.
func (t *scopes) ambiguous(m protoreflect.Message) {
	switch v := m.Interface().(type) {
	case *pg.SelectStmt:
		return
	case *pg.ColumnRef:
		if len(v.Fields) != 1 {
			return
		}
		name, found := v.Fields[0].GetString_().GetSval(), 0
		for _, r := range t.scope.rtes {
			if slices.ContainsFunc(r.cols, func(c rteCol) bool { return c.name == name }) {
				found++
			}
		}
		if found > 1 {
			t.failAt(v.Location, sqlstate.AmbiguousColumn, "column reference \"%s\" is ambiguous", name)
		}
	}
	prototree.EachField(m, func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Kind() != protoreflect.MessageKind:
		case fd.IsList():
			for i := range v.List().Len() {
				t.ambiguous(v.List().Get(i).Message())
			}
		default:
			t.ambiguous(v.Message())
		}
		return true
	})
}

// from translates FROM of UPDATE and USING of DELETE.
func (t *change) from(list []*pg.Node) (string, []*rte) {
	var parts []string
	var out []*rte
	for _, f := range list {
		saved := t.scope.rtes
		sql, rtes := t.fromItem(f)
		t.scope.rtes = saved
		if f.GetJoinExpr() != nil && len(list) > 1 {
			sql = "(" + sql + ")"
		}
		parts = append(parts, sql)
		for _, r := range rtes {
			for _, o := range append(append([]*rte{}, t.scope.rtes...), out...) {
				if r.alias != "" && o.alias == r.alias {
					fault.Raisef("42712", "table name \"%s\" specified more than once", r.alias)
				}
			}
			out = append(out, r)
		}
	}
	return strings.Join(parts, ", "), out
}

func (t *change) delete(s *pg.DeleteStmt) {
	p := t.out
	p.Write, p.Tag = true, "DELETE"
	t.push()
	defer t.pop()
	with := t.withClause(s.WithClause)
	d, r := t.dmlTarget(s.Relation)
	p.Table, t.target = d, r
	t.addRTE(t.scope, r, -1)
	from, rtes := t.from(s.UsingClause)
	t.scope.rtes = append(t.scope.rtes, rtes...)
	where := ""
	if s.WhereClause != nil {
		if s.WhereClause.GetCurrentOfExpr() != nil {
			fault.Refuse("CLV-2175", "WHERE CURRENT OF")
		}
		where = " WHERE " + t.where(s.WhereClause)
	}
	b := &t.sql
	b.WriteString(with + "DELETE FROM main." + quote.Ident(d.SQLName()))
	if from == "" {
		b.WriteString(" AS r0" + where)
	} else {
		if d.Column("rowid") != nil {
			fault.Refuse("CLV-2178", "DELETE USING of a table with a column rowid")
		}
		b.WriteString(" WHERE rowid IN (SELECT r0.rowid FROM main." + quote.Ident(d.SQLName()) + " AS r0, " + from + where + ")")
	}
	t.returningTarget(s.ReturningList)
	p.SQL = b.String()
}
