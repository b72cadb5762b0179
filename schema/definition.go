package schema

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// definition is a table as PostgreSQL's catalogue has it, in the pieces of the
// statements that make another one like it. All names in it are qualified.
type definition struct {
	Persistence string
	Options     []string
	RLS         bool
	Rules       bool
	Comment     string
	Identity    string // pg_class.relreplident
	Schema      string // CREATE SCHEMA's name
	Columns     []definedColumn
	Constraints []definedConstraint
	Indexes     []definedIndex
	Triggers    []definedTrigger
	Types       []definedType
	Functions   []definedFunction
}

type definedColumn struct {
	Name, Type, Default, Generated, Identity, Collation, Comment string
	NotNull                                                      bool
	// Sequences are those that the default, or the identity, takes values from.
	Sequences []definedSequence
}

// definedSequence is a sequence of the shard's own.
type definedSequence struct {
	Schema, Name, Type                string
	Start, Increment, Min, Max, Cache int64
	Cycle, Owned                      bool
	// Users are the tables with a default that takes values from it, as schema and name.
	Users [][]string
}

type definedConstraint struct {
	Name, Type, Definition, OnDelete, OnUpdate string
	Validated                                  bool
	Ref                                        []string // schema and name of the table that a foreign key refers to
	Columns                                    []string // of a foreign key
	SetColumns                                 []string // of ON DELETE SET NULL (a, b)
}

type definedIndex struct {
	Name, Definition string
	Replica, Own     bool // the replica identity; with no constraint
	Valid            bool
}

type definedTrigger struct {
	Name, Definition, Enabled, FunctionSchema, Function string
}

type definedType struct {
	Schema, Name, Kind, Base, Default, Extension, ExtensionSchema string
	NotNull                                                       bool
	Labels, Checks                                                []string
}

type definedFunction struct {
	Schema, Name, Definition, Extension, ExtensionSchema string
}

