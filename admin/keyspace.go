package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// CreateKeyspace makes a keyspace. Errors: 42710 if it exists, 22023 and others
// for what cannot be one, 0A000 for types that cannot be a shard key, 42704 for an
// unknown shard.
func (o *Ops) CreateKeyspace(ctx context.Context, req CreateKeyspaceRequest) (*Result, error) {
	var made shardmap.Keyspace
	edit := func(cur *shardmap.Snapshot) (*shardmap.State, error) {
		if _, ok := cur.Keyspace(req.Name); ok {
			return nil, sqlstate.New(sqlstate.DuplicateObject, "keyspace %q already exists", req.Name).WithHint("see: cleave keyspace list")
		}
		k, err := newKeyspace(cur, &req)
		if err != nil {
			return nil, err
		}
		made = k
		next := cur.State().Clone()
		next.PutKeyspace(k)
		return &next, nil
	}
	cur, err := o.tried(ctx, edit)
	if err != nil {
		return nil, err
	}
	res := &Result{Version: cur.Version(), Plan: keyspacePlan(&made)}
	if req.DryRun {
		return res, nil
	}
	snap, err := o.update(ctx, shardmap.Change{By: req.by(), Why: req.why(res.Plan[0]), Op: "create_keyspace"}, edit)
	if err != nil {
		return nil, err
	}
	res.Version, res.Done = snap.Version(), true
	return res, nil
}

// DropKeyspace takes a keyspace without tables out of the map, with its ranges and pins. Errors: 42704 if there is none; 2BP01 if tables,
// declarations or constraints need it; 55006 while a part of it is being moved, or a move of it can be reversed.
func (o *Ops) DropKeyspace(ctx context.Context, req DropKeyspaceRequest) (*Result, error) {
	edit := func(cur *shardmap.Snapshot) (*shardmap.State, error) {
		next := cur.State().Clone()
		if !next.DropKeyspace(req.Name) {
			return nil, sqlstate.New(sqlstate.UndefinedObject, "keyspace %q does not exist", req.Name).WithHint("see: cleave keyspace list")
		}
		used := func(what, name, hint string) error {
			e := sqlstate.New(sqlstate.DependentObjects, "keyspace %q cannot be dropped: %s %s is in it", req.Name, what, name).WithHint("%s", hint)
			e.Keyspace = req.Name
			return e
		}
		for i := range next.Tables {
			if t := &next.Tables[i]; t.Keyspace == req.Name {
				return nil, used("table", t.QualifiedName(), "DROP TABLE "+t.QualifiedName()+", or leave the keyspace")
			}
		}
		for i := range next.Declarations {
			if d := &next.Declarations[i]; d.Keyspace == req.Name {
				return nil, used("the declared table", d.QualifiedName(), "SELECT cleave.undeclare('"+d.QualifiedName()+"')")
			}
		}
		for _, c := range next.Constraints {
			if c.Keyspace == req.Name {
				return nil, used("the constraint", c.Name, "cleave constraint remove "+c.Name)
			}
		}
		for _, k := range cur.State().Keyspaces {
			if k.Name != req.Name || len(k.Transits) == 0 {
				continue
			}
			t := k.Transits[0]
			e := sqlstate.New(sqlstate.ObjectInUse, "keyspace %q cannot be dropped: %s of it is in move %s", req.Name, t.Text(), t.ID).WithHint("end it first: cleave complete %s, or cleave cancel %s", t.ID, t.ID)
			e.Keyspace = req.Name
			return nil, e
		}
		return &next, nil
	}
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := edit(cur); err != nil {
		return nil, err
	}
	res := &Result{Version: cur.Version(), Plan: []string{fmt.Sprintf("take keyspace %s out of the map, with its ranges and pins; no table is in it", req.Name)}}
	if req.DryRun {
		return res, nil
	}
	snap, err := o.update(ctx, shardmap.Change{By: req.by(), Why: req.why("drop keyspace " + req.Name), Op: "drop_keyspace"}, edit)
	if err != nil {
		return nil, err
	}
	res.Version, res.Done = snap.Version(), true
	return res, nil
}

