package engine

import (
	"context"
	"io"

	"github.com/cleavedb/cleave/keyspace"
)

// Movable is implemented by Shards whose rows can be moved to another shard while
// they are in use.
type Movable interface {
	// Mover returns the shard's methods for a leader with that token (see
	// shardmap.Leadership). It does not connect.
	Mover(token uint64) Mover
}

// Mover is what a shard does for moves. docs/design/moving.md says how its methods make a move. All of
// them open connections of their own and can be called again after a crash at any
// point; ids are those of moves: letters, digits, '_' and '-', at most 40 bytes.
//
// Errors are those of a statement, or a LostError: then nobody knows whether it was
// done, and the call is to be repeated.
type Mover interface {
	// Seize makes the shard remember the token, if it has not seen a greater one,
	// after what others have under way here in a transaction has ended. From then on every method
	// of a Mover with a smaller token that changes something fails with 55000 and a message
	// that the leadership has ended: each of its transactions looks at the token, locked, before it
	// commits. A leader seizes both shards before it does anything for a move. What Load has noted of
	// parts is deleted if the leader before was of a version that knew none: it may have purged their rows.
	Seize(ctx context.Context) error

	// Describe fills in Columns, Types and Identity of tables, of which Schema, Name and
	// ShardKey are given. Fails with 42P01 if one is not there.
	Describe(ctx context.Context, tables []MoveTable) ([]MoveTable, error)
	// CheckMove reports what keeps rows of these tables from being moved off or to
	// this shard: settings, privileges, tables without a usable replica identity,
	// a full slot table. It changes nothing.
	CheckMove(ctx context.Context, tables []MoveTable) ([]Finding, error)

	// Capture begins to keep all changes of the set's rows, under that id, until
	// Release. It returns the rows as of the very moment at which the changes
	// begin. If the id is captured already it is released first: what was copied
	// before is of no use then.
	Capture(ctx context.Context, id string, set Set) (RowSource, error)
	// CaptureChanges is Capture without the rows: the changes begin at the returned
	// position. If the id is captured already it returns where that began.
	CaptureChanges(ctx context.Context, id string, set Set) (Position, error)
	// CaptureRows returns rows of a capture that goes on, as of now: for a copy that was
	// interrupted. The set has the capture's keys and some of its tables. Who read rows of the
	// capture before is ended. Fails with 55000 if nothing is captured under the id any more.
	// See [RowSource.Parts] for a table of which some parts were loaded.
	CaptureRows(ctx context.Context, id string, set Set) (RowSource, error)
	// Changes sends all transactions after the position that changed rows of the
	// set (the capture's keys, all of its tables or some), in the order of their commits, to the sink, until ctx ends, the sink
	// returns an error, or, if until is not "", all before until were sent. It
	// never skips one: after a restart it begins at after, which must not be
	// older than the last position given to Forget. A change of a table's
	// definition that matters ends it with 55000 (see sqlstate), naming the table.
	Changes(ctx context.Context, id string, set Set, after, until Position, to ChangeSink) error
	// Forget allows the shard to drop what it keeps up to the position.
	Forget(ctx context.Context, id string, upTo Position) error
	// Here returns the position of now: every commit that was answered before the
	// call is before it.
	Here(ctx context.Context) (Position, error)
	// Reached reports whether everything before goal is before at: whether a stream that is
	// at the one has reached the other. Both are positions of this shard. It does not connect.
	Reached(at, goal Position) bool
	// Lag returns about how many bytes of changes lie between the position and now.
	Lag(ctx context.Context, id string, at Position) (int64, error)
	// Release ends what is under way here under the id, in any process (a capture and its
	// views, Changes, Load, Apply), and removes all that was made for it, the position that
	// SetApplied and Apply wrote with it. No error if there is none.
	Release(ctx context.Context, id string) error
	// Captures returns the ids that have something here, also what a crash left, and those
	// that have nothing but an applied position.
	Captures(ctx context.Context) ([]string, error)

	// Load adds rows in PostgreSQL's COPY text format, columns as in
	// MoveTable.Columns, past guards and triggers; id is that of the capture which they are
	// of. A part with Since is noted with its last rows, until Release, unless the engine notes none.
	// After an error some of the rows may be there: purge those of a table without noted parts.
	Load(ctx context.Context, id string, table *MoveTable, part Part, rows io.Reader) (n int64, err error)
	// SetLoaded notes that all rows of a table were loaded under the id, until Release, in place of its parts.
	SetLoaded(ctx context.Context, id string, table LoadedTable) error
	// Loaded returns what SetLoaded and Load have noted, after it has ended what Load has under way
	// under the id.
	Loaded(ctx context.Context, id string) ([]LoadedTable, error)
	// ForgetParts drops what Load has noted of a table: its rows are to be purged.
	ForgetParts(ctx context.Context, id string, table *MoveTable) error
	// Apply opens the one way by which changes of a capture elsewhere are applied
	// here, past guards and triggers. A second Apply of the same id ends the first,
	// after what that has under way in a commit: ask Applied where to begin afterwards.
	Apply(ctx context.Context, id string, set Set) (Applier, error)
	// Applied returns the position up to which Apply has committed, "" at first.
	Applied(ctx context.Context, id string) (Position, error)
	// SetApplied writes that position: where a copy begins, or where reverse replication does.
	// An Apply of the id that is under way commits no more.
	SetApplied(ctx context.Context, id string, at Position) error

	// Fence sets the guards of tables, in one transaction, after it has locked all
	// of them against writers and row locks (EXCLUSIVE MODE: readers go on), and
	// returns a position that lies after every write that the old guards let
	// through. It fails with 55P03 if a lock was not to be had before ctx ended:
	// then nothing has changed. Waiting must not hold up others' writes for long:
	// short waits, tried again.
	Fence(ctx context.Context, guards []Guard) (Position, error)
	// View takes a snapshot of the set's rows. Its Position lies after every change that the
	// snapshot sees and before every change of the set that it does not see.
	View(ctx context.Context, set Set) (View, error)
	// Sums returns number and checksum of the set's rows, table by table, as one
	// snapshot sees them. The checksum does not depend on the order of rows and is
	// the same on every engine for equal rows.
	Sums(ctx context.Context, set Set, pace Pace) ([]Sum, error)
	// Purge deletes at most limit rows of the set, past guards and triggers, and
	// returns how many it found; fewer than limit: none are left.
	Purge(ctx context.Context, set Set, limit int) (n int, err error)
	// Sizes returns rows and bytes of the set, estimated from what the engine
	// knows, without reading the tables whole.
	Sizes(ctx context.Context, set Set) (rows, bytes int64, err error)
}

