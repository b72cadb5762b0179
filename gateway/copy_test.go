package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// copyTable has a column of each kind that COPY writes in a way of its own.
const copyTable = `CREATE TABLE rows (tenant %s, id bigint, note text, num numeric, at timestamptz, raw bytea, arr text[], ok boolean, PRIMARY KEY (tenant, id))`

// plainConn is a connection to one plain PostgreSQL database.
func plainConn(t testing.TB) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(context.Background(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func copyTo(t testing.TB, c *pgx.Conn, sql string) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := c.PgConn().CopyTo(context.Background(), &b, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return b.String()
}

func copyFrom(c *pgx.Conn, data, sql string) (pgconn.CommandTag, error) {
	return c.PgConn().CopyFrom(context.Background(), &choppy{r: strings.NewReader(data)}, sql)
}

// choppy reads in pieces of odd sizes.
type choppy struct {
	r *strings.Reader
	n int
}

func (c *choppy) Read(p []byte) (int, error) {
	c.n = (c.n*7 + 13) % 4093
	return c.r.Read(p[:min(len(p), 1+c.n)])
}

// nasty are texts that the forms of COPY have to escape.
var nasty = []string{"", `\N`, `\.`, "\\", "a\tb", "a\nb", "a\r\nb", "\r", `"`, `""`, `a"b,c`, ",", "NULL", "null", `\\N`, "ä€😀", " ", "\x01\b\f\v", `\x41`, `\101`, "'", ";", "|", "x\\", `{"a": [1, 2]}`, "--"}

func pick(r *rand.Rand) string {
	if r.IntN(6) == 0 {
		return strings.Repeat(nasty[r.IntN(len(nasty))], r.IntN(400))
	}
	return nasty[r.IntN(len(nasty))] + nasty[r.IntN(len(nasty))]
}

// fillNasty puts random rows into the plain table.
func fillNasty(t *testing.T, c *pgx.Conn, r *rand.Rand, tenant func() any, rows int) {
	t.Helper()
	var b pgx.Batch
	null := func(v any) any {
		if r.IntN(5) == 0 {
			return nil
		}
		return v
	}
	for i := range rows {
		b.Queue("INSERT INTO rows VALUES ($1, $2, $3, $4::text::numeric, $5, $6, $7, $8)", tenant(), i, null(pick(r)), null(fmt.Sprintf("%d.%03d", r.IntN(1e6), r.IntN(1000))),
			null(time.Unix(r.Int64N(4e9), 1000*r.Int64N(1e6))), null([]byte(pick(r))), null([]string{pick(r), pick(r)}), null(r.IntN(2) == 0))
	}
	if err := c.SendBatch(context.Background(), &b).Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCopyRoundTrip: what a plain server copies out goes in through the router and
// comes out the same, in every form; nasty values everywhere, in the key too.
func TestCopyRoundTrip(t *testing.T) {
	cl := start(t, config{shards: 3})
	for _, kind := range []struct {
		typ string
		key func(r *rand.Rand) any
	}{
		{"bigint", func(r *rand.Rand) any { return r.Int64N(100) - 50 }},
		{"text", func(r *rand.Rand) any { return pick(r) }},
		{"varchar(2000)", func(r *rand.Rand) any { return pick(r)[:0] + nasty[r.IntN(len(nasty))] }},
		{"date", func(r *rand.Rand) any { return time.Date(2000+r.IntN(50), 1, 1+r.IntN(300), 0, 0, 0, 0, time.UTC) }},
		{"timestamptz", func(r *rand.Rand) any { return time.Unix(r.Int64N(4e9), 0) }},
		{"uuid", func(r *rand.Rand) any { return fmt.Sprintf("%032x", r.Uint64()) }},
		{"bytea", func(r *rand.Rand) any { return []byte(pick(r)) }},
	} {
		t.Run(kind.typ, func(t *testing.T) {
			r := rand.New(rand.NewPCG(7, 9))
			plain, conn := plainConn(t), cl.connect(t)
			create := fmt.Sprintf(copyTable, kind.typ)
			exec(t, plain, create)
			exec(t, conn, "DROP TABLE IF EXISTS rows")
			exec(t, conn, create+" WITH (cleave.shard_key = 'tenant')")
			fillNasty(t, plain, r, func() any { return kind.key(r) }, 400)
			ordered := func(c *pgx.Conn) string {
				return copyTo(t, c, "COPY (SELECT * FROM rows ORDER BY id) TO STDOUT")
			}
			want := ordered(plain)
			for _, form := range []string{"", "(FORMAT csv)", "(FORMAT binary)", "(FORMAT csv, HEADER)", "(FORMAT csv, HEADER match, DELIMITER ';', QUOTE '''', ESCAPE '\\')",
				"(FORMAT csv, NULL 'null', FORCE_QUOTE *)", "(DELIMITER '|', NULL 'NULL')", "(FORMAT csv, DELIMITER E'\\t', ESCAPE '\\')", "(HEADER)"} {
				out := copyTo(t, plain, "COPY rows TO STDOUT WITH "+strings.Replace(orText(form), "match", "true", 1))
				in := orText(form)
				if strings.Contains(in, "FORCE_QUOTE") {
					in = "(FORMAT csv, NULL 'null')"
				}
				tag, err := copyFrom(conn, out, "COPY rows FROM STDIN WITH "+in)
				if err != nil || tag.String() != "COPY 400" {
					t.Fatalf("%s: %v %+v", form, tag, err)
				}
				if got := ordered(conn); got != want {
					t.Fatalf("%s: the tables differ:\n%s\n%s", form, firstDifference(got, want), form)
				}
				// Out of the router, into a plain table again.
				again := copyTo(t, conn, "COPY rows TO STDOUT WITH "+strings.Replace(orText(form), "match", "true", 1))
				query := copyTo(t, conn, "COPY (SELECT * FROM rows ORDER BY id) TO STDOUT WITH "+strings.Replace(orText(form), "match", "true", 1))
				if plainQuery := copyTo(t, plain, "COPY (SELECT * FROM rows ORDER BY id) TO STDOUT WITH "+strings.Replace(orText(form), "match", "true", 1)); query != plainQuery {
					t.Fatalf("%s: COPY of a query differs: %s", form, firstDifference(query, plainQuery))
				}
				exec(t, plain, "TRUNCATE rows")
				if tag, err := copyFrom(plain, again, "COPY rows FROM STDIN WITH "+in); err != nil || tag.String() != "COPY 400" {
					t.Fatalf("%s: %v %v", form, tag, err)
				}
				if got := ordered(plain); got != want {
					t.Fatalf("%s: the tables differ: %s", form, firstDifference(got, want))
				}
				exec(t, conn, "DELETE FROM rows")
			}
		})
	}
}

func orText(form string) string {
	if form == "" {
		return "(FORMAT text)"
	}
	return form
}

func firstDifference(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return fmt.Sprintf("at %d: %q and %q", i, a[max(0, i-80):min(len(a), i+80)], b[max(0, i-80):min(len(b), i+80)])
}
