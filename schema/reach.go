package schema

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// A table becomes sharded, and the default shard has objects that read it: a materialized view, or a trigger, a default, a
// check, a rule, a policy of a table that stays whole; an operator, a cast or an event trigger. PostgreSQL would go on to run them there, on the rows of one shard.
// The router refuses them when they are made; those that were there before it are found here.

// reachSQL is one JSON value in hex: Uses are such objects, with what they depend on; Functions are all of the database's
// own; Relations say what views read. @body is as in routinesSQL.
const reachSQL = `WITH own AS (SELECT c.oid, c.relkind, n.nspname, c.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
	WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'cleave_internal') AND n.nspname NOT LIKE 'pg\_t%'),
uses AS (
	SELECT 'trigger ' || quote_ident(g.tgname) AS what, g.tgrelid AS rel, 'pg_catalog.pg_trigger'::pg_catalog.regclass AS class, g.oid FROM pg_catalog.pg_trigger AS g
		WHERE NOT g.tgisinternal AND g.tgname NOT IN ('~cleave_guard', '~cleave_guard_truncate')
	UNION ALL SELECT 'the default of column ' || quote_ident(a.attname), d.adrelid, 'pg_catalog.pg_attrdef'::pg_catalog.regclass, d.oid
		FROM pg_catalog.pg_attrdef AS d JOIN pg_catalog.pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
	UNION ALL SELECT 'constraint ' || quote_ident(x.conname), x.conrelid, 'pg_catalog.pg_constraint'::pg_catalog.regclass, x.oid FROM pg_catalog.pg_constraint AS x WHERE x.contype = 'c' AND x.conrelid <> 0
	UNION ALL SELECT 'a constraint of type ' || pg_catalog.format_type(x.contypid, NULL) || ' of column ' || quote_ident(a.attname), a.attrelid, 'pg_catalog.pg_constraint'::pg_catalog.regclass, x.oid
		FROM pg_catalog.pg_constraint AS x JOIN pg_catalog.pg_attribute AS a ON a.atttypid = x.contypid WHERE x.contypid <> 0
	UNION ALL SELECT 'policy ' || quote_ident(y.polname), y.polrelid, 'pg_catalog.pg_policy'::pg_catalog.regclass, y.oid FROM pg_catalog.pg_policy AS y
	UNION ALL SELECT CASE r.rulename WHEN '_RETURN' THEN 'materialized view' ELSE 'rule ' || quote_ident(r.rulename) END, r.ev_class, 'pg_catalog.pg_rewrite'::pg_catalog.regclass, r.oid
		FROM pg_catalog.pg_rewrite AS r JOIN own ON own.oid = r.ev_class WHERE own.relkind <> 'v'
	UNION ALL SELECT 'operator ' || o.oid::pg_catalog.regoperator, NULL, 'pg_catalog.pg_operator'::pg_catalog.regclass, o.oid FROM pg_catalog.pg_operator AS o WHERE o.oid >= 16384
	UNION ALL SELECT 'the cast from ' || pg_catalog.format_type(k.castsource, NULL) || ' to ' || pg_catalog.format_type(k.casttarget, NULL), NULL, 'pg_catalog.pg_cast'::pg_catalog.regclass, k.oid
		FROM pg_catalog.pg_cast AS k WHERE k.oid >= 16384
	UNION ALL SELECT 'event trigger ' || quote_ident(v.evtname), NULL, 'pg_catalog.pg_event_trigger'::pg_catalog.regclass, v.oid FROM pg_catalog.pg_event_trigger AS v)
SELECT pg_catalog.encode(pg_catalog.convert_to(pg_catalog.json_build_object(
'Uses', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object('What', u.what, 'Schema', COALESCE(o.nspname, ''), 'Table', COALESCE(o.relname, ''),
	'Functions', (SELECT pg_catalog.json_agg(DISTINCT d.refobjid::int8) FROM pg_catalog.pg_depend AS d WHERE d.classid = u.class AND d.objid = u.oid AND d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass),
	'Relations', (SELECT pg_catalog.json_agg(DISTINCT d.refobjid::int8) FROM pg_catalog.pg_depend AS d WHERE d.classid = u.class AND d.objid = u.oid AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid IS DISTINCT FROM u.rel))
	ORDER BY o.nspname, o.relname, u.what) FROM uses AS u LEFT JOIN own AS o ON o.oid = u.rel WHERE o.oid IS NOT NULL OR u.rel IS NULL
	AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS d WHERE d.classid = u.class AND d.objid = u.oid AND d.deptype = 'e')), -- extensions' read no tables
'Functions', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object('Oid', p.oid::int8, 'Schema', n.nspname, 'Name', p.proname, 'Language', l.lanname,
	'Body', CASE WHEN l.lanname = 'sql' THEN @body WHEN l.lanname = 'plpgsql' THEN p.prosrc ELSE '' END))
	FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang
	WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'cleave_internal')),
'Relations', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object('Oid', o.oid::int8, 'Schema', o.nspname, 'Name', o.relname, 'Reads',
	(SELECT pg_catalog.json_agg(DISTINCT d.refobjid::int8) FROM pg_catalog.pg_rewrite AS r JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
		AND d.objid = r.oid AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid <> o.oid WHERE r.ev_class = o.oid AND r.rulename = '_RETURN')))
	FROM own AS o WHERE o.relkind IN ('r', 'p', 'v', 'm'))
)::text, 'UTF8'), 'hex')`

