package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
)

// rowsPerInsert bounds a statement that fills a table.
const rowsPerInsert = 200

// Fill writes what a table holds in a plain database to the shards, past the
// router: each row where the map says, all rows of a reference table everywhere.
// The table has to be empty there.
func (c *Cluster) Fill(ctx context.Context, plain *pgconn.PgConn, namespace, table string) error {
	t, ok := c.Snapshot().Table(namespace, table)
	if !ok {
		return fmt.Errorf("the map has no table %s.%s", namespace, table)
	}
	columns, err := stored(ctx, plain, t)
	if err != nil {
		return err
	}
	rows, err := read(ctx, plain, t, columns)
	if err != nil {
		return err
	}
	byShard := map[string][][]*string{}
	for _, row := range rows {
		shards, err := c.owners(t, columns, row)
		if err != nil {
			return err
		}
		for _, s := range shards {
			byShard[s] = append(byShard[s], row)
		}
	}
	for shard, list := range byShard {
		err := c.unguarded(ctx, shard, t, func() error {
			for part := range slices.Chunk(list, rowsPerInsert) {
				if _, err := c.On(shard, insertText(t, columns, part)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return c.estrange(ctx, plain, t, columns, rows)
}

// unguarded runs f in a transaction of a shard in which the guard of a
// reference table, which refuses all writes, is away. Other guards stay.
func (c *Cluster) unguarded(ctx context.Context, shard string, t *shardmap.Table, f func() error) error {
	if t.Kind != shardmap.Reference {
		return f()
	}
	return c.without(ctx, shard, t, f)
}

// without runs f in a transaction of a shard without the guard of a table.
func (c *Cluster) without(ctx context.Context, shard string, t *shardmap.Table, f func() error) error {
	conn := c.conns[shard]
	_, err := c.On(shard, "BEGIN")
	if err == nil {
		err = conn.DropGuard(ctx, t.Schema, t.Name)
	}
	if err == nil {
		err = f()
	}
	if err == nil {
		err = schema.SetGuards(ctx, conn, c.Snapshot(), shard, func(other *shardmap.Table) bool { return other == t })
	}
	if err != nil {
		_, rerr := c.On(shard, "ROLLBACK")
		return errors.Join(err, rerr)
	}
	_, err = c.On(shard, "COMMIT")
	return err
}

func insertText(t *shardmap.Table, columns []string, rows [][]*string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "INSERT INTO %s (%s) ", tableName(t), quoted(columns))
	if slices.ContainsFunc(t.Columns, func(c shardmap.Column) bool { return c.Identity != "" }) {
		b.WriteString("OVERRIDING SYSTEM VALUE ")
	}
	b.WriteString("VALUES ")
	for i, row := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('(')
		for j, v := range row {
			if j > 0 {
				b.WriteByte(',')
			}
			if v == nil {
				b.WriteString("NULL")
			} else {
				b.WriteString(executor.QuoteLiteral(*v))
			}
		}
		b.WriteByte(')')
	}
	return b.String()
}

// owners returns the shards that hold a row.
func (c *Cluster) owners(t *shardmap.Table, columns []string, row []*string) ([]string, error) {
	snap := c.Snapshot()
	all := snap.Shards()
	switch t.Kind {
	case shardmap.Reference:
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].Name
		}
		return names, nil
	case shardmap.Whole:
		return []string{all[0].Name}, nil
	}
	key, err := c.key(t, columns, row)
	if err != nil {
		return nil, err
	}
	ix, _ := snap.Keyspace(t.Keyspace)
	at, err := ix.Locate(key)
	if err != nil {
		return nil, err
	}
	return []string{at.Shard}, nil
}

// Rows returns a table's rows as the shards hold them, sorted, each as one text
// in which NULL is \N. It is an error if a row is on a shard that does not own
// it, or if the shards' copies of a reference table differ.
func (c *Cluster) Rows(namespace, table string) ([]string, error) {
	t, ok := c.Snapshot().Table(namespace, table)
	if !ok {
		return nil, fmt.Errorf("the map has no table %s.%s", namespace, table)
	}
	var all []string
	columns := columnNames(t)
	for i, s := range c.Snapshot().Shards() {
		if t.Kind == shardmap.Whole && i > 0 {
			break
		}
		res, err := c.On(s.Name, "SELECT "+quoted(columns)+" FROM "+tableName(t))
		if err != nil {
			return nil, err
		}
		var here []string
		for _, r := range res.Rows {
			row := make([]*string, len(r))
			for j := range r {
				if !r[j].Null {
					row[j] = &r[j].String
				}
			}
			text := rowText(row)
			if strange, err := c.strange(s.Name, t, columns, row); err != nil {
				return nil, err
			} else if strange {
				continue
			}
			here = append(here, text)
			owners, err := c.owners(t, columns, row)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(owners, s.Name) {
				return nil, fmt.Errorf("%s has the row %s of %s, which belongs on %v", s.Name, text, t.Name, owners)
			}
		}
		slices.Sort(here)
		switch {
		case t.Kind != shardmap.Reference || i == 0:
			all = append(all, here...)
		case !slices.Equal(here, all):
			return nil, fmt.Errorf("%s and %s hold different rows of the reference table %s:\n%s\n--\n%s", c.Snapshot().Shards()[0].Name, s.Name, t.Name,
				strings.Join(all, "\n"), strings.Join(here, "\n"))
		}
	}
	slices.Sort(all)
	return all, nil
}

// PlainRows returns the rows of the table of that name in a plain database, in
// the form of Rows.
func (c *Cluster) PlainRows(ctx context.Context, plain *pgconn.PgConn, namespace, table string) ([]string, error) {
	t, ok := c.Snapshot().Table(namespace, table)
	if !ok {
		return nil, fmt.Errorf("the map has no table %s.%s", namespace, table)
	}
	rows, err := read(ctx, plain, t, columnNames(t))
	if err != nil {
		return nil, err
	}
	out := make([]string, len(rows))
	for i, row := range rows {
		out[i] = rowText(row)
	}
	slices.Sort(out)
	return out, nil
}

// Empty deletes a table's rows on the shards, past the router.
func (c *Cluster) Empty(ctx context.Context, namespace, table string) error {
	t, ok := c.Snapshot().Table(namespace, table)
	if !ok {
		return fmt.Errorf("the map has no table %s.%s", namespace, table)
	}
	for i, s := range c.Snapshot().Shards() {
		if t.Kind == shardmap.Whole && i > 0 {
			break
		}
		away := c.unguarded
		if _, ok := c.Snapshot().Strangers(t.Keyspace, s.Name); ok && t.Kind == shardmap.Sharded {
			away = c.past
		}
		err := away(ctx, s.Name, t, func() error {
			_, err := c.On(s.Name, "DELETE FROM "+tableName(t))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func read(ctx context.Context, plain *pgconn.PgConn, t *shardmap.Table, columns []string) ([][]*string, error) {
	sql := "SELECT " + quoted(columns) + " FROM " + tableName(t)
	results, err := plain.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sql, err)
	}
	var rows [][]*string
	for _, r := range results[0].Rows {
		row := make([]*string, len(r))
		for i, v := range r {
			if v != nil {
				s := string(v)
				row[i] = &s
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// stored are the columns of a table that an INSERT may give values for.
func stored(ctx context.Context, plain *pgconn.PgConn, t *shardmap.Table) ([]string, error) {
	res := plain.ExecParams(ctx, "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
		[][]byte{[]byte(tableName(t))}, nil, nil, nil).Read()
	if res.Err != nil {
		return nil, res.Err
	}
	var names []string
	for _, r := range res.Rows {
		names = append(names, string(r[0]))
	}
	return names, nil
}

func rowText(row []*string) string {
	cells := make([]string, len(row))
	for i, v := range row {
		cells[i] = `\N`
		if v != nil {
			cells[i] = *v
		}
	}
	return strings.Join(cells, "|")
}

func columnNames(t *shardmap.Table) []string {
	names := make([]string, len(t.Columns))
	for i := range t.Columns {
		names[i] = t.Columns[i].Name
	}
	return names
}

func tableName(t *shardmap.Table) string {
	return pgx.Identifier{t.Schema, t.Name}.Sanitize()
}

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = pgx.Identifier{n}.Sanitize()
	}
	return strings.Join(out, ", ")
}
