package sqlite

import (
	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/internal/pgoid"
)

// internalSchema holds what the router keeps in every shard. Its one table has to
// be there before a transaction needs it, because the first part of a transaction
// keeps all other writers off its file: so it is made with the file, and it is in
// no list of tables.
const internalSchema = "cleave_internal"

// recordsTable is cleave_internal.transaction: docs/design/transactions.md.
var recordsTable = &tableDef{OID: 16001, Schema: internalSchema, Name: "transaction",
	Columns: []columnDef{
		{Num: 1, Name: "id", Type: pgoid.UUID, Mod: -1, NotNull: true},
		{Num: 2, Name: "decided", Type: pgoid.Bool, Mod: -1},
		{Num: 3, Name: "shards", Type: pgoid.Text, Mod: -1, NotNull: true},
		{Num: 4, Name: "xid", Type: pgoid.Int8, Mod: -1, NotNull: true},
		{Num: 5, Name: "at", Type: pgoid.Timestamptz, Mod: -1, NotNull: true},
	},
	Constraints: []constraintDef{{OID: 16003, Name: "transaction_pkey", Type: "p", Columns: []int16{1}, Index: 16002}},
	Indexes:     []indexDef{{OID: 16002, Name: "transaction_pkey", Unique: true, Primary: true, Columns: []indexColumn{{Num: 1}}}},
}

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
