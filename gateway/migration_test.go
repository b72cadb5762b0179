package gateway_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// TestMigration: transactions with schema changes and statements over several shards, as migration tools send them.
func TestMigration(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	exec(t, conn, `CREATE TABLE migrations (version text PRIMARY KEY, at timestamptz DEFAULT now())`)
	exec(t, conn, `CREATE TABLE kinds (id bigint PRIMARY KEY, label text) WITH (cleave.reference = true)`)
	for _, ks := range keys {
		for _, k := range ks[:3] {
			exec(t, conn, `INSERT INTO orders VALUES ($1, 1, 'a'), ($1, 2, NULL)`, k)
		}
	}
	rows := len(keys) * 6
	count := func(sql string) int { t.Helper(); return one[int](t, conn, `SELECT count(*)::int FROM `+sql) }
	columns := func() string {
		t.Helper()
		return one[string](t, conn, `SELECT string_agg(attname, ',' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'orders'::regclass AND attnum > 0 AND NOT attisdropped`)
	}
	same := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	backfill := []string{`ALTER TABLE orders ADD COLUMN twice int, ADD COLUMN at timestamptz`, `UPDATE orders SET twice = id * 2, at = now()`,
		`ALTER TABLE orders ALTER twice SET NOT NULL`, `INSERT INTO migrations VALUES ('1')`}
	// Each ends as one PostgreSQL's would, whatever the end.
	t.Run("rolled back", func(t *testing.T) {
		exec(t, conn, `BEGIN`)
		for _, sql := range backfill {
			exec(t, conn, sql)
		}
		same("sum", one[int](t, conn, `SELECT sum(twice)::int FROM orders`), rows*3)
		exec(t, conn, `ROLLBACK`)
		same("columns", columns(), "tenant_id,id,note")
		same("migrations", count(`migrations`), 0)
	})
	t.Run("an error", func(t *testing.T) {
		exec(t, conn, `BEGIN`)
		exec(t, conn, backfill[0])
		exec(t, conn, `UPDATE orders SET twice = 1`)
		wantCode(t, conn, "22012", `UPDATE orders SET twice = 1 / (id - 2)`)
		wantCode(t, conn, "25P02", `SELECT count(*) FROM orders`)
		same("end", exec(t, conn, `COMMIT`).String(), "ROLLBACK")
		same("columns", columns(), "tenant_id,id,note")
		exec(t, conn, `BEGIN`)
		exec(t, conn, `UPDATE orders SET note = 'lost'`)
		exec(t, conn, `ALTER TABLE orders ADD COLUMN twice int`)
		wantCode(t, conn, "23502", `ALTER TABLE orders ALTER twice SET NOT NULL`)
		exec(t, conn, `ROLLBACK`)
		same("lost", count(`orders WHERE note = 'lost'`), 0)
	})
	t.Run("committed", func(t *testing.T) {
		const recorded = `SELECT count(*) FROM cleave_internal.transaction WHERE cardinality(shards) = 3 AND decided IS NULL`
		var before []string
		for i := range keys {
			before = append(before, cl.direct(t, i, recorded))
		}
		exec(t, conn, `BEGIN`)
		for _, sql := range backfill {
			exec(t, conn, sql)
		}
		same("one time", one[int](t, conn, `SELECT count(DISTINCT at)::int FROM orders`), 1)
		same("that of all", one[bool](t, conn, `SELECT (SELECT max(at) FROM orders) = now() AND (SELECT at FROM migrations) = now()`), true)
		same("in order", one[int64](t, conn, `SELECT twice FROM orders ORDER BY twice DESC, tenant_id LIMIT 1`), int64(4))
		exec(t, conn, `COMMIT`)
		same("columns", columns(), "tenant_id,id,note,twice,at")
		same("rows", count(`orders WHERE twice = id * 2`), rows)
		same("migrations", count(`migrations`), 1)
		for i := range keys {
			same("prepared", cl.direct(t, i, `SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()`), "0")
			same("recorded", cl.direct(t, i, `SELECT (`+recorded+`) - `+before[i]), "1")
		}
	})
	t.Run("temporary tables", func(t *testing.T) {
		short := cl.connect(t)
		exec(t, short, `CREATE TEMP TABLE before (a int)`)
		for _, list := range [][]string{{`ALTER TABLE orders ADD COLUMN lost int`, `CREATE TEMP TABLE short (a int)`}, {`CREATE TEMP TABLE short (a int)`, `ALTER TABLE orders ADD COLUMN lost int`}, {`ALTER TABLE orders ADD COLUMN lost int`, `DROP TABLE before`}} {
			exec(t, short, `BEGIN`)
			exec(t, short, list[0])
			exec(t, short, list[1])
			exec(t, short, `ROLLBACK`)
		}
		exec(t, short, `BEGIN`)
		exec(t, short, `CREATE TEMP TABLE short (a int)`)
		exec(t, short, `CREATE TABLE IF NOT EXISTS migrations (version text)`)
		exec(t, short, `COMMIT`)
		same("columns", columns(), "tenant_id,id,note,twice,at")
	})
	t.Run("in a ring", func(t *testing.T) {
		exec(t, conn, `CREATE TABLE rings (tenant_id bigint PRIMARY KEY, n int) WITH (cleave.shard_key = 'tenant_id')`)
		for _, ks := range keys {
			exec(t, conn, `INSERT INTO rings VALUES ($1, 1)`, ks[0])
		}
		migration, reader := cl.connect(t), cl.connect(t)
		// It looks first on its shard, so that it is the one to give way; on the other shards there is no ring then, unless it goes on there.
		cl.super(t, 0, `GRANT SET ON PARAMETER deadlock_timeout TO cleave`)
		exec(t, migration, `SET deadlock_timeout = '100ms'`)
		exec(t, migration, `SET cleave.deadlock_timeout = '50ms'`)
		exec(t, migration, `BEGIN`)
		exec(t, migration, `ALTER TABLE orders ADD COLUMN ring int`)
		exec(t, migration, `UPDATE orders SET ring = 1`)
		exec(t, reader, `SET deadlock_timeout = '20s'`)
		exec(t, reader, `BEGIN`)
		exec(t, reader, `UPDATE rings SET n = 2`)
		read := make(chan error, 1)
		go func() {
			_, err := reader.Exec(t.Context(), `SELECT count(*) FROM orders`)
			read <- err
		}()
		for waits := false; !waits; time.Sleep(10 * time.Millisecond) {
			for i := range keys {
				waits = waits || cl.direct(t, i, `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'orders'::regclass`) != "0"
			}
		}
		wantCode(t, migration, "40P01", `UPDATE rings SET n = 3`)
		if err := <-read; err != nil {
			t.Errorf("the reader gave way too: %v", err)
		}
		exec(t, reader, `COMMIT`)
		// A migration that failed has no locks any more, whatever its client does.
		exec(t, conn, `ALTER TABLE rings ADD COLUMN m int`)
		exec(t, conn, `DROP TABLE rings`)
		wantCode(t, migration, "25P02", `SELECT 1`)
		exec(t, migration, `ROLLBACK`)
		same("columns", columns(), "tenant_id,id,note,twice,at")
	})
	t.Run("rows first", func(t *testing.T) {
		exec(t, conn, `BEGIN`)
		exec(t, conn, `UPDATE orders SET note = 'none' WHERE note IS NULL`)
		exec(t, conn, `SAVEPOINT a`)
		exec(t, conn, `ALTER TABLE orders ALTER note SET NOT NULL`)
		exec(t, conn, `DELETE FROM orders WHERE id = 1`)
		same("deleted", count(`orders`), rows/2)
		exec(t, conn, `ROLLBACK TO a`)
		same("there again", count(`orders`), rows)
		exec(t, conn, `ALTER TABLE orders ALTER note SET DEFAULT '-'`)
		exec(t, conn, `SAVEPOINT b`)
		exec(t, conn, `UPDATE orders SET note = 'b' WHERE id = 2`)
		wantCode(t, conn, "42703", `SELECT nope FROM orders`)
		exec(t, conn, `ROLLBACK TO SAVEPOINT b`)
		exec(t, conn, `INSERT INTO orders (tenant_id, id, twice) SELECT tenant_id, 3, 6 FROM orders WHERE id = 1`)
		exec(t, conn, `RELEASE a`)
		exec(t, conn, `COMMIT`)
		same("notes", one[string](t, conn, `SELECT string_agg(DISTINCT note, ',' ORDER BY note) FROM orders`), "-,a,none")
		wantCode(t, conn, "", `INSERT INTO orders (tenant_id, id, note, twice) VALUES (1, 100, NULL, 0)`)
		exec(t, conn, `DELETE FROM orders WHERE id IN (3, 100)`)
	})
	t.Run("new tables", func(t *testing.T) {
		exec(t, conn, `BEGIN`)
		exec(t, conn, `CREATE TABLE totals (tenant_id bigint PRIMARY KEY, n bigint, serial bigserial, kind bigint REFERENCES kinds (id)) WITH (cleave.shard_key = 'tenant_id')`)
		exec(t, conn, `INSERT INTO kinds VALUES (1, 'x'), (2, 'y')`)
		exec(t, conn, `INSERT INTO totals (tenant_id, n, kind) SELECT tenant_id, count(*), 1 FROM orders GROUP BY tenant_id`)
		exec(t, conn, `CREATE INDEX ON totals (n)`)
		exec(t, conn, `UPDATE totals SET kind = 2 WHERE tenant_id = $1`, keys[1][0])
		same("joined", one[string](t, conn, `SELECT string_agg(label || ' ' || c, ',' ORDER BY label) FROM (SELECT label, count(*) AS c FROM totals JOIN kinds ON kinds.id = kind GROUP BY label) AS x`), "x 8,y 1")
		exec(t, conn, `UPDATE kinds SET label = 'z' WHERE id = 2`)
		exec(t, conn, `INSERT INTO migrations SELECT 'totals ' || count(*) FROM totals`)
		exec(t, conn, `COMMIT`)
		same("totals", one[string](t, conn, `SELECT count(*) || ' ' || sum(n) || ' ' || count(DISTINCT serial) || ' ' || (SELECT max(label) FROM kinds) || ' ' || (SELECT max(version) FROM migrations) FROM totals`), "9 18 9 z totals 9")
	})
	t.Run("brought together", func(t *testing.T) {
		exec(t, conn, `BEGIN`)
		exec(t, conn, `CREATE TABLE many (id bigint PRIMARY KEY, word text) WITH (cleave.shard_key = 'id')`)
		exec(t, conn, `INSERT INTO many SELECT g, 'word ' || g % 3000 FROM generate_series(1, 6000) AS g`)
		same("distinct", one[string](t, conn, `SELECT count(DISTINCT word) || ' ' || min(word) FROM many`), "3000 word 0")
		same("joined", count(`many AS a JOIN many AS b ON a.id = b.id + 3000 AND a.word = b.word`), 3000)
		exec(t, conn, `UPDATE many SET word = (SELECT max(word) FROM many)`)
		same("updated", count(`many WHERE word = 'word 999'`), 6000)
		exec(t, conn, `INSERT INTO many SELECT g, 'x' FROM generate_series(10001, 60000) AS g`)
		wantCode(t, conn, "0A000", `SELECT count(*) FROM many AS a JOIN many AS b ON a.id = b.id + 3000 AND a.word = b.word`)
		exec(t, conn, `ROLLBACK`)
	})
	t.Run("nothing changed", func(t *testing.T) {
		exec(t, conn, `BEGIN`)
		exec(t, conn, `CREATE TABLE IF NOT EXISTS totals (tenant_id bigint PRIMARY KEY) WITH (cleave.shard_key = 'tenant_id')`)
		exec(t, conn, `UPDATE totals SET n = 0`)
		exec(t, conn, `COMMIT`)
		same("all", count(`totals WHERE n = 0`), 9)
	})
	t.Run("one message", func(t *testing.T) {
		sql := strings.Join([]string{`ALTER TABLE totals ADD COLUMN m bigint`, `UPDATE totals SET m = tenant_id`, `ALTER TABLE totals DROP COLUMN n`}, ";")
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		same("all", count(`totals WHERE m = tenant_id`), 9)
	})
	t.Run("settings", func(t *testing.T) {
		exec(t, conn, `BEGIN`)
		exec(t, conn, `SET LOCAL timezone = 'Asia/Tokyo'`)
		exec(t, conn, `ALTER TABLE orders ADD COLUMN zone text`)
		exec(t, conn, `UPDATE orders SET zone = current_setting('timezone')`)
		exec(t, conn, `SAVEPOINT a`)
		exec(t, conn, `SET LOCAL timezone = 'Europe/Zurich'`)
		exec(t, conn, `UPDATE orders SET zone = current_setting('timezone') WHERE id = 2`)
		exec(t, conn, `ROLLBACK TO a`)
		exec(t, conn, `UPDATE orders SET zone = current_setting('timezone') || '!' WHERE id = 2`)
		exec(t, conn, `COMMIT`)
		same("zones", one[string](t, conn, `SELECT string_agg(DISTINCT zone, ',' ORDER BY zone) FROM orders`), "Asia/Tokyo,Asia/Tokyo!")
		for range 3 {
			same("after it", one[bool](t, conn, `SELECT count(*) FILTER (WHERE current_setting('timezone') LIKE 'Asia%') = 0 FROM orders`), true)
		}
	})
	t.Run("settings between schema changes", func(t *testing.T) {
		const at = `TIMESTAMPTZ '2024-01-01 00:00:00+00'`
		for i, c := range [][]string{
			{`ALTER TABLE orders ADD COLUMN other int`, `SET TIME ZONE 'Asia/Tokyo'`},
			{`UPDATE orders SET id = id`, `SET TIME ZONE 'Asia/Tokyo'`},
			{`ALTER TABLE orders ADD COLUMN other int`, `UPDATE orders SET other = 1`, `SET LOCAL TIME ZONE 'Asia/Tokyo'`},
			{`SET TIME ZONE 'Asia/Tokyo'`, `SAVEPOINT x`, `SET TIME ZONE 'America/New_York'`, `ALTER TABLE orders ADD COLUMN other int`, `ROLLBACK TO x`},
			{`SAVEPOINT x`, `SET TIME ZONE 'America/New_York'`, `ALTER TABLE orders ADD COLUMN other int`, `UPDATE orders SET other = 1`, `ROLLBACK TO x`, `SET TIME ZONE 'Asia/Tokyo'`},
			{`SET TIME ZONE 'Asia/Tokyo'`, `ALTER TABLE orders ADD COLUMN other int`, `SAVEPOINT x`, `SET TIME ZONE 'UTC'`, `ALTER TABLE orders ADD COLUMN more int`, `ROLLBACK TO x`},
		} {
			exec(t, conn, `BEGIN`)
			for _, sql := range c {
				exec(t, conn, sql)
			}
			exec(t, conn, `ALTER TABLE orders ADD COLUMN since timestamp DEFAULT `+at)
			exec(t, conn, `ALTER TABLE kinds ADD COLUMN since timestamp DEFAULT `+at)
			same(fmt.Sprint(i, " orders"), one[string](t, conn, `SELECT string_agg(DISTINCT since::text, ' ') FROM orders`), "2024-01-01 09:00:00")
			for shard := range keys {
				same(fmt.Sprint(i, " zone"), one[string](t, conn, `SELECT string_agg(DISTINCT current_setting('timezone'), ' ') FROM orders WHERE tenant_id = $1`, keys[shard][0]), "Asia/Tokyo")
			}
			exec(t, conn, `ALTER TABLE orders DROP COLUMN since`)
			exec(t, conn, `COMMIT`)
			for shard := range keys {
				same(fmt.Sprint(i, " kinds"), cl.direct(t, shard, `SELECT string_agg(DISTINCT since::text, ' ') FROM kinds`), "2024-01-01 09:00:00")
			}
			exec(t, conn, `ALTER TABLE kinds DROP COLUMN since`)
			exec(t, conn, `ALTER TABLE orders DROP COLUMN IF EXISTS other`)
			exec(t, conn, `RESET TIME ZONE`)
			for range 3 {
				same(fmt.Sprint(i, " afterwards"), count(`orders WHERE current_setting('timezone') LIKE 'A%'`), 0)
			}
		}
		exec(t, conn, `CREATE SCHEMA s1`)
		exec(t, conn, `BEGIN`)
		exec(t, conn, `ALTER TABLE orders ADD COLUMN other int`)
		exec(t, conn, `UPDATE orders SET other = 1`)
		exec(t, conn, `SET LOCAL search_path = s1, public`)
		exec(t, conn, `CREATE TABLE placed (id bigint PRIMARY KEY) WITH (cleave.shard_key = 'id')`)
		exec(t, conn, `CREATE FUNCTION placed() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1'`)
		exec(t, conn, `COMMIT`)
		for shard := range keys {
			same("placed", cl.direct(t, shard, `SELECT (SELECT relnamespace::regnamespace FROM pg_class WHERE relname = 'placed') || ' ' || (SELECT pronamespace::regnamespace FROM pg_proc WHERE proname = 'placed')`), "s1 s1")
		}
		exec(t, conn, `ALTER TABLE orders DROP COLUMN other`)
	})
	t.Run("what holds for other transactions", func(t *testing.T) {
		begin := func(sql ...string) {
			t.Helper()
			for _, s := range sql {
				exec(t, conn, s)
			}
			exec(t, conn, `ALTER TABLE totals ADD COLUMN other int`)
		}
		begin(`BEGIN`, `SET LOCAL cleave.transaction_mode = 'single'`)
		wantCode(t, conn, "0A000", `UPDATE totals SET other = 1`)
		exec(t, conn, `ROLLBACK`)
		begin(`BEGIN ISOLATION LEVEL SERIALIZABLE`)
		wantCode(t, conn, "0A000", `SELECT count(*) FROM totals`)
		exec(t, conn, `ROLLBACK`)
		atomic := count("totals WHERE tenant_id > 0")
		begin(`BEGIN`, `SET LOCAL cleave.read_consistency = 'atomic'`)
		same("atomic", count("totals WHERE tenant_id > 0 AND other IS NULL"), atomic)
		exec(t, conn, `ROLLBACK`)
		// One snapshot on each shard: what others commit is not seen.
		begin(`BEGIN ISOLATION LEVEL REPEATABLE READ`)
		same("before", count(`orders WHERE note = 'later'`), 0)
		other := cl.connect(t)
		exec(t, other, `UPDATE orders SET note = 'later' WHERE id = 2`)
		same("still", count(`orders WHERE note = 'later'`), 0)
		exec(t, conn, `UPDATE totals SET other = 2`)
		exec(t, conn, `COMMIT`)
		same("later", count(`orders WHERE note = 'later'`), rows/2)
		exec(t, conn, `BEGIN`)
		exec(t, conn, `ALTER TABLE totals DROP COLUMN other`)
		exec(t, conn, `DECLARE c CURSOR FOR SELECT version FROM migrations ORDER BY version`)
		same("a cursor of one shard", one[string](t, conn, `FETCH c`), "1")
		exec(t, conn, `DECLARE d CURSOR FOR SELECT tenant_id FROM totals ORDER BY tenant_id`)
		exec(t, conn, `FETCH 2 FROM d`)
		same("goes on", one[string](t, conn, `FETCH c`), "totals 9")
		exec(t, conn, `ROLLBACK`)
	})
	t.Run("locked", func(t *testing.T) {
		other := cl.connect(t)
		exec(t, other, `BEGIN`)
		exec(t, other, `UPDATE orders SET note = 'other' WHERE tenant_id = $1`, keys[1][0])
		exec(t, conn, `BEGIN`)
		exec(t, conn, `SET LOCAL lock_timeout = '50ms'`)
		exec(t, conn, `ALTER TABLE totals ADD COLUMN late int`)
		wantCode(t, conn, "55P03", `UPDATE orders SET note = 'late'`)
		exec(t, conn, `ROLLBACK`)
		// Without a bound of the session's: the router's, and the error says so.
		for _, sql := range []string{fmt.Sprint(`UPDATE orders SET note = 'late' WHERE tenant_id = `, keys[1][0]), `ALTER TABLE orders ADD COLUMN late int`} {
			exec(t, conn, `BEGIN`)
			exec(t, conn, `ALTER TABLE totals ADD COLUMN late int`)
			_, err := conn.Exec(t.Context(), sql)
			var pe *pgconn.PgError
			if !errors.As(err, &pe) || pe.Code != "55P03" || !strings.Contains(pe.Detail, "5s") || !strings.Contains(pe.Hint, "SET lock_timeout") {
				t.Errorf("%s: %v, %#v", sql, err, pe)
			}
			exec(t, conn, `ROLLBACK`)
		}
		exec(t, other, `COMMIT`)
		same("late", count(`orders WHERE note = 'late'`), 0)
	})
}
