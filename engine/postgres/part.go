package postgres

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

// A part of a table is a run of its blocks. A row version has one place for as long as its table has one file, and
// its xmin says as of which view it was not there yet. See docs/design/moving-postgres.md, "Parts".

// partsMost bounds the parts of a table: each is a COPY, and a row of loaded_part.
const partsMost = 4096

// partsFew is how many a table may have of whose rows few move.
const partsFew = 64

// run is what engine.Part.Place says: blocks of one file of the table.
type run struct {
	file int64
	blocks
}

func (r run) String() string {
	to := ""
	if !r.last {
		to = strconv.FormatInt(r.to, 10)
	}
	return fmt.Sprintf("%d:%d-%s", r.file, r.from, to)
}

// runOf reads a Place. "" is all of the table.
func (f *tableFacts) runOf(place string) (run, error) {
	all := run{f.Filenode, blocks{to: f.Blocks, last: true}}
	if place == "" {
		return all, nil
	}
	file, of, ok1 := strings.Cut(place, ":")
	from, to, ok2 := strings.Cut(of, "-")
	r := run{}
	var errs [3]error
	r.file, errs[0] = strconv.ParseInt(file, 10, 64)
	r.from, errs[1] = strconv.ParseInt(from, 10, 64)
	if r.last = to == ""; r.last {
		r.to = max(r.from, f.Blocks)
	} else {
		r.to, errs[2] = strconv.ParseInt(to, 10, 64)
	}
	if !ok1 || !ok2 || cmp.Or(errs[:]...) != nil {
		return run{}, sqlstate.New(sqlstate.InternalError, "%q is no part of a table", place)
	}
	return r, nil
}

// divide cuts a run into pieces.
func (r run) divide(size int64) (out []run) {
	for at := r.from; ; at += size {
		piece := run{r.file, blocks{from: at, to: min(at+size, r.to)}}
		if at+size >= r.to {
			piece.last = r.last
			return append(out, piece)
		}
		out = append(out, piece)
	}
}

// missing are the runs of the table's blocks between others.
func (f *tableFacts) missing(there []run) (out []run) {
	slices.SortFunc(there, func(a, b run) int { return cmp.Compare(a.from, b.from) })
	at := int64(0)
	for _, r := range there {
		if r.from > at {
			out = append(out, run{f.Filenode, blocks{from: at, to: r.from}})
		}
		if at = r.to; r.last {
			return out
		}
	}
	return append(out, run{f.Filenode, blocks{from: at, to: max(at, f.Blocks), last: true}})
}

// keyed reports whether the identity is unique at each moment, so that a change's key says which row it ends. With a
// deferrable key two rows may have it in the middle of a transaction.
func (f *tableFacts) keyed() bool {
	if f.Identity == "i" {
		return len(f.Index) > 0
	}
	return len(f.Primary) > 0 && !f.Deferrable
}

// moved is the error for a table whose rows lie elsewhere than they did.
func moved(t *engine.MoveTable) error {
	return changed(t, "it has another file than when the copy began (TRUNCATE, VACUUM FULL, CLUSTER or ALTER TABLE)")
}

// Parts gives runs of blocks. Only those of a table with a key can be noted: of others a change does not say
// which row it is of. What a block and an xmin are in other storage than a heap, its extension knows.
func (r *rowSource) Parts(ctx context.Context, table int, bytes int64, there []engine.Part) ([]engine.Part, error) {
	t, f := &r.set.Tables[table], r.facts[table]
	size, err := r.partBlocks(ctx, table, bytes)
	if err != nil {
		return nil, r.v.failed(ctx, "divide a table", onTable(err, t))
	}
	var out, again []engine.Part
	var loaded []run
	since := ""
	if f.keyed() && f.Heap && (size < f.Blocks || len(there) > 0) {
		if since, err = r.since(ctx); err != nil {
			return nil, r.v.failed(ctx, "divide a table", onTable(err, t))
		}
	}
	for _, p := range there {
		l, err := f.runOf(p.Place)
		if err == nil && (l.file != f.Filenode || since == "") {
			err = moved(t)
		}
		if err != nil {
			return nil, r.v.failed(ctx, "divide a table", err)
		}
		loaded = append(loaded, l)
		again = append(again, engine.Part{Place: p.Place, Since: since, Changed: p.Since})
	}
	for _, gap := range f.missing(loaded) {
		for _, piece := range gap.divide(size) {
			out = append(out, engine.Part{Place: piece.String(), Since: since})
		}
	}
	return append(out, again...), nil // should it be interrupted again, more of the table is noted
}

