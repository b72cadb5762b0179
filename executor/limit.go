package executor

import (
	"time"

	"github.com/cleavedb/cleave/internal/lane"
)

// Limits bound what the executor holds. The zero value of a field is its default.
type Limits struct {
	// PoolMax is the greatest number of connections to one shard; default 20.
	PoolMax int
	// PoolWait is how long a statement waits for a connection; default 5 s.
	PoolWait time.Duration
	// WaitersMax is how many statements may wait per shard; default 10,000.
	WaitersMax int
	// IdleMax is how long a connection may idle before it is closed; default 5 min.
	IdleMax time.Duration
	// LifetimeMax is how old a connection may grow; default 1 h.
	LifetimeMax time.Duration
	// LearnEvery is how old the baseline may be when the default shard gets a new connection.
	// Servers behind one URL that differ replace it no more often than that. Default 1 min.
	LearnEvery time.Duration
	// ConnectTimeout bounds one attempt to connect; default 5 s.
	ConnectTimeout time.Duration
	// BackoffMin and BackoffMax bound the pause between attempts to reach a
	// shard that is down; defaults 100 ms and 5 s.
	BackoffMin, BackoffMax time.Duration
	// AnswerWait bounds what any shard could answer at once (a description, a
	// SET): after it another shard is asked; default 2 s.
	AnswerWait time.Duration
	// PreparedMax is the number of prepared statements kept per connection; default 256.
	PreparedMax int
	// PlanEntries and PlanBytes bound the plan cache; defaults 8192 and 64 MiB.
	PlanEntries, PlanBytes int
	// MessageMax bounds one message of a shard, bytes; default 256 MiB.
	MessageMax int
	// LoadWindow is the half-life of load figures; default load.DefaultWindow.
	LoadWindow time.Duration
	// RefreshWait is how long a router waits for a newer map after a guard
	// refused its write; default 2 s.
	RefreshWait time.Duration
	// Lanes is the number of loops that watch sockets (package lane); default
	// [lane.Default], less than 0 is none.
	Lanes int
	// ProbeEvery is how often each server of a shard with replicas is asked who
	// it is; default 1 s.
	ProbeEvery time.Duration
	// FailoverWait is how long after the loss of a primary statements that need it
	// wait for the next one; default 10 s, negative: not at all.
	FailoverWait time.Duration
	// HoldTimeout is how long a statement waits for a part of a keyspace that is
	// held (see [Hold]); default 10 s.
	HoldTimeout time.Duration
}

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	dur := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.PoolMax, 20)
	dur(&l.PoolWait, 5*time.Second)
	def(&l.WaitersMax, 10_000)
	dur(&l.IdleMax, 5*time.Minute)
	dur(&l.LifetimeMax, time.Hour)
	dur(&l.LearnEvery, time.Minute)
	dur(&l.ConnectTimeout, 5*time.Second)
	dur(&l.BackoffMin, 100*time.Millisecond)
	dur(&l.BackoffMax, 5*time.Second)
	dur(&l.AnswerWait, 2*time.Second)
	def(&l.PreparedMax, 256)
	def(&l.PlanEntries, 8192)
	def(&l.PlanBytes, 64<<20)
	def(&l.MessageMax, 256<<20)
	dur(&l.RefreshWait, 2*time.Second)
	if l.Lanes == 0 {
		l.Lanes = lane.Default()
	}
	dur(&l.ProbeEvery, time.Second)
	if l.FailoverWait == 0 {
		l.FailoverWait = 10 * time.Second
	}
	dur(&l.HoldTimeout, 10*time.Second)
	return l
}
