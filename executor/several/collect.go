package several

import (
	"context"
	"encoding/binary"

	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
)

// collect runs a read of the router's own inside the transaction and gives each
// row (the body of its DataRow, all columns in the format) to each. It is planned
// and described like a client's statement, and returns its columns. Errors of
// each end it.
func (c *Conn) collect(ctx context.Context, st *planner.Statement, args *planner.Args, format int16, each func(row []byte) error) ([]wire.Field, error) {
	desc, err := c.describe(ctx, st, args.OIDs)
	if err != nil {
		return nil, err
	}
	own := *args
	own.OIDs = desc.params
	j, err := c.begins(ctx, &execution{st: st, args: &own, desc: desc, results: []int16{format}})
	if err != nil {
		return nil, err
	}
	var buf []byte
	for {
		frames, done, _, err := j.step(buf[:0], 0)
		if err == nil {
			err = context.Cause(c.ctx)
		}
		for b := frames; err == nil && len(b) > 0; {
			n := 1 + int(binary.BigEndian.Uint32(b[1:]))
			if b[0] == wire.DataRow {
				err = each(b[wire.Header:n])
			}
			b = b[n:]
		}
		if err != nil {
			j.stop()
			return nil, err
		}
		if done {
			return desc.fields, nil
		}
		buf = frames
	}
}
