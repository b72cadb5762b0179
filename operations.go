package cleave

import (
	"context"

	"github.com/cleavedb/cleave/admin"
)

// operations are those of admin, as a program expects them: it is named in the
// history, and what it changed counts for its next statement.
type operations struct {
	admin.API
	c *Cluster
}

// change carries out a change.
func (o operations) change(ctx context.Context, meta *admin.Meta, do func() (*admin.Result, error)) (*admin.Result, error) {
	if meta.By == "" {
		meta.By = o.c.options.actor()
	}
	res, err := do()
	if err == nil && res.Done {
		// It is done: that this program hears of it late is no reason to fail.
		_ = o.c.rooms.Executor.AwaitVersion(ctx, res.Version)
	}
	return res, err
}

// DropKeyspace implements admin.API.
func (o operations) DropKeyspace(ctx context.Context, req admin.DropKeyspaceRequest) (*admin.Result, error) {
	return o.change(ctx, &req.Meta, func() (*admin.Result, error) { return o.API.DropKeyspace(ctx, req) })
}

// CreateKeyspace implements admin.API.
func (o operations) CreateKeyspace(ctx context.Context, req admin.CreateKeyspaceRequest) (*admin.Result, error) {
	return o.change(ctx, &req.Meta, func() (*admin.Result, error) { return o.API.CreateKeyspace(ctx, req) })
}

// Distribute implements admin.API.
func (o operations) Distribute(ctx context.Context, req admin.DistributeRequest) (*admin.Result, error) {
	return o.change(ctx, &req.Meta, func() (*admin.Result, error) { return o.API.Distribute(ctx, req) })
}

// MoveDefault implements admin.API.
func (o operations) MoveDefault(ctx context.Context, req admin.MoveDefaultRequest) (*admin.Result, error) {
	return o.change(ctx, &req.Meta, func() (*admin.Result, error) { return o.API.MoveDefault(ctx, req) })
}

// Declare implements admin.API.
func (o operations) Declare(ctx context.Context, req admin.DeclareRequest) (*admin.Result, error) {
	return o.change(ctx, &req.Meta, func() (*admin.Result, error) { return o.API.Declare(ctx, req) })
}

// Pin implements admin.API.
func (o operations) Pin(ctx context.Context, req admin.PinRequest) (*admin.Result, error) {
	return o.change(ctx, &req.Meta, func() (*admin.Result, error) { return o.API.Pin(ctx, req) })
}

// Unpin implements admin.API.
func (o operations) Unpin(ctx context.Context, req admin.UnpinRequest) (*admin.Result, error) {
	return o.change(ctx, &req.Meta, func() (*admin.Result, error) { return o.API.Unpin(ctx, req) })
}

// RemoveShard implements admin.API.
func (o operations) RemoveShard(ctx context.Context, req admin.RemoveShardRequest) (*admin.Result, error) {
	return o.change(ctx, &req.Meta, func() (*admin.Result, error) { return o.API.RemoveShard(ctx, req) })
}

// AddReplica implements admin.API.
func (o operations) AddReplica(ctx context.Context, req admin.ReplicaRequest) (*admin.Result, error) {
	return o.change(ctx, &req.Meta, func() (*admin.Result, error) { return o.API.AddReplica(ctx, req) })
}

// RemoveReplica implements admin.API.
func (o operations) RemoveReplica(ctx context.Context, req admin.ReplicaRequest) (*admin.Result, error) {
	return o.change(ctx, &req.Meta, func() (*admin.Result, error) { return o.API.RemoveReplica(ctx, req) })
}

// AddShard implements admin.API.
func (o operations) AddShard(ctx context.Context, req admin.AddShardRequest) (res *admin.AddShardResult, err error) {
	_, err = o.change(ctx, &req.Meta, func() (*admin.Result, error) {
		if res, err = o.API.AddShard(ctx, req); res == nil {
			return nil, err
		}
		return &res.Result, err
	})
	return res, err
}
