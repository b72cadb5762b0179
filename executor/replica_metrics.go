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
		e.mu.Lock()
		g := groups[s.Name]
		e.mu.Unlock()
		if len(s.Replicas) == 0 || g == nil {
			e.metrics.Replicas(s.Name, 0)
			continue
		}
		place := 0
		for _, d := range g.describe() {
			if d.Serves != engine.Primary {
				e.metrics.Replica(s.Name, place, d.Serves == engine.Replica, d.LagBytes, d.Lag)
				place++
			}
		}
		e.metrics.Replicas(s.Name, place)
	}
}
