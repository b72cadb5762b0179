package sqlite

import (
	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/function"
	"github.com/cleavedb/cleave/engine/sqlite/translate"
)

// database runs SQL of Cleave's own on a conversation's connection to the file.
type database struct {
	db      *sqlite.Conn
	env     *function.Env
	helpers map[string]*sqlite.Stmt
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

// transaction is what the statements of a conversation share: the file, the settings, and the transaction itself.
type transaction struct {
	client
	definitions
	settings settings
	tx       txState
	touched  touched
	genStmt  *sqlite.Stmt
	shard    *Shard
	readonly bool // a virtual database
}

// schemaChange is a statement that changes definitions.
type schemaChange struct {
	*transaction
	t *translate.Translator
}
