package gateway_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
)

var (
	sessionSeed  = flag.Int64("session-seed", 1, "of the steps of TestSessionSettings")
	sessionSteps = flag.Int("session-steps", 0, "how many steps TestSessionSettings takes; 0: 600, in a short run 150")
)

// sessionValues are settings that change how values are read or printed. Some values
// are partial: PostgreSQL completes them by what holds before.
var sessionValues = map[string][]string{
	"datestyle":          {"ISO", "dmy", "German", "SQL", "Postgres", "mdy", "ymd", "ISO, MDY", "SQL, DMY", "nonsense"},
	"timezone":           {"UTC", "Europe/Berlin", "America/St_Johns", "nowhere/at all"},
	"intervalstyle":      {"iso_8601", "postgres_verbose", "sql_standard", "postgres"},
	"bytea_output":       {"escape", "hex"},
	"extra_float_digits": {"0", "3", "-4", "99"},
}

var sessionNames = []string{"datestyle", "timezone", "intervalstyle", "bytea_output", "extra_float_digits"}

// settled is a client of the router, and a connection of its own to one PostgreSQL.
type settled struct {
	router, plain *pgx.Conn
	block         bool // it has begun a transaction block
}

// settling is the state of TestSessionSettings.
type settling struct {
	t            *testing.T
	r            *rand.Rand
	router       string
	plain        string
	clients      []*settled
	inside       int // the client that has a transaction open; -1: none
	rows         int
	steps        []string
	run, refused int
}

// TestSessionSettings lets several clients change settings at random over pools of two
// connections, beside one PostgreSQL: what one client sets is never another's, and
// answers, errors, stored rows and, before its first block, what is reported to it are PostgreSQL's.
func TestSessionSettings(t *testing.T) {
	steps := testrun.Count(*sessionSteps, 150, 600)
	t.Parallel()
	s := &settling{t: t, r: rand.New(rand.NewSource(*sessionSeed)), inside: -1}
	cl := start(t, config{executor: executor.Limits{PoolMax: 2}})
	s.router, s.plain = cl.url(""), pgtest.Database(t)
	for range 4 {
		s.clients = append(s.clients, nil)
		s.connect(len(s.clients) - 1)
	}
	const table = "CREATE TABLE stored (id bigint PRIMARY KEY, d date)"
	exec(t, s.clients[0].router, table+" WITH (cleave.shard_key = 'id')")
	exec(t, s.clients[0].plain, table)
	for range steps {
		if s.step(); t.Failed() {
			t.Fatalf("go test ./gateway -run TestSessionSettings -session-seed %d -session-steps %d\nthe last steps:\n%s",
				*sessionSeed, len(s.steps), strings.Join(s.steps[max(0, len(s.steps)-40):], "\n"))
		}
	}
	if s.inside >= 0 {
		s.same(s.inside, "COMMIT")
	}
	s.same(0, "RESET ALL")
	s.same(0, "SELECT id, to_char(d, 'YYYY-MM-DD') FROM stored ORDER BY id")
	t.Logf("seed %d: %d steps, %d statements, %d refused", *sessionSeed, len(s.steps), s.run, s.refused)
	if s.refused*50 > s.run {
		t.Errorf("%d of %d statements were refused", s.refused, s.run)
	}
}

