package several

import (
	"context"
	"encoding/binary"
	"strconv"

	"github.com/cleavedb/cleave/executor/several/copydata"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

func (c *runner) startCopyOut(ctx context.Context, e *execution) (job, error) {
	p := e.st.Plan.Copy
	if p.Source != nil {
		return c.startCopyQuery(ctx, e)
	}
	snap := c.host.Snapshot()
	if c.provable(e.st) {
		query := *e
		var err error
		if query.st, err = c.Ex.PlanSeveral(c, []byte(p.AsQuery), c.host.Settings(), snap, c.Change != nil); err != nil {
			return nil, err
		}
		return c.startCopyQuery(ctx, &query)
	}
	shards, err := c.shardsOf(&e.st.Plan.Target, snap, e.args)
	if err != nil {
		return nil, err
	}
	parts, err := c.partsOf(ctx, shards, false)
	if err != nil {
		return nil, err
	}
	j := &copyOut{binary: p.Binary}
	rows := copyRows(p, false)
	for i, part := range parts {
		var s *stream
		var text string
		values, err := c.columnsOf(part, rows)
		if err == nil {
			text, err = p.On(i == 0, part.Shard, c.Maps(part, snap)...)
		}
		if err == nil {
			s, err = c.send(part, request{text: text, copied: values})
		}
		if err != nil {
			j.stop()
			return nil, err
		}
		j.streams = append(j.streams, s)
	}
	return j, nil
}

// copyOut puts what the shards copy one after the other: as one COPY.
type copyOut struct {
	streams []*stream
	binary  bool
	at      int
	said    bool // the CopyOutResponse was given
	total   int64
	// Of the binary form: the header of the shard's rows was taken off; the client has one.
	inside, headed bool
}

// step implements job.
func (j *copyOut) step(out []byte, _ int32) ([]byte, bool, string, error) {
	for j.at < len(j.streams) {
		s := j.streams[j.at]
		ok, err := s.ready()
		if err != nil {
			return out, false, "", err
		}
		if !ok {
			j.total += counted(s.tag)
			j.at, j.inside = j.at+1, false
			continue
		}
		f := s.buf[s.pos:]
		n := 1 + int(binary.BigEndian.Uint32(f[1:]))
		s.pos += n
		switch f[0] {
		case wire.CopyOutResponse:
			if !j.said {
				j.said = true
				return append(out, f[:n]...), false, "", nil
			}
		case wire.CopyData:
			s.rows++
			if !j.binary {
				return append(out, f[:n]...), false, "", nil
			}
			if b := j.tuples(f[wire.Header:n]); len(b) > 0 {
				return appendBinary(out, b, &j.headed), false, "", nil
			}
		}
	}
	if j.binary {
		out = appendBinary(out, copydata.Trailer, &j.headed)
	}
	return wire.AppendEmpty(out, wire.CopyDone), true, "COPY " + strconv.FormatInt(j.total, 10), nil
}

// tuples takes the header and the trailer off what a shard sends: PostgreSQL's header comes in one message with the first
// tuple, or with the trailer if there is no tuple (DoCopyTo of copyto.c).
func (j *copyOut) tuples(b []byte) []byte {
	if !j.inside {
		j.inside = true
		if n, err := copydata.HeadSize(b); err == nil && n > 0 {
			b = b[n:]
		}
	}
	if len(b) >= 2 && int16(binary.BigEndian.Uint16(b)) == -1 {
		return nil
	}
	return b
}

// stop implements job.
func (j *copyOut) stop() {
	for _, s := range j.streams {
		s.stop()
	}
}

func appendCopyData(out, data []byte) []byte {
	out, m := wire.Begin(out, wire.CopyData)
	return wire.End(append(out, data...), m)
}

// appendBinary appends a message of the binary form; the first one has the header.
func appendBinary(out, data []byte, headed *bool) []byte {
	out, m := wire.Begin(out, wire.CopyData)
	if !*headed {
		*headed = true
		out = append(out, copydata.Header...)
	}
	return wire.End(append(out, data...), m)
}

// startCopyQuery runs a query and writes its rows as COPY does.
func (c *runner) startCopyQuery(ctx context.Context, e *execution) (job, error) {
	p := e.st.Plan.Copy
	part, err := c.Participant(ctx, c.describer(), false)
	if err != nil {
		return nil, err
	}
	// The options are PostgreSQL's to judge.
	s, err := c.send(part, request{text: p.Text, alone: true})
	if err != nil {
		return nil, err
	}
	for {
		if b, err := s.Next(); err != nil {
			return nil, err
		} else if b == nil {
			break
		}
	}
	inner := &prepared{text: p.Source.Text, st: p.Source}
	if err := c.analyse(inner); err != nil {
		return nil, err
	}
	if inner.desc.columns == nil {
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "COPY query must have a RETURNING clause")
	}
	j := &copyQuery{p: &p.CopyFormat, fields: inner.desc.fields}
	for _, f := range j.fields {
		j.quote = append(j.quote, plan.Forced(p.ForceQuote, f.Name))
	}
	format := int16(0)
	if p.Binary {
		format = 1
	}
	j.inner, err = c.begins(ctx, &execution{st: p.Source, args: &plan.Args{}, desc: inner.desc, results: []int16{format}})
	return j, err
}