type reachUse struct {
	What, Schema, Table  string
	Functions, Relations []int64
}

type reachFunction struct {
	Oid                          int64
	Schema, Name, Language, Body string
}

type reachRelation struct {
	Oid          int64
	Schema, Name string
	Reads        []int64
}

// reachWord are the words of a body that can be the name of something; reachAny are those that run a text, whose names need not
// stand in the body as such.
var (
	reachWord = regexp.MustCompile(`[\pL_][\pL\pN_$]*`)
	reachAny  = []string{"execute", "query_to_xml", "query_to_xmlschema", "query_to_xml_and_xmlschema", "table_to_xml", "table_to_xmlschema", "table_to_xml_and_xmlschema",
		"schema_to_xml", "schema_to_xmlschema", "schema_to_xml_and_xmlschema", "database_to_xml", "database_to_xmlschema", "database_to_xml_and_xmlschema", "ts_stat", "ts_rewrite"}
)

// reached is why an object of the default shard may read or write rows that are on several shards.
type reached struct {
	what, table, why string
}

func (r reached) String() string {
	switch {
	case r.table == "": // of the whole database
		return r.what + " " + r.why
	case r.what == "materialized view":
		return r.what + " " + r.table + " " + r.why
	}
	return r.what + " of " + r.table + " " + r.why
}

// reaches lists the objects of unsharded tables of a PostgreSQL default shard, and the materialized views, that may reach the
// sharded tables among tables, or write the reference tables. Functions that the map knows to read no table do not count.
func reaches(ctx context.Context, conn engine.Conn, snap *shardmap.Snapshot, tables []*shardmap.Table) ([]reached, error) {
	var all struct {
		Uses      []reachUse
		Functions []reachFunction
		Relations []reachRelation
	}
	res, _, err := run(ctx, conn, strings.Replace(reachSQL, "@body", bodySQL(conn.Parameter("server_version")), 1))
	if err != nil {
		return nil, err
	}
	if err := oneJSON(res, &all); err != nil {
		return nil, err
	}
	whole := func(u reachUse) bool {
		table, ok := snap.Table(u.Schema, u.Table)
		return !ok || table.Kind == shardmap.Whole
	}
	uses := slices.DeleteFunc(all.Uses, func(u reachUse) bool { return !whole(u) || len(u.Functions)+len(u.Relations) == 0 })
	if len(uses) == 0 {
		return nil, nil
	}
	name := func(schema, name string) string { return (&shardmap.Table{Schema: schema, Name: name}).QualifiedName() }
	// The tables, and the views over them, by number and by name.
	over, named := map[int64]string{}, map[string]string{}
	written := map[string]string{} // reference tables: what reads them reads all of their rows
	for grown := true; grown; {
		grown = false
		for _, r := range all.Relations {
			if over[r.Oid] != "" {
				continue
			}
			is := name(r.Schema, r.Name)
			i := slices.IndexFunc(tables, func(table *shardmap.Table) bool { return table.Schema == r.Schema && table.Name == r.Name })
			if i >= 0 && tables[i].Kind == shardmap.Reference {
				written[strings.ToLower(r.Name)] = is
				continue
			}
			if i < 0 {
				at := slices.IndexFunc(r.Reads, func(oid int64) bool { return over[oid] != "" })
				if at < 0 {
					continue
				}
				is = over[r.Reads[at]]
			}
			over[r.Oid], named[strings.ToLower(r.Name)], grown = is, is, true
		}
	}
	// The functions, and those that call them.
	why := map[int64]string{}
	calls := map[string]string{}
	pure := snap.State().Functions
	for grown := true; grown; {
		grown = false
		for _, f := range all.Functions {
			if why[f.Oid] != "" || slices.ContainsFunc(pure, func(k shardmap.Function) bool { return k.Schema == f.Schema && k.Name == f.Name && k.Kind != "u" }) {
				continue
			}
			if reason := f.reason(named, written, calls); reason != "" {
				called := name(f.Schema, f.Name) + "()"
				why[f.Oid], calls[strings.ToLower(f.Name)], grown = called+", which "+reason, called, true
			}
		}
	}
	var out []reached
	for _, u := range uses {
		r := reached{what: u.What}
		if u.Table != "" {
			r.table = name(u.Schema, u.Table)
		}
		for _, oid := range u.Relations {
			if over[oid] != "" {
				r.why = "reads " + over[oid]
			}
		}
		for _, oid := range u.Functions {
			if why[oid] != "" && r.why == "" {
				r.why = "calls " + why[oid]
			}
		}
		if r.why != "" {
			out = append(out, r)
		}
	}
	return out, nil
}