// connect makes a client anew, with startup options as drivers send them.
func (s *settling) connect(i int) {
	s.t.Helper()
	options := []map[string]string{{}, {"DateStyle": "ISO"}, {"DateStyle": "ISO", "TimeZone": "Europe/Berlin", "extra_float_digits": "2"}, {"options": "-c datestyle=dmy -c bytea_output=escape"}}[s.r.Intn(4)]
	open := func(url string) *pgx.Conn {
		c, err := pgx.ParseConfig(url)
		if err != nil {
			s.t.Fatal(err)
		}
		for name, value := range options {
			c.RuntimeParams[name] = value
		}
		ctx, cancel := context.WithTimeout(context.Background(), waitfor.Max)
		defer cancel()
		conn, err := pgx.ConnectConfig(ctx, c)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	s.clients[i] = &settled{router: open(s.router), plain: open(s.plain)}
	s.steps = append(s.steps, fmt.Sprintf("%d: connect %v", i, options))
}

// step is one action of one client, and a look at all that it has set.
func (s *settling) step() {
	i := s.r.Intn(len(s.clients))
	name := sessionNames[s.r.Intn(len(sessionNames))]
	if s.r.Intn(3) == 0 {
		name = "datestyle" // of which values can be partial
	}
	value := sessionValues[name][s.r.Intn(len(sessionValues[name]))]
	switch s.r.Intn(14) {
	case 0, 1, 2:
		s.same(i, fmt.Sprintf("SET %s = '%s'", name, value))
	case 3:
		s.same(i, fmt.Sprintf("SET LOCAL %s = '%s'", name, value))
	case 4:
		s.same(i, fmt.Sprintf("SELECT set_config('%s', '%s', false)", name, value))
	case 5:
		s.same(i, "RESET "+name)
	case 6:
		s.same(i, "SET "+name+" TO DEFAULT")
	case 7:
		s.same(i, "RESET ALL")
	case 8, 9, 10:
		// The date is read by the DateStyle of the session.
		s.rows++
		s.same(i, fmt.Sprintf("INSERT INTO stored VALUES (%d, '0%d-0%d-2020')", s.rows, 1+s.r.Intn(9), 1+s.r.Intn(9)))
		s.same(i, fmt.Sprintf("SELECT d, d::timestamptz, '1 day 2 hours'::interval, '\\xff00'::bytea, id / 3::float8 FROM stored WHERE id = %d", s.rows))
	case 11:
		if s.inside < 0 {
			s.same(i, "BEGIN")
			s.inside = i
		}
	case 12:
		if s.inside >= 0 {
			s.same(s.inside, []string{"COMMIT", "ROLLBACK"}[s.r.Intn(2)])
			s.inside = -1
		}
	case 13:
		if s.inside != i {
			_ = s.clients[i].router.PgConn().Conn().Close() // as if the client had died
			_ = s.clients[i].plain.PgConn().Conn().Close()
			s.connect(i)
		}
	}
	if s.t.Failed() || s.clients[i].plain.PgConn().TxStatus() == 'E' {
		return
	}
	for _, name := range sessionNames {
		s.same(i, "SHOW "+name)
	}
}

// same runs a statement on both sides of a client and compares answers, the
// transaction's status and what is reported.
func (s *settling) same(i int, sql string) {
	s.t.Helper()
	c := s.clients[i]
	s.run++
	if !strings.HasPrefix(sql, "SHOW") {
		s.steps = append(s.steps, fmt.Sprintf("%d: %s", i, sql))
	}
	got := rowsOf(s.t, c.router, sql, false)
	if strings.HasPrefix(got, "error 0A000") {
		s.refused++
		if s.inside == i {
			exec(s.t, c.router, "ROLLBACK")
			exec(s.t, c.plain, "ROLLBACK")
			s.inside = -1
		}
		return
	}
	want := rowsOf(s.t, c.plain, sql, false)
	if code := len("error 00000"); strings.HasPrefix(want, "error ") && strings.HasPrefix(got, "error ") {
		got, want = got[:code], want[:code]
	}
	if got != want {
		s.t.Errorf("client %d: %s\nrouter: %s\nplain:  %s", i, sql, got, want)
	}
	if got, want := c.router.PgConn().TxStatus(), c.plain.PgConn().TxStatus(); got != want {
		s.t.Errorf("client %d: %s: transaction status %c, want %c", i, sql, got, want)
	}
	if c.block = c.block || sql == "BEGIN"; c.block {
		return // what the end of a block changes is not always reported; SHOW tells the value
	}
	for _, name := range []string{"DateStyle", "TimeZone", "IntervalStyle"} {
		if got, want := c.router.PgConn().ParameterStatus(name), c.plain.PgConn().ParameterStatus(name); got != want {
			s.t.Errorf("client %d: %s: %s is reported as %q, want %q", i, sql, name, got, want)
		}
	}
}
