package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// planCopy plans COPY of a table that is not on one shard alone.
func (wp *writePlans) planCopy(n *pg.Node) (*plan.Plan, error) {
	c := n.GetCopyStmt()
	t := wp.relation(c.Relation).table
	if t == nil {
		return nil, nil
	}
	p := &plan.CopyPlan{Table: t, Columns: sqltree.Strings(c.Attlist)}
	copyFormat(&p.CopyFormat, c.Options)
	where := plan.Target{Where: plan.KeyShards, Keyspace: t.Keyspace}
	switch t.Kind {
	case shardmap.Reference:
		where = plan.Target{Where: plan.Every}
	case shardmap.Whole:
		where = plan.Target{Where: plan.Default}
	}
	if !c.IsFrom {
		p.Text = wp.written(n)
		first := sqltree.Clone(n)
		next := first.GetCopyStmt()
		next.Options = slices.DeleteFunc(next.Options, func(o *pg.Node) bool { return o.GetDefElem().GetDefname() == "header" })
		p.Next = wp.written(first)
		if q := copyOfQuery(n, t); q != nil {
			p.AsQuery = wp.written(q)
		}
		if t.Kind == shardmap.Sharded {
			u := &use{ref: c.Relation, rel: relation{table: t}}
			p.Ownership, p.OwnershipNext = ownershipOf(n, p.Text, u), ownershipOf(first, p.Next, u)
		}
		return &plan.Plan{Op: plan.CopyOut, Copy: p, Target: where, Why: "the shards' rows, one after the other"}, nil
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
	return &plan.Plan{Op: plan.CopyIn, Copy: p, Target: where, Why: why}, nil
}

// planCopyQuery plans COPY (query) TO STDOUT whose query is one of several shards.
func (wp *writePlans) planCopyQuery(c *pg.CopyStmt) {
	p := &plan.CopyPlan{}
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
	wp.st.Plan = &plan.Plan{Op: plan.CopyOut, Copy: p, Why: "the rows of the query are written as COPY does"}
	if st.Plan != nil {
		wp.st.Plan.Target = st.Plan.Target
	}
}

// copyOfQuery is COPY table TO as a COPY of the query that gives its rows; nil if it names a generated column, which only the
// query could give.
func copyOfQuery(n *pg.Node, t *shardmap.Table) *pg.Node {
	n = sqltree.Clone(n)
	c := n.GetCopyStmt()
	names := sqltree.Strings(c.Attlist)
	for i := 0; len(c.Attlist) == 0 && i < len(t.Columns); i++ {
		if !t.Columns[i].Computed {
			names = append(names, t.Columns[i].Name)
		}
	}
	for _, o := range c.Options {
		if quoted := o.GetDefElem(); quoted.GetDefname() == "force_quote" && slices.ContainsFunc(sqltree.Strings(quoted.GetArg().GetList().GetItems()), func(s string) bool { return !slices.Contains(names, s) }) {
			return nil // an error, which names the table
		}
	}
	outputs := make([]*pg.Node, len(names))
	for i, name := range names {
		if slices.ContainsFunc(t.Columns, func(c shardmap.Column) bool { return c.Name == name && c.Computed }) {
			return nil
		}
		outputs[i] = sqltree.ColumnNode(name)
	}
	from := &pg.Node{Node: &pg.Node_RangeVar{RangeVar: c.Relation}}
	c.Query, c.Relation, c.Attlist = sqltree.SelectOf(outputs, []*pg.Node{from}, nil), nil, nil
	return n
}

func stringConst(s string) *pg.Node {
	return &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Val: &pg.A_Const_Sval{Sval: &pg.String{Sval: s}}}}}
}

func intConst(n int32) *pg.Node {
	return &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Val: &pg.A_Const_Ival{Ival: &pg.Integer{Ival: n}}}}}
}

// copyFormat reads the options as far as the router needs them. What PostgreSQL
// refuses, the shards refuse before a row is taken.
func copyFormat(f *plan.CopyFormat, options []*pg.Node) {
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
