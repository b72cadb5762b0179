package admin

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Bounds of carrying an unsharded table to another shard. Its rows are never in memory together: both copies are compared by sums of
// buckets, and the rows of those that differ are read.
const carryBuckets = 1 << 16

// copyHeld is how many bytes of rows that may differ are held; if there are more, all rows are copied anew. Tests change it.
var copyHeld = 64 << 20

// sums are checksums of a table's rows by the hash of their keys.
type sums struct {
	rows    int
	buckets []bucket
}

// bucket is the number of its rows, and two sums of their hashes: equal rows have equal ones, in whatever order they come.
type bucket struct {
	rows int
	a, b uint64
}

var carrySeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// bucketOf is where the row is counted; key are the places of the primary key's columns, nil for none.
func bucketOf(r []engine.Text, text string, key []int) int {
	if key != nil {
		text = copyKeyText(r, key)
	}
	return int(maphash.String(carrySeeds[0], text) % carryBuckets)
}

// eachRow gives all rows of a table, one after the other.
func eachRow(conn engine.Conn, t *shardmap.Table, f func(r []engine.Text) error) error {
	_, list := copied(t)
	return engine.Each(conn, plain+"SELECT "+list+" FROM "+quotedTable(t), f)
}

func sumRows(conn engine.Conn, t *shardmap.Table, key []int) (*sums, error) {
	s := &sums{buckets: make([]bucket, carryBuckets)}
	err := eachRow(conn, t, func(r []engine.Text) error {
		text := rowText(r)
		b := &s.buckets[bucketOf(r, text, key)]
		b.rows++
		b.a += maphash.String(carrySeeds[0], text)
		b.b += maphash.String(carrySeeds[1], text)
		s.rows++
		return nil
	})
	return s, err
}

// differing are the buckets that are not the same, nil if there are none.
func (s *sums) differing(from *sums) (out map[int]bool) {
	for i := range s.buckets {
		if s.buckets[i] != from.buckets[i] {
			if out == nil {
				out = map[int]bool{}
			}
			out[i] = true
		}
	}
	return out
}

// errTooMany ends the reading of rows that differ when there are too many of them.
var errTooMany = errors.New("admin: too many rows differ")

// readSome reads the rows of some buckets. Errors: errTooMany, after all rows were given.
func readSome(conn engine.Conn, t *shardmap.Table, key []int, of map[int]bool) (*copyRows, error) {
	c := &copyRows{rows: map[string][]engine.Text{}, times: map[string]int{}}
	held := 0
	err := eachRow(conn, t, func(r []engine.Text) error {
		text := rowText(r)
		if !of[bucketOf(r, text, key)] {
			return nil
		}
		if held += 3 * len(text); held > copyHeld {
			return errTooMany
		}
		c.rows[text] = r
		c.times[text]++
		return nil
	})
	return c, err
}

// copyTableRows is a schema.CopyRows. It leaves alone the rows that are already on the other shard.
func copyTableRows(ctx context.Context, from, to engine.Conn, t *shardmap.Table, ahead bool) error {
	key, err := copyKey(ctx, to, t)
	if err != nil {
		return err
	}
	var want, have *sums
	var failed error
	read := make(chan struct{})
	go func() {
		defer close(read)
		want, failed = sumRows(from, t, key)
	}()
	have, err = sumRows(to, t, key)
	<-read
	if err := errors.Join(failed, err); err != nil {
		return err
	}
	differing := have.differing(want)
	if len(differing) == 0 {
		return nil
	}
	desc, err := to.DescribeTable(ctx, t.Schema, t.Name)
	if err != nil {
		return err
	}
	if ahead || desc.Guard != nil || have.rows > 0 {
		// Only a PostgreSQL shard has something there. Nothing fires, the guard that keeps others away neither, and foreign keys are
		// not looked at: they hold where the rows come from, as of one moment in the end.
		past, ok := to.(engine.Triggered)
		if !ok {
			return sqlstate.New(sqlstate.InternalError, "rows of table %s cannot be written past its triggers here", t.QualifiedName())
		}
		if err := past.PastTriggers(ctx); err != nil {
			return err
		}
	}
	if err := copyDifferingRows(from, to, t, key, have.rows, differing); err != nil || ahead {
		return err
	}
	if have, err = sumRows(to, t, key); err != nil {
		return err
	}
	if d := have.differing(want); len(d) > 0 {
		return sqlstate.New(sqlstate.DataCorrupted, "the copies of table %s differ: %d rows and %d, with other values in %d of %d parts", t.QualifiedName(), want.rows, have.rows, len(d), carryBuckets).
			WithHint("nothing was changed: look for values that the engines print differently")
	}
	return nil
}

