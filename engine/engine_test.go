package engine_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// scripted is a Conn that answers with fixed batches.
type scripted struct {
	engine.Conn
	sent     []byte
	batches  [][]byte
	end      error
	canceled bool
	deadline time.Time
	wait     chan struct{}
}

func (c *scripted) Send(b []byte) error { c.sent = append(c.sent, b...); return nil }

func (c *scripted) Receive() ([]byte, error) {
	if c.wait != nil {
		<-c.wait
	}
	if len(c.batches) == 0 {
		return nil, c.end
	}
	b := c.batches[0]
	c.batches = c.batches[1:]
	return b, nil
}

func (c *scripted) Cancel(context.Context) error {
	c.canceled = true
	close(c.wait)
	return nil
}

func (c *scripted) SetDeadline(t time.Time) error { c.deadline = t; return nil }

func TestExecRefusesAZeroByte(t *testing.T) {
	c := &scripted{}
	if _, err := engine.Exec(c, "SELECT 1\x00; DROP TABLE t"); sqlstate.CodeOf(err) != sqlstate.CharacterNotInRepertoire || c.sent != nil {
		t.Fatalf("got %v, sent %q", err, c.sent)
	}
}

func TestExecTellsWhatTheShardSaidLast(t *testing.T) {
	said := sqlstate.New(sqlstate.AdminShutdown, "going down")
	c := &scripted{batches: [][]byte{wire.AppendError(nil, said)}, end: &engine.LostError{Shard: "s", Sent: true, Err: io.EOF}}
	_, err := engine.Exec(c, "SELECT 1")
	lost := engine.Lost(err)
	if lost == nil || !lost.Sent || lost.Shard != "s" || !errors.Is(err, io.EOF) || err.Error() != "connection to shard s lost: EOF; the shard said: going down (SQLSTATE 57P01)" {
		t.Fatalf("got %v", err)
	}
	var e *sqlstate.Error
	if errors.As(err, &e) {
		t.Fatal("it looks like an error of the statement")
	}
}

func TestExecRefusesCopy(t *testing.T) {
	c := &scripted{batches: [][]byte{{'G', 0, 0, 0, 7, 0, 0, 0}, wire.AppendReadyForQuery(wire.AppendError(nil, sqlstate.New(sqlstate.QueryCanceled, "COPY failed")), 'I')}}
	res, err := engine.Exec(c, "COPY t FROM STDIN")
	if sqlstate.CodeOf(err) != sqlstate.QueryCanceled || res.Status != 'I' {
		t.Fatalf("got %v", err)
	}
	if f, _, ok, _ := wire.Cut(c.sent[len(wire.AppendQuery(nil, "COPY t FROM STDIN")):]); !ok || f.Type() != wire.CopyFail {
		t.Fatalf("sent %q", c.sent)
	}
}

func TestExecContext(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	c := &scripted{}
	if _, err := engine.ExecContext(over, c, "SELECT 1"); !errors.Is(err, context.Canceled) || c.sent != nil {
		t.Fatalf("got %v, sent %q", err, c.sent)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	c = &scripted{wait: make(chan struct{}), batches: [][]byte{
		wire.AppendReadyForQuery(wire.AppendError(nil, sqlstate.New(sqlstate.QueryCanceled, "canceling")), 'I')}}
	_, err := engine.ExecContext(ctx, c, "SELECT pg_sleep(60)")
	if sqlstate.CodeOf(err) != sqlstate.QueryCanceled || !c.canceled || !c.deadline.IsZero() {
		t.Fatalf("got %v, canceled %v, deadline %v", err, c.canceled, c.deadline)
	}
}

func TestLostErrorState(t *testing.T) {
	for _, c := range []struct {
		sent, inFlight bool
		code           sqlstate.Code
		retry          sqlstate.Retry
	}{
		{false, false, sqlstate.CannotConnectNow, sqlstate.RetrySafe},
		{false, true, sqlstate.CannotConnectNow, sqlstate.RetrySafe},
		{true, false, sqlstate.CannotConnectNow, sqlstate.RetrySafe},
		{true, true, sqlstate.TransactionUnknown, sqlstate.RetryUnknown},
	} {
		e := (&engine.LostError{Shard: "s", Sent: c.sent, Err: io.EOF}).State(c.inFlight)
		if e.Code != c.code || e.Retry != c.retry || e.Shard != "s" || e.Hint == "" || !errors.Is(e, io.EOF) {
			t.Errorf("%+v: %v", c, e)
		}
	}
}

func TestRefusal(t *testing.T) {
	for _, r := range []engine.Refusal{
		{Keyspace: "hash_bigint", Epoch: 7, Position: "-12"}, {Keyspace: "a, b", Epoch: 1<<64 - 1, Position: "x, epoch 3, position 4"}, {Keyspace: "k"},
	} {
		got, ok := engine.ParseRefusal(&sqlstate.Error{Code: sqlstate.NotOwner, Detail: r.Detail()})
		if !ok || got != r {
			t.Errorf("%+v came back as %+v", r, got)
		}
	}
	for _, e := range []*sqlstate.Error{nil, {Code: sqlstate.NotOwner}, {Code: sqlstate.NotOwner, Detail: "keyspace k, epoch x"}, {Code: sqlstate.UniqueViolation, Detail: "keyspace k, epoch 1"}} {
		if r, ok := engine.ParseRefusal(e); ok {
			t.Errorf("%v was read as %+v", e, r)
		}
	}
}