// definitionSQL runs in [Tx.printed]. %s is the table as regclass reads it.
const definitionSQL = `WITH target AS (SELECT %s::regclass::oid AS oid),
types AS (WITH RECURSIVE used AS (
	SELECT a.atttypid AS oid FROM pg_attribute AS a, target WHERE a.attrelid = target.oid AND a.attnum > 0 AND NOT a.attisdropped
	UNION SELECT CASE WHEN t.typbasetype <> 0 THEN t.typbasetype ELSE t.typelem END FROM used JOIN pg_type AS t ON t.oid = used.oid
	WHERE t.typbasetype <> 0 OR t.typelem <> 0 AND t.typcategory = 'A')
	SELECT t.* FROM used JOIN pg_type AS t ON t.oid = used.oid JOIN pg_namespace AS n ON n.oid = t.typnamespace
	WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND NOT (t.typelem <> 0 AND t.typcategory = 'A')),
functions AS (SELECT DISTINCT d.refobjid AS oid FROM pg_depend AS d, target WHERE d.refclassid = 'pg_proc'::regclass AND (
	d.classid = 'pg_attrdef'::regclass AND d.objid IN (SELECT x.oid FROM pg_attrdef AS x WHERE x.adrelid = target.oid)
	OR d.classid = 'pg_constraint'::regclass AND d.objid IN (SELECT x.oid FROM pg_constraint AS x WHERE x.conrelid = target.oid)
	OR d.classid = 'pg_class'::regclass AND d.objid IN (SELECT x.indexrelid FROM pg_index AS x WHERE x.indrelid = target.oid)
	OR d.classid = 'pg_trigger'::regclass AND d.objid IN (SELECT x.oid FROM pg_trigger AS x WHERE x.tgrelid = target.oid AND NOT x.tgisinternal)))
SELECT encode(convert_to(json_build_object(
'Persistence', c.relpersistence,
'Options', (SELECT json_agg(quote_ident(o.option_name) || '=' || quote_literal(o.option_value)) FROM pg_options_to_table(c.reloptions) AS o),
'RLS', c.relrowsecurity OR EXISTS (SELECT FROM pg_policy AS y WHERE y.polrelid = c.oid),
'Rules', EXISTS (SELECT FROM pg_rewrite AS y WHERE y.ev_class = c.oid),
'Comment', COALESCE(obj_description(c.oid, 'pg_class'), ''),
'Identity', c.relreplident,
'Schema', n.nspname,
'Columns', (SELECT json_agg(json_build_object(
	'Name', a.attname, 'Type', format_type(a.atttypid, a.atttypmod), 'NotNull', a.attnotnull,
	'Default', COALESCE(pg_get_expr(d.adbin, d.adrelid), ''), 'Generated', a.attgenerated, 'Identity', a.attidentity,
	'Collation', COALESCE((SELECT quote_ident(ln.nspname) || '.' || quote_ident(l.collname) FROM pg_collation AS l JOIN pg_namespace AS ln ON ln.oid = l.collnamespace
		WHERE l.oid = a.attcollation AND a.attcollation <> t.typcollation), ''),
	'Comment', COALESCE(col_description(c.oid, a.attnum), ''),
	'Sequences', (SELECT json_agg(json_build_object('Schema', sn.nspname, 'Name', s.relname, 'Type', format_type(q.seqtypid, NULL), 'Start', q.seqstart,
		'Increment', q.seqincrement, 'Min', q.seqmin, 'Max', q.seqmax, 'Cache', q.seqcache, 'Cycle', q.seqcycle,
		'Owned', EXISTS (SELECT FROM pg_depend AS o WHERE o.classid = 'pg_class'::regclass AND o.objid = s.oid AND o.refclassid = 'pg_class'::regclass
			AND o.refobjid = c.oid AND o.refobjsubid = a.attnum AND o.deptype IN ('a', 'i')),
		'Users', (SELECT jsonb_agg(DISTINCT jsonb_build_array(un.nspname, uc.relname)) FROM pg_depend AS u JOIN pg_attrdef AS ud ON ud.oid = u.objid
			JOIN pg_class AS uc ON uc.oid = ud.adrelid JOIN pg_namespace AS un ON un.oid = uc.relnamespace
			WHERE u.classid = 'pg_attrdef'::regclass AND u.refclassid = 'pg_class'::regclass AND u.refobjid = s.oid)))
		FROM pg_sequence AS q JOIN pg_class AS s ON s.oid = q.seqrelid JOIN pg_namespace AS sn ON sn.oid = s.relnamespace
		WHERE EXISTS (SELECT FROM pg_depend AS p WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass AND p.refobjid = s.oid)
		OR a.attidentity <> '' AND EXISTS (SELECT FROM pg_depend AS p WHERE p.classid = 'pg_class'::regclass AND p.objid = s.oid
			AND p.refclassid = 'pg_class'::regclass AND p.refobjid = c.oid AND p.refobjsubid = a.attnum AND p.deptype = 'i'))
	) ORDER BY a.attnum)
	FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
	WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
'Constraints', (SELECT json_agg(json_build_object('Name', x.conname, 'Type', x.contype, 'Definition', pg_get_constraintdef(x.oid), 'Validated', x.convalidated,
	'OnDelete', x.confdeltype, 'OnUpdate', x.confupdtype, 'Ref', (SELECT json_build_array(rn.nspname, r.relname) FROM pg_class AS r
		JOIN pg_namespace AS rn ON rn.oid = r.relnamespace WHERE r.oid = x.confrelid),
	'Columns', (SELECT json_agg(a.attname ORDER BY k.n) FROM unnest(x.conkey) WITH ORDINALITY AS k(attnum, n) JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.attnum),
	'SetColumns', @set) ORDER BY x.contype <> 'p', x.contype <> 'u', x.conname)
	FROM pg_constraint AS x WHERE x.conrelid = c.oid AND x.contype IN ('p', 'u', 'c', 'f', 'x')),
'Indexes', (SELECT json_agg(json_build_object('Name', i.relname, 'Definition', pg_get_indexdef(i.oid), 'Replica', x.indisreplident, 'Valid', x.indisvalid,
	'Own', NOT EXISTS (SELECT FROM pg_constraint AS y WHERE y.conindid = i.oid AND y.conrelid = c.oid AND y.contype IN ('p', 'u', 'x'))) ORDER BY i.relname)
	FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid WHERE x.indrelid = c.oid),
'Triggers', (SELECT json_agg(json_build_object('Name', g.tgname, 'Definition', pg_get_triggerdef(g.oid), 'Enabled', g.tgenabled,
	'FunctionSchema', pn.nspname, 'Function', p.proname) ORDER BY g.tgname)
	FROM pg_trigger AS g JOIN pg_proc AS p ON p.oid = g.tgfoid JOIN pg_namespace AS pn ON pn.oid = p.pronamespace
	WHERE g.tgrelid = c.oid AND NOT g.tgisinternal AND g.tgname NOT IN ('~cleave_guard', '~cleave_guard_truncate')),
'Types', (SELECT json_agg(json_build_object('Schema', tn.nspname, 'Name', t.typname, 'Kind', t.typtype, 'NotNull', t.typnotnull,
	'Base', CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod) ELSE '' END, 'Default', COALESCE(pg_get_expr(t.typdefaultbin, 0), ''),
	'Labels', (SELECT json_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_enum AS e WHERE e.enumtypid = t.oid),
	'Checks', (SELECT json_agg('CONSTRAINT ' || quote_ident(x.conname) || ' ' || pg_get_constraintdef(x.oid) ORDER BY x.conname) FROM pg_constraint AS x WHERE x.contypid = t.oid AND x.contype = 'c'),
	'Extension', COALESCE(e.extname, ''), 'ExtensionSchema', COALESCE(en.nspname, '')) ORDER BY t.oid)
	FROM types AS t JOIN pg_namespace AS tn ON tn.oid = t.typnamespace
	LEFT JOIN pg_depend AS d ON d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e'
	LEFT JOIN pg_extension AS e ON e.oid = d.refobjid LEFT JOIN pg_namespace AS en ON en.oid = e.extnamespace),
'Functions', (SELECT json_agg(json_build_object('Schema', pn.nspname, 'Name', p.proname, 'Definition', CASE WHEN p.prokind = 'a' THEN '' ELSE pg_get_functiondef(p.oid) END,
	'Extension', COALESCE(e.extname, ''), 'ExtensionSchema', COALESCE(en.nspname, '')) ORDER BY p.oid)
	FROM functions AS f JOIN pg_proc AS p ON p.oid = f.oid JOIN pg_namespace AS pn ON pn.oid = p.pronamespace
	LEFT JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	LEFT JOIN pg_extension AS e ON e.oid = d.refobjid LEFT JOIN pg_namespace AS en ON en.oid = e.extnamespace
	WHERE pn.nspname NOT IN ('pg_catalog', 'information_schema', 'cleave_internal'))
)::text, 'UTF8'), 'hex')
FROM target JOIN pg_class AS c ON c.oid = target.oid JOIN pg_namespace AS n ON n.oid = c.relnamespace`

