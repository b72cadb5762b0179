package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// stored returns the workflow with a spec's ID if it was asked for already; nil if not. The same ID
// with other arguments is 42710.
func (o *workflows) stored(ctx context.Context, spec *workflow.Spec, dry bool) (*WorkflowResult, error) {
	if err := workflow.CheckID(spec.ID); err != nil {
		return nil, err
	}
	r, err := o.opts.Directory.Record(ctx, workflow.RecordPrefix+spec.ID)
	if errors.Is(err, shardmap.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, directoryError(err)
	}
	s, err := workflow.Decode(r.Value)
	if err != nil {
		return nil, err
	}
	if s.Spec.Kind != spec.Kind {
		return nil, sqlstate.New(sqlstate.DuplicateObject, "workflow %s exists and is a %s, not a %s", spec.ID, s.Spec.Kind, spec.Kind).
			WithHint("see: cleave moves %s; for something else give another --id", spec.ID)
	}
	if others := differences(&s.Spec, spec); len(others) > 0 {
		return nil, sqlstate.New(sqlstate.DuplicateObject, "%s %s was asked for with other arguments: %s", spec.Kind, spec.ID, strings.Join(others, "; ")).
			WithHint("see: cleave moves %s; for something else give another --id", spec.ID)
	}
	info := o.info(ctx, &s, true)
	return &WorkflowResult{Done: !dry, Plan: []string{"it was asked for already"}, Workflow: &info}, nil
}

// differences says in what two requests differ, as people name it.
func differences(is, asked *workflow.Spec) (out []string) {
	a, b := arguments(is), arguments(asked)
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		x, y := a[name], b[name]
		if reflect.DeepEqual(x, y) {
			continue
		}
		out = append(out, fmt.Sprintf("%s was %s, is %s now", name, argument(x), argument(y)))
	}
	return out
}

// argument prints one.
func argument(v any) string {
	switch v := v.(type) {
	case nil:
		return "not given"
	case []any:
		var all []string
		for _, e := range v {
			all = append(all, fmt.Sprint(e))
		}
		return strings.Join(all, ",")
	case float64:
		return fmt.Sprintf("%.12g", v)
	}
	return fmt.Sprint(v)
}

// arguments are what was asked for: without who and why, and what was found out from it.
func arguments(s *workflow.Spec) map[string]any {
	given := *s
	if given.AskedKeepMS != 0 { // somebody has completed it since
		given.KeepMS = given.AskedKeepMS
	}
	own := map[string]any{}
	b, err := json.Marshal(&given)
	if err != nil || json.Unmarshal(b, &own) != nil {
		panic("admin: a workflow's arguments are plain data") // they were stored so
	}
	for _, name := range []string{"id", "kind", "by", "why", "parent", "was_pinned", "asked_keep_ms", "part", "hold_ms", "polite", "verify_bytes"} {
		delete(own, name)
	}
	if delete(own, "from"); s.Kind == workflow.Drain {
		own["shard"] = s.From
		own["complete"] = own["finish"] // as it is stored; nil is not given
		delete(own, "finish")
	}
	if s.Kind == workflow.Split {
		delete(own, "keep_ms") // no row is moved
	}
	switch {
	case s.Half != "":
		delete(own, "at")
		own["range"] = s.Part.Text()
	case s.Kind == workflow.Move && s.Part.Key != nil:
		own["key"] = s.Part.Text()
	case s.Kind == workflow.Move:
		own["range"] = s.Part.Text()
	}
	if plan, ok := own["balance"].(map[string]any); ok {
		delete(own, "balance")
		maps.Copy(own, plan)
	}
	for _, name := range []string{"keep_ms", "max_latency_ms", "max_lag_ms"} {
		if ms, ok := own[name].(float64); ok {
			delete(own, name)
			text := (time.Duration(ms) * time.Millisecond).String()
			if ms < 0 {
				text = map[bool]string{true: "0", false: "off"}[name == "keep_ms"]
			}
			own[strings.TrimSuffix(name, "_ms")] = text
		}
	}
	return own
}
