package shardmap

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cleavedb/cleave/sqlstate"
)

// Seat is a directory's side of one member's lease, for [Keep]. Its methods are
// called one at a time, with contexts that end.
type Seat interface {
	// Take makes the process a member with a node number that no other has, if
	// possible prefer, and returns the version of the map as of then or later.
	Take(ctx context.Context, prefer uint16, acknowledged uint64) (node uint16, version uint64, err error)
	// Renew lets the lease run for its TTL again and stores the acknowledged
	// version. ErrLeaseLost: the directory has given it up.
	Renew(ctx context.Context, acknowledged uint64) error
	// Leave gives the lease up.
	Leave(ctx context.Context) error
}

// Parts of a TTL. With 5 s a lease is renewed every second, one attempt may
// take 2.5 s, and the holder stops 1 s before the directory can give it up: far
// more than clocks differ over 5 s.
const (
	renewsPerTTL  = 5
	triesPerTTL   = 2
	marginsPerTTL = 5
)

// Keep takes a seat and keeps it, in a goroutine, until leave is called or life
// ends: it renews, and joins anew when the lease was lost. Directories make
// Join of it. ctx bounds the first attempt, whose error is returned. When life
// ends without leave the lease runs out by itself, as after a crash.
func Keep(ctx, life context.Context, ttl time.Duration, seat Seat) (lease *Lease, leave func(context.Context) error, err error) {
	k := &keeper{ttl: ttl, seat: seat, wake: make(chan struct{}, 1)}
	k.lease = NewLease(func(uint64) {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	})
	from := time.Now()
	node, _, err := seat.Take(ctx, 0, 0)
	if err != nil {
		return nil, nil, err
	}
	// A process that joins loads the map afterwards, so that it needs no version.
	k.lease.SetNode(node)
	k.lease.Extend(from, k.grant())
	own, stop := context.WithCancel(life)
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.run(own)
	}()
	var once sync.Once
	return k.lease, func(ctx context.Context) (err error) {
		once.Do(func() {
			stop()
			<-done
			err = seat.Leave(ctx)
		})
		return err
	}, nil
}

type keeper struct {
	lease *Lease
	ttl   time.Duration
	seat  Seat
	wake  chan struct{}
	lost  bool
}

func (k *keeper) grant() time.Duration { return k.ttl - k.ttl/marginsPerTTL }

func (k *keeper) run(ctx context.Context) {
	defer k.lease.End()
	every := k.ttl / renewsPerTTL
	pause := every
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-timer.C:
		}
		err := k.once(ctx)
		k.lease.cause.Store(&err)
		if err == nil {
			pause = every
		} else if pause == every {
			pause = every / 8
		} else {
			pause = min(2*pause, every/2)
		}
		timer.Reset(pause)
	}
}

// once renews the lease, or joins anew.
func (k *keeper) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, k.ttl/triesPerTTL)
	defer cancel()
	from := time.Now()
	if !k.lost {
		err := k.seat.Renew(ctx, k.lease.Acknowledged())
		if err == nil {
			k.lease.Extend(from, k.grant())
		}
		if !errors.Is(err, ErrLeaseLost) {
			return err
		}
		k.lost = true
		k.lease.lose()
		from = time.Now()
	}
	node, version, err := k.seat.Take(ctx, k.lease.Node(), k.lease.Acknowledged())
	if err != nil {
		return err
	}
	k.lost = false
	k.lease.require(version)
	k.lease.SetNode(node)
	k.lease.Extend(from, k.grant())
	return nil
}

// LeaseTTL checks a time to live: 0 is the default.
func LeaseTTL(ttl time.Duration) (time.Duration, error) {
	switch {
	case ttl == 0:
		return DefaultLeaseTTL, nil
	case ttl < MinLeaseTTL:
		return 0, sqlstate.New(sqlstate.InvalidParameterValue, "a lease of %v is too short; %v is the least", ttl, MinLeaseTTL)
	}
	return ttl, nil
}

// Validate checks what a process says of itself.
func (m *Member) Validate() error {
	if m.ID == "" || m.Role == "" || len(m.ID)+len(m.Role)+len(m.Address)+len(m.Host)+len(m.Software) > 4<<10 {
		return sqlstate.New(sqlstate.InvalidParameterValue, "a member needs an id and a role, and at most 4 KiB of words about itself")
	}
	return nil
}

// FreeNode returns a node number that is not taken: prefer, else the lowest. It
// fails with 53300 if all are taken.
func FreeNode(prefer uint16, taken map[uint16]bool) (uint16, error) {
	if prefer < MaxNodes && !taken[prefer] {
		return prefer, nil
	}
	for n := range uint16(MaxNodes) {
		if !taken[n] {
			return n, nil
		}
	}
	return 0, sqlstate.New(sqlstate.TooManyConnections, "the cluster has %d members already, the most that it can have", MaxNodes).
		WithHint("stop routers or clients that are not needed; \"cleave router list\" shows them")
}
