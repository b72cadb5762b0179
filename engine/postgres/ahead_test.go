package postgres_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/wire"
)

// TestReceiveBesideSend: one goroutine writes to a server that is slow to read, while another reads what it says, as
// a change stream and the conversation of notifications do. The reader is not disturbed, and all comes in its order.
func TestReceiveBesideSend(t *testing.T) {
	const rows = 400
	url := pgtest.Database(t)
	pgtest.Ask(t, url, `CREATE TABLE slow (id int, fill text);
		CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '%', NEW.id; PERFORM pg_sleep(0.005); RETURN NULL; END $$;
		CREATE TRIGGER say BEFORE INSERT ON slow FOR EACH ROW EXECUTE FUNCTION say()`)
	s, err := postgres.Driver{}.Open(engine.Config{Name: "s", URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := s.Connect(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := engine.Ask(c, "COPY slow FROM STDIN"); err != nil {
		t.Fatal(err)
	}
	fill := make([]byte, 100<<10) // more than the sockets hold: writes wait for rows
	for i := range fill {
		fill[i] = 'x'
	}
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() {
		for i := range rows {
			b, m := wire.Begin(nil, wire.CopyDataF)
			b = wire.End(fmt.Appendf(b, "%d\t%s\n", i, fill), m)
			if err := c.Send(b); err != nil {
				t.Errorf("row %d: %v", i, err)
				return
			}
		}
		if err := c.Send(wire.AppendEmpty(nil, wire.CopyDone)); err != nil {
			t.Error(err)
		}
	})
	said := 0
	for {
		b, err := c.Receive()
		if err != nil {
			t.Fatalf("after %d rows: %v", said, err)
		}
		for len(b) > 0 {
			f, rest, ok, err := wire.Cut(b)
			if err != nil || !ok {
				t.Fatalf("after %d rows: %v", said, err)
			}
			b = rest
			switch f.Type() {
			case wire.NoticeResponse:
				if got := wire.ParseReport(f.Body()).Message; got != fmt.Sprint(said) {
					t.Fatalf("notice %q, want %d", got, said)
				}
				said++
			case wire.ErrorResponse:
				t.Fatal(wire.ParseReport(f.Body()).Message)
			case wire.ReadyForQuery:
				if said != rows {
					t.Fatalf("%d rows are noticed", said)
				}
				return
			}
		}
	}
}
