package sqlite

import (
	"testing"

	zombie "zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
)

// PlainExec runs SQL on the file as a program without Cleave's functions does.
func PlainExec(path, sql string) error {
	db, err := zombie.OpenConn(path, zombie.OpenReadWrite)
	if err != nil {
		return err
	}
	defer db.Close()
	return run(db, sql)
}

// Raw runs SQLite's own SQL on a conversation's connection, as a program without
// Cleave could on the file.
func Raw(t interface{ Fatal(...any) }, c engine.Conn, sql string) {
	if err := run(c.(*Conn).db, sql); err != nil {
		t.Fatal(err)
	}
}

// PlainValue reads one value as a program without Cleave's functions does.
func PlainValue(t testing.TB, path, sql string) string {
	t.Helper()
	db, err := zombie.OpenConn(path, zombie.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := text1(db, sql)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// SetPlan is how SQLite reads the rows of a set of one table.
func SetPlan(t testing.TB, path string, set *engine.Set) string {
	t.Helper()
	db, err := zombie.OpenConn(path, zombie.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newConn(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.begin(false); err != nil {
		t.Fatal(err)
	}
	m, err := c.moveTable(&set.Tables[0], &set.Keys)
	if err != nil {
		t.Fatal(err)
	}
	q, _, err := db.PrepareTransient("EXPLAIN QUERY PLAN SELECT * FROM " + quote.Ident(m.def.SQLName()) + " WHERE " + inSet(c.openSet(set), set, m))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Finalize()
	if _, err := q.Step(); err != nil {
		t.Fatal(err)
	}
	return q.ColumnText(3)
}
