package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// SetShardRequest sets what a shard is used for, or what the map says of it: State alone, or any of the others.
type SetShardRequest struct {
	Meta
	Name string `json:"name"`
	// State is "normal", "read-only" or "out-of-service"; "" leaves it. Why is told to those who are refused.
	State string `json:"state,omitempty"`
	// URL is where the shard's database is from now on; "" leaves it. Of a shard with replicas it is
	// the new URL of the server at the same host, port and database.
	URL string `json:"url,omitempty"`
	// Weight is the share of the load that it should carry; 0 leaves it.
	Weight float64 `json:"weight,omitempty"`
	// Labels are set over those that it has; null takes one away.
	Labels map[string]*string `json:"labels,omitempty"`
}

// knownMax bounds the wait until every router knows what a shard is used for.
const knownMax = 10 * time.Second

// SetShard makes a shard read-only, takes it out of service, or makes it normal again. The shard's guards change with
// the map, in a transaction that is committed when the map is stored: they let no write of a sharded or reference table through
// but in state normal. A shard that does not answer can be taken out of service; its guards stay as they are then, which
// a warning says.
//
// With a URL, weight or labels it changes those; see setProperties.
//
// Errors: 42704 if there is no such shard, 22023 for an unknown state, 55P03 if the guards' locks were not to be
// had because a transaction that writes there does not end: nothing was changed then; 57P03 if the shard does not answer.
func (o *Ops) SetShard(ctx context.Context, req SetShardRequest) (*Result, error) {
	if req.URL != "" || req.Weight != 0 || len(req.Labels) > 0 {
		return o.setProperties(ctx, req)
	}
	if req.State == "" {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "nothing is given that is to be changed").WithHint("give a state, a URL, a weight or labels")
	}
	service, err := shardmap.ParseService(req.State)
	if err != nil {
		return nil, err
	}
	ctx = engine.ForMaintenance(ctx)
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	sh, ok := cur.Shard(req.Name)
	if !ok {
		return nil, noShard(req.Name)
	}
	res := &Result{Version: cur.Version(), Plan: servicePlan(cur, sh, service)}
	if req.DryRun {
		return res, nil
	}
	for range updateTries {
		if cur, err = o.load(ctx); err != nil {
			return nil, err
		}
		if sh, ok = cur.Shard(req.Name); !ok {
			return nil, noShard(req.Name)
		}
		next := cur.State().Clone()
		set := *sh
		if set.Service != service {
			set.ServiceSince = time.Now().Unix()
		}
		if set.Service, set.ServiceWhy = service, req.Why; service == shardmap.InService {
			set.ServiceWhy, set.ServiceSince = "", 0
		}
		next.PutShard(set)
		change := shardmap.Change{Expect: cur.Version(), By: req.by(), Why: req.why("shard " + req.Name + " is " + service.String()), Op: "shard_set"}
		after, err := shardmap.Advance(cur, change, next)
		if err != nil {
			return nil, err
		}
		commit, err := o.guardService(ctx, req.Name, after)
		if err != nil {
			if service != shardmap.OutOfService || ctx.Err() != nil || sqlstate.CodeOf(err) == sqlstate.LockNotAvailable {
				return nil, err
			}
			res.Warnings = append(res.Warnings[:0], "shard "+req.Name+" does not answer ("+sqlstate.As(err).Message+"): its guards are as they were, so who writes there past the routers is not refused")
			commit = func(bool) error { return nil }
		}
		snap, err := o.opts.Directory.Update(ctx, change, next)
		if err != nil {
			back := commit(false)
			if errors.Is(err, shardmap.ErrConflict) && back == nil {
				continue
			}
			return nil, errors.Join(directoryError(err), back)
		}
		if err := commit(true); err != nil {
			res.Warnings = append(res.Warnings, "the guards of "+req.Name+" could not be set ("+sqlstate.As(err).Message+"): cleave doctor --repair")
		}
		o.opts.Log.Info("map changed", "version", snap.Version(), "op", change.Op, "shard", req.Name, "state", service.String(), "by", req.by(), "why", req.Why)
		res.Version, res.Done = snap.Version(), true
		if late := o.known(ctx, snap.Version()); late != "" {
			res.Warnings = append(res.Warnings, late+" has a statement under way by the map before: see cleave router list")
		}
		return res, nil
	}
	return nil, busyMap()
}

// servicePlan says what a state of a shard means.
func servicePlan(cur *shardmap.Snapshot, sh *shardmap.Shard, to shardmap.Service) []string {
	plan := []string{fmt.Sprintf("%s is %s and becomes %s", sh.Name, sh.Service, to)}
	refused := "with 57P03"
	switch to {
	case shardmap.InService:
		return append(plan, "its guards let writes of its keys through again")
	case shardmap.ReadOnly:
		refused = "with 25006"
		plan = append(plan, "statements that may write there are refused with 25006, reads and moves off it go on", "its guards refuse writes of sharded and reference tables from every sender")
	case shardmap.OutOfService:
		plan = append(plan, "statements that need it are refused with 57P03 at once, moves wait", "its guards refuse writes of sharded and reference tables from every sender")
	}
	if len(referenceTables(cur)) > 0 {
		plan = append(plan, "writes of reference tables are refused "+refused+": they are on every shard")
	}
	if cur.State().DefaultShard == sh.Name {
		plan = append(plan, "it is the default shard: the same holds for tables that are not sharded")
	}
	return append(plan, "schema changes are refused until it is normal again")
}

// guardService sets the guards of a shard in a transaction, which commit ends.
func (o *Ops) guardService(ctx context.Context, name string, after *shardmap.Snapshot) (commit func(bool) error, err error) {
	limit, cancel := context.WithTimeout(ctx, checkMax)
	defer cancel()
	conn, release, err := o.connect(limit, name)
	if err != nil {
		return nil, err
	}
	end := func(text string) error {
		_, err := engine.Exec(conn, text)
		release(err != nil)
		return err
	}
	if _, err := engine.Exec(conn, "BEGIN"); err != nil {
		release(true)
		return nil, err
	}
	bound, stop := context.WithTimeout(ctx, max(o.opts.LockTimeout, time.Second))
	defer stop()
	if _, err := schema.GuardsFit(limit, o.opts.Directory, conn, "", name); err != nil {
		return nil, errors.Join(err, end("ROLLBACK"))
	}
	if err := schema.SetGuards(bound, conn, after, name, nil); err != nil {
		return nil, errors.Join(err, end("ROLLBACK"))
	}
	return func(ok bool) error {
		if ok {
			return end("COMMIT")
		}
		return end("ROLLBACK")
	}, nil
}

// known waits until every member has acknowledged a version of the map, for a while. It returns who has not, "" if all have.
func (o *Ops) known(ctx context.Context, version uint64) string {
	bound, cancel := context.WithTimeout(ctx, knownMax)
	defer cancel()
	for {
		late := ""
		members, err := o.opts.Directory.Members(bound)
		for _, m := range members {
			if m.Role != "coordinator" && m.Acknowledged < version {
				late = m.Role + " " + m.Address + " on " + m.Host
			}
		}
		if err == nil && late == "" {
			return ""
		}
		select {
		case <-bound.Done():
			if late == "" {
				late = "a router" // the directory does not say which
			}
			return late
		case <-time.After(10 * time.Millisecond):
		}
	}
}