// setColumnsSQL are the columns of ON DELETE SET NULL (a, b), from version 15 on.
const setColumnsSQL = `(SELECT json_agg(a.attname) FROM unnest(x.confdelsetcols) AS k(attnum) JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.attnum)`

// define reads a table's definition from a PostgreSQL shard.
func (p *part) define(ctx context.Context, name plan.TableName) (*definition, error) {
	set := setColumnsSQL
	if major, _, _ := strings.Cut(p.conn.Parameter("server_version"), "."); len(major) < 2 || major < "15" {
		set = "NULL"
	}
	d := &definition{}
	sql := strings.Replace(fmt.Sprintf(definitionSQL, quote(qualifiedSQL(name.Schema, name.Name))), "@set", set, 1)
	return d, p.printed(ctx, func() error { return p.json(ctx, sql, d) })
}

// printed reads texts from a PostgreSQL shard's catalogue as they mean the same in every session: every name comes out with its schema,
// and nothing depends on the settings of the session that the change is for.
func (p *part) printed(ctx context.Context, read func() error) error {
	path := [2]string{"search_path", ""}
	was, err := p.run(ctx, engine.PrintAlike(path))
	if err != nil {
		return err
	}
	if err := read(); err != nil {
		return err
	}
	_, err = p.run(ctx, engine.PrintAsBefore(was, path))
	return err
}