// partBlocks is how many blocks a part has. Each costs a conversation with the target, so where few rows of a large table move it has more.
func (r *rowSource) partBlocks(ctx context.Context, table int, bytes int64) (int64, error) {
	f := r.facts[table]
	size := max(f.Blocks*bytes/max(f.Bytes, 1), f.Blocks/partsMost+1, 1)
	if f.Blocks/size < partsFew {
		return size, nil
	}
	var moves int64
	err := r.in(ctx, func(c *conn) (err error) {
		_, moves, err = f.sampled(ctx, c, &r.set, &r.set.Tables[table])
		return err
	})
	return max(size, (f.Blocks-1)/max(moves/max(bytes, 1), partsFew)+1), err
}

// since is the view's snapshot, as pg_current_snapshot prints it.
func (r *rowSource) since(ctx context.Context) (string, error) {
	r.asked.Lock()
	defer r.asked.Unlock()
	if r.sees != "" {
		return r.sees, nil
	}
	err := r.in(ctx, func(c *conn) error {
		res, err := c.exec(ctx, "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text")
		if err == nil {
			r.sees = res.Rows[0][0].String
		}
		return err
	})
	return r.sees, err
}

// changedSince is the condition of row versions that a view sees and an earlier one did not. Both are snapshots as
// [rowSource.since] gives them. The snapshot of a slot has all that had not committed in its list, parts of transactions
// as well, so that the server's own function can be asked. An xmin has 32 bits; none that is seen lies before
// the newest by more than a round, but for those of rows that were frozen long ago, which may be taken for new ones:
// loading them fails, as they are there.
func changedSince(before, now string) (string, error) {
	oldest, _, ok1 := strings.Cut(before, ":")
	_, rest, ok2 := strings.Cut(now, ":")
	next, _, ok3 := strings.Cut(rest, ":")
	low, err1 := strconv.ParseInt(oldest, 10, 64)
	high, err2 := strconv.ParseInt(next, 10, 64)
	if !ok1 || !ok2 || !ok3 || err1 != nil || err2 != nil {
		return "", sqlstate.New(sqlstate.InternalError, "%q or %q is no snapshot", before, now)
	}
	xid := fmt.Sprintf("(%[1]d - ((%[1]d - xmin::pg_catalog.text::pg_catalog.int8) & 4294967295))", high)
	return fmt.Sprintf(" AND CASE WHEN %[1]s >= %[2]d THEN NOT pg_catalog.pg_visible_in_snapshot(%[1]s::pg_catalog.text::pg_catalog.xid8, %[3]s::pg_catalog.pg_snapshot) ELSE false END",
		xid, low, literal(before)), nil
}

// noteSQL notes a part that was loaded; more of its rows may have been before.
func noteSQL(id string, t *engine.MoveTable, part engine.Part, rows, bytes int64) string {
	return fmt.Sprintf(`INSERT INTO cleave_internal.loaded_part AS p VALUES (%s, %s, %s, %s, %s, %d, %d)
		ON CONFLICT (id, table_schema, table_name, place) DO UPDATE SET since = excluded.since, rows = p.rows + excluded.rows, bytes = p.bytes + excluded.bytes`,
		literal(id), literal(t.Schema), literal(t.Name), literal(part.Place), literal(part.Since), rows, bytes)
}

func forgetPartsSQL(id, schema, table string) string {
	return fmt.Sprintf("DELETE FROM cleave_internal.loaded_part WHERE id = %s AND table_schema = %s AND table_name = %s", literal(id), literal(schema), literal(table))
}

// ForgetParts deletes rows of loaded_part.
func (v *mover) ForgetParts(ctx context.Context, id string, t *engine.MoveTable) error {
	const op = "forget parts of a table"
	if err := v.checkID(id); err != nil {
		return err
	}
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return err
	}
	defer v.done(c)
	return v.failed(ctx, op, v.transact(ctx, c, func() error {
		_, err := c.exec(ctx, forgetPartsSQL(id, t.Schema, t.Name))
		return err
	}))
}

// counted counts the bytes of a reader.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}
