package planner

import (
	"slices"
	"strings"
	"unsafe"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/ownership"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// CopyPlan is how COPY is carried out over several shards: FROM STDIN splits the
// client's rows, TO STDOUT puts those of the shards one after the other.
type CopyPlan struct {
	// Table is nil for COPY (query) TO STDOUT, Source its query.
	Table  *shardmap.Table
	Source *Statement

	// Text is what a shard runs. TO: Next is that of the shards after the first,
	// without a header. Of a query it is the same COPY of no rows, to have the options checked.
	Text, Next string

	own, ownNext *ownership.Filter // of them, see On

	CopyFormat

	// Columns are the columns named, in their order; nil: all of the table.
	Columns []string
	// KeyAt is the place of each column of the shard key among the values of a
	// client's row; -1-n is value n of Made. Keys says what the columns do to a value.
	KeyAt []int
	Keys  []KeyExpr
	// Made are values that the router makes for each row, for the columns MadeFor,
	// which the text names before the client's.
	Made    []FillValue
	MadeFor []*shardmap.Column
	// Timed are the defaults of the last columns of MadeFor, which depend on the time
	// at which the transaction began: parameter 1. All rows get the same.
	Timed []string
	// Omitted are the columns of a reference table that the rows have no value for:
	// their defaults have to be constants.
	Omitted []string
}

// CopyFormat is the form of the data.
type CopyFormat struct {
	CSV, Binary              bool
	Header, Match            bool // the first line names the columns; they have to match
	Delimiter, Quote, Escape byte
	Null                     string
	// Default stands for a column's default in a row; HasDefault says that there is such a mark.
	Default    string
	HasDefault bool
	// ForceNull and ForceNotNull name columns, ForceQuote too; "*" is all.
	ForceNull, ForceNotNull, ForceQuote []string
}

// Forced reports whether a list of columns as in FORCE_NULL has the column.
func Forced(list []string, column string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, column)
}

