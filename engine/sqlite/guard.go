package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/function"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// The ownership table. kind: 'i' interval of hash positions [low, high] both
// inclusive (integers), 'r' interval of ordered keys [low, high) (blobs, high
// NULL is unbounded), 'l' listed, 'p' pinned here, 'e' pinned elsewhere (blobs in
// low), 'v' the epoch (in low).
const guardSchema = `CREATE TABLE IF NOT EXISTS cleave_owned (
  table_oid INTEGER NOT NULL, kind TEXT NOT NULL, low, high,
  PRIMARY KEY (table_oid, kind, low)) WITHOUT ROWID`

// guardFunction is what triggers call when a write is not the shard's.
func guardFunction(c *Conn) function.Def {
	// cleave_refuse(table, keyspace, epoch, strategy, seed, types, columns...) raises ZC001. Without columns
	// the seed is the other epoch.
	return function.Volatile("cleave_refuse", -1, func(v *function.Env, a []function.Arg) (value.Datum, error) {
		r := engine.Refusal{Keyspace: a[1].Text(), Epoch: uint64(a[2].Int64())}
		cols := a[6:]
		if both := (&catalog.Guard{Keyspace: r.Keyspace, Epoch: r.Epoch, Also: uint64(a[4].Int64())}); len(cols) == 0 && both.Said(c.settings.get(engine.EpochSetting)) {
			return value.Int(0), nil
		}
		e := sqlstate.New(sqlstate.NotOwner, "%s", engine.RefusalMessage)
		if len(cols) == 0 {
			e.Message = engine.RefusalReadOnly
		}
		null := false
		for _, x := range cols {
			null = null || x.Type() == sqlite.TypeNull
		}
		if !null && len(cols) > 0 {
			k, err := function.KeyOf(a[5].Text(), cols)
			if err != nil {
				return value.Datum{}, err
			}
			if keyspace.Strategy(a[3].Text()) == keyspace.Hash {
				r.Position = itoa(keyspace.HashKey(a[4].Int64(), k))
			} else {
				r.Position = strings.Join(k.Texts(), ", ")
			}
		}
		e.Detail, e.Hint, e.Table = r.Detail(), engine.RefusalHint, a[0].Text()
		e.Retry = sqlstate.RetryTransaction
		return value.Datum{}, e
	})
}

// SetGuard implements engine.Conn.
func (c *Conn) SetGuard(ctx context.Context, g engine.Guard) error {
	return c.housekeeping(ctx, func() error { return c.setGuard(g) })
}

// DropGuard implements engine.Conn.
func (c *Conn) DropGuard(ctx context.Context, schema, table string) error {
	return c.housekeeping(ctx, func() error {
		d := c.names.Catalog.Table(schema, table)
		if d == nil {
			return sqlstate.New(sqlstate.UndefinedTable, "relation \"%s.%s\" does not exist", schema, table)
		}
		if err := c.dropTriggers(d); err != nil {
			return err
		}
		n := d.Clone()
		n.Guard = nil
		return c.saveTable(n)
	})
}

func guardTrigger(d *catalog.Table, op string) string {
	return fmt.Sprintf("cleave_guard_%d_%s", d.OID, op)
}

func (c *database) dropTriggers(d *catalog.Table) error {
	for _, op := range guardOps {
		if err := c.exec("DROP TRIGGER IF EXISTS " + quote.Ident(guardTrigger(d, op))); err != nil {
			return err
		}
	}
	return c.exec(fmt.Sprintf("DELETE FROM cleave_owned WHERE table_oid = %d", d.OID))
}

func (c *definitions) setGuard(g engine.Guard) error { return c.setGuards([]engine.Guard{g}) }

// setGuards sets the guards of tables. Who writes waits for the file meanwhile: a trigger whose text stays is left alone, rows that
// tables have in common are written by one statement, and the catalogue is loaded once.
func (c *definitions) setGuards(guards []engine.Guard) error {
	if len(guards) == 0 {
		return nil
	}
	if err := c.exec(guardSchema); err != nil {
		return err
	}
	is, err := c.guardTriggers()
	if err != nil {
		return err
	}
	var oids []string // of tables in a row that own the same
	for i, g := range guards {
		d := c.names.Catalog.Table(g.Schema, g.Table)
		if d == nil {
			return sqlstate.New(sqlstate.UndefinedTable, "relation \"%s.%s\" does not exist", g.Schema, g.Table)
		}
		n := d.Clone()
		if n.Guard, err = newGuardDef(d, g); err != nil {
			return err
		}
		for _, op := range guardOps {
			if err := c.setTrigger(is, guardTrigger(d, op), guardTriggerSQL(d, n.Guard, g.Owned, op)); err != nil {
				return err
			}
		}
		if err := c.writeObject(n.OID, "table", n); err != nil {
			return err
		}
		if oids = append(oids, fmt.Sprint(d.OID)); i+1 < len(guards) && g.Owned.Is(&guards[i+1].Owned) {
			continue
		}
		if err := c.setOwned(oids, g.Owned); err != nil {
			return err
		}
		oids = nil
	}
	return c.changed()
}

