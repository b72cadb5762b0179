package engine

import "context"

// Viewer is implemented by Movers that can tell at which place in the stream of
// changes they counted: so two copies can be compared while statements go on.
type Viewer interface {
	// View takes a snapshot of a set's rows. It may close the tables to writers for a
	// moment, and fails with 55P03 if that was not to be had soon: try again.
	View(ctx context.Context, set Set) (View, error)
}

// View is a snapshot of a set's rows.
type View interface {
	// Position lies after every change of the set that the snapshot has, and before
	// every one that it has not.
	Position() Position
	// Sums is [Mover.Sums] of the snapshot.
	Sums(ctx context.Context) ([]Sum, error)
	// Close ends the snapshot.
	Close() error
}
