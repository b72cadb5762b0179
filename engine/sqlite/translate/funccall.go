package translate

import (
	"fmt"
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// funcCall is one call in a statement.
type funcCall struct {
	t *Translator
	f *pg.FuncCall
}

// funcCall translates a call of a function, an aggregate or a window function.
func (t *Translator) funcCall(f *pg.FuncCall) expr {
	nif := t.nullIsFalse
	t.nullIsFalse = false
	defer func() { t.nullIsFalse = nif }()
	c := funcCall{t, f}
	name, e, done := c.called()
	if done {
		return e
	}
	args, suffix := c.arguments(name, isAggregate(name))
	if slices.ContainsFunc(args, func(a expr) bool { return a.row != nil }) {
		fault.Refuse("CLV-2086", "a row as an argument")
	}
	types := typesOf(args)
	if f.AggStar && len(args) == 0 && name != "count" {
		t.noFunction(name, types, false, f.Location)
	}
	cand, ambiguous := value.Builtin.Call(name, types, f.FuncVariadic)
	if cand == nil {
		t.noFunction(name, types, ambiguous, f.Location)
	}
	if cand.Cast != nil {
		e := t.coerce(args[0], cand.Cast.OID, -1, pgcatalog.Explicit)
		e.name = name
		return e
	}
	p := cand.Function
	if p.Volatile == 'v' {
		t.volatile++
	}
	texts := make([]string, len(args))
	for i, a := range args {
		texts[i] = a.sql
	}
	r := polymorphic(cand.Args, args, p.Result)
	for i := range args {
		args[i] = t.coerce(args[i], r.args[i], -1, pgcatalog.Implicit)
	}
	e = expr{typ: r.result, mod: -1, name: name}
	if p.Set {
		fault.Refuse("CLV-2087", "the set-returning function %s outside FROM", name)
	}
	if value.ClassOf(e.typ) == value.ClassNone {
		fault.Raise(noValues(e.typ))
	}
	if p.Kind == 'a' || p.Kind == 'w' {
		return c.aggregate(e, p, args, texts, suffix)
	}
	return c.plain(e, cand, args, suffix.order)
}

// isAggregate reports whether an aggregate has the name.
func isAggregate(name string) bool {
	for p := range value.Builtin.Functions(name) {
		if p.Kind == 'a' {
			return true
		}
	}
	return false
}

// called is the name of the function that is called. done: it is one of Cleave's own, and e the call.
func (c funcCall) called() (name string, e expr, done bool) {
	var parts []string
	for _, p := range c.f.Funcname {
		parts = append(parts, p.GetString_().GetSval())
	}
	name = parts[len(parts)-1]
	if len(parts) == 2 && parts[0] == "cleave_internal" || len(parts) == 1 && name == "uuidv7" {
		if e, ok := c.t.routerFunction(c.f, name); ok {
			return name, e, true
		}
	}
	if len(parts) > 2 || len(parts) == 2 && parts[0] != catalog.SchemaPgCatalog {
		c.notInCatalog(parts)
	}
	if name == "hash_record_extended" {
		if e, ok := c.t.recordHash(c.f); ok {
			return name, e, true
		}
	}
	return name, e, false
}

// notInCatalog fails for a function of a schema other than pg_catalog: a file has none.
func (c funcCall) notInCatalog(parts []string) {
	if parts[0] == catalog.SchemaInformation && parts[len(parts)-1] == "_pg_expandarray" {
		fault.Refuse("CLV-2088", "_pg_expandarray")
	}
	if len(parts) == 2 && c.t.Names.Catalog.Schemas[parts[0]] == nil {
		c.t.failAt(c.f.Location, sqlstate.InvalidSchemaName, "schema \"%s\" does not exist", parts[0])
	}
	c.t.noFunction(strings.Join(parts, "."), nil, false, c.f.Location)
}

// callSuffix is what stands behind an aggregate's arguments.
type callSuffix struct{ order, filter string }

// arguments translates the arguments of a call, and with them FILTER and ORDER BY. Arguments of an aggregate (not of a window
// function) may use any column.
func (c funcCall) arguments(name string, isAgg bool) (args []expr, suffix callSuffix) {
	var sel *selectState
	if c.t.scope != nil {
		sel = c.t.scope.sel
	}
	grouping := isAgg && c.f.Over == nil
	if grouping {
		c.mayAggregate(sel)
		sel.inAgg++
	}
	if c.f.Over != nil {
		c.mayWindow(sel)
		sel.inWindow++
	}
	before := c.t.columnUses()
	args = c.t.exprs(c.f.Args)
	if c.f.AggFilter != nil {
		if !isAgg {
			c.t.failAt(c.f.Location, sqlstate.WrongObjectType, "FILTER specified, but %s is not an aggregate function", name)
		}
		suffix.filter = " FILTER (WHERE " + c.t.boolean(c.f.AggFilter, "FILTER").sql + ")"
	}
	if len(c.f.AggOrder) > 0 {
		if c.f.AggWithinGroup {
			fault.Refuse("CLV-2089", "WITHIN GROUP")
		}
		suffix.order = c.t.sortList(c.f.AggOrder, "an aggregate's ORDER BY")
	}
	if grouping {
		sel.inAgg--
		sel.hasAgg = true
		if after := c.t.columnUses(); len(after) > 1 && after[0] == before[0] && !slices.Equal(after[1:], before[1:]) {
			fault.Refuse("CLV-2090", "an aggregate of an outer query's columns")
		}
	}
	return args, suffix
}

// mayAggregate fails where an aggregate cannot stand.
func (c funcCall) mayAggregate(sel *selectState) {
	switch {
	case sel == nil:
		c.t.failAt(c.f.Location, "42803", "aggregate functions are not allowed here")
	case sel.clause != "" && c.t.scope.parent != nil:
		fault.Refuse("CLV-2091", "an aggregate in %s of a subquery", sel.clause)
	case sel.clause != "":
		c.t.failAt(c.f.Location, "42803", "aggregate functions are not allowed in %s", sel.clause)
	case sel.inAgg > 0:
		c.t.failAt(c.f.Location, "42803", "aggregate function calls cannot be nested")
	}
}

// mayWindow fails where a window function cannot stand.
func (c funcCall) mayWindow(sel *selectState) {
	switch {
	case sel == nil:
		c.t.failAt(c.f.Location, "42P20", "window functions are not allowed in %s", "this clause")
	case sel.clause != "":
		c.t.failAt(c.f.Location, "42P20", "window functions are not allowed in %s", sel.clause)
	case sel.inWindow > 0:
		c.t.failAt(c.f.Location, "42P20", "window function calls cannot be nested")
	case sel.inAgg > 0:
		c.t.failAt(c.f.Location, "42803", "aggregate function calls cannot contain window function calls")
	}
}

// aggregate is the call of an aggregate or of a window function. texts are the arguments before they were coerced.
func (c funcCall) aggregate(e expr, p *pgcatalog.Function, args []expr, texts []string, suffix callSuffix) expr {
	if p.Kind == 'w' && c.f.Over == nil {
		c.t.failAt(c.f.Location, sqlstate.WrongObjectType, "window function %s requires an OVER clause", e.name)
	}
	em := aggregates[p.Signature()]
	if em == nil {
		unsupportedFunction(p)
	}
	sql := em(c.t, args)
	if c.f.AggDistinct {
		sql = c.distinct(sql, e.name, args, texts)
	}
	if suffix.order != "" {
		sql = sql[:len(sql)-1] + " ORDER BY " + suffix.order + ")"
	}
	sql += suffix.filter
	if c.f.Over != nil {
		sel := c.t.scope.sel
		sel.hasWindow = true
		if c.f.AggDistinct {
			c.t.failAt(c.f.Location, sqlstate.FeatureNotSupported, "DISTINCT is not implemented for window functions")
		}
		if suffix.order != "" {
			c.t.failAt(c.f.Location, sqlstate.FeatureNotSupported, "aggregate ORDER BY is not implemented for window functions")
		}
		sql += " OVER " + c.t.windowSpec(c.f.Over)
		sel.inWindow--
	} else {
		e.aggregate = true
	}
	if e.typ == pgoid.Numeric && strings.HasPrefix(sql, "m") {
		sql = "(" + sql + ")"
	}
	e.sql = "(" + sql + ")"
	return e
}

// distinct puts DISTINCT into the call of an aggregate.
func (c funcCall) distinct(sql, name string, args []expr, texts []string) string {
	if len(args) != 1 && !strings.HasPrefix(sql, "count(") {
		fault.Refuse("CLV-2092", "%s (DISTINCT ...) of several arguments", name)
	}
	for _, n := range c.f.AggOrder {
		if !slices.Contains(texts, c.t.expr(n.GetSortBy().GetNode()).sql) {
			c.t.failAt(nodeLocation(n.GetSortBy().GetNode()), "42P10", "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list")
		}
	}
	if !value.Comparable(args[0].typ) {
		fault.Refuse("CLV-2093", "DISTINCT of %s", value.TypeName(args[0].typ))
	}
	if strings.HasPrefix(sql, "cleave_array_agg") {
		fault.Refuse("CLV-2094", "array_agg(DISTINCT ...)")
	}
	open := strings.IndexByte(sql, '(')
	return sql[:open+1] + "DISTINCT " + sql[open+1:]
}

// plain is the call of a function that is neither an aggregate nor a window function.
func (c funcCall) plain(e expr, cand *pgcatalog.Match, args []expr, order string) expr {
	p := cand.Function
	if c.f.Over != nil {
		c.t.failAt(c.f.Location, sqlstate.WrongObjectType, "OVER specified, but %s is not a window function nor an aggregate function", e.name)
	}
	if c.f.AggStar || c.f.AggDistinct || order != "" {
		c.t.failAt(c.f.Location, sqlstate.WrongObjectType, "DISTINCT specified, but %s is not an aggregate function", e.name)
	}
	em := emitters[p.Signature()]
	if em == nil && len(args) == 1 {
		// The functions behind casts can be called by name.
		if k := value.Builtin.Cast(args[0].typ, p.Result); k != nil && k.Function == p.OID {
			cast := c.t.cast(args[0], p.Result)
			cast.name = e.name
			return cast
		}
	}
	if em == nil || c.f.FuncVariadic || cand.Expanded > 0 && !variadicEmitters[p.Signature()] {
		unsupportedFunction(p)
	}
	e.constant = p.Volatile == 'i'
	for _, a := range args {
		e.constant = e.constant && a.constant
	}
	e.sql = em(c.t, args)
	return e
}

func unsupportedFunction(p *pgcatalog.Function) {
	fault.Raise(sqlstate.Refusal("CLV-2095", "the function %s is not supported on a SQLite shard", p.Signature()).
		WithHint("See docs/sql-sqlite.md, or use a PostgreSQL shard."))
}

// columnUses counts the columns used so far, this scope's first.
func (t *scopes) columnUses() []int {
	var out []int
	for s := t.scope; s != nil; s = s.parent {
		out = append(out, s.sel.uses)
	}
	return out
}

func (t *place) noFunction(name string, types []uint32, ambiguous bool, loc int32) {
	names := make([]string, len(types))
	for i, ty := range types {
		names[i] = value.TypeName(ty)
	}
	sig := name + "(" + strings.Join(names, ", ") + ")"
	if ambiguous {
		fault.Raise(t.at(loc, sqlstate.New("42725", "function %s is not unique", sig).
			WithHint("Could not choose a best candidate function. You might need to add explicit type casts.")))
	}
	fault.Raise(t.at(loc, sqlstate.New(sqlstate.UndefinedFunction, "function %s does not exist", sig).
		WithHint("No function matches the given name and argument types. You might need to add explicit type casts.")))
}

// sortList translates ORDER BY of aggregates and windows.
func (t *Translator) sortList(list []*pg.Node, where string) string {
	parts := make([]string, len(list))
	for i, n := range list {
		s := n.GetSortBy()
		e := t.resolveText(t.expr(s.Node))
		parts[i] = sortKey(e, comparandKey(e, where), s)
	}
	return strings.Join(parts, ", ")
}

func comparandKey(e expr, where string) string {
	if !value.Comparable(e.typ) && value.ClassOf(e.typ) != value.ClassBpchar {
		fault.Raise(sqlstate.Refusal("CLV-2096", "a SQLite shard cannot order %s exactly (in %s)", value.TypeName(e.typ), where).
			WithHint("Order by a cast of it: see docs/sql-sqlite.md."))
	}
	return comparand(e)
}

// sortKey adds direction and the place of NULLs, which SQLite has the other way round.
func sortKey(e expr, key string, s *pg.SortBy) string {
	if len(s.UseOp) > 0 {
		fault.Refuse("CLV-2097", "ORDER BY ... USING")
	}
	desc := s.SortbyDir == pg.SortByDir_SORTBY_DESC
	first := desc
	switch s.SortbyNulls {
	case pg.SortByNulls_SORTBY_NULLS_FIRST:
		first = true
	case pg.SortByNulls_SORTBY_NULLS_LAST:
		first = false
	}
	if desc {
		key += " DESC"
	}
	if !e.notNull {
		switch {
		case first && desc:
			key += " NULLS FIRST"
		case !first && !desc:
			key += " NULLS LAST"
		}
	}
	return key
}

// Frame options of PostgreSQL's parse tree (parsenodes.h).
const (
	frameNonDefault       = 0x00001
	frameRange            = 0x00002
	frameRows             = 0x00004
	frameGroups           = 0x00008
	frameBetween          = 0x00010
	frameStartUnboundedP  = 0x00020
	frameEndUnboundedP    = 0x00040
	frameStartUnboundedF  = 0x00080
	frameEndUnboundedF    = 0x00100
	frameStartCurrent     = 0x00200
	frameEndCurrent       = 0x00400
	frameStartOffsetP     = 0x00800
	frameEndOffsetP       = 0x01000
	frameStartOffsetF     = 0x02000
	frameEndOffsetF       = 0x04000
	frameExcludeCurrent   = 0x08000
	frameExcludeGroup     = 0x10000
	frameExcludeTies      = 0x20000
	frameExclusionOptions = frameExcludeCurrent | frameExcludeGroup | frameExcludeTies
)

func (t *Translator) windowSpec(w *pg.WindowDef) string {
	named := len(w.PartitionClause) == 0 && len(w.OrderClause) == 0 && w.FrameOptions&frameNonDefault == 0
	if w.Name != "" && named {
		spec, ok := t.scope.sel.windows[w.Name]
		if !ok {
			t.failAt(w.Location, sqlstate.UndefinedObject, "window \"%s\" does not exist", w.Name)
		}
		return spec
	}
	if w.Refname != "" {
		if spec, ok := t.scope.sel.windows[w.Refname]; ok && named {
			return spec
		}
		fault.Refuse("CLV-2098", "a window that extends another")
	}
	var parts []string
	if len(w.PartitionClause) > 0 {
		var keys []string
		for _, n := range w.PartitionClause {
			e := t.resolveText(t.expr(n))
			keys = append(keys, comparandKey(e, "PARTITION BY"))
		}
		parts = append(parts, "PARTITION BY "+strings.Join(keys, ", "))
	}
	if len(w.OrderClause) > 0 {
		parts = append(parts, "ORDER BY "+t.sortList(w.OrderClause, "a window's ORDER BY"))
	}
	if w.FrameOptions&frameNonDefault != 0 {
		parts = append(parts, windowFrame(w))
	}
	return "(" + strings.Join(parts, " ") + ")"
}

// frameWords are the words of a window frame for its options; the first that is set counts.
type frameWords []struct {
	option int32
	word   string
}

func (f frameWords) of(options int32, others string) string {
	for _, w := range f {
		if options&w.option != 0 {
			return w.word
		}
	}
	return others
}

var (
	frameModes  = frameWords{{frameRows, "ROWS"}, {frameGroups, "GROUPS"}}
	frameStarts = frameWords{{frameStartUnboundedP, "UNBOUNDED PRECEDING"}, {frameStartCurrent, "CURRENT ROW"},
		{frameStartOffsetP, "%s PRECEDING"}, {frameStartOffsetF, "%s FOLLOWING"}}
	frameEnds     = frameWords{{frameEndUnboundedF, "UNBOUNDED FOLLOWING"}, {frameEndOffsetP, "%s PRECEDING"}, {frameEndOffsetF, "%s FOLLOWING"}}
	frameExcludes = frameWords{{frameExcludeCurrent, " EXCLUDE CURRENT ROW"}, {frameExcludeGroup, " EXCLUDE GROUP"}, {frameExcludeTies, " EXCLUDE TIES"}}
)

// windowFrame is the frame of a window that has not the default one.
func windowFrame(w *pg.WindowDef) string {
	mode := frameModes.of(w.FrameOptions, "RANGE")
	bound := func(word string, offset *pg.Node) string {
		if !strings.HasPrefix(word, "%s") {
			return word
		}
		v, ok := syntax.Int(offset)
		if !ok || v < 0 || mode == "RANGE" {
			fault.Refuse("CLV-2099", "a window frame with this offset")
		}
		return fmt.Sprintf(word, fmt.Sprint(v))
	}
	start := bound(frameStarts.of(w.FrameOptions, ""), w.StartOffset)
	end := bound(frameEnds.of(w.FrameOptions, "CURRENT ROW"), w.EndOffset)
	return mode + " BETWEEN " + start + " AND " + end + frameExcludes.of(w.FrameOptions, "")
}

// routerFunction translates the functions of the schema cleave_internal that stand in
// defaults: what routers evaluate fails here, so that nobody gets a value twice.
// uuidv7() needs no router.
func (t *Translator) routerFunction(f *pg.FuncCall, name string) (e expr, ok bool) {
	if f.AggStar || f.AggDistinct || f.Over != nil || f.AggFilter != nil || len(f.AggOrder) > 0 {
		return e, false
	}
	e = expr{typ: pgoid.Int8, mod: -1, name: name}
	switch {
	case name == "uuidv7" && len(f.Args) == 0:
		e.typ, e.sql = pgoid.UUID, "cleave_uuidv7()"
	case name == "next_id" && len(f.Args) == 0:
		e.sql = "cleave_router_value('')"
	case name == "nextval" && (len(f.Args) == 1 || len(f.Args) == 2) && constText(f.Args[0]) != nil:
		e.sql = "cleave_router_value(" + quote.Text(constText(f.Args[0]).Sval) + ")"
	default:
		return e, false
	}
	t.volatile++
	return e, true
}

// constText is a text constant, also with the cast to text by which PostgreSQL prints it; nil for all else.
func constText(n *pg.Node) *pg.String {
	if c := n.GetTypeCast(); c != nil && syntax.LastName(c.TypeName) == "text" {
		n = c.Arg
	}
	return n.GetAConst().GetSval()
}

// recordHash is hash_record_extended(ROW(x), seed) of a date or a bytea, which is
// how PostgreSQL is asked for the hash of those (keyspace.HashExpr). Other rows
// are not known here.
func (t *Translator) recordHash(f *pg.FuncCall) (expr, bool) {
	if len(f.Args) != 2 || f.Over != nil || len(f.Args[0].GetRowExpr().GetArgs()) != 1 {
		return expr{}, false
	}
	x := t.expr(f.Args[0].GetRowExpr().Args[0])
	if x.typ != pgoid.Date && x.typ != pgoid.Bytea {
		return expr{}, false
	}
	seed := t.coerce(t.expr(f.Args[1]), pgoid.Int8, -1, pgcatalog.Implicit)
	return expr{sql: call("cleave_hash_extended", x.sql, seed.sql, int64(x.typ)), typ: pgoid.Int8, mod: -1, name: "hash_record_extended"}, true
}
