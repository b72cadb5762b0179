package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// Load is one COPY in one transaction, which notes the part as well.
func (v *mover) Load(ctx context.Context, id string, t *engine.MoveTable, part engine.Part, rows io.Reader) (int64, error) {
	const op = "load rows"
	if err := v.checkID(id); err != nil {
		return 0, err
	}
	h, err := v.housekeeping(ctx, op)
	if err != nil {
		return 0, err
	}
	v.done(h)
	c, err := v.dial(ctx, forLoad, id, true)
	if err != nil {
		return 0, err
	}
	defer c.Close() // not kept: Loaded ends what has its name
	var n int64
	err = v.transact(ctx, c, func() error {
		// A newer leader need not wait for the rows to be told off.
		if err := v.obeyed(ctx, c); err != nil {
			return err
		}
		in := &counted{Reader: rows}
		tag, err := copyIn(ctx, c, "COPY "+qualify(t)+" ("+strings.Join(idents(t.Columns), ", ")+") FROM STDIN", in)
		if err != nil {
			return onTable(err, t)
		}
		if n, err = strconv.ParseInt(strings.TrimPrefix(tag, "COPY "), 10, 64); err == nil && part.Since != "" {
			_, err = c.exec(ctx, noteSQL(id, t, part, n, in.n))
		}
		return err
	})
	if err != nil {
		return 0, v.failed(ctx, op, err)
	}
	return n, nil
}

// SetLoaded writes a row, in a conversation that is named as those of Load are: a commit that is under way
// is over before somebody looks what is loaded.
func (v *mover) SetLoaded(ctx context.Context, id string, t engine.LoadedTable) error {
	const op = "note a table that is loaded"
	if err := v.checkID(id); err != nil {
		return err
	}
	h, err := v.housekeeping(ctx, op)
	if err != nil {
		return err
	}
	v.done(h)
	c, err := v.dial(ctx, forLoad, id, true) // Loaded and Release end it
	if err != nil {
		return err
	}
	defer c.Close()
	return v.failed(ctx, op, v.transact(ctx, c, func() error {
		_, err := c.exec(ctx, fmt.Sprintf(`INSERT INTO cleave_internal.loaded VALUES (%s, %s, %s, %d, %d) ON CONFLICT (id, table_schema, table_name) DO UPDATE SET rows = excluded.rows, bytes = excluded.bytes; %s`,
			literal(id), literal(t.Schema), literal(t.Name), t.Rows, t.Bytes, forgetPartsSQL(id, t.Schema, t.Name)))
		return err
	}))
}

// Loaded ends the processes of Load first: one may have a commit under way whose answer nobody got.
func (v *mover) Loaded(ctx context.Context, id string) ([]engine.LoadedTable, error) {
	const op = "look for tables that are loaded"
	if err := v.checkID(id); err != nil {
		return nil, err
	}
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return nil, err
	}
	defer v.done(c)
	err = v.transact(ctx, c, func() error { return nil }) // before anything is ended
	if err == nil {
		err = v.end(ctx, c, "application_name = "+literal(appName(forLoad, id)))
	}
	if err != nil {
		return nil, v.failed(ctx, op, err)
	}
	res, err := c.exec(ctx, fmt.Sprintf(`SELECT table_schema, table_name, rows::pg_catalog.text, bytes::pg_catalog.text, '', '' FROM cleave_internal.loaded WHERE id = %[1]s
		UNION ALL SELECT table_schema, table_name, rows::pg_catalog.text, bytes::pg_catalog.text, place, since FROM cleave_internal.loaded_part WHERE id = %[1]s`, literal(id)))
	if err != nil {
		return nil, v.failed(ctx, op, err)
	}
	var out []engine.LoadedTable
	for _, row := range res.Rows {
		out = engine.AddLoaded(out, engine.LoadedTable{Schema: row[0].String, Name: row[1].String, Rows: count(row[2]), Bytes: count(row[3])},
			engine.Part{Place: row[4].String, Since: row[5].String})
	}
	return out, nil
}

// obeyed looks at the token without keeping others from changing it.
func (v *mover) obeyed(ctx context.Context, c *conn) error {
	res, err := c.exec(ctx, strings.TrimSuffix(tokenSQL, " FOR SHARE"))
	if err != nil || len(res.Rows) == 0 {
		return err
	}
	return v.compare(res.Rows[0][0].String)
}

