package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// Pause holds a workflow up. A cutover is not interrupted.
func (o *workflows) Pause(ctx context.Context, req WorkflowRequest) (*WorkflowInfo, error) {
	return o.ask(ctx, req, workflow.Pause)
}

// Resume lets a workflow go on, with other bounds if the request has some: also one that is not paused.
func (o *workflows) Resume(ctx context.Context, req WorkflowRequest) (*WorkflowInfo, error) {
	return o.ask(ctx, req, workflow.Resume)
}

// Cancel ends a workflow before its cutover and removes every trace of it. 55000 if it is
// too late for that.
func (o *workflows) Cancel(ctx context.Context, req WorkflowRequest) (*WorkflowInfo, error) {
	return o.ask(ctx, req, workflow.Cancel)
}

// Reverse makes the old owner the owner again, with every write that the new one took.
// 55000 if it can no longer be reversed, or if a constraint keeps the old owner from having it.
func (o *workflows) Reverse(ctx context.Context, req WorkflowRequest) (*WorkflowInfo, error) {
	s, err := o.workflow(ctx, req.ID)
	if err != nil {
		return nil, err
	}
	if s.Spec.Kind == workflow.Move && s.Step == workflow.Opened && workflow.CanAsk(s, workflow.Reverse) == nil {
		cur, err := o.load(ctx)
		if err != nil {
			return nil, err
		}
		if err := coordinator.Arrives(cur, &s.Spec, true); err != nil {
			return nil, err
		}
	}
	return o.ask(ctx, req, workflow.Reverse)
}

// Complete deletes the rows on the old owner: the move can no longer be reversed.
func (o *workflows) Complete(ctx context.Context, req WorkflowRequest) (*WorkflowInfo, error) {
	return o.ask(ctx, req, workflow.Complete)
}

// Approve lets a plan be carried out. 55000 if it does not wait for that, if another plan, a drain or a spread
// is under way, or if what it moves has another owner by now.
func (o *workflows) Approve(ctx context.Context, req WorkflowRequest) (*WorkflowInfo, error) {
	s, err := o.workflow(ctx, req.ID)
	if err != nil {
		return nil, err
	}
	if s.Spec.Kind == workflow.Rebalance && s.Step == workflow.Proposed {
		if err := o.stillValid(ctx, s); err != nil {
			return nil, err
		}
	}
	return o.ask(ctx, req, workflow.Approve)
}

// stillValid says why a plan that waits cannot be carried out now.
func (o *workflows) stillValid(ctx context.Context, s *workflow.State) error {
	others, err := coordinator.Unended(ctx, o.opts.Directory)
	if err != nil {
		return directoryError(err)
	}
	if err := coordinator.Conflict(&s.Spec, others); err != nil {
		return err
	}
	cur, err := o.load(ctx)
	if err != nil {
		return err
	}
	p, err := coordinator.LoadPlan(ctx, o.opts.Directory, s.Spec.ID)
	if err != nil {
		return directoryError(err)
	}
	return p.Fits(s.Spec.ID, cur)
}

// workflow returns a stored workflow. 42704 if there is none.
func (o *workflows) workflow(ctx context.Context, id string) (*workflow.State, error) {
	if err := workflow.CheckID(id); err != nil {
		return nil, err
	}
	r, err := o.opts.Directory.Record(ctx, workflow.RecordPrefix+id)
	if errors.Is(err, shardmap.ErrNotFound) {
		return nil, sqlstate.New(sqlstate.UndefinedObject, "there is no workflow %q", id).WithHint("see: cleave moves")
	}
	if err != nil {
		return nil, directoryError(err)
	}
	s, err := workflow.Decode(r.Value)
	return &s, err
}

func (o *workflows) ask(ctx context.Context, req WorkflowRequest, w workflow.Wish) (*WorkflowInfo, error) {
	bounds, err := req.Bounds.bounds()
	if err != nil {
		return nil, err
	}
	if bounds != nil && w != workflow.Resume {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "bounds cannot be changed by this command").WithHint("cleave resume %s", req.ID)
	}
	if req.DryRun {
		s, err := o.workflow(ctx, req.ID)
		if err != nil {
			return nil, err
		}
		if err := workflow.CanAsk(s, w); err != nil {
			return nil, err
		}
		info := o.info(ctx, s, true)
		info.Plan = wishPlan(s, w)
		return &info, nil
	}
	if err := workflow.CheckID(req.ID); err != nil {
		return nil, err
	}
	s, err := coordinator.Ask(ctx, o.opts.Directory, req.ID, w, req.by(), bounds)
	if err != nil {
		return nil, directoryError(err)
	}
	o.opts.Log.Info("workflow wish", "workflow", req.ID, "wish", w, "by", req.by())
	o.kick(ctx)
	info := o.info(ctx, &s, true)
	return &info, nil
}

