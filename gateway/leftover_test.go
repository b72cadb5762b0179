package gateway_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
)

var (
	leftoverSeed  = flag.Uint64("leftover-seed", 1, "TestSessionsLeaveNothing: the seed, 0 for one of the clock")
	leftoverCount = flag.Int("leftover-count", 0, "TestSessionsLeaveNothing: how many sessions; 0: 60, in a short run 15")
)

// pieces are what the sessions of TestSessionsLeaveNothing do, one after the other, in messages of one or several statements.
// %[1]d and %[2]d are keys on two shards.
var pieces = []string{
	"SELECT 1", "SELECT * FROM orders WHERE tenant_id = %[1]d", "SELECT count(*) FROM orders", "SELECT * FROM whole",
	"INSERT INTO orders VALUES (%[1]d, 1) ON CONFLICT DO NOTHING", "UPDATE orders SET note = 'x' WHERE tenant_id IN (%[1]d, %[2]d)", "INSERT INTO whole VALUES (1)",
	"BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN READ ONLY", "COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN",
	"SAVEPOINT s", "ROLLBACK TO s", "RELEASE s", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET TRANSACTION READ ONLY",
	"SET work_mem = '1MB'", "SET LOCAL work_mem = '2MB'", "RESET work_mem", "SET datestyle = 'ISO'", "SET datestyle = dmy", "SET datestyle = 'German'",
	"SET timezone = 'Asia/Tokyo'", "SET TIME ZONE 5", "SET search_path = other, public", "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
	"SET ROLE pg_monitor", "SET LOCAL ROLE pg_monitor", "RESET ROLE", "SET ROLE NONE", "RESET ALL", "DISCARD ALL", "SET a.b = 'c'",
	"SELECT set_config('work_mem', '3MB', false)", "SELECT set_config('work_mem', '3MB', true)", "SELECT set_config('search_path', '', false)", "SHOW work_mem", "SHOW ALL",
	"SELECT set_config('work_mem', 4 || 'MB', false)", "SELECT set_config('a.b', note, true) FROM orders WHERE tenant_id = %[1]d", "WITH t AS (SELECT set_config('a.b', 'x', false)) SELECT count(*) FROM whole, t",
	"SELECT set_config('a.b', 'x', false), set_config('work_mem', '5MB', true)", "UPDATE whole SET a = length(set_config('a.b', 'y', false))",
	"PREPARE p AS SELECT 1", "PREPARE q AS SELECT * FROM orders WHERE tenant_id = $1", "EXECUTE p", "EXECUTE q(%[1]d)", "DEALLOCATE ALL", "EXPLAIN SELECT * FROM orders WHERE tenant_id = %[1]d",
	"DECLARE c CURSOR FOR SELECT * FROM orders", "DECLARE h CURSOR WITH HOLD FOR SELECT 1", "FETCH c", "CLOSE ALL",
	"LISTEN l", "NOTIFY l", "UNLISTEN *",
	"SELECT pg_advisory_lock(1)", "SELECT pg_advisory_xact_lock(2)", "SELECT pg_advisory_unlock_all()", "SELECT pg_try_advisory_lock(3), count(*) FROM whole",
	"CREATE TEMP TABLE tt (a int)", "DROP TABLE IF EXISTS tt", "COMMENT ON TABLE orders IS 'x'", "COMMENT ON TABLE whole IS 'y'",
	"SELECT 1/0", "SELECT nothing", "SELEC", "SELECT * FROM nowhere", "LOCK TABLE whole IN SHARE MODE", "SELECT 1/(tenant_id - %[1]d) FROM orders WHERE tenant_id = %[1]d",
	"UPDATE pg_settings SET setting = '5MB' WHERE name = 'work_mem'", "CREATE TEMP VIEW tv AS SELECT * FROM pg_settings", "UPDATE tv SET setting = '6MB' WHERE name = 'work_mem'", "UPDATE pv SET setting = '7MB' WHERE name = 'work_mem'",
	"WITH w AS (UPDATE pg_settings SET setting = '8MB' WHERE name = 'work_mem' RETURNING 1) SELECT * FROM w", "SELECT sets()", "SELECT sets() FROM whole", "SELECT sets() FROM orders WHERE tenant_id = %[1]d", "SELECT * FROM setting('work_mem')",
	"SELECT random()", "SELECT now()", "DO $$ BEGIN INSERT INTO whole VALUES (2); END $$", "VALUES (1), (2)", "COPY orders TO STDOUT", "TRUNCATE whole",
}

