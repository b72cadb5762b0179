package shardmaptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// testAsk has members ask each other: small and large answers, errors, many at once, a member that is gone, one that does not
// answer.
func testAsk(t *testing.T, d shardmap.Directory) {
	ctx := t.Context()
	lease, leave, err := d.Join(ctx, shardmap.Member{ID: "one", Role: "router"})
	if err != nil || !lease.Live() {
		t.Fatalf("Join: %v", err)
	}
	life, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	var answering sync.WaitGroup
	answering.Go(func() {
		shardmap.Answer(life, d, "one", func(ctx context.Context, op string, in []byte) ([]byte, error) {
			switch op {
			case "wait":
				select {
				case <-over:
				case <-ctx.Done():
				}
				return []byte("true"), nil
			case "fail":
				return nil, sqlstate.New(sqlstate.InsufficientPrivilege, "no").WithHint("ask another")
			case "repeat":
				var n int
				if err := json.Unmarshal(in, &n); err != nil {
					return nil, err
				}
				return json.Marshal(strings.Repeat("x", n))
			}
			return nil, fmt.Errorf("what is %s?", op)
		})
	})
	// The suite's leases are short. On a busy machine one may end for a moment, and its member is none then; what it was asked is
	// left behind until it is too old.
	var lapsed atomic.Bool
	// More than are answered at a time wait for something; the others below are answered beside them.
	var waiting sync.WaitGroup
	for range 80 {
		waiting.Go(func() {
			var got bool
			err := shardmap.Ask(ctx, d, "one", "wait", nil, &got, time.Minute)
			if err != nil {
				lapsed.Store(true)
			}
			if code := sqlstate.CodeOf(err); err != nil && code != sqlstate.CannotConnectNow && code != sqlstate.TransactionUnknown {
				t.Errorf("one that waits: %v", err)
			}
		})
	}
	var asking sync.WaitGroup
	for n := range 20 {
		asking.Go(func() {
			size := n * 20_000 // several records hold the larger ones
			var got string
			err := shardmap.Ask(ctx, d, "one", "repeat", size, &got, 0)
			for try := 0; try < 1000 && (sqlstate.CodeOf(err) == sqlstate.CannotConnectNow || sqlstate.CodeOf(err) == sqlstate.TransactionUnknown); try++ {
				lapsed.Store(true)
				time.Sleep(20 * time.Millisecond)
				err = shardmap.Ask(ctx, d, "one", "repeat", size, &got, 0)
			}
			if err != nil || len(got) != size {
				t.Errorf("answer %d has %d bytes, not %d: %v", n, len(got), size, err)
			}
		})
	}
	asking.Wait()
	var out any
	err = shardmap.Ask(ctx, d, "one", "fail", nil, &out, 0)
	if e := sqlstate.As(err); e.Code != sqlstate.InsufficientPrivilege || e.Message != "no" || e.Hint != "ask another" {
		t.Errorf("a member's error comes as %v", err)
	}
	if err = shardmap.Ask(ctx, d, "one", "repeat", 64<<16+1, &out, 0); sqlstate.CodeOf(err) != sqlstate.ProgramLimitExceeded {
		t.Errorf("an answer that is too large: %v", err)
	}
	close(over)
	waiting.Wait()
	stop()
	answering.Wait()

	limit, done := context.WithTimeout(ctx, 100*time.Millisecond)
	defer done()
	if err = shardmap.Ask(limit, d, "one", "repeat", 1, &out, 0); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of a member that does not answer: %v", err)
	}
	if err := leave(ctx); err != nil {
		t.Fatal(err)
	}
	if err = shardmap.Ask(ctx, d, "one", "repeat", 1, &out, 0); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
		t.Errorf("of a member that is gone: %v", err)
	}
	if left, err := d.Records(ctx, "ask/", "", 10); err != nil || len(left) != 0 && !lapsed.Load() {
		t.Errorf("%d records are left behind, %v", len(left), err)
	}
}
