package move

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestLostReversal: a change of a table ends reverse replication, which is told before anybody asks for it, and what was kept
// for it goes. A shard that is kept for a reversal says with what it can be taken out.
func TestLostReversal(t *testing.T) {
	forKinds(t, "postgres", func(t *testing.T, c *target) {
		ctx := context.Background()
		c.bank(100)
		c.await(c.move(admin.MoveRequest{ID: "there", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}}), "done")
		if w := c.await(c.move(admin.MoveRequest{ID: "kept", Keyspace: "bank", Range: ":0", To: "s0"}), "opened"); w.KeptUntil == nil {
			t.Errorf("%+v", w)
		}
		_, err := c.rooms.Ops.RemoveShard(ctx, admin.RemoveShardRequest{Name: "s1"})
		if sqlstate.CodeOf(err) != sqlstate.ObjectInUse || !strings.Contains(sqlstate.As(err).Hint, "cleave complete kept") {
			t.Errorf("a shard with a move that can be reversed is removed: %v", err)
		}
		c.exec(`ALTER TABLE account ADD COLUMN more text`)
		w := c.await("kept", "done")
		c.history(w)
		if !strings.Contains(w.BackLost, "changed") || w.KeptUntil != nil || !strings.Contains(told(w), "it can no longer be reversed") {
			t.Errorf("%+v", w)
		}
		if n := c.onShard("s1", `SELECT count(*) FROM bulk`); n != "0" {
			t.Errorf("%s old rows are left", n)
		}
		_, err = c.rooms.Ops.Reverse(ctx, admin.WorkflowRequest{ID: "kept"})
		if err == nil || !strings.Contains(err.Error(), w.BackLost) || !strings.Contains(sqlstate.As(err).Hint, "cleave move --keyspace bank") {
			t.Errorf("a reversal that is not possible: %v", err)
		}
		c.await(c.move(admin.MoveRequest{ID: "again", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}}), "done")
		c.clean()
	})
}

// TestLostChanges: the old rows stay for a person when the new owner has lost its changes: it may have lost more.
func TestLostChanges(t *testing.T) {
	testrun.Long(t, "a stream is broken off until it stays away; TestLostReversal has one that is lost")
	c := start(t, "postgres", "postgres")
	c.bank(100)
	c.await(c.move(admin.MoveRequest{ID: "kept", Keyspace: "bank", Range: ":0", To: "s1"}), "opened")
	c.eventually("the slot is dropped", func() bool {
		// The stream that reads it comes again at once, and may be there before it is dropped.
		return c.onShard("s1", `DO $$ DECLARE s record; BEGIN
			FOR s IN SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = current_database() LOOP
				BEGIN
					PERFORM pg_terminate_backend(s.active_pid, 2000);
					PERFORM pg_drop_replication_slot(s.slot_name);
				EXCEPTION WHEN object_in_use OR undefined_object THEN
				END;
			END LOOP;
		END $$; SELECT count(*) FROM pg_replication_slots WHERE database = current_database()`) == "0"
	})
	var w admin.WorkflowInfo
	c.eventually("it can no longer be reversed", func() bool {
		w = c.await("kept", "opened")
		return w.BackLost != ""
	})
	if w.KeptUntil != nil || w.RowsUntil == nil || c.onShard("s0", `SELECT count(*) FROM bulk`) != "100" {
		t.Errorf("%+v", w)
	}
	_, err := c.rooms.Ops.Reverse(context.Background(), admin.WorkflowRequest{ID: "kept"})
	if hint := sqlstate.As(err).Hint; !strings.Contains(hint, "cleave complete kept --wait, then cleave move") {
		t.Errorf("%v", err)
	}
	if _, err := c.rooms.Ops.Complete(context.Background(), admin.WorkflowRequest{ID: "kept"}); err != nil {
		t.Fatal(err)
	}
	c.await("kept", "done")
	c.clean()
}

// TestNothingIsForgottenTooSoon: while others write on the new owner's server, and nobody in the part, its log is not
// given up further than where the next stream would begin.
func TestNothingIsForgottenTooSoon(t *testing.T) {
	testrun.Long(t, "it looks for eight seconds, again and again, at what should never be seen")
	c := start(t, "postgres", "postgres")
	c.bank(100)
	c.await(c.move(admin.MoveRequest{ID: "kept", Keyspace: "bank", Range: ":0", To: "s1"}), "opened")
	lost, tries := 0, 0
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); tries++ {
		forgotten := c.onShard("s1", `SELECT pg_logical_emit_message(true, 'other', 'x')::text; SELECT max(confirmed_flush_lsn)::text FROM pg_replication_slots WHERE database = current_database()`)
		if c.onShard("s0", `SELECT position::pg_lsn >= '`+forgotten+`' FROM cleave_internal.applied WHERE id = 'kept_b'`) != "t" {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("in %d of %d looks the old owner had not stored how far the new owner has forgotten", lost, tries)
	}
}
