package schema

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/capability"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// part is one shard's side of the transaction: what needs nothing but the conversation with one shard is asked and checked here.
type part struct {
	shard string
	can   capability.Set
	conn  engine.Conn
	// lockTimeout is how long it waits for locks; waits tells others of the change's processes while what begins now lasts.
	lockTimeout time.Duration
	waits       func(ctx context.Context) (end func())
	release     func(broken bool) // nil for conversations of Options.Open
	broken      bool
	// prepared is true from the moment that PREPARE TRANSACTION was sent.
	prepared bool
	// adopted is true for a conversation of Options.Open before its first use here.
	adopted bool
	done    bool // nothing is open there any more
}

// run runs SQL on one part and notes a broken conversation.
func (p *part) run(ctx context.Context, sql string) (*engine.Result, error) {
	res, _, err := p.runNotices(ctx, sql)
	return res, err
}

func (p *part) runNotices(ctx context.Context, sql string) (*engine.Result, []*sqlstate.Error, error) {
	defer p.waits(ctx)()
	res, notices, err := run(ctx, p.conn, sql)
	if err != nil {
		if lost(err) {
			p.broken = true
		}
		if text, ok := planner.CastWord(sqlstate.As(err).Message); ok {
			err = planner.RefuseCastWord(text)
		}
		return res, notices, onShard(err, p.shard)
	}
	return res, notices, nil
}

// end gives the conversation back.
func (p *part) end() {
	if p.release == nil {
		return
	}
	p.release(p.broken || !p.done)
	p.release = nil
}

// broke notes that a part's conversation is over, if it is, and names the shard.
func (p *part) broke(err error) error {
	if lost(err) {
		p.broken = true
	}
	return onShard(err, p.shard)
}

func (p *part) describe(ctx context.Context, name plan.TableName) (*engine.Table, error) {
	desc, err := p.conn.DescribeTable(ctx, name.Schema, name.Name)
	if err != nil {
		return nil, p.broke(err)
	}
	return desc, nil
}

// json runs a query whose value is JSON in hex.
func (p *part) json(ctx context.Context, sql string, into any) error {
	res, err := p.run(ctx, sql)
	if err != nil {
		return err
	}
	if err := oneJSON(res, into); err != nil {
		return err.OnShard(p.shard)
	}
	return nil
}

func oneJSON(res *engine.Result, into any) *sqlstate.Error {
	if len(res.Rows) != 1 || len(res.Rows[0]) != 1 {
		return nil
	}
	text, err := hex.DecodeString(res.Rows[0][0].String)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.InternalError, "the catalogue of the shard is unreadable")
	}
	return nil
}

// waitsAfter is how long a statement of a change lasts before others are told which processes are the change's.
const waitsAfter = 500 * time.Millisecond

// waits tells others of the change's processes if what begins now lasts; the returned function ends that.
func (t *Tx) waits(ctx context.Context) (end func()) {
	if t.opts.Waits == nil || len(t.parts) < 2 {
		return func() {}
	}
	processes := map[string]uint32{}
	for _, p := range t.parts {
		if b, ok := p.conn.(engine.Backend); ok && p.can.Waits && b.PID() != 0 {
			processes[p.shard] = b.PID()
		}
	}
	ctx, stop := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Add(1)
	timer := time.AfterFunc(waitsAfter, func() {
		defer telling.Done()
		t.opts.Waits(ctx, processes)
	})
	return func() {
		stop()
		if timer.Stop() {
			return
		}
		telling.Wait() // what it has told is taken back
	}
}
