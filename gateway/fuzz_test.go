package gateway_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
)

// echo is an engine whose shards answer every message in the smallest way that
// the protocol allows, for feeding sessions with bytes of any kind.
type echo struct{}

func (echo) Name() string                                        { return "echo" }
func (echo) Opens(string) bool                                   { return false }
func (echo) Open(cfg engine.Config) (engine.Shard, error)        { return echoShard{cfg}, nil }
func (s echoShard) Name() string                                 { return s.cfg.Name }
func (s echoShard) Engine() string                               { return "echo" }
func (s echoShard) Check(context.Context) (engine.Report, error) { return engine.Report{}, nil }
func (s echoShard) Install(context.Context) error                { return nil }
func (s echoShard) Close() error                                 { return nil }
func (s echoShard) Connect(context.Context, map[string]string) (engine.Conn, error) {
	return &echoConn{status: 'I'}, nil
}

type echoShard struct{ cfg engine.Config }

type echoConn struct {
	out    []byte
	skip   bool
	status byte
	closed bool
}

func (c *echoConn) Send(b []byte) error {
	for len(b) > 0 {
		f, rest, ok, err := wire.Cut(b)
		if err != nil || !ok {
			return io.ErrUnexpectedEOF // the router must send whole frames only
		}
		b = rest
		if c.skip && f.Type() != wire.Sync {
			continue
		}
		switch f.Type() {
		case wire.Query:
			sql, _, _ := wire.CutString(f.Body())
			tag := "SELECT 0"
			switch {
			case len(sql) >= 5 && sql[:5] == "BEGIN":
				c.status, tag = 'T', "BEGIN"
			case sql == "COMMIT" || sql == "ROLLBACK":
				c.status, tag = 'I', sql
			}
			c.out = wire.AppendReadyForQuery(wire.AppendCommandComplete(c.out, tag), c.status)
		case wire.Parse:
			c.out = wire.AppendEmpty(c.out, wire.ParseComplete)
		case wire.Bind:
			c.out = wire.AppendEmpty(c.out, wire.BindComplete)
		case wire.Describe:
			if len(f.Body()) > 0 && f.Body()[0] == 'S' {
				c.out = wire.AppendParameterDescription(c.out, nil)
			}
			c.out = wire.AppendEmpty(c.out, wire.NoData)
		case wire.Execute:
			c.out = wire.AppendCommandComplete(c.out, "SELECT 0")
		case wire.Close:
			c.out = wire.AppendEmpty(c.out, wire.CloseComplete)
		case wire.Sync:
			c.skip = false
			c.out = wire.AppendReadyForQuery(c.out, c.status)
		case wire.Flush:
		default:
			return io.ErrUnexpectedEOF
		}
	}
	return nil
}

func (c *echoConn) Receive() ([]byte, error) {
	if len(c.out) == 0 {
		return nil, io.ErrUnexpectedEOF // the router waits for what never comes
	}
	b := c.out
	c.out = nil
	return b, nil
}
func (c *echoConn) SetDeadline(time.Time) error                     { return nil }
func (c *echoConn) Cancel(context.Context) error                    { return nil }
func (c *echoConn) Parameter(string) string                         { return "" }
func (c *echoConn) Parameters() map[string]string                   { return map[string]string{"server_version": "15.0"} }
func (c *echoConn) Close() error                                    { c.closed = true; return nil }
func (c *echoConn) SetGuard(context.Context, engine.Guard) error    { return nil }
func (c *echoConn) DropGuard(context.Context, string, string) error { return nil }
func (c *echoConn) DescribeTable(context.Context, string, string) (*engine.Table, error) {
	return nil, io.ErrUnexpectedEOF
}
func (c *echoConn) Guard(context.Context, string, string) (*engine.GuardState, error) {
	return nil, io.ErrUnexpectedEOF
}