func newKeyspace(cur *shardmap.Snapshot, req *CreateKeyspaceRequest) (shardmap.Keyspace, error) {
	var none shardmap.Keyspace
	misplaced := func(what, strategy string) error {
		return sqlstate.New(sqlstate.InvalidParameterValue, "%s are for %s keyspaces, and this is a %s keyspace", what, strategy, req.Strategy)
	}
	strategy := keyspace.Strategy(req.Strategy)
	switch {
	case strategy != keyspace.Hash && req.Ranges != 0:
		return none, misplaced("a number of ranges", "hash")
	case strategy != keyspace.Range && len(req.Bounds) > 0:
		return none, misplaced("bounds", "range")
	case strategy != keyspace.List && len(req.Values) > 0:
		return none, misplaced("values", "list")
	case len(req.KeyTypes) == 0:
		return none, sqlstate.New(sqlstate.InvalidParameterValue, "a keyspace needs the types of its key").WithHint("such as bigint, or uuid and text")
	}
	types := make([]keyspace.Type, len(req.KeyTypes))
	for i, name := range req.KeyTypes {
		t, err := keyspace.ParseType(name)
		if err != nil {
			return none, err
		}
		types[i] = t
	}
	shards, err := pickShards(cur, req.Shards)
	if err != nil {
		return none, err
	}
	for _, name := range req.Shards {
		if err := cur.Receives(name); err != nil {
			return none, err
		}
	}
	if len(req.Shards) == 0 {
		if shards = cur.OpenShards(req.Name); len(shards) == 0 {
			return none, sqlstate.New(sqlstate.ObjectNotInState, "no shard takes ranges of keyspace %q: all are read-only, out of service, being drained, or closed by a rule", req.Name).
				WithHint("cleave shard list, cleave shard set NAME --state normal")
		}
	}
	switch strategy {
	case keyspace.Hash:
		n := req.Ranges
		if n == 0 {
			n = schema.DefaultRangesPerShard * len(shards)
		}
		return shardmap.NewHashKeyspace(req.Name, types, shards, n)
	case keyspace.Range:
		owners := make([]string, len(req.Bounds)+1)
		for i, s := range placement.Runs(shardmap.PlacementShards(shards), len(owners)) {
			owners[i] = shards[s].Name
		}
		return shardmap.NewRangeKeyspace(req.Name, types, req.Bounds, owners)
	case keyspace.List:
		if len(req.Values) == 0 {
			return none, sqlstate.New(sqlstate.InvalidParameterValue, "a list keyspace needs its values: a value that is not listed is refused")
		}
		values, owners := make([][]string, len(req.Values)), make([]string, len(req.Values))
		turns := placement.Turns(shardmap.PlacementShards(shards), len(req.Values))
		for i, v := range req.Values {
			values[i], owners[i] = v.Key, v.Shard
			if v.Shard == "" {
				owners[i] = shards[turns[i]].Name
			} else if _, ok := cur.Shard(v.Shard); !ok {
				return none, noShard(v.Shard)
			}
			if err := cur.Receives(owners[i]); err != nil {
				return none, err
			}
		}
		return shardmap.NewListKeyspace(req.Name, types, values, owners)
	}
	return none, sqlstate.New(sqlstate.InvalidParameterValue, "there is no strategy %q", req.Strategy).WithHint("use hash, range or list")
}

func pickShards(cur *shardmap.Snapshot, names []string) ([]shardmap.Shard, error) {
	if len(names) == 0 {
		return cur.Shards(), nil
	}
	var out []shardmap.Shard
	seen := map[string]bool{}
	for _, name := range names {
		s, ok := cur.Shard(name)
		if !ok {
			return nil, noShard(name)
		}
		if seen[name] {
			return nil, sqlstate.New(sqlstate.InvalidParameterValue, "shard %s is named twice", name)
		}
		seen[name] = true
		out = append(out, *s)
	}
	return out, nil
}

