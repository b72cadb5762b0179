package adminsql

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/cleavedb/cleave/admin"
)

// The functions that say where keys may be.
func init() {
	functions["add_constraint"] = Function{
		params: []string{"name", "kind", "keyspace", "key", "keys", "range", "labels", "why", "dry_run"}, required: 2, Changes: true,
		usage: "cleave.add_constraint('name', 'residency' | 'isolation' | 'anti-affinity' [, keyspace => 'k'] [, key => key | ARRAY[...] | keys => ARRAY[...] | range => 'LOW:HIGH'] [, labels => '{\"region\": \"eu\"}'])",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			r := admin.ConstraintRequest{Meta: admin.Meta{By: by, Why: v.text("why"), DryRun: isTrue(v.text("dry_run"))}, Name: v.text("name"), Kind: v.text("kind"), Keyspace: v.text("keyspace"), Range: v.text("range")}
			if k, ok := v["key"]; ok {
				r.Keys = append(r.Keys, k.strings())
			}
			for _, k := range v["keys"].list {
				r.Keys = append(r.Keys, k.strings())
			}
			if l := v.text("labels"); l != "" {
				if err := json.Unmarshal([]byte(l), &r.Labels); err != nil {
					return "", fmt.Errorf("labels must be a JSON object of strings")
				}
			}
			return done(a.AddConstraint(ctx, r))
		},
	}
	functions["remove_constraint"] = Function{
		params: []string{"name", "why", "dry_run"}, required: 1, Changes: true,
		usage: "cleave.remove_constraint('name')",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			return done(a.RemoveConstraint(ctx, admin.ConstraintRequest{Meta: admin.Meta{By: by, Why: v.text("why"), DryRun: isTrue(v.text("dry_run"))}, Name: v.text("name")}))
		},
	}
	functions["set_policy"] = Function{
		params:   []string{"mode", "keyspace", "measure", "min_skew", "tolerance", "split_bytes", "split_load", "alone_load", "every", "hold", "cool", "at_once", "bytes_per_day", "bytes_per_second", "time_window", "why", "dry_run"},
		required: 0, Changes: true,
		usage: "cleave.set_policy([mode => 'manual' | 'propose' | 'auto'] [, measure => 'load'] [, min_skew => 1.25] [, split_load => n] [, every => '5m'] [, hold => '10m'] [, cool => '1h'] [, bytes_per_day => n])",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			r := admin.PolicyRequest{Meta: admin.Meta{By: by, Why: v.text("why"), DryRun: isTrue(v.text("dry_run"))}}
			for name, into := range map[string]**string{"mode": &r.Mode, "keyspace": &r.Keyspace, "measure": &r.Measure, "every": &r.Every, "hold": &r.Hold, "cool": &r.Cool, "time_window": &r.Window} {
				if given, ok := v[name]; ok {
					*into = &given.text
				}
			}
			for name, into := range map[string]**float64{"min_skew": &r.MinSkew, "tolerance": &r.Tolerance, "split_load": &r.SplitLoad, "alone_load": &r.AloneLoad} {
				if _, ok := v[name]; ok {
					*into = new(float64)
					if err := v.float(name, *into); err != nil {
						return "", err
					}
				}
			}
			for name, into := range map[string]**int64{"split_bytes": &r.SplitBytes, "bytes_per_day": &r.BytesPerDay, "bytes_per_second": &r.BytesPerSecond} {
				if given, ok := v[name]; ok {
					n, err := strconv.ParseInt(given.text, 10, 64)
					if err != nil {
						return "", fmt.Errorf("%s must be a number, not %q", name, given.text)
					}
					*into = &n
				}
			}
			if given, ok := v["at_once"]; ok {
				n, err := strconv.Atoi(given.text)
				if err != nil {
					return "", fmt.Errorf("at_once must be a number, not %q", given.text)
				}
				r.AtOnce = &n
			}
			p, err := a.SetPolicy(ctx, r)
			if err != nil {
				return "", err
			}
			return string(p.Policy.Mode), nil
		},
	}
}

// float reads a number, if it is given.
func (v values) float(name string, into *float64) error {
	text := v.text(name)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("%s must be a number, not %q", name, text)
	}
	*into = n
	return nil
}
