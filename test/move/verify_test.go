package move

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/workflow"
)

// TestVerifiedPieceByPiece: both copies are compared in pieces while clients are at work; a row
// that should not be there is found, and told with its table and positions.
func TestVerifiedPieceByPiece(t *testing.T) {
	forKinds(t, "postgres", func(t *testing.T, c *target) {
		ctx := context.Background()
		c.bank(6000)
		l := c.work(2)
		c.moveAs("pieces", workflow.Options{VerifyBytes: 400_000})
		w := c.await("pieces", "opened")
		l.end()
		if l.failed.Load() > 0 {
			t.Errorf("%d transactions failed, first: %v", l.failed.Load(), l.first)
		}
		c.history(w)
		if !strings.Contains(told(w), "both copies have the same") {
			t.Error("nothing was compared")
		}
		// The reversal finds a row that nobody wrote.
		sh, err := c.rooms.Executor.Shard("s0")
		if err != nil {
			t.Fatal(err)
		}
		m := sh.(engine.Movable).Mover(1 << 40)
		c.eventually("the stream there has ended, which would bring the row to s1", func() bool {
			ids, err := m.Captures(ctx)
			return err == nil && !slices.Contains(ids, workflow.Forth("pieces"))
		})
		tables, _ := coordinator.Tables(c.rooms.Executor.Snapshot(), "bank")
		if tables, err = m.Describe(ctx, tables); err != nil {
			t.Fatal(err)
		}
		for i := range tables {
			if tables[i].Name == "bulk" {
				row := c.onShard("s1", `SELECT min(tenant) FROM bulk`) + "\t999999\tnobody wrote it\n"
				if _, err := m.Load(ctx, workflow.Back("pieces"), &tables[i], engine.Part{}, strings.NewReader(row)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := c.rooms.Ops.Reverse(ctx, admin.WorkflowRequest{ID: "pieces"}); err != nil {
			t.Fatal(err)
		}
		for !strings.Contains(told(w), "it cannot be reversed") {
			w = c.await("pieces", "opened", "catching up", "verifying", "closing")
		}
		if text := told(w); !strings.Contains(text, "public.bulk has") || !strings.Contains(text, "at positions") || strings.Contains(text, "public.account has") {
			t.Errorf("what differs is not told:\n%s", text)
		}
	})
}

func told(w admin.WorkflowInfo) string {
	text := ""
	for _, line := range w.History {
		text += line.What + "\n"
	}
	return text
}
