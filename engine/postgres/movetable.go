package postgres

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

// tableFacts is what the catalogue says of a table that moves.
type tableFacts struct {
	OID         uint32
	Kind        string
	Persistence string
	Identity    string // 'd' primary key, 'i' Index, 'f' all columns, 'n' nothing
	Inherits    bool
	Filenode    int64
	Blocks      int64
	Bytes       int64 // with those of values out of line
	Columns     []columnFacts
	Heap        bool // how its rows are stored
	Primary     []string
	Deferrable  bool // Primary is unique at a statement's or transaction's end only
	Index       []string
	Triggers    []string // that fire for a mover's writes as well
	Bars        bool     // its guard does not let the mover pass
	// Equal are the equality operators of the columns in unique indexes: those of types
	// that are not PostgreSQL's own are in other schemas.
	Equal map[string]string
}

type columnFacts struct {
	Name, Type string
	OID        uint32
	Identity   string
	Generated  string
	// Mark changes with every change of the column's definition.
	Mark string
}

// factsSQL is a row for each table of a list of VALUES: its number, and JSON. One statement for all tables, since
// planning it takes longer than running it. Types are written as describeSQL writes them.
var factsSQL = `SELECT w.i, pg_catalog.encode(pg_catalog.convert_to(pg_catalog.json_build_object(
'OID', c.oid::pg_catalog.int8, 'Kind', c.relkind, 'Persistence', c.relpersistence, 'Identity', c.relreplident,
'Inherits', c.relispartition OR EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhrelid = c.oid OR inhparent = c.oid),
'Filenode', COALESCE(pg_catalog.pg_relation_filenode(c.oid)::pg_catalog.int8, 0), 'Blocks', COALESCE(pg_catalog.pg_relation_size(c.oid), 0) / pg_catalog.current_setting('block_size')::pg_catalog.int8,
'Bytes', COALESCE(pg_catalog.pg_table_size(c.oid), 0), 'Heap', EXISTS (SELECT FROM pg_catalog.pg_am AS m WHERE m.oid = c.relam AND m.amname = 'heap'),
'Deferrable', EXISTS (SELECT FROM pg_catalog.pg_index AS x WHERE x.indrelid = c.oid AND x.indisprimary AND NOT x.indimmediate),
'Columns', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
	'Name', a.attname,
	'Type', CASE WHEN en.nspname <> 'pg_catalog' AND pg_catalog.pg_type_is_visible(COALESCE(el.oid, t.oid))
		THEN pg_catalog.quote_ident(en.nspname) || '.' ELSE '' END || pg_catalog.format_type(a.atttypid, a.atttypmod),
	'OID', a.atttypid::pg_catalog.int8, 'Identity', a.attidentity::pg_catalog.text, 'Generated', a.attgenerated::pg_catalog.text,
	'Mark', pg_catalog.concat_ws(' ', a.attnum, a.atttypid::pg_catalog.int8, a.atttypmod, a.xmin)) ORDER BY a.attnum)
	FROM pg_catalog.pg_attribute AS a
	JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
	LEFT JOIN pg_catalog.pg_type AS el ON el.oid = t.typelem AND t.typcategory = 'A'
	JOIN pg_catalog.pg_namespace AS en ON en.oid = COALESCE(el.typnamespace, t.typnamespace)
	WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
'Primary', (SELECT pg_catalog.json_agg(a.attname ORDER BY k.n) FROM pg_catalog.pg_index AS x, pg_catalog.unnest(x.indkey::pg_catalog.int2[]) WITH ORDINALITY AS k(attnum, n), pg_catalog.pg_attribute AS a
	WHERE x.indrelid = c.oid AND x.indisprimary AND k.n <= x.indnkeyatts AND a.attrelid = c.oid AND a.attnum = k.attnum),
'Index', (SELECT pg_catalog.json_agg(a.attname ORDER BY k.n) FROM pg_catalog.pg_index AS x, pg_catalog.unnest(x.indkey::pg_catalog.int2[]) WITH ORDINALITY AS k(attnum, n), pg_catalog.pg_attribute AS a
	WHERE x.indrelid = c.oid AND x.indisreplident AND k.n <= x.indnkeyatts AND a.attrelid = c.oid AND a.attnum = k.attnum),
'Equal', (SELECT pg_catalog.json_object_agg(e.attname, e.op) FROM (
	SELECT DISTINCT ON (a.attname) a.attname, pg_catalog.format('OPERATOR(%%I.%%s)', n.nspname, o.oprname) AS op
	FROM pg_catalog.pg_index AS x, ROWS FROM (pg_catalog.unnest(x.indkey::pg_catalog.int2[]), pg_catalog.unnest(x.indclass::pg_catalog.oid[])) AS k(attnum, class), pg_catalog.pg_attribute AS a,
		pg_catalog.pg_opclass AS p, pg_catalog.pg_amop AS f, pg_catalog.pg_operator AS o, pg_catalog.pg_namespace AS n, pg_catalog.pg_am AS m
	WHERE x.indrelid = c.oid AND x.indisunique AND a.attrelid = c.oid AND a.attnum = k.attnum AND p.oid = k.class AND m.oid = p.opcmethod AND m.amname = 'btree'
		AND f.amopfamily = p.opcfamily AND f.amoplefttype = p.opcintype AND f.amoprighttype = p.opcintype AND f.amopstrategy = 3 AND o.oid = f.amopopr AND n.oid = o.oprnamespace
	ORDER BY a.attname, x.indisprimary DESC) AS e),
'Triggers', (SELECT pg_catalog.json_agg(g.tgname ORDER BY g.tgname) FROM pg_catalog.pg_trigger AS g
	WHERE g.tgrelid = c.oid AND g.tgenabled IN ('A', 'R') AND NOT g.tgisinternal AND g.tgname NOT IN ('` + triggerRow + `', '` + triggerTruncate + `')),
'Bars', COALESCE((SELECT %s FROM pg_catalog.pg_trigger AS g WHERE g.tgrelid = c.oid AND g.tgname = '` + triggerRow + `'), false)
)::pg_catalog.text, 'UTF8'), 'hex')
FROM (VALUES %s) AS w(i, s, t) JOIN pg_catalog.pg_namespace AS n ON n.nspname = w.s JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = w.t`

