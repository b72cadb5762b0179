package main

import (
	"context"
	"errors"
	"time"

	"github.com/cleavedb/cleave/telemetry"
)

// leaseLook is how often the lease is looked at for the log. Statements look at each
// answer themselves; this is for an operator who reads the log afterwards.
const leaseLook = 250 * time.Millisecond

// logLease logs when the router stops to serve because its lease ran out, why,
// and when it serves again, until ctx ends.
func (c *cluster) logLease(ctx context.Context) {
	if c.Executor.Lease() == nil {
		return
	}
	ticker := time.NewTicker(leaseLook)
	defer ticker.Stop()
	stopped := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		switch lease := c.Executor.Lease(); {
		case !lease.Live() && !stopped:
			stopped = true
			cause := lease.Cause()
			if cause == nil {
				cause = errStoodStill
			}
			c.log.Warn("the lease on the directory has run out: no statement is answered until it is held again", telemetry.KeyError, cause)
		case lease.Live() && stopped:
			stopped = false
			c.log.Info("the lease on the directory is held again")
		}
	}
}

// errStoodStill is why a lease ran out of which no renewal failed.
var errStoodStill = errors.New("this process or its machine stood still")
