package several

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several/copydata"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

const (
	copyChunk = 64 << 10 // bytes that are collected for one shard
	// copyRecordMax bounds one row, as PostgreSQL's own limit does.
	copyRecordMax = 1 << 30
)

// copyIn splits the rows of COPY ... FROM STDIN. Rows are passed on as they came:
// each is looked at only as far as its shard key needs.
type copyIn struct {
	c     *runner
	p     *plan.CopyPlan
	of    *shardmap.Snapshot // the map by which the shards were chosen
	snap  *shardmap.Snapshot
	index *shardmap.Index // of the keyspace; nil: every row goes to all parts
	split copydata.Splitter
	keys  *copydata.KeyReader
	ask   asker
	words *copyWords // nil if no column is of times

	rest      []byte // the beginning of a record whose end has not come
	head      []byte // the header: a line, or that of the binary form
	headLines int64
	begun     bool  // past the header
	ended     bool  // past the mark of the end
	trailer   bool  // that of the binary form
	line      int64 // the client's lines so far
	fields    int   // values of a client's row

	parts []*copyPart // in the order in which they were opened
	owner map[string]*copyPart
	spans []span
	made  []byte
	timed [][]byte // the values of the plan's Timed, as a row has them
	types []uint32 // of a row's values, as clients number them, where those may have OIDs inside
}

type span struct{ from, to, content, lines, first int }

// copyPart is a COPY on one shard.
type copyPart struct {
	s     *stream
	buf   []byte // a CopyData frame that is being filled
	lines copydata.LineMap
	ended bool // CopyDone or CopyFail was sent
}

func (c *runner) startCopyIn(ctx context.Context, e *execution) (job, error) {
	p := e.st.Plan.Copy
	j := &copyIn{c: c, p: p, owner: map[string]*copyPart{}, ask: asker{c: c}}
	j.split = copydata.Splitter{CSV: p.CSV, Quote: p.Quote, Escape: p.Escape}
	snap := c.host.Snapshot()
	j.of = snap
	shards, err := e.st.Plan.Target.Shards(snap, e.args)
	if err != nil {
		return nil, err
	}
	if p.Table.Kind == shardmap.Sharded {
		index, ok := snap.Keyspace(p.Table.Keyspace)
		if !ok {
			return nil, sqlstate.New(sqlstate.CannotConnectNow, "keyspace %q is not in the shard map any more", p.Table.Keyspace)
		}
		j.snap, j.index, j.keys = snap, index, copydata.NewKeyReader(p)
		// The others are opened when their first row comes.
		shards = shards[:1]
	}
	if first := slices.Index(shards, c.host.Snapshot().State().DefaultShard); first > 0 && j.index == nil {
		// As with every write to a reference table: a transaction that writes the same rows waits there.
		shards = append([]string{shards[first]}, slices.Delete(slices.Clone(shards), first, first+1)...)
	}
	j.ask.shard = shards[0]
	if len(p.Omitted) > 0 {
		if err := c.constantDefaults(ctx, p); err != nil {
			return nil, err
		}
	}
	if p.Table.Kind == shardmap.Reference && c.Can(shards[0]).Evaluates {
		if err := c.plainRows(ctx, p); err != nil {
			return nil, err
		}
	}
	if len(p.Timed) > 0 {
		if j.timed, err = c.timedDefaults(ctx, p); err != nil {
			return nil, err
		}
	}
	if c.Can(shards[0]).Clock {
		j.words = newCopyWords(p)
	}
	if j.words != nil && (c.Block || len(p.Timed) > 0) {
		// Other statements of the transaction may see the time.
		if j.words.now, err = c.Clock(ctx); err != nil {
			return nil, err
		}
	}
	if rows := copyRows(p, true); rows != "" {
		part, err := c.Participant(ctx, c.describer(), false)
		if err != nil {
			return nil, err
		}
		if j.types, err = c.typesOfRows(part, rows); err != nil {
			return nil, err
		}
	}
	for _, s := range shards {
		if _, err := j.open(ctx, s, j.index == nil); err != nil {
			j.stop()
			return nil, err
		}
	}
	return j, nil
}

