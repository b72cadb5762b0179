package postgres_test

import (
	"fmt"
	"net/url"
	"strconv"
	"testing"

	"github.com/cleavedb/cleave/engine/enginetest"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
)

// moverHarness has servers that can be killed: source and target are on one each, so
// that a kill hits one.
func moverHarness(t *testing.T, install localpg.Installation) enginetest.MoverHarness {
	servers := []*localpg.Server{pgtest.NewServerOf(t, install, nil), pgtest.NewServerOf(t, install, nil)}
	next := 0
	h := enginetest.MoverHarness{Harness: harness(), Columns: []enginetest.MoveColumn{
		{Type: "real", Values: []string{"0.1", "'-infinity'", "'NaN'"}},
		{Type: "interval", Values: []string{"'1 mon -2 days 03:00:00.5'", "'-1 sec'"}},
		{Type: "timetz", Values: []string{"'03:04:05.6+02'"}},
		{Type: "integer[]", Values: []string{"'{}'", "'{1,NULL,-3}'", "'[2:3][1:1]={{1},{2}}'"}},
		{Type: "text[]", Values: []string{`'{"a,b","",NULL,"NULL","\\\\ \""}'`}},
		{Type: "inet", Values: []string{"'10.0.0.1/8'"}},
		{Type: "bit varying(9)", Values: []string{"B'101'"}},
		{Type: "int4range", Values: []string{"'[1,5)'", "'empty'"}},
		{Type: "point", Values: []string{"'(0.1,-2)'"}},
		{Type: "money", Values: []string{"'12.34'::money"}},
		{Type: "regclass", Values: []string{"'pg_class'::regclass"}},
		{Type: "tsvector", Values: []string{"'a:1 b:2A'"}},
		{Type: "xml", Values: []string{"'<a>x &lt; y</a>'"}},
		{Type: `"char"`, Values: []string{`'x'`}},
	}}
	h.URL = func(t testing.TB) string {
		next++
		return pgtest.DatabaseOn(t, servers[next%2])
	}
	h.OlderSeizes = func(t testing.TB, at string, token uint64) {
		pgtest.Ask(t, pgtest.Super(at), fmt.Sprintf(`INSERT INTO cleave_internal.leader (token) VALUES (%d) ON CONFLICT (one) DO UPDATE SET token = EXCLUDED.token`, token))
	}
	h.Restart = func(_ testing.TB, at string) {
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range servers {
			if strconv.Itoa(s.Port()) == u.Port() {
				s.Kill()
				<-s.Done()
				servers[i] = pgtest.Restart(t, s, nil)
			}
		}
	}
	return h
}

func TestMover(t *testing.T) {
	install, err := localpg.Find(0)
	if err != nil {
		pgtest.Server(t) // which installs it
		if install, err = localpg.Find(0); err != nil {
			t.Fatal(err)
		}
	}
	enginetest.RunMover(t, moverHarness(t, install))
}

// TestMoverOnEveryVersion runs what differs between versions (the SQL of the
// catalogue, publications, fences) on those that TestMover has not run on.
func TestMoverOnEveryVersion(t *testing.T) {
	tested, err := localpg.Find(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, install := range pgtest.VersionsOfRun(t) {
		if install.Version != tested.Version {
			t.Run(install.Version, func(t *testing.T) { enginetest.RunMoverBasics(t, moverHarness(t, install)) })
		}
	}
}