func (v *mover) facts(ctx context.Context, c *conn, t *engine.MoveTable) (*tableFacts, error) {
	all, err := v.factsOf(ctx, c, []engine.MoveTable{*t})
	if err != nil {
		return nil, onTable(err, t)
	}
	return all[0], nil
}

// factsOf are the facts of tables, in their order.
func (v *mover) factsOf(ctx context.Context, c *conn, tables []engine.MoveTable) ([]*tableFacts, error) {
	if len(tables) == 0 {
		return nil, nil
	}
	asked := make([]string, len(tables))
	for i := range tables {
		asked[i] = fmt.Sprintf("(%d, %s::pg_catalog.name, %s::pg_catalog.name)", i, literal(tables[i].Schema), literal(tables[i].Name))
	}
	res, err := c.exec(ctx, fmt.Sprintf(factsSQL, v.s.barsSQL(), strings.Join(asked, ", ")))
	if err != nil {
		return nil, err
	}
	out := make([]*tableFacts, len(tables))
	for _, row := range res.Rows {
		i, err := strconv.Atoi(row[0].String)
		f := &tableFacts{}
		var text []byte
		if err == nil {
			text, err = hex.DecodeString(row[1].String)
		}
		if err == nil {
			err = json.Unmarshal(text, f)
		}
		if err != nil {
			return nil, sqlstate.Wrap(err, sqlstate.InternalError, "the catalogue of the shard gave an unreadable table")
		}
		out[i] = f
	}
	for i, f := range out {
		if f == nil {
			return nil, noTable(tables[i].Schema, tables[i].Name)
		}
	}
	return out, nil
}

// values are the columns with values of their own.
func (f *tableFacts) values() (names, types []string) {
	for _, c := range f.Columns {
		if c.Generated == "" {
			names, types = append(names, c.Name), append(types, c.Type)
		}
	}
	return names, types
}

// identity is what MoveTable.Identity should be.
func (f *tableFacts) identity() []string {
	switch {
	case f.Identity == "i" && len(f.Index) > 0:
		return f.Index
	case f.Identity != "i" && len(f.Primary) > 0:
		return f.Primary
	}
	names, _ := f.values()
	return names
}

