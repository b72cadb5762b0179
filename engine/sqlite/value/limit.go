package value

import "github.com/cleavedb/cleave/sqlstate"

// Unsupported is the error of what a SQLite shard does not do.
func Unsupported(what string) error {
	return sqlstate.Refusal("CLV-2191", "%s is not supported on a SQLite shard", what).
		WithHint("See docs/sql-sqlite.md, or use a PostgreSQL shard.")
}

// TooBig is the error of a value above Max.
func TooBig() error {
	return sqlstate.New(sqlstate.ProgramLimitExceeded, "a value is larger than %d MiB", Max>>20)
}

// Max bounds one value, in bytes.
const Max = 256 << 20
