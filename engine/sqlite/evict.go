package sqlite

import (
	"context"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/sqlstate"
)

var _ engine.Evictor = (*mover)(nil)

// Evict implements engine.Evictor.
func (m *mover) Evict(ctx context.Context, set engine.Set, want int64, sure func(context.Context) error) error {
	c, err := m.conn(ctx)
	if err != nil {
		return err
	}
	defer m.put(c)
	n := c.openSet(&set)
	return c.moveTx(ctx, true, func() error {
		var gone int64
		for i := range set.Tables {
			t, err := c.moveTable(&set.Tables[i], &set.Keys)
			if err != nil {
				return err
			}
			if err := c.exec("DELETE FROM main." + quote.Ident(t.def.SQLName()) + " WHERE " + inSet(n, &set, t)); err != nil {
				return err
			}
			gone += int64(c.db.Changes())
		}
		if gone != want {
			return sqlstate.New(sqlstate.SerializationFailure, "the rows to delete are %d, not %d: somebody has changed them", gone, want).OnShard(m.s.cfg.Name)
		}
		return sure(ctx)
	})
}
