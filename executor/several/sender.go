package several

import (
	"context"
	"sync"

	"github.com/cleavedb/cleave/executor/several/explain"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
)

// sender runs texts on the participants of a transaction, and reads what they answer. It knows nothing of the client's
// messages, portals and cursors.
type sender struct {
	*txn.Transaction
	explain.Trace
	aside  asides
	shared *Shared
	host   Host
	setter string // the shard that ran the last statement with set_config()

	// Of the statement that is under way:

	bounds   limits.Bounds
	units    [4]planner.Units // of shardsOf
	portalNo int              // names of portals on shards
}

// shardsOf returns the shards of a target that is about to be read or changed, and counts it for the load
// of the ranges that it touches.
func (c *sender) shardsOf(t *planner.Target, snap *shardmap.Snapshot, args *planner.Args) ([]string, error) {
	units := c.units[:0]
	shards, err := t.Touch(snap, args, &units)
	if err == nil {
		c.Ex.CountSeveral(snap, units, len(shards))
	}
	return shards, err
}

// partsOf are the participants of several shards, within the session's bound of shards.
func (c *sender) partsOf(ctx context.Context, shards []string, write bool) ([]*txn.Participant, error) {
	if err := c.bounds.Touches(shards...); err != nil {
		return nil, err
	}
	return c.Participants(ctx, shards, write)
}

// asides are what shards say beside their answers, until the client is told.
type asides struct {
	mu     sync.Mutex
	frames []byte
	cut    map[string]bool // notices of names that are too long, since the last ReadyForQuery
	// setting: a statement that changes settings is run.
	setting bool
}

// nameTooLong is the code with which PostgreSQL says that it cuts a name short.
const nameTooLong = "42622"

// notice passes a shard's notice on.
func (a *asides) notice(frame []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(frame) > wire.Header && frame[0] == wire.NoticeResponse && wire.ParseReport(frame[wire.Header:]).Code == nameTooLong {
		if a.cut[string(frame)] {
			return // the notice is about the text, which several shards read
		}
		if a.cut == nil {
			a.cut = map[string]bool{}
		}
		a.cut[string(frame)] = true
	}
	if len(a.frames)+len(frame) <= noticesMax {
		a.frames = append(a.frames, frame...)
	}
}

// noticesMax bounds the notices that wait to be passed on, bytes.
const noticesMax = 1 << 20

// take appends what the client is to be told.
func (a *asides) take(out []byte) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	out = append(out, a.frames...)
	a.frames = a.frames[:0]
	return out
}

// parameter passes a changed parameter on, if the statement was one that changes
// the session's settings.
func (a *asides) parameter(name, value string) {
	if !a.setting {
		return
	}
	a.notice(wire.AppendParameterStatus(nil, name, value))
}
