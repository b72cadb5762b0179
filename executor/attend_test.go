package executor

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/planner/plan"
)

// leaves waits for a plan until a context ends.
type leaves struct{ ctx context.Context }

func (l leaves) Planning() (context.Context, func()) { return l.ctx, func() {} }

// TestWhoWaitsForAPlanCanLeave: the error is the waiter's own, the plan goes on for nobody, few of them at once, and what it gives is not used.
func TestWhoWaitsForAPlanCanLeave(t *testing.T) {
	e := New(Options{Planner: planner.New(planner.Limits{})})
	defer e.Close()
	gone := errors.New("gone")
	ctx, leave := context.WithCancelCause(context.Background())
	goOn := make(chan struct{})
	begun := make(chan struct{}, leftMax)
	slow := func(*planner.Planner) (*plan.Statement, error) {
		begun <- struct{}{}
		<-goOn
		return &plan.Statement{}, nil
	}
	errs := make(chan error)
	for range leftMax {
		go func() {
			_, err := e.attend(leaves{ctx}, slow)
			errs <- err
		}()
	}
	for range leftMax {
		<-begun
	}
	leave(gone)
	for range leftMax {
		if err := <-errs; err != gone {
			t.Errorf("who left got %v", err)
		}
	}
	// As many as may go on for nobody do: the next waiter stays until its plan is there.
	finished := false
	_, err := e.attend(leaves{ctx}, func(p *planner.Planner) (*plan.Statement, error) {
		finished = true
		return p.Analyze("SELECT 1", nil, nil)
	})
	if !finished || err != gone {
		t.Errorf("finished %v, %v", finished, err)
	}
	close(goOn)
}

// TestAFaultInAPlanIsTheWaiters: a fault goes on where one session ends with it.
func TestAFaultInAPlanIsTheWaiters(t *testing.T) {
	e := New(Options{Planner: planner.New(planner.Limits{})})
	defer e.Close()
	defer func() {
		if fault, ok := recover().(string); !ok || !strings.Contains(fault, "a fault") || !strings.Contains(fault, "attend_test.go") {
			t.Errorf("fault %v", fault)
		}
	}()
	_, _ = e.attend(leaves{context.Background()}, func(*planner.Planner) (*plan.Statement, error) { panic("a fault") })
	t.Error("no fault")
}
