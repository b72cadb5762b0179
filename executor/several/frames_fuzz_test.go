package several

import (
	"context"
	"testing"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
)

// alone is a host without a client.
type alone struct{ snap *shardmap.Snapshot }

func (h alone) Snapshot() *shardmap.Snapshot { return h.snap }
func (h alone) Settings() *executor.Settings { return nil }
func (h alone) Timeout() time.Duration       { return 0 }
func (h alone) Holds() error                 { return nil }
func (h alone) Repeats() bool                { return false }
func (h alone) Reader(context.Context, string, *executor.Settings) (*executor.Conn, error) {
	return nil, nil
}
func (h alone) Wrote(*executor.Conn)                              {}
func (h alone) Holder() *executor.Holder                          { return new(executor.Holder) }
func (h alone) Joined(string)                                     {}
func (h alone) Values([]plan.FillValue) (out [][]byte, err error) { return nil, nil }
func (h alone) Kept(string) *executor.Conn                        { return nil }
func (h alone) Spreads() bool                                     { return false }
func (h alone) Counter() *executor.Counter                        { return new(executor.Counter) }
func (h alone) Planned(string) *plan.Statement                    { return nil }
func (h alone) Held() *Held                                       { return new(Held) }

// shardless is what a conversation needs of which no shard can be reached.
func shardless(tb testing.TB) (*Shared, Host) {
	tb.Helper()
	dir := memory.New()
	snap, err := dir.Update(context.Background(), shardmap.Change{ID: "1", By: "test", Op: "bootstrap"}, shardmap.State{
		Format: 1, Cluster: "6f2c8f6e-7f0e-4c43-9d07-0f6b7a4c1d11", DefaultShard: "a",
		Shards: []shardmap.Shard{{Name: "a", Engine: "none", URL: "none://a", Weight: 1}, {Name: "b", Engine: "none", URL: "none://b", Weight: 1}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	ex := executor.New(executor.Options{Directory: dir, Planner: planner.New(planner.Limits{})})
	if err := ex.Start(context.Background()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = ex.Close() })
	return NewShared(ex, nil, limits.Defaults{}), alone{snap}
}

// FuzzFrames sends whatever frames to a conversation of which no shard can be
// reached: it answers or refuses whole frames, a Sync
// with ReadyForQuery, and never faults.
func FuzzFrames(f *testing.F) {
	f.Add(wire.AppendQuery(nil, "BEGIN; SELECT 1; COMMIT"))
	f.Add(wire.AppendEmpty(wire.AppendExecute(wire.AppendBind(wire.AppendParse(nil, "a", "SELECT $1", []uint32{23}), "p", "a", nil, [][]byte{[]byte("1")}, nil), "p", 3), wire.Sync))
	f.Add(wire.AppendEmpty(wire.AppendDescribe(wire.AppendClose(nil, 'P', "x"), 'S', ""), wire.Sync))
	f.Add(wire.AppendCopyFail(wire.AppendQuery(nil, "COPY t FROM STDIN"), "no"))
	f.Add(wire.AppendQuery(nil, "DECLARE c CURSOR FOR SELECT 1; FETCH c; SAVEPOINT a; ROLLBACK TO a"))
	shared, host := shardless(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		// Whole frames only, as the wire gives them.
		var frames []byte
		for rest := b; ; {
			fr, next, ok, err := wire.Cut(rest)
			if err != nil || !ok {
				break
			}
			if fr.Type() == wire.TerminateFE {
				break
			}
			frames, rest = append(frames, fr...), next
		}
		frames = wire.AppendEmpty(frames, wire.Sync)
		var tx *txn.Transaction
		if len(b)%2 == 0 {
			tx = inBlock(shared, host)
		}
		c := New(shared, host, tx)
		defer c.Close()
		if err := c.Send(frames); err != nil {
			return
		}
		if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		for seen := 0; seen == 0; {
			out, err := c.Receive()
			if err != nil {
				t.Fatal(err)
			}
			for len(out) > 0 {
				fr, next, ok, err := wire.Cut(out)
				if err != nil || !ok {
					t.Fatalf("a torn frame: %x", out)
				}
				if fr.Type() == wire.ReadyForQuery {
					seen++
				}
				out = next
			}
		}
	})
}
