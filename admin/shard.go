package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// AddShard adds a database to the cluster: checks it, installs what Cleave needs
// there, brings it to the same schema, and writes it into the map, where it owns
// nothing yet. Run again after a failure, it goes on where it stopped.
//
// Errors: 42710 if the name or the database is in the map already; 22023 for a
// URL without an engine; 55000 when the check finds an error, with what to set and how in
// detail and hint, or when the database belongs to another cluster; 57P03 when it cannot be reached; 55P03 when the reference tables
// were not to be locked on all shards together.
func (o *Ops) AddShard(ctx context.Context, req AddShardRequest) (*AddShardResult, error) {
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	def := shardmap.Shard{Name: req.Name, URL: req.URL, Labels: req.Labels, Weight: req.Weight, Incarnation: 1 + rand.Uint64N(1<<53-1)}
	if def.Weight == 0 {
		def.Weight = 1
	}
	d, err := o.driver(req.URL)
	if err != nil {
		return nil, err
	}
	def.Engine = d.Name()
	edit := func(cur *shardmap.Snapshot) (*shardmap.State, error) {
		for _, s := range cur.Shards() {
			if s.Name == def.Name {
				return nil, sqlstate.New(sqlstate.DuplicateObject, "shard %q already exists", def.Name).WithHint("see: cleave shard list")
			}
			if sameDatabase(s.URL, def.URL) {
				return nil, sqlstate.New(sqlstate.DuplicateObject, "the database is shard %s already", s.Name).WithHint("every shard needs a database of its own")
			}
		}
		next := cur.State().Clone()
		next.PutShard(def)
		return &next, nil
	}
	next, err := edit(cur)
	if err != nil {
		return nil, err
	}
	if _, err := shardmap.NewSnapshot(*next); err != nil {
		return nil, err
	}
	sh, err := d.Open(engine.Config{Cluster: cur.State().Cluster, Name: def.Name, URL: def.URL})
	if err != nil {
		return nil, err
	}
	defer sh.Close()
	report, err := sh.Check(ctx)
	if err != nil {
		return nil, err
	}
	res := &AddShardResult{ServerVersion: report.Version, Findings: report.Findings}
	res.Version = cur.Version()
	res.Plan = []string{
		fmt.Sprintf("check %s (%s)", shardmap.Redacted(def.URL), report.Version),
		"install what Cleave needs there",
		fmt.Sprintf("create %d tables, guarded so that it takes no row yet", countTables(cur)),
		fmt.Sprintf("add %s to the map with weight %s%s", def.Name, weightText(def.Weight), labelText(def.Labels)),
	}
	if err := refused(def.Name, report); err != nil {
		return nil, err
	}
	res.Warnings = warningsOf(report)
	if err := o.planReplicas(ctx, req, &def, res); err != nil {
		return nil, err
	}
	if req.DryRun {
		return res, nil
	}
	if err := sh.Install(ctx); err != nil {
		return nil, err
	}
	defer func() {
		// What was made for a shard that did not come to be goes again.
		if d, ok := sh.(engine.Discarder); ok && !res.Done {
			now, err := o.load(context.WithoutCancel(ctx))
			if err != nil {
				return
			}
			if _, there := now.Shard(def.Name); !there {
				if err := d.Discard(); err != nil {
					o.opts.Log.Warn("a database that was made for a shard could not be removed", "shard", def.Name, "error", err)
				}
			}
		}
	}()
	if err := o.step("installed", def.Name); err != nil {
		return nil, err
	}
	if err := o.clear(ctx, sh, def, cur); err != nil {
		return nil, err
	}
	snap, err := o.enlist(ctx, sh, def, req.Meta, edit)
	if err != nil {
		return nil, err
	}
	o.settle(ctx, snap)
	o.opts.Log.Info("map changed", "version", snap.Version(), "op", "shard_add", "shard", def.Name, "by", req.by())
	res.Version, res.Done = snap.Version(), true
	if err := o.addReplicas(ctx, req, res); err != nil {
		return nil, err
	}
	return res, nil
}

