package txn

import (
	"context"
	"time"

	"github.com/cleavedb/cleave/executor/moment"
	"github.com/cleavedb/cleave/shardmap"
)

// Answers is what the answers to the process's clients have to pass: it is shut while a moment is taken.
func (t *Transactions) Answers() *moment.Gate { return &t.answers }

// Answerer answers other members. They count on this process while the lease is live: call it before there are clients.
func (t *Transactions) Answerer(member string, lease *shardmap.Lease, key *moment.Key) *moment.Answerer {
	t.answers.Under(lease)
	return &moment.Answerer{Gate: &t.answers, Member: member, Key: key, Quiet: t.gate.shut}
}

// Moment is Snapshots with snapshots that are one moment: they have what the process's clients saw, in its order.
// docs/design/moment.md has the proof.
//
// The snapshot of one shard is one by itself.
func (t *Transactions) Moment(ctx context.Context, parts []*Participant, begin string) error {
	if len(parts) == 1 {
		return t.Snapshots(ctx, parts, begin)
	}
	return t.snapshotsOf(ctx, parts, begin, t.hushed)
}

// hushed is the taking of snapshots that are all of one hush.
func (t *Transactions) hushed(ctx context.Context, try int, views []*view, begin string) (again bool, err error) {
	rollback(views)
	if try > 0 {
		sleep(ctx, min(time.Millisecond<<min(try, 6), 50*time.Millisecond))
	}
	whole, err := t.moments.Take(ctx, func() error { return t.takeViews(views, begin) })
	return !whole, err
}
