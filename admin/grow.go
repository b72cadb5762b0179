package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/crashpoint"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// GrowRequest takes a cluster to other shards: a laptop's to servers.
type GrowRequest struct {
	Meta
	// To are the shards that get everything; those that are not in the map are added.
	To []BootstrapShard
	// Complete completes the moves and removes the shards that have nothing any more. Else that is left to a second call.
	Complete bool
	MoveOptions
}

// growLook is how often Grow looks at the workflows that it waits for.
const growLook = 300 * time.Millisecond

// Grow carries everything to the given shards while statements go on: it adds them, moves ranges, values and pins,
// makes the first of them the default shard, and with Complete removes the others. say is told each step. Each of them is one that can be
// run by itself, and is left out when there is nothing to do: run again after a failure, Grow goes on where it stopped.
//
// Errors: 22023 for a list that cannot be, and those of AddShard, Spread, Drain, MoveDefault, Complete and RemoveShard.
func Grow(ctx context.Context, a API, req GrowRequest, say func(format string, args ...any)) error {
	if len(req.To) == 0 {
		return sqlstate.New(sqlstate.InvalidParameterValue, "no shard is named that is to get everything")
	}
	if req.Keep == "" {
		req.Keep = "24h"
	}
	told := 0
	tell := say
	say = func(format string, args ...any) {
		tell(format, args...)
		told++
		crashpoint.At(ctx, func() string { return fmt.Sprintf("grow|%d", told) })
	}
	shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	first := ""
	var names, old []string
	for _, s := range req.To {
		if slices.Contains(names, s.Name) {
			return sqlstate.New(sqlstate.InvalidParameterValue, "shard %s is named twice", s.Name)
		}
		names = append(names, s.Name)
	}
	for _, s := range shards {
		if s.Default {
			first = s.Name
		}
		if !slices.Contains(names, s.Name) {
			old = append(old, s.Name)
		}
	}
	for _, s := range req.To {
		if slices.ContainsFunc(shards, func(o ShardInfo) bool { return o.Name == s.Name }) {
			continue
		}
		if s.URL == "" {
			return sqlstate.New(sqlstate.InvalidParameterValue, "shard %s is not in the map, and has no URL", s.Name).WithHint("name it as NAME=URL")
		}
		say("add shard %s", s.Name)
		if res, err := a.AddShard(ctx, AddShardRequest{Meta: req.Meta, Name: s.Name, URL: s.URL, Labels: s.Labels, Weight: s.Weight}); err != nil {
			return err
		} else if req.DryRun {
			for _, line := range res.Plan {
				say("  %s", line)
			}
		}
	}
	if req.DryRun {
		say("move everything sharded from %s to %s", strings.Join(old, ", "), strings.Join(names, ", "))
		if first != names[0] {
			say("make %s the default shard, with the tables that are not sharded", names[0])
		}
		say("complete the moves, and remove %s", strings.Join(old, ", "))
		return nil
	}
	if err := others(ctx, a, say); err != nil {
		return err
	}
	if len(old) > 0 {
		say("move ranges to %s", strings.Join(names, ", "))
		res, err := a.Spread(ctx, SpreadRequest{Meta: req.Meta, Shards: names, MoveOptions: req.MoveOptions})
		if err := ended(ctx, a, res, err, say); err != nil {
			return err
		}
	}
	for i, name := range old {
		// What a spread leaves where somebody put it.
		res, err := a.Drain(ctx, DrainRequest{Meta: req.Meta, Shard: name, To: names[i%len(names)], MoveOptions: req.MoveOptions})
		if err := ended(ctx, a, res, err, say); err != nil {
			return err
		}
	}
	// Also if it is that already: what a crash has left closed is opened.
	say("%s becomes the default shard", names[0])
	if err := patiently(ctx, say, func() error {
		_, err := a.MoveDefault(ctx, MoveDefaultRequest{Meta: req.Meta, To: names[0]})
		return err
	}); err != nil {
		return err
	}
	if !req.Complete {
		say("everything is on %s; the moves can still be reversed", strings.Join(names, ", "))
		return nil
	}
	moves, err := a.Moves(ctx, "")
	if err != nil {
		return err
	}
	for _, w := range moves {
		if w.Step != "opened" || !slices.Contains(old, w.From) && !slices.Contains(old, w.To) {
			continue
		}
		say("complete %s", w.ID)
		if _, err := a.Complete(ctx, WorkflowRequest{Meta: req.Meta, ID: w.ID}); err != nil {
			return err
		}
		if err := awaitEnd(ctx, a, w.ID); err != nil {
			return err
		}
	}
	for _, name := range old {
		say("remove shard %s", name)
		if _, err := a.RemoveShard(ctx, RemoveShardRequest{Meta: req.Meta, Name: name}); err != nil {
			return err
		}
	}
	say("the cluster is on %s", strings.Join(names, ", "))
	return nil
}

// others waits for the spreads and drains that are at work: those of a call that died go on by themselves, and no other one is
// begun beside them. How they end is their matter: what they leave undone is done now.
func others(ctx context.Context, a API, say func(string, ...any)) error {
	list, err := a.Moves(ctx, "")
	if err != nil {
		return err
	}
	for _, w := range list {
		if w.Ended || w.Kind != string(workflow.Spread) && w.Kind != string(workflow.Drain) {
			continue
		}
		say("wait for %s %s, which is at work: see cleave moves %s", w.Kind, w.ID, w.ID)
		if err := awaitEnd(ctx, a, w.ID); err != nil && sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
			return err
		}
	}
	return nil
}

// ended waits until the moves of a workflow that was begun have their new owners.
func ended(ctx context.Context, a API, res *WorkflowResult, err error, say func(string, ...any)) error {
	if err != nil || res.Workflow == nil {
		return err
	}
	say("  %s: see cleave moves", res.Workflow.ID)
	return awaitEnd(ctx, a, res.Workflow.ID)
}

func awaitEnd(ctx context.Context, a API, id string) error {
	tick := time.NewTicker(growLook)
	defer tick.Stop()
	for {
		list, err := a.Moves(ctx, id)
		if err != nil {
			return err
		}
		w := &list[0]
		switch {
		case w.Step == "failed" || w.Step == "cancelled" || w.Step == "rolled back":
			return sqlstate.New(sqlstate.ObjectNotInState, "%s %s is %s: %s", w.Kind, id, w.Step, w.Error).WithHint("see: cleave moves %s; then run it again", id)
		case w.Ended:
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// patiently runs again what others were in the way of.
func patiently(ctx context.Context, say func(string, ...any), f func() error) error {
	const tries = 10
	for n := 1; ; n++ {
		err := f()
		code := sqlstate.CodeOf(err)
		if code != sqlstate.LockNotAvailable && code != sqlstate.SerializationFailure || n == tries {
			return err
		}
		say("  again: %s", sqlstate.As(err).Message)
		select {
		case <-time.After(growLook * time.Duration(n)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