// enlist writes a new shard into the map, with the schema and the rows of reference tables that the map has. If the map
// changes in between, the compare-and-set fails and what is missing follows.
//
// The guards of reference tables on the default shard have the new set of shards before the map has it. So nobody whose map
// lacks the shard writes to them once it has their rows, whatever dies, and whatever becomes of the answer of the directory.
func (o *Ops) enlist(ctx context.Context, sh engine.Shard, def shardmap.Shard, m Meta, edit func(*shardmap.Snapshot) (*shardmap.State, error)) (snap *shardmap.Snapshot, err error) {
	ahead, unknown := false, false
	defer func() {
		if !ahead || snap != nil {
			return
		}
		now, back := o.regain(ctx, m.by())
		if back != nil {
			own := *sqlstate.As(err)
			own.Detail = strings.TrimSpace(own.Detail + " The guards of reference tables could not be set back: " + sqlstate.As(back).Message + ".")
			own.Hint = "reference tables take no writes until: cleave doctor --repair"
			err = &own
			return
		}
		if is, ok := now.Shard(def.Name); unknown && ok && is.URL == def.URL {
			snap, err = now, nil
		}
	}()
	for range updateTries {
		cur, err := o.load(ctx)
		if err != nil {
			return nil, err
		}
		next, err := edit(cur)
		if err != nil {
			return nil, err
		}
		if err := o.replay(ctx, sh, def, cur); err != nil {
			return nil, err
		}
		if err := o.step("replayed", def.Name); err != nil {
			return nil, err
		}
		after, err := shardmap.NewSnapshot(*next)
		if err != nil {
			return nil, err
		}
		copies, err := o.fillCopies(ctx, sh, def.Name, cur, after)
		if err != nil {
			return nil, err
		}
		ahead = ahead || len(copies.of) > 0
		if err := copies.end("COMMIT"); err != nil {
			return nil, err
		}
		if err := o.step("guarded", def.Name); err != nil {
			ahead = false // it stands for a crash
			return nil, err
		}
		stored, err := o.opts.Directory.Update(ctx, shardmap.Change{Expect: cur.Version(), By: m.by(), Why: m.why("add shard " + def.Name), Op: "shard_add"}, *next)
		if errors.Is(err, shardmap.ErrConflict) {
			continue
		}
		if err != nil {
			unknown = sqlstate.CodeOf(err) == sqlstate.TransactionUnknown
			return nil, directoryError(err)
		}
		if err := o.step("mapped", def.Name); err != nil {
			ahead = false
			return nil, err
		}
		return stored, nil
	}
	return nil, sqlstate.New(sqlstate.SerializationFailure, "the shard map changes too often").WithHint("run it again: it goes on where it stopped")
}

// replay brings a new shard to the schema of the map.
func (o *Ops) replay(ctx context.Context, sh engine.Shard, def shardmap.Shard, cur *shardmap.Snapshot) error {
	entries, err := schema.History(ctx, o.opts.Directory, 0)
	if err != nil {
		return err
	}
	conn, release, err := dial(ctx, sh)
	if err != nil {
		return err
	}
	defer release(false)
	if _, err := engine.Exec(conn, "BEGIN"); err != nil {
		return err
	}
	bound, cancel := context.WithTimeout(ctx, replayMax)
	defer cancel()
	if err := schema.Replay(bound, conn, def.Name, false, cur, entries); err != nil {
		// The conversation ends, and the transaction with it.
		return err
	}
	_, err = engine.Exec(conn, "COMMIT")
	return err
}

func countTables(cur *shardmap.Snapshot) int {
	n := 0
	for _, t := range cur.State().Tables {
		if t.Kind != shardmap.Whole {
			n++
		}
	}
	return n
}

func weightText(w float64) string {
	if w == math.Trunc(w) {
		return fmt.Sprintf("%.0f", w)
	}
	return fmt.Sprintf("%g", w)
}

func labelText(labels map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(", " + k + "=" + labels[k])
	}
	return b.String()
}

func warningsOf(report engine.Report) (out []string) {
	for _, f := range report.Findings {
		if f.Level == "warning" {
			out = append(out, findingText(f))
		}
	}
	return out
}

func findingText(f engine.Finding) string {
	s := f.Name + " is " + f.Is
	if f.Want != "" {
		s += ", wanted: " + f.Want
	}
	if f.Fix != "" {
		s += " (" + f.Fix + ")"
	}
	return s
}

