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

func (r run) String() string { return fmt.Sprintf("%d:%d-%d", r.file, r.from, r.to) }

// runOf reads a Place.
func runOf(place string) (r run, err error) {
	if n, err := fmt.Sscanf(place, "%d:%d-%d", &r.file, &r.from, &r.to); n < 3 || err != nil {
		return r, sqlstate.New(sqlstate.InternalError, "%q is no part of a table", place)
	}
	return r, nil
}

// divide cuts a run into pieces.
func (r run) divide(size int64) (out []run) {
	for at := r.from; at < r.to; at += size {
		out = append(out, run{r.file, blocks{from: at, to: min(at+size, r.to)}})
	}
	return out
}

// missing are the runs of the table's blocks between others, and after them: there are more than when they were loaded, if it has grown.
func (f *tableFacts) missing(there []run) (out []run) {
	slices.SortFunc(there, func(a, b run) int { return cmp.Compare(a.from, b.from) })
	at := int64(0)
	for _, r := range append(there, run{f.Filenode, blocks{from: f.Blocks, to: f.Blocks}}) {
		if r.from > at {
			out = append(out, run{f.Filenode, blocks{from: at, to: r.from}})
		}
		at = max(at, r.to)
	}
	return out
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

// Parts gives runs of blocks, up to the last one that the table has by now: no row that the view sees lies behind that. Only parts of a
// table with a key can be noted: of others a change does not say
// which row it is of. What a block and an xmin are in other storage than a heap, its extension knows.
func (r *rowSource) Parts(ctx context.Context, table int, bytes int64, there []engine.Part) (parts []engine.Part, err error) {
	t := &r.set.Tables[table]
	err = r.in(ctx, func(c *conn) error {
		f, err := r.v.facts(ctx, c, t)
		if err != nil {
			return err
		}
		if f.OID != r.facts[table].OID || f.Filenode != r.facts[table].Filenode {
			return moved(t)
		}
		size, err := f.partBlocks(ctx, c, &r.set, t, bytes)
		if err != nil {
			return err
		}
		since := ""
		if f.keyed() && f.Heap && (size < f.Blocks || len(there) > 0) {
			if since, err = sees(ctx, c); err != nil {
				return err
			}
		}
		parts, err = f.parts(t, size, since, there)
		return err
	})
	return parts, r.v.failed(ctx, "divide a table", onTable(err, t))
}

// parts are those that are missing of a table, and then those that were loaded: should the copy be interrupted again, more of the table is
// noted.
func (f *tableFacts) parts(t *engine.MoveTable, size int64, since string, there []engine.Part) (out []engine.Part, err error) {
	var again []engine.Part
	var loaded []run
	for _, p := range there {
		l, err := runOf(p.Place)
		if err != nil {
			return nil, err
		}
		if l.file != f.Filenode || since == "" {
			return nil, moved(t)
		}
		loaded = append(loaded, l)
		again = append(again, engine.Part{Place: p.Place, Since: since, Changed: p.Since})
	}
	for _, gap := range f.missing(loaded) {
		for _, piece := range gap.divide(size) {
			out = append(out, engine.Part{Place: piece.String(), Since: since})
		}
	}
	if out = append(out, again...); len(out) == 0 {
		return []engine.Part{{}}, nil // an empty table is loaded too
	}
	return out, nil
}

// partBlocks is how many blocks a part has. Each costs a conversation with the target, so where few rows of a large table move it has more.
func (f *tableFacts) partBlocks(ctx context.Context, c *conn, set *engine.Set, t *engine.MoveTable, bytes int64) (int64, error) {
	size := max(f.Blocks*bytes/max(f.Bytes, 1), f.Blocks/partsMost+1, 1)
	if f.Blocks/size < partsFew {
		return size, nil
	}
	_, moves, err := f.sampled(ctx, c, set, t)
	return max(size, (f.Blocks-1)/max(moves/max(bytes, 1), partsFew)+1), err
}

// snapshot is what a view sees, in the words of pg_snapshot: every transaction before min, none from max on, and of those between all that
// are not in the list.
type snapshot struct {
	min, max int64
	list     string
}

// sees is the snapshot of a view, as a part's Since.
func sees(ctx context.Context, c *conn) (string, error) {
	res, err := c.exec(ctx, "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text")
	if err != nil {
		return "", err
	}
	s, err := snapshotOf(res.Rows[0][0].String)
	return s.String(), err
}

// snapshotOf reads a snapshot. That of a slot may have its max before its min, which pg_snapshot's own input refuses: only commits raise the
// one, and the other is raised by every transaction that ends (SnapBuildProcessRunningXacts in snapbuild.c). Min is asked first, so all
// between the two are seen.
func snapshotOf(text string) (s snapshot, err error) {
	least, rest, ok1 := strings.Cut(text, ":")
	next, list, ok2 := strings.Cut(rest, ":")
	var err1, err2 error
	s.min, err1 = strconv.ParseInt(least, 10, 64)
	s.max, err2 = strconv.ParseInt(next, 10, 64)
	if !ok1 || !ok2 || err1 != nil || err2 != nil {
		return s, sqlstate.New(sqlstate.InternalError, "%q is no snapshot", text)
	}
	if s.max > s.min {
		s.list = list
	}
	s.max = max(s.min, s.max)
	return s, nil
}

func (s snapshot) String() string { return fmt.Sprintf("%d:%d:%s", s.min, s.max, s.list) }

// changedSince is the condition of row versions that a view sees and an earlier one did not. The snapshot of a slot has all that had not
// committed in its list, parts of transactions
// as well, so that the server's own function can be asked. An xmin has 32 bits; none that is seen lies before
// the newest by more than a round, but for those of rows that were frozen long ago, which may be taken for new ones:
// loading them fails, as they are there.
func changedSince(before, now string) (string, error) {
	old, err := snapshotOf(before)
	if err != nil {
		return "", err
	}
	view, err := snapshotOf(now)
	xid := fmt.Sprintf("(%[1]d - ((%[1]d - xmin::pg_catalog.text::pg_catalog.int8) & 4294967295))", view.max)
	return fmt.Sprintf(" AND CASE WHEN %[1]s >= %[2]d THEN NOT pg_catalog.pg_visible_in_snapshot(%[1]s::pg_catalog.text::pg_catalog.xid8, %[3]s::pg_catalog.pg_snapshot) ELSE false END",
		xid, old.min, literal(old.String())), err
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