// wishPlan is what a wish that can be granted leads to.
func wishPlan(s *workflow.State, w workflow.Wish) []string {
	what := fmt.Sprintf("%s of keyspace %s", s.Spec.Part.Text(), s.Spec.Keyspace)
	move := s.Spec.Kind == workflow.Move
	switch {
	case s.Step.Ended():
		return []string{"it has ended: nothing is left to do"}
	case w == workflow.Pause:
		return []string{"hold it up where it is; a cutover that has begun is not interrupted"}
	case w == workflow.Resume:
		return []string{"let it go on"}
	case w == workflow.Approve && s.Step == workflow.Proposed:
		return []string{fmt.Sprintf("carry out the %d steps of the plan: cleave plan show %s", s.PlanSteps, s.Spec.ID)}
	case w == workflow.Approve:
		return []string{"it is approved already"}
	case w == workflow.Complete && s.Step == workflow.Opened:
		return []string{"delete the rows of " + what + " on " + s.Spec.From, "it can no longer be reversed then"}
	case w == workflow.Complete:
		return []string{"complete it at the cutover: the rows on " + s.Spec.From + " are deleted then"}
	case w == workflow.Reverse && s.Step == workflow.Opened:
		return []string{"apply to " + s.Spec.From + " what " + s.Spec.To + " has taken since the cutover", "hold statements in " + what + " for a moment and make " + s.Spec.From + " the owner again",
			"delete the rows on " + s.Spec.To}
	case w == workflow.Reverse && s.Back:
		return []string{"it is being reversed already"}
	case w == workflow.Cancel && s.Back:
		return []string{"end the reversal: " + s.Spec.To + " stays the owner of " + what}
	case move:
		return []string{"end the copy, and delete the rows of " + what + " on " + s.Spec.To, "nothing is left of the move; " + s.Spec.From + " stays the owner"}
	case len(s.Children) > 0:
		return []string{"begin nothing more", "cancel those of its moves that are before their cutover; what is done stays"}
	}
	return []string{"end it: it has nothing under way"}
}

// MoveBounds are the bounds of MoveOptions that can be changed while rows are moved; nil: as it is.
type MoveBounds struct {
	RowsPerSecond  *int64  `json:"rows_per_second,omitempty"`
	BytesPerSecond *int64  `json:"bytes_per_second,omitempty"`
	MaxLatency     *string `json:"max_latency,omitempty"` // "": what adapts itself
	MaxLag         *string `json:"max_lag,omitempty"`     // "": the default
	MaxLagBytes    *int64  `json:"max_lag_bytes,omitempty"`
}

// bounds checks them, as those of a new move are.
func (m *MoveBounds) bounds() (*workflow.Bounds, error) {
	if m == nil {
		return nil, nil
	}
	var all MoveOptions
	set := func(into, from *int64) {
		if from != nil {
			*into = *from
		}
	}
	set(&all.RowsPerSecond, m.RowsPerSecond)
	set(&all.BytesPerSecond, m.BytesPerSecond)
	set(&all.MaxLagBytes, m.MaxLagBytes)
	if m.MaxLatency != nil {
		all.MaxLatency = *m.MaxLatency
	}
	if m.MaxLag != nil {
		all.MaxLag = *m.MaxLag
	}
	o, err := all.options(workflow.DefaultKeepMS)
	if err != nil {
		return nil, err
	}
	given := func(is bool, n int64) *int64 {
		if !is {
			return nil
		}
		return &n
	}
	return &workflow.Bounds{
		RowsPerSecond: given(m.RowsPerSecond != nil, o.RowsPerSecond), BytesPerSecond: given(m.BytesPerSecond != nil, o.BytesPerSecond),
		MaxLatencyMS: given(m.MaxLatency != nil, o.MaxLatencyMS), MaxLagMS: given(m.MaxLag != nil, o.MaxLagMS), MaxLagBytes: given(m.MaxLagBytes != nil, o.MaxLagBytes),
	}, nil
}

// eta is for how long a step that goes through rows will go on at the rate of the last seconds, seconds; -1: not known.
func eta(s *workflow.State, p *workflow.Progress) float64 {
	left, rate := float64(s.Bytes-p.Bytes), p.BytesPerSecond
	switch s.Step {
	case workflow.Copying, workflow.Verifying:
		if s.Bytes <= 0 || p.Bytes <= 0 {
			return -1
		}
	case workflow.Cleaning:
		if left, rate = float64(max(s.Rows, s.Copied)-p.Rows), p.RowsPerSecond; p.Rows <= 0 {
			return -1
		}
	default:
		return -1
	}
	if rate <= 0 {
		return -1
	}
	return max(0, left/rate)
}
