package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// replicas are the operations on shards' replicas.
type replicas struct{ *backend }

// AddReplica adds a server to a shard. It must stream from the shard's primary
// already: it is asked for its system identifier, the shard's marks, its role and
// its version, and the primary for the same.
//
// Errors: 42704 if there is no such shard; 42710 if it has the server already;
// 0A000 for a SQLite shard; 55000 for a stranger, another shard's server, a
// server that is no replica, another major version; 57P03 when it, or the primary,
// cannot be reached.
func (o *replicas) AddReplica(ctx context.Context, req ReplicaRequest) (*Result, error) {
	var system string
	edit := func(cur *shardmap.Snapshot) (*shardmap.State, error) {
		sh, err := replicable(cur, req.Shard)
		if err != nil {
			return nil, err
		}
		for _, s := range cur.Shards() {
			for _, url := range s.Endpoints() {
				if sameDatabase(url, req.URL) {
					return nil, sqlstate.New(sqlstate.DuplicateObject, "the database is a server of shard %s already", s.Name).OnShard(s.Name).
						WithHint("SELECT * FROM cleave.endpoints shows the servers of all shards")
				}
			}
		}
		next := cur.State().Clone()
		s := *sh
		s.Replicas = append(slices.Clone(s.Replicas), req.URL)
		if system != "" {
			s.System = system
		} else if s.System == "" {
			s.System = "0" // not asked yet; validates
		}
		next.PutShard(s)
		return &next, nil
	}
	cur, err := o.tried(ctx, edit)
	if err != nil {
		return nil, err
	}
	sh, _ := cur.Shard(req.Shard)
	is, err := o.checkReplica(ctx, cur, sh, req.URL)
	if err != nil {
		return nil, err
	}
	system = is.System
	place := shardmap.Redacted(req.URL)
	res := &Result{Version: cur.Version(), Plan: []string{
		fmt.Sprintf("check %s (version %d, a replica on timeline %d)", place, is.Version/10000, is.Timeline),
		fmt.Sprintf("add it to shard %s in the map; routers ask it who it is from then on", sh.Name),
	}}
	if req.DryRun {
		return res, nil
	}
	snap, err := o.update(ctx, shardmap.Change{By: req.by(), Why: req.why("add a replica to shard " + req.Shard), Op: "replica_add"}, edit)
	if err != nil {
		return nil, err
	}
	res.Version, res.Done = snap.Version(), true
	return res, nil
}

func replicable(cur *shardmap.Snapshot, name string) (*shardmap.Shard, error) {
	sh, ok := cur.Shard(name)
	if !ok {
		return nil, noShard(name)
	}
	if !sh.Can().Servers {
		return nil, sqlstate.Refusal("CLV-1406", "shard %s is of engine %s, whose shards have no replicas", name, sh.Engine).
			WithHint("Replicas need a PostgreSQL shard.")
	}
	return sh, nil
}

// checkReplica makes sure that the database at url is a replica of the shard.
func (o *replicas) checkReplica(ctx context.Context, cur *shardmap.Snapshot, sh *shardmap.Shard, url string) (engine.Standing, error) {
	is, err := o.standing(ctx, cur.State().Cluster, sh, url)
	if err != nil {
		if as := sqlstate.As(err); as.Code == sqlstate.ObjectNotInState {
			e := *as
			return is, e.WithHint("if it is a replica of the shard's primary, it may not have replayed so far yet: run the command again")
		}
		return is, err
	}
	refuse := func(format string, args ...any) error {
		e := sqlstate.New(sqlstate.ObjectNotInState, format, args...)
		e.Shard = sh.Name
		return e.WithHint("make it with pg_basebackup -R from the shard's primary, then run the command again")
	}
	primary, failed := o.primaryOf(ctx, cur.State().Cluster, sh)
	place := shardmap.Redacted(url)
	switch {
	case primary == nil && failed != nil:
		return is, failed
	case primary == nil:
		return is, refuse("none of the servers of shard %s is a primary now", sh.Name)
	case is.System != primary.System || sh.System != "" && is.System != sh.System:
		return is, refuse("%s is not a copy of shard %s: its system identifier is %s, that of the primary is %s", place, sh.Name, is.System, primary.System)
	case is.Role != engine.Replica:
		return is, refuse("%s is not a replica: it takes writes of its own", place)
	case is.Version/10000 != primary.Version/10000:
		return is, refuse("%s is PostgreSQL %d, the primary of shard %s is %d", place, is.Version/10000, sh.Name, primary.Version/10000)
	}
	return is, nil
}

