// Package adminsql is what the SQL of the schema "cleave" gives: its functions, each an operation of the admin API, and the rows
// of its tables. Who may call and read them, and when, the session decides.
package adminsql

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/virtual"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// Function is one of Cleave's SQL functions: its parameters in order, those
// after required may be left out.
type Function struct {
	name     string
	params   []string
	required int
	usage    string
	// Changes: it changes the map.
	Changes bool
	// Awaits: it waits until all routers go by a new map.
	Awaits bool
	older  map[string]string // names that parameters had in earlier versions, which are still taken
	run    func(ctx context.Context, a admin.API, by string, v values) (string, error)
}

// values are a call's arguments by parameter name.
type values map[string]value

type value struct {
	text  string
	list  []value // ARRAY
	array bool
	null  bool
}

// variadic is the last parameter of a function that takes any number of them.
const variadic = "key..."

// Names are the functions of the schema cleave that carry out operations on the cluster.
func Names() []string { return slices.Sorted(maps.Keys(functions)) }

// olderFunctions are names that functions had in earlier versions. They are still called by them, and not in the catalogue.
var olderFunctions = map[string]string{"rollback": "reverse", "finish": "complete"}

var functions = map[string]Function{
	"create_keyspace": {
		params: []string{"name", "strategy", "key_types", "ranges", "bounds", "listed", "shards"}, required: 3, Changes: true,
		usage: "cleave.create_keyspace(name, 'hash' | 'range' | 'list', key_types [, ranges => n] [, bounds => ARRAY[...]] [, listed => ARRAY['value=shard', ...]] [, shards => ARRAY[...]])",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			r := admin.CreateKeyspaceRequest{Meta: admin.Meta{By: by}, Name: v.text("name"), Strategy: v.text("strategy"), KeyTypes: v.texts("key_types"), Shards: v.texts("shards")}
			if n := v["ranges"]; n.text != "" {
				count, err := strconv.Atoi(n.text)
				if err != nil || count < 1 {
					return "", fmt.Errorf("ranges must be a number of at least 1, not %q", n.text)
				}
				r.Ranges = count
			}
			for _, b := range v["bounds"].list {
				if b.null {
					return "", fmt.Errorf("bounds must not hold NULL")
				}
				r.Bounds = append(r.Bounds, b.strings())
			}
			for _, l := range v["listed"].list {
				if l.null {
					return "", fmt.Errorf("listed must not hold NULL")
				}
				key := l.strings()
				last := key[len(key)-1]
				shard := ""
				if i := strings.LastIndexByte(last, '='); i >= 0 {
					last, shard = last[:i], last[i+1:]
				}
				key[len(key)-1] = last
				r.Values = append(r.Values, admin.ListedValue{Key: key, Shard: shard})
			}
			return done(a.CreateKeyspace(ctx, r))
		},
	},
	"drop_keyspace": {
		params: []string{"name"}, required: 1, Changes: true,
		usage: "cleave.drop_keyspace('name')",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			return done(a.DropKeyspace(ctx, admin.DropKeyspaceRequest{Meta: admin.Meta{By: by}, Name: v.text("name")}))
		},
	},
	"distribute": {
		params: []string{"table", "shard_key", "keyspace", "related", "reference"}, required: 1, Changes: true, Awaits: true,
		usage: "cleave.distribute('table', 'shard_key' | ARRAY['a', 'b'] [, keyspace] [, related => true]) or cleave.distribute('table', reference => true)",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			return done(a.Distribute(ctx, admin.DistributeRequest{Meta: admin.Meta{By: by}, Table: v.text("table"), ShardKey: v.texts("shard_key"), Keyspace: v.text("keyspace"),
				Related: isTrue(v.text("related")), Reference: isTrue(v.text("reference"))}))
		},
	},
	"declare": {
		params: []string{"table", "shard_key", "keyspace", "reference"}, required: 1, Changes: true,
		usage: "cleave.declare('table', shard_key => 'column' | ARRAY['a', 'b'] [, keyspace => 'name']) or cleave.declare('table', reference => true)",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			return done(a.Declare(ctx, admin.DeclareRequest{Meta: admin.Meta{By: by}, Table: v.text("table"), ShardKey: v.texts("shard_key"), Keyspace: v.text("keyspace"), Reference: isTrue(v.text("reference"))}))
		},
	},
	"undeclare": {
		params: []string{"table"}, required: 1, Changes: true,
		usage: "cleave.undeclare('table')",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			return done(a.Declare(ctx, admin.DeclareRequest{Meta: admin.Meta{By: by}, Table: v.text("table"), Forget: true}))
		},
	},
	"pin": {
		params: []string{"keyspace", "key", "shard"}, required: 3, Changes: true,
		usage: "cleave.pin('keyspace', key | ARRAY[...], 'shard')",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			return done(a.Pin(ctx, admin.PinRequest{Meta: admin.Meta{By: by}, Keyspace: v.text("keyspace"), Key: v["key"].strings(), Shard: v.text("shard")}))
		},
	},
	"unpin": {
		params: []string{"keyspace", "key"}, required: 2, Changes: true,
		usage: "cleave.unpin('keyspace', key | ARRAY[...])",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			return done(a.Unpin(ctx, admin.UnpinRequest{Meta: admin.Meta{By: by}, Keyspace: v.text("keyspace"), Key: v["key"].strings()}))
		},
	},
	"shard_of": {
		params: []string{"keyspace", variadic}, required: 2,
		usage: "cleave.shard_of('keyspace', key [, key ...])",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			r, err := a.ShardOf(ctx, admin.ShardOfRequest{Keyspace: v.text("keyspace"), Key: v[variadic].strings()})
			if err != nil {
				return "", err
			}
			return r.Shard, nil
		},
	},
	"add_shard": {
		params: []string{"name", "url", "weight", "labels"}, required: 2, Changes: true,
		usage: "cleave.add_shard('name', 'url' [, weight => n] [, labels => '{\"region\": \"eu\"}'])",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			r := admin.AddShardRequest{Meta: admin.Meta{By: by}, Name: v.text("name"), URL: v.text("url")}
			if err := v.shardProperties(&r.Weight, &r.Labels); err != nil {
				return "", err
			}
			res, err := a.AddShard(ctx, r)
			if err != nil {
				return "", err
			}
			return done(&res.Result, nil)
		},
	},
	"add_replica": {
		params: []string{"shard", "url"}, required: 2, Changes: true,
		usage: "cleave.add_replica('shard', 'url')",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			return done(a.AddReplica(ctx, admin.ReplicaRequest{Meta: admin.Meta{By: by}, Shard: v.text("shard"), URL: v.text("url")}))
		},
	},
	"remove_replica": {
		params: []string{"shard", "url"}, required: 2, Changes: true,
		usage: "cleave.remove_replica('shard', 'url')",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			return done(a.RemoveReplica(ctx, admin.ReplicaRequest{Meta: admin.Meta{By: by}, Shard: v.text("shard"), URL: v.text("url")}))
		},
	},
	"set_shard": {
		params: []string{"name", "state", "why", "url", "weight", "labels"}, required: 1, Changes: true,
		usage: "cleave.set_shard('name', 'read-only' | 'out-of-service' | 'normal' [, why => 'text']), or with url =>, weight => and labels => as in cleave.add_shard",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			r := admin.SetShardRequest{Meta: admin.Meta{By: by, Why: v.text("why")}, Name: v.text("name"), State: v.text("state"), URL: v.text("url")}
			if err := v.shardProperties(&r.Weight, &r.Labels); err != nil {
				return "", err
			}
			return done(a.SetShard(ctx, r))
		},
	},
	"cancel_session": {
		params: []string{"pid", "dry_run"}, required: 1, Changes: true,
		usage: "cleave.cancel_session(pid [, dry_run => true]), or pg_cancel_backend(pid)",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			return v.signal(ctx, a.CancelSession, by, "cancelled")
		},
	},
	"terminate_session": {
		params: []string{"pid", "wait", "dry_run"}, required: 1, Changes: true,
		usage: "cleave.terminate_session(pid [, wait => seconds] [, dry_run => true]), or pg_terminate_backend(pid, milliseconds)",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			return v.signal(ctx, a.TerminateSession, by, "ended")
		},
	},
	"remove_shard": {
		params: []string{"name"}, required: 1, Changes: true,
		usage: "cleave.remove_shard('name')",
		run: func(ctx context.Context, a admin.API, by string, v values) (string, error) {
			return done(a.RemoveShard(ctx, admin.RemoveShardRequest{Meta: admin.Meta{By: by}, Name: v.text("name")}))
		},
	},
}

