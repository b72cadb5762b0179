package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// The triggers' names. PostgreSQL fires BEFORE ROW triggers in the order of
// their names' bytes; the tilde comes after every letter, so the guard sees the
// row as the users' triggers have left it. SetGuard refuses a table with a
// trigger that would come later.
const (
	triggerRow      = "~cleave_guard"
	triggerTruncate = "~cleave_guard_truncate"
)

// setGuardSQL runs as one statement, so that it is all or nothing also outside
// a transaction block. Its variables begin with an underscore: no column of the
// catalogue does. %[1]s and %[2]s are the table as identifiers, %[3]s its name
// for messages, %[4]s the lock timeout, %[5]s the key columns as VALUES rows
// (name, type), %[6]s and %[7]s the functions' bodies as constants, %[8]s the comment, %[9]s when the triggers fire.
var setGuardSQL = strings.NewReplacer("@row", literal(triggerRow), "@truncate", literal(triggerTruncate)).Replace(`DO $cleave$
DECLARE
	_timeout pg_catalog.text := pg_catalog.current_setting('lock_timeout');
	_table pg_catalog.oid;
	_kind pg_catalog.text;
	_space pg_catalog.oid;
	_function pg_catalog.text;
	_try pg_catalog.int4 := 1;
	_found pg_catalog.record;
	_body pg_catalog.text;
	_fires pg_catalog.text := %[9]s;
	_enable pg_catalog.text := CASE _fires WHEN 'A' THEN 'ENABLE ALWAYS' ELSE 'ENABLE' END;
BEGIN
	PERFORM pg_catalog.set_config('lock_timeout', COALESCE(%[4]s, _timeout), true);
	LOCK TABLE ONLY %[1]s.%[2]s IN SHARE ROW EXCLUSIVE MODE;
	_table := %[3]s::pg_catalog.regclass::pg_catalog.oid;
	SELECT c.relkind::pg_catalog.text INTO _kind FROM pg_catalog.pg_class AS c WHERE c.oid = _table;
	IF _kind <> 'r' THEN
		RAISE EXCEPTION USING ERRCODE := '0A000', MESSAGE := 'a guard needs a plain table', HINT := 'partitioned tables cannot be sharded yet';
	END IF;
	SELECT n.oid INTO _space FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'cleave_internal';
	IF _space IS NULL THEN
		RAISE EXCEPTION USING ERRCODE := '55000', MESSAGE := 'the database has not been set up as a shard', HINT := 'run cleave shard add';
	END IF;
	FOR _found IN SELECT k.name, k.type, a.atttypid, a.attgenerated::pg_catalog.text AS gen, COALESCE(l.collisdeterministic, true) AS det
		FROM (VALUES %[5]s) AS k(name, type)
		LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = _table AND a.attname = k.name AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = a.attcollation
		WHERE k.name IS NOT NULL
	LOOP
		IF _found.atttypid IS NULL THEN
			RAISE EXCEPTION USING ERRCODE := '42703', COLUMN := _found.name, MESSAGE := pg_catalog.format('shard key column "%%s" does not exist', _found.name);
		ELSIF _found.atttypid::pg_catalog.int8 <> _found.type::pg_catalog.int8 THEN
			RAISE EXCEPTION USING ERRCODE := '42804', COLUMN := _found.name, MESSAGE := pg_catalog.format('shard key column "%%s" is of type %%s, not %%s',
				_found.name, pg_catalog.format_type(_found.atttypid, NULL), pg_catalog.format_type(_found.type::pg_catalog.oid, NULL));
		ELSIF _found.gen <> '' THEN
			RAISE EXCEPTION USING ERRCODE := '0A000', COLUMN := _found.name, MESSAGE := pg_catalog.format('shard key column "%%s" is generated', _found.name),
				HINT := 'the guard sees a row before its generated columns; shard by the columns that it is made from';
		ELSIF NOT _found.det THEN
			RAISE EXCEPTION USING ERRCODE := '0A000', COLUMN := _found.name, MESSAGE := pg_catalog.format('shard key column "%%s" has a nondeterministic collation', _found.name),
				HINT := 'equal keys could have different bytes; use a deterministic collation';
		END IF;
	END LOOP;
	SELECT g.tgname::pg_catalog.text AS name INTO _found FROM pg_catalog.pg_trigger AS g
		WHERE g.tgrelid = _table AND NOT g.tgisinternal AND (g.tgtype::pg_catalog.int4 & 3) = 3 AND g.tgname::pg_catalog.text COLLATE pg_catalog."C" > @row
		AND g.tgname <> @truncate LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION USING ERRCODE := '0A000', MESSAGE := pg_catalog.format('trigger "%%s" would fire after the guard and could change the shard key', _found.name),
			HINT := 'rename the trigger so that it sorts before ~cleave_guard';
	END IF;
	SELECT p.proname::pg_catalog.text INTO _function FROM pg_catalog.pg_trigger AS g JOIN pg_catalog.pg_proc AS p ON p.oid = g.tgfoid
		WHERE g.tgrelid = _table AND g.tgname = @row AND p.pronamespace = _space
		AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS o WHERE o.tgfoid = p.oid AND o.tgrelid <> _table);
	IF _function IS NULL THEN
		_function := 'guard_' || _table::pg_catalog.text;
		WHILE EXISTS (SELECT FROM pg_catalog.pg_trigger AS o JOIN pg_catalog.pg_proc AS p ON p.oid = o.tgfoid
			WHERE p.pronamespace = _space AND (p.proname = _function OR p.proname = (_function || '_truncate')) AND o.tgrelid <> _table)
		LOOP
			_try := _try + 1;
			_function := 'guard_' || _table::pg_catalog.text || '_' || _try::pg_catalog.text;
		END LOOP;
	END IF;
	_body := %[6]s;
	EXECUTE pg_catalog.format('CREATE OR REPLACE FUNCTION cleave_internal.%%I() RETURNS pg_catalog.trigger LANGUAGE plpgsql AS %%L', _function, _body);
	EXECUTE pg_catalog.format('COMMENT ON FUNCTION cleave_internal.%%I() IS %%L', _function, %[8]s);
	_body := %[7]s;
	EXECUTE pg_catalog.format('CREATE OR REPLACE FUNCTION cleave_internal.%%I() RETURNS pg_catalog.trigger LANGUAGE plpgsql AS %%L', _function || '_truncate', _body);
	-- A trigger that is there already is left alone: changing it would make
	-- every session plan its statements on the table again.
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS g JOIN pg_catalog.pg_proc AS p ON p.oid = g.tgfoid
		WHERE g.tgrelid = _table AND g.tgname = @row AND g.tgtype::pg_catalog.int4 = 31 AND g.tgqual IS NULL AND g.tgattr::pg_catalog.text = ''
		AND g.tgenabled::pg_catalog.text = _fires AND p.pronamespace = _space AND p.proname = _function)
	THEN
		EXECUTE pg_catalog.format('CREATE OR REPLACE TRIGGER %%I BEFORE INSERT OR UPDATE OR DELETE ON %%s FOR EACH ROW EXECUTE FUNCTION cleave_internal.%%I()',
			@row, %[3]s, _function);
		EXECUTE pg_catalog.format('ALTER TABLE %%s %%s TRIGGER %%I', %[3]s, _enable, @row);
	END IF;
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS g JOIN pg_catalog.pg_proc AS p ON p.oid = g.tgfoid
		WHERE g.tgrelid = _table AND g.tgname = @truncate AND g.tgtype::pg_catalog.int4 = 34 AND g.tgqual IS NULL
		AND g.tgenabled::pg_catalog.text = _fires AND p.pronamespace = _space AND p.proname = (_function || '_truncate'))
	THEN
		EXECUTE pg_catalog.format('CREATE OR REPLACE TRIGGER %%I BEFORE TRUNCATE ON %%s FOR EACH STATEMENT EXECUTE FUNCTION cleave_internal.%%I()',
			@truncate, %[3]s, _function || '_truncate');
		EXECUTE pg_catalog.format('ALTER TABLE %%s %%s TRIGGER %%I', %[3]s, _enable, @truncate);
	END IF;
	PERFORM pg_catalog.set_config('lock_timeout', _timeout, true);
END
$cleave$`)