// leftover is everything that a session can leave in a shard's connection. A setting with the value that it begins with is nothing: after
// SET and SET LOCAL of one transaction PostgreSQL calls its source "session" (AtEOXact_GUC in src/backend/utils/misc/guc.c).
const leftover = `SELECT 'setting ' || name || ' = ' || setting FROM pg_settings WHERE source IN ('session', 'interactive') AND setting <> reset_val AND name NOT IN ('transaction_isolation', 'transaction_read_only', 'transaction_deferrable')
	UNION ALL SELECT 'customized ' || coalesce(current_setting('a.b', true), '') WHERE coalesce(current_setting('a.b', true), '') <> ''
	UNION ALL SELECT 'role ' || current_user WHERE current_user <> session_user OR current_setting('role') <> 'none'
	UNION ALL SELECT 'lock ' || locktype || ' ' || mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype NOT IN ('relation', 'virtualxid')
	UNION ALL SELECT 'channel ' || pg_listening_channels()
	UNION ALL SELECT 'statement of SQL ' || name FROM pg_prepared_statements WHERE from_sql
	UNION ALL SELECT 'cursor ' || name FROM pg_cursors WHERE name <> ''
	UNION ALL SELECT 'temporary ' || relname FROM pg_class WHERE relnamespace = pg_my_temp_schema() AND relkind = 'r'`

// TestSessionsLeaveNothing has sessions do whatever they like, in transactions and out, in one message or several, with errors, and
// leave politely or not. Afterwards no connection is missing in the pools, and none has a trace of a session: a setting, a role, a lock, a
// channel, a cursor, a temporary table.
func TestSessionsLeaveNothing(t *testing.T) {
	sessions := testrun.Count(*leftoverCount, 15, 60)
	cl, conn, keys := orders(t, config{shards: 2, executor: limitsOf(3)})
	cl.monitors(t)
	exec(t, conn, "CREATE TABLE whole (a int)")
	exec(t, conn, "CREATE SCHEMA other")
	exec(t, conn, "INSERT INTO whole VALUES (1)")
	wantCode(t, conn, "0A000", "CREATE VIEW pv AS SELECT * FROM pg_settings")
	exec(t, conn, "CREATE FUNCTION sets() RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SET work_mem = ''9MB'''; RETURN ''; END $$")
	exec(t, conn, "CREATE FUNCTION setting(n text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('SELECT set_config(%L, %L, false)', n, '10MB'); RETURN ''; END $$")
	_ = conn.Close(context.Background())
	seed := *leftoverSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	keyed := strings.NewReplacer("%[1]d", fmt.Sprint(keys[0][0]), "%[2]d", fmt.Sprint(keys[1][0]))
	for n := range sessions {
		var said []string
		c := cl.connect(t, []string{"", "&DateStyle=ISO", "&options=-c%20datestyle%3DSQL%2Cdmy"}[rnd.IntN(3)])
		ctx, stop := context.WithTimeout(context.Background(), waitfor.Max)
		for range 1 + rnd.IntN(6) {
			var message []string
			for range 1 + rnd.IntN(4)*rnd.IntN(2) {
				p := pieces[rnd.IntN(len(pieces))]
				message = append(message, keyed.Replace(p))
			}
			text := strings.Join(message, "; ")
			said = append(said, text)
			if extended := len(message) == 1 && rnd.IntN(3) == 0 && !strings.HasPrefix(text, "COPY"); extended {
				rows, err := c.Query(ctx, text, pgx.QueryExecModeExec)
				if err == nil {
					rows.Close()
				}
			} else if _, err := c.PgConn().Exec(ctx, text).ReadAll(); ctx.Err() != nil {
				t.Fatalf("seed %d: %q: %v", seed, said, err)
			}
			if c.IsClosed() {
				break
			}
		}
		if rnd.IntN(2) == 0 {
			_ = c.PgConn().Conn().Close()
		}
		_ = c.Close(ctx)
		if left := cl.remains(ctx, t); left != "" {
			t.Fatalf("session %d of -leftover-seed %d: %s\nafter %s", n, seed, left, strings.Join(said, "\n      "))
		}
		stop()
	}
}

// remains waits until no session holds a connection and says what is wrong with those that the pools have.
func (c *cluster) remains(ctx context.Context, t *testing.T) string {
	t.Helper()
	for deadline := time.Now().Add(waitfor.Max); ; time.Sleep(5 * time.Millisecond) {
		out := ""
		for _, h := range c.ex.Health() {
			if h.Open != h.Idle {
				out += fmt.Sprintf("shard %s: %d of %d connections are in use, by nobody; ", h.Shard, h.Open-h.Idle, h.Open)
			}
		}
		if out == "" {
			break
		}
		if time.Now().After(deadline) {
			return out
		}
	}
	found := ""
	for _, h := range c.ex.Health() {
		var all []*executor.Conn
		for range h.Idle {
			conn, err := c.ex.Acquire(ctx, h.Shard, nil)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, conn)
			res, err := conn.Exec(leftover)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range res.Rows {
				found += h.Shard + ": " + row[0].String + "; "
			}
		}
		for _, conn := range all {
			if found != "" {
				conn.Break()
			}
			conn.Release()
		}
	}
	return found
}

