package engine

import (
	"context"
	"time"

	"github.com/cleavedb/cleave/internal/lane"
	"github.com/cleavedb/cleave/keyspace"
)

// Driver opens shards of one engine.
type Driver interface {
	// Name is "postgres" or "sqlite".
	Name() string
	// Opens reports whether a URL has the form of this engine's.
	Opens(url string) bool
	// Open makes a handle; it does not connect. It fails on a malformed URL only.
	Open(cfg Config) (Shard, error)
}

// Config names a shard.
type Config struct {
	Cluster string // the cluster's uuid, checked against what Install wrote
	Name    string // the shard's name, likewise
	URL     string
	// ConnectTimeout bounds one attempt to connect; 0 is 5 seconds.
	ConnectTimeout time.Duration
	// MessageMax bounds one backend message, bytes; 0 is 256 MiB.
	MessageMax int
	// Lanes watch the conversations' sockets (see [Async]); nil: nobody does.
	Lanes *lane.Group
}

// Shard is one database that holds ranges. Methods are safe for concurrent use.
type Shard interface {
	Name() string
	Engine() string
	// Connect starts a conversation. params are PostgreSQL's startup parameters
	// (client_encoding, application_name, ...); user and database come from the
	// URL. Fails with 57P03 when the shard cannot be reached, 28xxx when it
	// refuses the credentials, 55000 when it belongs to another cluster or
	// bears another name.
	Connect(ctx context.Context, params map[string]string) (Conn, error)
	// Check reports version, privileges and settings, without changing anything.
	Check(ctx context.Context) (Report, error)
	// Install creates what Cleave needs there (once; a second call changes
	// nothing) and writes the cluster's and the shard's names.
	Install(ctx context.Context) error
	Close() error
}

// Report is what Check found.
type Report struct {
	Version  string    `json:"version"`
	Findings []Finding `json:"findings"`
	// Alike are the values of the settings that change answers, nil if the engine has none.
	Alike map[string]string `json:"-"`
	// Database is the database's name on its server, "" if it has none.
	Database string `json:"-"`
}

// Finding is one thing that Check looked at.
type Finding struct {
	Name  string `json:"name"`  // "version", "max_prepared_transactions", ...
	Level string `json:"level"` // "ok", "warning" (works, less well) or "error" (refused)
	Is    string `json:"is"`
	Want  string `json:"want,omitempty"`
	Fix   string `json:"fix,omitempty"` // the statement or command that sets it
}

// Conn is one conversation with a shard, used by one goroutine at a time
// (Cancel and Close excepted). After an error from Send or Receive it can only
// be closed.
type Conn interface {
	// Send hands over whole frontend frames (type byte, length, body) with one
	// write. The buffer may be used again when it returns.
	Send(frames []byte) error
	// Receive returns one or more whole backend frames, in order; the bytes are
	// valid until the next call. It blocks until there is at least one.
	Receive() ([]byte, error)
	// SetDeadline bounds Send and Receive; the zero time is no bound.
	SetDeadline(t time.Time) error
	// Cancel asks the shard to stop what runs in this conversation, which then
	// ends with 57014. Safe to call from another goroutine.
	Cancel(ctx context.Context) error
	// Parameter returns the last value of a reported parameter
	// (server_version, client_encoding, TimeZone, ...) as of connecting.
	Parameter(name string) string
	// Parameters returns all of them. The map is the Conn's own: do not change.
	Parameters() map[string]string

	// DescribeTable reads a table's definition inside the conversation's
	// current transaction (so that an uncommitted CREATE TABLE is seen).
	// Returns 42P01 if it does not exist. Must be called between statements.
	DescribeTable(ctx context.Context, schema, name string) (*Table, error)
	// Guard reads a table's guard as the current transaction sees it, from the catalogue alone: it
	// waits for no lock on the table. It is nil if the table has none, or is not there.
	// Must be called between statements.
	Guard(ctx context.Context, schema, name string) (*GuardState, error)
	// SetGuard creates or replaces a table's guard inside the current
	// transaction. It locks the table against writers first, for at most the
	// ctx's deadline, and fails with 55P03 after it.
	SetGuard(ctx context.Context, g Guard) error
	// DropGuard removes the table's guard inside the current transaction.
	DropGuard(ctx context.Context, schema, table string) error

	Close() error
}

