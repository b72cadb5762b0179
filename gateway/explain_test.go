package gateway_test

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// planNode is a node of a plan as tools read it.
type planNode struct {
	Type     string     `json:"Node Type"`
	Shard    string     `json:"Shard"`
	Rows     *float64   `json:"Actual Rows"`
	Loops    *float64   `json:"Actual Loops"`
	Time     *float64   `json:"Actual Total Time"`
	Cost     *float64   `json:"Total Cost"`
	Children []planNode `json:"Plans"`
}

type planDocument struct {
	Plan planNode
	Time *float64 `json:"Execution Time"`
}

// TestExplainSeveralFormats: EXPLAIN over several shards is one plan of the shards' plans in every format, and with ANALYZE the
// statement is run, once.
func TestExplainSeveralFormats(t *testing.T) {
	_, conn, keys := orders(t, config{})
	fill(t, conn, keys, 5)
	exec(t, conn, "CREATE TABLE rates (id int PRIMARY KEY, n int) WITH (cleave.reference = true)")
	exec(t, conn, "INSERT INTO rates VALUES (1, 0)")
	ctx := context.Background()
	total := one[int](t, conn, "SELECT count(*) FROM orders")
	all := len(keys)
	answer := func(sql string, mode pgx.QueryExecMode, args ...any) string {
		t.Helper()
		rows, err := conn.Query(ctx, sql, append([]any{mode}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (string, error) { return string(r.RawValues()[0]), nil })
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return strings.Join(lines, "\n")
	}
	plan := func(sql string, mode pgx.QueryExecMode, args ...any) planDocument {
		t.Helper()
		text := answer(sql, mode, args...)
		var docs []planDocument
		if err := json.Unmarshal([]byte(text), &docs); err != nil || len(docs) != 1 {
			t.Fatalf("%s: %v\n%s", sql, err, text)
		}
		return docs[0]
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeCacheStatement} {
		d := plan("EXPLAIN (FORMAT JSON) SELECT * FROM orders", mode)
		if len(d.Plan.Children) != 3 || d.Plan.Children[1].Shard != "shard-1" || d.Plan.Children[1].Type != "Seq Scan" || d.Plan.Cost == nil || d.Plan.Rows != nil || d.Time != nil {
			t.Errorf("in mode %v: %+v", mode, d)
		}
		d = plan("EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM orders WHERE id >= 0 ORDER BY id LIMIT 2", mode)
		if len(d.Plan.Children) != 3 || d.Plan.Rows == nil || d.Plan.Children[0].Rows == nil || len(d.Plan.Children[0].Children) == 0 || d.Time == nil || d.Plan.Time == nil {
			t.Errorf("in mode %v: %+v", mode, d)
		}
	}
	d := plan("EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF, SUMMARY OFF, COSTS OFF) SELECT * FROM orders WHERE id > $1", pgx.QueryExecModeExec, -1)
	if *d.Plan.Rows != float64(total) || d.Time != nil || d.Plan.Time != nil || d.Plan.Children[2].Time != nil || d.Plan.Cost != nil {
		t.Errorf("without times: %+v", d)
	}
	// The steps of what is not each shard's own work.
	d = plan("EXPLAIN (ANALYZE, FORMAT JSON) SELECT a.note, count(*) FROM orders a JOIN orders b USING (id) GROUP BY 1", pgx.QueryExecModeExec)
	if len(d.Plan.Children) < 4 || d.Plan.Rows == nil || *d.Plan.Rows != float64(one[int](t, conn, "SELECT count(DISTINCT note) FROM orders")) {
		t.Errorf("of a gather: %+v", d)
	}

	// Writes are done once.
	exec(t, conn, "UPDATE orders SET note = '0'")
	steps := func(n int, want string) {
		t.Helper()
		if got := one[int](t, conn, "SELECT count(*) FROM orders WHERE note = $1", want); got != total {
			t.Errorf("after %d writes %d of %d rows have note %s", n, got, total, want)
		}
	}
	for n, format := range []string{"TEXT", "JSON", "YAML", "XML"} {
		sql := fmt.Sprintf("EXPLAIN (ANALYZE, FORMAT %s) UPDATE orders SET note = (note::int + 1)::text", format)
		answer(sql, pgx.QueryExecModeExec)
		steps(n+1, fmt.Sprint(n+1))
	}
	steps(0, "4")
	answer("EXPLAIN (FORMAT JSON) UPDATE orders SET note = 'never'", pgx.QueryExecModeExec)
	answer("EXPLAIN UPDATE orders SET note = 'never'", pgx.QueryExecModeSimpleProtocol)
	steps(0, "4")
	exec(t, conn, "BEGIN")
	answer("EXPLAIN ANALYZE UPDATE orders SET note = 'never'", pgx.QueryExecModeSimpleProtocol)
	exec(t, conn, "ROLLBACK")
	steps(0, "4")
	answer("EXPLAIN ANALYZE UPDATE orders SET note = (note::int + (SELECT count(*) FROM rates))::text", pgx.QueryExecModeExec)
	steps(0, "5")
	answer("EXPLAIN ANALYZE UPDATE rates SET n = n + 1", pgx.QueryExecModeExec)
	if n := one[int](t, conn, "SELECT n FROM rates"); n != 1 {
		t.Errorf("the reference table was changed %d times", n)
	}
	values := make([]string, all)
	for i, k := range keys {
		values[i] = fmt.Sprintf("(%d, 99, 'new')", k[0])
	}
	d = plan("EXPLAIN (ANALYZE, FORMAT JSON) INSERT INTO orders VALUES "+strings.Join(values, ", ")+" RETURNING *", pgx.QueryExecModeSimpleProtocol)
	if n := one[int](t, conn, "SELECT count(*) FROM orders WHERE id = 99"); n != all || *d.Plan.Rows != float64(all) {
		t.Errorf("%d rows were inserted, %v told", n, *d.Plan.Rows)
	}
	text := answer("EXPLAIN (ANALYZE, COSTS OFF) DELETE FROM orders WHERE id = 99 RETURNING id", pgx.QueryExecModeExec)
	if n := one[int](t, conn, "SELECT count(*) FROM orders WHERE id = 99"); n != 0 || strings.Count(text, "Delete on ") != 3 || !strings.Contains(text, "shard shard-2") {
		t.Errorf("%d rows are left\n%s", n, text)
	}

	// The other formats.
	dec := xml.NewDecoder(strings.NewReader(answer("EXPLAIN (ANALYZE, FORMAT XML) SELECT * FROM orders", pgx.QueryExecModeSimpleProtocol)))
	shards := 0
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if s, ok := token.(xml.StartElement); ok && s.Name.Local == "Shard" {
			shards++
		}
	}
	if shards != 3 {
		t.Errorf("%d shards in XML", shards)
	}
	if got := answer("EXPLAIN (FORMAT YAML) SELECT * FROM orders", pgx.QueryExecModeExec); !strings.HasPrefix(got, "- Plan: \n    Node Type: \"Custom Scan\"\n") || strings.Count(got, "\n      - Node Type: \"Seq Scan\"\n") != 3 {
		t.Errorf("YAML:\n%s", got)
	}
	wantCode(t, conn, "22023", "EXPLAIN (FORMAT nosuch) SELECT * FROM orders")
	wantCode(t, conn, "42601", "EXPLAIN (NOSUCH) SELECT * FROM orders")
	exec(t, conn, `PREPARE "all" (int) AS SELECT * FROM orders WHERE id > $1`)
	if d := plan(`EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE "all" (-1)`, pgx.QueryExecModeSimpleProtocol); *d.Plan.Rows != float64(total) {
		t.Errorf("of EXECUTE: %+v", d)
	}
}
