package executor

import "github.com/cleavedb/cleave/shardmap"

// Lease is the right to serve by the map, nil if none is needed.
func (e *Executor) Lease() *shardmap.Lease { return e.lease }

// Member is the id with which the process has joined the cluster, "" if it has not.
func (e *Executor) Member() string { return e.member }