// planCopy plans COPY of a table that is not on one shard alone.
func (wp *writePlans) planCopy(n *pg.Node) (*Plan, error) {
	c := n.GetCopyStmt()
	t := wp.relation(c.Relation).table
	if t == nil {
		return nil, nil
	}
	p := &CopyPlan{Table: t, Columns: sqltree.Strings(c.Attlist)}
	copyFormat(&p.CopyFormat, c.Options)
	where := Target{Where: KeyShards, Keyspace: t.Keyspace}
	switch t.Kind {
	case shardmap.Reference:
		where = Target{Where: Every}
	case shardmap.Whole:
		where = Target{Where: Default}
	}
	if !c.IsFrom {
		p.Text = wp.written(n)
		first := sqltree.Clone(n)
		next := first.GetCopyStmt()
		next.Options = slices.DeleteFunc(next.Options, func(o *pg.Node) bool { return o.GetDefElem().GetDefname() == "header" })
		p.Next = wp.written(first)
		if t.Kind == shardmap.Sharded {
			u := &use{ref: c.Relation, rel: relation{table: t}}
			p.own, p.ownNext = ownershipOf(n, p.Text, u), ownershipOf(first, p.Next, u)
		}
		return &Plan{Op: CopyOut, Copy: p, Target: where, Why: "the shards' rows, one after the other"}, nil
	}
	if c.WhereClause != nil {
		before := wp.texts.clock
		wp.texts.clock = false
		wp.clocked(sqltree.Clone(n))
		if wp.texts.clock {
			fail(sqlstate.Refusal("CLV-0410", "the transaction's time in WHERE of a COPY to several shards is not supported").
				WithHint("Write the time as a constant."))
		}
		wp.texts.clock = before
		if t.Kind == shardmap.Reference && wp.isVolatile(n) {
			fail(sqlstate.Refusal("CLV-0411", "a volatile function in WHERE of a COPY to the reference table %s could choose other rows on each shard", sqltext.QuoteName(t.Schema, t.Name)).
				WithHint("Copy all rows, and delete some afterwards."))
		}
	}
	from := sqltree.Clone(n).GetCopyStmt()
	if len(p.Columns) > 0 {
		var made []*pg.Node
		for _, g := range generated(t) {
			if !slices.Contains(p.Columns, g.Name) {
				p.Made, p.MadeFor = append(p.Made, wp.makes(t, g)), append(p.MadeFor, g)
				made = append(made, sqltree.StringNode(g.Name))
			}
		}
		for _, col := range leftOut(t, p.Columns) {
			expr := clockDefault(col)
			if wp.differsByRow(expr) {
				fail(sqlstate.Refusal("CLV-0614", "the default of column %s depends on the transaction's time and is another for each row", sqltext.QuoteIdent(col.Name)).
					WithHint("Give the column in the COPY."))
			}
			text := wp.written(sqltree.SelectOf([]*pg.Node{wp.clocked(expr)}, nil, nil))
			p.Timed, p.MadeFor = append(p.Timed, "("+strings.TrimPrefix(text, "SELECT ")+")::"+col.Type), append(p.MadeFor, col)
			made = append(made, sqltree.StringNode(col.Name))
		}
		if p.HasDefault && len(clockColumns(t)) > 0 {
			fail(sqlstate.Refusal("CLV-0412", "the option DEFAULT of COPY is not supported over several shards for a table with a default that depends on the transaction's time").
				WithHint("Leave the option out, and give the values."))
		}
		from.Attlist = append(made, from.Attlist...)
		if t.Kind == shardmap.Reference {
			for _, col := range t.Columns {
				if !slices.Contains(p.Columns, col.Name) && !slices.ContainsFunc(p.MadeFor, func(g *shardmap.Column) bool { return g.Name == col.Name }) {
					p.Omitted = append(p.Omitted, col.Name)
				}
			}
		}
	}
	p.Text = wp.written(&pg.Node{Node: &pg.Node_CopyStmt{CopyStmt: from}})
	why := "each row goes to the shard that owns its key"
	switch t.Kind {
	case shardmap.Sharded:
		names := p.Columns
		if len(names) == 0 {
			names = columnNames(t)
		}
		for _, k := range t.ShardKey {
			at := slices.Index(names, k)
			if at < 0 {
				if at = slices.IndexFunc(p.MadeFor, func(g *shardmap.Column) bool { return g.Name == k }); at < 0 {
					fail(sqlstate.Refusal("CLV-0413", "COPY has no column %s, of the shard key of table %s", sqltext.QuoteIdent(k), sqltext.QuoteName(t.Schema, t.Name)).
						WithHint("Name it in the column list, and give its values."))
				}
				at = -1 - at
			}
			p.KeyAt = append(p.KeyAt, at)
		}
		wp.types = wp.keyTypes(t.Keyspace)
		p.Keys = wp.storedKeys(t)
	case shardmap.Reference:
		why = "every shard has the table's rows"
	default:
		why = "the router makes values of the rows"
	}
	return &Plan{Op: CopyIn, Copy: p, Target: where, Why: why}, nil
}

// planCopyQuery plans COPY (query) TO STDOUT whose query is one of several shards.
func (wp *writePlans) planCopyQuery(c *pg.CopyStmt) {
	p := &CopyPlan{}
	copyFormat(&p.CopyFormat, c.Options)
	text := wp.written(c.Query)
	st, err := wp.p.Analyze(text, wp.snap, wp.path)
	if err != nil {
		fail(err)
	}
	p.Source = st
	check := sqltree.Clone(&pg.Node{Node: &pg.Node_CopyStmt{CopyStmt: c}})
	cc := check.GetCopyStmt()
	cc.Query = &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: &pg.SelectStmt{LimitOption: pg.LimitOption_LIMIT_OPTION_DEFAULT, Op: pg.SetOperation_SETOP_NONE,
		TargetList: []*pg.Node{sqltree.TargetNode(stringConst(""), "")}, LimitCount: intConst(0)}}}
	cc.Query.GetSelectStmt().LimitOption = pg.LimitOption_LIMIT_OPTION_COUNT
	cc.Options = slices.DeleteFunc(cc.Options, func(o *pg.Node) bool {
		l := o.GetDefElem()
		return l.GetDefname() == "force_quote" && l.GetArg().GetList() != nil
	})
	p.Text = wp.written(check)
	wp.st.Plan = &Plan{Op: CopyOut, Copy: p, Why: "the rows of the query are written as COPY does"}
	if st.Plan != nil {
		wp.st.Plan.Target = st.Plan.Target
	}
}

