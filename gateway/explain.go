package gateway

import (
	"fmt"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// explain answers EXPLAIN (ROUTE); with ANALYZE the statement is run as well,
// its rows counted and dropped.
func (x *commands) explain(st *plan.Statement, args *plan.Args) (*localResult, error) {
	snap, _ := x.snapshot()
	if args != nil && len(args.Values) == 0 {
		args = nil
	}
	lines, err := st.Explain(snap, args)
	if err != nil {
		return nil, err
	}
	if in := st.Inner; st.Refused == nil && in != nil && in.Refused == nil && in.Kind == plan.DefaultShard && !in.Copy {
		if err := x.validateOnShard(in); err != nil {
			return nil, err
		}
	}
	if st.Analyze && st.Refused == nil {
		more, err := x.analyze(st.Inner, args)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	l := &localResult{columns: localColumns(st), tag: "EXPLAIN"}
	for _, line := range lines {
		l.values = append(l.values, [][]byte{textOf(line)})
	}
	return l, nil
}

// validateOnShard lets the default shard analyse a statement, as EXPLAIN does in PostgreSQL: the map does not know what is
// whole, so it would say of a table that is not there where it would be.
func (x *commands) validateOnShard(st *plan.Statement) error {
	if err := x.reachFor(st, nil); err != nil {
		return err
	}
	if err := x.drain(); err != nil {
		return err
	}
	x.pipe.dirty = true
	x.pipe.Unnamed(&counter{}, st.Text, nil, x.pipe.Conn.Settings(), false)
	x.pipe.DescribeStatement("", true, nil)
	o, err := x.pipe.Run(executor.Sync, &counter{on: &x.unitRun})
	if err != nil {
		return x.lost(err, o.Err, executor.Sync, x.pipe.sent())
	}
	if x.tx.state == txNone || x.pipe.outside() {
		defer x.pipe.release()
	}
	if o.Err != nil {
		return &shardError{said: o.Err, frame: append([]byte(nil), x.pipe.ErrorFrame()...)}
	}
	return nil
}

// counter is a Sink that counts rows and keeps the command tag.
type counter struct {
	on    *unitRun
	rows  int
	bytes int
	tag   string
}

// Frames counts the rows in b.
func (c *counter) Frames(b []byte) error {
	frames(b, func(typ byte, body []byte) {
		switch typ {
		case wire.DataRow:
			c.rows++
			c.bytes += len(body)
		case wire.CommandComplete:
			c.tag, _, _ = wire.CutString(body)
		}
	})
	return nil
}

// Parameter notes a changed parameter; the client is told.
func (c *counter) Parameter(name, value string) { c.on.w.Parameter(name, value) }

func (x *commands) analyze(st *plan.Statement, args *plan.Args) ([]string, error) {
	if st == nil || !routed(st) || st.Copy {
		return nil, sqlstate.Refusal("CLV-1206", "EXPLAIN (ROUTE, ANALYZE) runs only statements that go to a shard").
			WithHint("Leave ANALYZE out.")
	}
	if args != nil {
		return nil, sqlstate.Refusal("CLV-1207", "EXPLAIN (ROUTE, ANALYZE) with parameters is not supported").
			WithHint("Write the values into the statement.")
	}
	sql := st.Text
	if st.Fill != nil {
		var err error
		if sql, err = x.fillText(st); err != nil {
			return nil, err
		}
		args = &x.args
	}
	if err := x.admit(st, args); err != nil {
		return nil, err
	}
	shard, err := x.choose(st, args)
	if err != nil {
		return nil, err
	}
	x.unit.effects = true
	if err := x.reach(shard, useOf(st)); err != nil {
		return nil, err
	}
	c := x.pipe.Conn
	sev, _ := c.Conn.(*several.Conn)
	if sev != nil {
		sev.Record()
	}
	count := &counter{on: &x.unitRun}
	began := time.Now()
	x.pipe.Query(sql)
	x.shards.setRunning(c)
	o, err := x.pipe.Run(executor.None, count)
	x.shards.setRunning(nil)
	took := time.Since(began)
	if err != nil {
		return nil, x.lost(err, o.Err, executor.None, anchored)
	}
	if o.Err != nil {
		if o.Err.Code == sqlstate.NotOwner {
			return nil, x.notOwner(o.Err)
		}
		return nil, &shardError{said: o.Err, frame: append([]byte(nil), x.pipe.ErrorFrame()...)}
	}
	ran := c.Shard()
	var steps []string
	if sev != nil {
		ran = strings.Join(sev.Shards(), ", ")
		for _, s := range sev.Recorded() {
			steps = append(steps, fmt.Sprintf("%s on shard %s: %d rows, %d bytes, %.3f ms", s.Name, s.Shard, s.Rows, s.Bytes, ms(s.Took)))
		}
	}
	if x.tx.state == txNone {
		x.pipe.release()
	}
	return append(append([]string{fmt.Sprintf("Ran on: %s", ran)}, steps...),
		fmt.Sprintf("Result: %s (%d rows, %d bytes)", count.tag, count.rows, count.bytes),
		fmt.Sprintf("Time: %.3f ms", ms(took))), nil
}

// ms is a time in milliseconds.
func ms(d time.Duration) float64 { return float64(max(d, 0).Microseconds()) / 1000 }
