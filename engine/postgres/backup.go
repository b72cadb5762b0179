package postgres

import (
	"context"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

var (
	_ engine.Markable  = (*shard)(nil)
	_ engine.Renamable = (*shard)(nil)
)

// marker marks places with restore points: records in the server's log, up to which a copy can be recovered.
type marker struct {
	s *shard
	c *conn
}

// Marker implements engine.Markable.
func (s *shard) Marker(ctx context.Context) (engine.Marker, error) {
	c, err := s.dial(ctx, plainParams)
	if err != nil {
		return nil, err
	}
	if err := s.verify(ctx, c); err != nil {
		_ = c.Close()
		return nil, err
	}
	return &marker{s, c}, nil
}

// Mark implements engine.Marker.
func (m *marker) Mark(ctx context.Context, name string) (string, error) {
	res, err := m.c.exec(ctx, "SELECT pg_catalog.pg_create_restore_point("+literal(name)+")")
	if sqlstate.CodeOf(err) == sqlstate.InsufficientPrivilege {
		own := sqlstate.As(m.s.failed("mark", err))
		return "", own.WithHint("as a superuser, in the shard's database: GRANT EXECUTE ON FUNCTION pg_catalog.pg_create_restore_point(text) TO the role of the shard's URL")
	}
	if err != nil {
		return "", m.s.failed("mark", err)
	}
	return res.Rows[0][0].String, nil
}

// Close implements engine.Marker.
func (m *marker) Close() error { return m.c.Close() }

// Rename implements engine.Renamable.
func (s *shard) Rename(ctx context.Context, cluster string) error {
	c, err := s.dial(ctx, plainParams)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.exec(ctx, "UPDATE cleave_internal.shard SET cluster = "+literal(cluster)); err != nil {
		return s.failed("rename", err)
	}
	return nil
}
