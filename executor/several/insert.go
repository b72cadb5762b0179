package several

import (
	"context"

	"github.com/cleavedb/cleave/sqlstate"
)

func (c *Conn) startInsert(context.Context, *execution) (job, error) {
	return nil, sqlstate.Refuse("this statement over several shards is not supported yet", "fix the shard key in it")
}