// copyDifferingRows makes the rows of some buckets those of the other copy, or all of them if these are too many.
func copyDifferingRows(from, to engine.Conn, t *shardmap.Table, key []int, have int, differing map[int]bool) error {
	if have > 0 && key != nil {
		was, err := readSome(to, t, key, differing)
		var is *copyRows
		if err == nil {
			is, err = readSome(from, t, key, differing)
		}
		if err == nil {
			return replaceRows(to, t, key, is, was)
		}
		if !errors.Is(err, errTooMany) {
			return err
		}
	}
	if have > 0 { // without a key no row can be told from an equal one
		if _, err := engine.Exec(to, "DELETE FROM "+quotedTable(t)); err != nil {
			return err
		}
	}
	var some [][]engine.Text
	put := func() error {
		err := insertRows(to, t, some)
		some = some[:0]
		return err
	}
	err := eachRow(from, t, func(r []engine.Text) error {
		if some = append(some, r); len(some) < carryBatch {
			return nil
		}
		return put()
	})
	if err != nil || len(some) == 0 {
		return err
	}
	return put()
}

// replaceRows makes rows of a carried table, which nobody else sees, those of the other. What differs is deleted first: so no
// unique key is in the way of another row's new values.
func replaceRows(to engine.Conn, t *shardmap.Table, key []int, want, have *copyRows) error {
	columns, _ := copied(t)
	var names []string
	for _, at := range key {
		names = append(names, quoted(columns[at].Name))
	}
	var gone []string
	for text, r := range have.rows {
		if want.times[text] > 0 {
			continue
		}
		values := make([]string, len(key))
		for i, at := range key {
			values[i] = textLiteral(r[at])
		}
		gone = append(gone, "("+strings.Join(values, ", ")+")")
	}
	for some := range slices.Chunk(gone, carryBatch) {
		if _, err := engine.Exec(to, "DELETE FROM "+quotedTable(t)+" WHERE ("+strings.Join(names, ", ")+") IN ("+strings.Join(some, ", ")+")"); err != nil {
			return err
		}
	}
	var rows [][]engine.Text
	for text, r := range want.rows {
		if have.times[text] == 0 {
			rows = append(rows, r)
		}
	}
	for some := range slices.Chunk(rows, carryBatch) {
		if err := insertRows(to, t, some); err != nil {
			return err
		}
	}
	return nil
}

func insertRows(to engine.Conn, t *shardmap.Table, rows [][]engine.Text) error {
	_, list := copied(t)
	_, err := engine.Exec(to, "INSERT INTO "+quotedTable(t)+" ("+list+") OVERRIDING SYSTEM VALUE VALUES "+rowLists(rows))
	return err
}

// carryBatch is how many rows a statement writes.
const carryBatch = 500

// rowLists are rows as the lists of a VALUES.
func rowLists(rows [][]engine.Text) string {
	lists := make([]string, len(rows))
	for i, r := range rows {
		values := make([]string, len(r))
		for j := range r {
			values[j] = textLiteral(r[j])
		}
		lists[i] = "(" + strings.Join(values, ", ") + ")"
	}
	return strings.Join(lists, ", ")
}
