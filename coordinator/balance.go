package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

const (
	// stepsPerRecord is how many steps of a plan one record holds.
	stepsPerRecord = 100
	// planStepsMax bounds a plan; what is beyond comes in the next one.
	planStepsMax = 20_000
	// measuredAtOnce bounds the questions to shards at a time.
	measuredAtOnce = 8
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
func (j *job) makePlan(ctx context.Context, s *workflow.State, r *workflow.Result) error {
	snap, err := j.t.c.opts.Directory.Load(ctx)
	if err != nil {
		return err
	}
	var o workflow.BalanceOptions
	if s.Spec.Balance != nil {
		o = *s.Spec.Balance
	}
	p, err := j.balance(ctx, snap, s.Spec.Keyspace, o)
	if err != nil {
		return err
	}
	if len(p.Steps) > planStepsMax {
		p.Steps = p.Steps[:planStepsMax]
	}
	if err := storePlan(ctx, j.t.records, s.Spec.ID, p); err != nil {
		return err
	}
	r.PlanSteps, r.Rows, r.Bytes, r.SkewBefore, r.SkewAfter = len(p.Steps), p.Rows, p.Bytes, p.SkewBefore, p.SkewAfter
	return nil
}

// balance measures and makes a plan. Errors of the plan itself are Refused.
func (j *job) balance(ctx context.Context, snap *shardmap.Snapshot, ks string, o workflow.BalanceOptions) (*workflow.BalancePlan, error) {
	sizes, err := j.measure(ctx, snap, ks)
	if err != nil {
		return nil, err
	}
	heat, err := shardmap.ReadHeat(ctx, j.t.c.opts.Directory, snap)
	if err != nil {
		return nil, err
	}
	for name, list := range sizes {
		ix, _ := snap.Keyspace(name)
		for i := range list {
			list[i].Load = heat.Statements[ix.FirstUnit()+i]
		}
	}
	var hot []workflow.HotKey
	for _, k := range heat.Keys {
		hot = append(hot, workflow.HotKey{Keyspace: k.Keyspace, Key: k.Key, Load: k.Statements})
	}
	if o.BytesPerSecond == 0 {
		if o.BytesPerSecond, err = j.t.moveRate(ctx); err != nil {
			return nil, err
		}
	}
	p, err := workflow.Balance(snap, sizes, hot, o)
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

// measure returns what the units of keyspaces hold, as the shards estimate it. What a
// shard has of a hash keyspace is taken to lie evenly in its ranges. A shard that does not answer
// fails it: nothing is planned from half of the truth.
func (j *job) measure(ctx context.Context, snap *shardmap.Snapshot, only string) (map[string][]workflow.Size, error) {
	type question struct {
		ks, shard string
		keys      keyspace.Ownership
		units     []int
		shares    []float64
	}
	sizes := map[string][]workflow.Size{}
	var all []question
	st := snap.State()
	for i := range st.Keyspaces {
		k := &st.Keyspaces[i]
		if only != "" && k.Name != only {
			continue
		}
		tables, _ := Tables(snap, k.Name)
		units := k.PlacementUnits()
		sizes[k.Name] = make([]workflow.Size, len(units))
		if len(tables) == 0 {
			continue
		}
		whole := map[string]int{} // by shard: the question for all its hash ranges
		for n, u := range units {
			q := question{ks: k.Name, shard: u.Owner, units: []int{n}, shares: []float64{1}}
			switch {
			case n < len(k.Ranges) && k.Strategy == keyspace.Hash:
				at, ok := whole[u.Owner]
				if ok {
					all[at].units, all[at].shares = append(all[at].units, n), append(all[at].shares, u.Size)
					continue
				}
				whole[u.Owner] = len(all)
				q.keys, q.shares = snap.Ownership(k.Name, u.Owner), []float64{u.Size}
			case n < len(k.Ranges):
				q.keys = snap.Keys(k.Name, shardmap.Part{Low: k.Ranges[n].Low, High: k.Ranges[n].High})
			case n < len(k.Ranges)+len(k.Values):
				q.keys = snap.Keys(k.Name, shardmap.Part{Key: k.Values[n-len(k.Ranges)].Key})
			default:
				q.keys = snap.Keys(k.Name, shardmap.Part{Key: k.Pins[n-len(k.Ranges)-len(k.Values)].Key})
			}
			all = append(all, q)
		}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	places := make(chan struct{}, measuredAtOnce)
	for i := range all {
		q := &all[i]
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			if ctx.Err() != nil {
				return
			}
			tables, _ := Tables(snap, q.ks)
			set, _, err := j.describe(ctx, q.shard, tables, q.keys)
			if err != nil {
				stop(err)
				return
			}
			m, err := j.t.mover(ctx, q.shard)
			if err != nil {
				stop(err)
				return
			}
			rows, bytes, err := m.Sizes(ctx, set)
			if err != nil {
				stop(err)
				return
			}
			total := 0.0
			for _, s := range q.shares {
				total += s
			}
			for i, n := range q.units { // each unit is of one question only
				sizes[q.ks][n] = workflow.Size{Rows: int64(float64(rows) * q.shares[i] / total), Bytes: int64(float64(bytes) * q.shares[i] / total)}
			}
		})
	}
	wg.Wait()
	return sizes, context.Cause(ctx)
}

// takeSteps is workflow.TakeSteps: the next steps of one kind.
func (j *job) takeSteps(ctx context.Context, s *workflow.State, r *workflow.Result) error {
	p, err := LoadPlan(ctx, j.t.records, s.Spec.ID)
	if err != nil {
		if sqlstate.CodeOf(err) == sqlstate.UndefinedObject {
			return classed(workflow.Refused, err)
		}
		return err
	}
	rest := p.Steps[min(s.PlanNext, len(p.Steps)):]
	most := workflow.MaxChildren
	if n := p.Options.AtOnce; n > 0 {
		most = min(n, most)
	}
	for i := range rest {
		step := &rest[i]
		if step.Kind != rest[0].Kind || step.Phase != rest[0].Phase || i == workflow.MaxChildren || step.Kind == workflow.Move && i == most {
			break
		}
		r.Children = append(r.Children, workflow.Spec{Kind: step.Kind, Keyspace: step.Keyspace, Part: step.Part.Clone(), At: step.At, From: step.From, To: step.To,
			WasPinned: step.Pinned, Options: s.Spec.Options})
		r.Taken++
	}
	return nil
}

// sortedShares orders shards, the fullest first.
func sortedShares(all []workflow.ShardShare) []workflow.ShardShare {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b workflow.ShardShare) int { return cmp.Compare(b.Over, a.Over) })
	return sorted
}
