package sqlite

import zombie "zombiezen.com/go/sqlite"

// PlainExec runs SQL on the file as a program without Cleave's functions does.
func PlainExec(path, sql string) error {
	db, err := zombie.OpenConn(path, zombie.OpenReadWrite)
	if err != nil {
		return err
	}
	defer db.Close()
	return run(db, sql)
}
