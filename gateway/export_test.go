package gateway

import "context"

// Lose borrows a connection for a session that does not know of it.
func (s *Server) Lose(ctx context.Context, pid uint32, shard string) error {
	c, err := s.ex.Acquire(ctx, shard, nil)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.HeldBy(&s.sessions[pid].shards.holder)
	return nil
}
