package several

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
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
}

type looking struct {
	s        *stream
	answered func() bool
}

// around sends a stream's Bind with looks around it. Where all of a participant's transaction has one snapshot, one look is enough.
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
	pr.answers = append(pr.answers, looking{s, pr.Around(s.p, span, bind)})
}

// bindAll binds texts on a participant that are parts of one statement, and so have one snapshot: at READ COMMITTED, where each Bind
// takes its own, in one message, and nothing may be committed there meanwhile. Each request is run by send, when the answer is taken.
func (c *sender) bindAll(p *txn.Participant, all []request) (*stream, error) {
	if p.Busy != nil {
		return nil, p.Unread()
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
			p.Pipe.Bind(all[i].bound, c.prepareOn(p, all[i], &all[i]), bindBody(all[i]), false)
		}
	})
	s := &stream{c: c, p: p, step: "snapshot", began: time.Now(), reading: true}
	p.Busy = s
	if err := p.Pipe.Dispatch(executor.Sync); err != nil {
		return nil, s.broken(err)
	}
	return s, nil
}

// provable reports whether a statement is a read that is proved while it runs.
func (c *sender) provable(st *plan.Statement) bool {
	if !txn.Atomic(c.host.Settings()) || c.Change != nil || c.Proven != nil || !readsRows(st) {
		return false
	}
	level := strings.ToUpper(c.Isolation())
	return !strings.Contains(level, "REPEATABLE") && !strings.Contains(level, "SERIALIZABLE") &&
		!slices.ContainsFunc(c.host.Snapshot().Shards(), func(s shardmap.Shard) bool { return !s.Can().BoundSnapshots })
}

// readsRows reports whether a statement only gives rows that it reads. One of one shard may turn out to be over several.
func readsRows(st *plan.Statement) bool {
	if !st.ReadOnly || st.Explained != nil {
		return false
	}
	several := st.Kind == plan.Several && st.Plan != nil && (st.Plan.Op == plan.Scatter || st.Plan.Op == plan.Gather)
	return several || st.Kind == plan.OneShard
}

// proved begins a read, again and again until its snapshots fit each other. Errors: 40001 if they do not in time.
func proved(ctx context.Context, c *runner, e *execution, start func(context.Context, *execution) (job, error)) (job, error) {
	if c.proof != nil || !c.provable(e.st) {
		return start(ctx, e)
	}
	began := time.Now()
	for try := 0; ; try++ {
		proof, err := txn.NewProof(ctx, c.Transaction, try)
		if err != nil {
			return nil, err
		}
		c.proof = &proving{Proof: proof}
		j, err := start(ctx, e)
		c.proof = nil
		proof.End()
		if !errors.Is(err, errTorn) {
			return j, err
		}
		if err := proof.Undo(); err != nil {
			return nil, err
		}
		if err := context.Cause(c.Ctx); err != nil {
			return nil, err
		}
		if time.Since(began) > proofMax {
			return nil, txn.Unfit(len(proof.Shards()))
		}
	}
}

// fits waits for the looks of the read that begins. Errors: errTorn; those of its shards.
func (c *sender) fits() error {
	if c.proof == nil {
		return nil
	}
	for _, a := range c.proof.answers {
		for !a.answered() {
			if more, err := a.s.fill(); err != nil {
				return err
			} else if !more {
				break
			}
		}
	}
	if !c.proof.Fits() {
		return errTorn
	}
	return nil
}

func unprovable() error {
	return sqlstate.Refusal("CLV-1004", "an atomic read over several shards in a READ COMMITTED transaction block is not supported: each statement has snapshots of its own on shards where the transaction is open").
		WithHint("Run BEGIN ISOLATION LEVEL REPEATABLE READ, read outside of a transaction block, or SET cleave.read_consistency = 'shard'.")
}