// constantDefaults refuses rows without a value for a column of a reference table
// whose default could be another on each shard.
func (c *runner) constantDefaults(ctx context.Context, p *plan.CopyPlan) error {
	part, err := c.Participant(ctx, c.describer(), false)
	if err != nil {
		return err
	}
	names := make([]string, len(p.Omitted))
	for i, n := range p.Omitted {
		names[i] = quoteText(n)
	}
	res, err := c.Exec(part, `SELECT a.attname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE a.attrelid = `+quoteText(p.Table.QualifiedName())+`::pg_catalog.regclass AND a.attgenerated = '' AND a.attname IN (`+strings.Join(names, ", ")+`)
		AND COALESCE(pg_catalog.pg_get_expr(d.adbin, d.adrelid), t.typdefault) !~ '^(''([^'']|'''')*''|-?[0-9.]+|true|false|NULL)(::[a-z ]+([(][0-9,]+[)])?)?$' ORDER BY a.attnum`)
	if err != nil {
		return err
	}
	if len(res.Rows) > 0 {
		return sqlstate.Refusal("CLV-0401", "the default of column %s of the reference table %s could be another value on each shard", quote(res.Rows[0][0].String), p.Table.QualifiedName()).
			WithHint("Give the column in the COPY.")
	}
	return nil
}

// plainRows refuses the rows of a reference table with a trigger that may change them, to something else on
// each shard: an INSERT compares what was stored.
func (c *runner) plainRows(ctx context.Context, p *plan.CopyPlan) error {
	part, err := c.Participant(ctx, c.describer(), false)
	if err != nil {
		return err
	}
	const beforeInsertOfRows = "7" // TRIGGER_TYPE_ROW, BEFORE and INSERT of pg_trigger.h; the guard's names begin with ~
	res, err := c.Exec(part, "SELECT tgname FROM pg_catalog.pg_trigger WHERE tgrelid = "+quoteText(p.Table.QualifiedName())+"::pg_catalog.regclass AND NOT tgisinternal AND tgenabled <> 'D' AND tgtype & "+
		beforeInsertOfRows+" = "+beforeInsertOfRows+" AND tgname NOT LIKE '~%' ORDER BY tgname")
	if err != nil {
		return err
	}
	if len(res.Rows) > 0 {
		return sqlstate.Refusal("CLV-0402", "the trigger %s could make other rows of those for the reference table %s on each shard", quote(res.Rows[0][0].String), p.Table.QualifiedName()).
			WithHint("Use INSERT, which compares the rows.")
	}
	return nil
}

// timedDefaults are the values of defaults that depend on the transaction's time, as
// the rows of the COPY are to have them.
func (c *runner) timedDefaults(ctx context.Context, p *plan.CopyPlan) ([][]byte, error) {
	now, err := c.Clock(ctx)
	if err != nil {
		return nil, err
	}
	return c.evaluate(ctx, slices.Clone(p.Timed), now, p.Binary)
}

func quote(name string) string { return executor.QuoteIdentifier(name) }

func quoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// open begins the COPY on a shard, and waits until it takes data.
func (j *copyIn) open(ctx context.Context, shard string, write bool) (*copyPart, error) {
	if err := j.c.bounds.Touches(shard); err != nil {
		return nil, err
	}
	p, err := j.c.Participant(ctx, shard, write)
	if err != nil {
		return nil, err
	}
	if j.p.Table.Kind == shardmap.Reference {
		if err := j.c.unlockCopies(p, j.of); err != nil {
			return nil, err
		}
	}
	t, err := j.c.openCopy(p, j.p.Text)
	if t != nil {
		j.parts = append(j.parts, t)
		j.owner[shard] = t
	}
	if err != nil {
		return nil, err
	}
	if len(j.parts) == 1 {
		if err := j.learn(t); err != nil {
			return nil, err
		}
	}
	if j.begun && len(j.head) > 0 {
		t.buf = append(t.buf, j.head...)
		if j.headLines > 0 {
			t.lines.Add(j.headLines, int(j.headLines), len(j.head))
		}
	}
	return t, nil
}

