package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// setProperties changes a shard's URL, weight and labels in the map. A new URL is taken only if the shard's own database is
// there: its marks, its role, what the map says of its schema and guards. While the database at the present URL
// answers too, both have to be one and the same, since otherwise both would take writes. Routers follow the map: new
// connections go to the new URL, those in use end when their transaction does.
//
// Errors: 42704 if there is no such shard; 22023 for a state beside them and for values that are none; 0A000 for the URL of a
// SQLite shard; 42710 if the database is another shard's; 55000 when it is not this shard's or is not as the
// map says; 57P03 and 28xxx when it cannot be asked.
func (o *Ops) setProperties(ctx context.Context, req SetShardRequest) (*Result, error) {
	if req.State != "" {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "a state cannot be set together with a URL, a weight or labels").WithHint("run two commands")
	}
	if req.Weight < 0 {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "the weight of a shard must be greater than 0")
	}
	ctx = engine.ForMaintenance(ctx)
	var plan []string
	edit := func(cur *shardmap.Snapshot) (*shardmap.State, error) {
		sh, ok := cur.Shard(req.Name)
		if !ok {
			return nil, noShard(req.Name)
		}
		set := *sh
		plan = nil
		if req.URL != "" {
			place, err := o.placeOf(cur, sh, req.URL)
			if err != nil {
				return nil, err
			}
			plan = append(plan, fmt.Sprintf("the URL %s of %s becomes %s", shardmap.Redacted(sh.Endpoints()[place]), sh.Name, shardmap.Redacted(req.URL)))
			if place == 0 {
				set.URL = req.URL
			} else {
				set.Replicas = slices.Clone(sh.Replicas)
				set.Replicas[place-1] = req.URL
			}
		}
		if req.Weight != 0 {
			plan = append(plan, fmt.Sprintf("its weight becomes %s (was %s)", weightText(req.Weight), weightText(sh.Weight)))
			set.Weight = req.Weight
		}
		if len(req.Labels) > 0 {
			plan = append(plan, setLabels(&set, req.Labels)...)
		}
		next := cur.State().Clone()
		next.PutShard(set)
		return &next, nil
	}
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	next, err := edit(cur)
	if err != nil {
		return nil, err
	}
	change := shardmap.Change{Expect: cur.Version(), By: req.by(), Why: req.why("shard " + req.Name + " is changed"), Op: "shard_set"}
	if _, err := shardmap.Advance(cur, change, *next); err != nil {
		return nil, err
	}
	res := &Result{Version: cur.Version()}
	if req.URL != "" {
		if res.Plan, err = o.checkURL(ctx, cur, req); err != nil {
			return nil, err
		}
	}
	res.Plan = append(res.Plan, plan...)
	if req.DryRun {
		return res, nil
	}
	snap, err := o.update(ctx, change, edit)
	if err != nil {
		return nil, err
	}
	res.Version, res.Done = snap.Version(), true
	if late := o.known(ctx, snap.Version()); late != "" {
		res.Warnings = append(res.Warnings, late+" goes by the map before: see cleave router list")
	}
	return res, nil
}

// setLabels sets labels over those that a shard has, and says so.
func setLabels(sh *shardmap.Shard, labels map[string]*string) (plan []string) {
	sh.Labels = maps.Clone(sh.Labels)
	if sh.Labels == nil {
		sh.Labels = map[string]string{}
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if v := labels[key]; v != nil {
			sh.Labels[key] = *v
			plan = append(plan, fmt.Sprintf("its label %s becomes %q", key, *v))
		} else {
			delete(sh.Labels, key)
			plan = append(plan, "its label "+key+" is taken away")
		}
	}
	return plan
}

// placeOf says which of a shard's servers a new URL is of: 0 is the first.
func (o *Ops) placeOf(cur *shardmap.Snapshot, sh *shardmap.Shard, url string) (int, error) {
	d, err := o.driver(url)
	if err != nil {
		return 0, err
	}
	if !sh.Can().Servers || d.Name() != sh.Engine {
		return 0, sqlstate.Refusal("CLV-1410", "the URL of shard %s, of engine %s, cannot become one of engine %s while it is used", sh.Name, sh.Engine, d.Name()).
			WithHint("Move its ranges to a shard that was added there: cleave shard add, then cleave shard drain.")
	}
	for i := range cur.Shards() {
		s := &cur.Shards()[i]
		for _, is := range s.Endpoints() {
			if s.Name != sh.Name && sameDatabase(is, url) {
				return 0, sqlstate.New(sqlstate.DuplicateObject, "the database is one of shard %s", s.Name).OnShard(s.Name).WithHint("every shard has a database of its own")
			}
		}
	}
	if len(sh.Replicas) == 0 {
		return 0, nil
	}
	i := slices.IndexFunc(sh.Endpoints(), func(is string) bool { return sameDatabase(is, url) })
	if i < 0 {
		return 0, sqlstate.New(sqlstate.ObjectNotInState, "shard %s has replicas, and none of its servers has the host, port and database of that URL", sh.Name).OnShard(sh.Name).
			WithHint("add the new server and take the old one out: cleave shard replica add %s URL, then cleave shard replica remove %[1]s OLD", sh.Name)
	}
	return i, nil
}