// setTrigger makes a trigger with a text, unless it is there with it. is has the texts of the triggers that there are.
func (c *definitions) setTrigger(is map[string]string, name, sql string) error {
	if is[name] == sql {
		return nil
	}
	if is[name] != "" {
		if err := c.exec("DROP TRIGGER " + quote.Ident(name)); err != nil {
			return err
		}
	}
	return c.exec(sql)
}

// guardOps are the statements of which a guard is told, each by a trigger of its own.
var guardOps = []string{"insert", "update", "delete"}

// guardTriggers returns the texts of all guards' triggers, by their names.
func (c *database) guardTriggers() (map[string]string, error) {
	stmt, _, err := c.db.PrepareTransient("SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger' AND name GLOB 'cleave_guard_*'")
	if err != nil {
		return nil, err
	}
	defer stmt.Finalize()
	is := map[string]string{}
	for {
		row, err := stmt.Step()
		if err != nil || !row {
			return is, err
		}
		is[stmt.ColumnText(0)] = stmt.ColumnText(1)
	}
}

// newGuardDef is what the catalogue keeps of a guard of a table.
func newGuardDef(d *catalog.Table, g engine.Guard) (*catalog.Guard, error) {
	def := &catalog.Guard{Columns: g.ShardKey, Strategy: string(g.Owned.Strategy), Keyspace: g.Owned.Keyspace, Seed: g.Owned.Seed, Epoch: g.Owned.Epoch}
	if len(g.ShardKey) == 0 {
		def.Also, def.Seed = g.Also, int64(g.Also)
	} else {
		def.Owns = g.Owned.Encode()
	}
	for i, name := range g.ShardKey {
		col := d.Column(name)
		if col == nil {
			return nil, sqlstate.New(sqlstate.UndefinedColumn, "column \"%s\" of relation \"%s\" does not exist", name, g.Table)
		}
		if i < len(g.Owned.Types) && g.Owned.Types[i].OID() != col.Type {
			return nil, sqlstate.New(sqlstate.DatatypeMismatch, "shard key column \"%s\" has type %s, keyspace %s wants %s", name, value.TypeName(col.Type), g.Owned.Keyspace, g.Owned.Types[i])
		}
		def.Types = append(def.Types, col.Type)
	}
	return def, nil
}

// ownedAtOnce bounds the rows of one statement.
const ownedAtOnce = 1000

// setOwned replaces the rows of tables that own the same.
func (c *database) setOwned(oids []string, o keyspace.Ownership) error {
	if err := c.exec("DELETE FROM cleave_owned WHERE table_oid IN (" + strings.Join(oids, ", ") + ")"); err != nil {
		return err
	}
	rows := []string{fmt.Sprintf("('v', %d, NULL)", int64(o.Epoch))}
	for _, iv := range o.Intervals {
		if o.Strategy == keyspace.Hash {
			high := iv.High - 1
			if iv.Last {
				high = 1<<63 - 1
			} else if iv.High == -1<<63 {
				continue
			}
			rows = append(rows, fmt.Sprintf("('i', %d, %d)", iv.Low, high))
			continue
		}
		high := "NULL"
		if !iv.Last {
			high = value.Blob(iv.HighKey).Literal()
		}
		rows = append(rows, "('r', "+value.Blob(iv.LowKey).Literal()+", "+high+")")
	}
	for kind, keys := range map[string][]keyspace.Key{"l": o.Listed, "p": o.Pinned, "e": o.PinnedElsewhere} {
		for _, k := range keys {
			rows = append(rows, "('"+kind+"', "+value.Blob(string(keyspace.AppendOrdered(nil, k))).Literal()+", NULL)")
		}
	}
	for some := range slices.Chunk(rows, ownedAtOnce) {
		if err := c.exec("INSERT OR IGNORE INTO cleave_owned SELECT t.column1, o.column1, o.column2, o.column3 FROM (VALUES (" + strings.Join(oids, "), (") + ")) AS t, (VALUES " + strings.Join(some, ", ") + ") AS o"); err != nil {
			return err
		}
	}
	return nil
}

func guardTriggerSQL(d *catalog.Table, def *catalog.Guard, o keyspace.Ownership, op string) string {
	var types, checks []string
	for _, t := range def.Types {
		types = append(types, fmt.Sprint(t))
	}
	for _, row := range []string{"NEW", "OLD"} {
		if row == "NEW" && op == "delete" || row == "OLD" && op == "insert" {
			continue
		}
		checks = append(checks, guardCheck(d, def, o, row, types))
	}
	return "CREATE TRIGGER " + quote.Ident(guardTrigger(d, op)) + " BEFORE " + strings.ToUpper(op) + " ON " + quote.Ident(d.SQLName()) +
		" BEGIN SELECT " + strings.Join(checks, "; SELECT ") + "; END"
}

