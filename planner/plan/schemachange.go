package plan

import (
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// DDL is a schema change.
type DDL struct {
	// Op is "create table", "alter table", "drop table", "create index", ...
	Op string
	// AllShards: every shard receives Text, else only the default shard.
	AllShards bool
	// Create is the table that comes into being; nil else.
	Create *CreateTable
	// Altered are the tables whose definition must be read again afterwards,
	// Dropped those that go, Renamed the old name of Altered[0] if it changes.
	Altered []TableName
	Dropped []TableName
	Renamed *TableName
	// DropsSchema holds the names of schemas dropped with CASCADE.
	DropsSchema []string
	// Truncated tables: the shard's guard wants the router's epoch.
	Truncated []TableName
	// Cascades are the tables of a TRUNCATE ... CASCADE, which reaches those that refer to them as well. Restarts
	// says that the sequences of all of them begin anew.
	Cascades []TableName
	Restarts bool
	// Concurrent statements cannot run in a transaction (CREATE INDEX CONCURRENTLY).
	Concurrent bool
	// Refused is why it is refused, wherever it might run; nil if it is not.
	Refused error
	// Elsewhere is what shards other than the default shard receive if it is not
	// Text: DROP INDEX with IF EXISTS, since an index of an unsharded table is on the
	// default shard only.
	Elsewhere string
	// DropsParts is a DROP ... CASCADE of what parts of tables may depend on: columns, defaults, constraints.
	DropsParts bool
	// Mixed: it names what every shard has, and what only the default shard has.
	Mixed bool
	// RenamedColumn is the old and the new name, in Altered[0]; "" if none.
	RenamedColumn [2]string
	// RenamedSchema is the old and the new name of a schema; "" if none.
	RenamedSchema [2]string
	// MapOnly: no shard hears of it, only the map changes.
	MapOnly bool
	// Sequences are the sequences of the cluster that come, change and go.
	// Besides these, those that a table or column owns go with it.
	Sequences []SequenceChange
	// Objects: it may have made, changed or dropped views or functions, whose
	// definitions are to be read again.
	Objects bool
	// Language is that of the function which it makes; "" if it names none.
	Language string
	// Index is the index that the statement makes, nil if the shard is to choose a
	// name; Schema is "" for a table that the map does not know.
	Index *TableName
	// Unknown are the names of tables that the map does not know, as the statement
	// has them: they may be temporary tables of the session.
	Unknown []string
	// Hides is the refusal of a new name, if what gets it is a temporary table: the map has one of that name.
	Hides error
	// OfTypes are the types that it changes, if it names none of them with a schema: they may be the session's, in pg_temp. Plain is
	// the text then, without what Text has for all shards.
	OfTypes []string
	Plain   string
	// Spread: the view that it makes reads sharded tables. A view that reads one of
	// Unknown which is a temporary table is temporary, and cannot.
	Spread bool
	// Source is the query whose rows a CREATE TABLE AS puts into the table that Text
	// makes: rows of several shards. "" if Text does it itself.
	Source string
	// As is a CREATE TABLE AS of a sharded or reference table, which Text does not make.
	As *CreateAs
	// Loose is what it changes, as it is written (Schema may be ""), if the map knows no table or view of that name; nil
	// else. Whether there is such a thing, and where, the default shard knows.
	Loose *TableName
	// Passing: it leaves nothing that a new shard would have to do (REINDEX, VACUUM).
	Passing bool
	// Functions: Text calls functions of the schema cleave_internal that the shards have to have.
	Functions bool
	// Times are expressions whose values stand in Text, in texts' quotes, in place of the marks (TimeMark): of the
	// transaction's time, and of words for it.
	Times []string
	// Unfillable is the error if a shard's part of Altered[0] has rows; nil if there is none. Defaults are the columns added
	// to it without a DEFAULT, which may get the default of their type.
	Unfillable *sqlstate.Error
	Defaults   []string
}

// TableName is a resolved table name.
type TableName struct{ Schema, Name string }

// CreateTable is a table declared with Cleave's options, before shards have
// said what its columns really are.
type CreateTable struct {
	TableName
	Kind        shardmap.TableKind
	Keyspace    string // "" means: the hash keyspace of the key's types
	ShardKey    []string
	IfNotExists bool
	// InPath: the schema is the first of the search_path, and may not exist.
	InPath bool
}

// CreateAs is a CREATE TABLE AS that makes a sharded or reference table: what columns the query has
// the default shard says, then the table is made with these, then the rows are inserted.
type CreateAs struct {
	Table TableName
	// Probe makes a table of that name with the columns, without rows; Head, the columns and Tail are the table's statement.
	Probe, Head, Tail string
	// Query gives the rows, Insert is INSERT of them; "" for WITH NO DATA.
	Query, Insert string
}

// SequenceChange is what a schema change does to a sequence of the cluster.
type SequenceChange struct {
	// Op is "create", "alter" (also a new name), "restart" (a new life that begins
	// at Sequence.First) or "drop".
	Op string
	// Sequence is as it is to be; ID is empty where a new life begins.
	Sequence shardmap.Sequence
	// Was is the sequence that the statement was analysed on; nil for "create".
	Was *shardmap.Sequence
	// IfNotExists: a sequence that exists is left as it is.
	IfNotExists bool
	// InPath: the schema is the first of the search_path, and may not exist.
	InPath bool
}
