package move

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// TestRefusedWithTheStatement: a table that cannot be moved is told with the statement to run, in full: before it is
// begun (--dry-run), by the move, and by the drain whose move it is.
func TestRefusedWithTheStatement(t *testing.T) {
	testrun.Short(t)
	ctx := context.Background()
	c := start(t, "postgres", "postgres")
	c.bank(100)
	c.exec(`ALTER TABLE bulk SET UNLOGGED`, `ALTER TABLE entry SET UNLOGGED`, `ALTER TABLE account SET UNLOGGED`)
	has := func(what, text string) {
		t.Helper()
		for _, table := range []string{"bulk", "entry", "account"} {
			if !strings.Contains(text, `ALTER TABLE "public"."`+table+`" SET LOGGED`) {
				t.Errorf("%s: %s is not in %q", what, table, text)
			}
		}
	}
	dry := admin.Meta{DryRun: true}
	res, err := c.rooms.Ops.Move(ctx, admin.MoveRequest{Meta: dry, Keyspace: "bank", Range: ":0", To: "s1"})
	if err != nil || !strings.HasPrefix(res.Plan[0], "it would be refused now: shard s0: rows cannot be moved") {
		t.Fatalf("%+v, %v", res, err)
	}
	has("a move's plan", res.Plan[0])
	if len(res.Refused) != 2 || res.Refused[0] != res.Plan[0] {
		t.Errorf("what would be refused is not said apart: %q", res.Refused)
	}
	if res, err = c.rooms.Ops.Drain(ctx, admin.DrainRequest{Meta: dry, Shard: "s0"}); err != nil {
		t.Fatal(err)
	}
	has("a drain's plan", res.Plan[0])
	if _, err := c.rooms.Ops.Drain(ctx, admin.DrainRequest{ID: "d", Shard: "s0"}); err != nil {
		t.Fatal(err)
	}
	w := c.await("d", "failed")
	has("a drain", w.Error)
	if !strings.Contains(w.Error, "these moves were not done: d-1; d-1: ") {
		t.Errorf("%q", w.Error)
	}
	has("a move", c.await("d-1", "failed").Error)
}

// TestWaitsForAPlace: a move that has not begun because others are at work says so.
func TestWaitsForAPlace(t *testing.T) {
	testrun.Short(t)
	ctx := context.Background()
	c := startAs(t, "", "sqlite", "sqlite")
	c.bank(10)
	c.moveAs("waits", workflow.Options{})
	if w := c.await("waits", "planned"); w.Note != "" {
		t.Errorf("%q", w.Note)
	}
	c.moveAs("works", workflow.Options{})
	r, err := c.dir.Record(ctx, workflow.RecordPrefix+"works")
	if err != nil {
		t.Fatal(err)
	}
	s, err := workflow.Decode(r.Value)
	if err != nil {
		t.Fatal(err)
	}
	s, _ = workflow.Step(s, workflow.Event{Kind: workflow.EventDone, Seq: s.Seq, At: s.Created})
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.dir.PutRecord(ctx, r.Key, b, r.Revision); err != nil {
		t.Fatal(err)
	}
	if w := c.await("waits", "planned"); !strings.Contains(w.Note, "waits for a place") || !strings.HasSuffix(w.Note, ": works") {
		t.Errorf("%q", w.Note)
	}
}

// TestSchemaChangeOfATableThatIsCopied: a change that needs the table to itself is refused soon, and names the move that
// copies it with the commands; writers do not stand behind it for long. When the move has ended it goes.
func TestSchemaChangeOfATableThatIsCopied(t *testing.T) {
	testrun.Long(t, "schema changes have to wait for seconds before they are refused")
	ctx := context.Background()
	c := start(t, "postgres", "postgres")
	c.bank(500)
	c.move(admin.MoveRequest{ID: "copies", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0", RowsPerSecond: 1}})
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		list, err := c.rooms.Ops.Moves(ctx, "copies")
		if err != nil {
			t.Fatal(err)
		}
		if w := list[0]; w.Step == "copying" && w.Rows > 0 {
			break
		} else if w.Ended || time.Now().After(end) {
			t.Fatalf("%+v", w)
		}
	}
	conn := c.connect()
	stands := "" // the table whose first rows are being copied is one of these
	for _, table := range []string{"account", "bulk", "entry"} {
		began := time.Now()
		_, err := conn.Exec(ctx, `ALTER TABLE `+table+` ADD COLUMN more int`)
		if err == nil {
			continue
		}
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || sqlstate.Code(pg.Code) != sqlstate.LockNotAvailable || !strings.Contains(pg.Message, "move copies is copying rows") || !strings.Contains(pg.Hint, "cleave cancel copies") {
			t.Fatalf("%s: %v", table, err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("%s: writers stood for %s", table, took)
		}
		stands = table
	}
	if stands == "" {
		t.Fatal("no table is being copied")
	}
	if _, err := c.rooms.Ops.Cancel(ctx, admin.WorkflowRequest{ID: "copies"}); err != nil {
		t.Fatal(err)
	}
	c.await("copies", "cancelled")
	c.exec(`ALTER TABLE ` + stands + ` ADD COLUMN more int`)
	c.clean()
}
