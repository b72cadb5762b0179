package admin

import (
	"context"
	"fmt"

	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// PlanRequest asks for a plan that makes the cluster even: splits, moves and merges by what
// ranges hold. It is stored, and nothing is done until somebody approves it.
type PlanRequest struct {
	Meta
	ID       string `json:"id,omitempty"`
	Keyspace string `json:"keyspace,omitempty"` // "": all
	// Measure is what is to be even by the shards' weights: "bytes" (the default), "rows",
	// "load" (statements) or "both": bytes and load.
	Measure string `json:"measure,omitempty"`
	// Tolerance is how far above its share a shard may be and give nothing; 0.05 is 5 per
	// cent. nil: 0.1.
	Tolerance *float64 `json:"tolerance,omitempty"`
	// SplitBytes is the size above which ranges are cut, MergeBytes that below which
	// neighbours of one shard become one; 0: never.
	SplitBytes int64 `json:"split_bytes,omitempty"`
	MergeBytes int64 `json:"merge_bytes,omitempty"`
	// SplitLoad, MergeLoad: the same for statements a second. AloneLoad is the load above which
	// a hot key is placed by itself.
	SplitLoad float64 `json:"split_load,omitempty"`
	MergeLoad float64 `json:"merge_load,omitempty"`
	AloneLoad float64 `json:"alone_load,omitempty"`
	// MovedBytesMax bounds what the moves copy, AtOnce how many are under way at a time; 0: no
	// bound of the plan's.
	MovedBytesMax int64 `json:"moved_bytes_max,omitempty"`
	AtOnce        int   `json:"at_once,omitempty"`
	// Approve carries the plan out as soon as it is made.
	Approve bool `json:"approve,omitempty"`
	MoveOptions
}

// DefaultTolerance is that of plans.
const DefaultTolerance = workflow.DefaultTolerance

// PlanInfo is a stored plan, with the workflow that it belongs to.
type PlanInfo struct {
	Workflow WorkflowInfo `json:"workflow"`
	// Begun is how many steps were begun.
	Begun int                   `json:"begun"`
	Plan  *workflow.BalancePlan `json:"plan,omitempty"` // nil until it is made
}

// Plan begins a plan: the leader measures the ranges and makes it. Errors: 22023 for options that
// make no sense, 0A000 for what is not measured, 42704 for an unknown keyspace, 55000 while another
// plan, a drain or a spread is carried out.
func (o *workflows) Plan(ctx context.Context, req PlanRequest) (*WorkflowResult, error) {
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	if _, ok := cur.Keyspace(req.Keyspace); !ok && req.Keyspace != "" {
		return nil, noKeyspace(req.Keyspace)
	}
	balance := workflow.BalanceOptions{By: req.Measure, Tolerance: DefaultTolerance, SplitBytes: req.SplitBytes, MergeBytes: req.MergeBytes, BytesPerSecond: float64(req.BytesPerSecond),
		SplitLoad: req.SplitLoad, MergeLoad: req.MergeLoad, AloneLoad: req.AloneLoad, MovedBytesMax: req.MovedBytesMax, AtOnce: req.AtOnce}
	if req.Tolerance != nil {
		balance.Tolerance = *req.Tolerance
	}
	if err := balance.Check(); err != nil {
		return nil, err
	}
	spec := workflow.Spec{ID: req.ID, Kind: workflow.Rebalance, Keyspace: req.Keyspace, By: req.by(), Why: req.Why, Balance: &balance, Approved: req.Approve}
	if spec.Options, err = req.options(-1); err != nil {
		return nil, err
	}
	if req.ID != "" {
		if res, err := o.stored(ctx, &spec, req.DryRun); res != nil || err != nil {
			return res, err
		}
	}
	others, err := coordinator.Unended(ctx, o.opts.Directory)
	if err != nil {
		return nil, directoryError(err)
	}
	if err := coordinator.Conflict(&spec, others); err != nil {
		return nil, err
	}
	lines := []string{"measure what the ranges hold, and make a plan"}
	if req.Approve {
		lines = append(lines, "carry it out at once")
	} else {
		lines = append(lines, "wait for somebody who approves it")
	}
	return o.begin(ctx, spec, req.DryRun, lines)
}

// ShowPlan returns a plan. 42704 if there is none.
func (o *workflows) ShowPlan(ctx context.Context, id string) (*PlanInfo, error) {
	info, err := o.one(ctx, id)
	if err != nil {
		return nil, err
	}
	if info.Kind != string(workflow.Rebalance) {
		return nil, sqlstate.New(sqlstate.WrongObjectType, "workflow %s is a %s, not a plan", id, info.Kind).WithHint("see: cleave moves %s", id)
	}
	res := &PlanInfo{Workflow: *info, Begun: info.Begun}
	if res.Plan, err = coordinator.LoadPlan(ctx, o.opts.Directory, id); err != nil && sqlstate.CodeOf(err) != sqlstate.UndefinedObject {
		return nil, directoryError(err)
	}
	return res, nil
}

// stepText is a step of a plan in one line.
func stepText(s *workflow.PlanStep) string {
	switch s.Kind {
	case workflow.Split:
		return fmt.Sprintf("split %s of %s at %s", s.Part.Text(), s.Keyspace, s.At[0])
	case workflow.Pin:
		return fmt.Sprintf("pin %s of %s to %s, where it is", s.Part.Text(), s.Keyspace, s.To)
	case workflow.Merge:
		return fmt.Sprintf("merge the ranges of %s beside %s", s.Keyspace, s.At[0])
	}
	line := fmt.Sprintf("move %s of %s from %s to %s", s.Part.Text(), s.Keyspace, s.From, s.To)
	if s.Repairs != "" {
		line += ", which constraint " + s.Repairs + " wants"
	}
	return line
}

// Lines are the steps for people.
func (p *PlanInfo) Lines() []string {
	if p.Plan == nil {
		return nil
	}
	var out []string
	for i := range p.Plan.Steps {
		out = append(out, stepText(&p.Plan.Steps[i]))
	}
	return out
}
