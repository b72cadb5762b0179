package sqlite_test

import (
	"database/sql"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/lib/pq"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// pgbench makes its tables on the server's side, runs its select-only script in
// all protocols, and its own transaction.
func TestPGBench(t *testing.T) {
	host, port := serve(t, harness().Open(t))
	bench := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(pgtest.PGBench(t), append([]string{"-h", host, "-p", port, "-U", "cleave"}, append(args, "cleave")...)...)
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(out), "ERROR") {
			t.Fatalf("pgbench %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	bench("-i", "-I", "dtGvp", "-q")
	for _, mode := range []string{"simple", "extended", "prepared"} {
		if out := bench("-S", "-n", "-t", "50", "-M", mode); !strings.Contains(out, "50/50") {
			t.Errorf("%s: %s", mode, out)
		}
	}
	if out := bench("-n", "-t", "20", "-c", "2", "-M", "prepared"); !strings.Contains(out, "40/40") {
		t.Errorf("%s", out)
	}
}

func TestPGX(t *testing.T) {
	host, port := serve(t, harness().Open(t))
	c, err := pgx.Connect(t.Context(), "postgres://cleave@"+host+":"+port+"/cleave?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if _, err := c.Exec(t.Context(), `CREATE TABLE v (id bigint PRIMARY KEY, s text, n numeric(12,3), f float8, b bool, raw bytea, at timestamptz, d date, u uuid, j jsonb)`); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2024, 5, 6, 7, 8, 9, 123456000, time.UTC)
	id := [16]byte{1, 2, 3}
	if _, err := c.Exec(t.Context(), `INSERT INTO v VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		int64(7), "größe", "123.4567", 1.25, true, []byte{0, 255}, at, at, id, map[string]any{"k": []int{1, 2}}); err != nil {
		t.Fatal(err)
	}
	var s, n, j string
	var f float64
	var b bool
	var raw []byte
	var got time.Time
	var u [16]byte
	err = c.QueryRow(t.Context(), `SELECT s, n::text, f, b, raw, at, u, j::text FROM v WHERE id = ANY ($1)`, []int64{7, 8}).Scan(&s, &n, &f, &b, &raw, &got, &u, &j)
	if err != nil {
		t.Fatal(err)
	}
	if s != "größe" || n != "123.457" || f != 1.25 || !b || string(raw) != "\x00\xff" || !got.Equal(at) || u != id || j != `{"k": [1, 2]}` {
		t.Fatalf("%q %q %v %v %x %v %x %q", s, n, f, b, raw, got, u, j)
	}
	batch := &pgx.Batch{}
	for i := range 5 {
		batch.Queue(`INSERT INTO v (id, s) VALUES ($1, $2)`, int64(100+i), "batch")
	}
	if err := c.SendBatch(t.Context(), batch).Close(); err != nil {
		t.Fatal(err)
	}
	rows, err := c.Query(t.Context(), `SELECT id FROM v WHERE s = $1 ORDER BY id`, "batch")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(ids) != 5 || ids[4] != 104 {
		t.Fatalf("%v %v", ids, err)
	}
	if err := pgx.BeginFunc(t.Context(), c, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO v (id) DEFAULT VALUES`)
		return err
	}); err == nil {
		t.Fatal("a syntax error was accepted")
	}
}

func TestLibPQ(t *testing.T) {
	host, port := serve(t, harness().Open(t))
	db, err := sql.Open("postgres", "host="+host+" port="+port+" user=cleave dbname=cleave sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE v (id integer PRIMARY KEY DEFAULT 5, at timestamp DEFAULT '2020-01-01', note varchar(3))`); err != nil {
		t.Fatal(err)
	}
	var id int
	var at time.Time
	if err := db.QueryRowContext(t.Context(), `INSERT INTO v DEFAULT VALUES RETURNING id, at`).Scan(&id, &at); err != nil || id != 5 || at.Year() != 2020 {
		t.Fatalf("%d %v %v", id, at, err)
	}
	st, err := db.PrepareContext(t.Context(), `SELECT note IS NULL FROM v WHERE id = $1`)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for range 3 {
		var null bool
		if err := st.QueryRowContext(t.Context(), 5).Scan(&null); err != nil || !null {
			t.Fatalf("%v %v", null, err)
		}
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE v SET note = 'long'`); err == nil || !strings.Contains(err.Error(), "value too long for type character varying(3)") {
		t.Fatalf("got %v", err)
	}
}
