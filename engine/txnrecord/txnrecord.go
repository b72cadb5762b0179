// Package txnrecord has the SQL by which shards keep the records of transactions over several shards, of each engine.
// docs/design/transactions.md says what hangs on them.
package txnrecord

import (
	"time"

	"github.com/cleavedb/cleave/engine"
)

// Table is where the records are. Every part that writes leaves one, inside its
// own transaction: on the coordinating shard it is the decision, on all it tells
// readers that ask for atomic reads which shards belong together.
const Table = "cleave_internal.transaction"

// LookMax bounds the transactions that Look can tell.
const LookMax = 200

// Records is how one kind of engine keeps the records of transactions over several
// shards, in SQL.
type Records interface {
	// Create makes the table, where it is missing; several may do so at once. "" if
	// it is always there.
	Create() string
	// Record notes the transaction on a shard that has to follow a decision.
	Record(id string, shards []string) string
	// Decide is the decision to commit; it takes effect with the COMMIT after it.
	// It fails where somebody has decided against it (the id is there), and when it
	// comes so late that such a decision may have been cleaned up.
	Decide(id string, shards []string, until time.Time) string
	// Resolve decides against a transaction unless it is decided, and reads what
	// stands there. One message is one transaction, and each statement of it has a
	// snapshot of its own.
	Resolve(id string) string
	// Read reads what stands there without waiting for who writes there; "" if Resolve waits for nobody else either.
	Read(id string) string
	// Prepared lists what is prepared: global id, age in microseconds, owner.
	Prepared() string
	// Clock is the shard's, as text, if the table is there.
	Clock() string
	// Clean removes the records that nobody needs.
	Clean(run func(sql string) (*engine.Result, error), c Cleaning) error
	// Snapshot is a text that stands for what is committed now.
	Snapshot() string
	// Recent are the transactions that are seen now, and were not by an earlier
	// snapshot.
	Recent(before string) string
	// Look is a query that says what is seen now, as a row of four columns: a snapshot's text, as Snapshot; what tells
	// this run of the server from others; the transactions that are seen now and were not by the earlier snapshot $1, each
	// as its id, a colon and its shards with commas, with blanks between them, NULL for none; whether the text says that the
	// look's own transaction is committed. At most LookMax+1 transactions are told.
	Look() string
	// Point are the first two columns of Look.
	Point() string
	// Visible are those of some transactions that are seen now, with their shards
	// separated by commas.
	Visible(ids []string) string
}

// Cleaning says which records go: those from before a time of the shard's clock, but for those of ids, and those that name a
// shard which is not known. Those of shards that have gone, which are neither known nor unsure, stay as long as a decision
// against a transaction.
type Cleaning struct {
	Before             string
	IDs, Known, Unsure []string
	// Decided is how much older than Before a record is at least, Against how much a decision against a transaction is.
	Decided, Against time.Duration
}

// Of returns how an engine keeps them. An engine without a way of its own does it as PostgreSQL.
func Of(engineName string) Records {
	if engineName == "sqlite" {
		return sqlite{}
	}
	return postgres{}
}
