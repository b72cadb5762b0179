package admin

import (
	"context"
	"fmt"
	"time"
)

// AskPools asks a member about its connections to the shards (shardmap.Ask). in: nothing; out: []PoolInfo.
const AskPools = "pools"

// poolsWait bounds the question: a router that is not there is no business of its pools.
const poolsWait = 3 * time.Second

// PoolInfo is a router's pool of connections to a shard.
type PoolInfo struct {
	Shard string `json:"shard"`
	Open  int    `json:"open"`
	Idle  int    `json:"idle"`
	// Reclaimed counts connections that sessions had lost, since the router's start.
	Reclaimed int64 `json:"reclaimed"`
}

// lostConnections names the routers whose sessions have lost connections: a defect of the router, which it makes good.
func (o *Ops) lostConnections(ctx context.Context) []Finding {
	members, err := o.opts.Directory.Members(ctx)
	if err != nil {
		return nil // the directory's finding
	}
	limit, stop := context.WithTimeout(ctx, poolsWait)
	defer stop()
	found := make([][]Finding, len(members))
	atOnce(len(members), probesAtOnce, func(i int) {
		var pools []PoolInfo
		if members[i].Role == "coordinator" || o.askMember(limit, members[i].ID, AskPools, struct{}{}, &pools, 0) != nil {
			return // an older one does not know the question
		}
		for _, p := range pools {
			if p.Reclaimed > 0 {
				found[i] = append(found[i], Finding{Level: LevelWarning, Shard: p.Shard,
					What: fmt.Sprintf("sessions of router %s have lost %d connections to shard %s since its start; they were taken back", routerName(&members[i]), p.Reclaimed, p.Shard),
					Next: "please report it with that router's log lines \"a connection was taken back\""})
			}
		}
	})
	var out []Finding
	for _, list := range found {
		out = append(out, list...)
	}
	return out
}
