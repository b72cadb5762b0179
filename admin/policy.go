package admin

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// PolicyRequest changes the policy of making the cluster even: what is nil stays as it is.
type PolicyRequest struct {
	Meta
	// Mode is manual (the default: nothing by itself), propose (plans are made, and wait for
	// somebody who approves them) or auto (plans are made and carried out).
	Mode     *string `json:"mode,omitempty"`
	Keyspace *string `json:"keyspace,omitempty"` // "": all
	// Measure is what is to be even: bytes, rows, load (statements) or both.
	Measure   *string  `json:"measure,omitempty"`
	MinSkew   *float64 `json:"min_skew,omitempty"`  // from which on something is done
	Tolerance *float64 `json:"tolerance,omitempty"` // what a plan leaves
	// SplitBytes and SplitLoad are what ranges are split above; they are merged below a
	// quarter of that. AloneLoad is above which a key is placed by itself. 0: never.
	SplitBytes *int64   `json:"split_bytes,omitempty"`
	SplitLoad  *float64 `json:"split_load,omitempty"`
	AloneLoad  *float64 `json:"alone_load,omitempty"`
	// Every is how often the cluster is measured, Hold for how long something must be amiss
	// before it is acted on, Cool how long after a plan nothing is done: such as 10m.
	Every *string `json:"every,omitempty"`
	Hold  *string `json:"hold,omitempty"`
	Cool  *string `json:"cool,omitempty"`
	// AtOnce bounds the moves at a time, BytesPerDay what they copy in a day, BytesPerSecond
	// each of them; 0: no bound.
	AtOnce         *int    `json:"at_once,omitempty"`
	BytesPerDay    *int64  `json:"bytes_per_day,omitempty"`
	BytesPerSecond *int64  `json:"bytes_per_second,omitempty"`
	Window         *string `json:"window,omitempty"` // see MoveOptions; "": always
}

// PolicyInfo is the policy in force, and what the leader found by it.
type PolicyInfo struct {
	Policy workflow.Policy `json:"policy"`
	// Note says what the last look found, At when that was; nil: never.
	Note string     `json:"note,omitempty"`
	At   *time.Time `json:"at,omitempty"`
	// Plan is the last plan that the policy began, MovedToday what its plans have moved since
	// midnight UTC, bytes.
	Plan       string       `json:"plan,omitempty"`
	MovedToday int64        `json:"moved_today"`
	History    []PolicyLine `json:"history"` // the newest first
}

// PolicyLine is a change of the policy.
type PolicyLine struct {
	At     time.Time       `json:"at"`
	By     string          `json:"by"`
	Why    string          `json:"why,omitempty"`
	Policy workflow.Policy `json:"policy"`
}

// Policy tells the policy, what its last look found, and its history.
func (o *workflows) Policy(ctx context.Context) (*PolicyInfo, error) {
	all, _, err := coordinator.LoadPolicies(ctx, o.opts.Directory)
	if err != nil {
		return nil, directoryError(err)
	}
	return o.policyInfo(ctx, &all)
}

func (o *workflows) policyInfo(ctx context.Context, all *workflow.Policies) (*PolicyInfo, error) {
	s, err := coordinator.LoadPolicyState(ctx, o.opts.Directory)
	if err != nil {
		return nil, directoryError(err)
	}
	s = s.Roll(time.Now().UnixMilli())
	info := &PolicyInfo{Policy: all.Now(), Note: s.Note, Plan: s.Plan, MovedToday: s.Moved, History: []PolicyLine{}}
	if s.At > 0 {
		at := time.UnixMilli(s.At).UTC()
		info.At = &at
	}
	for i := len(all.History) - 1; i >= 0; i-- {
		c := &all.History[i]
		info.History = append(info.History, PolicyLine{At: time.UnixMilli(c.At).UTC(), By: c.By, Why: c.Why, Policy: c.Policy})
	}
	return info, nil
}

// policyTries bounds the attempts to change a policy that others change too.
const policyTries = 5

// SetPolicy changes the policy; the leader acts on it within seconds. Errors: 22023 for what
// makes no sense, 42704 for an unknown keyspace.
func (o *workflows) SetPolicy(ctx context.Context, req PolicyRequest) (*PolicyInfo, error) {
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	for range policyTries {
		all, revision, err := coordinator.LoadPolicies(ctx, o.opts.Directory)
		if err != nil {
			return nil, directoryError(err)
		}
		p := all.Now()
		if err := req.apply(&p); err != nil {
			return nil, err
		}
		if _, ok := cur.Keyspace(p.Keyspace); !ok && p.Keyspace != "" {
			return nil, noKeyspace(p.Keyspace)
		}
		all.Add(workflow.PolicyChange{At: time.Now().UnixMilli(), By: req.by(), Why: req.Why, Policy: p})
		if req.DryRun {
			return o.policyInfo(ctx, &all)
		}
		b, err := json.Marshal(all)
		if err != nil {
			return nil, err
		}
		_, err = o.opts.Directory.PutRecord(ctx, workflow.PolicyRecord, b, revision)
		if errors.Is(err, shardmap.ErrConflict) {
			continue
		}
		if err != nil {
			return nil, directoryError(err)
		}
		o.opts.Log.Info("policy changed", "mode", p.Mode, "by", req.by())
		return o.policyInfo(ctx, &all)
	}
	return nil, sqlstate.New(sqlstate.SerializationFailure, "the policy changes too often").WithHint("try again")
}

func (req *PolicyRequest) apply(p *workflow.Policy) error {
	if req.Mode != nil {
		p.Mode = workflow.Mode(*req.Mode)
	}
	set(&p.Keyspace, req.Keyspace)
	set(&p.By, req.Measure)
	set(&p.MinSkew, req.MinSkew)
	set(&p.Tolerance, req.Tolerance)
	set(&p.SplitBytes, req.SplitBytes)
	set(&p.SplitLoad, req.SplitLoad)
	set(&p.AloneLoad, req.AloneLoad)
	set(&p.AtOnce, req.AtOnce)
	set(&p.BytesPerDay, req.BytesPerDay)
	set(&p.BytesPerSecond, req.BytesPerSecond)
	set(&p.Window, req.Window)
	for _, d := range []struct {
		name string
		text *string
		into *int64
	}{{"every", req.Every, &p.EverySeconds}, {"hold", req.Hold, &p.HoldSeconds}, {"cool", req.Cool, &p.CoolSeconds}} {
		if d.text == nil {
			continue
		}
		t, err := time.ParseDuration(*d.text)
		if err != nil {
			return sqlstate.New(sqlstate.InvalidParameterValue, "%s must be a time such as 10m, not %q", d.name, *d.text)
		}
		*d.into = int64(t / time.Second)
	}
	return p.Check()
}

func set[T any](into, value *T) {
	if value != nil {
		*into = *value
	}
}