// checkURL makes sure that a URL leads to the shard's own database, and says what was checked.
func (o *Ops) checkURL(ctx context.Context, cur *shardmap.Snapshot, req SetShardRequest) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkMax)
	defer cancel()
	sh, _ := cur.Shard(req.Name)
	// What does not answer any more is asked for a part of the time.
	is, err := o.standing(ctx, cur.State().Cluster, sh, req.URL)
	if err != nil {
		if own := *sqlstate.As(err); own.Code == sqlstate.ObjectNotInState {
			return nil, own.WithHint("give the URL of the database that shard %s has now, or of what was restored from its backup", sh.Name)
		}
		return nil, err
	}
	place := shardmap.Redacted(req.URL)
	refuse := func(hint, format string, args ...any) error {
		return sqlstate.New(sqlstate.ObjectNotInState, format, args...).OnShard(sh.Name).WithHint("%s", hint)
	}
	if sh.System != "" && is.System != sh.System {
		return nil, refuse("SELECT * FROM cleave.endpoints shows the servers", "%s is not a server of shard %s: its system identifier is %s, that of the shard is %s", place, sh.Name, is.System, sh.System)
	}
	if err := o.oneOfThem(ctx, cur, sh, req.URL); err != nil {
		return nil, err
	}
	checked := []string{fmt.Sprintf("checked %s (version %d, a %s): it is the database of shard %s", place, is.Version/10000, is.Role, sh.Name)}
	if is.Role == engine.Replica {
		if len(sh.Replicas) == 0 {
			return nil, refuse("promote it first (pg_promote), or add it: cleave shard replica add "+sh.Name+" URL", "%s is a replica: it takes no writes", place)
		}
		return checked, nil
	}
	if err := o.fit(ctx, cur, sh, req.URL); err != nil {
		return nil, err
	}
	return append(checked, "its settings, its tables and its guards are as the map says"), nil
}

// oneOfThem refuses a URL that leads to another running server than the present one, if that answers.
func (o *Ops) oneOfThem(ctx context.Context, cur *shardmap.Snapshot, sh *shardmap.Shard, url string) error {
	now, err := o.instance(ctx, cur.State().Cluster, sh, url)
	if err != nil {
		return err
	}
	for _, other := range sh.Endpoints() {
		if len(sh.Replicas) > 0 && !sameDatabase(other, url) {
			continue // another server of the shard
		}
		was, err := o.instance(ctx, cur.State().Cluster, sh, other)
		switch code := sqlstate.CodeOf(err); {
		case err == nil && was != now:
			return sqlstate.New(sqlstate.ObjectNotInState, "the database at the present URL of shard %s answers too, and is another one: both would take writes", sh.Name).OnShard(sh.Name).
				WithHint("stop the server at %s first; to bring its rows to another server while they are used: cleave shard add, then cleave shard drain %s", shardmap.Redacted(other), sh.Name)
		case err != nil && strings.HasPrefix(string(code), "28") && !sameDatabase(other, url):
			return sqlstate.Wrap(err, sqlstate.ObjectNotInState, "the server at the present URL of shard %s answers, but refuses its credentials: it is not known whether it is the same database", sh.Name).OnShard(sh.Name).
				WithHint("give the new credentials with the present host, port and database first; or stop the server at %s", shardmap.Redacted(other))
		}
	}
	return nil
}

// instance asks which running server and database is at a URL of a shard.
func (o *Ops) instance(ctx context.Context, cluster string, s *shardmap.Shard, url string) (is string, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.opts.ProbeTimeout)
	defer cancel()
	err = o.conversing(ctx, cluster, s, url, func(_ engine.Shard, conn engine.Conn) error {
		l, ok := conn.(engine.Located)
		if !ok {
			return sqlstate.Refusal("CLV-1411", "shards of engine %s cannot be told from their copies", s.Engine).OnShard(s.Name)
		}
		is, err = l.Instance(ctx)
		return err
	})
	return is, err
}

// conversing runs something over a conversation of its own with the database at a URL, which has the marks of the shard.
func (o *Ops) conversing(ctx context.Context, cluster string, s *shardmap.Shard, url string, run func(engine.Shard, engine.Conn) error) (err error) {
	sh, err := o.drivers[s.Engine].Open(engine.Config{Cluster: cluster, Name: s.Name, URL: url})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	conn, release, err := dial(ctx, sh)
	if err != nil {
		return err
	}
	defer release(false)
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	return run(sh, conn)
}

// fit refuses a database that is not set up as a shard's has to be, or whose tables and guards are not as the map says.
func (o *Ops) fit(ctx context.Context, cur *shardmap.Snapshot, s *shardmap.Shard, url string) error {
	return o.conversing(ctx, cur.State().Cluster, s, url, func(sh engine.Shard, conn engine.Conn) error {
		report, err := sh.Check(ctx)
		if err != nil {
			return err
		}
		if err := refused(s.Name, report); err != nil {
			return err
		}
		found, err := schema.Differences(ctx, schema.RecoverOptions{Directory: o.opts.Directory, Connect: o.connect, LockTimeout: o.opts.LockTimeout}, cur, s.Name, conn)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return nil
		}
		e := sqlstate.New(sqlstate.ObjectNotInState, "the database is not as the map says: %s", found[0].What).OnShard(s.Name)
		if len(found) > 1 {
			e = e.WithDetail("There are %d differences.", len(found))
		}
		return e.WithHint("it may be an older state of the shard, or a schema change is under way; bring it to the newest state, then run the command again")
	})
}
