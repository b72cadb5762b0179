package several

import (
	"context"
	"encoding/binary"

	"github.com/cleavedb/cleave/executor/several/sortkey"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// chunkSize is about how many bytes of rows one step gives.
const chunkSize = 64 << 10

// startScatter runs the plan's text on each shard of the target. What comes back
// is put one after the other, or merged in the order of the plan (see sortkey.Merge).
func (c *runner) startScatter(ctx context.Context, e *execution) (job, error) {
	plan, snap := e.st.Plan, c.host.Snapshot()
	shards, err := c.shardsOf(&plan.Target, snap, e.args)
	if err != nil {
		return nil, err
	}
	limit, err := countOf(plan.Combine.Limit, e, "2201W", "LIMIT")
	if err != nil {
		return nil, err
	}
	offset, err := countOf(plan.Combine.Offset, e, "2201X", "OFFSET")
	if err != nil {
		return nil, err
	}
	parts, err := c.partsOf(ctx, shards, !e.st.ReadOnly)
	if err != nil {
		return nil, err
	}
	q := e.request(plan.Text)
	q.proved = true
	hidden := plan.Combine.Hidden
	if hidden > 0 {
		q.results = hiddenFormats(e.results, len(e.desc.fields), hidden)
	}
	var keys *sortkey.Keys
	if len(plan.Combine.Order) > 0 && len(parts) > 1 {
		if keys, err = c.keysOf(ctx, e, parts, q); err != nil {
			return nil, err
		}
		if keys == nil {
			return c.startSorted(ctx, e, len(e.desc.fields)+hidden)
		}
	}
	streams, err := sendPlan(c, parts, q, plan, snap)
	if err != nil {
		return nil, err
	}
	if keys == nil && hidden == 0 && limit < 0 && offset == 0 {
		return &scatter{streams: streams}, nil
	}
	return &merged{streams: streams, rows: sortkey.NewMerge(rowsOf(streams), keys, plan.Combine.Unique), visible: len(e.desc.fields), hidden: hidden, left: limit, skip: offset}, nil
}

func rowsOf(streams []*stream) []sortkey.Rows {
	rows := make([]sortkey.Rows, len(streams))
	for i, s := range streams {
		rows[i] = s
	}
	return rows
}

// sendPlan sends each shard its text of a plan, to all or to none.
func sendPlan(c *runner, parts []*txn.Participant, q request, plan *plan.Plan, snap *shardmap.Snapshot) (streams []*stream, err error) {
	for _, p := range parts {
		var s *stream
		if q.text, err = plan.On(p.Shard, c.Maps(p, snap)...); err == nil {
			s, err = c.send(p, q)
		}
		if err != nil {
			for _, s := range streams {
				s.stop()
			}
			return nil, err
		}
		streams = append(streams, s)
	}
	if err := c.fits(); err != nil {
		(&scatter{streams: streams}).stop()
		return nil, err
	}
	return streams, nil
}

// startSorted is the way of a scatter whose order the router cannot compare: the
// shards' rows are gathered, and sorted by PostgreSQL.
func (c *runner) startSorted(ctx context.Context, e *execution, columns int) (job, error) {
	st := *e.st
	st.Plan = e.st.Plan.Sorted(columns)
	sorted := *e
	sorted.st = &st
	return c.startGather(ctx, &sorted)
}

// hiddenFormats are the result formats of a text with hidden columns at its end,
// which come in binary.
func hiddenFormats(results []int16, visible, hidden int) []int16 {
	out := make([]int16, visible+hidden)
	for i := range visible {
		out[i] = wire.FormatAt(results, i)
	}
	for i := range hidden {
		out[visible+i] = 1
	}
	return out
}

// countOf evaluates LIMIT or OFFSET. A LIMIT that is not there is -1, such an
// OFFSET 0.
func countOf(n *plan.Count, e *execution, code sqlstate.Code, what string) (int64, error) {
	none := int64(-1)
	if what == "OFFSET" {
		none = 0
	}
	if n == nil {
		return none, nil
	}
	v := n.Value
	if n.Param > 0 {
		if n.Param > len(e.args.Values) {
			return 0, sqlstate.New(sqlstate.UndefinedParameter, "there is no parameter $%d", n.Param)
		}
		raw := e.args.Values[n.Param-1]
		if raw == nil {
			return none, nil
		}
		if i := n.Param - 1; i < len(e.desc.params) {
			switch e.desc.params[i] {
			case 0, pgoid.Int2, pgoid.Int4, pgoid.Int8:
			default:
				return 0, sqlstate.Refusal("CLV-0217", "%s over several shards takes a parameter of an integer type", what).
					WithHint("Cast the parameter in the client, or declare it as bigint.")
			}
		}
		var err error
		if v, err = intOf(raw, wire.FormatAt(e.args.Formats, n.Param-1)); err != nil {
			return 0, err
		}
		if n.Type == keyspace.Int2 && v != int64(int16(v)) || n.Type == keyspace.Int4 && v != int64(int32(v)) {
			return 0, sqlstate.New(sqlstate.NumericOutOfRange, "%s out of range", n.Type)
		}
	}
	if v < 0 {
		return 0, sqlstate.New(code, "%s must not be negative", what)
	}
	return v, nil
}

// intOf reads an integer parameter of any width.
func intOf(raw []byte, format int16) (int64, error) {
	if format == 1 {
		switch len(raw) {
		case 2:
			return int64(int16(binary.BigEndian.Uint16(raw))), nil
		case 4:
			return int64(int32(binary.BigEndian.Uint32(raw))), nil
		case 8:
			return int64(binary.BigEndian.Uint64(raw)), nil
		}
		return 0, sqlstate.New(sqlstate.InvalidBinary, "incorrect binary data format in a bind parameter")
	}
	return sortkey.ParseInt(string(raw))
}

// scatter puts the rows of several shards one after the other.
type scatter struct {
	streams []*stream
	at      int
}

// step implements job.
func (j *scatter) step(out []byte, rows int32) ([]byte, bool, string, error) {
	for j.at < len(j.streams) {
		b, err := j.streams[j.at].chunk(rows)
		if err != nil {
			return out, false, "", err
		}
		if b != nil {
			return append(out, b...), false, "", nil
		}
		j.at++
	}
	return out, true, "SELECT", nil
}

// stop implements job.
func (j *scatter) stop() {
	for _, s := range j.streams {
		s.stop()
	}
}

// merged is what several shards answer, with OFFSET and LIMIT: their rows in the order of the plan, or one shard's after
// the other's.
type merged struct {
	streams []*stream
	rows    *sortkey.Merge
	visible int
	hidden  int
	skip    int64 // rows of OFFSET that are still to be left out
	left    int64 // rows of LIMIT that may still be given; -1: any number
	done    bool
}

// step implements job.
func (j *merged) step(out []byte, rows int32) ([]byte, bool, string, error) {
	begin := len(out)
	for n := int32(0); !j.done && len(out)-begin < chunkSize && (rows <= 0 || n < rows); {
		if j.left == 0 {
			j.done = true
			break
		}
		row, err := j.rows.Next()
		if err != nil {
			return out, false, "", err
		}
		if row == nil {
			j.done = true
			break
		}
		if j.skip > 0 {
			j.skip--
			continue
		}
		out = appendRow(out, row, j.visible, j.hidden)
		n++
		if j.left > 0 {
			j.left--
		}
	}
	if !j.done || len(out) > begin {
		return out, false, "", nil
	}
	j.stop()
	for _, s := range j.streams {
		// A row that LIMIT did not need failed: the transaction of a block cannot go on there.
		if s.err != nil && s.p.Begun {
			return out, false, "", s.err
		}
	}
	return out, true, "SELECT", nil
}

// stop implements job.
func (j *merged) stop() {
	for _, s := range j.streams {
		s.stop()
	}
}

// appendRow appends a DataRow frame with the visible columns of a row's body.
func appendRow(out, body []byte, visible, hidden int) []byte {
	out, m := wire.Begin(out, wire.DataRow)
	if hidden == 0 {
		return wire.End(append(out, body...), m)
	}
	at := 2
	for range visible {
		n := int32(binary.BigEndian.Uint32(body[at:]))
		at += 4
		if n > 0 {
			at += int(n)
		}
	}
	out = wire.AppendInt16(out, int16(visible))
	return wire.End(append(out, body[2:at]...), m)
}
