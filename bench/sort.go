package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// sorted loads many rows and reads them in an order over all shards. It prints the
// memory that the router had: the one that loaded them, and a new one that reads them
// (again starts it, and returns its process).
func sorted(ctx context.Context, o options, cleaveURL string, pid int, again func() (int, error)) error {
	loaded, err := sortLoad(ctx, o, cleaveURL)
	if err != nil {
		return err
	}
	loading, err := memoryOf(pid, "VmHWM:")
	if err != nil {
		return err
	}
	if pid, err = again(); err != nil {
		return err
	}
	c, err := pgx.Connect(ctx, cleaveURL)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	before, err := resident(pid)
	if err != nil {
		return err
	}
	began := time.Now()
	n, bytes, err := inOrder(ctx, c, `SELECT val, id, note FROM bench_sort ORDER BY val, id`)
	if err != nil {
		return err
	}
	took := time.Since(began)
	if n != o.sort {
		return fmt.Errorf("%d of %d rows came", n, o.sort)
	}
	peak, err := memoryOf(pid, "VmHWM:")
	if err != nil {
		return err
	}
	fmt.Printf("ORDER BY of %d rows (%d MiB) over %d shards: %.0f s. Peak resident memory of the router %.1f MiB, %.1f MiB before it began. The COPY that loaded them took %.0f s; peak of that router %.1f MiB.\n\n",
		n, bytes>>20, o.shards, took.Seconds(), peak, before, loaded.Seconds(), loading)
	return nil
}

func sortLoad(ctx context.Context, o options, url string) (time.Duration, error) {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer c.Close(context.WithoutCancel(ctx))
	if _, err := c.Exec(ctx, `CREATE TABLE bench_sort (id bigint PRIMARY KEY, val bigint, note text) WITH (cleave.shard_key = 'id')`); err != nil {
		return 0, err
	}
	began := time.Now()
	tag, err := c.PgConn().CopyFrom(ctx, &sortRows{rows: o.sort}, `COPY bench_sort FROM STDIN`)
	if err != nil {
		return 0, fmt.Errorf("COPY: %w", err)
	}
	if tag.RowsAffected() != int64(o.sort) {
		return 0, fmt.Errorf("%d of %d rows were copied", tag.RowsAffected(), o.sort)
	}
	return time.Since(began), nil
}

// inOrder reads all rows of a statement whose first two columns it is sorted by.
func inOrder(ctx context.Context, c *pgx.Conn, sql string) (rows, bytes int, err error) {
	r := c.PgConn().ExecParams(ctx, sql, nil, nil, nil, nil)
	var last [2]int64
	for r.NextRow() {
		var at [2]int64
		values := r.Values()
		for i := range at {
			if at[i], err = strconv.ParseInt(string(values[i]), 10, 64); err != nil {
				return rows, bytes, errors.Join(err, closed(r.Close()))
			}
		}
		if rows > 0 && (at[0] < last[0] || at[0] == last[0] && at[1] <= last[1]) {
			return rows, bytes, errors.Join(fmt.Errorf("row %d is not in order: %v after %v", rows, at, last), closed(r.Close()))
		}
		last = at
		rows++
		for _, v := range values {
			bytes += len(v)
		}
	}
	return rows, bytes, closed(r.Close())
}

func closed(_ any, err error) error { return err }

// sortRows are the lines of a COPY.
type sortRows struct {
	rows, at int
	rest     []byte
}

// Read implements io.Reader.
func (r *sortRows) Read(b []byte) (n int, err error) {
	for n < len(b) {
		if len(r.rest) == 0 {
			if r.at == r.rows {
				return n, io.EOF
			}
			r.at++
			r.rest = fmt.Appendf(r.rest[:0], "%d\t%d\trow number %d\n", r.at, (r.at*7919)%1_000_003, r.at)
		}
		k := copy(b[n:], r.rest)
		r.rest = r.rest[k:]
		n += k
	}
	return n, nil
}
