package gateway_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// saying is a client of which every message is compared.
type saying struct {
	t  *testing.T
	fe *pgproto3.Frontend
}

func sayingAt(t *testing.T, at string, start map[string]string) *saying {
	t.Helper()
	cfg, err := pgconn.ParseConfig(at)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(cfg.RuntimeParams, start)
	conn, err := pgconn.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	h, err := conn.Hijack()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Conn.Close() })
	return &saying{t: t, fe: h.Frontend}
}

// messages makes a step's messages: a Query, or with "ext:" in front statements of the extended protocol before one Sync, each with its
// parameters behind "<-", with "bin:" those in binary. "named:" has them prepared and described first.
func messages(step string) []pgproto3.FrontendMessage {
	kind, rest, _ := strings.Cut(step, ":")
	if kind != "ext" && kind != "bin" && kind != "named" {
		return []pgproto3.FrontendMessage{&pgproto3.Query{String: step}}
	}
	var out []pgproto3.FrontendMessage
	for _, one := range strings.Split(rest, ";; ") {
		sql, given, _ := strings.Cut(one, " <- ")
		b := &pgproto3.Bind{}
		for _, v := range strings.Split(given, " | ") {
			if v = strings.TrimSpace(v); v == "" {
				continue
			}
			value := []byte(v)
			switch {
			case v == "NULL":
				value = nil
			case v == "EMPTY":
				value = []byte{}
			case kind == "bin" && v == "true":
				value = []byte{1}
			case kind == "bin" && v == "false":
				value = []byte{0}
			}
			b.Parameters = append(b.Parameters, value)
		}
		if kind == "bin" {
			b.ParameterFormatCodes = []int16{1}
		}
		name := ""
		if kind == "named" {
			name = fmt.Sprint("s", len(out), len(step))
		}
		b.PreparedStatement = name
		out = append(out, &pgproto3.Parse{Name: name, Query: strings.TrimSpace(sql)}, &pgproto3.Describe{ObjectType: 'S', Name: name})
		if kind == "named" {
			out = append(out, &pgproto3.Sync{})
		}
		out = append(out, b, &pgproto3.Describe{ObjectType: 'P'}, &pgproto3.Execute{})
		if kind == "named" {
			out = append(out, &pgproto3.Close{ObjectType: 'S', Name: name})
		}
	}
	return append(out, &pgproto3.Sync{})
}

// say sends a step and returns all that is answered, one message a line.
func (s *saying) say(step string) string {
	s.t.Helper()
	syncs := 0
	for _, m := range messages(step) {
		s.fe.Send(m)
		switch m.(type) {
		case *pgproto3.Sync, *pgproto3.Query:
			syncs++
		}
	}
	if err := s.fe.Flush(); err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for syncs > 0 {
		m, err := s.fe.Receive()
		if err != nil {
			return strings.Join(append(out, "gone"), "\n")
		}
		switch m := m.(type) {
		case *pgproto3.ReadyForQuery:
			syncs--
			out = append(out, "Z "+string(m.TxStatus))
		case *pgproto3.ParameterDescription:
			out = append(out, fmt.Sprint("t ", m.ParameterOIDs))
		case *pgproto3.RowDescription:
			line := "T"
			for _, f := range m.Fields {
				line += fmt.Sprintf(" %s:%d", f.Name, f.DataTypeOID)
			}
			out = append(out, line)
		case *pgproto3.DataRow:
			line := "D"
			for _, v := range m.Values {
				if v == nil {
					line += " NULL"
				} else {
					line += fmt.Sprintf(" %q", v)
				}
			}
			out = append(out, line)
		case *pgproto3.CommandComplete:
			out = append(out, "C "+string(m.CommandTag))
		case *pgproto3.ParameterStatus:
			out = append(out, "S "+m.Name+"="+m.Value)
		case *pgproto3.ErrorResponse:
			out = append(out, fmt.Sprint("E ", m.Severity, " ", m.Code, " ", m.Message, " @", m.Position, " ", m.Detail))
		case *pgproto3.NoticeResponse:
			out = append(out, fmt.Sprint("N ", m.Code, " ", m.Message))
		default:
			out = append(out, fmt.Sprintf("%T", m))
		}
	}
	return strings.Join(out, "\n")
}

// say has a new session do steps on both sides, and compares all messages.
func (b *twin) say(t *testing.T, start map[string]string, steps []string) {
	t.Helper()
	router, plain := sayingAt(t, b.urls[0], start), sayingAt(t, b.urls[1], start)
	for _, step := range steps {
		step = b.names.Replace(step)
		if got, want := router.say(step), plain.say(step); got != want {
			t.Errorf("%s: router\n%s\nPostgreSQL\n%s", step, got, want)
		}
	}
}

// TestParametersAreTold: a client is told of settings before ReadyForQuery, in the order of their names, and of those alone that are
// others then.
func TestParametersAreTold(t *testing.T) {
	_, b := twins(t)
	b.say(t, nil, []string{
		"SET timezone = 'Asia/Tokyo'; SET datestyle = 'German'; SET intervalstyle = 'sql_standard'; SET application_name = 'z'", "BEGIN; SET timezone = 'UTC'; SET datestyle = 'ISO'; SELECT 1/0", "ROLLBACK",
		"ext:SET timezone = 'UTC';; SET datestyle = 'ISO'", "BEGIN", "SET timezone = 'Asia/Seoul'", "SELECT count(*) FROM orders WHERE tenant_id = $own", "SET intervalstyle = 'postgres'", "SELECT count(*) FROM orders WHERE tenant_id = $far", "SAVEPOINT s", "SET LOCAL timezone = 'UTC'", "ROLLBACK TO s", "SET LOCAL datestyle = 'SQL'", "COMMIT", "RESET ALL", "DISCARD ALL",
	})
}

// TestErrorOfTheEndIsTheLastAnswer: where the transaction of a message fails at its end, the error stands in the place of
// the last statement's CommandComplete.
func TestErrorOfTheEndIsTheLastAnswer(t *testing.T) {
	_, b := twins(t)
	const own, far = "INSERT INTO orders VALUES ($own, 71, 'twice'), ($own, 72, 'twice')", "INSERT INTO orders VALUES ($far, 71, 'once')"
	b.say(t, nil, []string{
		"ALTER TABLE orders ADD CONSTRAINT once UNIQUE (tenant_id, note) DEFERRABLE INITIALLY DEFERRED",
		own, own + "; " + own, own + "; SELECT 71", own + "; SELECT count(*) FROM orders WHERE id > 70 AND tenant_id IN ($own, $far)",
		"SELECT 1; " + own + "; SELECT generate_series(1, 3); " + far, far + "; SELECT 1; " + own, "SET timezone = 'Asia/Tokyo'; " + own, own + "; SET timezone = 'Asia/Tokyo'", own + "; SELECT 1 / 0",
		"BEGIN; " + own + "; COMMIT", own + "; COMMIT; SELECT 71", "ext:" + own + ";; " + far, "SELECT count(*) FROM orders WHERE id > 70", "SHOW timezone",
	})
}