// ownNextval is the default of a serial column; its one group is the sequence as regclass prints it.
var ownNextval = regexp.MustCompile(`^nextval\('((?:[^']|'')*)'::regclass\)$`)

// takenDefault is the default, on the shards, of a column whose values the router takes from a sequence.
func takenDefault(q *shardmap.Sequence, identity string) string {
	s := "cleave_internal.nextval(" + quote(q.QualifiedName())
	if identity != "" {
		s += ", " + quote(identity)
	}
	return s + ")"
}

// refuse says what a table that is to be on several shards cannot have, and other shards
// would not get.
func (d *definition) refuse(table *shardmap.Table, functions []shardmap.Function) (found []error) {
	no := func(e *sqlstate.Error) {
		e.Message = "table " + table.QualifiedName() + ": " + e.Message
		e.Schema, e.Table = table.Schema, table.Name
		found = append(found, e)
	}
	if d.Persistence != "p" {
		no(sqlstate.Refusal("CLV-0834", "it is unlogged or temporary, and its rows could not be moved").
			WithHint("Run ALTER TABLE %s SET LOGGED.", table.QualifiedName()))
	}
	if d.RLS {
		no(sqlstate.Refusal("CLV-0964", "it has row level security, whose policies could read other tables").
			WithHint("Drop its policies, and: ALTER TABLE %s DISABLE ROW LEVEL SECURITY.", table.QualifiedName()))
	}
	if d.Rules {
		no(sqlstate.Refusal("CLV-0965", "it has rules, which could reach rows of other shards").WithHint("Drop the rules."))
	}
	for _, x := range d.Constraints {
		touchesKey := len(x.SetColumns) == 0 || slices.ContainsFunc(x.SetColumns, func(c string) bool { return slices.Contains(table.ShardKey, c) })
		if x.Type == "f" && slices.ContainsFunc(x.Columns, func(c string) bool { return slices.Contains(table.ShardKey, c) }) &&
			(x.OnUpdate == "n" || x.OnUpdate == "d" || (x.OnDelete == "n" || x.OnDelete == "d") && touchesKey) {
			no(sqlstate.Refusal("CLV-0966", "foreign key %s would set the shard key to NULL or a default", ident(x.Name)).
				WithHint("Use CASCADE, RESTRICT or NO ACTION."))
		}
	}
	for _, x := range d.Indexes {
		if !x.Valid {
			no(sqlstate.Refusal("CLV-0967", "index %s is not valid: it is being built, or that failed", ident(x.Name)).
				WithHint("Wait for it, or: REINDEX INDEX CONCURRENTLY %s.", ident(x.Name)))
		}
	}
	for _, g := range d.Triggers {
		known := g.FunctionSchema == "pg_catalog" || slices.ContainsFunc(functions, func(f shardmap.Function) bool { return f.Schema == g.FunctionSchema && f.Name == g.Function })
		switch {
		case !known:
			no(sqlstate.Refusal("CLV-0968", "trigger %s calls %s.%s(), which is not known to read or write no table, so it could reach rows that other shards have", ident(g.Name), g.FunctionSchema, g.Function).
				WithHint("Drop the trigger, or write its function without naming tables, in SQL or PL/pgSQL."))
		case strings.Contains(g.Definition, " REFERENCING "):
			no(sqlstate.Refusal("CLV-0969", "trigger %s has transition tables, which would hold one shard's rows only", ident(g.Name)).
				WithHint("Use FOR EACH ROW."))
		case g.Enabled != "O" && g.Enabled != "D":
			no(sqlstate.Refusal("CLV-0970", "trigger %s is enabled for replicas, and would fire again for rows that move", ident(g.Name)).
				WithHint("Run ALTER TABLE %s ENABLE TRIGGER %s.", table.QualifiedName(), ident(g.Name)))
		}
	}
	for _, y := range d.Types {
		if y.Extension == "" && y.Kind != "e" && y.Kind != "d" {
			no(sqlstate.Refusal("CLV-0971", "type %s.%s is neither an enum nor a domain, and is not made on other shards by itself", y.Schema, y.Name).
				WithHint("Make it on the other shards first, or use another type."))
		}
	}
	return found
}

