package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

// Guards of many tables are replaced with as few statements as those of one: a cutover is held up by each of them. The first
// lists the functions of the guards that are in order, so that nothing but functions has to be replaced; the second
// replaces them. What is not in order is left to SetGuard, table by table.

// functionsSQL lists, for tables with a guard, the number that they were given and their row trigger's function. %[1]s are VALUES rows (number, table's name, key columns,
// their types), %[2]s is the condition.
var functionsSQL = strings.NewReplacer("@row", literal(triggerRow), "@truncate", literal(triggerTruncate)).Replace(`SELECT v.n, p.proname::pg_catalog.text
	FROM (VALUES %[1]s) AS v(n, name, columns, types)
	JOIN pg_catalog.pg_class AS c ON c.oid = v.name::pg_catalog.regclass::pg_catalog.oid
	JOIN pg_catalog.pg_trigger AS g ON g.tgrelid = c.oid AND g.tgname = @row
	JOIN pg_catalog.pg_proc AS p ON p.oid = g.tgfoid
	JOIN pg_catalog.pg_namespace AS s ON s.oid = p.pronamespace
	WHERE s.nspname = 'cleave_internal' %[2]s`)

// inOrder is what SetGuard would leave as it is, or refuse: see setGuardSQL. @fires is what pg_trigger.tgenabled should be.
var inOrder = strings.NewReplacer("@row", literal(triggerRow), "@truncate", literal(triggerTruncate)).Replace(`AND c.relkind::pg_catalog.text = 'r'
	AND g.tgtype::pg_catalog.int4 = 31 AND g.tgqual IS NULL AND g.tgattr::pg_catalog.text = '' AND g.tgenabled::pg_catalog.text = @fires
	AND EXISTS (SELECT FROM pg_catalog.pg_trigger AS u JOIN pg_catalog.pg_proc AS q ON q.oid = u.tgfoid
		WHERE u.tgrelid = c.oid AND u.tgname = @truncate AND u.tgtype::pg_catalog.int4 = 34 AND u.tgqual IS NULL AND u.tgenabled::pg_catalog.text = @fires
		AND q.pronamespace = s.oid AND q.proname = (p.proname || '_truncate'))
	AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS u WHERE u.tgrelid = c.oid AND NOT u.tgisinternal AND (u.tgtype::pg_catalog.int4 & 3) = 3
		AND u.tgname::pg_catalog.text COLLATE pg_catalog."C" > @row AND u.tgname <> @truncate)
	AND NOT EXISTS (SELECT FROM ROWS FROM (pg_catalog.unnest(v.columns), pg_catalog.unnest(v.types)) AS k(name, type)
		LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attname = k.name AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = a.attcollation
		WHERE a.atttypid IS NULL OR a.atttypid::pg_catalog.int8 <> k.type OR a.attgenerated::pg_catalog.text <> '' OR NOT COALESCE(l.collisdeterministic, true))
	AND p.oid NOT IN (SELECT o.tgfoid FROM pg_catalog.pg_trigger AS o GROUP BY o.tgfoid HAVING pg_catalog.count(*) > 1)`)

// replaceSQL replaces functions, and nothing else: that takes no lock on tables. %[1]s are the bodies, %[2]s the functions' names, %[3]s, %[4]s and %[5]s the
// places of their bodies, of those of the functions for TRUNCATE, and of their comments.
const replaceSQL = `DO $cleave$
DECLARE
	_bodies pg_catalog.text[] := ARRAY[%[1]s]::pg_catalog.text[];
	_names pg_catalog.text[] := ARRAY[%[2]s]::pg_catalog.text[];
	_rows pg_catalog.int4[] := '{%[3]s}';
	_truncates pg_catalog.int4[] := '{%[4]s}';
	_comments pg_catalog.int4[] := '{%[5]s}';
BEGIN
	FOR _i IN 1 .. pg_catalog.cardinality(_names) LOOP
		EXECUTE pg_catalog.format('CREATE OR REPLACE FUNCTION cleave_internal.%%I() RETURNS pg_catalog.trigger LANGUAGE plpgsql AS %%L', _names[_i], _bodies[_rows[_i]]);
		EXECUTE pg_catalog.format('COMMENT ON FUNCTION cleave_internal.%%I() IS %%L', _names[_i], _bodies[_comments[_i]]);
		EXECUTE pg_catalog.format('CREATE OR REPLACE FUNCTION cleave_internal.%%I() RETURNS pg_catalog.trigger LANGUAGE plpgsql AS %%L', _names[_i] || '_truncate', _bodies[_truncates[_i]]);
	END LOOP;
END
$cleave$`