// primaryOf asks all servers of a shard, and returns what the newest primary says. failed is why one did not answer.
func (o *replicas) primaryOf(ctx context.Context, cluster string, sh *shardmap.Shard) (primary *engine.Standing, failed error) {
	for _, url := range sh.Endpoints() {
		st, err := o.standing(ctx, cluster, sh, url)
		switch {
		case err != nil:
			failed = err
		case st.Role == engine.Primary && (primary == nil || st.Timeline > primary.Timeline):
			primary = &st
		}
	}
	return primary, failed
}

// standing asks one server of a shard, on a conversation of its own, within
// Options.ProbeTimeout.
func (o *replicas) standing(ctx context.Context, cluster string, s *shardmap.Shard, url string) (engine.Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, o.opts.ProbeTimeout)
	defer cancel()
	var none engine.Standing
	d, ok := o.drivers[s.Engine]
	if !ok {
		return none, sqlstate.Refusal("CLV-1407", "this program has no engine %q", s.Engine).OnShard(s.Name)
	}
	sh, err := d.Open(engine.Config{Cluster: cluster, Name: s.Name, URL: url})
	if err != nil {
		return none, err
	}
	defer sh.Close()
	conn, release, err := dial(ctx, sh)
	if err != nil {
		return none, err
	}
	defer release(false)
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return none, err
		}
	}
	r, ok := conn.(engine.Replicated)
	if !ok {
		return none, sqlstate.Refusal("CLV-1408", "shards of engine %s have no replicas", s.Engine).
			WithHint("Replicas need a PostgreSQL shard.")
	}
	return r.Standing(context.WithoutCancel(ctx))
}

// RemoveReplica takes a server out of a shard. The server itself is left as it
// is. The one that is the primary now is refused: promote another first.
//
// Errors: 42704 if there is no such shard or server; 55006 for the primary and
// for a shard's only server.
func (o *replicas) RemoveReplica(ctx context.Context, req ReplicaRequest) (*Result, error) {
	var gone string
	edit := func(cur *shardmap.Snapshot) (*shardmap.State, error) {
		sh, err := replicable(cur, req.Shard)
		if err != nil {
			return nil, err
		}
		all := sh.Endpoints()
		i := slices.IndexFunc(all, func(url string) bool {
			return url == req.URL || shardmap.Redacted(url) == req.URL || sameDatabase(url, req.URL)
		})
		if i < 0 {
			return nil, sqlstate.New(sqlstate.UndefinedObject, "shard %s has no server %s", sh.Name, shardmap.Redacted(req.URL)).OnShard(sh.Name).
				WithHint("SELECT * FROM cleave.endpoints WHERE shard = '%s' shows its servers", sh.Name)
		}
		if len(all) == 1 {
			return nil, sqlstate.New(sqlstate.ObjectInUse, "it is the only server of shard %s", sh.Name).OnShard(sh.Name).WithHint("cleave shard remove %s takes the shard out", sh.Name)
		}
		gone = all[i]
		next := cur.State().Clone()
		s := *sh
		all = slices.Delete(all, i, i+1)
		if s.URL, s.Replicas = all[0], all[1:]; len(s.Replicas) == 0 {
			s.Replicas, s.System = nil, ""
		}
		next.PutShard(s)
		return &next, nil
	}
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := edit(cur); err != nil {
		return nil, err
	}
	sh, _ := cur.Shard(req.Shard)
	if err := o.mayLeave(ctx, cur, sh, gone); err != nil {
		return nil, err
	}
	res := &Result{Version: cur.Version(), Plan: []string{fmt.Sprintf("take %s out of shard %s; the server stays as it is", shardmap.Redacted(gone), sh.Name)}}
	if req.DryRun {
		return res, nil
	}
	snap, err := o.update(ctx, shardmap.Change{By: req.by(), Why: req.why("remove a server of shard " + req.Shard), Op: "replica_remove"}, edit)
	if err != nil {
		return nil, err
	}
	if s, ok := snap.Shard(req.Shard); ok && s.System == "" {
		// With one server there are no timelines to tell apart. An operator who adds replicas
		// again begins anew, after a restore for example.
		o.forgetTimeline(ctx, req.Shard)
	}
	res.Version, res.Done = snap.Version(), true
	return res, nil
}

func (o *replicas) forgetTimeline(ctx context.Context, shard string) {
	rec, err := o.opts.Directory.Record(ctx, shardmap.TimelineRecord(shard))
	if err == nil {
		err = o.opts.Directory.DeleteRecord(ctx, rec.Key, rec.Revision)
	}
	if err != nil && !errors.Is(err, shardmap.ErrNotFound) {
		o.opts.Log.Warn("the record of a shard's timeline was not deleted", "shard", shard, "error", err)
	}
}

