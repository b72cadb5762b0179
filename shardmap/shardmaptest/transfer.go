package shardmaptest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/cleavedb/cleave/shardmap"
)

// RunTransfer moves a cluster from one store to the other, interrupted at many
// places, and back.
func RunTransfer(t *testing.T, one, other Store) {
	ctx := t.Context()
	a, b := one(), other()
	defer closing(t, a)
	defer closing(t, b)
	snap := create(t, a)
	for n := range 7 {
		snap = mustRelabel(t, a, snap, fmt.Sprint(n))
	}
	c := change(snap.Version(), "with ID")
	c.ID, c.Statement, c.Tables = "once", "CREATE TABLE t ()", []string{"public.t"}
	if _, err := a.Update(ctx, c, snap.State().Clone()); err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		if _, err := a.PutRecord(ctx, fmt.Sprint("k/", n), fmt.Append(nil, n), 0); err != nil {
			t.Fatal(err)
		}
	}
	history, err := a.History(ctx, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	lease, _ := join(t, a, "router")

	tr := &shardmap.Transfer{From: a, To: b, FromURL: "one", ToURL: "other", By: "suite"}
	plan, err := tr.Plan(ctx)
	if err != nil || plan.Versions != 9 || plan.Records != 5 || plan.Members != 1 || plan.Done {
		t.Fatalf("the plan is %+v, %v", plan, err)
	}
	snap = mustRelabel(t, a, mustLoad(t, a), "after the plan") // which has changed nothing
	// Interrupted after each number of steps, then run to the end.
	for n := 1; ; n++ {
		if n > 200 {
			t.Fatal("the transfer does not end")
		}
		short, cancel := context.WithCancel(ctx)
		tr.To = &countdown{Directory: b, Mover: b.(shardmap.Mover), left: n, end: cancel}
		p, err := tr.Run(short)
		cancel()
		if err == nil {
			if !p.Done || p.Records != 5 {
				t.Fatalf("the transfer says %+v", p)
			}
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("interrupted in step %d: %v", n, err)
		}
		if _, err := b.Update(ctx, change(0, "too early"), State(t)); err == nil {
			t.Fatal("a target that is not complete takes changes")
		}
	}
	tr.To = b
	if lease.Live() {
		t.Fatal("the target opened while a router of the source had a lease")
	}
	// The source is left.
	_, err = relabel(ctx, a, snap, "x")
	wantErr(t, "Update of the source", err, shardmap.ErrMoved)
	_, err = a.PutRecord(ctx, "new", nil, 0)
	wantErr(t, "PutRecord of the source", err, shardmap.ErrMoved)
	_, _, err = a.Join(ctx, member("late"))
	wantErr(t, "Join of the source", err, shardmap.ErrMoved)
	_, err = a.Campaign(ctx, "x", "y")
	wantErr(t, "Campaign in the source", err, shardmap.ErrMoved)
	if p, err := tr.Run(ctx); err != nil || !p.Done {
		t.Fatalf("a second transfer: %+v, %v", p, err)
	}
	// The target has everything, and goes on.
	got, err := b.History(ctx, 0, 9)
	if err != nil || !reflect.DeepEqual(got, history) {
		t.Fatalf("the history was\n%+v\nand is\n%+v (%v)", history, got, err)
	}
	for v := uint64(1); v <= snap.Version(); v++ {
		x, errA := a.At(ctx, v)
		y, errB := b.At(ctx, v)
		if errA != nil || errB != nil || !reflect.DeepEqual(x.State(), y.State()) {
			t.Fatalf("version %d differs (%v, %v)", v, errA, errB)
		}
	}
	if e, err := b.Find(ctx, "once"); err != nil || e.Version != 9 {
		t.Fatalf("Find gives %+v, %v", e, err)
	}
	snap = mustRelabel(t, b, mustLoad(t, b), "in the target")
	r, err := b.Record(ctx, "k/1")
	if err != nil || string(r.Value) != "1" {
		t.Fatalf("the record is %+v, %v", r, err)
	}
	if err := b.DeleteRecord(ctx, "k/1", r.Revision); err != nil {
		t.Fatal(err)
	}

	// And back: the former source is completed.
	back := &shardmap.Transfer{From: b, To: a, FromURL: "other", ToURL: "one", By: "suite"}
	if p, err := back.Run(ctx); err != nil || p.Versions != 1 || p.Records != 4 {
		t.Fatalf("the reversal: %+v, %v", p, err)
	}
	if got := mustLoad(t, a); !reflect.DeepEqual(got.State(), snap.State()) {
		t.Fatalf("back, the map is\n%+v", got.State())
	}
	_, err = a.Record(ctx, "k/1")
	wantErr(t, "a record that was deleted in the target", err, shardmap.ErrNotFound)
	mustRelabel(t, a, snap, "back")
	_, err = relabel(ctx, b, snap, "x")
	wantErr(t, "Update of the former target", err, shardmap.ErrMoved)
}

// countdown ends a context after some steps.
type countdown struct {
	shardmap.Directory
	shardmap.Mover
	left int
	end  func()
}

func (c *countdown) step() {
	if c.left--; c.left <= 0 {
		c.end()
	}
}

func (c *countdown) SetMoved(ctx context.Context, expect, next *shardmap.Move, version uint64) error {
	err := c.Mover.SetMoved(ctx, expect, next, version)
	c.step()
	return errors.Join(err, ctx.Err())
}

func (c *countdown) Restore(ctx context.Context, e shardmap.Entry, snap *shardmap.Snapshot) error {
	err := c.Mover.Restore(ctx, e, snap)
	c.step()
	return errors.Join(err, ctx.Err())
}

func (c *countdown) RestoreRecord(ctx context.Context, key string, value []byte) error {
	err := c.Mover.RestoreRecord(ctx, key, value)
	c.step()
	return errors.Join(err, ctx.Err())
}