// echoServer is a router over two such shards.
func echoServer(tb testing.TB) *gateway.Server {
	dir := memory.New()
	_, err := dir.Update(context.Background(), shardmap.Change{By: "test", Why: "test", Op: "test"}, shardmap.State{
		Format: shardmap.Format, Cluster: "5f0c8c5e-3f6e-4c55-9d0e-3a4d4f3f3b11", DefaultShard: "shard-0",
		Shards: []shardmap.Shard{{Name: "shard-0", Engine: "echo", URL: "echo://0", Weight: 1}, {Name: "shard-1", Engine: "echo", URL: "echo://1", Weight: 1}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	ex := executor.New(executor.Options{Directory: dir, Drivers: map[string]engine.Driver{"echo": echo{}}, Planner: planner.New(planner.Limits{})})
	if err := ex.Start(context.Background()); err != nil {
		tb.Fatal(err)
	}
	server := gateway.New(gateway.Options{Executor: ex, Limits: gateway.Limits{MessageMax: 1 << 16}})
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitfor.Max)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			tb.Error(err)
		}
		if err := ex.Close(); err != nil {
			tb.Error(err)
		}
		if err := dir.Close(); err != nil {
			tb.Error(err)
		}
	})
	return server
}

// FuzzSession feeds a session with arbitrary bytes after a proper startup. It
// must neither crash nor hang, and what it answers must be frames.
func FuzzSession(f *testing.F) {
	seed := func(ms ...pgproto3.FrontendMessage) {
		var b []byte
		for _, m := range ms {
			var err error
			if b, err = m.Encode(b); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(b)
	}
	seed(&pgproto3.Query{String: "SELECT 1"})
	seed(&pgproto3.Query{String: "BEGIN; SELECT 1; COMMIT"}, &pgproto3.Query{String: "SAVEPOINT a"})
	seed(parse("s", "SELECT $1"), bind("p", "s", "1"), describe('P', "p"), do("p", 1), flushMsg, &pgproto3.Close{ObjectType: 'S', Name: "s"}, syncMsg)
	seed(parse("", "BEGIN"), bind("", ""), do("", 0), syncMsg, parse("", "COMMIT"), bind("", ""), describe('S', ""), do("", 0), syncMsg)
	seed(&pgproto3.Query{String: "SET a.b = 'c'"}, &pgproto3.Query{String: "PREPARE p AS SELECT 1"}, &pgproto3.Query{String: "EXECUTE p"}, &pgproto3.Query{String: "DISCARD ALL"})
	seed(&pgproto3.CopyData{Data: []byte("x")}, &pgproto3.CopyDone{}, &pgproto3.Terminate{})
	seed(call(954, 0, 10), call(955, 0, []byte("x")), &pgproto3.Query{String: "BEGIN"}, call(3170, 0, int64(7), nil), call(1, 2))
	f.Add([]byte("Q\x00\x00\x00\x05\x00S\x00\x00\x00\x04B\x00\x00\x00\x05\x00"))
	server := echoServer(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		client, nc := net.Pipe()
		ended := make(chan struct{})
		go func() {
			server.ServeConn(context.Background(), nc)
			close(ended)
		}()
		start, err := (&pgproto3.StartupMessage{ProtocolVersion: 196608, Parameters: map[string]string{"user": "u", "database": "cleave"}}).Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		answers := make(chan []byte, 1)
		go func() {
			all, _ := io.ReadAll(client) // to the end, whatever it is
			answers <- all
		}()
		_ = client.SetWriteDeadline(time.Now().Add(waitfor.Max))
		_, err = client.Write(append(append(start, b...), 'X', 0, 0, 0, 4))
		_ = err // the session may have ended before all was written
		// A frame cut short by the fuzzer would wait for more.
		idle := time.AfterFunc(20*time.Millisecond, func() { _ = client.Close() })
		defer idle.Stop()
		select {
		case <-ended:
		case <-time.After(waitfor.Max):
			t.Fatal("the session hangs")
		}
		_ = client.Close()
		all := <-answers
		for len(all) > 0 {
			fr, rest, ok, err := wire.Cut(all)
			if err != nil {
				t.Fatalf("the answer is not frames: %v", err)
			}
			if !ok {
				break // cut off by the close
			}
			if fr.Type() == wire.ReadyForQuery && len(fr) != 6 {
				t.Fatal("a malformed ReadyForQuery")
			}
			all = rest
		}
	})
}