// Opener is implemented by Movers that can widen guards without a lock on the tables.
type Opener interface {
	// Open replaces the guards of tables that have one, in one transaction. It waits for
	// no writer, so it must let through all that the old guards did: one who is under way
	// meets the old guard or the new. 55000 if a table has no guard.
	Open(ctx context.Context, guards []Guard) error
}

// Unseater is implemented by Movers whose shard can forget its leaders.
type Unseater interface {
	// Unseat makes the shard forget the greatest token that it has seen. Only for a directory that was put back to an
	// older state, by a person's decision: its tokens begin below those that the shard knows.
	Unseat(ctx context.Context) error
}

// Pace is called before a piece of long work, with about how many bytes the one before it has read. It
// returns when the work may go on, and about how many bytes it is to read next; its error ends the work.
// nil: all of it at once.
type Pace func(ctx context.Context, read int64) (next int64, err error)

// View is one consistent view of a Set's rows, to compute with.
type View interface {
	// Position is where the changes after this view begin.
	Position() Position
	// Sums returns number and checksum of the rows, table by table; see [Mover].
	Sums(ctx context.Context, pace Pace) ([]Sum, error)
	// Close ends the view.
	Close() error
}

// Position is a place in a shard's stream of changes. Only the shard that it is
// of can compare it with others. "" is before everything.
type Position string

// Set is the rows of colocated tables whose shard key is in Keys.
type Set struct {
	Tables []MoveTable
	// Keys are the keys, as an ownership that has them; see [keyspace.Ownership.Owns].
	Keys keyspace.Ownership
	// Except turns it round: the rows whose shard key is not in Keys, or NULL. Only View,
	// Sums, Sizes and Purge know such a set.
	Except bool
}

// MoveTable is a table of a Set.
type MoveTable struct {
	Schema, Name string
	ShardKey     []string // in the order of Set.Keys.Types
	// Columns are those with values of their own (not computed ones), in the order
	// of the table; Types as format_type prints them.
	Columns []string
	Types   []string
	// Identity are the columns by which a row is found again: those of the replica
	// identity if it is an index, else those of the primary key, else all columns
	// (rows that are equal in all of them are as good as each other).
	Identity []string
}

// LoadedTable is a table whose rows were loaded, with what they were.
type LoadedTable struct {
	Schema, Name string
	Rows, Bytes  int64
	// Parts are those that were loaded of a table that is not whole; nil: all of it was.
	Parts []Part
}