// dropGuardSQL takes the table as in setGuardSQL.
var dropGuardSQL = strings.NewReplacer("@row", literal(triggerRow), "@truncate", literal(triggerTruncate)).Replace(`DO $cleave$
DECLARE
	_timeout pg_catalog.text := pg_catalog.current_setting('lock_timeout');
	_table pg_catalog.oid;
	_function pg_catalog.text;
	_functions pg_catalog.text[];
BEGIN
	PERFORM pg_catalog.set_config('lock_timeout', COALESCE(%[4]s, _timeout), true);
	LOCK TABLE ONLY %[1]s.%[2]s IN ACCESS EXCLUSIVE MODE;
	_table := %[3]s::pg_catalog.regclass::pg_catalog.oid;
	SELECT pg_catalog.array_agg(p.proname::pg_catalog.text) INTO _functions FROM pg_catalog.pg_trigger AS g
		JOIN pg_catalog.pg_proc AS p ON p.oid = g.tgfoid JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
		WHERE g.tgrelid = _table AND (g.tgname = @row OR g.tgname = @truncate) AND n.nspname = 'cleave_internal'
		AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS o WHERE o.tgfoid = p.oid AND o.tgrelid <> _table);
	EXECUTE pg_catalog.format('DROP TRIGGER IF EXISTS %%I ON %%s', @row, %[3]s);
	EXECUTE pg_catalog.format('DROP TRIGGER IF EXISTS %%I ON %%s', @truncate, %[3]s);
	FOREACH _function IN ARRAY COALESCE(_functions, '{}'::pg_catalog.text[]) LOOP
		EXECUTE pg_catalog.format('DROP FUNCTION IF EXISTS cleave_internal.%%I()', _function);
	END LOOP;
	PERFORM pg_catalog.set_config('lock_timeout', _timeout, true);
END
$cleave$`)

