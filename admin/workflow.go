package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// MoveRequest asks for a part of a keyspace to be moved to a shard, with its rows,
// while it is in use. The part is Range, or Low and High, or Key.
type MoveRequest struct {
	Meta
	// ID names the workflow; "": one is made. Asked for twice with the same ID, it is done once.
	ID       string `json:"id,omitempty"`
	Keyspace string `json:"keyspace"`
	// Range is LOW:HIGH, or LOW..HIGH where the bounds have colons; an empty bound is none,
	// several columns are separated by commas.
	Range string   `json:"range,omitempty"`
	Low   []string `json:"low,omitempty"`
	High  []string `json:"high,omitempty"`
	Key   []string `json:"key,omitempty"`
	To    string   `json:"to"`
	MoveOptions
}

// MoveOptions are how rows are moved.
type MoveOptions struct {
	// Keep is for how long a move can be reversed after its cutover: "24h" (the default), "0" for not at all.
	Keep string `json:"keep,omitempty"`
	// Unverified leaves the comparison of both copies before the cutover out.
	Unverified     bool  `json:"unverified,omitempty"`
	RowsPerSecond  int64 `json:"rows_per_second,omitempty"`  // 0: no bound
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"` // 0: no bound
	// MaxLatency is how long a small write may take on either shard ("20ms"), MaxLag and MaxLagBytes how far a
	// replica of either may be behind ("10s", the default, and in bytes), before copy and clean-up slow down; "off" and -1: no bound.
	// Without MaxLatency they slow down by what they add to the latency of a shard that others use.
	MaxLatency  string `json:"max_latency,omitempty"`
	MaxLag      string `json:"max_lag,omitempty"`
	MaxLagBytes int64  `json:"max_lag_bytes,omitempty"`
	// Window is when rows are copied, compared and deleted and a cutover begins, such as
	// "Mon-Fri 22:00-06:00 Europe/Zurich; Sat,Sun 00:00-24:00 Europe/Zurich"; "": always. See workflow.ParseWindows.
	Window string `json:"window,omitempty"`
}

// SplitRequest asks for a range to be cut in two: at At, or in halves of Range.
type SplitRequest struct {
	Meta
	ID       string   `json:"id,omitempty"`
	Keyspace string   `json:"keyspace"`
	At       []string `json:"at,omitempty"`
	Range    string   `json:"range,omitempty"`
	// Half says what both halves are to have alike: "positions" (the default in a hash
	// keyspace), "rows" (the default else) or "load".
	Half string `json:"half,omitempty"`
}

// MergeRequest asks for the two ranges beside a bound to become one. If they are on
// different shards, one is moved first: to To, or to the lower one's shard.
type MergeRequest struct {
	Meta
	ID       string   `json:"id,omitempty"`
	Keyspace string   `json:"keyspace"`
	At       []string `json:"at"`
	To       string   `json:"to,omitempty"`
	MoveOptions
}

// DrainRequest asks for everything sharded to be moved off a shard: to To, or to all
// others by their weights.
type DrainRequest struct {
	Meta
	ID    string `json:"id,omitempty"`
	Shard string `json:"shard"`
	To    string `json:"to,omitempty"`
	// Complete completes earlier moves whose range is to leave the shard. Else the drain waits until the time to reverse
	// them is over. Finish is its name of earlier versions, which is still taken.
	Complete bool `json:"complete,omitempty"`
	Finish   bool `json:"finish,omitempty"`
	MoveOptions
}

func (r *DrainRequest) completes() bool { return r.Complete || r.Finish }

// SpreadRequest asks for an even share of everything on each shard, by weight; moving as
// little as that needs.
type SpreadRequest struct {
	Meta
	ID       string   `json:"id,omitempty"`
	Keyspace string   `json:"keyspace,omitempty"` // "": all
	Shards   []string `json:"shards,omitempty"`   // those that get something; none: all
	MoveOptions
}

// WorkflowRequest is about a workflow that exists.
type WorkflowRequest struct {
	Meta
	ID string `json:"id"`
	// Bounds are those that it goes on by from now on (Resume); nil: as before.
	Bounds *MoveBounds `json:"bounds,omitempty"`
}

