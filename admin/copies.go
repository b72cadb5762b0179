package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// The copies of reference tables: every shard has all rows. The default shard's
// are the ones that count; a shard that is added gets them before it is in the
// map, and Doctor compares and repairs them. docs/design/writes.md has the rules.

// referenceTables are the reference tables of a map.
func referenceTables(snap *shardmap.Snapshot) []*shardmap.Table {
	var out []*shardmap.Table
	tables := snap.State().Tables
	for i := range tables {
		if tables[i].Kind == shardmap.Reference {
			out = append(out, &tables[i])
		}
	}
	return out
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func quotedTable(t *shardmap.Table) string { return quoted(t.Schema) + "." + quoted(t.Name) }

// copied are the columns whose values are copied, and the list of their names.
func copied(t *shardmap.Table) (columns []*shardmap.Column, list string) {
	var names []string
	for i := range t.Columns {
		if c := &t.Columns[i]; !c.Computed {
			columns = append(columns, c)
			names = append(names, quoted(c.Name))
		}
	}
	return columns, strings.Join(names, ", ")
}

// copyRows are a copy's rows, each as one text that equal rows have in common.
type copyRows struct {
	rows  map[string][]engine.Text
	times map[string]int
	keys  map[string]bool // of the primary key
}

// readCopy reads all rows of a copy. key are the places of the primary key's columns.
func readCopy(conn engine.Conn, t *shardmap.Table, key []int) (*copyRows, error) {
	_, list := copied(t)
	res, err := engine.Exec(conn, "SELECT "+list+" FROM "+quotedTable(t))
	if err != nil {
		return nil, err
	}
	c := &copyRows{rows: map[string][]engine.Text{}, times: map[string]int{}, keys: map[string]bool{}}
	for _, r := range res.Rows {
		text := rowText(r)
		c.rows[text] = r
		c.times[text]++
		c.keys[copyKeyText(r, key)] = true
	}
	return c, nil
}

func rowText(r []engine.Text) string {
	var b strings.Builder
	for _, v := range r {
		if v.Null {
			b.WriteString("-;")
			continue
		}
		b.WriteString(strconv.Itoa(len(v.String)) + ":" + v.String)
	}
	return b.String()
}

func copyKeyText(r []engine.Text, key []int) string {
	k := make([]engine.Text, len(key))
	for i, at := range key {
		k[i] = r[at]
	}
	return rowText(k)
}

// differs counts the rows that one copy has and the other has not.
func (c *copyRows) differs(from *copyRows) (missing, extra int) {
	for text, n := range from.times {
		missing += max(0, n-c.times[text])
	}
	for text, n := range c.times {
		extra += max(0, n-from.times[text])
	}
	return missing, extra
}

// copyKey returns the places of the primary key's columns among those copied, nil without one.
func copyKey(ctx context.Context, conn engine.Conn, t *shardmap.Table) ([]int, error) {
	desc, err := conn.DescribeTable(ctx, t.Schema, t.Name)
	if err != nil {
		return nil, err
	}
	columns, _ := copied(t)
	for _, u := range desc.Unique {
		if !u.Primary {
			continue
		}
		var at []int
		for _, name := range u.Columns {
			i := slices.IndexFunc(columns, func(c *shardmap.Column) bool { return c.Name == name })
			if i < 0 {
				return nil, nil
			}
			at = append(at, i)
		}
		return at, nil
	}
	return nil, nil
}

// copyTable makes the rows of a copy those of the default shard. Both conversations
// are in a transaction in which nobody else writes to the table.
func copyTable(ctx context.Context, from, to engine.Conn, t *shardmap.Table, epoch uint64) (changed int, err error) {
	key, err := copyKey(ctx, to, t)
	if err != nil {
		return 0, err
	}
	want, err := readCopy(from, t, key)
	if err != nil {
		return 0, err
	}
	have, err := readCopy(to, t, key)
	if err != nil {
		return 0, err
	}
	missing, extra := have.differs(want)
	if missing+extra == 0 {
		return 0, nil
	}
	if _, err := engine.Exec(to, "SET LOCAL cleave.guard_epoch = '"+strconv.FormatUint(epoch, 10)+"'"); err != nil {
		return 0, err
	}
	columns, list := copied(t)
	insert := "INSERT INTO " + quotedTable(t) + " (" + list + ") OVERRIDING SYSTEM VALUE VALUES "
	tail := ""
	var rows [][]engine.Text
	if key == nil {
		// Without a key no row can be told from an equal one.
		if _, err := engine.Exec(to, "DELETE FROM "+quotedTable(t)); err != nil {
			return 0, err
		}
		for text, n := range want.times {
			for range n {
				rows = append(rows, want.rows[text])
			}
		}
	} else {
		for _, r := range have.rows {
			if want.keys[copyKeyText(r, key)] {
				continue
			}
			var cond []string
			for _, at := range key {
				cond = append(cond, quoted(columns[at].Name)+" = "+textLiteral(r[at]))
			}
			if _, err := engine.Exec(to, "DELETE FROM "+quotedTable(t)+" WHERE "+strings.Join(cond, " AND ")); err != nil {
				return 0, err
			}
		}
		var names, sets []string
		for i, c := range columns {
			if slices.Contains(key, i) {
				names = append(names, quoted(c.Name))
			} else {
				sets = append(sets, quoted(c.Name)+" = excluded."+quoted(c.Name))
			}
		}
		tail = " ON CONFLICT (" + strings.Join(names, ", ") + ") DO "
		if len(sets) > 0 {
			tail += "UPDATE SET " + strings.Join(sets, ", ")
		} else {
			tail += "NOTHING"
		}
		for text, r := range want.rows {
			if have.times[text] == 0 {
				rows = append(rows, r)
			}
		}
	}
	for some := range slices.Chunk(rows, carryBatch) {
		if _, err := engine.Exec(to, insert+rowLists(some)+tail); err != nil {
			return 0, err
		}
	}
	return missing + extra, nil
}

func textLiteral(v engine.Text) string {
	if v.Null {
		return "NULL"
	}
	q := "'" + strings.ReplaceAll(v.String, "'", "''") + "'"
	if strings.Contains(q, `\`) {
		q = "E" + strings.ReplaceAll(q, `\`, `\\`)
	}
	return q
}

// held are transactions on all shards that keep writers away from the reference
// tables while the set of shards changes.
type held struct {
	conns []engine.Conn
	close []func()
}

// end commits or rolls back, and gives the conversations back.
func (h *held) end(sql string) error {
	var errs []error
	for _, c := range h.conns {
		if _, err := engine.Exec(c, sql); err != nil {
			errs = append(errs, err)
		}
	}
	for _, f := range h.close {
		f()
	}
	h.conns, h.close = nil, nil
	return errors.Join(errs...)
}

// fillCopies gives a shard that is being added the rows of the reference tables.
// Until the transactions that it returns are ended, nobody writes to them; their
// guards are those of the map with the shard.
func (o *Ops) fillCopies(ctx context.Context, sh engine.Shard, name string, cur, next *shardmap.Snapshot) (*held, error) {
	h := &held{}
	tables := referenceTables(next)
	if len(tables) == 0 {
		return h, nil
	}
	err := o.hold(ctx, h, cur, next, tables)
	if err == nil {
		err = o.fillNew(ctx, h.conns[0], sh, name, next, tables)
	}
	if err != nil {
		return nil, errors.Join(err, h.end("ROLLBACK"))
	}
	return h, nil
}

// hold opens a transaction on each shard of cur, the default shard first, and sets
// the guards of next in it.
func (o *Ops) hold(ctx context.Context, h *held, cur, next *shardmap.Snapshot, tables []*shardmap.Table) error {
	first := cur.State().DefaultShard
	names := []string{first}
	for _, s := range cur.Shards() {
		if s.Name != first {
			names = append(names, s.Name)
		}
	}
	for _, name := range names {
		conn, release, err := o.connect(ctx, name)
		if err != nil {
			return err
		}
		h.close = append(h.close, func() { release(false) })
		if _, err := engine.Exec(conn, "BEGIN"); err != nil {
			return err
		}
		h.conns = append(h.conns, conn)
		if err := o.setGuards(ctx, conn, name, next, tables); err != nil {
			return err
		}
	}
	return nil
}

func (o *Ops) setGuards(ctx context.Context, conn engine.Conn, shard string, snap *shardmap.Snapshot, tables []*shardmap.Table) error {
	bound, cancel := context.WithTimeout(ctx, max(o.opts.LockTimeout, checkMax))
	defer cancel()
	return schema.SetGuards(bound, conn, snap, shard, func(t *shardmap.Table) bool {
		return slices.ContainsFunc(tables, func(r *shardmap.Table) bool { return r.Schema == t.Schema && r.Name == t.Name })
	})
}

func (o *Ops) fillNew(ctx context.Context, from engine.Conn, sh engine.Shard, name string, next *shardmap.Snapshot, tables []*shardmap.Table) error {
	conn, release, err := dial(ctx, sh)
	if err != nil {
		return err
	}
	defer release(false)
	if _, err := engine.Exec(conn, "BEGIN"); err != nil {
		return err
	}
	if err := o.setGuards(ctx, conn, name, next, tables); err != nil {
		return err
	}
	for _, t := range tables {
		if _, err := copyTable(ctx, from, conn, t, next.CopiesEpoch()); err != nil {
			return err
		}
	}
	_, err = engine.Exec(conn, "COMMIT")
	return err
}

// guardCopies sets the guards of the reference tables after a shard has gone.
func (o *Ops) guardCopies(ctx context.Context, snap *shardmap.Snapshot) error {
	tables := referenceTables(snap)
	if len(tables) == 0 {
		return nil
	}
	h := &held{}
	if err := o.hold(ctx, h, snap, snap, tables); err != nil {
		return errors.Join(err, h.end("ROLLBACK"))
	}
	return h.end("COMMIT")
}

// examineCopies compares the copies of the reference tables, and with repair makes
// them those of the default shard.
func (o *Ops) examineCopies(ctx context.Context, snap *shardmap.Snapshot, repair bool) []Finding {
	var out []Finding
	first := snap.State().DefaultShard
	for _, t := range referenceTables(snap) {
		for _, s := range snap.Shards() {
			if s.Name == first {
				continue
			}
			n, err := o.examineCopy(ctx, snap, t, first, s.Name, repair)
			name := t.QualifiedName()
			switch {
			case err != nil:
				out = append(out, Finding{Level: LevelError, Shard: s.Name, Table: name, What: "the rows of the reference table " + name + " on " + s.Name + " cannot be compared: " + sqlstate.As(err).Message, Next: "cleave doctor"})
			case n > 0 && repair:
				out = append(out, Finding{Level: LevelWarning, Shard: s.Name, Table: name, What: fmt.Sprintf("the reference table %s differed on %s from %s in %d rows", name, s.Name, first, n), Done: "copied from " + first})
			case n > 0:
				out = append(out, Finding{Level: LevelError, Shard: s.Name, Table: name, What: fmt.Sprintf("the reference table %s differs on %s from %s in %d rows", name, s.Name, first, n), Next: "cleave doctor --repair"})
			}
		}
	}
	return out
}

func (o *Ops) examineCopy(ctx context.Context, snap *shardmap.Snapshot, t *shardmap.Table, first, shard string, repair bool) (n int, err error) {
	var conns [2]engine.Conn
	for i, name := range []string{first, shard} {
		conn, release, err := o.connect(ctx, name)
		if err != nil {
			return 0, err
		}
		defer release(true)
		if _, err := engine.Exec(conn, "BEGIN"); err != nil {
			return 0, err
		}
		conns[i] = conn
	}
	if repair {
		// Setting a guard waits for the writers, and keeps others away. Only one
		// that differs takes a lock in the comparison before it.
		if n, err = compareCopies(conns[0], conns[1], t); err != nil || n == 0 {
			return n, err
		}
		if err := o.setGuards(ctx, conns[0], first, snap, []*shardmap.Table{t}); err != nil {
			return 0, err
		}
		if err := o.setGuards(ctx, conns[1], shard, snap, []*shardmap.Table{t}); err != nil {
			return 0, err
		}
		if n, err = copyTable(ctx, conns[0], conns[1], t, snap.CopiesEpoch()); err != nil {
			return 0, err
		}
		for _, i := range []int{1, 0} {
			if _, err := engine.Exec(conns[i], "COMMIT"); err != nil {
				return 0, err
			}
		}
		return n, nil
	}
	return compareCopies(conns[0], conns[1], t)
}

// compareCopies returns how many rows differ. Where both are PostgreSQL, a number and a
// checksum of each copy are compared before rows are read.
func compareCopies(from, to engine.Conn, t *shardmap.Table) (int, error) {
	_, list := copied(t)
	sum := "SELECT pg_catalog.count(*), pg_catalog.sum(pg_catalog.hashtextextended(ROW(" + list + ")::text, 0)::numeric) FROM " + quotedTable(t)
	a, err := engine.Exec(from, "SAVEPOINT s; "+sum)
	if err == nil {
		b, err := engine.Exec(to, sum)
		if err == nil && rowText(a.Rows[0]) == rowText(b.Rows[0]) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
	} else if _, back := engine.Exec(from, "ROLLBACK TO s"); back != nil {
		return 0, errors.Join(err, back)
	}
	want, err := readCopy(from, t, nil)
	if err != nil {
		return 0, err
	}
	have, err := readCopy(to, t, nil)
	if err != nil {
		return 0, err
	}
	missing, extra := have.differs(want)
	return max(missing, extra), nil
}
