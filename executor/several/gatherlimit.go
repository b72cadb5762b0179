package several

import (
	"context"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/sqlstate"
)

// Bounds of gathers.
const (
	// GatherRowsMax and GatherBytesMax bound one gather where the settings
	// cleave.gather_rows_max and cleave.gather_bytes_max say nothing.
	GatherRowsMax  = 10_000_000
	GatherBytesMax = 4 << 30

	// smallValues and smallBytes are how much of a gather's relations travels as
	// parameters of the final text, without temporary tables.
	smallValues = 1000
	smallBytes  = 32 << 10
	// ownerValues and ownerBytes are those in the transaction of a schema change: all of them. A text has
	// no more than 65,535 parameters.
	ownerValues = 50_000
	ownerBytes  = 16 << 20

	// gathersMax is how many gathers of a router may have temporary tables at a
	// time; others wait for gatherWait.
	gathersMax = 32
	gatherWait = 10 * time.Second
	// scratchWait is how long a gather waits for a conversation of the pool, before
	// it opens one of its own.
	scratchWait = 100 * time.Millisecond

	// indexRows is from how many rows on indexes and statistics pay.
	indexRows = 1000
)

// Names of the session settings that bound a gather: the rows and bytes of all its
// relations together. 0 is the router's default.
const (
	GatherRowsSetting  = "cleave.gather_rows_max"
	GatherBytesSetting = "cleave.gather_bytes_max"
)

// gatherLimits are the bounds of one gather.
type gatherLimits struct{ rows, bytes int64 }

func (d *Defaults) limits(s *executor.Settings) gatherLimits {
	l := gatherLimits{rows: GatherRowsMax, bytes: GatherBytesMax}
	if d.GatherRowsMax > 0 {
		l.rows = d.GatherRowsMax
	}
	if d.GatherBytesMax > 0 {
		l.bytes = d.GatherBytesMax
	}
	if s.Len() == 0 {
		return l
	}
	if n, ok := Number(s.Text(GatherRowsSetting), false); ok && n > 0 {
		l.rows = n
	}
	if n, ok := Number(s.Text(GatherBytesSetting), true); ok && n > 0 {
		l.bytes = n
	}
	return l
}

func (l gatherLimits) check(rows, bytes int64) error {
	switch {
	case rows > l.rows:
		return sqlstate.New(sqlstate.ConfigurationLimit, "the statement has to bring more than %d rows of several shards together", l.rows).
			WithHint("add conditions, or raise the setting %s", GatherRowsSetting)
	case bytes > l.bytes:
		return sqlstate.New(sqlstate.ConfigurationLimit, "the statement has to bring more than %d bytes of several shards together", l.bytes).
			WithHint("add conditions, read fewer columns, or raise the setting %s", GatherBytesSetting)
	}
	return nil
}

// enterGather waits for a place among those that have temporary tables.
func (s *Shared) enterGather(ctx context.Context) error {
	select {
	case s.gathers <- struct{}{}:
		return nil
	default:
	}
	wait := time.NewTimer(gatherWait)
	defer wait.Stop()
	select {
	case s.gathers <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-wait.C:
		e := sqlstate.New(sqlstate.TooManyConnections, "%d statements bring rows of several shards together already, and none ended within %v", gathersMax, gatherWait)
		e.Retry = sqlstate.RetrySafe
		return e.WithHint("nothing was done: run it again")
	}
}

func (s *Shared) leaveGather() { <-s.gathers }
