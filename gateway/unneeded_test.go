package gateway_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
)

// TestShardThatIsNotNeeded: two shards are down. One owns nothing, the other a range that no statement here needs. Statements of
// every kind go well, in messages of both protocols, inside of transaction blocks and outside, and with atomic reads. What
// writes a copy on each shard is refused.
func TestShardThatIsNotNeeded(t *testing.T) {
	testrun.Long(t, "servers of its own and every kind of statement; TestShardLostHalfWay has shards that go")
	t.Parallel()
	up, down := pgtest.NewServer(t, nil), pgtest.NewServer(t, nil)
	urls := []string{pgtest.DatabaseOn(t, up), pgtest.DatabaseOn(t, up), pgtest.DatabaseOn(t, down), pgtest.DatabaseOn(t, down)}
	c := start(t, config{urls: urls, shards: len(urls)})
	conn := c.connect(t)
	for _, sql := range []string{
		"SELECT cleave.create_keyspace('two', 'hash', 'bigint', ranges => 8, shards => ARRAY['shard-0', 'shard-1'])",
		"SELECT cleave.create_keyspace('far', 'range', 'bigint', bounds => ARRAY['100', '200'], shards => ARRAY['shard-0', 'shard-1', 'shard-2'])",
		"CREATE TABLE b (k bigint PRIMARY KEY, v int, note text) WITH (cleave.shard_key = 'k', cleave.keyspace = 'two')",
		"CREATE TABLE c (k bigint, id int, v int, PRIMARY KEY (k, id)) WITH (cleave.shard_key = 'k', cleave.keyspace = 'two')",
		"CREATE TABLE r (k bigint PRIMARY KEY, v int) WITH (cleave.shard_key = 'k', cleave.keyspace = 'far')",
		"CREATE TABLE ref (id int PRIMARY KEY, name text) WITH (cleave.reference = true)",
		"CREATE TABLE w (id int PRIMARY KEY, v int)",
		"INSERT INTO b SELECT i, i % 7, 'n' FROM generate_series(1, 40) AS i",
		"INSERT INTO c SELECT i, 1, i FROM generate_series(1, 40) AS i",
		"INSERT INTO r SELECT i, i FROM generate_series(1, 300) AS i",
		"INSERT INTO ref SELECT i, 'r' FROM generate_series(0, 9) AS i",
		"INSERT INTO w SELECT i, i FROM generate_series(0, 9) AS i",
	} {
		exec(t, conn, sql)
	}
	snap := c.ex.Snapshot()
	if ks, _ := snap.Keyspace("far"); len(ks.Owners()) != 3 {
		t.Fatalf("owners %v", ks.Owners())
	}

	needless := []string{
		"SELECT count(*) FROM b", "SELECT k, v FROM b ORDER BY v, k", "SELECT v, count(*), avg(k) FROM b GROUP BY v ORDER BY v", "SELECT DISTINCT v FROM b ORDER BY v LIMIT 3",
		"SELECT count(*) FROM b JOIN c USING (k)", "SELECT count(*) FROM b JOIN c ON b.v = c.v", "SELECT count(*) FROM b JOIN ref ON ref.id = b.v", "SELECT count(*) FROM b JOIN w ON w.id = b.v",
		"SELECT count(*) FROM b WHERE v IN (SELECT v FROM c)", "SELECT count(*) FROM (SELECT v FROM b UNION SELECT v FROM c) AS x", "WITH x AS (SELECT v FROM b) SELECT count(*) FROM x AS a JOIN x AS d ON a.v = d.v",
		"SELECT count(*) FROM ref", "SELECT count(*) FROM ref JOIN w ON w.id = ref.id", "SELECT 1", "SELECT now()", "SELECT count(*) FROM pg_class", "SELECT b FROM b ORDER BY k LIMIT 1",
		"SELECT row_number() OVER (ORDER BY v, k) FROM b", "SELECT string_agg(note, ',' ORDER BY k) FROM b", "SELECT * FROM b WHERE k = 3", "SELECT * FROM b WHERE k IN (3, 4, 5, 6, 7, 8)",
		"SELECT count(*) FROM r WHERE k < 200", "SELECT k FROM r WHERE k BETWEEN 50 AND 150 ORDER BY v", "SELECT count(*) FROM r JOIN w ON r.v = w.id WHERE r.k < 200", "SELECT count(*) FROM r AS a JOIN r AS d ON a.v = d.v + 1 WHERE a.k < 200 AND d.k < 200",
		"UPDATE b SET v = v + 1", "UPDATE b SET v = v + 1 WHERE v > 2 RETURNING k, v", "UPDATE b SET v = w.v FROM w WHERE w.id = b.v", "UPDATE b SET v = ref.id FROM ref WHERE ref.id = b.v", "UPDATE b SET v = c.v FROM c WHERE c.k = b.k",
		"UPDATE b SET v = (SELECT max(v) FROM c)", "UPDATE b SET note = 'x' WHERE k IN (1, 2, 3, 4, 5, 6)", "UPDATE b SET k = k + 1000 WHERE v < 0", "DELETE FROM b WHERE v < 0", "DELETE FROM b USING c WHERE b.k = c.k AND c.v < 0",
		"INSERT INTO b SELECT k + 1000, v FROM b WHERE v < 0", "INSERT INTO c SELECT k, 2, v FROM b ON CONFLICT DO NOTHING", "INSERT INTO b VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
		"INSERT INTO w SELECT 100 + k, v FROM b ON CONFLICT DO NOTHING", "MERGE INTO b USING c ON b.k = c.k WHEN MATCHED THEN UPDATE SET v = c.v", "WITH x AS (UPDATE b SET v = v RETURNING k) SELECT count(*) FROM x",
		"UPDATE r SET v = v + 1 WHERE k < 200", "DELETE FROM r WHERE k < 0", "INSERT INTO r VALUES (1, 1), (150, 1) ON CONFLICT (k) DO UPDATE SET v = 2", "UPDATE w SET v = v + 1", "SELECT k FROM b WHERE v > 1 ORDER BY k FOR UPDATE",
		"EXPLAIN (COSTS off) SELECT count(*) FROM b", "EXPLAIN (ROUTE) UPDATE b SET v = 1", "COPY (SELECT k FROM b) TO STDOUT", "COPY b TO STDOUT",
		"CREATE TEMP TABLE temporary AS SELECT v FROM b; DROP TABLE temporary", "DECLARE h CURSOR WITH HOLD FOR SELECT k FROM b ORDER BY k; FETCH 3 FROM h; CLOSE h", "PREPARE p AS UPDATE b SET v = $1 WHERE v = $1; EXECUTE p(1); DEALLOCATE p",
		"SET work_mem = '8MB'; UPDATE b SET v = v + 1; RESET work_mem", "NOTIFY news", "SELECT cleave.next_id()", "DO $$BEGIN PERFORM 1; END$$",
	}
	texts := func(conn *pgx.Conn, sql string) string {
		_, err := conn.PgConn().Exec(context.Background(), sql).ReadAll()
		return codeOf(err)
	}
	extended := func(conn *pgx.Conn, sql string) string {
		if strings.Contains(sql, ";") || strings.HasPrefix(sql, "COPY") {
			return texts(conn, sql)
		}
		return codeOf(conn.PgConn().ExecParams(context.Background(), sql, nil, nil, nil, nil).Read().Err)
	}
	ways := []struct {
		name string
		run  func(conn *pgx.Conn, sql string) string
	}{
		{"simple", texts},
		{"extended", extended},
		{"block", func(conn *pgx.Conn, sql string) string { return texts(conn, "BEGIN; "+sql+"; COMMIT") }},
		{"block over shards", func(conn *pgx.Conn, sql string) string {
			return texts(conn, "BEGIN; SELECT count(*) FROM b; UPDATE c SET v = v; "+sql+"; COMMIT")
		}},
		{"atomic", func(conn *pgx.Conn, sql string) string {
			exec(t, conn, "SET cleave.read_consistency = 'atomic'")
			return extended(conn, sql)
		}},
		{"atomic block that goes on", func(conn *pgx.Conn, sql string) string {
			exec(t, conn, "SET cleave.read_consistency = 'atomic'")
			return texts(conn, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM c; "+sql+"; COMMIT")
		}},
		{"atomic block", func(conn *pgx.Conn, sql string) string {
			exec(t, conn, "SET cleave.read_consistency = 'atomic'")
			return texts(conn, "BEGIN ISOLATION LEVEL REPEATABLE READ; "+sql+"; SELECT count(*) FROM ref; SELECT count(*) FROM c; COMMIT")
		}},
	}
	// What one of the ways refuses for other reasons it refuses while all shards are up as well.
	type try struct{ way, sql string }
	want := map[try]string{}
	all := func(each func(way, sql, got string)) {
		for _, way := range ways {
			for _, sql := range needless {
				session := c.connect(t)
				each(way.name, sql, way.run(session, sql))
				_ = session.Close(context.Background())
			}
		}
	}
	all(func(way, sql, got string) { want[try{way, sql}] = got })
	refused := 0
	for _, code := range want {
		if code != "" {
			refused++
		}
	}
	if refused > len(want)/8 {
		t.Errorf("%d of %d are refused with all shards up: %v", refused, len(want), want)
	}
	down.Kill()
	all(func(way, sql, got string) {
		if w := want[try{way, sql}]; got != w {
			t.Errorf("%s: %s: SQLSTATE %q, with all shards up %q", way, sql, got, w)
		}
	})
	far := c.connect(t)
	exec(t, far, "SET cleave.read_consistency = 'atomic'")
	if got := texts(far, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM c; SELECT count(*) FROM r"); got != "57P03" {
		t.Errorf("a shard without a snapshot: SQLSTATE %q", got)
	}
	for _, sql := range []string{"UPDATE ref SET name = 's'", "SELECT count(*) FROM r", "UPDATE r SET v = 1", "SELECT * FROM r WHERE k = 250"} {
		if got := texts(conn, sql); got != "57P03" {
			t.Errorf("%s: SQLSTATE %q", sql, got)
		}
	}
}
