package several

import (
	"context"
	"sync"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/timeinput"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// Shared is what all conversations over several shards of one router have in
// common. Its methods are safe for concurrent use.
type Shared struct {
	ex           *executor.Executor
	transactions *txn.Transactions
	defaults     limits.Defaults
	// Inputs are the types of literals that shards were asked for.
	Inputs timeinput.Answers
	// gathers has one element for each gather with temporary tables.
	gathers chan struct{}

	mu sync.Mutex
	// described are the descriptions of texts; the executor shares its Prepareds,
	// so that they are keys.
	described map[*executor.Prepared]*description
	// sortings are how the rows of scattered plans can be merged; collations, which
	// shards' databases sort texts by their bytes.
	sortings   map[*plan.Plan]*sorting
	times      map[*plan.Statement]*timed
	collations map[string]bool
}

// timedMax bounds the statements of which it is kept how they depend on the time,
// timedTextMax the length of each.
const (
	timedMax     = 512
	timedTextMax = 16 << 10
)

// describedMax bounds the descriptions that are kept; when they are so many, all
// are forgotten.
const describedMax = 4096

// NewShared makes what the conversations of a router share. Without transactions
// it makes its own, of which nobody recovers what is left.
func NewShared(ex *executor.Executor, transactions *txn.Transactions, defaults limits.Defaults) *Shared {
	if transactions == nil {
		transactions = txn.NewTransactions(txn.TransactionsOptions{Executor: ex})
	}
	return &Shared{ex: ex, transactions: transactions, defaults: defaults, gathers: make(chan struct{}, gathersMax), described: map[*executor.Prepared]*description{}}
}

// Transactions are what ends the transactions of these conversations.
func (s *Shared) Transactions() *txn.Transactions { return s.transactions }

// Transaction makes one that nothing has begun yet.
func (s *Shared) Transaction(host txn.Host) *txn.Transaction {
	return txn.New(s.ex, s.transactions, host, castWord)
}

// Defaults are what holds where a session sets nothing.
func (s *Shared) Defaults() *limits.Defaults { return &s.defaults }

// timed is how a statement of one shard depends on the transaction's time: as
// Planner.AtTime says it.
type timed struct {
	text  string
	clock bool                // the text has the time as a parameter
	asks  *plan.InputQuestion // types of literals are to be asked for first
	err   error
}

// timed looks how a statement of one shard depends on the time, as far as the types of its literals need not be asked for.
func (s *Shared) timed(c *sender, st *plan.Statement) *timed {
	s.mu.Lock()
	t := s.times[st]
	s.mu.Unlock()
	if t != nil {
		return t
	}
	t = new(timed)
	t.text, t.clock, t.asks, t.err = c.Ex.AtTime(st, plan.InputTypes{}, c.host.Settings(), c.host.Snapshot())
	if len(st.Text) > timedTextMax {
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times == nil || len(s.times) >= timedMax {
		s.times = map[*plan.Statement]*timed{}
	}
	s.times[st] = t
	return t
}

// description is what a shard says of a statement.
type description struct {
	params []uint32 // types of the parameters
	// columns is the body of the RowDescription, with text formats; nil if the
	// statement returns no rows.
	columns []byte
	fields  []wire.Field
}

func (s *Shared) get(p *executor.Prepared) *description {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.described[p]
}

func (s *Shared) put(p *executor.Prepared, d *description) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.described) >= describedMax {
		clear(s.described)
	}
	s.described[p] = d
}

// Bounds of gathers.
const (
	// smallValues and smallBytes are how much of a gather's relations travels as
	// parameters of the final text, without temporary tables.
	smallValues = 1000
	smallBytes  = 32 << 10
	// ownerValues and ownerBytes are those in the transaction of a schema change: all of them. A text has
	// no more than 65,535 parameters.
	ownerValues = 50_000
	ownerBytes  = 16 << 20

	// gathersMax is how many gathers of a router may have temporary tables at a
	// time; others wait for gatherWait.
	gathersMax = 32
	gatherWait = 10 * time.Second
	// scratchWait is how long a gather waits for a conversation of the pool, before
	// it opens one of its own.
	scratchWait = 100 * time.Millisecond

	// indexRows is from how many rows on indexes and statistics pay.
	indexRows = 1000
)

// enterGather waits for a place among those that have temporary tables.
func (s *Shared) enterGather(ctx context.Context) error {
	select {
	case s.gathers <- struct{}{}:
		return nil
	default:
	}
	wait := time.NewTimer(gatherWait)
	defer wait.Stop()
	select {
	case s.gathers <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-wait.C:
		e := sqlstate.New(sqlstate.TooManyConnections, "%d statements bring rows of several shards together already, and none ended within %v", gathersMax, gatherWait)
		e.Retry = sqlstate.RetrySafe
		return e.WithHint("nothing was done: run it again")
	}
}

func (s *Shared) leaveGather() { <-s.gathers }
