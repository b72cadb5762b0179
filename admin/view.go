package admin

import (
	"context"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// views are the operations that only look at the cluster.
type views struct {
	*backend
	started time.Time
}

// Status tells what this process knows of the cluster.
func (o *views) Status(ctx context.Context) (*Status, error) {
	snap, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	st := snap.State()
	return &Status{
		Cluster: st.Cluster, Version: st.Version, SchemaVersion: st.SchemaVersion, DefaultShard: st.DefaultShard,
		Shards: len(st.Shards), Keyspaces: len(st.Keyspaces), Tables: len(st.Tables),
		Software: o.opts.Software, Started: o.started,
	}, nil
}

// probesAtOnce bounds the shards that are probed at the same time.
const probesAtOnce = 16

// Shards lists the shards, each asked within Options.ProbeTimeout whether it answers.
func (o *views) Shards(ctx context.Context) ([]ShardInfo, error) {
	snap, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	st := snap.State()
	out := make([]ShardInfo, len(st.Shards))
	owned, pins := map[string]int{}, map[string]int{}
	for i := range st.Keyspaces {
		k := &st.Keyspaces[i]
		for _, r := range k.Ranges {
			owned[r.Shard]++
		}
		for _, v := range k.Values {
			owned[v.Shard]++
		}
		for _, p := range k.Pins {
			pins[p.Shard]++
		}
	}
	for i := range st.Shards {
		s := &st.Shards[i]
		labels := s.Labels
		if labels == nil {
			labels = map[string]string{}
		}
		out[i] = ShardInfo{Name: s.Name, Engine: s.Engine, URL: shardmap.Redacted(s.URL), Labels: labels, Weight: s.Weight,
			Default: s.Name == st.DefaultShard, State: s.Service.String(), StateWhy: s.StateWhy(), Ranges: owned[s.Name], Pins: pins[s.Name]}
	}
	atOnce(len(out), probesAtOnce, func(i int) {
		if len(st.Shards[i].Replicas) > 0 {
			(&replicas{o.backend}).replicaHealth(ctx, st.Cluster, &st.Shards[i], &out[i])
			return
		}
		began := time.Now()
		err := o.probe(ctx, st.Cluster, &st.Shards[i])
		out[i].Latency = float64(time.Since(began).Microseconds()) / 1000
		out[i].Health = Up
		if err != nil {
			out[i].Health, out[i].Reason = Down, sqlstate.As(err).Message
		}
	})
	return out, nil
}

// probe asks a shard whether it answers.
func (o *views) probe(ctx context.Context, cluster string, s *shardmap.Shard) error {
	ctx, cancel := context.WithTimeout(ctx, o.opts.ProbeTimeout)
	defer cancel()
	sh, err := o.open(cluster, s)
	if err != nil {
		return err
	}
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
	_, err = engine.Exec(conn, "SELECT 1")
	return err
}

// Keyspaces lists the keyspaces.
func (o *views) Keyspaces(ctx context.Context) ([]KeyspaceInfo, error) {
	snap, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	st := snap.State()
	tables := map[string]int{}
	for _, t := range st.Tables {
		tables[t.Keyspace]++
	}
	out := make([]KeyspaceInfo, 0, len(st.Keyspaces))
	for i := range st.Keyspaces {
		k := &st.Keyspaces[i]
		out = append(out, KeyspaceInfo{Name: k.Name, Strategy: string(k.Strategy), KeyTypes: typeNames(k.Types), Seed: k.Seed,
			Ranges: len(k.Ranges) + len(k.Values), Pins: len(k.Pins), Tables: tables[k.Name]})
	}
	return out, nil
}

func typeNames(types []keyspace.Type) []string {
	out := make([]string, len(types))
	for i, t := range types {
		out[i] = t.String()
	}
	return out
}

// Tables lists the tables.
func (o *views) Tables(ctx context.Context) ([]TableInfo, error) {
	snap, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	st := snap.State()
	all := make([]string, len(st.Shards))
	for i, s := range st.Shards {
		all[i] = s.Name
	}
	out := make([]TableInfo, 0, len(st.Tables))
	for _, t := range st.Tables {
		info := TableInfo{Schema: t.Schema, Name: t.Name, Kind: string(t.Kind), Keyspace: t.Keyspace, ShardKey: t.ShardKey, Shards: all}
		if t.Kind == shardmap.Whole {
			info.Shards = []string{st.DefaultShard}
		}
		out = append(out, info)
	}
	return out, nil
}

// Routers implements API.
func (o *views) Routers(ctx context.Context) ([]RouterInfo, error) {
	snap, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	members, err := o.opts.Directory.Members(ctx)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the members of the cluster cannot be read")
	}
	leader := ""
	if r, err := o.opts.Directory.Record(ctx, shardmap.LeaderRecord("coordinator")); err == nil {
		leader = string(r.Value)
	}
	out := make([]RouterInfo, 0, len(members))
	for _, m := range members {
		info := RouterInfo{
			ID: m.ID, Role: m.Role, Address: m.Address, Host: m.Host, Software: m.Software, Node: m.Node,
			Version: m.Acknowledged, Joined: m.Joined, LeaseLeft: m.Left.Seconds(), Leads: m.ID == leader,
		}
		if v := snap.Version(); v > m.Acknowledged && m.Role != "coordinator" {
			info.Lag = v - m.Acknowledged
		}
		out = append(out, info)
	}
	return out, nil
}