// WorkflowResult is a workflow as it was stored, or, with DryRun, what would be done.
type WorkflowResult struct {
	Done bool     `json:"done"` // false with DryRun
	Plan []string `json:"plan"`
	// Refused is, with DryRun, why it would be refused as tables and servers are now.
	Refused  []string      `json:"refused,omitempty"`
	Workflow *WorkflowInfo `json:"workflow,omitempty"`
}

// WorkflowInfo is a workflow and how far it has come.
type WorkflowInfo struct {
	ID       string `json:"id"`
	Kind     string `json:"kind"`
	Keyspace string `json:"keyspace,omitempty"`
	Part     string `json:"part,omitempty"` // printable
	From     string `json:"from,omitempty"`
	To       string `json:"to,omitempty"`
	Parent   string `json:"parent,omitempty"`
	By       string `json:"by"`
	Why      string `json:"why,omitempty"`
	Step     string `json:"step"`
	Ended    bool   `json:"ended"`
	Paused   bool   `json:"paused"`
	Back     bool   `json:"back,omitempty"` // it is being reversed
	Error    string `json:"error,omitempty"`
	BackLost string `json:"back_lost,omitempty"` // why it cannot be reversed
	Doing    string `json:"doing,omitempty"`
	Note     string `json:"note,omitempty"` // why it waits or is slow
	// Rows and Bytes are what this step has done; RowsAll and BytesAll the estimate of
	// the whole, Copied what was copied in the end.
	Rows           int64   `json:"rows"`
	Bytes          int64   `json:"bytes"`
	RowsAll        int64   `json:"rows_all"`
	BytesAll       int64   `json:"bytes_all"`
	Copied         int64   `json:"copied"`
	Changes        int64   `json:"changes"`
	RowsPerSecond  float64 `json:"rows_per_second"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	LagBytes       int64   `json:"lag_bytes"` // -1: not known
	// ETA is for how long a copy, a comparison or the deletion of old rows will go on at this rate, seconds; -1: not known.
	ETA     float64 `json:"eta"`
	Attempt int     `json:"attempt"` // cutovers that did not succeed
	HeldMS  int64   `json:"held_ms"` // how long statements were held in the cutover
	// WaitsForShard is the shard that the clean-up waits for, whose rows are not in use any more; "" if it waits for none.
	WaitsForShard string `json:"waits_for_shard,omitempty"`
	// KeptUntil is until when it can be reversed; RowsUntil is when the rows on the old owner are deleted if it cannot be.
	KeptUntil *time.Time `json:"kept_until,omitempty"`
	RowsUntil *time.Time `json:"rows_until,omitempty"`
	Created   time.Time  `json:"created"`
	Changed   time.Time  `json:"changed"`
	Children  []string   `json:"children,omitempty"`
	// Of a plan: its steps, how many were begun, the skew before and as predicted.
	Steps      int            `json:"steps,omitempty"`
	Begun      int            `json:"begun,omitempty"`
	SkewBefore float64        `json:"skew_before,omitempty"`
	SkewAfter  float64        `json:"skew_after,omitempty"`
	History    []WorkflowLine `json:"history,omitempty"`
	// Plan is, with DryRun, what would be done.
	Plan []string `json:"plan,omitempty"`
}

// WorkflowLine is a line of a workflow's history.
type WorkflowLine struct {
	At   time.Time `json:"at"`
	Step string    `json:"step"`
	What string    `json:"what"`
}

// workflows are the operations that the coordinator carries out: moves, and what is made of them.
type workflows struct {
	*backend
	// pin is Ops.Pin: where a key is to stay on its shard, no move is needed.
	pin func(context.Context, PinRequest) (*Result, error)
}

// Move begins a move. Errors: 42704 for an unknown keyspace or shard, 22023 for a part
// that is none, 55000 if several shards own it or another move is of some of it, 42710
// if the ID is another workflow's.
func (o *workflows) Move(ctx context.Context, req MoveRequest) (*WorkflowResult, error) {
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	spec, err := moveSpec(cur, &req)
	if err != nil {
		return nil, err
	}
	if req.ID != "" {
		if res, err := o.stored(ctx, spec, req.DryRun); res != nil || err != nil {
			return res, err
		}
	}
	if spec.From == spec.To && spec.Part.Key != nil && !spec.WasPinned {
		return o.pinThere(ctx, &req, spec)
	}
	if spec.From == spec.To {
		return &WorkflowResult{Done: !req.DryRun, Plan: []string{spec.Part.Text() + " of " + spec.Keyspace + " is on " + spec.To + " already: nothing to do"}}, nil
	}
	if err := cur.Receives(spec.To); err != nil {
		return nil, err
	}
	if err := free(cur, spec); err != nil {
		return nil, err
	}
	if err := coordinator.Arrives(cur, spec, false); err != nil {
		return nil, err
	}
	plan := []string{
		fmt.Sprintf("copy the rows of %s of keyspace %s from %s to %s while they are in use", spec.Part.Text(), spec.Keyspace, spec.From, spec.To),
		"compare both copies", "hold statements in it for a moment and make " + spec.To + " the owner",
		"replicate changes back, so that it can be reversed; then delete the rows on " + spec.From,
	}
	var refused []string
	if req.DryRun {
		refused = o.refusals(ctx, cur, []workflow.Spec{*spec})
	}
	return o.begin(ctx, *spec, req.DryRun, append(refused, plan...), refused...)
}

// refusals says, for the plans of moves, why they would be refused as tables and servers are now.
func (o *workflows) refusals(ctx context.Context, cur *shardmap.Snapshot, moves []workflow.Spec) (lines []string) {
	looked := map[string]bool{}
	for i := range moves {
		for _, name := range []string{moves[i].From, moves[i].To} {
			sh, ok := cur.Shard(name)
			if id := moves[i].Keyspace + " " + name; !ok || looked[id] {
				continue
			} else {
				looked[id] = true
			}
			m, err := o.mover(cur, sh)
			if err == nil {
				err = coordinator.Obstacles(ctx, cur, moves[i].Keyspace, name, m)
			}
			if err == nil {
				continue
			}
			e := sqlstate.As(err)
			line := fmt.Sprintf("it would be refused now: shard %s: %s", name, e.Message)
			if e.Hint != "" {
				line += "; " + e.Hint
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// pinThere pins a key to the shard that it is on. What was asked for by an id is found by it.
func (o *workflows) pinThere(ctx context.Context, req *MoveRequest, spec *workflow.Spec) (*WorkflowResult, error) {
	text := spec.Part.Text() + " of " + spec.Keyspace + " is on " + spec.To + " already: it is pinned there"
	pinned, err := o.pin(ctx, PinRequest{Meta: req.Meta, Keyspace: req.Keyspace, Key: req.Key, Shard: req.To})
	if err != nil || req.DryRun || req.ID == "" {
		return &WorkflowResult{Done: err == nil && pinned.Done, Plan: []string{text}}, err
	}
	s := workflow.Nothing(*spec, time.Now().UnixMilli(), text)
	b, err := s.Encode()
	if err != nil {
		return nil, err
	}
	if _, err := o.opts.Directory.PutRecord(ctx, workflow.RecordPrefix+spec.ID, b, 0); err != nil && !errors.Is(err, shardmap.ErrConflict) {
		return nil, directoryError(err)
	}
	info := o.info(ctx, &s, true)
	return &WorkflowResult{Done: true, Plan: []string{text}, Workflow: &info}, nil
}

// moveSpec turns a request into what is stored.
func moveSpec(cur *shardmap.Snapshot, req *MoveRequest) (*workflow.Spec, error) {
	spec := &workflow.Spec{ID: req.ID, Kind: workflow.Move, Keyspace: req.Keyspace, To: req.To, By: req.by(), Why: req.Why}
	var err error
	if spec.Options, err = req.options(workflow.DefaultKeepMS); err != nil {
		return nil, err
	}
	ix, ok := cur.Keyspace(req.Keyspace)
	if !ok {
		return nil, noKeyspace(req.Keyspace)
	}
	if _, ok := cur.Shard(req.To); !ok {
		return nil, noShard(req.To)
	}
	switch {
	case len(req.Key) > 0 && (req.Range != "" || req.Low != nil || req.High != nil):
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "give a range or a key, not both")
	case len(req.Key) > 0:
		_, key, err := parseKey(cur, req.Keyspace, req.Key)
		if err != nil {
			return nil, err
		}
		spec.Part = shardmap.Part{Key: key.Texts()}
		a, err := ix.Locate(key)
		spec.WasPinned = err == nil && a.Pinned
	case req.Range != "":
		if spec.Part, err = ParseRange(req.Range); err != nil {
			return nil, err
		}
	case req.Low != nil || req.High != nil:
		spec.Part = shardmap.Part{Low: req.Low, High: req.High}
	default:
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "what is to be moved?").
			WithHint("give a range (LOW:HIGH, an empty bound is none) or a key")
	}
	spec.Part = canonical(cur, req.Keyspace, spec.Part)
	spec.From, err = cur.OwnerOf(req.Keyspace, spec.Part)
	return spec, err
}

// free refuses a part of which something is in transit already.
func free(cur *shardmap.Snapshot, spec *workflow.Spec) error {
	next := cur.State().Clone()
	for _, bound := range [][]string{spec.Part.Low, spec.Part.High} {
		if bound != nil {
			if err := next.Split(spec.Keyspace, bound); err != nil {
				return err
			}
		}
	}
	id := spec.ID
	if id == "" {
		id = "new"
	}
	next.PutTransit(spec.Keyspace, shardmap.Transit{ID: id, Part: spec.Part.Clone(), From: spec.From, To: spec.To})
	_, err := shardmap.Advance(cur, shardmap.Change{Expect: cur.Version(), By: spec.By, Op: "move_begin"}, next)
	return err
}

// ParseRange reads LOW:HIGH or LOW..HIGH. An empty bound is none; several columns are
// separated by commas.
func ParseRange(text string) (shardmap.Part, error) {
	low, high, ok := strings.Cut(text, "..")
	if !ok && strings.Count(text, ":") == 1 {
		low, high, ok = strings.Cut(text, ":")
	}
	if !ok {
		return shardmap.Part{}, sqlstate.New(sqlstate.InvalidParameterValue, "%q is no range", text).
			WithHint("write LOW:HIGH, or LOW..HIGH where a bound has a colon; leave a bound out for none")
	}
	bound := func(s string) []string {
		if s == "" {
			return nil
		}
		return strings.Split(s, ",")
	}
	return shardmap.Part{Low: bound(low), High: bound(high)}, nil
}

func (m *MoveOptions) options(keepMS int64) (workflow.Options, error) {
	o := workflow.Options{KeepMS: keepMS, Unverified: m.Unverified, RowsPerSecond: m.RowsPerSecond, BytesPerSecond: m.BytesPerSecond}
	if m.Keep != "" {
		d, err := time.ParseDuration(m.Keep)
		if m.Keep == "0" {
			d, err = 0, nil
		}
		if err != nil || d < 0 {
			return o, sqlstate.New(sqlstate.InvalidParameterValue, "%q is no time during which a move can be reversed", m.Keep).WithHint("use 24h, 30m or 0")
		}
		if o.KeepMS = d.Milliseconds(); o.KeepMS == 0 {
			o.KeepMS = -1
		}
	}
	for _, b := range []struct {
		what string
		n    int64
	}{{"rows a second", m.RowsPerSecond}, {"bytes a second", m.BytesPerSecond}} {
		if b.n < 0 {
			return o, sqlstate.New(sqlstate.InvalidParameterValue, "the bound of %s must not be negative: %d", b.what, b.n).WithHint("0 is no bound")
		}
	}
	if m.MaxLagBytes < -1 {
		return o, sqlstate.New(sqlstate.InvalidParameterValue, "the bound of a replica's lag in bytes must not be negative: %d", m.MaxLagBytes).WithHint("0 is no bound")
	}
	for _, b := range []struct {
		what, text string
		into       *int64
	}{{"latency", m.MaxLatency, &o.MaxLatencyMS}, {"lag", m.MaxLag, &o.MaxLagMS}} {
		switch d, err := time.ParseDuration(b.text); {
		case b.text == "":
		case b.text == "off":
			*b.into = -1
		case err != nil || d < time.Millisecond:
			return o, sqlstate.New(sqlstate.InvalidParameterValue, "%q is no bound of a shard's %s", b.text, b.what).WithHint("use 20ms, 10s or off")
		default:
			*b.into = d.Milliseconds()
		}
	}
	o.MaxLagBytes = max(m.MaxLagBytes, -1)
	ws, err := workflow.ParseWindows(m.Window)
	if err != nil {
		return o, err
	}
	o.Window = ws.String()
	return o.WithDefaults(), nil
}

// Split begins a split. Errors: those of Move.
func (o *workflows) Split(ctx context.Context, req SplitRequest) (*WorkflowResult, error) {
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	spec := &workflow.Spec{ID: req.ID, Kind: workflow.Split, Keyspace: req.Keyspace, By: req.by(), Why: req.Why}
	spec.At = canonical(cur, req.Keyspace, shardmap.Part{Low: req.At}).Low
	if len(req.At) == 0 {
		if spec.Part, err = ParseRange(req.Range); err != nil {
			return nil, err
		}
		spec.Part, spec.Half = canonical(cur, req.Keyspace, spec.Part), coordinator.SplitPointBy(cur, req.Keyspace, req.Half)
	} else if req.Half != "" {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "a range is cut at a key or in halves, not both").WithHint("leave half out, or at")
	}
	if req.ID != "" {
		if res, err := o.stored(ctx, spec, req.DryRun); res != nil || err != nil {
			return res, err
		}
	}
	if len(req.At) == 0 {
		half := coordinator.SplitPoint{Snapshot: cur, Keyspace: req.Keyspace, Part: spec.Part, By: req.Half, Connect: o.connect}
		if req.Half == coordinator.SplitByLoad {
			if half.Heat, err = shardmap.ReadHeat(ctx, o.opts.Directory, cur); err != nil {
				return nil, directoryError(err)
			}
		}
		if spec.At, err = half.Bound(ctx); err != nil {
			return nil, err
		}
	}
	next := cur.State().Clone()
	if err := next.Split(req.Keyspace, spec.At); err != nil {
		return nil, err
	}
	if _, err := shardmap.Advance(cur, shardmap.Change{Expect: cur.Version(), By: spec.By, Op: "split"}, next); err != nil {
		return nil, err
	}
	return o.begin(ctx, *spec, req.DryRun, []string{fmt.Sprintf("cut a range of keyspace %s at %s; no row is moved", req.Keyspace, strings.Join(spec.At, ","))})
}

// Merge begins a merge. Errors: those of Move, and 42704 if there is no such bound.
func (o *workflows) Merge(ctx context.Context, req MergeRequest) (*WorkflowResult, error) {
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	spec := &workflow.Spec{ID: req.ID, Kind: workflow.Merge, Keyspace: req.Keyspace, To: req.To, By: req.by(), Why: req.Why}
	spec.At = canonical(cur, req.Keyspace, shardmap.Part{Low: req.At}).Low
	if spec.Options, err = req.options(-1); err != nil {
		return nil, err
	}
	if req.ID != "" {
		if res, err := o.stored(ctx, spec, req.DryRun); res != nil || err != nil {
			return res, err
		}
	}
	lower, _, err := coordinator.Neighbours(cur, req.Keyspace, req.At)
	if err != nil {
		return nil, err
	}
	if lower == nil {
		return nil, sqlstate.New(sqlstate.UndefinedObject, "keyspace %s has no bound at %s", req.Keyspace, strings.Join(req.At, ",")).
			WithHint("see: SELECT * FROM cleave.ranges WHERE keyspace = '%s'", req.Keyspace)
	}
	if req.To != "" {
		if _, ok := cur.Shard(req.To); !ok {
			return nil, noShard(req.To)
		}
	}
	if err := coordinator.Mergeable(cur, spec); err != nil {
		return nil, err
	}
	var plan []string
	moves, err := coordinator.Plan(cur, spec)
	if err != nil {
		return nil, err
	}
	for _, m := range moves {
		plan = append(plan, fmt.Sprintf("move %s from %s to %s", m.Part.Text(), m.From, m.To))
	}
	return o.begin(ctx, *spec, req.DryRun, append(plan, fmt.Sprintf("remove the bound %s of keyspace %s", strings.Join(req.At, ","), req.Keyspace)))
}

// Drain begins to move everything sharded off a shard.
func (o *workflows) Drain(ctx context.Context, req DrainRequest) (*WorkflowResult, error) {
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	spec := &workflow.Spec{ID: req.ID, Kind: workflow.Drain, From: req.Shard, To: req.To, Complete: req.completes(), By: req.by(), Why: req.Why}
	if spec.Options, err = req.options(-1); err != nil {
		return nil, err
	}
	for _, name := range []string{req.Shard, req.To} {
		if _, ok := cur.Shard(name); !ok && name != "" {
			return nil, noShard(name)
		}
	}
	if req.To == req.Shard {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "a shard cannot be drained to itself")
	}
	return o.beginMoves(ctx, cur, spec, req.DryRun)
}

// Spread begins to give each shard its share.
func (o *workflows) Spread(ctx context.Context, req SpreadRequest) (*WorkflowResult, error) {
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	spec := &workflow.Spec{ID: req.ID, Kind: workflow.Spread, Keyspace: req.Keyspace, Shards: req.Shards, By: req.by(), Why: req.Why}
	if spec.Options, err = req.options(-1); err != nil {
		return nil, err
	}
	for _, name := range req.Shards {
		if _, ok := cur.Shard(name); !ok {
			return nil, noShard(name)
		}
	}
	if _, ok := cur.Keyspace(req.Keyspace); !ok && req.Keyspace != "" {
		return nil, noKeyspace(req.Keyspace)
	}
	return o.beginMoves(ctx, cur, spec, req.DryRun)
}

func (o *workflows) beginMoves(ctx context.Context, cur *shardmap.Snapshot, spec *workflow.Spec, dry bool) (*WorkflowResult, error) {
	if spec.ID != "" {
		if res, err := o.stored(ctx, spec, dry); res != nil || err != nil {
			return res, err
		}
	}
	others, err := coordinator.Unended(ctx, o.opts.Directory)
	if err != nil {
		return nil, directoryError(err)
	}
	if err := coordinator.Conflict(spec, others); err != nil {
		return nil, err
	}
	moves, err := coordinator.Plan(cur, spec)
	if err != nil {
		return nil, err
	}
	var refused []string
	if dry {
		refused = o.refusals(ctx, cur, moves)
	}
	plan := append(slices.Clone(refused), waits(cur, spec, moves, others)...)
	for _, m := range moves {
		plan = append(plan, fmt.Sprintf("move %s of %s from %s to %s", m.Part.Text(), m.Keyspace, m.From, m.To))
	}
	if len(moves) == workflow.MaxChildren {
		plan = append(plan, "and more, when these are done")
	}
	if len(moves) == 0 {
		plan = append(plan, "nothing has to be moved")
	}
	return o.begin(ctx, *spec, dry, plan, refused...)
}

// waits lists the moves that a drain or spread waits for before it begins.
func waits(cur *shardmap.Snapshot, spec *workflow.Spec, moves []workflow.Spec, others []workflow.State) (lines []string) {
	for i := range others {
		w := &others[i]
		if w.Spec.Kind != workflow.Move || !slices.ContainsFunc(moves, func(m workflow.Spec) bool {
			return m.Keyspace == w.Spec.Keyspace && cur.Overlap(m.Keyspace, m.Part, w.Spec.Part)
		}) && (spec.Kind != workflow.Drain || w.Target() != spec.From || w.Step == workflow.Opened) {
			continue
		}
		line := fmt.Sprintf("wait for move %s of %s of keyspace %s from %s to %s", w.Spec.ID, w.Spec.Part.Text(), w.Spec.Keyspace, w.Source(), w.Target())
		if w.Step == workflow.Opened && !w.Back {
			line = fmt.Sprintf("wait until move %s of %s of keyspace %s can no longer be reversed (cleave complete %s)", w.Spec.ID, w.Spec.Part.Text(), w.Spec.Keyspace, w.Spec.ID)
			if spec.Complete {
				line = fmt.Sprintf("complete move %s of %s of keyspace %s", w.Spec.ID, w.Spec.Part.Text(), w.Spec.Keyspace)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// begin stores a new workflow.
func (o *workflows) begin(ctx context.Context, spec workflow.Spec, dry bool, plan []string, refused ...string) (*WorkflowResult, error) {
	res := &WorkflowResult{Plan: plan, Refused: refused}
	if dry {
		return res, nil
	}
	if spec.ID == "" {
		spec.ID = string(spec.Kind) + "-" + uuid.NewString()[:8]
	}
	if err := workflow.CheckID(spec.ID); err != nil {
		return nil, err
	}
	if spec.Kind != workflow.Move && len(spec.ID) > 32 {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "the id of a %s has at most 32 bytes, since its moves' ids begin with it", spec.Kind)
	}
	s := workflow.New(spec, time.Now().UnixMilli())
	b, err := s.Encode()
	if err != nil {
		return nil, err
	}
	if _, err := o.opts.Directory.PutRecord(ctx, workflow.RecordPrefix+spec.ID, b, 0); err != nil {
		if errors.Is(err, shardmap.ErrConflict) {
			if res, err := o.stored(ctx, &spec, false); res != nil || err != nil {
				return res, err
			}
		}
		return nil, directoryError(err)
	}
	o.opts.Log.Info("workflow asked for", "workflow", spec.ID, "kind", spec.Kind, "by", spec.By)
	o.kick(ctx)
	info := o.info(ctx, &s, true)
	res.Done, res.Workflow = true, &info
	return res, nil
}

// kick tells the leader. If that fails it looks by itself, a little later.
func (o *workflows) kick(ctx context.Context) {
	if err := coordinator.Kick(ctx, o.opts.Directory); err != nil {
		o.opts.Log.Warn("the coordinator was not told of a workflow; it looks by itself", "error", err)
	}
}

func (o *workflows) one(ctx context.Context, id string) (*WorkflowInfo, error) {
	list, err := o.Moves(ctx, id)
	if err != nil {
		return nil, err
	}
	return &list[0], nil
}

// Moves returns the workflow with an ID and its history, or, with "", all that are kept, the
// newest first. 42704 if there is none.
func (o *workflows) Moves(ctx context.Context, id string) ([]WorkflowInfo, error) {
	if id != "" {
		s, err := o.workflow(ctx, id)
		if err != nil {
			return nil, err
		}
		return []WorkflowInfo{o.info(ctx, s, true)}, nil
	}
	var out []WorkflowInfo
	after := ""
	for {
		page, err := o.opts.Directory.Records(ctx, workflow.RecordPrefix, after, 100)
		if err != nil {
			return nil, directoryError(err)
		}
		for _, r := range page {
			if s, err := workflow.Decode(r.Value); err == nil {
				out = append(out, o.info(ctx, &s, false))
			}
		}
		if len(page) < 100 {
			break
		}
		after = page[len(page)-1].Key
	}
	slices.SortStableFunc(out, func(a, b WorkflowInfo) int { return b.Created.Compare(a.Created) })
	return out, nil
}

// places says which other moves are at work while one waits to begin: only so many are at a time, "" if none is.
func (o *workflows) places(ctx context.Context, s *workflow.State) string {
	all, err := coordinator.Unended(ctx, o.opts.Directory)
	if err != nil {
		return ""
	}
	var at []string
	for i := range all {
		if w := &all[i]; w.Spec.ID != s.Spec.ID && w.Spec.Kind == workflow.Move && !w.Paused && w.Step != workflow.Planned && w.Step != workflow.Opened {
			at = append(at, w.Spec.ID)
		}
	}
	switch {
	case len(at) == 0:
		return ""
	case len(at) > 3:
		at = append(at[:3], fmt.Sprintf("%d more", len(at)-3))
	}
	return "waits for a place, as only so many moves are at work at a time: " + strings.Join(at, ", ")
}

func (o *workflows) info(ctx context.Context, s *workflow.State, whole bool) WorkflowInfo {
	i := WorkflowInfo{
		ID: s.Spec.ID, Kind: string(s.Spec.Kind), Keyspace: s.Spec.Keyspace, From: s.Spec.From, To: s.Spec.To, Parent: s.Spec.Parent, By: s.Spec.By, Why: s.Spec.Why,
		Step: string(s.Step), Ended: s.Step.Ended(), Paused: s.Paused, Back: s.Back, Error: s.Error, BackLost: s.BackLost,
		RowsAll: s.Rows, BytesAll: s.Bytes, Copied: s.Copied, LagBytes: -1, ETA: -1, Attempt: s.Attempt, HeldMS: s.HeldMS,
		Steps: s.PlanSteps, Begun: s.PlanNext, SkewBefore: s.SkewBefore, SkewAfter: s.SkewAfter,
		Created: time.UnixMilli(s.Created).UTC(), Changed: time.UnixMilli(s.Changed).UTC(),
	}
	switch s.Spec.Kind {
	case workflow.Move:
		i.Part = s.Spec.Part.Text()
	case workflow.Split, workflow.Merge:
		i.Part = "at " + strings.Join(s.Spec.At, ",")
	}
	if s.Step == workflow.Opened && !s.Back {
		until := time.UnixMilli(s.OpenAt + s.Spec.KeepMS).UTC()
		if s.BackLost == "" {
			i.KeptUntil = &until
		} else if !s.Outdated {
			i.RowsUntil = &until
		}
	}
	for _, c := range s.Children {
		i.Children = append(i.Children, c.ID)
	}
	if !whole && s.BackLost != "" {
		i.Note = "it cannot be reversed: " + s.BackLost
	}
	if whole {
		for _, l := range s.History {
			i.History = append(i.History, WorkflowLine{At: time.UnixMilli(l.At).UTC(), Step: string(l.Step), What: l.What})
		}
	}
	if i.Ended {
		i.Rows = s.Copied
		return i
	}
	if wait := s.WaitsForWindow(time.Now()); wait != "" {
		i.Note = wait
	}
	if i.WaitsForShard = s.WaitsForShard(); i.WaitsForShard != "" {
		i.Note = fmt.Sprintf("what is left of it on %s is deleted when that answers; if it is lost: cleave shard remove %s", i.WaitsForShard, i.WaitsForShard)
	}
	if o.takesWrites(ctx) != nil {
		i.Note = "the directory takes no writes: see cleave doctor" // no step is stored, so what is shown may be old
	}
	if whole && s.Spec.Kind == workflow.Move && s.Step == workflow.Planned && i.Note == "" {
		i.Note = o.places(ctx, s)
	}
	// Progress is for people: without it they see the step.
	r, err := o.opts.Directory.Record(ctx, workflow.ProgressPrefix+s.Spec.ID)
	var p workflow.Progress
	if err != nil || json.Unmarshal(r.Value, &p) != nil || p.Step != s.Step {
		return i
	}
	i.Doing, i.Rows, i.Bytes, i.Changes, i.LagBytes = string(p.Doing), p.Rows, p.Bytes, p.Changes, p.LagBytes
	if i.Note == "" && !i.Paused {
		i.Note = p.Note
	}
	if i.Error == "" && !i.Paused {
		i.Error = p.Error
	}
	if time.Since(time.UnixMilli(p.At)) < 5*time.Second {
		i.RowsPerSecond, i.BytesPerSecond = p.RowsPerSecond, p.BytesPerSecond
		i.ETA = eta(s, &p)
	}
	return i
}
