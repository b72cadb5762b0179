package sqlite

import (
	zombie "zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine"
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