// indexes returns one keyspace of the current map, or all with "".
func (o *views) indexes(ctx context.Context, name string) ([]*shardmap.Index, error) {
	snap, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	if name != "" {
		ix, ok := snap.Keyspace(name)
		if !ok {
			return nil, noKeyspace(name)
		}
		return []*shardmap.Index{ix}, nil
	}
	var out []*shardmap.Index
	for i := range snap.State().Keyspaces {
		if ix, ok := snap.Keyspace(snap.State().Keyspaces[i].Name); ok {
			out = append(out, ix)
		}
	}
	return out, nil
}

// Ranges lists ranges and listed values. Fails with 42704 for an unknown keyspace.
func (o *views) Ranges(ctx context.Context, name string) ([]RangeInfo, error) {
	list, err := o.indexes(ctx, name)
	if err != nil {
		return nil, err
	}
	load, err := o.loads(ctx)
	if err != nil {
		return nil, err
	}
	out := []RangeInfo{}
	for _, ix := range list {
		k := ix.Def()
		for i, r := range k.Ranges {
			out = append(out, RangeInfo{Keyspace: k.Name, Position: i, Range: ix.RangeText(i), Low: strings.Join(r.Low, ","), High: strings.Join(r.High, ","), Shard: r.Shard, Epoch: r.Epoch, Load: load(k.Name, i)})
		}
		for i, v := range k.Values {
			text := strings.Join(v.Key, ",")
			out = append(out, RangeInfo{Keyspace: k.Name, Position: i, Range: text, Low: text, Shard: v.Shard, Epoch: v.Epoch, Load: load(k.Name, i)})
		}
	}
	return out, nil
}

// Pins lists pins. Fails with 42704 for an unknown keyspace.
func (o *views) Pins(ctx context.Context, name string) ([]PinInfo, error) {
	list, err := o.indexes(ctx, name)
	if err != nil {
		return nil, err
	}
	out := []PinInfo{}
	for _, ix := range list {
		for _, p := range ix.Def().Pins {
			out = append(out, PinInfo{Keyspace: ix.Def().Name, Key: p.Key, Shard: p.Shard, Epoch: p.Epoch})
		}
	}
	return out, nil
}