// openCopy begins a COPY on a part, and waits until it takes data. After an error the
// COPY, if it is there, is to be stopped.
func (c *runner) openCopy(p *txn.Participant, text string) (*copyPart, error) {
	s, err := c.send(p, request{text: text, copies: true})
	if err != nil {
		return nil, err
	}
	t := &copyPart{s: s, buf: make([]byte, wire.Header, copyChunk+(4<<10))}
	for s.reading && !s.copyIn {
		if _, err := s.fill(); err != nil {
			return t, err
		}
	}
	if !s.copyIn {
		return t, sqlstate.New(sqlstate.ProtocolViolation, "a shard takes no data for a COPY").OnShard(p.Shard)
	}
	return t, nil
}

// learn takes the first shard's CopyInResponse.
func (j *copyIn) learn(t *copyPart) error {
	f := t.s.buf[t.s.pos:]
	if len(f) < wire.Header+3 || f[0] != wire.CopyInResponse {
		return sqlstate.New(sqlstate.ProtocolViolation, "a shard takes data without saying how")
	}
	j.fields = int(binary.BigEndian.Uint16(f[wire.Header+1:])) - len(j.p.MadeFor)
	if j.index != nil && len(j.p.Columns) == 0 && j.fields != len(j.p.Table.Columns) {
		return sqlstate.Refusal("CLV-0403", "COPY without a column list into a table with generated columns is not supported over several shards").
			WithHint("Name the columns: COPY %s (...).", j.p.Table.QualifiedName())
	}
	major, _, _ := strings.Cut(t.s.p.Conn.Parameter("server_version"), ".")
	if n, err := strconv.Atoi(major); err == nil {
		j.split.EndMark = n < 18
	}
	return nil
}

// step gives the client what the first shard said, once.
func (j *copyIn) step(out []byte, _ int32) ([]byte, bool, string, error) {
	format := j.parts[0].s.buf[j.parts[0].s.pos+wire.Header]
	out, m := wire.Begin(out, wire.CopyInResponse)
	out = append(out, format)
	out = wire.AppendInt16(out, int16(j.fields))
	for range j.fields {
		out = wire.AppendInt16(out, int16(format))
	}
	return wire.End(out, m), false, "", nil
}

// take implements copyJob.
func (j *copyIn) take(data []byte) error {
	if err := context.Cause(j.c.Ctx); err != nil {
		return err
	}
	if len(j.rest) > 0 {
		j.rest = append(j.rest, data...)
		data = j.rest
	}
	used, err := j.run(data, false)
	if err != nil {
		return err
	}
	if len(data)-used > copyRecordMax {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "a row of COPY is over %d bytes", copyRecordMax)
	}
	j.rest = append(j.rest[:0], data[used:]...)
	if cap(j.rest) > 16*copyChunk && len(j.rest) < copyChunk {
		j.rest = slices.Clone(j.rest)
	}
	return nil
}

