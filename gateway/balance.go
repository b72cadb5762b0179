package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
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
}

// constraintRows are the rows of cleave.constraints.
func constraintRows(snap *shardmap.Snapshot) [][]engine.Text {
	var rows [][]engine.Text
	for _, c := range admin.ConstraintInfos(snap) {
		rows = append(rows, []engine.Text{text(c.Name), text(c.Kind), orNull(c.Keyspace), text(c.Text), yes(len(c.Broken) == 0), orNull(strings.Join(c.Broken, "; "))})
	}
	return rows
}