func (o *views) at(ctx context.Context, version uint64) (*shardmap.Snapshot, error) {
	if version == 0 {
		return o.load(ctx)
	}
	snap, err := o.opts.Directory.At(ctx, version)
	if err != nil {
		return nil, directoryError(err)
	}
	return snap, nil
}

// Map returns a version of the map with passwords taken out. Fails with 42704 if
// the version is not kept.
func (o *views) Map(ctx context.Context, version uint64) (*shardmap.State, error) {
	snap, err := o.at(ctx, version)
	if err != nil {
		return nil, err
	}
	st := snap.State().Clone()
	for i := range st.Shards {
		st.Shards[i].URL = shardmap.Redacted(st.Shards[i].URL)
		for j, url := range st.Shards[i].Replicas {
			st.Shards[i].Replicas[j] = shardmap.Redacted(url)
		}
	}
	return &st, nil
}

// The bounds of HistoryRequest.Limit.
const (
	historyDefault = 100
	historyMax     = 1000
)

// History lists changes of the map, oldest first.
func (o *views) History(ctx context.Context, req HistoryRequest) ([]shardmap.Entry, error) {
	switch {
	case req.Limit < 0 || req.Limit > historyMax:
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "limit must be from 1 to %d", historyMax)
	case req.Limit == 0:
		req.Limit = historyDefault
	}
	if req.Last {
		snap, err := o.load(ctx)
		if err != nil {
			return nil, err
		}
		if v := snap.Version(); v > uint64(req.Limit) {
			req.After = max(req.After, v-uint64(req.Limit))
		}
	}
	list, err := o.opts.Directory.History(ctx, req.After, req.Limit)
	if err != nil {
		return nil, directoryError(err)
	}
	for i := range list {
		list[i].Statement = schema.SQL(list[i])
	}
	return list, nil
}

// Diff compares two versions of the map. Fails with 42704 if one is not kept.
func (o *views) Diff(ctx context.Context, a, b uint64) ([]shardmap.Difference, error) {
	to, err := o.at(ctx, b)
	if err != nil {
		return nil, err
	}
	if a == 0 {
		if a = to.Version() - 1; a == 0 {
			return nil, sqlstate.New(sqlstate.InvalidParameterValue, "version 1 is the first: there is none before it").
				WithHint("name two versions; see: cleave map history")
		}
	}
	from, err := o.at(ctx, a)
	if err != nil {
		return nil, err
	}
	return shardmap.Diff(from, to), nil
}

// ShardOf tells where a key is. Errors: 42704 for an unknown keyspace, 22P02 and its kin for
// what is no key of it, 23514 for a value that is not listed.
func (o *views) ShardOf(ctx context.Context, req ShardOfRequest) (*ShardOfResult, error) {
	snap, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	ix, key, err := parseKey(snap, req.Keyspace, req.Key)
	if err != nil {
		return nil, err
	}
	a, err := ix.Locate(key)
	if err != nil {
		return nil, err
	}
	res := &ShardOfResult{Shard: a.Shard, Range: ix.RangeText(a.Range), Epoch: a.Epoch, Pinned: a.Pinned, Version: snap.Version()}
	if ix.Def().Strategy == keyspace.Hash {
		h := keyspace.HashKey(ix.Def().Seed, key)
		res.Hash = &h
	}
	return res, nil
}

func parseKey(snap *shardmap.Snapshot, ks string, texts []string) (*shardmap.Index, keyspace.Key, error) {
	ix, ok := snap.Keyspace(ks)
	if !ok {
		return nil, nil, noKeyspace(ks)
	}
	types := ix.Def().Types
	if len(texts) != len(types) {
		return nil, nil, sqlstate.New(sqlstate.InvalidParameterValue, "a key of keyspace %s has %d values (%s), not %d", ks, len(types), strings.Join(typeNames(types), ", "), len(texts))
	}
	key, err := keyspace.ParseKey(types, texts)
	if err != nil {
		return nil, nil, err
	}
	return ix, key, nil
}
