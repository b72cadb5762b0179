package adminsql

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/admin"
)

// The functions that move data: each begins a workflow, or asks something of one.
func init() {
	options := []string{"keep", "unverified", "rows_per_second", "bytes_per_second", "time_window", "max_latency", "max_lag", "max_lag_bytes"}
	functions["move"] = Function{
		params: append([]string{"keyspace", "range", "to_shard", "key", "id", "why"}, options...), required: 1, Changes: true,
		usage: "cleave.move(keyspace => 'k', range => 'LOW:HIGH' | key => key | ARRAY[...], to_shard => 's' [, id => '...'] [, keep => '24h'] [, rows_per_second => n] [, time_window => 'Mon-Fri 22:00-06:00 Europe/Zurich'])",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			o, err := v.moveOptions()
			if err != nil {
				return "", err
			}
			r := admin.MoveRequest{Meta: admin.Meta{By: by, Why: v.text("why")}, ID: v.text("id"), Keyspace: v.text("keyspace"), Range: v.text("range"), To: v.text("to_shard"), MoveOptions: o}
			if k, ok := v["key"]; ok {
				r.Key = k.strings()
			}
			if r.To == "" {
				return "", fmt.Errorf("to_shard is missing")
			}
			return beganWorkflow(a.Move(ctx, r))
		},
	}
	functions["split"] = Function{
		params: []string{"keyspace", "at", "range", "half", "id", "why"}, required: 1, Changes: true,
		usage: "cleave.split(keyspace => 'k', at => key | ARRAY[...]) or cleave.split(keyspace => 'k', range => 'LOW:HIGH' [, half => 'rows' | 'load' | 'positions'])",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			r := admin.SplitRequest{Meta: admin.Meta{By: by, Why: v.text("why")}, ID: v.text("id"), Keyspace: v.text("keyspace"), Range: v.text("range"), Half: v.text("half")}
			if at, ok := v["at"]; ok {
				r.At = at.strings()
			}
			return beganWorkflow(a.Split(ctx, r))
		},
	}
	functions["merge"] = Function{
		params: append([]string{"keyspace", "at", "to_shard", "id", "why"}, options...), required: 2, Changes: true,
		usage: "cleave.merge(keyspace => 'k', at => key | ARRAY[...] [, to_shard => 's'])",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			o, err := v.moveOptions()
			if err != nil {
				return "", err
			}
			return beganWorkflow(a.Merge(ctx, admin.MergeRequest{Meta: admin.Meta{By: by, Why: v.text("why")}, ID: v.text("id"), Keyspace: v.text("keyspace"), At: v["at"].strings(), To: v.text("to_shard"), MoveOptions: o}))
		},
	}
	functions["drain"] = Function{
		params: append([]string{"shard", "to_shard", "id", "why", "complete"}, options...), required: 1, Changes: true, older: map[string]string{"finish": "complete"},
		usage: "cleave.drain('shard' [, to_shard => 's'] [, complete => true])",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			o, err := v.moveOptions()
			if err != nil {
				return "", err
			}
			return beganWorkflow(a.Drain(ctx, admin.DrainRequest{Meta: admin.Meta{By: by, Why: v.text("why")}, ID: v.text("id"), Shard: v.text("shard"), To: v.text("to_shard"), Complete: isTrue(v.text("complete")), MoveOptions: o}))
		},
	}
	functions["spread"] = Function{
		params: append([]string{"keyspace", "shards", "id", "why"}, options...), required: 0, Changes: true,
		usage: "cleave.spread([keyspace => 'k'] [, shards => ARRAY[...]])",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			o, err := v.moveOptions()
			if err != nil {
				return "", err
			}
			return beganWorkflow(a.Spread(ctx, admin.SpreadRequest{Meta: admin.Meta{By: by, Why: v.text("why")}, ID: v.text("id"), Keyspace: v.text("keyspace"), Shards: v.texts("shards"), MoveOptions: o}))
		},
	}
	functions["verify"] = Function{
		params: []string{"table_name", "keyspace", "repair", "dry_run"}, required: 0, Changes: true,
		usage: "cleave.verify([table_name => 't'] [, keyspace => 'k'] [, repair => true] [, dry_run => true])",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			list, err := a.Verify(ctx, admin.VerifyRequest{Meta: admin.Meta{By: by, DryRun: isTrue(v.text("dry_run"))}, Table: v.text("table_name"), Keyspace: v.text("keyspace"), Repair: isTrue(v.text("repair"))})
			if err != nil {
				return "", err
			}
			return admin.VerifySummary(list), nil
		},
	}
	functions["plan"] = Function{
		params: append([]string{"keyspace", "measure", "tolerance", "split_bytes", "merge_bytes", "split_load", "merge_load", "alone_load", "moved_bytes_max", "at_once", "approve", "id", "why"}, options...), required: 0, Changes: true,
		usage: "cleave.plan([keyspace => 'k'] [, measure => 'bytes' | 'rows' | 'load' | 'both'] [, tolerance => 0.1] [, split_bytes => n] [, merge_bytes => n] [, approve => true])",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			o, err := v.moveOptions()
			if err != nil {
				return "", err
			}
			r := admin.PlanRequest{Meta: admin.Meta{By: by, Why: v.text("why")}, ID: v.text("id"), Keyspace: v.text("keyspace"), Measure: v.text("measure"), Approve: isTrue(v.text("approve")), MoveOptions: o}
			for name, into := range map[string]*int64{"split_bytes": &r.SplitBytes, "merge_bytes": &r.MergeBytes, "moved_bytes_max": &r.MovedBytesMax} {
				if text := v.text(name); text != "" {
					if *into, err = strconv.ParseInt(text, 10, 64); err != nil {
						return "", fmt.Errorf("%s must be a number, not %q", name, text)
					}
				}
			}
			for name, into := range map[string]*float64{"split_load": &r.SplitLoad, "merge_load": &r.MergeLoad, "alone_load": &r.AloneLoad} {
				if err := v.float(name, into); err != nil {
					return "", err
				}
			}
			if text := v.text("at_once"); text != "" {
				if r.AtOnce, err = strconv.Atoi(text); err != nil {
					return "", fmt.Errorf("at_once must be a number, not %q", text)
				}
			}
			if text := v.text("tolerance"); text != "" {
				t, err := strconv.ParseFloat(text, 64)
				if err != nil {
					return "", fmt.Errorf("tolerance must be a number, not %q", text)
				}
				r.Tolerance = &t
			}
			return beganWorkflow(a.Plan(ctx, r))
		},
	}
	for name, ask := range map[string]func(admin.API, context.Context, admin.WorkflowRequest) (*admin.WorkflowInfo, error){
		"pause": admin.API.Pause, "resume": admin.API.Resume, "cancel": admin.API.Cancel, "reverse": admin.API.Reverse, "complete": admin.API.Complete, "approve": admin.API.Approve,
	} {
		params, usage := []string{"id", "why"}, "cleave."+name+"('id')"
		if name == "resume" {
			params = append(params, "rows_per_second", "bytes_per_second", "max_latency", "max_lag", "max_lag_bytes")
			usage = "cleave.resume('id' [, rows_per_second => n] [, bytes_per_second => n] [, max_latency => '20ms'] [, max_lag => '30s'] [, max_lag_bytes => n])"
		}
		functions[name] = Function{
			params: params, required: 1, Changes: true, usage: usage,
			run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
				b, err := v.moveBounds()
				if err != nil {
					return "", err
				}
				w, err := ask(a, ctx, admin.WorkflowRequest{Meta: admin.Meta{By: by, Why: v.text("why")}, ID: v.text("id"), Bounds: b})
				if err != nil {
					return "", err
				}
				return w.ID + ": " + w.Step, nil
			},
		}
	}
}