func keyspacePlan(k *shardmap.Keyspace) []string {
	plan := []string{fmt.Sprintf("create %s keyspace %s (%s)", k.Strategy, k.Name, strings.Join(typeNames(k.Types), ", "))}
	order, count := []string{}, map[string]int{}
	add := func(shard string) {
		if count[shard] == 0 {
			order = append(order, shard)
		}
		count[shard]++
	}
	for _, r := range k.Ranges {
		add(r.Shard)
	}
	for _, v := range k.Values {
		add(v.Shard)
	}
	what := "ranges"
	if k.Strategy == keyspace.List {
		what = "values"
	}
	for _, shard := range order {
		plan = append(plan, fmt.Sprintf("%s owns %d of %d %s", shard, count[shard], len(k.Ranges)+len(k.Values), what))
	}
	return plan
}

// Pin places a key on a shard, or fixes it on the shard where it is. A key that has rows
// is moved with them: a workflow begins, which the result names. Errors: 42704 for an unknown
// keyspace or shard, 22P02 and its kin for what is no key, 55000 if the shard has rows of the key
// without owning it, 55P03 if its tables were not to be locked in time.
func (o *Ops) Pin(ctx context.Context, req PinRequest) (*Result, error) {
	return o.relocate(ctx, req.Meta, "pin", req.Keyspace, req.Key, func(cur *shardmap.Snapshot, next *shardmap.State) (bool, error) {
		if _, ok := cur.Shard(req.Shard); !ok {
			return false, noShard(req.Shard)
		}
		ix, key, err := parseKey(cur, req.Keyspace, req.Key)
		if err != nil {
			return false, err
		}
		if a, err := ix.Locate(key); err == nil && a.Pinned && a.Shard == req.Shard {
			return false, nil
		}
		return true, next.PutPin(req.Keyspace, req.Key, req.Shard)
	})
}

// Unpin lets a key live where its position says. If it has rows and the pin had them on
// another shard, they are moved as by Pin. Errors: as with Pin, and 42704 if the key is not pinned.
func (o *Ops) Unpin(ctx context.Context, req UnpinRequest) (*Result, error) {
	return o.relocate(ctx, req.Meta, "unpin", req.Keyspace, req.Key, func(_ *shardmap.Snapshot, next *shardmap.State) (bool, error) {
		was, err := next.DropPin(req.Keyspace, req.Key)
		if err == nil && !was {
			err = sqlstate.New(sqlstate.UndefinedObject, "key %s of keyspace %s is not pinned", keyText(req.Key), req.Keyspace).WithHint("see: SELECT * FROM cleave.pins")
		}
		return true, err
	})
}

func keyText(key []string) string { return "(" + strings.Join(key, ", ") + ")" }

// move is one key's way from its owner to another.
type move struct {
	op        string // "pin" or "unpin"
	cur, next *shardmap.Snapshot
	state     shardmap.State
	change    shardmap.Change
	ks        string
	key       keyspace.Key
	from, to  string // "" where nobody owns it
	nothing   bool   // it is as wanted already
	tables    int
}

// unmoved refuses a key that is moving by itself: where it lives is that move's business until its end.
func unmoved(cur *shardmap.Snapshot, ks string, key keyspace.Key) error {
	ix, _ := cur.Keyspace(ks)
	part := shardmap.Part{Key: key.Texts()}
	for _, t := range ix.Def().Transits {
		if t.Key != nil && cur.Overlap(ks, t.Part, part) {
			e := sqlstate.New(sqlstate.ObjectNotInState, "key %s of keyspace %q is moving from shard %s to shard %s (move %s)", keyText(key.Texts()), ks, t.From, t.To, t.ID).
				WithHint("wait for that move, or end it: cleave moves %s", t.ID)
			e.Keyspace, e.Range, e.Epoch = ks, t.Text(), t.Epoch
			return e
		}
	}
	return nil
}