// SetGuard locks the table against writers and replaces its guard. The lock
// waits for the transactions that wrote to the table, and is held until the
// current transaction ends; from its commit on every session's next statement
// meets the new guard, whatever its snapshot, isolation level or cached plans.
//
// Fails with 55P03 when the lock is not had by ctx's deadline, 42P01, 42703 or
// 42804 when table or shard key columns are not as the guard says, 0A000 for a
// key that cannot be guarded (generated column, nondeterministic collation) and
// for a trigger that fires after the guard, 55000 when the shard is not installed.
func (c *conn) SetGuard(ctx context.Context, g engine.Guard) error {
	s, err := newGuardSQL(g, c.shard.base.User+MoverSuffix)
	if err != nil {
		return c.shard.withTable("set guard", g.Schema, g.Table, err)
	}
	columns := "(NULL::pg_catalog.text, NULL::pg_catalog.int8)"
	for i, name := range g.ShardKey {
		columns += fmt.Sprintf(", (%s, %d)", literal(name), g.Owned.Types[i].OID())
	}
	return c.guardDo(ctx, "set guard", g.Schema, g.Table, func(timeout string) string {
		return fmt.Sprintf(protect(setGuardSQL), ident(g.Schema), ident(g.Table), literal(quoteName(g.Schema)+"."+quoteName(g.Table)),
			timeout, columns, literal(s.rows()), literal(s.truncate()), literal(s.comment()), c.shard.firesSQL())
	})
}

// DropGuard removes the guard; a table without one is left as it is. It locks
// out readers as well, since PostgreSQL drops triggers that way.
func (c *conn) DropGuard(ctx context.Context, schema, table string) error {
	return c.guardDo(ctx, "drop guard", schema, table, func(timeout string) string {
		return fmt.Sprintf(protect(dropGuardSQL), ident(schema), ident(table), literal(quoteName(schema)+"."+quoteName(table)), timeout)
	})
}

// guardDo runs a block with ctx's deadline as its lock timeout, so that the
// shard itself gives up with 55P03. The conversation is bounded a little later.
func (c *conn) guardDo(ctx context.Context, op, schema, table string, block func(timeout string) string) error {
	timeout := "NULL"
	limit, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left <= 0 {
			cancel()
			return c.shard.withTable(op, schema, table, sqlstate.Wrap(context.DeadlineExceeded, sqlstate.LockNotAvailable, "the time was over before the table was locked"))
		}
		timeout = fmt.Sprintf("'%dms'", max(left.Milliseconds(), 1))
		cancel()
		limit, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(2*time.Second))
	}
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})
	defer stop()
	if _, err := c.exec(limit, block(timeout)); err != nil {
		var e *sqlstate.Error
		if errors.As(err, &e) && e.Code == sqlstate.LockNotAvailable && e.Hint == "" {
			e.Hint = "a transaction that writes to the table is still open, or prepared; try again, or find it in pg_stat_activity or pg_prepared_xacts"
		}
		return c.shard.withTable(op, schema, table, err)
	}
	return nil
}

// protect is qualified for SQL with constants and quoted names, which it leaves
// as they are.
func protect(sql string) string {
	var b strings.Builder
	start := 0
	for i := 0; i < len(sql); {
		q := sql[i]
		if q != '\'' && q != '"' {
			i++
			continue
		}
		b.WriteString(qualified(sql[start:i]))
		// A doubled quote closes and opens again, which comes to the same.
		end := strings.IndexByte(sql[i+1:], q)
		if end < 0 {
			end = len(sql) - i - 2
		}
		b.WriteString(sql[i : i+end+2])
		i += end + 2
		start = i
	}
	b.WriteString(qualified(sql[start:]))
	return b.String()
}

// sortKeys returns the keys in the keyspace's order.
func sortKeys(keys []keyspace.Key) []keyspace.Key {
	sorted := slices.Clone(keys)
	slices.SortFunc(sorted, func(a, b keyspace.Key) int {
		return strings.Compare(string(keyspace.AppendOrdered(nil, a)), string(keyspace.AppendOrdered(nil, b)))
	})
	return sorted
}
