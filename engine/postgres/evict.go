package postgres

import (
	"context"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

var _ engine.Evictor = (*mover)(nil)

// Evict locks the rows by deleting them: a move that purges or loads the same keys
// waits for the end.
func (v *mover) Evict(ctx context.Context, set engine.Set, want int64, sure func(context.Context) error) error {
	const op = "delete rows"
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return err
	}
	defer v.done(c)
	err = func() error {
		if _, err := c.exec(ctx, "BEGIN"); err != nil {
			return err
		}
		var gone int64
		for i := range set.Tables {
			t := &set.Tables[i]
			res, err := c.exec(ctx, "DELETE FROM ONLY "+qualify(t)+" WHERE "+where(&set, t))
			if err != nil {
				return onTable(err, t)
			}
			n, err := strconv.ParseInt(strings.TrimPrefix(res.Tag, "DELETE "), 10, 64)
			if err != nil {
				return err
			}
			gone += n
		}
		if gone != want {
			return sqlstate.New(sqlstate.SerializationFailure, "the rows to delete are %d, not %d: somebody has changed them", gone, want)
		}
		if err := sure(ctx); err != nil {
			return err
		}
		_, err := c.exec(ctx, "COMMIT")
		return err
	}()
	if err != nil && engine.Lost(err) == nil {
		_, _ = c.exec(context.WithoutCancel(ctx), "ROLLBACK") // if it fails the conversation is closed next
	}
	return v.failed(ctx, op, err)
}