func done(r *admin.Result, err error) (string, error) {
	if err != nil {
		return "", err
	}
	lines := append(append([]string(nil), r.Plan...), r.Warnings...)
	return fmt.Sprintf("map version %d: %s", r.Version, strings.Join(lines, "; ")), nil
}

func (v values) text(name string) string { return v[name].text }

// signal cancels or ends a session.
func (v values) signal(ctx context.Context, tell func(context.Context, admin.SessionRequest) (*admin.SessionResult, error), by, what string) (string, error) {
	r := admin.SessionRequest{Meta: admin.Meta{By: by, DryRun: isTrue(v.text("dry_run"))}}
	var err error
	if r.PID, err = strconv.ParseInt(v.text("pid"), 10, 64); err != nil {
		return "", fmt.Errorf("pid must be a session's number, not %q", v.text("pid"))
	}
	if err := v.float("wait", &r.Wait); err != nil {
		return "", err
	}
	res, err := tell(ctx, r)
	switch {
	case err != nil:
		return "", err
	case r.DryRun:
		what = "would be " + what
	case res.Done:
		what = "is " + what
	default:
		what = "is told, and has not ended yet"
	}
	return fmt.Sprintf("session %d of user %s at router %s %s", r.PID, res.Session.User, res.Session.Router, what), nil
}

