package executor

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/planner/plan"
)

// A statement of the longest texts takes seconds to plan, in the parser's C code for a part of them, which nobody can
// stop. So it is planned in a goroutine of its own, and who waits for it can leave. The planner looks at times whether
// somebody waits, so that little is done for nobody.

// Waiter is who waits for a plan; nil is somebody who never leaves.
type Waiter interface {
	// Planning is asked when something has to be planned. The context ends when nobody wants the plan any more, and its
	// cause is the statement's error then. done must be called.
	Planning() (ctx context.Context, done func())
}

// leftMax bounds the plans that are finished for nobody: the next waiters stay until theirs is there, as if they could not leave.
const leftMax = 4

type planned struct {
	st    *plan.Statement
	err   error
	fault any
	stack []byte
}

// attend plans, until w leaves. What plan uses may not change afterwards.
func (p *plans) attend(w Waiter, plan func(*planner.Planner) (*plan.Statement, error)) (*plan.Statement, error) {
	if w == nil {
		return plan(p.planner)
	}
	ctx, done := w.Planning()
	defer done()
	end := make(chan planned, 1)
	until := p.planner.Until(func() error { return context.Cause(ctx) })
	if !p.beside(func() { end <- guardedPlan(until, plan) }) {
		return plan(p.planner)
	}
	select {
	case is := <-end:
		return is.given(ctx)
	case <-ctx.Done():
	}
	select {
	case is := <-end:
		return is.given(ctx)
	case p.left <- struct{}{}:
	}
	p.beside(func() {
		if is := <-end; is.fault != nil {
			p.log.Error("a fault in a plan that nobody waits for", "fault", is.fault, "stack", string(is.stack))
		}
		<-p.left
	})
	return nil, context.Cause(ctx)
}

func guardedPlan(by *planner.Planner, plan func(*planner.Planner) (*plan.Statement, error)) (p planned) {
	defer func() {
		if fault := recover(); fault != nil {
			p = planned{fault: fault, stack: debug.Stack()}
		}
	}()
	p.st, p.err = plan(by)
	return p
}

// given is the plan. A fault goes on in the goroutine of who waits, whose session it ends. A plan that came when its context
// had ended is none: the planner may have left something out.
func (p planned) given(ctx context.Context) (*plan.Statement, error) {
	if p.fault != nil {
		panic(fmt.Sprintf("%v\nin a plan: %s", p.fault, p.stack))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return p.st, p.err
}
