package several

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

const (
	// lockTries bounds how often a row is looked for that is there on the default shard: its transaction is
	// decided, and is being committed on the others.
	lockTries = 100
	lockPause = 20 * time.Millisecond
)

// lockCopies locks rows of reference tables on every shard. The default shard is
// first and alone, as with writes; which rows these are it says.
func (m *modifying) lockCopies(ctx context.Context, shards []string) (job, error) {
	c, hidden := m.c, len(m.m.Locks)
	first := m.snap.State().DefaultShard
	shards = slices.DeleteFunc(slices.Clone(shards), func(s string) bool { return s == first })
	p, err := c.Participant(ctx, first, true)
	if err != nil {
		return nil, err
	}
	q := m.request(&m.m.Write)
	q.results = m.e.columnFormats(hidden)
	s, err := c.send(p, q)
	if err != nil {
		return nil, err
	}
	rows, err := s.all(m.left)
	if err != nil {
		return nil, err
	}
	ids, err := lastColumns(rows, hidden)
	if err != nil {
		return nil, err
	}
	j := &answer{tag: "SELECT"}
	for _, b := range rows {
		f, err := dataRow(b, hidden)
		if err != nil {
			return nil, err
		}
		j.rows = append(j.rows, f)
	}
	if len(rows) == 0 || len(shards) == 0 {
		return j, nil
	}
	parts, err := c.partsOf(ctx, shards, true)
	if err != nil {
		return nil, err
	}
	for i, l := range m.m.Locks {
		if err := m.lockOthers(ctx, p, parts, l, valuesOf(ids, i)); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// valuesOf are those of column i of rows, each value once, without NULL.
func valuesOf(rows [][][]byte, i int) []string {
	var out []string
	for _, r := range rows {
		if r[i] != nil {
			out = append(out, string(r[i]))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lockOthers locks rows of one table, of which the first shard has the ctids, on the other shards.
func (m *modifying) lockOthers(ctx context.Context, first *txn.Participant, parts []*txn.Participant, l plan.CopiesLock, ctids []string) error {
	c := m.c
	table := quote(l.Table.Schema) + "." + quote(l.Table.Name)
	locked := "SELECT 1 FROM " + table + " AS t"
	// The lock of a file is that of all its rows.
	all := request{text: locked + " WHERE false " + l.Clause, results: []int16{0}}
	var key []*shardmap.Column
	var rows [][][]byte
	if c.Can(first.Shard).Locks {
		var err error
		if key, rows, err = m.keysAt(first, l.Table, table, ctids); err != nil {
			return err
		}
	}
	q := lockOf(locked, l.Clause, key, rows)
	for try := 0; ; try++ {
		streams, err := m.sendLock(parts, q, all)
		if err != nil {
			return err
		}
		parts = parts[:0:0]
		for _, s := range streams {
			found, err := s.all(m.left)
			if err != nil {
				return err
			}
			if key != nil && len(found) < len(rows) && c.Can(s.p.Shard).Locks {
				parts = append(parts, s.p)
			}
		}
		switch {
		case len(parts) == 0:
			return nil
		case try == lockTries || c.Lasting(parts[0]):
			e := sqlstate.New(sqlstate.SerializationFailure, "rows of the reference table %s are not to be seen on shard %s, and could not be locked there", l.Table.QualifiedName(), parts[0].Shard).
				WithHint("run the transaction again; if that does not help: cleave doctor").OnShard(parts[0].Shard)
			e.Retry = sqlstate.RetryTransaction
			return e
		}
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sendLock sends the lock of some rows, to a shard that does not lock rows that of all.
func (m *modifying) sendLock(parts []*txn.Participant, some, all request) (streams []*stream, err error) {
	for _, p := range parts {
		q := some
		if !m.c.Can(p.Shard).Locks {
			q = all
		}
		s, err := m.c.send(p, q)
		if err != nil {
			return nil, err
		}
		streams = append(streams, s)
	}
	return streams, nil
}

// lockOf locks the rows of a table that have these keys, without a key all of them.
func lockOf(locked, clause string, key []*shardmap.Column, rows [][][]byte) request {
	q := request{results: []int16{0}}
	if key == nil {
		q.text = locked + " " + clause // of a file, whose rows say nothing that others know
		return q
	}
	names := make([]string, len(key))
	for i, k := range key {
		names[i] = "t." + quote(k.Name)
	}
	q.text = locked + " WHERE (" + strings.Join(names, ", ") + ") IN " +
		unnested(&q, rows, len(key), func(i int) (string, string) { return key[i].Name, key[i].Type }) + " " + clause + " OF t"
	if strings.HasSuffix(clause, " NOWAIT") {
		q.text = strings.Replace(q.text, " NOWAIT OF t", " OF t NOWAIT", 1)
	}
	return q
}

// keysAt are the primary key's columns of a table, and their values in the rows of some ctids on a part.
func (m *modifying) keysAt(p *txn.Participant, t *shardmap.Table, table string, ctids []string) (key []*shardmap.Column, rows [][][]byte, err error) {
	res, err := m.c.Exec(p, "SELECT a.attname FROM pg_catalog.pg_index AS x CROSS JOIN LATERAL pg_catalog.unnest(x.indkey::int2[]) WITH ORDINALITY AS k(n, place)"+
		" JOIN pg_catalog.pg_attribute AS a ON a.attrelid = x.indrelid AND a.attnum = k.n WHERE x.indisprimary AND x.indrelid = "+
		executor.QuoteLiteral(table)+"::pg_catalog.regclass ORDER BY k.place")
	if err != nil {
		return nil, nil, err
	}
	var names []string
	for _, r := range res.Rows {
		i := slices.IndexFunc(t.Columns, func(c shardmap.Column) bool { return c.Name == r[0].String })
		if i < 0 {
			key = nil
			break
		}
		key = append(key, &t.Columns[i])
		names = append(names, quote(t.Columns[i].Name))
	}
	if len(key) == 0 {
		return nil, nil, sqlstate.Refusal("CLV-1001", "rows of the reference table %s cannot be locked on every shard: it has no primary key by which they are the same", t.QualifiedName()).
			WithHint("Run ALTER TABLE %s ADD PRIMARY KEY (...).", t.QualifiedName())
	}
	q := request{text: "SELECT " + strings.Join(names, ", ") + " FROM " + table + " WHERE ctid = ANY ($1)"}
	q.add(pgoid.TIDArray, 0, []byte(`{"`+strings.Join(ctids, `","`)+`"}`))
	q.carry(0, nil, columnOIDs(key, nil))
	s, err := m.c.send(p, q)
	if err != nil {
		return nil, nil, err
	}
	bodies, err := s.all(m.left)
	if err != nil {
		return nil, nil, err
	}
	if err := m.c.faithful(p, wire.ReadFields(s.columns), s.carried); err != nil {
		return nil, nil, err
	}
	rows, err = lastColumns(bodies, len(key))
	return key, rows, err
}
