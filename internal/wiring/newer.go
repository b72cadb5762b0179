package wiring

import "github.com/cleavedb/cleave/admin"

// stopNewer stops all shards if one of them has a guard that is newer than the map, and reports whether they are stopped. The
// others' guards need not show it: one that gave ranges away has the epoch of those that it kept.
// They go on when everything has been compared and no guard is newer any more.
func (r *Rooms) stopNewer(findings []admin.Finding, err error) bool {
	shards := r.Executor.Snapshot().Shards()
	var stop []string
	newer, whole := false, err == nil
	for _, f := range findings {
		// Of a table, or of what could not be looked at.
		whole = whole && !f.Later && (f.Level != admin.LevelError || f.Table != "")
		newer = newer || f.Newer
	}
	if newer || !whole && len(r.Executor.Stopped()) > 0 {
		for i := range shards {
			stop = append(stop, shards[i].Name)
		}
	}
	r.Executor.Stop(stop)
	return len(stop) > 0
}
