package several

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// A read over several shards is proved while it runs: see txn.Proof. Nothing of it is passed on before its snapshots are
// known to fit each other; those that do not are given up, and the statement begins anew.

// errTorn says that the snapshots of a read do not fit each other.
var errTorn = errors.New("several: the snapshots of a read do not fit each other")

// proofMax bounds the attempts of a read.
const proofMax = 10 * time.Second

// proving is the proof of the read that begins, and the answers that it is read from.
type proving struct {
	*txn.Proof
	answers []looking
	// careful: the snapshots did not fit at first. Nothing is executed before they do, at the price of a round trip, so
	// that what does not fit is not computed for nothing.
	careful bool
	waits   []*stream // until the snapshots fit
	fit     bool
	streams []*stream                   // of all that was sent for it
	portals map[string]*txn.Participant // that bindAll bound and that were not executed
}

// sent notes a stream of the attempt, or of no attempt.
func (pr *proving) sent(s *stream) {
	if pr != nil {
		pr.streams = append(pr.streams, s)
	}
}

// closed notes that a portal is closed, or that it will be.
func (pr *proving) closed(portal string) {
	if pr != nil {
		delete(pr.portals, portal)
	}
}

// holds reports whether a stream that is bound has to wait for the proof, and notes it then.
func (pr *proving) holds(s *stream) bool {
	if pr == nil || !pr.careful || pr.fit {
		return false
	}
	pr.waits, s.bound = append(pr.waits, s), true
	return true
}

type looking struct {
	s        *stream
	answered func() bool
}

// around adds a stream's Bind with looks around it. Where all of a participant's transaction has one snapshot, one look is enough.
func (pr *proving) around(s *stream, lasting bool, bind func()) {
	for i, a := range pr.answers {
		if a.s.p != s.p {
			continue
		}
		if lasting {
			bind()
			return
		}
		pr.Forget(s.p.Shard) // it is asked again, in another format
		pr.answers = append(pr.answers[:i], pr.answers[i+1:]...)
		break
	}
	span := txn.OneBind
	if lasting {
		span = txn.Lasting
	}
	pr.fit = false
	pr.answers = append(pr.answers, looking{s, pr.Around(s.p, span, bind)})
}

// bindAll binds texts on a participant that are parts of one statement, and so have one snapshot: at READ COMMITTED, where each Bind
// takes its own, in one message, and nothing may be committed there meanwhile. Each request is run by send, when the answer is taken.
func (c *sender) bindAll(p *txn.Participant, all []request) (*stream, error) {
	if p.Busy != nil {
		return nil, p.Unread()
	}
	if !c.proof.Knows(p) {
		return nil, errTorn
	}
	for i := range all {
		if err := all[i].fit(); err != nil {
			return nil, err
		}
		if err := c.number(p, &all[i]); err != nil {
			return nil, err
		}
	}
	if err := c.within(p); err != nil {
		return nil, err
	}
	c.proof.Around(p, txn.SomeBinds, func() {
		for i := range all {
			c.portalNo++
			all[i].bound = "cleave_" + strconv.Itoa(c.portalNo)
			c.proof.portals[all[i].bound] = p
			p.Pipe.Bind(all[i].bound, c.prepareOn(p, all[i], &all[i]), bindBody(all[i]), false)
		}
	})
	s := &stream{c: c, p: p, step: "snapshot", began: time.Now(), reading: true}
	p.Busy = s
	return s, s.dispatch(executor.Sync)
}

// provable reports whether a statement is a read that is proved while it runs.
func (c *sender) provable(st *plan.Statement) bool {
	return txn.Atomic(c.host.Settings()) && c.Proven == nil && !txn.ReadsReplicas(c.Transaction) && readsRows(st, c.copiesAsQuery(st)) && !c.lasting()
}

// copiesAsQuery reports whether COPY of a table is run as one of a query. COPY takes its snapshot when it is executed, and its rows cannot
// be held until that is proved. Where nothing has begun a snapshot is taken before.
func (c *sender) copiesAsQuery(st *plan.Statement) bool {
	return st.Plan != nil && st.Plan.Op == plan.CopyOut && st.Plan.Copy.AsQuery != "" &&
		(c.Block || slices.ContainsFunc(c.Joined, func(p *txn.Participant) bool { return p.Begun }))
}

// readsRows reports whether a statement only gives rows that it reads. One of one shard may turn out to be over several.
func readsRows(st *plan.Statement, asQuery bool) bool {
	if !st.ReadOnly || st.Explained != nil {
		return false
	}
	if st.Kind != plan.Several || st.Plan == nil {
		return st.Kind == plan.OneShard
	}
	switch p := st.Plan; p.Op {
	case plan.Scatter, plan.Gather:
		return true
	case plan.CopyOut:
		return p.Copy.Source != nil || asQuery
	}
	return false
}

// proved begins a read, again and again until its snapshots fit each other. Errors: 40001 if they do not in time; CLV-0207
// if they cannot and the session insists, or why a shard has no connection for a proof.
func proved(ctx context.Context, c *runner, e *execution, start func(context.Context, *execution) (job, error)) (job, error) {
	if c.proof != nil || !c.provable(e.st) {
		return start(ctx, e)
	}
	a := txn.Attempt{Shards: func() ([]string, error) { return c.reads(e) }}
	var began time.Time
	for {
		j, pr, err := attempt(ctx, c, e, a, start)
		switch {
		case !errors.Is(err, errTorn):
			return j, err
		case pr.Stuck() != "":
			switch renewed, err := renews(c, pr.Stuck()); {
			case err != nil:
				return nil, err
			case !renewed && txn.Insists(c.host.Settings()):
				return nil, hasSnapshot(pr.Stuck())
			case !renewed:
				return start(ctx, e)
			}
		}
		switch {
		case a.Try == 0: // the first one may have taken long
			began = time.Now()
		case time.Since(began) > proofMax:
			return nil, txn.Unfit(len(pr.Shards()))
		}
		a.Try, a.Stale, a.Also = a.Try+1, pr.Stale(), append(a.Also, pr.Lacks()...)
		pause := time.NewTimer(min(time.Millisecond<<min(a.Try, 5), 20*time.Millisecond))
		select {
		case <-pause.C:
		case <-c.Ctx.Done():
			pause.Stop()
			return nil, context.Cause(c.Ctx)
		}
	}
}

