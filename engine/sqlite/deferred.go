package sqlite

import (
	"maps"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/function"
	"github.com/cleavedb/cleave/sqlstate"
)

// Deferrable foreign keys. SQLite knows one kind, which it checks at COMMIT: it counts the rows that
// break such keys, by transaction. Every deferrable key is of that kind here. What PostgreSQL checks
// at a statement's end (INITIALLY IMMEDIATE, SET CONSTRAINTS .. IMMEDIATE) is looked for at that end
// if the count is not zero: which key is broken SQLite does not say.

// constraintModes are what SET CONSTRAINTS said in a transaction.
type constraintModes struct {
	all map[bool]bool   // the mode of all keys: true is deferred; empty: each has its own
	one map[uint32]bool // of single keys, by OID, said after all
}

// deferred reports whether a deferrable key is checked at COMMIT.
func (m constraintModes) deferred(k *catalog.Constraint) bool {
	if d, ok := m.one[k.OID]; ok {
		return d
	}
	return m.all[true] || k.Deferred && !m.all[false]
}

// wroteKeys is a kind of write in a transaction, for the message about a broken key.
type wroteKeys struct {
	table uint32
	tag   string
}

// noteKeys notes a statement that wrote rows, if deferrable keys may be broken by it.
func (c *transaction) noteKeys(p *portal, rows int64) {
	if rows == 0 || !p.plan.Write || p.plan.Table == nil || c.names.Catalog == nil || len(c.names.Catalog.Deferrable) == 0 {
		return
	}
	w := wroteKeys{p.plan.Table.OID, p.plan.Tag}
	for _, o := range c.tx.wroteKeys {
		if o == w {
			return
		}
	}
	c.tx.wroteKeys = append(c.tx.wroteKeys, w)
}

// keysBroken reports whether rows of the transaction break deferrable keys.
func (c *transaction) keysBroken() (bool, error) {
	if !c.tx.wrote || c.names.Catalog == nil || len(c.names.Catalog.Deferrable) == 0 {
		return false, nil
	}
	if c.tx.suspect {
		return true, nil
	}
	tls, db, err := function.Handle(c.db)
	if err != nil {
		return false, err
	}
	out := libc.Xmalloc(tls, 8)
	if out == 0 {
		return false, sqlite.ResultNoMem.ToError()
	}
	defer libc.Xfree(tls, out)
	if err := sqlite.ResultCode(lib.Xsqlite3_db_status(tls, db, lib.SQLITE_DBSTATUS_DEFERRED_FKS, out, out+4, 0)).ToError(); err != nil {
		return false, err
	}
	return libc.GoBytes(out, 4)[0] != 0, nil
}

// checksAgain ends PRAGMA defer_foreign_keys, which forgets all that is to be checked at the end of the transaction: what is broken so far
// makes the transaction one whose keys are looked at anyway.
func (c *transaction) checksAgain() {
	broken, err := c.keysBroken()
	must(err)
	c.tx.suspect = broken
	must(c.exec("PRAGMA defer_foreign_keys = OFF"))
}

// checkKeys is the check of the deferrable keys that which takes.
func (c *transaction) checkKeys(which func(*catalog.Constraint) bool) error {
	broken, err := c.keysBroken()
	if err != nil || !broken {
		return err
	}
	for _, f := range c.names.Catalog.Deferrable {
		if !which(f.Key) {
			continue
		}
		if err := c.checkKey(f); err != nil {
			return err
		}
	}
	return nil
}

// checkKey gives PostgreSQL's error if rows break the key.
func (c *transaction) checkKey(f catalog.ForeignKey) error {
	ref := c.names.Catalog.ByOID[f.Key.RefTable]
	values, found, err := c.orphan(f.Table, ref, f.Key)
	if err != nil || !found {
		return err
	}
	e := &sqlstate.Error{Code: sqlstate.ForeignKeyViolation, Schema: f.Table.Schema, Table: f.Table.Name, Constraint: f.Key.Name}
	side, shown, rest := "insert or update on table \""+f.Table.Name+"\" violates foreign key constraint \""+f.Key.Name+"\"", f.Table.Names(f.Key.Columns), "is not present in table \""+ref.Name+"\"."
	if c.parentWent(f, ref) {
		side = "update or delete on table \"" + ref.Name + "\" violates foreign key constraint \"" + f.Key.Name + "\" on table \"" + f.Table.Name + "\""
		shown, rest = ref.Names(f.Key.RefCols), "is still referenced from table \""+f.Table.Name+"\"."
	}
	e.Message = side
	if len(values) > 0 {
		e.Detail = "Key (" + strings.Join(shown, ", ") + ")=(" + strings.Join(values, ", ") + ") " + rest
	}
	return e
}

