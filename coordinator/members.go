package coordinator

import (
	"context"
	"fmt"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

const (
	// knownMax bounds the wait for members while nothing is held. sayAfter is when the job notes
	// which members it waits for.
	knownMax = time.Minute
	sayAfter = 2 * time.Second
	// askedSoon is how long members may take to answer before a hold, without the target falling behind.
	askedSoon = 200 * time.Millisecond
	// askedTimes is how often they are asked: members that never answer so soon must not keep a move from ending.
	askedTimes = 3
	// A member is silent whose lease has less left than this share of the greatest that any has: each is renewed
	// five times while it lasts.
	silentShare = 0.65
)

// behind are the members that have not acknowledged a version of the map.
type behind struct {
	first   string // one of them, for people; "" if there is none
	silent  bool   // one of them has not renewed its lease for a while: it was killed, stopped or cut off
	longest time.Duration
}

// behindOf looks who of the members has not acknowledged a version. One that only coordinates routes nothing.
func behindOf(members []shardmap.MemberState, version uint64) (b behind) {
	for _, m := range members {
		b.longest = max(b.longest, m.Left)
	}
	for _, m := range members {
		if m.Role == "coordinator" || m.Acknowledged >= version {
			continue
		}
		b.first = m.Role + " " + m.Address + " on " + m.Host
		b.silent = b.silent || float64(m.Left) < silentShare*float64(b.longest)
	}
	return b
}

// askMembers is workflow.AskMembers: a version of the map without a change, which no statement on one shard keeps a
// member from acknowledging. One that is silent is waited for here, where nobody waits for it, and not by those whose
// statements are held: until its lease has run out. One that is alive and busy is no reason to wait any longer.
func (j *job) askMembers(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	defer j.prog.say("")
	for n := 1; ; n++ {
		snap, err := j.t.edit(ctx, s, "move_ask", "every member is asked before "+s.Spec.Part.Text()+" is held", func(*shardmap.Snapshot, *shardmap.State) (bool, error) { return false, nil })
		if err != nil {
			return err
		}
		began := time.Now()
		alive, err := j.answered(ctx, snap.Version())
		if err != nil {
			return err
		}
		if time.Since(began) < askedSoon {
			return nil
		}
		// The target is behind by now.
		if err := j.follow(ctx, s, e); err != nil || alive || n == askedTimes {
			return err
		}
	}
}

// answered waits until every member has acknowledged a version, is none any more, or has renewed its lease meanwhile:
// alive says that one has done only that.
func (j *job) answered(ctx context.Context, version uint64) (alive bool, err error) {
	began := time.Now()
	bound, cancel := context.WithTimeout(ctx, knownMax)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(wait*3/2, 50*time.Millisecond) {
		members, err := j.t.c.opts.Directory.Members(bound)
		if err == nil {
			b := behindOf(members, version)
			// Directories cut fractions of a second off: what has at least this much left after that long has renewed.
			renewed := !b.silent && time.Since(began) > b.longest*7/10
			if b.first == "" || renewed {
				return renewed && b.first != "", nil
			}
			if time.Since(began) > sayAfter {
				j.prog.say("waits for " + b.first + ", which does not answer, before statements are held")
			}
			err = fmt.Errorf("%s has not acknowledged version %d of the map", b.first, version)
		}
		if bound.Err() != nil {
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			return false, classed(workflow.Again, err)
		}
		pause(bound, wait)
	}
}

// awaitMembers is workflow.AwaitMembers.
func (j *job) awaitMembers(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	bound, cancel := j.bound(ctx, e)
	defer cancel()
	version := j.members
	if e.ForMS <= 0 { // nobody is held up: it is tried again, and said
		cancel()
		bound, cancel = context.WithTimeout(ctx, knownMax)
		defer cancel()
		defer j.prog.say("")
	}
	began := time.Now()
	wait := time.Millisecond
	for {
		members, err := j.t.c.opts.Directory.Members(bound)
		if err == nil {
			b := behindOf(members, version)
			if b.first == "" {
				return nil
			}
			if e.ForMS <= 0 && time.Since(began) > sayAfter {
				j.prog.say("waits for " + b.first + ", which has a statement under way by an older map")
			}
			if e.ForMS > 0 && b.silent {
				// It answered a moment ago, before the hold. Statements do not wait for its lease; the next try does, before it holds any.
				return classed(workflow.Again, sqlstate.New(sqlstate.LockNotAvailable, "%s does not answer since statements are held", b.first))
			}
			err = fmt.Errorf("%s has not acknowledged version %d of the map: %w", b.first, version, context.DeadlineExceeded)
		}
		if bound.Err() != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if e.ForMS <= 0 {
				return classed(workflow.Again, sqlstate.Wrap(err, sqlstate.LockNotAvailable, "a statement that began before the move has not ended: %v", err).
					WithHint("it is waited for; SELECT * FROM cleave.sessions there shows it"))
			}
			return classed(workflow.Late, sqlstate.Wrap(err, sqlstate.LockNotAvailable, "transactions in the part did not end in time: %v", err))
		}
		pause(bound, wait)
		wait = min(wait*3/2, 20*time.Millisecond)
		if e.ForMS <= 0 {
			wait = min(wait*2, 200*time.Millisecond)
		}
	}
}