// renews lets a participant have a new snapshot, if nothing of an earlier statement needs the one that it has.
func renews(c *runner, shard string) (done bool, err error) {
	for _, p := range c.portals.All() {
		if p.job != nil && !p.done {
			return false, nil
		}
	}
	return txn.Renew(c.Transaction, shard)
}

// attempt is one attempt of a read; errTorn says that there may be another one, and that nothing is left of it. What cannot be proved
// is not, unless the session insists.
func attempt(ctx context.Context, c *runner, e *execution, a txn.Attempt, start func(context.Context, *execution) (job, error)) (job, *txn.Proof, error) {
	proof, err := txn.NewProof(ctx, c.Transaction, a)
	var un *txn.Unprovable
	switch {
	case errors.As(err, &un) && !txn.Insists(c.host.Settings()):
		j, err := start(ctx, e)
		return j, nil, err
	case err != nil:
		return nil, nil, err
	}
	c.proof = &proving{Proof: proof, careful: a.Try > 0, portals: map[string]*txn.Participant{}}
	defer func() {
		proof.End()
		c.proof = nil
	}()
	told, steps := c.aside.mark(), c.Steps()
	j, err := start(ctx, e)
	if !errors.Is(err, errTorn) {
		return j, proof, err
	}
	if err := c.givesUp(); err != nil {
		return nil, proof, err
	}
	c.aside.back(told)
	c.Cut(steps)
	if err := context.Cause(c.Ctx); err != nil {
		return nil, proof, err
	}
	return nil, proof, errTorn
}

// givesUp leaves nothing of an attempt. Errors: one of a shard that ended a transaction that goes on.
func (c *sender) givesUp() error {
	if err := c.quiet(); err != nil {
		return err
	}
	if err := c.proof.Undo(); err != nil {
		return err
	}
	for _, s := range c.proof.streams {
		if s.err != nil && s.p.Begun {
			return s.err
		}
	}
	for portal, p := range c.proof.portals {
		if p.Conn.Broken() || !p.Begun {
			continue
		}
		p.Pipe.Close(portal, false)
		if o, err := p.Pipe.Run(executor.Sync, &stream{c: c, p: p}); err != nil {
			return c.Failure(p, err)
		} else if o.Err != nil {
			return c.Failure(p, o.Err)
		}
	}
	return nil
}

// fits waits for the looks of the read that begins, and lets what waits for them be executed. Errors: errTorn; those of its shards.
func (c *sender) fits() error {
	pr := c.proof
	if pr == nil || pr.fit {
		return nil
	}
	for _, a := range pr.answers {
		for !a.answered() {
			if more, err := a.s.look(); err != nil {
				return err
			} else if !more {
				break
			}
		}
	}
	pr.fit = pr.Fits()
	pr.End()
	if !pr.fit {
		return errTorn
	}
	for _, s := range pr.waits {
		if err := s.execute(); err != nil {
			return err
		}
	}
	pr.waits = nil
	return nil
}

// look waits for the answer to a look. more is false if it cannot come any more.
func (s *stream) look() (more bool, err error) {
	if !s.bound {
		return s.fill()
	}
	if !s.reading {
		return false, s.err
	}
	o, done, err := s.p.Pipe.Step(s)
	switch {
	case err != nil:
		return false, s.broken(err)
	case o.Err != nil && done:
		s.err = s.c.Failure(s.p, o.Err)
		return false, s.unbind()
	}
	s.reading = !done
	return true, nil
}

// execute runs what was bound.
func (s *stream) execute() error {
	if !s.bound {
		return nil
	}
	s.bound, s.reading, s.began = false, true, time.Now()
	s.runs()
	return s.dispatch(executor.Sync)
}

// runs adds what describes and executes the stream's portal.
func (s *stream) runs() {
	s.p.Pipe.DescribePortal(s.portal, false, s, &s.values)
	s.p.Pipe.Execute(s.portal, s.portion, &s.values)
	if s.closes {
		s.p.Pipe.Close(s.portal, false)
		s.c.proof.closed(s.portal)
	}
}

// unbind gives up what was bound and not executed. The error is the one with which it failed.
func (s *stream) unbind() error {
	if !s.bound {
		return s.err
	}
	s.bound, s.reading, s.p.Busy = false, false, nil
	if s.portal != "" && s.err == nil {
		s.p.Pipe.Close(s.portal, false)
		s.c.proof.closed(s.portal)
	}
	if o, err := s.p.Pipe.Run(executor.Sync, s); err != nil {
		return s.broken(err)
	} else if o.Err != nil && s.err == nil {
		s.err = s.c.Failure(s.p, o.Err)
	}
	return s.err
}

// hasSnapshot refuses a read that could only be proved with another snapshot of a shard than its transaction has.
func hasSnapshot(shard string) error {
	return sqlstate.Refusal("CLV-0207", "an atomic read over several shards after another statement of the same transaction is not supported: shard %s has its snapshot already", shard).
		WithHint("Run SET cleave.read_consistency = 'atomic' before the transaction, and Sync between statements that are not in a transaction block.").OnShard(shard)
}
