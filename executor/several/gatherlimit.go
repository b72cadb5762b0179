package several

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/sqlstate"
)

// Bounds of gathers.
const (
	// RowsMaxDefault and BytesMaxDefault bound one gather where the settings
	// cleave.gather_rows_max and cleave.gather_bytes_max say nothing.
	RowsMaxDefault  = 10_000_000
	BytesMaxDefault = 4 << 30

	// smallValues and smallBytes are how much of a gather's relations travels as
	// parameters of the final text, without temporary tables.
	smallValues = 1000
	smallBytes  = 32 << 10

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

// Names of the settings that bound a gather.
const (
	rowsSetting  = "cleave.gather_rows_max"
	bytesSetting = "cleave.gather_bytes_max"
)

// gatherLimits are the bounds of one gather.
type gatherLimits struct{ rows, bytes int64 }

func limitsOf(s *executor.Settings) gatherLimits {
	return gatherLimits{rows: number(s, rowsSetting, RowsMaxDefault), bytes: number(s, bytesSetting, BytesMaxDefault)}
}

// number reads a setting that was checked when it was set. 0 is the default.
func number(s *executor.Settings, name string, otherwise int64) int64 {
	text, ok := s.Get(name)
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseInt(strings.Trim(text, "' "), 10, 64)
	if err != nil || n <= 0 {
		return otherwise
	}
	return n
}

func (l gatherLimits) check(rows, bytes int64) error {
	switch {
	case rows > l.rows:
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "the statement has to bring more than %d rows of several shards together", l.rows).
			WithHint("add conditions, or raise the setting %s", rowsSetting)
	case bytes > l.bytes:
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "the statement has to bring more than %d bytes of several shards together", l.bytes).
			WithHint("add conditions, read fewer columns, or raise the setting %s", bytesSetting)
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
