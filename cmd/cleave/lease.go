package main

import (
	"context"
	"time"

	"github.com/cleavedb/cleave/telemetry"
)

// leaseLook is how often the log is told of the lease. Statements look at each
// answer themselves; this is for whoever reads the log afterwards.
const leaseLook = 250 * time.Millisecond

// logLease logs when the router stops to serve because its lease ran out, why,
// and when it serves again, until ctx ends.
func (c *cluster) logLease(ctx context.Context) {
	if c.Executor.Lease() == nil {
		return
	}
	ticker := time.NewTicker(leaseLook)
	defer ticker.Stop()
	var stopped time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := c.Executor.Serving()
		switch {
		case err != nil && stopped.IsZero():
			stopped = time.Now()
			c.log.Warn("the lease on the directory has run out: no statement is answered until it is held again",
				telemetry.KeyError, c.Executor.Lease().Cause())
		case err == nil && !stopped.IsZero():
			c.log.Info("the lease on the directory is held again", "stopped_for", time.Since(stopped).Round(time.Millisecond))
			stopped = time.Time{}
		}
	}
}