// refused turns a report with errors into one that says what to set and how.
func refused(name string, report engine.Report) error {
	var bad, fixes []string
	for _, f := range report.Findings {
		if f.Level != "error" {
			continue
		}
		bad = append(bad, findingText(f))
		if f.Fix != "" {
			fixes = append(fixes, f.Fix)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	e := sqlstate.New(sqlstate.ObjectNotInState, "the database cannot be shard %s as it is set up now", name).
		WithDetail("%s", strings.Join(bad, "; ")).OnShard(name)
	e.Hint = "set it right and run the command again"
	if len(fixes) > 0 {
		e.Hint = "run there: " + strings.Join(fixes, "; ")
	}
	return e
}

// RemoveShard takes a shard that owns nothing out of the map. Its database is
// left as it is; its guards go on refusing rows. A shard that does not answer is not asked; a move that was given up and only waits to clean
// up there ends with it. Errors: 42704 if there is no such shard, 55006
// while it owns something or is the default shard, or a transaction over several shards has something prepared on it or its decision there; 55P03 when the reference tables were not to be locked on all others together, 57P03
// when one of those cannot be reached: nothing was changed then.
func (o *Ops) RemoveShard(ctx context.Context, req RemoveShardRequest) (*Result, error) {
	lost := sync.OnceValue(func() bool { return o.lost(ctx, req.Name) })
	edit := func(cur *shardmap.Snapshot) (*shardmap.State, error) {
		if _, ok := cur.Shard(req.Name); !ok {
			return nil, noShard(req.Name)
		}
		st := cur.State()
		inUse := func(why, hint string) error {
			e := sqlstate.New(sqlstate.ObjectInUse, "shard %s cannot be removed: %s", req.Name, why).OnShard(req.Name)
			e.Hint = hint
			return e
		}
		if st.DefaultShard == req.Name {
			return nil, inUse("it is the default shard, which has the tables that are not sharded", "make another one the default shard: cleave shard default NAME")
		}
		var owns []string
		pins := 0
		for i := range st.Keyspaces {
			k := &st.Keyspaces[i]
			n := 0
			for _, r := range k.Ranges {
				if r.Shard == req.Name {
					n++
				}
			}
			for _, v := range k.Values {
				if v.Shard == req.Name {
					n++
				}
			}
			for _, p := range k.Pins {
				if p.Shard == req.Name {
					pins++
				}
			}
			if n > 0 {
				owns = append(owns, fmt.Sprintf("%d in keyspace %s", n, k.Name))
			}
		}
		switch {
		case len(owns) > 0:
			return nil, inUse("it owns ranges ("+strings.Join(owns, ", ")+")", fmt.Sprintf("move everything off it first: cleave shard drain %s", req.Name))
		case pins > 0:
			return nil, inUse(fmt.Sprintf("%d keys are pinned to it", pins), fmt.Sprintf("unpin them first; see: SELECT * FROM cleave.pins WHERE shard = '%s'", req.Name))
		}
		next := st.Clone()
		for i := range st.Keyspaces {
			k := &st.Keyspaces[i]
			for _, t := range k.Transits {
				if t.From != req.Name && t.To != req.Name {
					continue
				}
				if o.givenUp(ctx, t.ID) == req.Name && lost() {
					next.DropTransit(k.Name, t.ID) // with the shard: its rows are nobody's then
					continue
				}
				what := t.Text() + " of keyspace " + k.Name
				if req.Name == t.From {
					return nil, inUse("move "+t.ID+" can still be reversed, or has old rows, of "+what+" there", fmt.Sprintf("to complete it and delete them: cleave complete %s; if the shard is lost, run this command again then", t.ID))
				}
				return nil, inUse("move "+t.ID+" is bringing "+what+" there", fmt.Sprintf("see: cleave moves %s; to end it: cleave cancel %[1]s; if the shard is lost, run this command again then", t.ID))
			}
		}
		next.DropShard(req.Name)
		return &next, nil
	}
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := edit(cur); err != nil {
		return nil, err
	}
	res := &Result{Version: cur.Version(), Plan: []string{"take " + req.Name + " out of the map; its database stays as it is"}}
	if req.DryRun {
		return res, nil
	}
	leaving := o.there(ctx, req.Name, referenceTables(cur))
	if leaving != "" {
		if err := o.part(ctx, leaving); err != nil {
			return nil, err
		}
	}
	for range updateTries {
		if cur, err = o.load(ctx); err != nil {
			return nil, err
		}
		next, err := edit(cur)
		if err != nil {
			return nil, err
		}
		after, err := shardmap.NewSnapshot(*next)
		if err != nil {
			return nil, err
		}
		// The guards of reference tables change with the map: who writes to them meanwhile waits, and then has the newer one.
		copies := &held{}
		if tables := referenceTables(after); len(tables) > 0 {
			if copies, err = o.regard(ctx, cur, after, tables, leaving); err != nil {
				return nil, err
			}
		}
		if err := o.step("held", req.Name); err != nil {
			return nil, errors.Join(err, copies.end("ROLLBACK"))
		}
		snap, err := o.opts.Directory.Update(ctx, shardmap.Change{Expect: cur.Version(), By: req.by(), Why: req.why("remove shard " + req.Name), Op: "shard_remove"}, *next)
		if sqlstate.CodeOf(err) == sqlstate.TransactionUnknown {
			// If it comes to be stored later, the guards are as after a crash.
			if now, load := o.load(ctx); load == nil {
				if _, there := now.Shard(req.Name); !there {
					snap, err = now, nil
				}
			}
		}
		if err != nil {
			if leaving != "" {
				o.stays(ctx, leaving)
			}
			back := copies.end("ROLLBACK")
			if errors.Is(err, shardmap.ErrConflict) && back == nil {
				continue
			}
			return nil, errors.Join(directoryError(err), back)
		}
		o.opts.Log.Info("map changed", "version", snap.Version(), "op", "shard_remove", "shard", req.Name, "by", req.by())
		if err := o.step("mapped", req.Name); err != nil {
			return nil, errors.Join(err, copies.end("ROLLBACK"))
		}
		o.forget(req.Name)
		res.Version, res.Done = snap.Version(), true
		if err := copies.end("COMMIT"); err != nil {
			e := *sqlstate.As(err)
			e.Message = "the shard is removed, but guards of reference tables could not be set, which take no writes until then: " + e.Message
			e.Hint = "cleave doctor --repair"
			return nil, &e
		}
		o.settle(ctx, snap)
		return res, nil
	}
	return nil, busyMap()
}

// Bootstrap makes a cluster of databases, or finds it again. The map is written
// first and the databases are marked after it, so that a start that was cut off is finished by
// the next one. A second call brings changed URLs into the map.
//
// Errors: 22023 for a list that cannot be a cluster; 55000 when a database
// belongs to another cluster or shard, or is not fit; 57P03 when one cannot be reached.
func (o *Ops) Bootstrap(ctx context.Context, req BootstrapRequest) (*BootstrapResult, error) {
	if len(req.Shards) == 0 {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "a cluster needs at least one shard")
	}
	want, err := o.shardsWanted(req.Shards)
	if err != nil {
		return nil, err
	}
	snap, err := o.opts.Directory.Load(ctx)
	created := false
	var warnings []string
	if errors.Is(err, shardmap.ErrNotFound) {
		snap, warnings, created, err = o.create(ctx, req.Meta, want)
	}
	if err != nil {
		return nil, directoryError(err)
	}
	if !created {
		if snap, err = o.found(ctx, req.Meta, want); err != nil {
			return nil, err
		}
	}
	if err := o.step("map", ""); err != nil {
		return nil, err
	}
	for i := range want {
		if err := o.install(ctx, snap.State().Cluster, &want[i]); err != nil {
			return nil, err
		}
		if err := o.step("installed", want[i].Name); err != nil {
			return nil, err
		}
	}
	if created {
		// What the default shard has already becomes known as unsharded tables.
		if _, err := schema.Recover(ctx, schema.RecoverOptions{Directory: o.opts.Directory, Connect: o.connect, Actor: req.by(), LockTimeout: o.opts.LockTimeout, Adopt: true}); err != nil {
			return nil, err
		}
		if snap, err = o.load(ctx); err != nil {
			return nil, err
		}
	}
	return &BootstrapResult{Cluster: snap.State().Cluster, Version: snap.Version(), Created: created, Warnings: warnings}, nil
}

// shardsWanted are the shards of a list, each with another name and database.
func (o *backend) shardsWanted(list []BootstrapShard) ([]shardmap.Shard, error) {
	want := make([]shardmap.Shard, len(list))
	for i, s := range list {
		d, err := o.driver(s.URL)
		if err != nil {
			return nil, err
		}
		want[i] = shardmap.Shard{Name: s.Name, Engine: d.Name(), URL: s.URL, Labels: s.Labels, Weight: s.Weight}
		if s.Weight == 0 {
			want[i].Weight = 1
		}
		for _, other := range want[:i] {
			if other.Name == s.Name || sameDatabase(other.URL, s.URL) {
				return nil, sqlstate.New(sqlstate.InvalidParameterValue, "shards %s and %s have the same name or database", other.Name, s.Name)
			}
		}
	}
	return want, nil
}

// create checks the databases and writes the first map. warnings are what is not as it should be there; created is false if
// somebody else was faster.
func (o *Ops) create(ctx context.Context, m Meta, want []shardmap.Shard) (snap *shardmap.Snapshot, warnings []string, created bool, err error) {
	st := shardmap.State{Format: shardmap.Format, Cluster: uuid.NewString(), DefaultShard: want[0].Name, Shards: want}
	if _, err := shardmap.NewSnapshot(st); err != nil {
		return nil, nil, false, err
	}
	for i := range want {
		sh, err := o.drivers[want[i].Engine].Open(engine.Config{Cluster: st.Cluster, Name: want[i].Name, URL: want[i].URL})
		if err != nil {
			return nil, nil, false, err
		}
		report, err := sh.Check(ctx)
		if err == nil {
			err = refused(want[i].Name, report)
		}
		if err := errors.Join(err, sh.Close()); err != nil {
			return nil, nil, false, err
		}
		for _, w := range warningsOf(report) {
			warnings = append(warnings, "shard "+want[i].Name+": "+w)
		}
	}
	snap, err = o.opts.Directory.Update(ctx, shardmap.Change{By: m.by(), Why: m.why("new cluster"), Op: "bootstrap"}, st)
	if errors.Is(err, shardmap.ErrConflict) {
		snap, err = o.load(ctx)
		return snap, nil, false, err
	}
	return snap, warnings, err == nil, err
}

// found brings the given shards' URLs into an existing map.
func (o *Ops) found(ctx context.Context, m Meta, want []shardmap.Shard) (*shardmap.Snapshot, error) {
	return o.update(ctx, shardmap.Change{By: m.by(), Why: m.why("the shards have new URLs"), Op: "shard_url"}, func(cur *shardmap.Snapshot) (*shardmap.State, error) {
		next := cur.State().Clone()
		changed := false
		for i := range want {
			is, ok := cur.Shard(want[i].Name)
			if !ok {
				return nil, sqlstate.New(sqlstate.ObjectNotInState, "the directory has the map of a cluster without shard %s", want[i].Name).
					WithHint("use the folder or directory of this cluster, or add the shard: cleave shard add %s URL", want[i].Name)
			}
			if is.Engine != want[i].Engine {
				return nil, sqlstate.New(sqlstate.ObjectNotInState, "shard %s is of engine %s in the map, not %s", is.Name, is.Engine, want[i].Engine).
					WithHint("start with the same engine as before, or with another data folder")
			}
			s := *is
			switch {
			case len(is.Replicas) == 0:
				s.URL = want[i].URL
			case sameDatabase(s.URL, want[i].URL):
				s.URL = want[i].URL
			default:
				// With replicas, any of the servers may be the first one now.
				s.Replicas = slices.Clone(is.Replicas)
				for j, url := range s.Replicas {
					if sameDatabase(url, want[i].URL) {
						s.Replicas[j] = want[i].URL
					}
				}
			}
			if s.URL != is.URL || !slices.Equal(s.Replicas, is.Replicas) {
				next.PutShard(s)
				changed = true
			}
		}
		if !changed {
			return nil, nil
		}
		return &next, nil
	})
}

// install marks a database as a shard of the cluster; if it is marked already, it only
// makes sure that it is this one.
func (o *Ops) install(ctx context.Context, cluster string, s *shardmap.Shard) error {
	sh, err := o.open(cluster, s)
	if err != nil {
		return err
	}
	return sh.Install(ctx)
}