// logged are the columns of a row that the log says of an update or delete; nil is
// none, so that a publication would make users' statements fail.
func (f *tableFacts) logged() []string {
	switch f.Identity {
	case "f":
		names, _ := f.values()
		return names
	case "i":
		return f.Index
	case "d":
		return f.Primary
	}
	return nil
}

// definition identifies what matters of the table: it changes whenever a stream or a
// copy that began before may not fit any more.
func (f *tableFacts) definition(t *engine.MoveTable) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.%s %d %s %v %v", t.Schema, t.Name, f.OID, f.Identity, f.Index, f.Primary)
	for _, c := range f.Columns {
		fmt.Fprintf(&b, "; %q %s", c.Name, c.Mark)
	}
	return strings.ReplaceAll(b.String(), "\n", `\n`) // one line of the definition of all
}

// Describe reads the catalogue.
func (v *mover) Describe(ctx context.Context, tables []engine.MoveTable) ([]engine.MoveTable, error) {
	const op = "describe tables"
	c, done, err := v.reading(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	out := slices.Clone(tables)
	facts, err := v.factsOf(ctx, c, out)
	if err != nil {
		return nil, v.failed(ctx, op, err)
	}
	for i, f := range facts {
		out[i].Columns, out[i].Types = f.values()
		out[i].Identity = f.identity()
	}
	return out, nil
}

// obstacle is why a table cannot be captured: what, and the statement that helps.
type obstacle struct{ name, is, want, fix string }

func (v *mover) obstacles(version int, t *engine.MoveTable, f *tableFacts) []obstacle {
	var out []obstacle
	add := func(name, is, want, fix string, args ...any) {
		out = append(out, obstacle{name + " of " + quoteName(t.Schema) + "." + quoteName(t.Name), is, want, fmt.Sprintf(fix, args...)})
	}
	table := quoteName(t.Schema) + "." + quoteName(t.Name)
	full := "ALTER TABLE " + table + " REPLICA IDENTITY FULL"
	switch {
	case f.Kind == "p":
		add("kind", "partitioned", "a plain table", "partitioned tables cannot be moved")
		return out
	case f.Kind != "r":
		add("kind", "not a table", "a plain table", "nothing")
		return out
	case f.Inherits:
		add("inheritance", "has a parent or children", "a table of its own", "ALTER TABLE ... NO INHERIT, on the children")
	}
	if f.Persistence != "p" {
		add("persistence", "unlogged", "logged: changes of others cannot be followed", "ALTER TABLE %s SET LOGGED", table)
	}
	logged := f.logged()
	var missing []string
	for _, k := range t.ShardKey {
		if !slices.Contains(logged, k) {
			missing = append(missing, k)
		}
	}
	switch {
	case len(logged) == 0:
		add("replica identity", "none: the log does not say which row was changed", "a primary key, or all columns", "%s", full)
	case len(missing) > 0:
		add("replica identity", strings.Join(logged, ", "), "with the shard key: "+strings.Join(missing, ", "), "%s", full)
	}
	if f.Identity == "f" && version >= 180000 && slices.ContainsFunc(f.Columns, func(c columnFacts) bool { return c.Generated == "v" }) {
		add("replica identity", "all columns, of which some are virtual", "a primary key or an index, as updates could not be published",
			"ALTER TABLE %s REPLICA IDENTITY USING INDEX ...", table)
	}
	if f.Bars {
		add("guard", "that of another role's mover, or of one that is gone", "the one of this shard's role: it would refuse what is moved", "cleave doctor --repair")
	}
	for _, g := range f.Triggers {
		add("trigger "+quoteName(g), "fires for replicated rows", "disabled, or for ordinary writes only: it would change what is moved", "ALTER TABLE %s ENABLE TRIGGER %s", table, quoteName(g))
	}
	return out
}

// serverVersion is a server's major version, as server_version_num has it.
func serverVersion(c *conn) int {
	// "15.18 (Debian ...)", "18beta1".
	major, _, _ := strings.Cut(c.Parameter("server_version"), ".")
	digits := strings.IndexFunc(major, func(r rune) bool { return r < '0' || r > '9' })
	if digits >= 0 {
		major = major[:digits]
	}
	n, _ := strconv.Atoi(major)
	return n * 10000
}

// CheckMove asks for settings, privileges and the tables' definitions.
func (v *mover) CheckMove(ctx context.Context, tables []engine.MoveTable) ([]engine.Finding, error) {
	const op = "check for moves"
	own, err := v.s.connect(ctx, moveParams)
	if err != nil {
		return nil, err
	}
	defer own.Close()
	got, err := v.s.ask(ctx, own)
	if err != nil {
		return nil, v.failed(ctx, op, err)
	}
	out := findings(got, func(r *requirement) string { return r.move })
	if f := v.s.moverFinding(ctx, got, levelError); f != nil {
		return append(out, *f), nil
	}
	c, done, err := v.reading(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	facts, err := v.factsOf(ctx, c, tables)
	if err != nil {
		return nil, v.failed(ctx, op, err)
	}
	add := func(name, bad string, good bool, is, want, fix string) {
		f := engine.Finding{Name: name, Level: levelOK, Is: is}
		if !good {
			f.Level, f.Want, f.Fix = bad, want, fix
		}
		out = append(out, f)
	}
	for i := range tables {
		t, f := &tables[i], facts[i]
		obstacles := v.obstacles(serverVersion(c), t, f)
		for _, o := range obstacles {
			out = append(out, engine.Finding{Name: o.name, Level: levelError, Is: o.is, Want: o.want, Fix: o.fix})
		}
		if len(obstacles) == 0 {
			add("table "+quoteName(t.Schema)+"."+quoteName(t.Name), levelError, true, "can be moved", "", "")
		}
		if f.Identity == "f" && len(f.Primary) == 0 {
			add("key of "+quoteName(t.Schema)+"."+quoteName(t.Name), levelWarning, false, "none", "a primary key: without it each change is looked for in the whole table",
				"ALTER TABLE "+quoteName(t.Schema)+"."+quoteName(t.Name)+" ADD PRIMARY KEY (...)")
		}
	}
	return out, nil
}

// ready reads the tables, and fails with 55000 if one cannot be captured, or is not
// what the set says.
func (v *mover) ready(ctx context.Context, c *conn, set engine.Set) ([]*tableFacts, error) {
	out, err := v.factsOf(ctx, c, set.Tables)
	if err != nil {
		return nil, err
	}
	for i, f := range out {
		t := &set.Tables[i]
		if all := v.obstacles(serverVersion(c), t, f); len(all) > 0 {
			return nil, (&sqlstate.Error{
				Code: sqlstate.ObjectNotInState, Schema: t.Schema, Table: t.Name,
				Message: fmt.Sprintf("table %q cannot be moved: %s", t.Schema+"."+t.Name, all[0].name),
				Detail:  fmt.Sprintf("It is: %s. It should be: %s.", all[0].is, all[0].want),
			}).WithHint("run %s", all[0].fix)
		}
		names, types := f.values()
		if !slices.Equal(names, t.Columns) || !slices.Equal(types, t.Types) {
			return nil, changed(t, fmt.Sprintf("its columns are %s", pairs(names, types)), fmt.Sprintf("they were %s", pairs(t.Columns, t.Types)))
		}
	}
	return out, nil
}

func pairs(names, types []string) string {
	out := make([]string, len(names))
	for i := range names {
		out[i] = names[i]
		if i < len(types) {
			out[i] += " " + types[i]
		}
	}
	return strings.Join(out, ", ")
}

// changed is the error for a table whose definition is not what it was.
func changed(t *engine.MoveTable, details ...string) error {
	return (&sqlstate.Error{
		Code: sqlstate.ObjectNotInState, Schema: t.Schema, Table: t.Name,
		Message: fmt.Sprintf("the definition of table %q was changed while its rows are moved", t.Schema+"."+t.Name),
		Detail:  strings.Join(details, "; "),
	}).WithHint("cancel the move, bring both shards to the same schema, and move again")
}

// definitions joins those of a set, for the row of a capture.
func definitions(set engine.Set, facts []*tableFacts) string {
	out := make([]string, len(facts))
	for i, f := range facts {
		out[i] = f.definition(&set.Tables[i])
	}
	return strings.Join(out, "\n")
}
