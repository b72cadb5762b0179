package sqlite

import (
	"testing"

	zombie "zombiezen.com/go/sqlite"
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