// statements are what makes the table on another shard. Foreign keys to tables that are not there
// yet are given apart: those of later.
func (d *definition) statements(table *shardmap.Table, later func(ref plan.TableName) bool) (create, foreign []string) {
	name := table.QualifiedName()
	if d.Schema != "public" {
		create = append(create, "CREATE SCHEMA IF NOT EXISTS "+ident(d.Schema))
	}
	for _, y := range d.Types {
		create = append(create, y.statement())
	}
	for _, f := range d.Functions {
		if f.Extension != "" {
			create = append(create, extensionSQL(f.Extension, f.ExtensionSchema))
		} else if f.Definition != "" {
			create = append(create, strings.TrimSpace(f.Definition))
		}
	}
	create = slices.Compact(create)
	var items, after []string
	for _, c := range d.Columns {
		text := ident(c.Name) + " " + c.Type
		if c.Collation != "" {
			text += " COLLATE " + c.Collation
		}
		switch {
		case c.Generated == "s":
			text += " GENERATED ALWAYS AS (" + c.Default + ") STORED"
		case c.Generated != "":
			text += " GENERATED ALWAYS AS (" + c.Default + ") VIRTUAL"
		case c.Default != "":
			text += " DEFAULT " + c.Default
		}
		if c.NotNull {
			text += " NOT NULL"
		}
		items = append(items, text)
		if c.Comment != "" {
			after = append(after, "COMMENT ON COLUMN "+name+"."+ident(c.Name)+" IS "+quote(c.Comment))
		}
	}
	for _, x := range d.Constraints {
		text := "CONSTRAINT " + ident(x.Name) + " " + x.Definition
		switch {
		case x.Type == "f" && len(x.Ref) == 2 && later(plan.TableName{Schema: x.Ref[0], Name: x.Ref[1]}):
			foreign = append(foreign, "ALTER TABLE "+name+" ADD "+text)
		case !x.Validated:
			after = append(after, "ALTER TABLE "+name+" ADD "+text)
		default:
			items = append(items, text)
		}
	}
	sql := "CREATE TABLE " + name + " (\n\t" + strings.Join(items, ",\n\t") + "\n)"
	if len(d.Options) > 0 {
		sql += " WITH (" + strings.Join(d.Options, ", ") + ")"
	}
	create = append(create, sql)
	for _, x := range d.Indexes {
		if x.Own {
			create = append(create, x.Definition)
		}
		if x.Replica && d.Identity == "i" {
			after = append(after, "ALTER TABLE "+name+" REPLICA IDENTITY USING INDEX "+ident(x.Name))
		}
	}
	if d.Identity == "f" {
		after = append(after, "ALTER TABLE "+name+" REPLICA IDENTITY FULL")
	}
	for _, g := range d.Triggers {
		after = append(after, g.Definition)
		if g.Enabled == "D" {
			after = append(after, "ALTER TABLE "+name+" DISABLE TRIGGER "+ident(g.Name))
		}
	}
	if d.Comment != "" {
		after = append(after, "COMMENT ON TABLE "+name+" IS "+quote(d.Comment))
	}
	return append(create, after...), foreign
}

