package executor

import "github.com/cleavedb/cleave/sqlstate"

// Stop has statements on these shards refused, and on no others, until it is called again: there are guards that are
// newer than the map, so nobody knows what they own. Schema changes and repairs (Connect) go on.
func (e *Executor) Stop(shards []string) {
	stopped := make(map[string]error, len(shards))
	for _, name := range shards {
		stopped[name] = sqlstate.New(sqlstate.ObjectNotInState, "shard %s is stopped: there are guards that are newer than the map", name).OnShard(name).
			WithHint("the directory was put back to an older state, and a person has to decide: cleave doctor")
	}
	if len(stopped) == 0 {
		e.stopped.Store(nil)
		return
	}
	e.stopped.Store(&stopped)
}

// Stopped are the shards that Stop named.
func (e *Executor) Stopped() []string {
	var out []string
	if m := e.stopped.Load(); m != nil {
		for name := range *m {
			out = append(out, name)
		}
	}
	return out
}

// Refusal is the answer to a statement that needs a shard, or may write there, which is not used for that at
// the moment; nil if it is. See shardmap.Snapshot.Refusal, and Stop.
func (e *Executor) Refusal(shard string, write bool) error {
	if m := e.stopped.Load(); m != nil {
		if err := (*m)[shard]; err != nil {
			return err
		}
	}
	return e.restriction(shard, write)
}

// restriction is the part of Refusal that the map says.
func (e *Executor) restriction(shard string, write bool) error {
	snap := e.Snapshot()
	if !snap.Restricted() {
		return nil
	}
	return snap.Refusal(shard, write)
}