// copyIn runs a COPY FROM STDIN and returns its tag. An error of the reader's ends
// the COPY and is returned.
func copyIn(ctx context.Context, c *conn, sql string, rows io.Reader) (tag string, err error) {
	err = engine.Bounded(ctx, c, time.Time{}, func() error {
		if err := engine.Ask(c, sql); err != nil {
			return err
		}
		begun, answered := make(chan bool, 1), make(chan struct{})
		var failed error
		var wait sync.WaitGroup
		wait.Go(func() {
			defer close(answered)
			tag, failed = copyAnswer(c, begun)
		})
		defer wait.Wait()
		select {
		case <-begun:
		case <-answered:
			wait.Wait()
			return failed
		}
		source := pour(c, rows, answered)
		wait.Wait()
		if source != nil && (failed == nil || sqlstate.CodeOf(failed) == sqlstate.QueryCanceled && ctx.Err() == nil) {
			return source
		}
		return failed
	})
	return tag, err
}

// copyAnswer reads up to ReadyForQuery.
func copyAnswer(c *conn, begun chan<- bool) (tag string, failed error) {
	for {
		b, err := c.Receive()
		if err != nil {
			return "", errors.Join(err, failed)
		}
		for len(b) > 0 {
			f, rest, ok, err := wire.Cut(b)
			if err != nil || !ok {
				return "", wire.ErrMalformed
			}
			b = rest
			switch f.Type() {
			case wire.CopyInResponse:
				begun <- true
			case wire.CommandComplete:
				tag, _, _ = wire.CutString(f.Body())
			case wire.ErrorResponse:
				failed = wire.ParseReport(f.Body())
			case wire.ReadyForQuery:
				return tag, failed
			}
		}
	}
}

// pour sends what the reader has, in large frames, until it ends or the server has
// answered.
func pour(c *conn, rows io.Reader, answered <-chan struct{}) error {
	frame := make([]byte, wire.Header+copyChunk)
	for {
		n, err := rows.Read(frame[wire.Header:])
		select {
		case <-answered:
			return nil
		default:
		}
		if n > 0 {
			b, m := wire.Begin(frame[:0], wire.CopyDataF)
			if err := c.Send(wire.End(b[:wire.Header+n], m)); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return c.Send(wire.AppendEmpty(nil, wire.CopyDone))
		case err != nil:
			return errors.Join(err, c.Send(wire.AppendCopyFail(nil, "the rows ended with an error")))
		}
	}
}

// where is the condition of a table's rows in the set.
func where(set *engine.Set, t *engine.MoveTable) string {
	in := keyspace.Condition(&set.Keys, idents(t.ShardKey))
	if set.Except {
		return "(" + in + ") IS NOT TRUE"
	}
	return in
}

// Sums computes them in one REPEATABLE READ transaction.
func (v *mover) Sums(ctx context.Context, set engine.Set, pace engine.Pace) ([]engine.Sum, error) {
	const op = "compute sums"
	c, err := v.dial(ctx, forOther, "", false)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := c.exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err != nil {
		return nil, v.failed(ctx, op, err)
	}
	sums, err := v.sums(ctx, c, set, pace)
	return sums, v.failed(ctx, op, err)
}