// shardProperties reads weight and labels, where they are given. labels is a map of strings.
func (v values) shardProperties(weight *float64, labels any) error {
	if w := v.text("weight"); w != "" {
		n, err := strconv.ParseFloat(w, 64)
		if err != nil || !(n > 0) {
			return fmt.Errorf("weight must be a number above 0, not %q", w)
		}
		*weight = n
	}
	if l := v.text("labels"); l != "" {
		if err := json.Unmarshal([]byte(l), labels); err != nil {
			return errors.New("labels must be a JSON object of strings")
		}
	}
	return nil
}

// texts is a list given as an array or as one text with commas.
func (v values) texts(name string) []string {
	x, ok := v[name]
	if !ok {
		return nil
	}
	if x.array {
		return x.strings()
	}
	var out []string
	for _, s := range strings.Split(x.text, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// strings is the value as a key: the elements of an array, or itself.
func (v value) strings() []string {
	if !v.array {
		return []string{v.text}
	}
	out := make([]string, len(v.list))
	for i, e := range v.list {
		out[i] = e.text
	}
	return out
}

// Find is the function of a name.
func Find(name string) (Function, error) {
	f, ok := functions[cmp.Or(olderFunctions[name], name)]
	if !ok {
		return f, sqlstate.New(sqlstate.UndefinedFunction, "function cleave.%s does not exist", name).
			WithHint("there are %s", strings.Join(Names(), ", "))
	}
	f.name = name
	return f, nil
}

// Declares reports whether it says what a table is, which a transaction can do as well: see [Call.Declaration].
func (f Function) Declares() bool { return f.name == "declare" || f.name == "undeclare" }

// wrong is an error about a call, with how to call it.
func (f Function) wrong(format string, a ...any) error {
	return sqlstate.New(sqlstate.InvalidParameterValue, format, a...).WithHint("usage: SELECT %s", f.usage)
}

// Call is a call whose arguments have been read.
type Call struct {
	f Function
	v values
}

// Read reads the arguments of a call. args are the client's parameters.
func (f Function) Read(c *plan.CallExpr, args *plan.Args) (Call, error) {
	v := values{}
	for i, a := range c.Args {
		arg, err := callValue(a, args)
		if err != nil {
			return Call{}, f.wrong("argument %d of cleave.%s: %v", i+1, f.name, err)
		}
		name, err := f.parameter(a.Name, i, len(c.Args))
		if err != nil {
			return Call{}, err
		}
		if name == variadic && a.Name == "" && !arg.array {
			if arg.null {
				return Call{}, f.wrong("a key must not be NULL")
			}
			list := v[variadic]
			list.array = true
			list.list = append(list.list, arg)
			v[variadic] = list
			continue
		}
		if _, dup := v[name]; dup {
			return Call{}, f.wrong("parameter %q is given twice", name)
		}
		v[name] = arg
	}
	return Call{f, v}, f.complete(v)
}

// parameter is the name of the parameter that an argument is for: the i-th of count, named or not.
func (f Function) parameter(named string, i, count int) (string, error) {
	named = cmp.Or(f.older[named], named)
	switch {
	case named != "":
		if !slices.Contains(f.params, named) {
			return "", f.wrong("cleave.%s has no parameter %q", f.name, named)
		}
		return named, nil
	case f.params[len(f.params)-1] == variadic && i >= len(f.params)-1:
		return variadic, nil
	case i >= len(f.params):
		return "", f.wrong("cleave.%s takes at most %d arguments, not %d", f.name, len(f.params), count)
	}
	return f.params[i], nil
}

// complete reports what is missing in a call, and leaves out its NULLs.
func (f Function) complete(v values) error {
	for _, p := range f.params[:f.required] {
		if a, ok := v[p]; !ok || a.null {
			return f.wrong("cleave.%s needs %s", f.name, strings.TrimSuffix(p, "..."))
		}
		for _, e := range v[p].list {
			if e.null {
				return f.wrong("%s must not hold NULL", p)
			}
		}
	}
	maps.DeleteFunc(v, func(_ string, a value) bool { return a.null })
	return nil
}

// Declaration is what a function that declares asks for.
func (c Call) Declaration() admin.DeclareRequest {
	return admin.DeclareRequest{Table: c.v.text("table"), ShardKey: c.v.texts("shard_key"), Keyspace: c.v.text("keyspace"), Reference: isTrue(c.v.text("reference")), Forget: c.f.name == "undeclare"}
}

// Run has the API carry it out for a user, and returns the value of the call.
func (c Call) Run(ctx context.Context, api admin.API, by string) (string, error) {
	out, err := c.f.run(ctx, api, by, c.v)
	if err != nil && ctx.Err() == nil && sqlstate.CodeOf(err) == sqlstate.InternalError {
		return "", c.f.wrong("%v", err)
	}
	return out, err
}

// callValue is an argument: a literal, a parameter in text form, or an array.
func callValue(a plan.CallArg, args *plan.Args) (value, error) {
	switch {
	case a.Array != nil:
		v := value{array: true}
		for _, e := range a.Array {
			ev, err := callValue(e, args)
			if err != nil {
				return v, err
			}
			v.list = append(v.list, ev)
		}
		return v, nil
	case a.Param > 0:
		b, oid, format, ok := args.Param(a.Param)
		switch {
		case !ok:
			return value{}, fmt.Errorf("parameter $%d has no value", a.Param)
		case b == nil:
			return value{null: true}, nil
		case format != 0 && oid != 0 && oid != virtual.Text && oid != 1043:
			return value{}, fmt.Errorf("give parameter $%d as text", a.Param)
		}
		return value{text: string(b)}, nil
	case a.Null:
		return value{null: true}, nil
	}
	return value{text: a.Text}, nil
}

func isTrue(text string) bool {
	switch strings.ToLower(text) {
	case "t", "true", "on", "yes", "1":
		return true
	}
	return false
}