// moveBounds are the bounds that a call of cleave.resume names, nil if it names none: as the flags of the command, ” is the default.
func (v values) moveBounds() (*admin.MoveBounds, error) {
	var b admin.MoveBounds
	for name, into := range map[string]**int64{"rows_per_second": &b.RowsPerSecond, "bytes_per_second": &b.BytesPerSecond, "max_lag_bytes": &b.MaxLagBytes} {
		if x, ok := v[name]; ok && !x.null {
			n, err := strconv.ParseInt(x.text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s must be a number, not %q", name, x.text)
			}
			*into = &n
		}
	}
	for name, into := range map[string]**string{"max_latency": &b.MaxLatency, "max_lag": &b.MaxLag} {
		if x, ok := v[name]; ok && !x.null {
			*into = &x.text
		}
	}
	if b == (admin.MoveBounds{}) {
		return nil, nil
	}
	return &b, nil
}

func (v values) moveOptions() (admin.MoveOptions, error) {
	o := admin.MoveOptions{Keep: v.text("keep"), Unverified: isTrue(v.text("unverified")), Window: v.text("time_window"), MaxLatency: v.text("max_latency"), MaxLag: v.text("max_lag")}
	for name, into := range map[string]*int64{"rows_per_second": &o.RowsPerSecond, "bytes_per_second": &o.BytesPerSecond, "max_lag_bytes": &o.MaxLagBytes} {
		if text := v.text(name); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return o, fmt.Errorf("%s must be a number, not %q", name, text)
			}
			*into = n
		}
	}
	return o, nil
}

// beganWorkflow is the answer of a function that began a workflow: its id.
func beganWorkflow(r *admin.WorkflowResult, err error) (string, error) {
	if err != nil {
		return "", err
	}
	if r.Workflow == nil {
		return strings.Join(r.Plan, "; "), nil
	}
	return r.Workflow.ID, nil
}