// reachWrites begin the commands that write.
var reachWrites = []string{"insert", "update", "delete", "merge", "truncate", "copy"}

// reason says why a function may reach the tables; "" if it cannot.
func (f *reachFunction) reason(named, written, calls map[string]string) string {
	if f.Language != "sql" && f.Language != "plpgsql" {
		return "is written in " + f.Language + ", so that it is not known what it reads"
	}
	writes, writesTo := false, ""
	body := strings.ToLower(f.Body)
	if strings.Contains(body, `u&"`) {
		return "has names that are written by the numbers of their letters"
	}
	for _, w := range reachWord.FindAllString(body, -1) {
		switch {
		case named[w] != "":
			return "names " + named[w]
		case slices.Contains(reachAny, w):
			return "runs texts (" + strings.ToUpper(w) + ")"
		case calls[w] != "" && w != strings.ToLower(f.Name):
			return "may call " + calls[w]
		case slices.Contains(reachWrites, w):
			writes = true
		case written[w] != "":
			writesTo = written[w]
		}
	}
	if name := quotedIn(body, named, written); name != "" {
		return "names " + name
	}
	if writes && writesTo != "" {
		return "may write to " + writesTo
	}
	return ""
}

// quotedIn finds a name that is no word, and so stands in the body as it is, in quotes.
func quotedIn(body string, lists ...map[string]string) string {
	for _, names := range lists {
		for n, name := range names {
			if reachWord.FindString(n) != n && strings.Contains(body, strings.ReplaceAll(n, `"`, `""`)) {
				return name
			}
		}
	}
	return ""
}

// reachedMax is how many objects an error names.
const reachedMax = 8

// checkReached refuses tables that the default shard's own objects would read a part of.
func (p *part) checkReached(ctx context.Context, over *shardmap.Snapshot, d *distribution) error {
	if !p.can.Catalogue {
		return nil
	}
	tables := make([]*shardmap.Table, len(d.tables))
	for i := range d.tables {
		tables[i] = &d.tables[i]
	}
	found, err := reaches(ctx, p.conn, over, tables)
	if err != nil || len(found) == 0 {
		return err
	}
	var list []string
	for _, r := range found[:min(len(found), reachedMax)] {
		list = append(list, r.String())
	}
	if more := len(found) - len(list); more > 0 {
		list = append(list, strconv.Itoa(more)+" more")
	}
	return sqlstate.Refusal("CLV-0723", "table %s cannot be distributed: on shard %s %s, and would see that shard's rows only", d.tables[0].QualifiedName(), p.shard, found[0]).
		WithHint("Drop it before (a materialized view can be made a view, a trigger can be of a table that is distributed too), or write its function in SQL or PL/pgSQL without the table and without EXECUTE.").
		WithDetail("There %s.", strings.Join(list, "; "))
}

// Reached looks for objects of the default shard that may read, or write, rows which are on several shards: those that were
// made there past the router.
func Reached(ctx context.Context, o RecoverOptions, snap *shardmap.Snapshot) []Finding {
	sh, ok := snap.Shard(snap.State().DefaultShard)
	if !ok || !sh.Can().Catalogue {
		return nil
	}
	var tables []*shardmap.Table
	for i := range snap.State().Tables {
		if table := &snap.State().Tables[i]; table.Kind != shardmap.Whole {
			tables = append(tables, table)
		}
	}
	if len(tables) == 0 {
		return nil
	}
	o = o.withDefaults()
	var out []Finding
	err := o.alone(ctx, sh, func(conn engine.Conn) error {
		found, err := reaches(ctx, conn, snap, tables)
		for _, r := range found {
			out = append(out, Finding{Level: levelWarning, Shard: sh.Name, What: "on shard " + sh.Name + ", " + r.String() + ", and sees that shard's rows only", Next: "drop it there"})
		}
		return err
	})
	if err != nil {
		out = append(out, trouble(sh.Name, onShard(err, sh.Name), "what reaches tables of several shards"))
	}
	return out
}
