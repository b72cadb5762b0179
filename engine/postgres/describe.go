package postgres

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

// describeSQL reads one table from the catalogue as one JSON value in hex: the
// text survives any client_encoding, and a table that does not exist is an
// empty result, which leaves the transaction usable.
//
// format_type leaves the schema out for types that the search_path finds; it is
// added here for all types outside pg_catalog.
var describeSQL = qualified(`SELECT pg_catalog.encode(pg_catalog.convert_to(pg_catalog.json_build_object(
'kind', c.relkind,
'alike', `+engine.PrintedAlike+`,
'rls', c.relrowsecurity,
'inherits', c.relispartition OR EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhrelid = c.oid OR inhparent = c.oid),
'columns', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
	'Name', a.attname,
	'Type', CASE WHEN en.nspname <> 'pg_catalog' AND pg_catalog.pg_type_is_visible(COALESCE(el.oid, t.oid))
		THEN pg_catalog.quote_ident(en.nspname) || '.' ELSE '' END || pg_catalog.format_type(a.atttypid, a.atttypmod),
	'OID', a.atttypid::pg_catalog.int8,
	'NotNull', a.attnotnull,
	'Default', CASE WHEN a.attgenerated::pg_catalog.text = '' THEN COALESCE(pg_catalog.pg_get_expr(d.adbin, d.adrelid), pg_catalog.pg_get_expr(t.typdefaultbin, 0), '') ELSE '' END,
	'Identity', a.attidentity::pg_catalog.text <> '',
	'Generated', a.attgenerated::pg_catalog.text <> '',
	'Deterministic', COALESCE(l.collisdeterministic, true)) ORDER BY a.attnum)
	FROM pg_catalog.pg_attribute AS a
	JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
	LEFT JOIN pg_catalog.pg_type AS el ON el.oid = t.typelem AND t.typcategory = 'A'
	JOIN pg_catalog.pg_namespace AS en ON en.oid = COALESCE(el.typnamespace, t.typnamespace)
	LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
	LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = a.attcollation
	WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
'unique', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
	'Name', i.relname,
	'Primary', x.indisprimary,
	'Columns', (SELECT pg_catalog.json_agg(COALESCE(a.attname::pg_catalog.text, '') ORDER BY k.n)
		FROM pg_catalog.unnest(x.indkey::pg_catalog.int2[]) WITH ORDINALITY AS k(attnum, n)
		LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.attnum AND k.attnum <> 0
		WHERE k.n <= x.indnkeyatts)) ORDER BY NOT x.indisprimary, i.relname)
	FROM pg_catalog.pg_index AS x JOIN pg_catalog.pg_class AS i ON i.oid = x.indexrelid
	WHERE x.indrelid = c.oid AND (x.indisunique OR x.indisexclusion)),
'foreign', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
	'Name', f.conname,
	'RefSchema', rn.nspname,
	'RefTable', r.relname,
	'Columns', (SELECT pg_catalog.json_agg(a.attname ORDER BY k.n) FROM pg_catalog.unnest(f.conkey) WITH ORDINALITY AS k(attnum, n)
		JOIN pg_catalog.pg_attribute AS a ON a.attrelid = f.conrelid AND a.attnum = k.attnum),
	'RefColumns', (SELECT pg_catalog.json_agg(a.attname ORDER BY k.n) FROM pg_catalog.unnest(f.confkey) WITH ORDINALITY AS k(attnum, n)
		JOIN pg_catalog.pg_attribute AS a ON a.attrelid = f.confrelid AND a.attnum = k.attnum)) ORDER BY f.conname)
	FROM pg_catalog.pg_constraint AS f
	JOIN pg_catalog.pg_class AS r ON r.oid = f.confrelid
	JOIN pg_catalog.pg_namespace AS rn ON rn.oid = r.relnamespace
	WHERE f.conrelid = c.oid AND f.contype::pg_catalog.text = 'f'),
'guard', (SELECT pg_catalog.obj_description(g.tgfoid, 'pg_proc') FROM pg_catalog.pg_trigger AS g
	WHERE g.tgrelid = c.oid AND g.tgname = `) + literal(triggerRow) + qualified(`),
'loose', (SELECT %s FROM pg_catalog.pg_trigger AS g
	WHERE g.tgrelid = c.oid AND g.tgname = `) + literal(triggerRow) + qualified(`)
)::pg_catalog.text, 'UTF8'), 'hex')
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s`)

// described is what describeSQL gives.
type described struct {
	Kind     string
	Alike    bool // as every session reads it
	RLS      bool
	Inherits bool
	Columns  []engine.Column
	Unique   []engine.UniqueKey
	Foreign  []engine.ForeignKey
	Guard    string
	Loose    bool
}