// planMove works out a move on the current map.
func planMove(cur *shardmap.Snapshot, m Meta, op, ks string, texts []string, edit func(*shardmap.Snapshot, *shardmap.State) (bool, error)) (*move, error) {
	ix, key, err := parseKey(cur, ks, texts)
	if err != nil {
		return nil, err
	}
	v := &move{op: op, cur: cur, ks: ks, key: key, state: cur.State().Clone()}
	todo, err := edit(cur, &v.state)
	if err != nil {
		return nil, err
	}
	if !todo {
		v.nothing = true
		return v, nil
	}
	if err := unmoved(cur, ks, key); err != nil {
		return nil, err
	}
	if a, err := ix.Locate(key); err == nil {
		v.from = a.Shard
	}
	v.change = shardmap.Change{Expect: cur.Version(), By: m.by(), Op: op, Why: m.why(op + " " + ks + " " + keyText(texts))}
	if len(v.change.Why) > 4000 {
		v.change.Why = m.why(op + " " + ks)
	}
	// The same computation that the directory will make, epochs included.
	if v.next, err = shardmap.Advance(cur, v.change, v.state); err != nil {
		return nil, err
	}
	after, _ := v.next.Keyspace(ks)
	if a, err := after.Locate(key); err == nil {
		v.to = a.Shard
	}
	for _, t := range cur.State().Tables {
		if t.Kind == shardmap.Sharded && t.Keyspace == ks {
			v.tables++
		}
	}
	return v, nil
}

// relocate changes the owner of one key. The order makes every crash harmless:
//
//  1. The old owner's guards stop taking the key, and in the same transaction, with the tables
//     closed to writers, it is seen to have no rows. Until step 2 nobody owns it.
//  2. The map changes, by compare-and-set.
//  3. The old owner's guards are set from the map again and the look is
//     repeated, for the case that another operation had set them in between.
//  4. The new owner's guards take the key.
//
// A crash leaves guards that are narrower than the map says, never wider: the key
// is refused until doctor --repair sets the guards from the map.
func (o *Ops) relocate(ctx context.Context, m Meta, op, ks string, texts []string, edit func(*shardmap.Snapshot, *shardmap.State) (bool, error)) (*Result, error) {
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	for range updateTries {
		v, err := planMove(cur, m, op, ks, texts, edit)
		if err != nil {
			return nil, err
		}
		res := &Result{Version: cur.Version(), Plan: v.plan()}
		if v.nothing {
			res.Done = !m.DryRun
			return res, nil
		}
		if err := o.checkEmpty(ctx, v); err != nil {
			if own, ok := errors.AsType[*rowsError](err); ok && own.shard == v.from && v.to != "" {
				return o.moveKey(ctx, m, v, op == "unpin")
			}
			return nil, err
		}
		if m.DryRun {
			return res, nil
		}
		done, err := o.relocateOnce(ctx, m, v, edit, texts, res)
		if err != nil || done {
			return res, err
		}
		if cur, err = o.load(ctx); err != nil {
			return nil, err
		}
	}
	return nil, sqlstate.New(sqlstate.SerializationFailure, "the shard map changes too often").WithHint("nothing was changed: run it again")
}

// moveKey begins to move a key with its rows, instead of placing it at once. It cannot be reversed,
// so that it can be placed anew.
func (o *Ops) moveKey(ctx context.Context, m Meta, v *move, unpin bool) (*Result, error) {
	ix, _ := v.cur.Keyspace(v.ks)
	a, err := ix.Locate(v.key)
	spec := workflow.Spec{
		Kind: workflow.Move, Keyspace: v.ks, Part: shardmap.Part{Key: v.key.Texts()}, From: v.from, To: v.to, By: m.by(), Why: m.Why,
		Unpin: unpin, WasPinned: err == nil && a.Pinned, Options: workflow.Options{KeepMS: -1}.WithDefaults(),
	}
	if err := free(v.cur, &spec); err != nil {
		return nil, err
	}
	then := "it is pinned there"
	if unpin {
		then = "its pin goes"
	}
	res, err := o.begin(ctx, spec, m.DryRun, []string{fmt.Sprintf("move key %s of %s with its rows from %s to %s; %s", keyText(v.key.Texts()), v.ks, v.from, v.to, then)})
	if err != nil {
		return nil, err
	}
	out := &Result{Version: v.cur.Version(), Done: res.Done, Plan: res.Plan}
	if res.Workflow != nil {
		out.Plan = append(out.Plan, "it goes on by itself: cleave moves "+res.Workflow.ID)
	}
	return out, nil
}