// bodies are the texts of several guards' functions, each once: tables of a keyspace have most in common.
type bodies struct {
	texts []string
	at    map[string]int // from 1
	last  engine.Guard
	mover string
	made  [3]int
}

func (b *bodies) put(text string) int {
	if n, ok := b.at[text]; ok {
		return n
	}
	b.texts = append(b.texts, literal(text))
	b.at[text] = len(b.texts)
	return len(b.texts)
}

// of returns the places of a guard's texts: of the row trigger's function, of that for TRUNCATE, and of the comment.
func (b *bodies) of(g engine.Guard) ([3]int, error) {
	if len(b.texts) > 0 && slices.Equal(g.ShardKey, b.last.ShardKey) && g.Also == b.last.Also && g.Owned.Is(&b.last.Owned) {
		return b.made, nil
	}
	s, err := newGuardSQL(g, b.mover)
	if err != nil {
		return b.made, err
	}
	b.last, b.made = g, [3]int{b.put(s.rows()), b.put(s.truncate()), b.put(s.comment())}
	return b.made, nil
}

// replaceGuards replaces the guards of tables whose guard fits the condition, and returns those of the others.
func (c *conn) replaceGuards(ctx context.Context, guards []engine.Guard, condition string) (rest []engine.Guard, err error) {
	if len(guards) == 0 {
		return nil, nil
	}
	values := make([]string, len(guards))
	for i, g := range guards {
		columns, types := make([]string, len(g.ShardKey)), make([]string, len(g.ShardKey))
		for k, name := range g.ShardKey {
			if k >= len(g.Owned.Types) {
				return guards, nil // SetGuard says what is wrong with it
			}
			columns[k], types[k] = literal(name), fmt.Sprint(g.Owned.Types[k].OID())
		}
		values[i] = fmt.Sprintf("(%d, %s, ARRAY[%s]::pg_catalog.text[], '{%s}'::pg_catalog.int8[])", i, literal(quoteName(g.Schema)+"."+quoteName(g.Table)), strings.Join(columns, ", "), strings.Join(types, ","))
	}
	res, err := c.exec(ctx, fmt.Sprintf(protect(functionsSQL), strings.Join(values, ", "), protect(strings.ReplaceAll(condition, "@fires", c.shard.firesSQL()))))
	if err != nil {
		return nil, err
	}
	names := make([]string, len(guards))
	for _, row := range res.Rows {
		var i int
		if _, err := fmt.Sscan(row[0].String, &i); err != nil || i < 0 || i >= len(names) {
			return nil, sqlstate.New(sqlstate.InternalError, "the shard answered %q for the number of a table", row[0].String)
		}
		names[i] = row[1].String
	}
	b := bodies{at: map[string]int{}, mover: c.shard.base.User + MoverSuffix}
	var functions []string
	var places [3][]string
	for i, g := range guards {
		if names[i] == "" {
			rest = append(rest, g)
			continue
		}
		at, err := b.of(g)
		if err != nil {
			return nil, onTable(err, &engine.MoveTable{Schema: g.Schema, Name: g.Table})
		}
		functions = append(functions, literal(names[i]))
		for k := range places {
			places[k] = append(places[k], fmt.Sprint(at[k]))
		}
	}
	if len(functions) > 0 {
		_, err = c.exec(ctx, fmt.Sprintf(replaceSQL, strings.Join(b.texts, ", "), strings.Join(functions, ", "), strings.Join(places[0], ","), strings.Join(places[1], ","), strings.Join(places[2], ",")))
	}
	return rest, err
}
