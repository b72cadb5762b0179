package schema

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/planner/functions"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// What the map knows of views and functions is what the default shard's catalogue
// says after each statement that may have changed them: a renamed table or column, a
// CASCADE, a function's new body. So nothing has to be worked out from the text.

// viewsSQL and routinesSQL give one JSON value in hex, which survives any client_encoding.
const viewsSQL = `SELECT pg_catalog.encode(pg_catalog.convert_to(COALESCE(pg_catalog.json_agg(pg_catalog.json_build_object(
	'schema', n.nspname, 'name', c.relname, 'definition', pg_catalog.pg_get_viewdef(c.oid)) ORDER BY n.nspname, c.relname), '[]')::text, 'UTF8'), 'hex')
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind = 'v' AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'cleave_internal') AND n.nspname NOT LIKE 'pg\_t%'
AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS d WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = c.oid AND d.deptype = 'e')`

const routinesSQL = `SELECT pg_catalog.encode(pg_catalog.convert_to(COALESCE(pg_catalog.json_agg(pg_catalog.json_build_object(
	'Schema', n.nspname, 'Name', p.proname, 'Kind', p.prokind, 'Volatility', p.provolatile, 'Language', l.lanname,
	'Body', CASE WHEN p.prokind = 'a' THEN '' WHEN l.lanname = 'plpgsql' THEN pg_catalog.pg_get_functiondef(p.oid)
		WHEN l.lanname = 'sql' THEN @body ELSE '' END,
	'Defaults', COALESCE(pg_catalog.pg_get_expr(p.proargdefaults, 0), ''), 'Args', p.pronargs, 'Names', p.proargnames,
	'Types', pg_catalog.array_prepend(p.prorettype, COALESCE(p.proallargtypes, p.proargtypes::pg_catalog.oid[]))::pg_catalog.int8[],
	'Extension', COALESCE(e.extname, ''), 'Trigger', p.prorettype = 'pg_catalog.trigger'::pg_catalog.regtype) ORDER BY n.nspname, p.proname, p.oid), '[]')::text, 'UTF8'), 'hex')
FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang
LEFT JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.objid = p.oid AND d.deptype = 'e'
LEFT JOIN pg_catalog.pg_extension AS e ON e.oid = d.refobjid
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'cleave_internal')`

// bodySQL is a function's body in SQL: BEGIN ATOMIC and RETURN are kept as trees
// from version 14 on.
func bodySQL(version string) string {
	if major, _, _ := strings.Cut(version, "."); len(major) == 2 && major < "14" {
		return "p.prosrc"
	}
	return "COALESCE(pg_catalog.pg_get_function_sqlbody(p.oid), p.prosrc)"
}

// objects reads the views and functions of the default shard again, if a statement
// may have changed them, into the private map.
func (t *Tx) objects(ctx context.Context, p *part, d *plan.DDL) error {
	stale := t.state.FunctionsRead != semantics.FunctionRules
	if !d.Objects && !stale && len(t.state.Views) == 0 {
		return nil
	}
	if !p.can.Catalogue {
		return t.fileViews(ctx, p)
	}
	var views []shardmap.View
	known, acting := t.state.Functions, t.state.Acting
	err := p.printed(ctx, func() (err error) {
		if err := p.json(ctx, viewsSQL, &views); err != nil {
			return err
		}
		if !d.Objects && !stale {
			return nil
		}
		var all []functions.Source
		if err := p.json(ctx, strings.Replace(routinesSQL, "@body", bodySQL(p.conn.Parameter("server_version")), 1), &all); err != nil {
			return err
		}
		known = functions.Pure(all)
		// What other rules said of a function does not count.
		if err := keptPure(t.state.Functions, known, all); err != nil && !stale {
			return err
		}
		acting, err = p.acting(ctx, functions.Acting(all))
		return err
	})
	if err != nil {
		return err
	}
	return t.keepObjects(views, known, acting)
}

