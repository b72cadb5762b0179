package admin

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/shardmap"
)

// HeatRequest asks where the load is.
type HeatRequest struct {
	Keyspace string `json:"keyspace,omitempty"` // "": all
	Limit    int    `json:"limit,omitempty"`    // ranges at most; 0: all that have any
}

// HeatInfo is where the load is, as the cluster's routers and programs have measured it over
// the last minutes.
type HeatInfo struct {
	Version uint64 `json:"version"` // of the map
	// Members is how many routers and programs have told what they see.
	Members int         `json:"members"`
	Shards  []ShardHeat `json:"shards"`
	Ranges  []RangeHeat `json:"ranges"` // ranges, listed values and pins, hottest first
	Keys    []KeyHeat   `json:"keys"`   // hot keys, hottest first
}

// ShardHeat is the load of a shard.
type ShardHeat struct {
	Shard      string  `json:"shard"`
	Statements float64 `json:"statements"` // a second
	Share      float64 `json:"share"`      // of all, 0 to 1
	// Over is the load over the shard's share by weight: 1 is even.
	Over float64 `json:"over"`
}

// RangeHeat is the load of a range, a listed value or a pin.
type RangeHeat struct {
	Keyspace   string  `json:"keyspace"`
	Part       string  `json:"part"` // printable
	Kind       string  `json:"kind"` // "range", "value" or "pin"
	Shard      string  `json:"shard"`
	Statements float64 `json:"statements"` // a second
	// Busy is how many of them are under way at a time: seconds of work a second.
	Busy  float64 `json:"busy"`
	Share float64 `json:"share"` // of all, 0 to 1
}

// KeyHeat is a key with a large share of the load.
type KeyHeat struct {
	Keyspace   string   `json:"keyspace"`
	Key        []string `json:"key"`
	Shard      string   `json:"shard"`
	Pinned     bool     `json:"pinned"`
	Statements float64  `json:"statements"` // a second, about
	Share      float64  `json:"share"`      // of all, 0 to 1
}

// Heat tells where the load is. Fails with 42704 for an unknown keyspace.
func (o *views) Heat(ctx context.Context, req HeatRequest) (*HeatInfo, error) {
	snap, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	if _, ok := snap.Keyspace(req.Keyspace); !ok && req.Keyspace != "" {
		return nil, noKeyspace(req.Keyspace)
	}
	h, err := shardmap.ReadHeat(ctx, o.opts.Directory, snap)
	if err != nil {
		return nil, directoryError(err)
	}
	info := &HeatInfo{Version: snap.Version(), Members: h.Members, Shards: []ShardHeat{}, Ranges: []RangeHeat{}}
	all, weights := 0.0, 0.0
	shards := map[string]float64{}
	for _, k := range snap.State().Keyspaces {
		if req.Keyspace != "" && k.Name != req.Keyspace {
			continue
		}
		ix, _ := snap.Keyspace(k.Name)
		for i := range ix.UnitCount() {
			n := h.Statements[ix.FirstUnit()+i]
			if n == 0 {
				continue
			}
			p, shard, kind := ix.Unit(i)
			all += n
			shards[shard] += n
			info.Ranges = append(info.Ranges, RangeHeat{Keyspace: k.Name, Part: p.Text(), Kind: kind, Shard: shard, Statements: n, Busy: h.Busy[ix.FirstUnit()+i]})
		}
	}
	slices.SortStableFunc(info.Ranges, func(a, b RangeHeat) int { return cmp.Compare(b.Statements, a.Statements) })
	if req.Limit > 0 {
		info.Ranges = info.Ranges[:min(req.Limit, len(info.Ranges))]
	}
	for i := range info.Ranges {
		info.Ranges[i].Share = info.Ranges[i].Statements / all
	}
	for _, s := range snap.Shards() {
		weights += s.Weight
	}
	for _, s := range snap.Shards() {
		heat := ShardHeat{Shard: s.Name, Statements: shards[s.Name]}
		if all > 0 {
			heat.Share = heat.Statements / all
			heat.Over = heat.Share * weights / s.Weight
		}
		info.Shards = append(info.Shards, heat)
	}
	info.Keys = keyHeats(snap, h.Keys, req.Keyspace, all)
	return info, nil
}

// keyHeats says of keys where they are, and what share of all statements they get.
func keyHeats(snap *shardmap.Snapshot, keys []shardmap.HotKey, only string, all float64) []KeyHeat {
	out := []KeyHeat{}
	for _, k := range keys {
		if only != "" && k.Keyspace != only {
			continue
		}
		ix, key, err := parseKey(snap, k.Keyspace, k.Key)
		if err != nil {
			continue // the keyspace is gone
		}
		a, err := ix.Locate(key)
		if err != nil {
			continue
		}
		heat := KeyHeat{Keyspace: k.Keyspace, Key: k.Key, Shard: a.Shard, Pinned: a.Pinned, Statements: k.Statements}
		if all > 0 {
			heat.Share = min(1, k.Statements/all)
		}
		out = append(out, heat)
	}
	return out
}

// KeyText is a key for people.
func (k *KeyHeat) KeyText() string { return strings.Join(k.Key, ", ") }

// loads returns what tells the load of a keyspace's range or listed value. Without a
// directory to ask it is 0.
func (o *views) loads(ctx context.Context) (func(ks string, place int) float64, error) {
	snap, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	h, err := shardmap.ReadHeat(ctx, o.opts.Directory, snap)
	if err != nil {
		return nil, directoryError(err)
	}
	return func(ks string, place int) float64 {
		ix, ok := snap.Keyspace(ks)
		if !ok || place >= ix.UnitCount() {
			return 0
		}
		return h.Statements[ix.FirstUnit()+place]
	}, nil
}
