package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/capability"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
)

// Move puts every range, listed value and pin of a keyspace on the move: of one
// the rows are on their way to the next shard, of the other they were moved and are
// still where they came from. Fill then gives the other shard rows with these keys,
// which are not what the owner has.
func (c *Cluster) Move(ctx context.Context, name string) error {
	snap, err := c.dir.Load(ctx)
	if err != nil {
		return err
	}
	ix, ok := snap.Keyspace(name)
	if !ok {
		return fmt.Errorf("the map has no keyspace %s", name)
	}
	type moving struct {
		part  shardmap.Part
		owner string
	}
	var parts []moving
	def := ix.Def()
	for _, r := range def.Ranges {
		parts = append(parts, moving{shardmap.Part{Low: r.Low, High: r.High}, r.Shard})
	}
	for _, v := range def.Values {
		parts = append(parts, moving{shardmap.Part{Key: v.Key}, v.Shard})
	}
	for _, p := range def.Pins {
		parts = append(parts, moving{shardmap.Part{Key: p.Key}, p.Shard})
	}
	names := make([]string, len(snap.Shards()))
	for i := range names {
		names[i] = snap.Shards()[i].Name
	}
	for i, m := range parts {
		other := names[(slices.Index(names, m.owner)+1+i%(len(names)-1))%len(names)]
		t := shardmap.Transit{ID: fmt.Sprintf("%s-%d", name, i), Part: m.part, From: m.owner, To: other}
		if i%2 == 1 {
			t.From, t.To = other, m.owner
		}
		next := snap.State().Clone()
		next.PutTransit(name, t)
		if snap, err = c.dir.Update(ctx, shardmap.Change{Expect: snap.Version(), By: "test", Op: "move", Transit: t.ID}, next); err != nil {
			return err
		}
	}
	for c.Snapshot().Version() < snap.Version() {
		if _, err := c.rooms.Executor.Refresh(ctx); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// strange reports whether a shard may have a row without owning it.
func (c *Cluster) strange(shard string, t *shardmap.Table, columns []string, row []*string) (bool, error) {
	if t.Kind != shardmap.Sharded {
		return false, nil
	}
	keys, ok := c.Snapshot().Strangers(t.Keyspace, shard)
	if !ok {
		return false, nil
	}
	key, err := c.key(t, columns, row)
	return err == nil && keys.Owns(key), err
}

func (c *Cluster) key(t *shardmap.Table, columns []string, row []*string) (keyspace.Key, error) {
	ix, ok := c.Snapshot().Keyspace(t.Keyspace)
	if !ok {
		return nil, fmt.Errorf("the map has no keyspace %s", t.Keyspace)
	}
	texts := make([]string, len(t.ShardKey))
	for i, name := range t.ShardKey {
		at := slices.Index(columns, name)
		if at < 0 || row[at] == nil {
			return nil, fmt.Errorf("%s: a row without its shard key", t.Name)
		}
		texts[i] = *row[at]
	}
	return keyspace.ParseKey(ix.Def().Types, texts)
}

// estrange gives the shards rows of a table that they do not own: those of the
// owners, with other values in columns that are in no key, and twice where a table
// has a number beside the shard key.
func (c *Cluster) estrange(ctx context.Context, plain *pgconn.PgConn, t *shardmap.Table, columns []string, rows [][]*string) error {
	if t.Kind != shardmap.Sharded {
		return nil
	}
	fixed, err := unique(ctx, plain, t)
	if err != nil {
		return err
	}
	for _, s := range c.Snapshot().Shards() {
		var list [][]*string
		for _, row := range rows {
			is, err := c.strange(s.Name, t, columns, row)
			if err != nil {
				return err
			}
			if is {
				list = append(list, changed(t, columns, fixed, row, false), changed(t, columns, fixed, row, true))
			}
		}
		list = slices.DeleteFunc(list, func(r []*string) bool { return r == nil })
		if len(list) == 0 {
			continue
		}
		err := c.past(ctx, s.Name, t, func() error {
			for part := range slices.Chunk(list, rowsPerInsert) {
				if _, err := c.On(s.Name, insertText(t, columns, part)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// changed is a row that is not the owner's. second: another one with another key
// beside the shard key, nil if there is none.
func changed(t *shardmap.Table, columns, fixed []string, row []*string, second bool) []*string {
	out := slices.Clone(row)
	other := !second
	for i, name := range columns {
		at := slices.IndexFunc(t.Columns, func(c shardmap.Column) bool { return c.Name == name })
		if at < 0 || slices.Contains(t.ShardKey, name) {
			continue
		}
		oid, value := t.Columns[at].OID, row[i]
		var n int
		number := oid == 20 || oid == 21 || oid == 23
		if number && value != nil {
			n, _ = strconv.Atoi(*value)
		}
		switch {
		case slices.Contains(fixed, name):
			if second && number {
				text := strconv.Itoa(n + 1000)
				out[i], other = &text, true
			}
		case number && (t.Columns[at].OID != 21 || n < 30000):
			text := strconv.Itoa(n + 1)
			out[i] = &text
		case oid == 25 && value != nil:
			text := *value + "?"
			out[i] = &text
		}
	}
	if !other {
		return nil
	}
	return out
}

// unique are the columns of a table's unique keys.
func unique(ctx context.Context, plain *pgconn.PgConn, t *shardmap.Table) ([]string, error) {
	res := plain.ExecParams(ctx, "SELECT DISTINCT attname FROM pg_index, unnest(indkey) AS k JOIN pg_attribute ON attnum = k WHERE attrelid = indrelid AND indisunique AND indrelid = $1::regclass",
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

// past runs f in a transaction of a shard past the guard of a table.
func (c *Cluster) past(ctx context.Context, shard string, t *shardmap.Table, f func() error) error {
	if !capability.Of(c.Engine).Locks {
		return c.without(ctx, shard, t, f)
	}
	// As the mover, whom guards let pass.
	own := c.conns[shard]
	at := slices.IndexFunc(c.open, func(s engine.Shard) bool { return s.Name() == shard })
	past, err := c.open[at].(engine.Carrier).ConnectCarrier(ctx, nil)
	if err != nil {
		return err
	}
	defer past.Close()
	c.conns[shard] = past
	defer func() { c.conns[shard] = own }()
	if _, err := c.On(shard, "BEGIN"); err != nil {
		return err
	}
	if err := past.(engine.Triggered).PastTriggers(ctx); err != nil {
		return err
	}
	if err := f(); err != nil {
		_, _ = c.On(shard, "ROLLBACK")
		return err
	}
	_, err = c.On(shard, "COMMIT")
	return err
}

// Pins pins keys of a keyspace, each to a shard, through SQL on the router.
func Pins(name string, keys ...string) (sql []string) {
	for i, k := range keys {
		sql = append(sql, fmt.Sprintf("SELECT cleave.pin(%s, %s, 'shard-%d')", executor.QuoteLiteral(name), k, i%2))
	}
	return sql
}
