package several

import (
	"slices"
	"strconv"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// leg is a piece of the way that a FETCH or MOVE goes; the rows of the last one are given.
type leg struct {
	back bool
	n    int64 // plan.All: to the end
}

// legs are the way of a FETCH or MOVE, as DoPortalRunFetch of PostgreSQL's pquery.c goes it.
func (k *cursor) legs(q *plan.Cursor) ([]leg, error) {
	dir, n := q.Direction, q.Count
	if n < 0 && (dir == plan.Forward || dir == plan.Backward) {
		dir, n = plan.Forward+plan.Backward-dir, -n
	}
	var legs []leg
	switch dir {
	case plan.Absolute:
		switch {
		case n > k.pos:
			legs = []leg{{n: n - k.pos - 1}, {n: 1}}
		case n > 0:
			legs = []leg{{back: true, n: k.pos - n + 1}, {n: 1}}
		case n < 0:
			legs = []leg{{n: plan.All}, {back: true, n: -n - 1}, {back: true, n: 1}}
		case k.pos == 0:
			legs = []leg{{n: 0}}
		default:
			legs = []leg{{back: true, n: plan.All}, {n: 0}}
		}
	case plan.Relative:
		switch {
		case n > 0:
			legs = []leg{{n: n - 1}, {n: 1}}
		case n < 0:
			legs = []leg{{back: true, n: -n - 1}, {back: true, n: 1}}
		}
	case plan.Backward:
		if n > 0 {
			legs = []leg{{back: true, n: n}}
		}
	case plan.Forward:
		if n > 0 {
			legs = []leg{{n: n}}
		}
	}
	if legs == nil { // the row that it is on, once more
		if legs = []leg{{n: 0}}; k.pos > 0 && k.pos <= k.read {
			legs = []leg{{back: true, n: 1}, {n: 1}}
		}
	}
	for _, l := range legs {
		switch {
		case !l.back || l.n == 0:
		case k.noScroll:
			return nil, sqlstate.New(sqlstate.ObjectNotInState, "cursor can only scan forward").WithHint("Declare it with SCROLL option to enable backward scan.")
		case k.kept == nil && (k.read > 0 || !k.ended):
			return nil, sqlstate.Refusal("CLV-1010", "a cursor over several shards that was declared without SCROLL, and whose rows are not kept, is read forward only").
				WithHint("Declare it with SCROLL.")
		}
	}
	return legs, nil
}

// pull reads up to so many rows of the job: it returns their frames, in buf, and their number.
func (k *cursor) pull(buf []byte, want int64) ([]byte, int64, error) {
	frames, ended, _, err := k.job.step(buf, int32(min(want, cursorPortion)))
	if err != nil {
		return frames, 0, err
	}
	n := int64(0)
	for b := frames; len(b) > 0; n++ {
		f, rest, ok, err := wire.Cut(b)
		if err != nil || !ok || f.Type() != wire.DataRow {
			return frames, 0, sqlstate.New(sqlstate.InternalError, "a cursor got something else than rows")
		}
		b = rest
		if k.kept == nil {
			continue
		}
		room, err := k.kept.Add(f)
		if err != nil {
			return frames, 0, err
		}
		if !room {
			k.kept = nil
		}
	}
	k.read, k.ended = k.read+n, ended
	if p := k.of; p != nil {
		p.rows, p.done, p.tag = k.read, ended, "SELECT"
	}
	return frames, n, nil
}

// fetch is the job of a FETCH or MOVE.
type fetch struct {
	c *runner
	k *cursor
	// results are the formats that are asked for, if the cursor's rows have others.
	results []int16
	legs    []leg
	given   int64
	move    bool
	tag     string
	buf     []byte
	group   []wire.Frame // of kept rows, the last that were looked up
	first   int64        // the number of the first of them
}

// step implements job.
func (f *fetch) step(out []byte, rows int32) ([]byte, bool, string, error) {
	from := len(out)
	out, done, tag, err := f.walk(out, rows)
	if err == nil && f.results != nil {
		out, err = f.convert(out, from)
	}
	return out, done, tag, err
}

func (f *fetch) walk(out []byte, rows int32) ([]byte, bool, string, error) {
	left, full := int64(cursorPortion), len(out)+outputChunk
	if rows > 0 {
		left = min(left, int64(rows))
	}
	k := f.k
	for len(f.legs) > 0 && left > 0 && len(out) < full {
		l := &f.legs[0]
		last := len(f.legs) == 1
		gives := last && !f.move
		n := int64(0)
		switch before := max(k.pos-1, 0); {
		case l.n == 0, !l.back && k.ended && k.pos > k.read:
			f.legs = f.legs[1:]
			continue
		case l.back && before == 0:
			k.pos, l.n = 0, 0
			continue
		case !l.back && k.ended && k.pos == k.read:
			k.pos, l.n = k.read+1, 0
			continue
		case l.back && !gives:
			n = min(l.n, before)
			k.pos -= n
		case !l.back && k.pos < k.read && !gives:
			n = min(l.n, k.read-k.pos)
			k.pos += n
		case l.back || k.pos < k.read:
			if n = 1; l.back {
				k.pos--
			} else {
				k.pos++
			}
			row, err := f.row(k.pos)
			if err != nil {
				return out, false, "", err
			}
			out = append(out, row...)
			left--
		default:
			want := l.n
			if gives {
				want = min(want, left)
			}
			frames, got, err := k.pull(f.buf[:0], want)
			if err != nil {
				return out, false, "", err
			}
			f.buf = frames
			k.pos += got
			if n = got; gives {
				out = append(out, frames...)
			}
			if last {
				f.given += n
			}
			if l.n != plan.All {
				l.n -= n
			}
			return out, false, "", nil // what stops it is looked at
		}
		if last {
			f.given += n
		}
		if l.n != plan.All {
			l.n -= n
		}
	}
	if len(f.legs) > 0 {
		return out, false, "", nil
	}
	k.busy = false
	return out, true, f.tag + " " + strconv.FormatInt(f.given, 10), nil
}

// row finds a row that is kept.
func (f *fetch) row(n int64) (wire.Frame, error) {
	if n < f.first || n >= f.first+int64(len(f.group)) {
		var err error
		if f.first, f.group, err = f.k.kept.Around(n); err != nil {
			return nil, err
		}
	}
	return f.group[n-f.first], nil
}

// stop implements job.
func (f *fetch) stop() { f.k.busy = false }

// styles are the settings on which the text of a value depends.
func stylesOf(settings *executor.Settings) (s [6]string) {
	for i, name := range []string{"datestyle", "intervalstyle", "timezone", "bytea_output", "extra_float_digits", "lc_monetary"} {
		s[i] = settings.Text(name)
	}
	return s
}

// sameStyle reports whether texts that were read are still what they would be.
func (k *cursor) sameStyle(c *runner) bool {
	for i := range k.desc.fields {
		if wire.FormatAt(k.e.results, i) == 0 && !unstyled[k.desc.fields[i].TypeOID] {
			return k.styles == stylesOf(c.host.Settings())
		}
	}
	return true
}

// unstyled are types whose text depends on none of the styles.
var unstyled = map[uint32]bool{
	pgoid.Bool: true, pgoid.Char: true, pgoid.Name: true, pgoid.Int8: true, pgoid.Int2: true, pgoid.Int4: true, pgoid.Text: true, pgoid.OID: true,
	pgoid.Bpchar: true, pgoid.Varchar: true, pgoid.Time: true, pgoid.Timetz: true, pgoid.Numeric: true, pgoid.UUID: true,
}

// convertedMax bounds the parameters of one question to the shard that knows all types.
const convertedMax = 10000

// convert gives rows the formats that are asked for: the default shard reads the values in the one and writes them in the other.
func (f *fetch) convert(out []byte, from int) ([]byte, error) {
	c, fields := f.c, f.k.desc.fields
	rows := slices.Clone(out[from:])
	out = out[:from]
	shard := c.host.Snapshot().State().DefaultShard
	for len(rows) > 0 {
		q := request{results: f.results}
		text := []byte("VALUES ")
		for len(rows) > 0 && len(q.values)+len(fields) <= max(convertedMax, len(fields)) {
			frame, rest, _, err := wire.Cut(rows)
			if err == nil {
				rows = rest
				q.values, err = wire.SplitRow(frame.Body(), q.values)
			}
			if err != nil {
				return out, sqlstate.Wrap(err, sqlstate.InternalError, "a row that a cursor kept cannot be read")
			}
			for i := range fields {
				sep := ",$"
				if i == 0 {
					sep = "),($"
					if len(q.oids) == 0 {
						sep = "($"
					}
				}
				oid, is := fields[i].TypeOID, wire.FormatAt(f.k.e.results, i)
				if is == wire.FormatAt(f.results, i) { // it stays what it is
					oid = []uint32{pgoid.Text, pgoid.Bytea}[is]
				}
				q.oids = append(q.oids, oid)
				q.formats = append(q.formats, is)
				text = strconv.AppendInt(append(text, sep...), int64(len(q.oids)), 10)
			}
		}
		q.text = string(append(text, ')'))
		p, err := c.Participant(c.Ctx, shard, false)
		if err != nil {
			return out, err
		}
		s, err := c.send(p, q)
		if err != nil {
			return out, err
		}
		for {
			row, err := s.Next()
			if err != nil {
				return out, err
			}
			if row == nil {
				break
			}
			frame, mark := wire.Begin(out, wire.DataRow)
			out = wire.End(append(frame, row...), mark)
		}
	}
	return out, nil
}