// run passes on the whole records at the beginning of the data.
func (j *copyIn) run(data []byte, eof bool) (used int, err error) {
	if j.ended {
		if j.p.Binary && len(data) > 0 {
			return 0, copydata.BadFile("received copy data after EOF marker", "")
		}
		return len(data), nil
	}
	if j.p.Binary && !j.begun {
		n, err := copydata.HeadSize(data)
		if err != nil || n == 0 {
			return 0, err
		}
		if err := j.headed(data[:n], 0); err != nil {
			return 0, err
		}
		used = n
	}
	j.spans = j.spans[:0]
	if j.words != nil {
		j.words.hot = j.words.mayHaveWord(data)
	}
	var failed error
	for !j.ended {
		b := data[used:]
		var s span
		var ok bool
		if s, ok, failed = j.record(b, eof); failed != nil || !ok {
			break
		}
		s.from, s.to, s.content = used+s.from, used+s.to, used+s.content
		used = s.to
		switch {
		case j.ended && s.content == s.from: // the mark of the end alone
		case !j.p.Binary && !j.begun && j.p.Header:
			if err := j.matches(data[s.from:s.content]); err != nil {
				return used, err
			}
			if err := j.headed(j.header(data[s.from:s.to]), s.first); err != nil {
				return used, err
			}
		case j.index != nil && len(j.p.Made) == 0:
			j.begun = true
			if err := j.route(data, s, j.timed); err != nil {
				return used, err
			}
		default:
			j.begun = true
			j.spans = append(j.spans, s)
		}
	}
	if err := j.routeSpans(data); err != nil {
		return used, err
	}
	if failed != nil {
		j.line++
		return used, j.at(failed)
	}
	if j.ended {
		return len(data), j.after(data[used:])
	}
	return used, nil
}

func (j *copyIn) after(data []byte) error {
	if j.p.Binary && len(data) > 0 {
		return copydata.BadFile("received copy data after EOF marker", "")
	}
	return nil
}

// record finds the next record.
func (j *copyIn) record(b []byte, eof bool) (s span, ok bool, err error) {
	if !j.p.Binary {
		r, ok, err := j.split.Next(b, eof)
		if ok && r.Last {
			j.ended = true
		}
		return span{to: r.Size, content: r.Content, lines: r.Lines, first: r.First}, ok, err
	}
	n, end, err := copydata.Tuple(b)
	if err == nil && n == 0 && eof && len(b) > 0 {
		n = len(b) // the shard says what is missing
	}
	if end {
		j.ended, j.trailer = true, true
		return span{to: n}, true, nil
	}
	return span{to: n, content: n, lines: 1, first: 1}, n > 0, err
}

// routeSpans passes on the records that go to all parts, or get values made.
func (j *copyIn) routeSpans(data []byte) error {
	if len(j.spans) == 0 {
		return nil
	}
	var values [][]byte
	n := len(j.p.Made)
	if n > 0 {
		list := make([]plan.FillValue, 0, n*len(j.spans))
		for range j.spans {
			list = append(list, j.p.Made...)
		}
		var err error
		if values, err = j.c.host.Values(list); err != nil {
			return err
		}
	}
	for i, s := range j.spans {
		made := values[i*n : (i+1)*n : (i+1)*n]
		if err := j.route(data, s, append(made, j.timed...)); err != nil {
			return err
		}
	}
	return nil
}

// route passes on one record.
func (j *copyIn) route(data []byte, s span, made [][]byte) error {
	j.line += int64(s.lines)
	rec, key := data[s.from:s.to], data[s.from:s.content]
	if j.words != nil && j.words.hot {
		with, err := j.wordless(key)
		if err != nil {
			return j.at(err)
		}
		if with != nil {
			rec, key = append(with, rec[len(key):]...), with
		}
	}
	if j.p.Binary && len(rec) >= 2 {
		if n := int(int16(binary.BigEndian.Uint16(rec))); n != j.fields {
			made = nil // the shard says so
		}
	}
	prefix, err := j.prefix(made)
	if err != nil {
		return j.at(err)
	}
	if j.index == nil {
		for _, t := range j.parts {
			if err := j.put(t, prefix, rec, s); err != nil {
				return err
			}
		}
		return nil
	}
	t, err := j.target(key, made)
	if err != nil {
		return j.at(err)
	}
	return j.put(t, prefix, rec, s)
}