// acting reports whether something that is not a function itself depends on one of them: a trigger, a rule, a policy, a default, an operator.
func (p *part) acting(ctx context.Context, functions [][2]string) (bool, error) {
	if len(functions) == 0 {
		return false, nil
	}
	var names []string
	for _, f := range functions {
		names = append(names, "("+quote(f[0])+", "+quote(f[1])+")")
	}
	res, err := p.run(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_depend AS d JOIN pg_catalog.pg_proc AS p ON p.oid OPERATOR(pg_catalog.=) d.refobjid
		JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
		WHERE d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.classid OPERATOR(pg_catalog.<>) 'pg_catalog.pg_proc'::pg_catalog.regclass
		AND d.deptype IN ('n', 'a') AND (n.nspname::pg_catalog.text, p.proname::pg_catalog.text) IN (`+strings.Join(names, ", ")+"))")
	if err != nil {
		return false, err
	}
	return res.Rows[0][0].String == "t", nil
}

// fileViews reads the views of a SQLite shard, whose queries name their schemas.
func (t *Tx) fileViews(ctx context.Context, p *part) error {
	res, err := p.run(ctx, "SELECT n.nspname, c.relname, pg_catalog.pg_get_viewdef(c.oid) FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "+
		"WHERE c.relkind = 'v' AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY n.nspname, c.relname")
	if err != nil {
		return err
	}
	var views []shardmap.View
	for _, row := range res.Rows {
		views = append(views, shardmap.View{Schema: row[0].String, Name: row[1].String, Definition: row[2].String})
	}
	return t.keepObjects(views, t.state.Functions, false)
}

// keepObjects takes the views and functions into the private map.
func (t *Tx) keepObjects(views []shardmap.View, functions []shardmap.Function, acting bool) error {
	for i := range views {
		views[i].Definition = strings.TrimRight(strings.TrimSpace(views[i].Definition), ";")
		// A view that came to be before Cleave did, and a table of the map of its
		// name that some other session has just dropped: the table counts.
		if _, ok := t.over.Table(views[i].Schema, views[i].Name); ok {
			views[i].Name = ""
		}
	}
	views = slices.DeleteFunc(views, func(v shardmap.View) bool { return v.Name == "" || len(v.Definition) > shardmap.MaxDefinitionBytes })
	if len(views) == 0 {
		views = nil
	}
	if len(functions) == 0 {
		functions = nil
	}
	if slices.Equal(views, t.state.Views) && slices.Equal(functions, t.state.Functions) && t.state.FunctionsRead == semantics.FunctionRules && t.state.Acting == acting {
		return nil
	}
	t.state.Views, t.state.Functions, t.seen = views, functions, true
	t.state.FunctionsRead, t.state.Acting = semantics.FunctionRules, acting
	return t.refresh()
}

// keptPure refuses that a function which was known to read no table becomes one that
// may: triggers, defaults and checks of sharded tables may rely on it.
func keptPure(was, is []shardmap.Function, all []functions.Source) error {
	for _, f := range was {
		if f.Kind == "u" {
			continue
		}
		same := func(schema, name string) bool { return schema == f.Schema && name == f.Name }
		if !slices.ContainsFunc(is, func(o shardmap.Function) bool { return same(o.Schema, o.Name) && o.Kind != "u" }) &&
			slices.ContainsFunc(all, func(o functions.Source) bool { return same(o.Schema, o.Name) }) {
			return sqlstate.Refusal("CLV-0722", "function %s is known to read no table, and would no longer be: what calls it on a shard relies on that", f.QualifiedName()).
				WithHint("Give the new function another name, or drop the old one first.")
		}
	}
	return nil
}

// overlayObjects brings the views and functions into next. They are the default
// shard's, read under the lock of schema changes, so they are newer than any other's.
func (c *changes) overlayObjects(next *shardmap.State) {
	if c.seen {
		next.Views, next.Functions, next.FunctionsRead = slices.Clone(c.state.Views), slices.Clone(c.state.Functions), c.state.FunctionsRead
		next.Acting = c.state.Acting
	}
}