func (v *move) plan() []string {
	key := keyText(v.key.Texts())
	if v.nothing {
		return []string{"key " + key + " of " + v.ks + " is there already: nothing to do"}
	}
	what := "the pin of key " + key + " of " + v.ks + " goes"
	if v.op == "pin" {
		what = "key " + key + " of " + v.ks + " is pinned to " + v.to
	}
	if v.from == v.to {
		return []string{what + "; the key stays on " + v.to, "the map is changed", "the guards of " + v.to + " are set"}
	}
	switch {
	case v.op == "unpin" && v.to == "":
		what += ", and no shard is listed for it"
	case v.op == "unpin":
		what += ", and its keyspace places it on " + v.to
	}
	var plan []string
	if v.from != "" {
		plan = append(plan, fmt.Sprintf("%s stops taking key %s of %s; its %d tables have no row of it", v.from, key, v.ks, v.tables))
	}
	plan = append(plan, "the map is changed: "+what)
	if v.to != "" {
		plan = append(plan, v.to+" takes key "+key)
	}
	return plan
}

// relocateOnce makes one attempt; done is false if the map was changed meanwhile.
func (o *Ops) relocateOnce(ctx context.Context, m Meta, v *move, edit func(*shardmap.Snapshot, *shardmap.State) (bool, error), texts []string, res *Result) (done bool, err error) {
	opts := o.schemaOptions(m)
	moves := v.from != v.to
	stale := errors.New("admin: the map was changed")
	if err := o.step("fence", v.from); err != nil {
		return false, err
	}
	if moves && v.from != "" && v.tables > 0 {
		_, err := schema.SyncGuards(ctx, opts, v.ks, v.from, func(cur *shardmap.Snapshot) (*shardmap.Snapshot, error) {
			if cur.Version() != v.cur.Version() {
				return nil, stale
			}
			return v.next, nil
		}, v.noRows)
		if errors.Is(err, stale) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	if err := o.step("map", ""); err != nil {
		return false, err
	}
	snap, err := o.opts.Directory.Update(ctx, v.change, v.state)
	if err != nil {
		sync := o.sync(ctx, opts, v.ks, v.from, nil)
		if errors.Is(err, shardmap.ErrConflict) {
			return false, sync
		}
		own := sqlstate.As(directoryError(err))
		if sync != nil {
			own.Hint = "then set the guards as the map says: cleave doctor --repair"
		}
		return false, own
	}
	o.opts.Log.Info("map changed", "version", snap.Version(), "op", v.change.Op, "by", v.change.By, "why", v.change.Why)
	res.Version, res.Done = snap.Version(), true
	if err := o.step("old", v.from); err != nil {
		return false, err
	}
	// From here on the client's patience does not count.
	ctx = context.WithoutCancel(ctx)
	if moves {
		if err := o.sync(ctx, opts, v.ks, v.from, v.noRows); err != nil {
			if own, ok := errors.AsType[*rowsError](err); ok {
				return false, o.takeBack(ctx, opts, m, v, own)
			}
			res.Warnings = append(res.Warnings, "the guards of "+v.from+" are not set yet ("+sqlstate.As(err).Message+"): cleave doctor --repair")
			return true, nil
		}
	}
	if err := o.step("new", v.to); err != nil {
		return false, err
	}
	sides := []string{v.to}
	// The shard that has the range of a pinned key says of it that it is elsewhere, as of which epoch.
	if ix, ok := snap.Keyspace(v.ks); ok {
		if owner := ix.UnpinnedOwner(v.key); owner != v.to && owner != v.from {
			sides = append(sides, owner)
		}
	}
	for _, shard := range sides {
		if err := o.sync(ctx, opts, v.ks, shard, nil); err != nil {
			res.Warnings = append(res.Warnings, "the guards of "+shard+" are not set yet ("+sqlstate.As(err).Message+"): cleave doctor --repair")
		}
	}
	return true, nil
}

const (
	// syncMax is how long guards are tried to be set while parts of their keyspace change their owner: each takes a moment.
	syncMax   = 15 * time.Second
	syncPause = 50 * time.Millisecond
)

// sync sets the guards of a shard from the map. It waits for moves that are changing them.
func (o *Ops) sync(ctx context.Context, opts schema.Options, ks, shard string, check func(context.Context, engine.Conn, []*shardmap.Table) error) error {
	if shard == "" {
		return nil
	}
	for end := time.Now().Add(syncMax); ; {
		_, err := schema.SyncGuards(ctx, opts, ks, shard, nil, check)
		if sqlstate.CodeOf(err) != sqlstate.SerializationFailure || time.Now().After(end) {
			return err
		}
		if err := o.step("again", shard); err != nil {
			return err
		}
		select {
		case <-time.After(syncPause):
		case <-ctx.Done():
			return err
		}
	}
}

// takeBack undoes a move whose key got rows on the old owner meanwhile.
func (o *Ops) takeBack(ctx context.Context, opts schema.Options, m Meta, v *move, cause *rowsError) error {
	_, err := o.update(ctx, shardmap.Change{By: m.by(), Op: v.change.Op, Why: "taken back: " + cause.Error()}, func(cur *shardmap.Snapshot) (*shardmap.State, error) {
		was, _ := v.cur.Keyspace(v.ks)
		now, ok := cur.Keyspace(v.ks)
		if !ok {
			return nil, noKeyspace(v.ks)
		}
		next := cur.State().Clone()
		pinned := func(ix *shardmap.Index) string {
			if a, err := ix.Locate(v.key); err == nil && a.Pinned {
				return a.Shard
			}
			return ""
		}
		if pinned(was) == pinned(now) {
			return nil, nil
		}
		if shard := pinned(was); shard != "" {
			return &next, next.PutPin(v.ks, v.key.Texts(), shard)
		}
		_, err := next.DropPin(v.ks, v.key.Texts())
		return &next, err
	})
	if err == nil {
		err = o.sync(ctx, opts, v.ks, v.from, nil)
	}
	if err != nil {
		own := sqlstate.As(err)
		own.Hint = "set the guards as the map says: cleave doctor --repair"
		return own
	}
	return cause.state()
}

// rowsError says that a key has rows where it must not.
type rowsError struct {
	table, shard, ks, key string
}

func (e *rowsError) Error() string { return e.state().Message }

func (e *rowsError) state() *sqlstate.Error {
	err := sqlstate.New(sqlstate.ObjectNotInState, "key %s of keyspace %s has rows in %s", e.key, e.ks, e.table).
		WithHint("move it: cleave move --keyspace %s --key ... --to SHARD; rows on a shard that does not own them: cleave doctor", e.ks)
	err.Keyspace, err.Shard = e.ks, e.shard
	return err
}

// Unwrap gives the error that clients see.
func (e *rowsError) Unwrap() error { return e.state() }

func (v *move) noRows(ctx context.Context, conn engine.Conn, tables []*shardmap.Table) error {
	for _, t := range tables {
		where := make([]string, len(v.key))
		for i, value := range v.key {
			where[i] = ident(t.ShardKey[i]) + " = " + value.Literal()
		}
		if deadline, ok := ctx.Deadline(); ok {
			if err := conn.SetDeadline(deadline); err != nil {
				return err
			}
		}
		res, err := engine.Exec(conn, "SELECT 1 FROM "+t.QualifiedName()+" WHERE "+strings.Join(where, " AND ")+" LIMIT 1")
		if err != nil {
			return err
		}
		if len(res.Rows) > 0 {
			return &rowsError{table: t.QualifiedName(), shard: v.from, ks: v.ks, key: keyText(v.key.Texts())}
		}
	}
	return nil
}

// checkEmpty looks, without locks, that the key has no rows where it is and none
// where it goes: an early answer, and all that DryRun does.
func (o *Ops) checkEmpty(ctx context.Context, v *move) error {
	if v.from == v.to {
		return nil
	}
	var tables []*shardmap.Table
	for i := range v.cur.State().Tables {
		if t := &v.cur.State().Tables[i]; t.Kind == shardmap.Sharded && t.Keyspace == v.ks {
			tables = append(tables, t)
		}
	}
	if len(tables) == 0 {
		return nil
	}
	for _, shard := range []string{v.from, v.to} {
		if shard == "" {
			continue
		}
		conn, release, err := o.connect(ctx, shard)
		if err != nil {
			return err
		}
		err = v.noRows(ctx, conn, tables)
		release(err != nil)
		if err != nil {
			if own, ok := errors.AsType[*rowsError](err); ok {
				own.shard = shard
				return own
			}
			return err
		}
	}
	return nil
}

func ident(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
