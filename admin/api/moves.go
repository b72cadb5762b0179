package api

import (
	"context"
	"net/url"

	"github.com/cleavedb/cleave/admin"
)

// Moves implements admin.API.
func (c *Client) Moves(ctx context.Context, id string) ([]admin.WorkflowInfo, error) {
	var q url.Values
	if id != "" {
		q = url.Values{"id": {id}}
	}
	return ask[[]admin.WorkflowInfo](ctx, c, "moves", q)
}

// Move implements admin.API.
func (c *Client) Move(ctx context.Context, req admin.MoveRequest) (*admin.WorkflowResult, error) {
	return tell[admin.WorkflowResult](ctx, c, "move", req)
}

// Split implements admin.API.
func (c *Client) Split(ctx context.Context, req admin.SplitRequest) (*admin.WorkflowResult, error) {
	return tell[admin.WorkflowResult](ctx, c, "split", req)
}

// Merge implements admin.API.
func (c *Client) Merge(ctx context.Context, req admin.MergeRequest) (*admin.WorkflowResult, error) {
	return tell[admin.WorkflowResult](ctx, c, "merge", req)
}

// Drain implements admin.API.
func (c *Client) Drain(ctx context.Context, req admin.DrainRequest) (*admin.WorkflowResult, error) {
	return tell[admin.WorkflowResult](ctx, c, "shard_drain", req)
}

// Spread implements admin.API.
func (c *Client) Spread(ctx context.Context, req admin.SpreadRequest) (*admin.WorkflowResult, error) {
	return tell[admin.WorkflowResult](ctx, c, "spread", req)
}

// Plan implements admin.API.
func (c *Client) Plan(ctx context.Context, req admin.PlanRequest) (*admin.WorkflowResult, error) {
	return tell[admin.WorkflowResult](ctx, c, "plan", req)
}

// ShowPlan implements admin.API.
func (c *Client) ShowPlan(ctx context.Context, id string) (*admin.PlanInfo, error) {
	return ask[*admin.PlanInfo](ctx, c, "plan_show", url.Values{"id": {id}})
}

// Approve implements admin.API.
func (c *Client) Approve(ctx context.Context, req admin.WorkflowRequest) (*admin.WorkflowInfo, error) {
	return tell[admin.WorkflowInfo](ctx, c, "plan_approve", req)
}

// Policy implements admin.API.
func (c *Client) Policy(ctx context.Context) (*admin.PolicyInfo, error) {
	return ask[*admin.PolicyInfo](ctx, c, "policy", nil)
}

// SetPolicy implements admin.API.
func (c *Client) SetPolicy(ctx context.Context, req admin.PolicyRequest) (*admin.PolicyInfo, error) {
	return tell[admin.PolicyInfo](ctx, c, "policy_set", req)
}

// Pause implements admin.API.
func (c *Client) Pause(ctx context.Context, req admin.WorkflowRequest) (*admin.WorkflowInfo, error) {
	return tell[admin.WorkflowInfo](ctx, c, "pause", req)
}

// Resume implements admin.API.
func (c *Client) Resume(ctx context.Context, req admin.WorkflowRequest) (*admin.WorkflowInfo, error) {
	return tell[admin.WorkflowInfo](ctx, c, "resume", req)
}

// Cancel implements admin.API.
func (c *Client) Cancel(ctx context.Context, req admin.WorkflowRequest) (*admin.WorkflowInfo, error) {
	return tell[admin.WorkflowInfo](ctx, c, "cancel", req)
}

// Reverse implements admin.API.
func (c *Client) Reverse(ctx context.Context, req admin.WorkflowRequest) (*admin.WorkflowInfo, error) {
	return tell[admin.WorkflowInfo](ctx, c, "reverse", req)
}

// Complete implements admin.API.
func (c *Client) Complete(ctx context.Context, req admin.WorkflowRequest) (*admin.WorkflowInfo, error) {
	return tell[admin.WorkflowInfo](ctx, c, "complete", req)
}

// Verify implements admin.API.
func (c *Client) Verify(ctx context.Context, req admin.VerifyRequest) ([]admin.VerifyResult, error) {
	var out []admin.VerifyResult
	err := c.post(ctx, "verify", req, &out)
	return out, err
}

// VerifyPieces implements admin.API.
func (c *Client) VerifyPieces(ctx context.Context, req admin.VerifyRequest) (*admin.VerifyProgress, error) {
	return tell[admin.VerifyProgress](ctx, c, "verify_pieces", req)
}