// AddLoaded adds what was noted of a table, or of one part of it (the one with a Place), to a list. A table that is whole has
// no parts: those that are noted are older. A version of Cleave that does not know of parts leaves them.
func AddLoaded(list []LoadedTable, t LoadedTable, part Part) []LoadedTable {
	for i := range list {
		of := &list[i]
		switch {
		case of.Schema != t.Schema || of.Name != t.Name:
			continue
		case part.Place == "":
			*of = t
		case of.Parts != nil:
			of.Rows, of.Bytes, of.Parts = of.Rows+t.Rows, of.Bytes+t.Bytes, append(of.Parts, part)
		}
		return list
	}
	if part.Place == "" {
		return append(list, t)
	}
	t.Parts = []Part{part}
	return append(list, t)
}

// Part is some rows of a table, in the words of the shard that they are read from. The zero value is the whole table.
type Part struct {
	// Place says which rows. A row that is not changed stays in its part.
	Place string
	// Since is the view as of which they are read; "": the part cannot be noted.
	Since string
	// Changed, if it is not "", is the Since of a view as of which they were loaded before: only the rows are read that were changed since.
	Changed string
}

// RowSource is one consistent view of a Set.
type RowSource interface {
	// Position is where the changes after this view begin.
	Position() Position
	// Parts divides a table (an index into Set.Tables) into parts of about so many bytes each.
	//
	// there are parts that were loaded from earlier views of the same capture. A change of a row between
	// that view and this one has then to be applied as ChangeLeave, or not at all if it is an insert. After
	// that all rows of the parts that are returned, and no others, are missing on the target.
	// Fails with 55000 if rows may not lie any more where they were: all of the table is to be copied again.
	Parts(ctx context.Context, table int, bytes int64, there []Part) ([]Part, error)
	// Rows writes the rows of a part of a table in PostgreSQL's COPY
	// text format, columns as in MoveTable.Columns. Several may be written
	// at the same time by several goroutines.
	// With a pace they are read piece by piece.
	Rows(ctx context.Context, table int, part Part, pace Pace, to io.Writer) error
	// Close ends the view; the capture goes on.
	Close() error
}

// ChangeOp is what a Change does.
type ChangeOp byte

// The changes.
const (
	ChangeInsert   ChangeOp = 'I'
	ChangeUpdate   ChangeOp = 'U'
	ChangeDelete   ChangeOp = 'D'
	ChangeTruncate ChangeOp = 'T' // all rows of the set in the table
	ChangeLeave    ChangeOp = 'L' // a delete of a row that need not be there
)

// HasOld reports whether such a change names the row that was.
func (op ChangeOp) HasOld() bool {
	return op == ChangeUpdate || op == ChangeDelete || op == ChangeLeave
}

// Change is one row's change. It is valid during the call that gives it.
type Change struct {
	Op    ChangeOp
	Table int // index into Set.Tables
	// Old are the identity's values before it (update, delete, leave), in the order of MoveTable.Identity.
	Old []Text
	// New are the row's values after it (insert, update), in the order of
	// MoveTable.Columns; Same marks those that an update left as they were and that
	// are not known (out-of-line values). An update that brings a row into the set
	// comes as insert, one that takes it out as delete.
	New  []Text
	Same []bool
}

// ChangeSink takes the transactions of a stream, in order. A transaction may be
// larger than memory: what it holds comes one by one.
type ChangeSink interface {
	// Change is called for each change between two Commits.
	Change(ctx context.Context, c *Change) error
	// Commit ends a transaction: everything up to at was given. Without a change
	// before it, it says that the stream has come that far; an Applier then has committed
	// all changes when it returns.
	Commit(ctx context.Context, at Position) error
}

// Leaver is a ChangeSink that wants of some tables only what lets rows leave. Changes gives it no inserts of them, and
// need not know the values of rows that come into the set.
type Leaver interface {
	ChangeSink
	// OnlyLeaves reports whether a table (an index into Set.Tables) is such a one.
	OnlyLeaves(table int) bool
}

// Applier is a ChangeSink that applies to a shard what it is given. Changes are
// committed together with the position that Commit names, several transactions at a
// time, so that each is applied once whatever dies. A change that does not find its row, or
// finds it there already, is XX001: the copy is not what it should be.
type Applier interface {
	ChangeSink
	// Flush commits what has been given, whole transactions, and returns the position committed.
	Flush(ctx context.Context) (Position, error)
	// Close ends it; what was not committed is rolled back.
	Close() error
}

// Sum is what a table has of a Set.
type Sum struct {
	Rows int64 `json:"rows"`
	// Checksum is the sum, modulo 2^64, of hashtextextended(line, 0) of all rows.
	// line is made of a row's columns as in MoveTable.Columns: each is "N" for NULL, else
	// its length in bytes, ":" and its text, as in COPY, with DateStyle ISO,
	// IntervalStyle postgres, TimeZone UTC, bytea_output hex, extra_float_digits 1.
	Checksum uint64 `json:"checksum"`
}
