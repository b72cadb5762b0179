package sqlite

import (
	"sync"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/change"
	"github.com/cleavedb/cleave/engine/sqlite/function"
	"github.com/cleavedb/cleave/engine/sqlite/translate"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/sqlstate"
)

// interruption is what runs in a conversation now, and what stops it.
type interruption struct {
	mu        sync.Mutex
	running   bool
	closed    bool
	interrupt chan struct{}
	fired     bool
	reason    *sqlstate.Error // why the statement was interrupted
	deadline  time.Time
	wake      chan struct{}
}

// database runs SQL of Cleave's own on a conversation's connection to the file.
type database struct {
	interruption
	db      *sqlite.Conn
	env     *function.Env
	helpers map[string]*sqlite.Stmt
	// failedRow is what cleave_capture noted; see captureRow.
	failedRow []value.Datum
}

// definitions are those of the file as the transaction sees them, and what writes them.
type definitions struct {
	database
	names     catalog.Namespace         // its relations are those of engine.Relations
	filled    map[*catalog.System]int64 // generation at which a catalogue relation was filled
	redefined bool                      // by the transaction
}

// client is what the client gets and what it was told.
type client struct {
	out    []byte
	params map[string]string
}

// writer is a conversation's part in the queue for the file's write lock. All but the queue itself is guarded by turns.
type writer struct {
	writers *writerQueue
	group   uint64 // see SetGroup
	// locks and waits are what WriteLock says.
	locks bool
	waits time.Time
}

// transaction is what the statements of a conversation share: the file, the settings, and the transaction itself.
type transaction struct {
	client
	definitions
	writer
	settings settings
	tx       txState
	touched  change.Touched
	genStmt  *sqlite.Stmt
	shard    *Shard
	readonly bool // a virtual database
}

// session is the transaction with the portals that live in it: what begins, commits and rolls back both.
type session struct {
	transaction
	verb    string  // what the statement is called in an error
	active  *portal // being stepped
	activeN int32   // rows it may still give; 0 is all
	portals pgbackend.Portals[*portal]
	held    int // bytes that portals hold
}

// schemaChange is a statement that changes definitions.
type schemaChange struct {
	*transaction
	t *translate.Translator
}