// copyQuery writes the rows of a query.
type copyQuery struct {
	p      *plan.CopyFormat
	fields []wire.Field
	quote  []bool // FORCE_QUOTE, by column
	inner  job
	said   bool
	headed bool // the header of the binary form was given
	rows   int64
	frames []byte // DataRows
	cells  [][]byte
	line   []byte
}

// step implements job.
func (j *copyQuery) step(out []byte, _ int32) ([]byte, bool, string, error) {
	if !j.said {
		j.said = true
		return j.begin(out), false, "", nil
	}
	frames, done, _, err := j.inner.step(j.frames[:0], 0)
	if err != nil {
		return out, false, "", err
	}
	j.frames = frames
	for b := frames; len(b) >= wire.Header; {
		n := 1 + int(binary.BigEndian.Uint32(b[1:]))
		if b[0] == wire.DataRow {
			j.rows++
			if out, err = j.row(out, b[wire.Header:n]); err != nil {
				return out, false, "", err
			}
		}
		b = b[n:]
	}
	if !done {
		return out, false, "", nil
	}
	if j.p.Binary {
		out = appendBinary(out, copydata.Trailer, &j.headed)
	}
	return wire.AppendEmpty(out, wire.CopyDone), true, "COPY " + strconv.FormatInt(j.rows, 10), nil
}

// stop implements job.
func (j *copyQuery) stop() {
	if j.inner != nil {
		j.inner.stop()
	}
}

func (j *copyQuery) begin(out []byte) []byte {
	format := byte(0)
	if j.p.Binary {
		format = 1
	}
	out, m := wire.Begin(out, wire.CopyOutResponse)
	out = append(out, format)
	out = wire.AppendInt16(out, int16(len(j.fields)))
	for range j.fields {
		out = wire.AppendInt16(out, int16(format))
	}
	out = wire.End(out, m)
	if !j.p.Header || j.p.Binary {
		return out
	}
	j.line = j.line[:0]
	for i, f := range j.fields {
		if i > 0 {
			j.line = append(j.line, j.p.Delimiter)
		}
		if j.p.CSV {
			j.line = copydata.AppendField(j.line, []byte(f.Name), j.p, false, len(j.fields) == 1)
		} else {
			j.line = copydata.AppendText(j.line, []byte(f.Name), j.p.Delimiter)
		}
	}
	return appendCopyData(out, append(j.line, '\n'))
}

// row writes one row: the body of a DataRow, which is a tuple of the binary form.
func (j *copyQuery) row(out, body []byte) ([]byte, error) {
	if j.p.Binary {
		return appendBinary(out, body, &j.headed), nil
	}
	var err error
	if j.cells, err = wire.SplitRow(body, j.cells[:0]); err != nil {
		return out, err
	}
	j.line = j.line[:0]
	for i, v := range j.cells {
		if i > 0 {
			j.line = append(j.line, j.p.Delimiter)
		}
		switch {
		case v == nil:
			j.line = append(j.line, j.p.Null...)
		case j.p.CSV:
			j.line = copydata.AppendField(j.line, v, j.p, i < len(j.quote) && j.quote[i], len(j.cells) == 1)
		default:
			j.line = copydata.AppendText(j.line, v, j.p.Delimiter)
		}
	}
	return appendCopyData(out, append(j.line, '\n')), nil
}