// target is the part that a record goes to.
func (j *copyIn) target(rec []byte, made [][]byte) (*copyPart, error) {
	known := true
	for i, at := range j.p.KeyAt {
		if at >= 0 {
			continue
		}
		if made == nil {
			known = false
			break
		}
		v, err := plan.StoredKey(j.p.Table, i, &j.p.Keys[i], made[-1-at])
		if err != nil {
			return nil, err
		}
		j.keys.Key[i] = v
	}
	if known {
		var resolved map[int]keyspace.Value
		for {
			var err error
			known, err = j.keys.Read(rec, resolved)
			var ask *copydata.AskError
			if !errors.As(err, &ask) {
				if err != nil {
					return nil, err
				}
				break
			}
			v, ok, err := j.ask.ask(j.p.Type(ask.Column), ask.Value)
			if err != nil {
				return nil, err
			}
			if !ok {
				known = false
				break
			}
			if resolved == nil {
				resolved = map[int]keyspace.Value{}
			}
			resolved[ask.Column] = v
		}
	}
	if !known {
		return j.writes(j.parts[0])
	}
	a, err := j.index.Locate(j.keys.Key)
	if err != nil {
		return nil, err
	}
	j.c.Ex.CountRow(j.snap, a.Unit)
	t := j.owner[a.Shard]
	if t == nil {
		return j.open(j.c.Ctx, a.Shard, true)
	}
	return j.writes(t)
}

func (j *copyIn) writes(t *copyPart) (*copyPart, error) {
	if t.s.p.Wrote {
		return t, nil
	}
	_, err := j.c.Participant(j.c.Ctx, t.s.p.Shard, true)
	return t, err
}

// prefix is what the values that the router made look like before a row.
func (j *copyIn) prefix(made [][]byte) ([]byte, error) {
	j.made = j.made[:0]
	for i, v := range made {
		switch {
		case j.p.Binary && i >= len(j.p.Made):
			j.made = wire.AppendValue(j.made, v)
			continue
		case v == nil:
			j.made = append(j.made, j.p.Null...)
		case j.p.Binary:
			typ, ok := keyspace.TypeByOID(j.p.MadeFor[i].OID)
			if !ok {
				return nil, sqlstate.Refusal("CLV-0404", "values for column %s of type %s cannot be made in a binary COPY", quote(j.p.MadeFor[i].Name), j.p.MadeFor[i].Type).
					WithHint("Use the text or csv format.")
			}
			val, err := keyspace.ParseText(typ, v)
			if err != nil {
				return nil, err
			}
			j.made = append(j.made, 0, 0, 0, 0)
			at := len(j.made)
			j.made = val.AppendBinary(j.made)
			binary.BigEndian.PutUint32(j.made[at-4:], uint32(len(j.made)-at))
			continue
		case j.p.CSV:
			j.made = copydata.AppendCSV(j.made, v, &j.p.CopyFormat, true)
		case string(v) == j.p.Null || j.p.HasDefault && string(v) == j.p.Default:
			return nil, sqlstate.Refusal("CLV-0405", "a value that the router made is the text that stands for NULL or DEFAULT").
				WithHint("Choose another NULL text.")
		default:
			j.made = copydata.AppendText(j.made, v, j.p.Delimiter)
		}
		j.made = append(j.made, j.p.Delimiter)
	}
	return j.made, nil
}

// put adds a record to what a part gets.
func (j *copyIn) put(t *copyPart, prefix, rec []byte, s span) error {
	lines := s.lines
	if t.lines.Lines == 0 && !j.p.Binary {
		lines = s.first
	}
	t.lines.Add(j.line, lines, len(prefix)+len(rec))
	from := len(t.buf)
	if j.p.Binary && len(prefix) > 0 {
		n := binary.BigEndian.Uint16(rec)
		t.buf = binary.BigEndian.AppendUint16(t.buf, n+uint16(len(j.p.MadeFor)))
		rec = rec[2:]
	}
	t.buf = append(t.buf, prefix...)
	t.buf = append(t.buf, rec...)
	if j.types != nil && j.p.Binary {
		if err := renumber(t.s.p, t.buf[from:], nil, j.types); err != nil {
			return err
		}
	}
	if len(t.buf) >= copyChunk {
		return t.flush()
	}
	return nil
}

