package coordinator

import (
	"context"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/workflow"
)

// copySession is the two shards of an effect, and what goes from the one to the other.
type copySession struct {
	set      engine.Set
	from, to engine.Mover
	// partly has the tables of the set of which only some parts are on the target; nil: none.
	partly []bool
}

// copySession returns the shards of an effect, if the tables are still those that were copied.
func (j *job) copySession(ctx context.Context, s *workflow.State, e workflow.Effect) (*copySession, error) {
	set, err := j.same(ctx, s, e.Source)
	if err != nil {
		return nil, err
	}
	from, to, err := j.movers(ctx, e)
	if err != nil {
		return nil, err
	}
	return &copySession{set: set.set, from: from, to: to}, nil
}

// movers returns the movers of an effect's shards.
func (j *job) movers(ctx context.Context, e workflow.Effect) (from, to engine.Mover, err error) {
	if from, err = j.t.mover(ctx, e.Source); err != nil {
		return nil, nil, err
	}
	to, err = j.t.mover(ctx, e.Target)
	return from, to, err
}

// apply opens the target for a stream's changes, and returns where they go on.
func (p *copySession) apply(ctx context.Context, stream string) (engine.Applier, engine.Position, error) {
	applier, err := p.to.Apply(ctx, stream, p.set)
	if err != nil {
		return nil, "", err
	}
	after, err := p.to.Applied(ctx, stream) // after Apply, which waits for the end of one before it
	if err != nil {
		_ = applier.Close() // the first error is the one to report
		return nil, "", err
	}
	return applier, after, nil
}
