package executor

import "github.com/cleavedb/cleave/shardmap"

// Lease is the right to serve by the map, nil if none is needed.
func (e *Executor) Lease() *shardmap.Lease { return e.lease }