// TestKeptConnectionIsGivenUpOnce: DISCARD ALL behind a Bind that has brought the session to several shards gives the kept
// connection up; the conversation that has it as a part does so too.
func TestKeptConnectionIsGivenUpOnce(t *testing.T) {
	cl, _, _ := orders(t, config{shards: 2})
	for range 3 {
		conn, err := pgconn.Connect(t.Context(), cl.url(""))
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{"CREATE TABLE IF NOT EXISTS plain (a int)", "SELECT pg_advisory_lock(1)"} {
			if _, err := conn.Exec(t.Context(), sql).ReadAll(); err != nil {
				t.Fatal(err)
			}
		}
		f := conn.Frontend()
		f.SendParse(&pgproto3.Parse{Name: "s", Query: fmt.Sprintf("SELECT count(*) AS n%p FROM orders JOIN plain ON a = id", conn)})
		f.SendBind(&pgproto3.Bind{DestinationPortal: "p", PreparedStatement: "s"})
		f.SendParse(&pgproto3.Parse{Query: "DISCARD ALL"})
		f.SendBind(&pgproto3.Bind{})
		f.SendExecute(&pgproto3.Execute{})
		f.SendSync(&pgproto3.Sync{})
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
		for {
			m, err := conn.ReceiveMessage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := m.(*pgproto3.ReadyForQuery); ok {
				break
			}
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	waitfor.True(t, "the pools to count as many connections as are idle", func() bool {
		return !slices.ContainsFunc(cl.ex.Health(), func(h executor.Health) bool { return h.Open != h.Idle })
	})
}

// TestLockInSeveral: a lock that is taken in a transaction over several shards is the session's, and ends with it.
func TestLockInSeveral(t *testing.T) {
	for name, takes := range map[string][]string{
		"message": {"SELECT count(*) FROM orders; SELECT pg_advisory_lock(1)"},
		"block":   {"BEGIN", "SELECT count(*) FROM orders", "SELECT pg_advisory_lock(1)", "ROLLBACK"},
	} {
		t.Run(name, func(t *testing.T) {
			cl, watch, _ := orders(t, config{shards: 2})
			conn := cl.connect(t)
			for _, sql := range takes {
				exec(t, conn, sql)
			}
			exec(t, conn, "SELECT count(*) FROM orders")
			if one[bool](t, watch, "SELECT pg_try_advisory_lock(1)") {
				t.Error("another session has the lock as well")
			}
			exec(t, conn, "BEGIN; COMMENT ON TABLE orders IS 'x'; SELECT count(*) FROM orders")
			wantCode(t, conn, "0A000", "SELECT pg_advisory_lock(2)")
			if err := conn.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			waitfor.True(t, "the lock to end with the session", func() bool { return one[bool](t, watch, "SELECT pg_try_advisory_lock(1)") })
		})
	}
}

// TestDescribedOnTheDefaultShard: in a transaction over several shards, what only the default shard has is described there.
func TestDescribedOnTheDefaultShard(t *testing.T) {
	_, conn, keys := orders(t, config{shards: 3})
	exec(t, conn, `CREATE TABLE own (id serial PRIMARY KEY, note text)`)
	exec(t, conn, `BEGIN`)
	exec(t, conn, `INSERT INTO orders VALUES ($1, 1, 'a')`, keys[2][0])
	exec(t, conn, `INSERT INTO orders VALUES ($1, 1, 'a')`, keys[1][0])
	if n := one[int64](t, conn, `SELECT nextval('own_id_seq')`); n != 1 {
		t.Errorf("the sequence's first value is %d", n)
	}
	exec(t, conn, `COMMIT`)
}

// TestPreparedInAMessage: the finding that TestSessionsLeaveNothing stands for.
func TestPreparedInAMessage(t *testing.T) {
	cl, conn, _ := orders(t, config{shards: 2, executor: limitsOf(2)})
	for range 10 {
		if _, err := conn.PgConn().Exec(context.Background(), "PREPARE p AS SELECT 1; SET work_mem = '1MB'; DEALLOCATE p").ReadAll(); err != nil {
			t.Fatal(err.(*pgconn.PgError))
		}
	}
	_ = conn.Close(context.Background())
	if left := cl.remains(context.Background(), t); left != "" {
		t.Error(left)
	}
}
