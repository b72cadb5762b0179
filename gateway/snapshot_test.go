package gateway_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/executor/moment"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/sqlstate"
)

// exportBlock begins a block and returns the name of what it sees.
func exportBlock(t *testing.T, conn *pgx.Conn, begin string) string {
	t.Helper()
	exec(t, conn, begin)
	return one[string](t, conn, "SELECT pg_export_snapshot()")
}

// TestExportSnapshot: sessions of other routers see what a block sees, on all shards and for as long as they like.
func TestExportSnapshot(t *testing.T) {
	t.Parallel()
	c, writer, keys := mirrored(t)
	exec(t, writer, "CREATE TABLE base (id bigint)")
	exec(t, writer, "INSERT INTO base VALUES (1000)")
	change := func() {
		for _, ks := range keys {
			exec(t, writer, "UPDATE orders SET id = id + 1 WHERE tenant_id = $1", ks[0])
		}
		exec(t, writer, "UPDATE base SET id = id + 1")
	}
	other := start(t, config{dir: c.dir})
	sees := func(who string, conn *pgx.Conn, want int64) {
		t.Helper()
		for _, ks := range keys {
			if got := one[int64](t, conn, "SELECT id FROM orders WHERE tenant_id = $1", ks[0]); got != want {
				t.Errorf("%s sees %d on a shard, want %d", who, got, want)
			}
		}
		if got := one[int64](t, conn, "SELECT sum(id)::bigint FROM orders"); got != want*int64(len(keys)) {
			t.Errorf("%s sees a sum of %d, want %d", who, got, want*int64(len(keys)))
		}
		if got := one[int64](t, conn, "SELECT id FROM base"); got != want {
			t.Errorf("%s sees %d in a table without shards, want %d", who, got, want)
		}
	}
	for _, consistency := range []string{"shard", "atomic"} {
		t.Run(consistency, func(t *testing.T) {
			was := one[int64](t, writer, "SELECT id FROM base")
			exporter, importer, late := c.connect(t), other.connect(t), other.connect(t)
			for _, conn := range []*pgx.Conn{exporter, importer, late} {
				exec(t, conn, "SET cleave.read_consistency = '"+consistency+"'")
			}
			name := exportBlock(t, exporter, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
			change()
			exec(t, importer, "BEGIN")
			exec(t, importer, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
			exec(t, importer, "SET TRANSACTION SNAPSHOT '"+name+"'")
			sees("the exporter", exporter, was)
			sees("the importer", importer, was)
			if err := execErr(importer, "UPDATE base SET id = 0"); sqlstate.Code(codeOf(err)) != sqlstate.ReadOnlyTransaction {
				t.Errorf("a write in a READ ONLY block: %v", err)
			}
			exec(t, importer, "ROLLBACK")
			exec(t, importer, "BEGIN ISOLATION LEVEL REPEATABLE READ")
			exec(t, importer, "SET TRANSACTION SNAPSHOT '"+name+"'")
			exec(t, exporter, "COMMIT")
			sees("the importer of one that has ended", importer, was)
			if err := execErr(importer, "UPDATE orders SET id = 0 WHERE tenant_id = $1", keys[0][0]); sqlstate.Code(codeOf(err)) != sqlstate.SerializationFailure {
				t.Errorf("a write of a row that was changed since: %v", err)
			}
			exec(t, importer, "ROLLBACK")
			exec(t, late, "BEGIN ISOLATION LEVEL REPEATABLE READ")
			err := execErr(late, "SET TRANSACTION SNAPSHOT '"+name+"'")
			if !strings.Contains(messageOf(err), name) || codeOf(err) != "22023" && codeOf(err) != "42704" {
				t.Errorf("the exporter has ended: %v", err)
			}
			exec(t, late, "ROLLBACK")
			sees("a new transaction", late, was+1)
		})
	}
}

// execErr runs a statement, and returns its error.
func execErr(conn *pgx.Conn, sql string, args ...any) error {
	_, err := conn.Exec(context.Background(), sql, args...)
	return err
}

func messageOf(err error) string {
	if e, ok := err.(*pgconn.PgError); ok {
		return e.Message
	}
	return ""
}

// importing are blocks that import, which PostgreSQL judges without looking at the name.
var importing = [][]string{
	{"BEGIN", "SET TRANSACTION SNAPSHOT 'x'"},
	{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SET TRANSACTION SNAPSHOT 'x'"},
	{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SET TRANSACTION SNAPSHOT '../../PG_VERSION'"},
	{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1", "SET TRANSACTION SNAPSHOT 'x'"},
	{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SAVEPOINT s", "SET TRANSACTION SNAPSHOT 'x'"},
	{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "SET TRANSACTION SNAPSHOT 'x'"},
	{"BEGIN", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET TRANSACTION SNAPSHOT 'x'"},
	{"BEGIN", "SELECT 1/0", "SET TRANSACTION SNAPSHOT 'x'"},
	{"SET TRANSACTION SNAPSHOT 'x'"},
	{"SET LOCAL TRANSACTION SNAPSHOT 'x'"},
	{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SET LOCAL TRANSACTION SNAPSHOT 'x'"},
	{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SAVEPOINT s", "SELECT pg_export_snapshot()"},
}

// TestImportErrors: what PostgreSQL says of an import, the router says as well.
func TestImportErrors(t *testing.T) {
	t.Parallel()
	plain, err := pgx.Connect(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close(context.Background()) }()
	c := start(t, config{})
	conn := c.connect(t)
	says := func(conn *pgx.Conn, all []string) (said string) {
		for _, sql := range all {
			if err := execErr(conn, sql); err != nil {
				said += codeOf(err) + " " + messageOf(err) + "\n"
			}
		}
		_, _ = conn.Exec(t.Context(), "ROLLBACK")
		return said
	}
	for _, all := range importing {
		if want, got := says(plain, all), says(conn, all); want != got {
			t.Errorf("%q:\n%s\nwant\n%s", all, got, want)
		}
	}
}

// TestForgedSnapshots: no other name than the cluster's own is passed to a shard.
func TestForgedSnapshots(t *testing.T) {
	t.Parallel()
	c := start(t, config{shards: 2})
	exporter, conn := c.connect(t), c.connect(t)
	name := exportBlock(t, exporter, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	key, err := moment.NewKey(c.dir).Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e, ok := moment.Unseal(key, name)
	if !ok || len(e.Shards) != 2 {
		t.Fatalf("%+v", e)
	}
	direct, err := pgx.Connect(t.Context(), c.shards[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = direct.Close(context.Background()) }()
	restarted, older := moment.Exported{Version: e.Version, Shards: map[string]moment.Snapshot{}}, e
	for shard, s := range e.Shards {
		s.Run += "0"
		restarted.Shards[shard] = s
	}
	older.Version--
	sealed := func(e moment.Exported, key string) string {
		name, err := e.Seal([]byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	for what, x := range map[string]struct {
		name string
		code sqlstate.Code
	}{
		"a shard's own":      {exportBlock(t, direct, "BEGIN ISOLATION LEVEL REPEATABLE READ"), sqlstate.InvalidParameterValue},
		"another key":        {sealed(e, "another"), sqlstate.InvalidParameterValue},
		"a huge one":         {strings.Repeat("0", 2<<20), sqlstate.InvalidParameterValue},
		"of a server before": {sealed(restarted, string(key)), sqlstate.ObjectNotInState},
		"by an older map":    {sealed(older, string(key)), sqlstate.SerializationFailure},
	} {
		exec(t, conn, "BEGIN ISOLATION LEVEL REPEATABLE READ")
		if err := execErr(conn, "SET TRANSACTION SNAPSHOT '"+x.name+"'"); sqlstate.Code(codeOf(err)) != x.code {
			t.Errorf("%s: %.300v", what, err)
		}
		if err := execErr(conn, "SELECT 1"); sqlstate.Code(codeOf(err)) != sqlstate.InFailedTransaction {
			t.Errorf("%s: the block goes on: %v", what, err)
		}
		exec(t, conn, "ROLLBACK")
	}
	exec(t, conn, "BEGIN ISOLATION LEVEL SERIALIZABLE")
	if err := execErr(conn, "SET TRANSACTION SNAPSHOT '"+name+"'"); messageOf(err) != "a serializable transaction cannot import a snapshot from a non-serializable transaction" {
		t.Error(err)
	}
	exec(t, conn, "ROLLBACK")
	// A change of the map: what has been exported before is of no use.
	exec(t, conn, ordersTable)
	exec(t, conn, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	if err := execErr(conn, "SET TRANSACTION SNAPSHOT '"+name+"'"); sqlstate.Code(codeOf(err)) != sqlstate.SerializationFailure {
		t.Error(err)
	}
	exec(t, conn, "ROLLBACK")
}

// TestExportRefused: exports of several shards that are no moment.
func TestExportRefused(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	for _, x := range []struct {
		id  string
		all []string
	}{
		{"CLV-1034", []string{"SELECT pg_export_snapshot()"}},
		{"CLV-1034", []string{"SET default_transaction_isolation = 'repeatable read'", "SET TRANSACTION SNAPSHOT '00'"}},
		{"CLV-1036", []string{"RESET default_transaction_isolation", "BEGIN", "SELECT pg_export_snapshot()"}},
		{"CLV-1037", []string{"SET cleave.read_consistency = 'shard'", "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM orders WHERE tenant_id = " + strconv.FormatInt(keys[0][0], 10), "SELECT pg_export_snapshot()"}},
		{"CLV-1003", []string{"BEGIN ISOLATION LEVEL SERIALIZABLE", "SELECT pg_export_snapshot()"}},
		{"", []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT pg_export_snapshot() FROM orders"}},
	} {
		var err error
		for _, sql := range x.all {
			if err = execErr(conn, sql); err != nil {
				break
			}
		}
		if e, ok := err.(*pgconn.PgError); !ok || e.Code != string(sqlstate.FeatureNotSupported) || x.id != "" && e.Routine != x.id {
			t.Errorf("%q: %v", x.all, err)
		}
		_, _ = conn.Exec(t.Context(), "ROLLBACK")
	}
}

// TestExportOfOneShard: a cluster of one shard exports and imports whatever PostgreSQL does.
func TestExportOfOneShard(t *testing.T) {
	t.Parallel()
	c := start(t, config{shards: 1})
	exporter, importer, writer := c.connect(t), c.connect(t), c.connect(t)
	exec(t, writer, "CREATE TABLE base (id bigint)")
	for i, x := range []struct{ begin, imports, refused string }{
		{"BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ", ""},
		{"BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", ""},
		{"BEGIN ISOLATION LEVEL SERIALIZABLE", "BEGIN ISOLATION LEVEL SERIALIZABLE", ""},
		{"BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN ISOLATION LEVEL SERIALIZABLE", "a serializable transaction cannot import a snapshot from a non-serializable transaction"},
		{"BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY", "BEGIN ISOLATION LEVEL SERIALIZABLE", "a non-read-only serializable transaction cannot import a snapshot from a read-only transaction"},
	} {
		name := exportBlock(t, exporter, x.begin)
		exec(t, writer, "INSERT INTO base VALUES (1)")
		exec(t, importer, x.imports)
		err := execErr(importer, "SET TRANSACTION SNAPSHOT '"+name+"'")
		if messageOf(err) != x.refused {
			t.Errorf("%s: %v", x.imports, err)
		}
		if err == nil {
			if n := one[int64](t, importer, "SELECT count(*) FROM base"); n != int64(i) {
				t.Errorf("%s: %d rows, want %d", x.imports, n, i)
			}
		}
		exec(t, importer, "ROLLBACK")
		exec(t, exporter, "COMMIT")
	}
}

// TestCatalogueOfABlock: what the router makes of a question about the catalogue is not read as a client's question again, where the
// block is on all shards. pg_dump asks for tableoid beside the other columns.
func TestCatalogueOfABlock(t *testing.T) {
	t.Parallel()
	_, conn, _ := orders(t, config{})
	const ask = "SELECT c.tableoid::regclass::text || ' ' || c.relname || ' ' || n.tableoid::regclass FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'orders'"
	want := one[string](t, conn, ask)
	exec(t, conn, "SET cleave.read_consistency = 'atomic'")
	exec(t, conn, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	for range 2 {
		if got := one[string](t, conn, ask); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if rows, err := conn.Exec(t.Context(), ask, pgx.QueryExecModeSimpleProtocol); err != nil || rows.RowsAffected() != 1 {
		t.Error(rows, err)
	}
	exec(t, conn, "ROLLBACK")
}

// TestExporterIsIdle: a block that has exported a snapshot is not ended because it says nothing: pg_dump -j holds its locks so.
func TestExporterIsIdle(t *testing.T) {
	t.Parallel()
	c := start(t, config{limits: gateway.Limits{IdleInTransactionMax: 300 * time.Millisecond}})
	exporter, other := c.connect(t), c.connect(t)
	ends := func() {
		t.Helper()
		waitfor.True(t, "a block that says nothing is ended", func() bool {
			rows, err := c.connect(t).Query(t.Context(), "SELECT pid FROM cleave.sessions WHERE pid = $1", other.PgConn().PID())
			if err != nil {
				t.Fatal(err)
			}
			pids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			return err == nil && len(pids) == 0
		})
	}
	name := exportBlock(t, exporter, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	exec(t, other, "BEGIN")
	ends()
	importer := c.connect(t)
	exec(t, importer, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	exec(t, importer, "SET TRANSACTION SNAPSHOT '"+name+"'")
	exec(t, exporter, "COMMIT")
	// The next block of the session is like others.
	exec(t, exporter, "BEGIN")
	other = exporter
	ends()
}
