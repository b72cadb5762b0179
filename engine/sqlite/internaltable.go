package sqlite

import "zombiezen.com/go/sqlite"

// internalStatements make what every file has beside its definitions.
var internalStatements = []string{
	`CREATE TABLE IF NOT EXISTS cleave_prepared (gid TEXT PRIMARY KEY, owner TEXT NOT NULL, database TEXT NOT NULL, prepared INTEGER NOT NULL, locks INTEGER NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS cleave_change (gid TEXT NOT NULL, n INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (gid, n))`,
	`CREATE TABLE IF NOT EXISTS "cleave_internal.transaction" ("id" NOT NULL, "decided", "shards" NOT NULL, "xid" NOT NULL, "at" NOT NULL)`,
	`CREATE UNIQUE INDEX IF NOT EXISTS "cleave_internal.transaction_pkey" ON "cleave_internal.transaction" ("id")`,
	`CREATE INDEX IF NOT EXISTS "cleave_internal.transaction_xid" ON "cleave_internal.transaction" ("xid")`,
}

// complete makes what a file of an earlier version lacks. Somebody else's write is
// waited for as long as the shard's busy_timeout.
func (s *Shard) complete(db *sqlite.Conn) error {
	s.mu.Lock()
	done := s.whole
	s.mu.Unlock()
	if done {
		return nil
	}
	n, err := text1(db, "SELECT count(*) FROM sqlite_schema WHERE name IN ('cleave_prepared', 'cleave_change', 'cleave_internal.transaction', 'cleave_internal.transaction_xid')")
	if err != nil {
		return err
	}
	if n != "4" {
		if err := s.patiently(db, "BEGIN IMMEDIATE"); err != nil {
			return err
		}
		for _, sql := range internalStatements {
			if err := run(db, sql); err != nil {
				run(db, "ROLLBACK")
				return err
			}
		}
		if err := run(db, "COMMIT"); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.whole = true
	s.mu.Unlock()
	return nil
}