// TwoPhase is implemented by the Conns of engines that can prepare a
// transaction durably.
type TwoPhase interface {
	// CanPrepare reports whether the shard is set up for it.
	CanPrepare() bool
}

// Backend is implemented by the Conns of engines whose server names the process
// that a conversation has there, so that its locks can be found.
type Backend interface {
	// PID is the process's number on the server.
	PID() uint32
}

// Grouped is implemented by the Conns of engines whose shards have one writer at a time. They find
// deadlocks over several shards by themselves where all who wait are in this process.
type Grouped interface {
	// SetGroup says which transaction over several shards the conversation takes
	// part in: those of one number belong together; 0 is none.
	SetGroup(id uint64)
	// WriteLock reports whether the conversation's transaction is the shard's writer, or else since
	// when it waits to be; zero if it does not. It may be called by other goroutines.
	WriteLock() (has bool, waits time.Time)
}

// Carrier is implemented by Shards whose own role may not write past triggers.
type Carrier interface {
	// ConnectCarrier is Connect for a conversation that may: its Conn is a Triggered.
	ConnectCarrier(ctx context.Context, params map[string]string) (Conn, error)
}

// Triggered is implemented by the Conns of engines with triggers that fire for every writer.
type Triggered interface {
	// PastTriggers makes what the current transaction writes from here on pass triggers, foreign keys and guards. Fails with 42501
	// where the conversation's role may not: see Carrier.
	PastTriggers(ctx context.Context) error
}

// Guard is what refuses writes to a table's rows that the shard does not own:
// it raises sqlstate.NotOwner for INSERT, UPDATE (old and new key) and DELETE
// of such rows, and for every TRUNCATE that does not come from a router with
// the guard's epoch.
type Guard struct {
	Schema, Table string
	// ShardKey are the shard key columns, in the order of Owned.Types. Empty
	// for a table whose rows are the same on every shard: they may be changed with
	// the guard's epoch only, or not at all if that is 0.
	ShardKey []string
	Owned    keyspace.Ownership
	// Also, without a shard key, is another epoch with which rows may be changed; 0 is none.
	Also uint64
}

// Table is a table as a shard describes it.
type Table struct {
	Schema, Name string
	Columns      []Column
	// Unique are the column sets of primary key, unique and exclusion
	// constraints and unique indexes, with their names.
	Unique []UniqueKey
	// ForeignKeys are the references to other tables.
	ForeignKeys []ForeignKey
	// HasRows reports whether there is at least one row.
	HasRows bool
	// Partitioned is true for a partitioned table, Inherits for a partition or
	// a table that is or has an inheritance parent.
	Partitioned, Inherits bool
	// Guard says which guard the table carries, nil if it has none.
	Guard *GuardState
}

// GuardState identifies the guard that a table carries on a shard.
type GuardState struct {
	Keyspace string
	Epoch    uint64
	// Also is the other epoch that Guard.Also lets through, 0 if none.
	Also uint64
	// Owns is what it lets through, as keyspace.Ownership.Encode writes it; "" for a guard without a shard key, and for
	// one that was set by a version of Cleave that did not note it.
	Owns string
	// Loose says that it does not hold as it could: set before the shard had a mover (see engine/postgres), it lets everybody
	// pass who writes past triggers.
	Loose bool
}

// Column describes one live column, in attribute order.
type Column struct {
	Name      string
	Type      string // as format_type prints it
	OID       uint32
	NotNull   bool
	Default   string // expression text, "" if none
	Identity  bool
	Generated bool
	// Deterministic is false for a text column with a nondeterministic collation.
	Deterministic bool
}

// UniqueKey is a constraint or index that makes rows unique.
type UniqueKey struct {
	Name    string
	Columns []string // "" stands for an expression
	Primary bool
}

// ForeignKey is a reference from Columns to RefColumns of another table.
type ForeignKey struct {
	Name                string
	Columns             []string
	RefSchema, RefTable string
	RefColumns          []string
}