// rowsSQL asks for one row. Under row level security a query may not see them,
// so a table with any page counts as having rows then.
const (
	rowsSQL    = `SELECT EXISTS (SELECT FROM %s.%s)`
	rowsRLSSQL = `SELECT pg_catalog.pg_relation_size(pg_catalog.format('%%I.%%I', %s, %s)::pg_catalog.regclass) OPERATOR(pg_catalog.>) 0`
)

// DescribeTable reads a table from the catalogue. Views, sequences and other
// relations are refused with 42809. In a REPEATABLE READ transaction HasRows
// is as of its snapshot.
func (c *conn) DescribeTable(ctx context.Context, schema, name string) (*engine.Table, error) {
	t, err := c.describe(ctx, schema, name)
	if err != nil {
		return nil, c.shard.withTable("describe", schema, name, err)
	}
	return t, nil
}

func (c *conn) describe(ctx context.Context, schema, name string) (*engine.Table, error) {
	got, err := c.catalogued(ctx, "", schema, name)
	if err != nil {
		return nil, err
	}
	if !got.Alike {
		was, err := c.exec(ctx, engine.PrintAlike())
		if err != nil {
			return nil, err
		}
		// Outside of a transaction block the settings ended with that message, and end with this one.
		if got, err = c.catalogued(ctx, engine.PrintAlike()+"; ", schema, name); err != nil {
			return nil, err
		}
		if _, err := c.exec(ctx, engine.PrintAsBefore(was)); err != nil {
			return nil, err
		}
	}
	if got.Kind != "r" && got.Kind != "p" {
		return nil, sqlstate.New(sqlstate.WrongObjectType, "%q.%q is not a table", schema, name)
	}
	t := &engine.Table{
		Schema: schema, Name: name,
		Columns: got.Columns, Unique: got.Unique, ForeignKeys: got.Foreign,
		Partitioned: got.Kind == "p", Inherits: got.Inherits,
	}
	if t.Guard = parseComment(got.Guard); t.Guard != nil {
		t.Guard.Loose = got.Loose
	}
	ask := fmt.Sprintf(rowsSQL, ident(schema), ident(name))
	if got.RLS {
		ask = fmt.Sprintf(rowsRLSSQL, literal(schema), literal(name))
	}
	res, err := c.exec(ctx, ask)
	if err != nil {
		return nil, err
	}
	t.HasRows = res.Rows[0][0].String == "t"
	return t, nil
}

// catalogued reads a table's rows of the catalogue, after a statement that goes in the same message.
func (c *conn) catalogued(ctx context.Context, before, schema, name string) (*described, error) {
	res, err := c.exec(ctx, before+fmt.Sprintf(describeSQL, c.shard.looseSQL(), literal(schema), literal(name)))
	if err != nil {
		return nil, err
	}
	if len(res.Rows) == 0 {
		return nil, noTable(schema, name)
	}
	text, err := hex.DecodeString(res.Rows[0][0].String)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.InternalError, "the catalogue of the shard gave an unreadable table")
	}
	var got described
	if err := json.Unmarshal(text, &got); err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.InternalError, "the catalogue of the shard gave an unreadable table")
	}
	return &got, nil
}

// guardStateSQL reads the guard of one table: what it is, in hex (see describeSQL), and whether it is loose.
var guardStateSQL = qualified(`SELECT pg_catalog.encode(pg_catalog.convert_to(pg_catalog.obj_description(g.tgfoid, 'pg_proc'), 'UTF8'), 'hex'), %s
FROM pg_catalog.pg_trigger AS g JOIN pg_catalog.pg_class AS c ON c.oid = g.tgrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND g.tgname = `) + literal(triggerRow)

// Guard implements engine.Conn.
func (c *conn) Guard(ctx context.Context, schema, name string) (*engine.GuardState, error) {
	res, err := c.exec(ctx, fmt.Sprintf(guardStateSQL, c.shard.looseSQL(), literal(schema), literal(name)))
	if err != nil {
		return nil, c.shard.withTable("read the guard", schema, name, err)
	}
	if len(res.Rows) == 0 {
		return nil, nil
	}
	text, err := hex.DecodeString(res.Rows[0][0].String)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.InternalError, "the catalogue of the shard gave an unreadable guard")
	}
	g := parseComment(string(text))
	if g != nil {
		g.Loose = res.Rows[0][1].String == "t"
	}
	return g, nil
}

func noTable(schema, name string) *sqlstate.Error {
	return &sqlstate.Error{
		Code: sqlstate.UndefinedTable, Schema: schema, Table: name,
		Message: fmt.Sprintf("relation %q does not exist", schema+"."+name),
	}
}

// withTable is failed, naming the table as well.
func (s *shard) withTable(op, schema, name string, err error) error {
	err = s.failed(op, err)
	if e := sqlstate.As(err); e.Table == "" {
		e.Schema, e.Table = schema, name
	}
	return err
}
