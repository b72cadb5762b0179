package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

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

// plain makes conversations with different servers print values alike, for a transaction.
const plain = "SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO, MDY'; SET LOCAL IntervalStyle = 'postgres'; SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex'; "

// readCopy reads all rows of a copy. key are the places of the primary key's columns.
func readCopy(conn engine.Conn, t *shardmap.Table, key []int) (*copyRows, error) {
	_, list := copied(t)
	res, err := engine.Exec(conn, plain+"SELECT "+list+" FROM "+quotedTable(t))
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
	if _, err := engine.Exec(to, "SET LOCAL "+engine.EpochSetting+" = '"+strconv.FormatUint(epoch, 10)+"'"); err != nil {
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
		if err := have.deleteOthers(to, t, key, want); err != nil {
			return 0, err
		}
		tail = onConflictUpdate(columns, key)
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

// deleteOthers deletes the rows of a copy whose keys the default shard has not.
func (have *copyRows) deleteOthers(to engine.Conn, t *shardmap.Table, key []int, want *copyRows) error {
	columns, _ := copied(t)
	for _, r := range have.rows {
		if want.keys[copyKeyText(r, key)] {
			continue
		}
		var cond []string
		for _, at := range key {
			cond = append(cond, quoted(columns[at].Name)+" = "+textLiteral(r[at]))
		}
		if _, err := engine.Exec(to, "DELETE FROM "+quotedTable(t)+" WHERE "+strings.Join(cond, " AND ")); err != nil {
			return err
		}
	}
	return nil
}

// onConflictUpdate makes an INSERT change the row that has the key already.
func onConflictUpdate(columns []*shardmap.Column, key []int) string {
	var names, sets []string
	for i, c := range columns {
		if slices.Contains(key, i) {
			names = append(names, quoted(c.Name))
		} else {
			sets = append(sets, quoted(c.Name)+" = excluded."+quoted(c.Name))
		}
	}
	do := "NOTHING"
	if len(sets) > 0 {
		do = "UPDATE SET " + strings.Join(sets, ", ")
	}
	return " ON CONFLICT (" + strings.Join(names, ", ") + ") DO " + do
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

// Bounds of taking the locks of reference tables on all shards.
const (
	// holdWait is how long a lock is waited for while others are held. The transaction that has it may be waiting for
	// one of those, and waits no longer than that because of it. No engine looks for a deadlock so early.
	holdWait = 100 * time.Millisecond
	// holdMax bounds all tries together.
	holdMax = 30 * time.Second
	// holdPause and holdPauseMax bound the pauses between two tries, in which others go on.
	holdPause    = 20 * time.Millisecond
	holdPauseMax = 500 * time.Millisecond
)

// held are transactions on shards that keep writers away from the reference tables while the set of shards changes.
type held struct {
	of    map[string]engine.Conn // by shard
	close []func()
}

// end commits or rolls back, and gives the conversations back.
func (h *held) end(sql string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(h.of)) {
		if _, err := engine.Exec(h.of[name], sql); err != nil {
			errs = append(errs, err)
		}
	}
	for _, f := range h.close {
		f()
	}
	h.of, h.close = nil, nil
	return errors.Join(errs...)
}

// copies keeps the copies of unsharded tables on all shards the same.
type copies struct{ *backend }

// fillCopies gives a shard that is being added the rows of the reference tables.
// Until the transactions that it returns are ended, nobody writes to them; their
// guards are those of the map with the shard.
func (o *copies) fillCopies(ctx context.Context, sh engine.Shard, name string, cur, next *shardmap.Snapshot) (*held, error) {
	tables := referenceTables(next)
	if len(tables) == 0 {
		return &held{}, nil
	}
	// Most rows go there while nobody waits; what has changed since is left for the moment with the locks.
	first := cur.State().DefaultShard
	from, release, err := o.connect(ctx, first)
	if err != nil {
		return nil, err
	}
	defer release(true)
	if _, err := engine.Exec(from, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err != nil {
		return nil, err
	}
	if err := o.fillNew(ctx, from, sh, name, next, tables); err != nil {
		return nil, err
	}
	if _, err := engine.Exec(from, "COMMIT"); err != nil {
		return nil, err
	}
	if err := o.step("copied", name); err != nil {
		return nil, err
	}
	h, err := o.regard(ctx, cur, next, tables, "")
	if err != nil {
		return nil, err
	}
	if err := o.fillNew(ctx, h.of[first], sh, name, next, tables); err != nil {
		return nil, errors.Join(err, h.end("ROLLBACK"))
	}
	return h, nil
}

// regard gives the guards of reference tables the epoch of another set of shards: those of the default shard in
// a transaction that it returns, in which nobody writes to these tables; those of the others before, where both epochs are good until
// settle is called. Who writes is refused on the default shard if its map is not the right one, since it writes there first.
//
// leaving is a shard that next lacks, "" for none. Its guards take nothing any more when this returns: while writers wait on the
// default shard, it waits for those who have something open or prepared on the leaving one, which nobody would look for
// once it is gone. The caller sets them from the map again (stays) if the shard stays.
func (o *copies) regard(ctx context.Context, cur, next *shardmap.Snapshot, tables []*shardmap.Table, leaving string) (*held, error) {
	first := next.State().DefaultShard
	for _, s := range next.Shards() {
		if _, ok := cur.Shard(s.Name); !ok || s.Name == first {
			continue
		}
		h, err := o.hold(ctx, []string{s.Name}, cur, tables, next.CopiesEpoch())
		if err != nil {
			return nil, err
		}
		if err := h.end("COMMIT"); err != nil {
			return nil, err
		}
	}
	if leaving == "" {
		return o.hold(ctx, []string{first}, next, tables, 0)
	}
	h, err := o.hold(ctx, []string{first, leaving}, next, tables, 0)
	if err != nil {
		return nil, err
	}
	if _, err := engine.Exec(h.of[leaving], "COMMIT"); err != nil {
		return nil, errors.Join(err, h.end("ROLLBACK"))
	}
	delete(h.of, leaving)
	return h, nil
}

// settle leaves the epoch of the map as the only good one. It is not waited for: the former one is refused by the default shard.
func (o *copies) settle(ctx context.Context, snap *shardmap.Snapshot) {
	for _, s := range snap.Shards() {
		if s.Name != snap.State().DefaultShard {
			o.settleOn(ctx, snap, s.Name)
		}
	}
}

// settleOn sets the guards of reference tables on one shard that is not the default shard.
func (o *copies) settleOn(ctx context.Context, snap *shardmap.Snapshot, shard string) {
	tables := referenceTables(snap)
	if len(tables) == 0 {
		return
	}
	err := func() error {
		conn, release, err := o.connect(ctx, shard)
		if err != nil {
			return err
		}
		defer release(false)
		if _, err := engine.Exec(conn, "BEGIN"); err != nil {
			return err
		}
		err = o.setGuards(ctx, max(o.opts.LockTimeout, checkMax), conn, shard, snap, tables, 0)
		_, end := engine.Exec(conn, map[bool]string{true: "COMMIT", false: "ROLLBACK"}[err == nil])
		return errors.Join(err, end)
	}()
	if err != nil {
		o.opts.Log.Warn("guards of reference tables are still those of the former set of shards", "shard", shard, "error", err)
	}
}

// regainMax bounds regain.
const regainMax = 40 * time.Second

// regain sets the guards of reference tables on the default shard from the map again, after a change of the set of shards that
// did not come to be, and returns that map. The change does not come to be later either.
func (o *copies) regain(ctx context.Context, by string) (*shardmap.Snapshot, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), regainMax)
	defer cancel()
	for range updateTries {
		snap, err := o.load(ctx)
		if err != nil {
			return nil, err
		}
		h, err := o.holdFenced(ctx, []string{snap.State().DefaultShard}, snap, referenceTables(snap), by)
		if errors.Is(err, shardmap.ErrConflict) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return snap, h.end("COMMIT")
	}
	return nil, busyMap()
}

// busyMap is the error of a change that others were always faster than.
func busyMap() error {
	return sqlstate.New(sqlstate.SerializationFailure, "the shard map changes too often").WithHint("nothing was changed: run it again")
}

// holdFenced is hold with a fence: a change of the set of shards whose guards may have been ahead of the map does not
// come to be any more. Errors: also ErrConflict when the map is another one already.
func (o *copies) holdFenced(ctx context.Context, shards []string, snap *shardmap.Snapshot, tables []*shardmap.Table, by string) (*held, error) {
	h, err := o.hold(ctx, shards, snap, tables, 0)
	if err != nil {
		return nil, err
	}
	if err := schema.Fence(ctx, o.opts.Directory, by, snap); err != nil {
		return nil, errors.Join(directoryError(err), h.end("ROLLBACK"))
	}
	return h, nil
}

// lockOf is a reference table on one shard. On a SQLite shard its lock is that of the file.
type lockOf struct {
	shard string
	table *shardmap.Table
}

// hold opens a transaction on each of the shards and sets the guards of the map in it, which keeps writers away. also is another
// epoch that they take, 0 for none.
//
// Transactions over several shards take these locks in any order, and one that holds a lock may wait for another. So only
// the first is waited for with patience. If one of the others is not had within holdWait all are given back, and the next try
// begins with that one. Errors: 55P03 when all were not to be had together within holdMax, with nothing changed.
func (o *copies) hold(ctx context.Context, shards []string, snap *shardmap.Snapshot, tables []*shardmap.Table, also uint64) (*held, error) {
	var locks []lockOf
	for _, name := range shards {
		for _, t := range tables {
			locks = append(locks, lockOf{name, t})
		}
	}
	began, pause := time.Now(), holdPause
	for {
		h := &held{of: map[string]engine.Conn{}}
		at, err := o.holdOnce(ctx, h, locks, snap, also)
		if err == nil {
			return h, nil
		}
		// What the rollback of a failed try says is not news.
		_ = h.end("ROLLBACK")
		if code := sqlstate.CodeOf(err); code != sqlstate.LockNotAvailable && code != sqlstate.DeadlockDetected {
			return nil, err
		}
		if time.Since(began) > holdMax {
			e := *sqlstate.As(err)
			e.Code, e.Retry = sqlstate.LockNotAvailable, sqlstate.RetryTransaction
			e.Message = fmt.Sprintf("the reference tables were not to be locked on all shards together within %s: %s", holdMax, e.Message)
			e.Hint = "nothing was changed: run it again when fewer or shorter transactions write to several shards"
			return nil, e.OnShard(locks[at].shard)
		}
		blocked := locks[at]
		locks = slices.Insert(slices.Delete(locks, at, at+1), 0, blocked)
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		pause = min(2*pause, holdPauseMax)
	}
}

// holdOnce takes the locks in their order, and returns which one was not to be had.
func (o *copies) holdOnce(ctx context.Context, h *held, locks []lockOf, snap *shardmap.Snapshot, also uint64) (at int, err error) {
	for i, l := range locks {
		conn := h.of[l.shard]
		if conn == nil {
			c, release, err := o.connect(ctx, l.shard)
			if err != nil {
				return i, err
			}
			h.close = append(h.close, func() { release(false) })
			if _, err := engine.Exec(c, "BEGIN"); err != nil {
				return i, err
			}
			h.of[l.shard], conn = c, c
		}
		wait := holdWait
		if i == 0 {
			wait = max(o.opts.LockTimeout, checkMax)
		}
		if err := o.setGuards(ctx, wait, conn, l.shard, snap, []*shardmap.Table{l.table}, also); err != nil {
			return i, err
		}
	}
	return 0, nil
}

func (o *copies) setGuards(ctx context.Context, wait time.Duration, conn engine.Conn, shard string, snap *shardmap.Snapshot, tables []*shardmap.Table, also uint64) error {
	bound, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for _, t := range tables {
		g, _ := schema.GuardOf(snap, t, shard)
		if _, ok := snap.Shard(shard); !ok {
			g.Owned.Epoch = 0 // it leaves: nobody writes there
		}
		if g.Owned.Epoch > 0 && g.Owned.Epoch != also {
			g.Also = also
		}
		if err := conn.SetGuard(bound, g); err != nil {
			e := *sqlstate.As(err)
			return e.OnShard(shard)
		}
	}
	return nil
}

func (o *copies) fillNew(ctx context.Context, from engine.Conn, sh engine.Shard, name string, next *shardmap.Snapshot, tables []*shardmap.Table) error {
	conn, release, err := dial(ctx, sh)
	if err != nil {
		return err
	}
	defer release(false)
	if _, err := engine.Exec(conn, "BEGIN"); err != nil {
		return err
	}
	if err := o.setGuards(ctx, max(o.opts.LockTimeout, checkMax), conn, name, next, tables, 0); err != nil {
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

// examineCopies compares the copies of the reference tables, and with repair makes
// them those of the default shard.
func (o *copies) examineCopies(ctx context.Context, repair bool, by string) []Finding {
	snap, err := o.load(ctx)
	if err != nil {
		return []Finding{problem("", err, "the rows of reference tables were not compared")}
	}
	var out []Finding
	first := snap.State().DefaultShard
	for _, t := range referenceTables(snap) {
		for _, s := range snap.Shards() {
			if s.Name == first {
				continue
			}
			n, err := o.examineCopy(ctx, t, first, s.Name, repair, by)
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

func (o *copies) examineCopy(ctx context.Context, t *shardmap.Table, first, shard string, repair bool, by string) (n int, err error) {
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
	if n, err = compareCopies(conns[0], conns[1], t); err != nil || n == 0 || !repair {
		return n, err
	}
	for _, conn := range conns {
		if _, err := engine.Exec(conn, "ROLLBACK"); err != nil {
			return 0, err
		}
	}
	return o.repairCopy(ctx, t, first, shard, by)
}

// repairCopy makes the rows of a copy those of the default shard, and counts the ones that were others.
func (o *copies) repairCopy(ctx context.Context, t *shardmap.Table, first, shard, by string) (n int, err error) {
	for range updateTries {
		snap, err := o.load(ctx)
		if err != nil {
			return 0, err
		}
		if _, ok := snap.Shard(shard); !ok || snap.State().DefaultShard != first {
			break // a copy is not what it was
		}
		// Setting a guard waits for the writers, and keeps others away.
		h, err := o.holdFenced(ctx, []string{first, shard}, snap, []*shardmap.Table{t}, by)
		if errors.Is(err, shardmap.ErrConflict) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n, err = copyTable(ctx, h.of[first], h.of[shard], t, snap.CopiesEpoch()); err != nil {
			return 0, errors.Join(err, h.end("ROLLBACK"))
		}
		return n, h.end("COMMIT")
	}
	return 0, busyMap()
}

// compareCopies returns how many rows differ. Where both are PostgreSQL, a number and a
// checksum of each copy are compared before rows are read.
func compareCopies(from, to engine.Conn, t *shardmap.Table) (int, error) {
	_, list := copied(t)
	sum := "SELECT pg_catalog.count(*), pg_catalog.sum(pg_catalog.hashtextextended(ROW(" + list + ")::text, 0)::numeric) FROM " + quotedTable(t)
	var sums [2]string
	for i, conn := range []engine.Conn{from, to} {
		res, err := engine.Exec(conn, plain+"SAVEPOINT s; "+sum)
		if err == nil {
			sums[i] = rowText(res.Rows[0])
			continue
		}
		// A file has no such function.
		if _, back := engine.Exec(conn, "ROLLBACK TO s"); back != nil {
			return 0, errors.Join(err, back)
		}
	}
	if sums[0] != "" && sums[0] == sums[1] {
		return 0, nil
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