// sums: concat gives a value's text as COPY does (bpchar's trailing blanks, "t" for
// true), where a cast to text need not; num_nulls tells NULL, also of a row type.
//
// With a pace the table is read in pieces of blocks. The transaction has a lock on it from its first
// statement, so no row that its snapshot sees comes to lie elsewhere, and rows of blocks that are added
// are not seen.
func (v *mover) sums(ctx context.Context, c *conn, set engine.Set, pace engine.Pace) ([]engine.Sum, error) {
	out := make([]engine.Sum, len(set.Tables))
	for i := range set.Tables {
		t := &set.Tables[i]
		texts, line := make([]string, len(t.Columns)), make([]string, len(t.Columns))
		for j, name := range idents(t.Columns) {
			texts[j] = fmt.Sprintf("CASE WHEN pg_catalog.num_nulls(%[1]s) = 0 THEN pg_catalog.concat(%[1]s) END AS c%[2]d", name, j)
			line[j] = fmt.Sprintf("COALESCE(pg_catalog.octet_length(c%[1]d) || ':' || c%[1]d, 'N')", j)
		}
		// OFFSET 0 keeps each text from being made twice.
		sql := `SELECT pg_catalog.count(*)::pg_catalog.text, COALESCE(pg_catalog.sum(pg_catalog.hashtextextended((` + strings.Join(line, " || ") + `) COLLATE pg_catalog."C", 0)), 0)::pg_catalog.text
			FROM (SELECT ` + strings.Join(texts, ", ") + ` FROM ONLY ` + qualify(t) + ` WHERE ` + where(&set, t)
		all, err := blocksOf(ctx, c, t, pace)
		if err != nil {
			return nil, onTable(err, t)
		}
		if err := all.each(ctx, pace, func(cond string) error {
			res, err := c.exec(ctx, sql+cond+" OFFSET 0) AS rows")
			if err != nil {
				return onTable(err, t)
			}
			sum, ok := new(big.Int).SetString(res.Rows[0][1].String, 10)
			if !ok {
				return sqlstate.New(sqlstate.InternalError, "the sum of table %q is not a number", t.Name)
			}
			out[i].Rows += count(res.Rows[0][0])
			out[i].Checksum += sum.Mod(sum, two64).Uint64()
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

var two64 = new(big.Int).Lsh(big.NewInt(1), 64)

// blocks are a run of a table's blocks: from <= block < to, and if it is the last run, all after that.
type blocks struct {
	from, to int64
	last     bool
}

// blocksOf are all of a table, for a transaction that goes through them piece by piece.
func blocksOf(ctx context.Context, c *conn, t *engine.MoveTable, pace engine.Pace) (blocks, error) {
	if pace == nil {
		return blocks{last: true}, nil
	}
	if _, err := c.exec(ctx, "SELECT FROM ONLY "+qualify(t)+" LIMIT 0"); err != nil {
		return blocks{}, err
	}
	res, err := c.exec(ctx, "SELECT (pg_catalog.pg_relation_size("+literal(quoteName(t.Schema)+"."+quoteName(t.Name))+"::pg_catalog.regclass) / pg_catalog.current_setting('block_size')::pg_catalog.int8)::pg_catalog.text")
	if err != nil {
		return blocks{}, err
	}
	return blocks{to: count(res.Rows[0][0]), last: true}, nil
}

// blockBytes is what a block has, unless the server was built in another way.
const blockBytes = 8 << 10

// each calls do with conditions, to be added to others, that cut the run into pieces as large as the pace
// says; with one if there is no pace.
func (b blocks) each(ctx context.Context, pace engine.Pace, do func(cond string) error) error {
	for at, read := b.from, int64(0); ; {
		next := b.to
		if pace != nil {
			bytes, err := pace(ctx, read)
			if err != nil {
				return err
			}
			next = min(at+max(bytes/blockBytes, 1), b.to)
		}
		cond := ""
		if at > 0 {
			cond += fmt.Sprintf(" AND ctid >= '(%d,0)'::pg_catalog.tid", at)
		}
		if next < b.to || !b.last {
			cond += fmt.Sprintf(" AND ctid < '(%d,0)'::pg_catalog.tid", next)
		}
		if err := do(cond); err != nil || next == b.to {
			return err
		}
		at, read = next, (next-at)*blockBytes
	}
}

const (
	// sampleBlocks is how many blocks of a table Sizes reads, about.
	sampleBlocks = 300
)

// Sizes looks at a sample of each table's blocks. The bytes are those of the rows, with their
// out-of-line values: what files keep of rows that have gone, and indexes, would be counted to those
// that are left.
func (v *mover) Sizes(ctx context.Context, set engine.Set) (rows, bytes int64, err error) {
	const op = "estimate sizes"
	c, done, err := v.reading(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer done()
	facts, err := v.factsOf(ctx, c, set.Tables)
	if err != nil {
		return 0, 0, v.failed(ctx, op, err)
	}
	for i := range set.Tables {
		r, b, err := facts[i].sampled(ctx, c, &set, &set.Tables[i])
		if err != nil {
			return 0, 0, v.failed(ctx, op, err)
		}
		rows, bytes = rows+r, bytes+b
	}
	return rows, bytes, nil
}

// sampled is Sizes of one table.
func (f *tableFacts) sampled(ctx context.Context, c *conn, set *engine.Set, t *engine.MoveTable) (rows, bytes int64, err error) {
	percent := 100.0
	if f.Blocks > sampleBlocks {
		percent = 100 * sampleBlocks / float64(f.Blocks)
	}
	sample := ""
	if percent < 100 {
		sample = fmt.Sprintf(" TABLESAMPLE SYSTEM (%g)", percent)
	}
	res, err := c.exec(ctx, fmt.Sprintf(`SELECT pg_catalog.count(*)::pg_catalog.text, coalesce(pg_catalog.sum(pg_catalog.pg_column_size(%s.*)), 0)::pg_catalog.text FROM ONLY %s%s WHERE %s`,
		ident(t.Name), qualify(t), sample, where(set, t)))
	if err != nil {
		return 0, 0, onTable(err, t)
	}
	return int64(float64(count(res.Rows[0][0])) * 100 / percent), int64(float64(count(res.Rows[0][1])) * 100 / percent), nil
}

// purges are where the last Purge of each set has stopped, so that the next does not go
// through all that was deleted.
type purges struct {
	mu sync.Mutex
	at map[string]purgePlace
}

type purgePlace struct {
	table int
	row   string // the last one deleted; "" is before all
}

func (p *purges) get(key string) purgePlace {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at[key]
}

func (p *purges) set(key string, at purgePlace, end bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if end {
		delete(p.at, key)
		return
	}
	if p.at == nil {
		p.at = map[string]purgePlace{}
	}
	p.at[key] = at
}

// Purge deletes a batch in one transaction. It goes on where it has stopped, and has
// been through all tables, that one from its beginning too, before it says that none are
// left.
func (v *mover) Purge(ctx context.Context, set engine.Set, limit int) (int, error) {
	const op = "purge rows"
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return 0, err
	}
	defer v.done(c)
	key := ""
	for i := range set.Tables {
		key += qualify(&set.Tables[i]) + " " + where(&set, &set.Tables[i]) + "; "
	}
	from := v.s.purges.get(key)
	if len(set.Tables) == 0 {
		return 0, nil
	}
	var n int
	var stopped purgePlace
	err = v.transact(ctx, c, func() error {
		for k := range len(set.Tables) + 1 {
			at := purgePlace{table: (from.table + k) % len(set.Tables)}
			bound := "true"
			switch {
			case from.row == "" && k == len(set.Tables):
				return nil
			case from.row != "" && k == 0:
				bound = "ctid >= '" + from.row + "'::pg_catalog.tid"
			case from.row != "" && k == len(set.Tables):
				bound = "ctid < '" + from.row + "'::pg_catalog.tid"
			}
			t := &set.Tables[at.table]
			res, err := c.exec(ctx, fmt.Sprintf(`WITH gone AS (DELETE FROM ONLY %[1]s WHERE ctid = ANY (ARRAY(SELECT ctid FROM ONLY %[1]s WHERE %[2]s AND %[3]s LIMIT %[4]d)) RETURNING ctid AS at)
				SELECT pg_catalog.count(*)::pg_catalog.text, pg_catalog.max(at)::pg_catalog.text FROM gone`, qualify(t), bound, where(&set, t), limit-n))
			if err != nil {
				return onTable(err, t)
			}
			n += int(count(res.Rows[0][0]))
			if at.row = res.Rows[0][1].String; n >= limit {
				stopped = at
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return 0, v.failed(ctx, op, err)
	}
	v.s.purges.set(key, stopped, n < limit)
	return n, nil
}

var _ engine.Evictor = (*mover)(nil)

// Evict locks the rows by deleting them: a move that purges or loads the same keys
// waits for the end.
func (v *mover) Evict(ctx context.Context, set engine.Set, want int64, sure func(context.Context) error) error {
	const op = "delete rows"
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return err
	}
	defer v.done(c)
	err = func() error {
		if _, err := c.exec(ctx, "BEGIN"); err != nil {
			return err
		}
		var gone int64
		for i := range set.Tables {
			t := &set.Tables[i]
			res, err := c.exec(ctx, "DELETE FROM ONLY "+qualify(t)+" WHERE "+where(&set, t))
			if err != nil {
				return onTable(err, t)
			}
			n, err := strconv.ParseInt(strings.TrimPrefix(res.Tag, "DELETE "), 10, 64)
			if err != nil {
				return err
			}
			gone += n
		}
		if gone != want {
			return sqlstate.New(sqlstate.SerializationFailure, "the rows to delete are %d, not %d: somebody has changed them", gone, want)
		}
		if err := sure(ctx); err != nil {
			return err
		}
		_, err := c.exec(ctx, "COMMIT")
		return err
	}()
	if err != nil && engine.Lost(err) == nil {
		_, _ = c.exec(context.WithoutCancel(ctx), "ROLLBACK") // if it fails the conversation is closed next
	}
	return v.failed(ctx, op, err)
}
