package several

import (
	"context"

	"github.com/cleavedb/cleave/sqlstate"
)

func (c *Conn) startCopyIn(context.Context, *execution) (job, error) {
	return nil, sqlstate.Refuse("COPY of a sharded table is not supported yet", "insert the rows with INSERT")
}

func (c *Conn) startCopyOut(context.Context, *execution) (job, error) {
	return nil, sqlstate.Refuse("COPY of a sharded table is not supported yet", "read the rows with SELECT")
}
