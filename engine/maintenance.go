package engine

import "context"

type maintenanceKey struct{}

// ForMaintenance returns a context by which a shard is used although it is out of service: for
// ending what was begun before, and for bringing it back.
func ForMaintenance(ctx context.Context) context.Context {
	return context.WithValue(ctx, maintenanceKey{}, true)
}

// Maintains reports whether the context is one of ForMaintenance.
func Maintains(ctx context.Context) bool { return ctx.Value(maintenanceKey{}) != nil }