func stringConst(s string) *pg.Node {
	return &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Val: &pg.A_Const_Sval{Sval: &pg.String{Sval: s}}}}}
}

func intConst(n int32) *pg.Node {
	return &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Val: &pg.A_Const_Ival{Ival: &pg.Integer{Ival: n}}}}}
}

// copyFormat reads the options as far as the router needs them. What PostgreSQL
// refuses, the shards refuse before a row is taken.
func copyFormat(f *CopyFormat, options []*pg.Node) {
	get := map[string]*pg.Node{}
	for _, o := range options {
		get[o.GetDefElem().GetDefname()] = o.GetDefElem().GetArg()
	}
	text := func(name, def string) string {
		n, ok := get[name]
		if !ok {
			return def
		}
		return n.GetString_().GetSval()
	}
	one := func(name string, def byte) byte {
		if s := text(name, ""); len(s) == 1 {
			return s[0]
		}
		return def
	}
	switch text("format", "text") {
	case "csv":
		f.CSV, f.Delimiter, f.Quote = true, one("delimiter", ','), one("quote", '"')
		f.Escape = one("escape", f.Quote)
		f.Null = text("null", "")
	case "binary":
		f.Binary = true
	default:
		f.Delimiter, f.Null = one("delimiter", '\t'), text("null", `\N`)
	}
	f.Default = text("default", "")
	_, f.HasDefault = get["default"]
	if h, ok := get["header"]; ok {
		f.Header = true
		switch v := h.GetNode().(type) {
		case *pg.Node_Integer:
			f.Header = v.Integer.Ival != 0
		case *pg.Node_Boolean:
			f.Header = v.Boolean.Boolval
		case *pg.Node_String_:
			switch strings.ToLower(v.String_.Sval) {
			case "match":
				f.Match = true
			case "false", "off", "0":
				f.Header = false
			}
		}
	}
	list := func(name string) []string {
		n := get[name]
		if n.GetAStar() != nil {
			return []string{"*"}
		}
		return sqltree.Strings(n.GetList().GetItems())
	}
	f.ForceNull, f.ForceNotNull, f.ForceQuote = list("force_null"), list("force_not_null"), list("force_quote")
	if e, ok := get["encoding"]; ok {
		switch strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(e.GetString_().GetSval())) {
		case "utf8", "unicode":
		default:
			fail(sqlstate.Refusal("CLV-0414", "COPY in the encoding %s is not supported over several shards", sqltext.QuoteString(e.GetString_().GetSval())).
				WithHint("Send the data as UTF8."))
		}
	}
	for _, name := range []string{"freeze", "on_error", "reject_limit"} {
		if _, ok := get[name]; ok {
			fail(sqlstate.Refusal("CLV-0415", "the option %s of COPY is not supported over several shards", strings.ToUpper(name)).
				WithHint("Leave it out."))
		}
	}
}

// Plain reports whether column i of the shard key takes any text as it is.
func (p *CopyPlan) Plain(i int) bool {
	return p.Keys[i].Type.IsText() && p.Keys[i].mod == keyspace.NoModifier
}

// Key is column i of the shard key as the table stores a value of a row; nil is
// NULL. The result may point into the value: it is good as long as that is.
// Errors: those of StoredKey, and 22P03.
func (p *CopyPlan) Key(i int, value []byte) (keyspace.Value, error) {
	e := &p.Keys[i]
	switch {
	case value == nil:
		return keyspace.Value{}, nullKey(p.Table, p.Table.ShardKey[i])
	case p.Binary:
		v, err := keyspace.ParseBinary(e.Type, value)
		if err != nil {
			return v, err
		}
		return e.mod.Coerce(v)
	}
	return StoredKey(p.Table, i, e, value)
}

// TextKey is Key of a column for which Plain is true, without a copy; valid has to
// be UTF-8 without zero bytes.
func (p *CopyPlan) TextKey(i int, valid []byte) keyspace.Value {
	return keyspace.Str(p.Keys[i].Type, unsafe.String(unsafe.SliceData(valid), len(valid)))
}

// Type is the type of column i of the shard key.
func (p *CopyPlan) Type(i int) keyspace.Type { return p.Keys[i].Type }
