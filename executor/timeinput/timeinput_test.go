package timeinput_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/timeinput"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// server asks one PostgreSQL.
type server struct {
	c     *pgx.Conn
	asked int
}

func (s *server) Describe(text string, oids []uint32) ([]uint32, error) {
	s.asked++
	d, err := s.c.PgConn().Prepare(context.Background(), "", text, oids)
	var said *pgconn.PgError
	if errors.As(err, &said) {
		return nil, &sqlstate.Error{Code: sqlstate.Code(said.Code), Message: said.Message}
	}
	if err != nil {
		return nil, err
	}
	return d.ParamOIDs, nil
}

func (s *server) Exec(sql string) (*engine.Result, error) {
	res, err := s.c.PgConn().Exec(context.Background(), sql).ReadAll()
	if err != nil {
		return nil, err
	}
	out := &engine.Result{}
	for _, row := range res[0].Rows {
		var values []engine.Text
		for _, v := range row {
			values = append(values, engine.Text{String: string(v), Null: v == nil})
		}
		out.Rows = append(out.Rows, values)
	}
	return out, nil
}

// questionOf is what the planner asks about a statement.
func questionOf(t *testing.T, sql string) *plan.InputQuestion {
	t.Helper()
	snap, err := shardmap.NewSnapshot(shardmap.State{Format: shardmap.Format, Cluster: "5b0e0c9e-8a3e-4a52-9d1b-0f6f3c2a1d10", Version: 1, SchemaVersion: 1, DefaultShard: "a",
		Shards: []shardmap.Shard{{Name: "a", Engine: "postgres", URL: "postgres://a/db", Weight: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	st, err := planner.New(planner.Limits{}).Analyze(sql, snap, []string{"public"})
	if err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
	return st.Asks
}

// TestAsk: the types that PostgreSQL's parse analysis gives literals.
func TestAsk(t *testing.T) {
	t.Parallel()
	c, err := pgx.Connect(context.Background(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	if _, err := c.Exec(context.Background(), `CREATE DOMAIN moment AS timestamptz; CREATE DOMAIN word AS text; CREATE TYPE urgency AS ENUM ('now'); CREATE TYPE reading AS (at timestamptz, f float8);
		CREATE TABLE ev (k bigint, at timestamptz, ts timestamp, d date, note text, arr timestamptz[], dom moment, w word, u urgency, c reading, j jsonb)`); err != nil {
		t.Fatal(err)
	}
	const text, timestamptz, timestamp, date = "25", "1184", "1114", "1082"
	for sql, want := range map[string]string{
		"SELECT at = 'now', 'today' = d, note = 'now', ts < 'tomorrow' FROM ev": timestamptz + " " + date + " " + text + " " + timestamp,
		"SELECT 'now'": text,
		"SELECT 'now'::timestamptz, timestamptz 'now'":                                                                             "nothing",
		"SELECT at = 'now'::timestamptz OR at = 'today' FROM ev":                                                                   timestamptz,
		"SELECT timestamptz('now'), date('today')":                                                                                 "nothing",
		"SELECT concat('now', 'today'), num_nulls('now'), at = 'now' FROM ev":                                                      text + " " + text + " " + text + " " + timestamptz,
		"SELECT at = ANY ('{now}'), arr = '{now}' FROM ev":                                                                         "1185:timestamp with time zone[] 1185:timestamp with time zone[]",
		"SELECT ARRAY['now']::timestamptz[]":                                                                                       timestamptz,
		"SELECT c = '(now,1)', dom = 'now', w = 'now', u = 'now', j = '{\"a\":\"now\"}' FROM ev":                                   "2249:record " + timestamptz + " " + text + " " + text + " 3802",
		"UPDATE ev SET dom = 'now', w = 'now', arr[1] = 'now', (at, note) = ('now', 'now')":                                        "moment " + text + " " + timestamptz + " " + timestamptz + " " + text,
		"INSERT INTO ev (k, at, note) VALUES (1, 'now', 'now'), (2, 'today', 'today')":                                             timestamptz + " " + text,
		"SELECT at > 'now', count(*) FROM ev GROUP BY at > 'now' HAVING at > 'now' ORDER BY at > 'now'":                            timestamptz,
		"SELECT at > 'now', (SELECT max(at > 'now' COLLATE \"C\") FROM (SELECT note AS at FROM ev) q) FROM ev GROUP BY at > 'now'": "none",
		"SELECT DISTINCT ON (at = 'now') at = 'now' FROM ev":                                                                       timestamptz,
		"SELECT at = E'\\x6eow', at = U&'!006eow' UESCAPE '!', at = 'no'\n'w', at = $x$now$x$ FROM ev":                             timestamptz + " " + timestamptz + " " + timestamptz + " " + timestamptz,
		"SELECT 'now' IN (at, ts), 'now' BETWEEN note AND note FROM ev":                                                            "none",
		"SELECT at = 'now' FROM ev WHERE k = $1 AND note = $2":                                                                     timestamptz,
		"SELECT nothing = 'now' FROM ev":                                                                                           "none",
		"SELECT timestamptz_in('now', 0, -1)":                                                                                      "2275:cstring",
		"DECLARE q CURSOR FOR SELECT at = 'now' FROM ev":                                                                           timestamptz,
		"EXPLAIN SELECT at = 'now' FROM ev":                                                                                        timestamptz,
		"COPY (SELECT at = 'now' FROM ev) TO STDOUT":                                                                               timestamptz,
		"COPY ev (k, at) FROM STDIN WHERE note = 'now' AND at < 'now'":                                                             text + " " + timestamptz,
		"SELECT age('now', at), tstzrange('today', NULL), lag(at, 0, 'now') OVER () FROM ev":                                       timestamptz + " " + timestamptz + " " + timestamptz,
	} {
		q := questionOf(t, sql)
		if q == nil {
			if want != "nothing" {
				t.Errorf("%s: nothing is asked", sql)
			}
			continue
		}
		got := "none"
		types, err := timeinput.Ask(&server{c: c}, q, nil)
		if err != nil {
			t.Errorf("%s: %v", sql, err)
		}
		if types != nil {
			var list []string
			for _, typ := range types {
				switch {
				case typ.OID >= 16384:
					list = append(list, typ.Name)
				case typ.Name != "":
					list = append(list, fmt.Sprintf("%d:%s", typ.OID, typ.Name))
				default:
					list = append(list, fmt.Sprint(typ.OID))
				}
			}
			got = strings.Join(list, " ")
		}
		if got != want {
			t.Errorf("%s: %s\n got %s\nwant %s", sql, q.Text(nil), got, want)
		}
	}
	// A literal that nothing gives a type is put back, one by one, up to a bound.
	for n, want := range map[int]bool{60: true, 200: false} {
		s := &server{c: c}
		types, err := timeinput.Ask(s, questionOf(t, "SELECT concat('now'"+strings.Repeat(", 'now'", n-1)+"), at = 'now' FROM ev"), nil)
		if err != nil || (types != nil) != want || want && types[n].OID != 1184 {
			t.Errorf("%d literals without a type: %v, %v", n, types, err)
		}
	}
}

// TestAnswersAreBounded: an answer is kept, and long texts are forgotten before they fill the memory.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	c, err := pgx.Connect(context.Background(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	var a timeinput.Answers
	s, prepared := &server{c: c}, map[string]*executor.Prepared{}
	ask := func(n, size int) (asked bool) {
		t.Helper()
		q, before := questionOf(t, fmt.Sprintf("SELECT now() = 'now', %d, 'x%s'", n, strings.Repeat("y", size))), s.asked
		types, err := a.Types(q, nil, func(text string, oids []uint32) *executor.Prepared {
			if prepared[text] == nil {
				prepared[text] = &executor.Prepared{Text: text, OIDs: oids}
			}
			return prepared[text]
		}, func() (timeinput.Server, error) { return s, nil })
		if err != nil || len(types) != 1 || types[0].OID != 1184 {
			t.Fatalf("%v, %v", types, err)
		}
		return s.asked > before
	}
	if !ask(0, 0) || ask(0, 0) {
		t.Error("an answer is not kept, or was not asked for")
	}
	for n := range 20 {
		if !ask(1+n, 1<<20) || ask(1+n, 1<<20) {
			t.Errorf("the answer of long text %d is not kept, or was not asked for", n)
		}
	}
	if !ask(0, 0) {
		t.Error("20 MiB of texts are kept")
	}
}
