package several

import (
	"context"

	"github.com/cleavedb/cleave/sqlstate"
)

// commitSeveral commits the parts that wrote, all or none. The caller rolls back
// what is open on parts after an error.
func (c *Conn) commitSeveral(_ context.Context, writers []*part) error {
	return sqlstate.Refuse("the transaction has written on shards "+writers[0].shard+" and "+writers[1].shard+", and cannot be committed on both together",
		"keep the writes of a transaction to one shard")
}
