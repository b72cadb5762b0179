package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// TestErrorsOfTheStart: a client that is not let in gets PostgreSQL's errors.
func TestErrorsOfTheStart(t *testing.T) {
	cl := start(t, config{shards: 1})
	plain := pgtest.Database(t)
	said := func(url string, params map[string]string) (code, text string) {
		c, err := pgconn.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		c.RuntimeParams = map[string]string{}
		for name, value := range params {
			if name == "database" {
				c.Database = value
				continue
			}
			c.RuntimeParams[name] = value
		}
		conn, err := pgconn.ConnectConfig(t.Context(), c)
		var pe *pgconn.PgError
		switch {
		case err == nil:
			_ = conn.Close(context.Background())
			return "", "let in"
		case !errors.As(err, &pe):
			return "", err.Error()
		}
		return pe.Code, fmt.Sprint(pe.Severity, " ", pe.SeverityUnlocalized, " ", pe.Message, " / ", pe.Detail, " / ", pe.Where)
	}
	for _, p := range []map[string]string{
		{"options": "-c nosuch=1"}, {"options": "--no-such=1"}, {"options": "-c work_mem=abc"}, {"options": "-cwork_mem=64"}, {"options": "-c work_mem"},
		{"options": "--nosuch"}, {"options": "-c =3"}, {"options": "foo"}, {"options": "-z"}, {"options": "-c"}, {"options": "-c 9a.b=1"}, {"options": "-c a.b=1"},
		{"options": "-c datestyle=foo"}, {"options": "-c statement_timeout=1y"}, {"options": `-c timezone=Mars/X\ Y`}, {"options": "-c default_transaction_isolation=bad"},
		{"options": "-c transaction_isolation=serializable"}, {"options": "-c transaction_deferrable=on"}, {"options": "-c transaction_read_only=on"}, {"options": "-c transaction_read_only=x"},
		{"options": "-c server_version=3"}, {"options": "-c shared_buffers=1MB"}, {"options": "-c role=nosuch"}, {"TimeZone": "No/Where"}, {"search_path": "a, b"},
		{"client_encoding": "nosuch"}, {"client_encoding": "UTF-8"}, {"database": "no\"such"}, {"database": strings.Repeat("x", 100)}, {"replication": "maybe"}, {"replication": "of"},
		{"application_name": strings.Repeat("y", 100)},
	} {
		wantCode, want := said(plain, p)
		gotCode, got := said(cl.url(""), p)
		if wantCode != gotCode || want != got {
			t.Errorf("%v\n  PostgreSQL: %s %s\n  router:     %s %s", p, wantCode, want, gotCode, got)
		}
	}
	for _, encoding := range []string{"LATIN1", "iso-8859-15", "sql_ascii", "Windows-1252", "SJIS"} {
		if code, _ := said(plain, map[string]string{"client_encoding": encoding}); code != "" {
			t.Errorf("PostgreSQL says %s of the encoding %s", code, encoding)
		}
		if code, text := said(cl.url(""), map[string]string{"client_encoding": encoding}); code != "0A000" {
			t.Errorf("%s: %s %s", encoding, code, text)
		}
	}
}