func extensionSQL(name, schema string) string {
	return "CREATE EXTENSION IF NOT EXISTS " + ident(name) + " WITH SCHEMA " + ident(schema)
}

// statement makes a type, unless it is there.
func (y *definedType) statement() string {
	if y.Extension != "" {
		return extensionSQL(y.Extension, y.ExtensionSchema)
	}
	name := qualifiedSQL(y.Schema, y.Name)
	sql := ""
	if y.Kind == "e" {
		labels := make([]string, len(y.Labels))
		for i, l := range y.Labels {
			labels[i] = quote(l)
		}
		sql = "CREATE TYPE " + name + " AS ENUM (" + strings.Join(labels, ", ") + ")"
	} else {
		sql = "CREATE DOMAIN " + name + " AS " + y.Base
		if y.Default != "" {
			sql += " DEFAULT " + y.Default
		}
		if y.NotNull {
			sql += " NOT NULL"
		}
		sql += strings.Join(append([]string{""}, y.Checks...), " ")
	}
	text := "BEGIN\n\t" + sql + ";\nEXCEPTION WHEN duplicate_object THEN NULL;\nEND"
	return "DO " + quote(text)
}

// text is the definition as one text: two tables that are alike have the same.
func (d *definition) text(table *shardmap.Table) string {
	c := *d
	c.Types, c.Functions = nil, nil
	create, foreign := c.statements(table, func(plan.TableName) bool { return false })
	return strings.Join(append(create, foreign...), ";\n")
}

// columnsSQL are the definitions of a table's columns, as CREATE TABLE has them.
const columnsSQL = `SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname) || ' ' || pg_catalog.format_type(a.atttypid, a.atttypmod) ||
 CASE WHEN a.attcollation <> t.typcollation THEN ' COLLATE ' || pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.collname) ELSE '' END, ', ' ORDER BY a.attnum)
 FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
 LEFT JOIN pg_catalog.pg_collation AS c ON c.oid = a.attcollation LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.collnamespace
 WHERE a.attnum > 0 AND a.attrelid = `

// columnsSave is the savepoint that takes back the table that Columns makes.
const columnsSave = `"cleave columns"`

// Columns are the columns that a table would have which a CREATE TABLE AS makes, as CREATE TABLE has
// them. The default shard says it: it makes the table, and takes that back.
func (t *Tx) Columns(ctx context.Context, as *plan.CreateAs) (string, error) {
	if err := t.usable(); err != nil {
		return "", err
	}
	p, err := t.open(ctx, t.base.State().DefaultShard)
	if err != nil {
		return "", t.fail(err)
	}
	if !p.can.Catalogue {
		return "", t.fail(sqlstate.Refusal("CLV-0972", "CREATE TABLE AS of a sharded or reference table is not supported where the default shard is no PostgreSQL").
			WithHint("Create the table, then INSERT ... SELECT."))
	}
	for _, sql := range []string{"SAVEPOINT " + columnsSave, as.Probe} {
		if _, err := p.run(ctx, sql); err != nil {
			return "", t.fail(err)
		}
	}
	res, err := p.run(ctx, columnsSQL+quote(qualified(as.Table.Schema, as.Table.Name))+"::pg_catalog.regclass")
	if err != nil {
		return "", t.fail(err)
	}
	for _, sql := range []string{"ROLLBACK TO SAVEPOINT " + columnsSave, "RELEASE SAVEPOINT " + columnsSave} {
		if _, err := p.run(ctx, sql); err != nil {
			return "", t.fail(err)
		}
	}
	return res.Rows[0][0].String, nil
}