// guardCheck is the expression of one trigger for one row. It equals
// keyspace.Ownership.Owns: pinned here, or not pinned elsewhere and in an interval
// or listed. A NULL key is never owned. The functions are Cleave's: a program
// without them cannot write at all.
func guardCheck(d *catalog.Table, def *catalog.Guard, o keyspace.Ownership, row string, types []string) string {
	// What a fence changes is in rows, so that it leaves the trigger as it is.
	epoch := fmt.Sprintf("(SELECT low FROM cleave_owned WHERE table_oid = %d AND kind = 'v')", d.OID)
	if len(def.Columns) == 0 {
		epoch = fmt.Sprint(int64(def.Epoch))
	}
	args := []string{quote.Text(d.Name), quote.Text(def.Keyspace), epoch, quote.Text(def.Strategy), fmt.Sprint(def.Seed), quote.Text(strings.Join(types, ","))}
	var cols []string
	for _, name := range def.Columns {
		cols = append(cols, row+"."+quote.Ident(name))
	}
	refuse := "cleave_refuse(" + strings.Join(append(args, cols...), ", ") + ")"
	if len(cols) == 0 {
		return refuse
	}
	list := quote.Text(strings.Join(types, ",")) + ", " + strings.Join(cols, ", ")
	key := "cleave_key(" + list + ")"
	in := func(kind string) string {
		return fmt.Sprintf("EXISTS (SELECT 1 FROM cleave_owned WHERE table_oid = %d AND kind = '%s' AND low = %s)", d.OID, kind, key)
	}
	// The interval with the greatest low bound not above the position is the
	// only one that can hold it: intervals are disjoint.
	var place string
	switch o.Strategy {
	case keyspace.Hash:
		pos := fmt.Sprintf("cleave_hash(%d, %s)", def.Seed, list)
		place = fmt.Sprintf("coalesce((SELECT %s <= high FROM cleave_owned WHERE table_oid = %d AND kind = 'i' AND low <= %s ORDER BY low DESC LIMIT 1), 0)", pos, d.OID, pos)
	case keyspace.Range:
		place = fmt.Sprintf("coalesce((SELECT high IS NULL OR %s < high FROM cleave_owned WHERE table_oid = %d AND kind = 'r' AND low <= %s ORDER BY low DESC LIMIT 1), 0)", key, d.OID, key)
	default:
		place = in("l")
	}
	if len(o.PinnedElsewhere) > 0 {
		place = "NOT " + in("e") + " AND " + place
	}
	if len(o.Pinned) > 0 {
		place = in("p") + " OR " + place
	}
	return "CASE WHEN " + place + " THEN 0 ELSE " + refuse + " END"
}

// DescribeTable implements engine.Conn.
func (c *Conn) DescribeTable(ctx context.Context, schema, name string) (*engine.Table, error) {
	var out *engine.Table
	missing := false
	err := c.inspect(ctx, func() error {
		d := c.names.Catalog.Table(schema, name)
		if d == nil {
			// Asking for a table that is not there must not fail the transaction.
			missing = true
			return nil
		}
		t := &engine.Table{Schema: schema, Name: name}
		for _, col := range d.Live() {
			t.Columns = append(t.Columns, engine.Column{Name: col.Name, Type: value.FormatType(col.Type, col.Mod), OID: col.Type,
				NotNull: col.NotNull, Default: col.Default, Identity: col.Identity != "", Deterministic: true})
		}
		for _, ix := range d.Indexes {
			if !ix.Unique {
				continue
			}
			u := engine.UniqueKey{Name: ix.Name, Primary: ix.Primary}
			for _, ic := range ix.Columns {
				u.Columns = append(u.Columns, d.Names([]int16{ic.Num})...)
			}
			t.Unique = append(t.Unique, u)
		}
		for _, k := range d.Constraints {
			if k.Type != "f" {
				continue
			}
			f := engine.ForeignKey{Name: k.Name, Columns: d.Names(k.Columns)}
			if ref := c.names.Catalog.ByOID[k.RefTable]; ref != nil {
				f.RefSchema, f.RefTable, f.RefColumns = ref.Schema, ref.Name, ref.Names(k.RefCols)
			}
			t.ForeignKeys = append(t.ForeignKeys, f)
		}
		t.Guard = d.GuardState()
		n, err := c.queryInt("SELECT EXISTS (SELECT 1 FROM " + quote.Ident(d.SQLName()) + ")")
		if err != nil {
			return err
		}
		t.HasRows = n != 0
		out = t
		return nil
	})
	if err == nil && missing {
		return nil, sqlstate.New(sqlstate.UndefinedTable, "relation \"%s.%s\" does not exist", schema, name)
	}
	return out, err
}

// Guard implements engine.Conn.
func (c *Conn) Guard(ctx context.Context, schema, name string) (g *engine.GuardState, err error) {
	err = c.inspect(ctx, func() error {
		if d := c.names.Catalog.Table(schema, name); d != nil {
			g = d.GuardState()
		}
		return nil
	})
	return g, err
}
