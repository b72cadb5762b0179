package executor

import "github.com/cleavedb/cleave/engine"

// countReplicas tells the metrics what is known of replicas, by their place
// among the shard's servers that are not the primary.
func (e *Executor) countReplicas() {
	if e.metrics == nil {
		return
	}
	e.mu.Lock()
	groups := e.groups
	e.mu.Unlock()
	for _, s := range e.Snapshot().Shards() {
		if len(s.Replicas) == 0 {
			continue
		}
		e.mu.Lock()
		g := groups[s.Name]
		e.mu.Unlock()
		if g == nil {
			continue
		}
		place := 0
		for _, d := range g.describe() {
			if d.Serves != engine.Primary {
				e.metrics.Replica(s.Name, place, d.Serves == engine.Replica, d.LagBytes, d.Lag)
				place++
			}
		}
	}
}
