package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// The functions that say where keys may be.
func init() {
	functions["add_constraint"] = function{
		params: []string{"name", "kind", "keyspace", "key", "keys", "range", "labels", "why", "dry_run"}, required: 2, changes: true,
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
	functions["remove_constraint"] = function{
		params: []string{"name", "why", "dry_run"}, required: 1, changes: true,
		usage: "cleave.remove_constraint('name')",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			return done(a.RemoveConstraint(ctx, admin.ConstraintRequest{Meta: admin.Meta{By: by, Why: v.text("why"), DryRun: isTrue(v.text("dry_run"))}, Name: v.text("name")}))
		},
	}
	functions["set_policy"] = function{
		params:   []string{"mode", "keyspace", "measure", "min_skew", "tolerance", "split_bytes", "split_load", "alone_load", "every", "hold", "cool", "at_once", "bytes_per_day", "bytes_per_second", "time_window", "why", "dry_run"},
		required: 0, changes: true,
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

// policyRows are the rows of cleave.policy: the history, the policy in force first.
func (s *Server) policyRows(ctx context.Context) ([][]engine.Text, error) {
	p, err := s.admin.Policy(ctx)
	if err != nil {
		return nil, err
	}
	row := func(at, by, why engine.Text, w *workflow.Policy, note engine.Text) []engine.Text {
		b, err := json.Marshal(w)
		if err != nil {
			b = nil // plain data
		}
		return []engine.Text{at, by, why, text(string(w.Mode)), text(string(b)), note}
	}
	null := engine.Text{Null: true}
	if len(p.History) == 0 {
		return [][]engine.Text{row(null, null, null, &p.Policy, orNull(p.Note))}, nil
	}
	var rows [][]engine.Text
	for i, l := range p.History {
		note := null
		if i == 0 {
			note = orNull(p.Note)
		}
		rows = append(rows, row(moment(l.At), text(l.By), orNull(l.Why), &l.Policy, note))
	}
	return rows, nil
}

// constraintRows are the rows of cleave.constraints.
func constraintRows(snap *shardmap.Snapshot) [][]engine.Text {
	var rows [][]engine.Text
	for _, c := range admin.ConstraintInfos(snap) {
		rows = append(rows, []engine.Text{text(c.Name), text(c.Kind), orNull(c.Keyspace), text(c.Text), yes(len(c.Broken) == 0), orNull(strings.Join(c.Broken, "; "))})
	}
	return rows
}
