package engine

import "context"

// Role is what a server of a replicated shard is at a moment.
type Role string

// The roles.
const (
	Primary Role = "primary"
	Replica Role = "replica"
)

// LSN is a place in the stream of changes that a primary writes and its replicas
// replay. Places of different timelines are not to be compared, unless one
// timeline is the other's continuation.
type LSN uint64

// Standing is what one server says of itself.
type Standing struct {
	Role Role
	// System is the same for all servers of one shard, and for nobody else's.
	System string
	// Timeline counts promotions: that of a promoted server is above its old
	// primary's. A replica may say an older one than it replays, never a newer.
	Timeline uint32
	// At is, of a primary, where its last change ends: every commit that it
	// answered before it was asked is before At. Of a replica it is how far it
	// has replayed: every commit before At can be seen there.
	At LSN
	// Version is the server's version number, such as 150004.
	Version int
	// Local is true for a conversation over a socket of this machine.
	Local bool
}

// Replicated is implemented by the Conns of engines whose shards can have
// several servers, a primary and its replicas.
type Replicated interface {
	// Standing asks the server. It must be called between statements, outside a
	// transaction. Errors as of a statement.
	Standing(ctx context.Context) (Standing, error)
}

// Located is implemented by the Conns of engines that can tell one running server from its copies.
type Located interface {
	// Instance is equal for two conversations with one running server and database, and for no others. It must be
	// called between statements, outside a transaction. Errors as of a statement.
	Instance(ctx context.Context) (string, error)
}