// parentWent reports whether the transaction's first write that can have broken the key was to the
// table that it refers to. PostgreSQL's checks come in the order of the writes.
func (c *transaction) parentWent(f catalog.ForeignKey, ref *catalog.Table) bool {
	for _, w := range c.tx.wroteKeys {
		switch {
		case w.table == f.Table.OID && w.tag != "DELETE":
			return false
		case w.table == ref.OID && w.tag != "INSERT":
			return true
		}
	}
	return false
}

// endOfStatement checks what is not deferred and, where the statement's end is the transaction's, all.
func (c *Conn) endOfStatement() error {
	last := c.simple && c.tx.block == txNone && c.script != nil && c.script.next >= len(c.script.stmts)
	return c.checkKeys(func(k *catalog.Constraint) bool { return last || !c.tx.modes.deferred(k) })
}

// endOfTransaction checks all deferrable keys, before COMMIT and PREPARE TRANSACTION.
func (c *transaction) endOfTransaction() error {
	return c.checkKeys(func(*catalog.Constraint) bool { return true })
}

// keysPending refuses a change of a table whose deferred checks have not been made and would fail now.
func (c *transaction) keysPending(d *catalog.Table, verb string) {
	broken, err := c.keysBroken()
	must(err)
	if !broken {
		return
	}
	for _, f := range c.names.Catalog.Deferrable {
		ref := c.names.Catalog.ByOID[f.Key.RefTable]
		if went := c.parentWent(f, ref); went && ref.OID != d.OID || !went && f.Table.OID != d.OID {
			continue
		}
		_, found, err := c.orphan(f.Table, ref, f.Key)
		must(err)
		if found {
			fault.Raisef(sqlstate.ObjectInUse, "cannot %s \"%s\" because it has pending trigger events", verb, d.Name)
		}
	}
}

// planConstraints is SET CONSTRAINTS.
func planConstraints(s *pg.ConstraintsSetStmt, control controlFn) (*plan, error) {
	return control("SET CONSTRAINTS", func(c *Conn, p *portal) error {
		if c.tx.block == txNone {
			c.warning(sqlstate.NoActiveTransaction, "SET CONSTRAINTS can only be used in transaction blocks")
			return nil
		}
		modes := constraintModes{all: map[bool]bool{s.Deferred: true}}
		if len(s.Constraints) > 0 {
			if err := c.begin(false); err != nil {
				return err
			}
			modes = constraintModes{all: c.tx.modes.all, one: maps.Clone(c.tx.modes.one)}
			if modes.one == nil {
				modes.one = map[uint32]bool{}
			}
			for _, n := range s.Constraints {
				if err := c.modesOf(n.GetRangeVar(), s.Deferred, modes.one); err != nil {
					return err
				}
			}
		}
		c.tx.modes = modes
		return c.endOfStatement()
	})
}

// modesOf sets the mode of the keys that a name in SET CONSTRAINTS means: all of that name in the
// first schema of the search_path that has one.
func (c *definitions) modesOf(n *pg.RangeVar, deferred bool, modes map[uint32]bool) error {
	schemas := c.names.Schemas()
	if n.Schemaname != "" {
		if c.names.Catalog.Schemas[n.Schemaname] == nil {
			return sqlstate.New(sqlstate.InvalidSchemaName, "schema \"%s\" does not exist", n.Schemaname)
		}
		schemas = []string{n.Schemaname}
	}
	for _, schema := range schemas {
		found := false
		for _, d := range c.names.Catalog.SortedTables() {
			for i := range d.Constraints {
				k := &d.Constraints[i]
				if d.Schema != schema || k.Name != n.Relname {
					continue
				}
				if deferred && !k.Deferrable {
					return sqlstate.New(sqlstate.WrongObjectType, "constraint \"%s\" is not deferrable", k.Name)
				}
				found, modes[k.OID] = true, deferred
			}
		}
		if found {
			return nil
		}
	}
	return sqlstate.New(sqlstate.UndefinedObject, "constraint \"%s\" does not exist", n.Relname)
}
