package gateway_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// wired speaks the extended protocol by hand, message by message with Flush.
type wired struct {
	t  *testing.T
	fe *pgproto3.Frontend
}

func (w *wired) say(m pgproto3.FrontendMessage) {
	w.t.Helper()
	w.fe.Send(m)
	w.fe.Send(&pgproto3.Flush{})
	if err := w.fe.Flush(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wired) hear() pgproto3.BackendMessage {
	w.t.Helper()
	for {
		m, err := w.fe.Receive()
		if err != nil {
			w.t.Fatal(err)
		}
		switch m := m.(type) {
		case *pgproto3.ErrorResponse:
			w.t.Fatalf("%s: %s", m.Code, m.Message)
		case *pgproto3.ParameterStatus, *pgproto3.NoticeResponse:
			continue
		}
		return m
	}
}

func (w *wired) parse(name, sql string) {
	w.t.Helper()
	w.say(&pgproto3.Parse{Name: name, Query: sql})
	if m, ok := w.hear().(*pgproto3.ParseComplete); !ok {
		w.t.Fatalf("%T", m)
	}
}

func (w *wired) bind(portal, statement string) {
	w.t.Helper()
	w.say(&pgproto3.Bind{DestinationPortal: portal, PreparedStatement: statement})
	if m, ok := w.hear().(*pgproto3.BindComplete); !ok {
		w.t.Fatalf("%T", m)
	}
}

// execute returns how many rows came, and whether there may be more.
func (w *wired) execute(portal string, max uint32) (rows int, more bool) {
	w.t.Helper()
	w.say(&pgproto3.Execute{Portal: portal, MaxRows: max})
	for {
		switch m := w.hear().(type) {
		case *pgproto3.DataRow:
			rows++
		case *pgproto3.PortalSuspended:
			return rows, true
		case *pgproto3.CommandComplete:
			return rows, false
		default:
			w.t.Fatalf("%T", m)
		}
	}
}

func (w *wired) sync() {
	w.t.Helper()
	w.fe.Send(&pgproto3.Sync{})
	if err := w.fe.Flush(); err != nil {
		w.t.Fatal(err)
	}
	if m, ok := w.hear().(*pgproto3.ReadyForQuery); !ok {
		w.t.Fatalf("%T", m)
	}
}
