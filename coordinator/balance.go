package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

const (
	// stepsPerRecord is how many steps of a plan one record holds.
	stepsPerRecord = 100
	// planStepsMax bounds a plan; what is beyond comes in the next one.
	planStepsMax = 20_000
)

// planHead is the first record of a plan; the steps are in those after it.
type planHead struct {
	workflow.BalancePlan
	Records int `json:"records"`
}

func planKey(id string, n int) string { return fmt.Sprintf("%s%s/%05d", workflow.PlanPrefix, id, n) }

// storePlan writes a plan, over what a former try left.
func storePlan(ctx context.Context, records shardmap.Records, id string, p *workflow.BalancePlan) error {
	head := planHead{BalancePlan: *p}
	var parts [][]workflow.PlanStep
	for rest := p.Steps; len(rest) > 0; {
		n := min(len(rest), stepsPerRecord)
		parts, rest = append(parts, rest[:n]), rest[n:]
	}
	head.Steps, head.Records = nil, len(parts)
	if len(head.Before) > 128 { // a record is small: the fullest and the emptiest of many shards are told
		head.Before, head.After = ends(head.Before), ends(head.After)
	}
	for i, part := range parts {
		if err := putRecord(ctx, records, planKey(id, i+1), part); err != nil {
			return err
		}
	}
	return putRecord(ctx, records, planKey(id, 0), head) // the last: a plan without it is none
}

// ends keeps the 64 fullest and the 64 emptiest shards.
func ends(all []workflow.ShardShare) []workflow.ShardShare {
	sorted := sortedShares(all)
	return append(sorted[:64:64], sorted[len(sorted)-64:]...)
}

func putRecord(ctx context.Context, records shardmap.Records, key string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	r, err := records.Record(ctx, key)
	if err != nil && !errors.Is(err, shardmap.ErrNotFound) {
		return err
	}
	_, err = records.PutRecord(ctx, key, b, r.Revision)
	return err
}

// LoadPlan reads the plan of a rebalance. Errors: 42704 if there is none.
func LoadPlan(ctx context.Context, records shardmap.Records, id string) (*workflow.BalancePlan, error) {
	var head planHead
	if err := getRecord(ctx, records, planKey(id, 0), &head); err != nil {
		if errors.Is(err, shardmap.ErrNotFound) {
			return nil, sqlstate.Wrap(err, sqlstate.UndefinedObject, "workflow %q has no plan", id).WithHint("see: cleave moves %s", id)
		}
		return nil, err
	}
	for n := 1; n <= head.Records; n++ {
		var part []workflow.PlanStep
		if err := getRecord(ctx, records, planKey(id, n), &part); err != nil {
			return nil, err
		}
		head.Steps = append(head.Steps, part...)
	}
	return &head.BalancePlan, nil
}

func getRecord(ctx context.Context, records shardmap.Records, key string, into any) error {
	r, err := records.Record(ctx, key)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(r.Value, into); err != nil {
		return sqlstate.Wrap(err, sqlstate.DataCorrupted, "the record %s is damaged", key)
	}
	return nil
}

// dropPlan removes a plan whose workflow is forgotten.
func (t *term) dropPlan(ctx context.Context, id string) {
	for {
		page, err := t.records.Records(ctx, workflow.PlanPrefix+id+"/", "", 100)
		if err != nil || len(page) == 0 {
			return // the next leader's look tries again
		}
		for _, r := range page {
			if err := t.records.DeleteRecord(ctx, r.Key, r.Revision); err != nil {
				return
			}
		}
	}
}

// makePlan is workflow.MakePlan.
func (w *parent) makePlan(ctx context.Context, s *workflow.State, r *workflow.Result) error {
	snap, err := w.t.c.opts.Directory.Load(ctx)
	if err != nil {
		return err
	}
	var o workflow.BalanceOptions
	if s.Spec.Balance != nil {
		o = *s.Spec.Balance
	}
	p, err := w.balance(ctx, snap, s.Spec.Keyspace, o)
	if err != nil {
		return err
	}
	if len(p.Steps) > planStepsMax {
		p.Steps = p.Steps[:planStepsMax]
	}
	if err := storePlan(ctx, w.t.records, s.Spec.ID, p); err != nil {
		return err
	}
	r.PlanSteps, r.Rows, r.Bytes, r.SkewBefore, r.SkewAfter = len(p.Steps), p.Rows, p.Bytes, p.SkewBefore, p.SkewAfter
	return nil
}

// balance measures and makes a plan. Errors of the plan itself are Refused.
func (w *parent) balance(ctx context.Context, snap *shardmap.Snapshot, ks string, o workflow.BalanceOptions) (*workflow.BalancePlan, error) {
	found, err := w.measure(ctx, snap, ks)
	if err != nil {
		return nil, err
	}
	heat, err := shardmap.ReadHeat(ctx, w.t.c.opts.Directory, snap)
	if err != nil {
		return nil, err
	}
	for name, list := range found.Sizes {
		ix, _ := snap.Keyspace(name)
		for i := range list {
			list[i].Load = heat.Statements[ix.FirstUnit()+i]
		}
	}
	for _, k := range heat.Keys {
		found.Hot = append(found.Hot, workflow.HotKey{Keyspace: k.Keyspace, Key: k.Key, Load: k.Statements})
	}
	if o.BytesPerSecond == 0 {
		if o.BytesPerSecond, err = w.t.moveRate(ctx); err != nil {
			return nil, err
		}
	}
	if found.Moving, err = w.wanted(ctx, snap); err != nil {
		return nil, err
	}
	p, err := workflow.Balance(snap, *found, o)
	if err != nil {
		return nil, classed(workflow.Refused, err)
	}
	return p, nil
}

// rateBytesMin is from how many bytes on the time of a move's copy says something.
const rateBytesMin = 1 << 20

// moveRate is the rate at which moves that are kept have copied, bytes per second: the median;
// 0 if none says it.
func (t *term) moveRate(ctx context.Context) (float64, error) {
	var rates []float64
	for after := ""; ; {
		page, err := t.records.Records(ctx, workflow.RecordPrefix, after, 100)
		if err != nil {
			return 0, err
		}
		for _, r := range page {
			after = r.Key
			if s, err := workflow.Decode(r.Value); err == nil {
				if took, ok := s.CopyTook(); ok && s.Bytes >= rateBytesMin {
					rates = append(rates, float64(s.Bytes)/took.Seconds())
				}
			}
		}
		if len(page) < 100 {
			break
		}
	}
	if len(rates) == 0 {
		return 0, nil
	}
	slices.Sort(rates)
	return rates[len(rates)/2], nil
}

// sortedShares orders shards, the fullest first.
func sortedShares(all []workflow.ShardShare) []workflow.ShardShare {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b workflow.ShardShare) int { return cmp.Compare(b.Over, a.Over) })
	return sorted
}