// flush sends what was collected; it waits until the shard's socket takes it.
func (t *copyPart) flush() error {
	if len(t.buf) == wire.Header {
		return nil
	}
	t.buf[0] = wire.CopyDataF
	binary.BigEndian.PutUint32(t.buf[1:], uint32(len(t.buf)-1))
	if err := t.s.p.Pipe.Copy(t.buf); err != nil {
		return t.s.broken(err)
	}
	if cap(t.buf) > 16*copyChunk {
		t.buf = make([]byte, wire.Header, 2*copyChunk)
	}
	t.buf = t.buf[:wire.Header]
	return nil
}

// flush sends all that was collected.
func (j *copyIn) flush() error {
	for _, t := range j.parts {
		if err := t.flush(); err != nil {
			return err
		}
	}
	return nil
}

// at adds the place in the client's data to an error.
func (j *copyIn) at(err error) error {
	var se *sqlstate.Error
	if !errors.As(err, &se) || se.Where != "" {
		return err
	}
	e := *se
	e.Where = "COPY " + j.p.Table.Name + ", line " + strconv.FormatInt(j.line, 10)
	return &e
}

// end implements copyJob.
func (j *copyIn) end() (string, error) {
	if _, err := j.run(j.rest, true); err != nil {
		return "", err
	}
	if !j.begun {
		if err := j.matches(nil); err != nil {
			return "", err
		}
	}
	for _, t := range j.parts {
		if j.trailer {
			t.buf = append(t.buf, 0xff, 0xff)
		}
		if err := t.flush(); err != nil {
			return "", err
		}
		if err := t.finish(wire.AppendEmpty(nil, wire.CopyDoneF)); err != nil {
			return "", err
		}
	}
	j.ask.end()
	total, err := j.results()
	if err != nil {
		return "", err
	}
	return "COPY " + strconv.FormatInt(total, 10), nil
}

// results reads what the shards answer to the end of the data, and counts the rows. The first line that any of them refuses is the one
// that PostgreSQL would.
func (j *copyIn) results() (total int64, failed error) {
	first := int64(0)
	for i, t := range j.parts {
		_, err := t.s.Next()
		if err == nil {
			if n := counted(t.s.tag); j.index != nil || i == 0 {
				total += n
			} else if n != total {
				err = sqlstate.New(sqlstate.InternalError, "shard %s took %d rows of the reference table, another shard %d", t.s.p.Shard, n, total)
			}
		}
		if err == nil {
			continue
		}
		line := int64(0)
		var se *sqlstate.Error
		if errors.As(err, &se) {
			e := *se
			line, err = t.lines.Translate(&e), &e
		}
		if failed == nil || line > 0 && (first == 0 || line < first) {
			failed, first = err, line
		}
	}
	return total, failed
}

// finish ends the data of a part.
func (t *copyPart) finish(frame []byte) error {
	t.ended = true
	return t.s.endCopy(frame)
}

// stop implements job.
func (j *copyIn) stop() {
	j.ask.end()
	stopCopies(j.parts)
}

// stopCopies ends COPYs that have not ended.
func stopCopies(parts []*copyPart) {
	for _, t := range parts {
		if t.s.copyIn && !t.ended && !t.s.p.Conn.Broken() {
			// What is left of it is read by drain.
			_ = t.finish(wire.AppendCopyFail(nil, "the statement has ended"))
		}
	}
	for _, t := range parts {
		t.s.stop()
	}
}

// endCopy sends the end of a COPY's data, and asks for the answer. A shard takes the Sync of
// a statement that was passed on as it came for part of the data.
func (s *stream) endCopy(frame []byte) error {
	if err := s.p.Pipe.Copy(frame); err != nil {
		return s.broken(err)
	}
	s.copyIn = false
	s.p.Pipe.ResumeCopy()
	if s.flushed || s.p.Pipe.IgnoredSync() {
		s.flushed = false
		if err := s.p.Pipe.Dispatch(wire.Sync); err != nil {
			return s.broken(err)
		}
	}
	return nil
}