// mayLeave refuses to take out the primary, or the server without which there is
// none that is known to be it.
func (o *replicas) mayLeave(ctx context.Context, cur *shardmap.Snapshot, sh *shardmap.Shard, gone string) error {
	all := o.endpoints(ctx, cur.State().Cluster, sh)
	for _, e := range all {
		if e.url != gone && e.info.Serves == string(engine.Primary) {
			return nil
		}
	}
	for _, e := range all {
		if e.url == gone && e.info.Serves == string(engine.Primary) {
			return sqlstate.New(sqlstate.ObjectInUse, "%s is the primary of shard %s", e.info.URL, sh.Name).OnShard(sh.Name).
				WithHint("promote another of its servers first (pg_promote)")
		}
	}
	return sqlstate.New(sqlstate.ObjectInUse, "shard %s has no other server that is its primary now", sh.Name).OnShard(sh.Name).
		WithHint("start or promote one first; SELECT * FROM cleave.endpoints WHERE shard = '%s' shows its servers", sh.Name)
}

type knownEndpoint struct {
	url  string
	info EndpointInfo
}

// endpoints asks all servers of a shard with replicas.
func (o *replicas) endpoints(ctx context.Context, cluster string, sh *shardmap.Shard) []knownEndpoint {
	urls := sh.Endpoints()
	out := make([]knownEndpoint, len(urls))
	all := make([]engine.Standing, len(urls))
	atOnce(len(urls), probesAtOnce, func(i int) {
		began := time.Now()
		st, err := o.standing(ctx, cluster, sh, urls[i])
		e := EndpointInfo{URL: shardmap.Redacted(urls[i]), Health: Up, Latency: float64(time.Since(began).Microseconds()) / 1000}
		if err == nil && sh.System != "" && st.System != sh.System {
			err = sqlstate.New(sqlstate.ObjectNotInState, "a stranger: its system identifier is %s, that of the shard is %s", st.System, sh.System)
		}
		if err != nil {
			e.Health, e.Reason = Down, sqlstate.As(err).Message
		} else {
			e.Role, e.Timeline = string(st.Role), st.Timeline
			all[i] = st
		}
		out[i] = knownEndpoint{urls[i], e}
	})
	primary, many := newestPrimary(all)
	for i := range out {
		e := &out[i].info
		switch {
		case e.Health == Down:
		case i == primary && !many:
			e.Serves = string(engine.Primary)
		case all[i].Role == engine.Primary:
			e.Reason = "an old primary, or one of two: it gets no statements"
		case primary >= 0 && all[i].Timeline == all[primary].Timeline:
			e.Serves = string(engine.Replica)
			lag := int64(0)
			if all[primary].At > all[i].At {
				lag = int64(all[primary].At - all[i].At)
			}
			e.LagBytes = &lag
		case primary >= 0:
			e.Reason = fmt.Sprintf("not known to follow the primary: its timeline is %d, that of the primary is %d", all[i].Timeline, all[primary].Timeline)
		default:
			e.Reason = fmt.Sprintf("a replica on timeline %d, and no server of the shard is its primary now", all[i].Timeline)
		}
	}
	return out
}

// newestPrimary is which server is the primary of the newest timeline, -1 if none is. many: another one says so as well.
func newestPrimary(all []engine.Standing) (primary int, many bool) {
	primary = -1
	for i, st := range all {
		if st.Role != engine.Primary {
			continue
		}
		switch {
		case primary < 0 || st.Timeline > all[primary].Timeline:
			primary, many = i, false
		case st.Timeline == all[primary].Timeline:
			many = true
		}
	}
	return primary, many
}

