package pgtest_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func query(t *testing.T, url, sql string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitfor.Max)
	defer cancel()
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	res := conn.ExecParams(ctx, sql, nil, nil, nil, nil).Read()
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	if len(res.Rows) != 1 {
		t.Fatalf("%s: %d rows", sql, len(res.Rows))
	}
	return string(res.Rows[0][0])
}

func TestDatabaseIsFreshAndDropped(t *testing.T) {
	s := pgtest.Server(t)
	var name string
	t.Run("use", func(t *testing.T) {
		a, b := pgtest.Database(t), pgtest.Database(t)
		name = query(t, a, "SELECT current_database()")
		if other := query(t, b, "SELECT current_database()"); other == name {
			t.Fatalf("both databases are %s", name)
		}
		if n := query(t, a, "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"); n != "0" {
			t.Fatalf("%s relations in a fresh database", n)
		}
	})
	if n := query(t, s.URL("postgres"), "SELECT count(*) FROM pg_database WHERE datname = '"+name+"'"); n != "0" {
		t.Fatalf("%s was not dropped", name)
	}
}

func TestDatabaseWithAPreparedTransactionIsDropped(t *testing.T) {
	t.Run("use", func(t *testing.T) {
		url := pgtest.Database(t)
		conn, err := pgconn.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(t.Context(), "BEGIN; CREATE TABLE t (a int); PREPARE TRANSACTION 'it''s'").ReadAll(); err != nil {
			t.Fatal(err)
		}
	})
	if n := query(t, pgtest.Server(t).URL("postgres"), "SELECT count(*) FROM pg_prepared_xacts"); n != "0" {
		t.Fatalf("%s prepared transactions are left", n)
	}
}

func TestEveryVersionRuns(t *testing.T) {
	all := pgtest.Versions(t)
	seen := map[int]bool{}
	for _, i := range all {
		seen[i.Major] = true
		t.Run(i.Version, func(t *testing.T) {
			s := pgtest.NewServerOf(t, i, nil)
			if v := query(t, s.URL("postgres"), "SHOW server_version"); !strings.HasPrefix(v, i.Version) {
				t.Fatalf("server_version is %s, want %s", v, i.Version)
			}
			if v := query(t, s.SocketURL("postgres"), "SHOW wal_level"); v != "logical" {
				t.Fatalf("wal_level is %s", v)
			}
		})
	}
	for major := localpg.MajorMin; major <= 18; major++ {
		if !seen[major] {
			t.Errorf("PostgreSQL %d is not among %v", major, all)
		}
	}
}

func TestPrograms(t *testing.T) {
	for _, p := range []string{pgtest.PSQL(t), pgtest.PGBench(t)} {
		if out, err := exec.Command(p, "--version").CombinedOutput(); err != nil || !strings.Contains(string(out), "PostgreSQL") {
			t.Errorf("%s --version: %v: %s", p, err, out)
		}
	}
}
