package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
	"github.com/cleavedb/cleave/workflow"
)

// policyLook is how often the leader looks whether the policy was changed.
const policyLook = time.Second

// PolicyBy is who plans of the policy are by.
const PolicyBy = "policy"

// LoadPolicies reads the policy and its history; none is the default.
func LoadPolicies(ctx context.Context, records shardmap.Records) (p workflow.Policies, revision uint64, err error) {
	r, err := records.Record(ctx, workflow.PolicyRecord)
	if errors.Is(err, shardmap.ErrNotFound) {
		return p, 0, nil
	}
	if err != nil {
		return p, 0, err
	}
	return p, r.Revision, getRecord(ctx, records, workflow.PolicyRecord, &p)
}

// LoadPolicyState reads what the leader remembers of the policy.
func LoadPolicyState(ctx context.Context, records shardmap.Records) (s workflow.PolicyState, err error) {
	if err = getRecord(ctx, records, workflow.PolicyStateRecord, &s); errors.Is(err, shardmap.ErrNotFound) {
		err = nil
	}
	return s, err
}

// policy does what the policy says, until ctx ends.
func (t *term) policy(ctx context.Context) {
	var looked time.Time
	var revision uint64
	for ; ctx.Err() == nil; pause(ctx, policyLook) {
		all, rev, err := LoadPolicies(ctx, t.records)
		if err != nil {
			continue // the directory is not there: others say so
		}
		p := all.Now()
		if p.Mode == workflow.Manual {
			revision = rev
			continue
		}
		if rev == revision && time.Since(looked) < time.Duration(p.EverySeconds)*time.Second {
			continue
		}
		looked, revision = time.Now(), rev
		if err := t.lookAround(ctx, &p); err != nil && ctx.Err() == nil {
			t.c.log.Warn("the policy cannot look at the cluster; nothing is done", telemetry.KeyError, err)
			t.remember(ctx, func(s *workflow.PolicyState) {
				// A shard that does not answer is no reason to do something, nor to count on.
				s.Since, s.At, s.Note = 0, time.Now().UnixMilli(), "nothing is done: "+sqlstate.As(err).Message
			})
		}
	}
}

// remember changes what is remembered; if that fails the next look does it.
func (t *term) remember(ctx context.Context, change func(*workflow.PolicyState)) {
	s, err := LoadPolicyState(ctx, t.records)
	if err == nil {
		change(&s)
		err = putRecord(ctx, t.records, workflow.PolicyStateRecord, s)
	}
	if err != nil && ctx.Err() == nil {
		t.c.log.Debug("what the policy found was not stored", telemetry.KeyError, err)
	}
}

// lookAround measures the cluster and begins a plan if the policy wants one.
func (t *term) lookAround(ctx context.Context, p *workflow.Policy) error {
	s, err := LoadPolicyState(ctx, t.records)
	if err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	s = s.Roll(now)
	look := workflow.Look{}
	if look.Busy, err = t.busy(ctx, &s, now); err != nil {
		return err
	}
	if look.Busy == "" {
		snap, err := t.c.opts.Directory.Load(ctx)
		if err != nil {
			return err
		}
		w := &parent{t: t}
		if look.Plan, err = w.balance(ctx, snap, p.Keyspace, p.Options(s.Moved)); err != nil {
			return err
		}
	}
	next, begin := p.Decide(s, look, now)
	if begin {
		next.Plan, next.Ended, next.Since = "policy-"+time.UnixMilli(now).UTC().Format("20060102-150405"), 0, 0
	}
	// First what is remembered: after a crash in between a plan is missing, not made twice.
	if err := putRecord(ctx, t.records, workflow.PolicyStateRecord, next); err != nil {
		return err
	}
	if !begin {
		return nil
	}
	o := p.Options(s.Moved)
	spec := workflow.Spec{ID: next.Plan, Kind: workflow.Rebalance, Keyspace: p.Keyspace, By: PolicyBy, Why: next.Note, Balance: &o, Approved: p.Mode == workflow.Auto,
		Options: workflow.Options{KeepMS: -1, BytesPerSecond: p.BytesPerSecond, Window: p.Window}.WithDefaults()}
	w := workflow.New(spec, now)
	b, err := w.Encode()
	if err != nil {
		return err
	}
	if _, err := t.records.PutRecord(ctx, workflow.RecordPrefix+spec.ID, b, 0); err != nil {
		return err
	}
	t.c.log.Info("the policy makes a plan", "workflow", spec.ID, "mode", p.Mode, "why", next.Note)
	t.again()
	return nil
}

// busy says which workflow the policy has to wait for, "" for none, and notes in s that its own has ended.
func (t *term) busy(ctx context.Context, s *workflow.PolicyState, now int64) (busy string, err error) {
	for after := ""; ; {
		page, err := t.records.Records(ctx, workflow.RecordPrefix, after, 100)
		if err != nil {
			return "", err
		}
		for _, r := range page {
			after = r.Key
			w, err := workflow.Decode(r.Value)
			if err != nil {
				return "", fmt.Errorf("the record %s: %w", r.Key, err)
			}
			if w.Spec.ID == s.Plan && w.Step.Ended() && s.Ended == 0 {
				s.Ended = now
				s.Moved += w.Bytes
				continue
			}
			// A move that can be reversed is no work, but its range cannot move.
			switch {
			case w.Step.Ended(), w.Step == workflow.Opened:
			case w.Step == workflow.Proposed:
				busy = "plan " + w.Spec.ID + " waits for approval: cleave plan approve " + w.Spec.ID + ", or cleave plan cancel " + w.Spec.ID
			case busy == "":
				busy = string(w.Spec.Kind) + " " + w.Spec.ID + " is under way"
			}
		}
		if len(page) < 100 {
			return busy, nil
		}
	}
}

// dropHeat removes what members that are gone have told of their load.
func (t *term) dropHeat(ctx context.Context) error {
	snap, err := t.c.opts.Directory.Load(ctx)
	if err != nil {
		return err
	}
	h, err := shardmap.ReadHeat(ctx, t.c.opts.Directory, snap)
	if err != nil {
		return err
	}
	for _, r := range h.Left {
		if err := t.records.DeleteRecord(ctx, r.Key, r.Revision); err != nil && !errors.Is(err, shardmap.ErrConflict) && !errors.Is(err, shardmap.ErrNotFound) {
			return err
		}
	}
	return nil
}