// examineServers looks at all servers of a shard with replicas, for Doctor. It
// returns the shard with the primary's URL, nil if none is known to be it.
func (o *replicas) examineServers(ctx context.Context, cluster string, sh *shardmap.Shard) (primary *shardmap.Shard, found []Finding) {
	all := o.endpoints(ctx, cluster, sh)
	serves := func(e knownEndpoint) bool { return e.info.Serves == string(engine.Primary) }
	for _, e := range all {
		what := fmt.Sprintf("shard %s, server %s", sh.Name, e.info.URL)
		switch {
		case e.info.Serves == string(engine.Primary):
			s := *sh
			s.URL = e.url
			primary = &s
		case e.info.Serves == string(engine.Replica):
			found = append(found, Finding{Level: LevelOK, Shard: sh.Name, What: fmt.Sprintf("%s: a replica, %d bytes behind", what, *e.info.LagBytes)})
		default:
			f := Finding{Level: LevelWarning, Shard: sh.Name, What: what + " gets no statements: " + e.info.Reason,
				Next: fmt.Sprintf("start it or make it a replica of the primary, or: cleave shard replica remove %s %s", sh.Name, e.info.URL)}
			if !slices.ContainsFunc(all, serves) { // it may be all that there is
				f.Next = "start the shard's primary, or promote the replica that has replayed most (pg_promote)"
			}
			found = append(found, f)
		}
	}
	if primary == nil {
		found = append(found, Finding{Level: LevelError, Shard: sh.Name, What: fmt.Sprintf("shard %s has no server that is known to be its primary: it takes no writes", sh.Name),
			Next: "start or promote one of its servers (pg_promote), then: cleave doctor"})
	}
	return primary, found
}

// replicaHealth fills what a shard with replicas shows: it is up if its primary is.
func (o *replicas) replicaHealth(ctx context.Context, cluster string, sh *shardmap.Shard, info *ShardInfo) {
	info.Health, info.Reason = Down, "none of its servers is known to be the primary"
	for _, e := range o.endpoints(ctx, cluster, sh) {
		info.Endpoints = append(info.Endpoints, e.info)
		if e.info.Serves == string(engine.Primary) {
			info.Health, info.Reason, info.Latency = Up, "", e.info.Latency
		}
	}
}

// marksMax bounds the wait for the marks of a new shard on its replicas.
const marksMax = 5 * time.Second

// addReplicas adds the replicas of a new shard; the first that fails ends it.
func (o *replicas) addReplicas(ctx context.Context, req AddShardRequest, res *AddShardResult) error {
	for _, url := range req.Replicas {
		r, err := o.AddReplica(ctx, ReplicaRequest{Meta: req.Meta, Shard: req.Name, URL: url})
		// The marks that were just written have to reach it.
		for end := time.Now().Add(marksMax); sqlstate.CodeOf(err) == sqlstate.ObjectNotInState && time.Now().Before(end) && ctx.Err() == nil; {
			time.Sleep(100 * time.Millisecond)
			r, err = o.AddReplica(ctx, ReplicaRequest{Meta: req.Meta, Shard: req.Name, URL: url})
		}
		if err != nil {
			return sqlstate.Wrap(err, sqlstate.CodeOf(err), "shard %s was added, but not its replica %s: %s", req.Name, shardmap.Redacted(url), sqlstate.As(err).Message).
				OnShard(req.Name).WithHint("set it right, then: cleave shard replica add %s URL", req.Name)
		}
		res.Version = r.Version
		res.Plan = append(res.Plan, r.Plan...)
	}
	return nil
}

// planReplicas says what addReplicas would do, and checks what can be checked
// before the shard is one: that the servers are copies of its database's.
func (o *replicas) planReplicas(ctx context.Context, req AddShardRequest, def *shardmap.Shard, res *AddShardResult) error {
	if len(req.Replicas) == 0 {
		return nil
	}
	if !def.Can().Servers {
		return sqlstate.Refusal("CLV-1409", "shards of engine %s have no replicas", def.Engine).WithHint("Leave --replica out.")
	}
	next := *def
	next.Replicas, next.System = req.Replicas, "0"
	st := shardmap.State{Format: shardmap.Format, Cluster: "new", DefaultShard: def.Name, Shards: []shardmap.Shard{next}}
	if _, err := shardmap.NewSnapshot(st); err != nil {
		return err
	}
	// Without a cluster the marks, which are not there yet, are not looked at.
	primary, err := o.standing(ctx, "", def, def.URL)
	if err != nil {
		return err
	}
	var bad []error
	for _, url := range req.Replicas {
		is, err := o.standing(ctx, "", def, url)
		if err == nil && (is.System != primary.System || is.Role != engine.Replica) {
			err = sqlstate.New(sqlstate.ObjectNotInState, "%s is not a replica of %s", shardmap.Redacted(url), shardmap.Redacted(def.URL)).OnShard(def.Name).
				WithHint("make it with pg_basebackup -R from there, then run the command again")
		}
		bad = append(bad, err)
		res.Plan = append(res.Plan, "add the replica "+shardmap.Redacted(url))
	}
	for _, err := range bad {
		if err != nil {
			return err
		}
	}
	return errors.Join(bad...)
}
