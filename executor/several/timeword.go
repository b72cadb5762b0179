package several

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// timeWords puts the transaction's time in place of parameters that are the word now:
// each shard would read it with the time of its own transaction.
//
// Errors: 0A000 for the other words, and for now where it depends on the time zone.
func (c *Conn) timeWords(ctx context.Context, e *execution) error {
	if e.st.Kind != planner.Several && !c.block {
		return nil
	}
	copied := false
	for i, v := range e.args.Values {
		if len(v) < 3 || len(v) > 64 || i >= len(e.desc.params) || wire.FormatAt(e.args.Formats, i) != 0 {
			continue
		}
		switch e.desc.params[i] {
		case pgDate, pgTime, pgTimestamp, pgTimestamptz, pgTimetz:
		default:
			continue
		}
		if !planner.TimeWord(string(v)) {
			continue
		}
		word := strings.ToLower(strings.TrimSpace(string(v)))
		if e.desc.params[i] != pgTimestamptz || word != "now" {
			return sqlstate.Refuse("the parameter $"+itoa(i+1)+" is the word "+word+", which each shard would read with the time of its own transaction", "pass the time itself, or write now() or current_date")
		}
		now, err := c.clock(ctx)
		if err != nil {
			return err
		}
		if !copied {
			copied = true
			args := *e.args
			args.Values = slices.Clone(args.Values)
			e.args = &args
		}
		e.args.Values[i] = []byte(now)
	}
	return nil
}
