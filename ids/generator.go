package ids

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// The parts of an id, from its highest bit: a zero, 41 bits of milliseconds since
// Epoch, 10 bits of node number, 12 bits of counter. So a node gives at most
// 4,096 ids in a millisecond, and the last one is of September 2094.
const (
	nodeBits    = 10
	counterBits = 12
	timeBits    = 41

	nodeMax    = 1<<nodeBits - 1
	counterMax = 1<<counterBits - 1
	timeMax    = 1<<timeBits - 1

	// Epoch is the moment that ids count from, in milliseconds since 1970:
	// 2025-01-01 00:00:00 UTC. The directory has it in a record, see checkLayout.
	Epoch int64 = 1_735_689_600_000
)

const (
	// window is how far ahead a node reserves time: what the next holder of its
	// number has to wait at most after a process died.
	window = 2 * time.Second
	// waitMax bounds the wait for the clock.
	waitMax = 5 * time.Second
	// reserveMax bounds one reservation.
	reserveMax = 5 * time.Second
	// retryPause is how long a failed reservation ahead of time is not repeated.
	retryPause = 200 * time.Millisecond
	// rounds bounds how often a compare-and-set is tried again.
	rounds = 64
)

// GeneratorOptions are what a Generator needs.
type GeneratorOptions struct {
	// Records is where time is reserved; nil: Next refuses with 0A000.
	Records shardmap.Records
	// Node returns the process's node number, 0 to 1023. Two processes with the
	// same number get different ids all the same, only more slowly.
	Node func() uint16
	// Now is the clock, Sleep waits on it; nil: the machine's.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
}

// Generator gives time-ordered ids. Each is greater than those that the same
// Generator gave before; between Generators they are ordered by the machines'
// clocks. Methods are safe for concurrent use.
type Generator struct {
	o  GeneratorOptions
	mu lock

	// Under mu. The process may give the ids of node with milliseconds in
	// [from, until): revision is that of the record which says so, 0 if none.
	layout      bool
	node        uint16
	revision    uint64
	from, until int64
	last        int64 // the millisecond of the last id
	counter     int64 // of the last id
	pause       time.Time
}

// NewGenerator makes a Generator; it asks the directory for nothing yet.
func NewGenerator(o GeneratorOptions) *Generator {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	return &Generator{o: o, mu: newLock(), last: -1}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// lock is a mutex whose wait ends with a context.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	default:
	}
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) unlock() { <-l }

// nodeRecord is the record of a node number: ids with milliseconds below Until
// may have been given.
type nodeRecord struct {
	Until int64 `json:"until"` // milliseconds since Epoch
}

func nodeKey(node uint16) string { return "ids/node/" + strconv.Itoa(int(node)) }

// Next appends n ids to dst, in ascending order. It waits, for at most five
// seconds, where the clock is behind what was given already or a millisecond's ids are used up.
//
// Errors: 55000 if the clock is behind for longer, 57P03 if the directory cannot
// be reached, 0A000 without Records, ctx's own.
func (g *Generator) Next(ctx context.Context, dst []int64, n int) ([]int64, error) {
	if g.o.Records == nil {
		return dst, noRecords("cleave.next_id()")
	}
	if err := g.mu.lock(ctx); err != nil {
		return dst, err
	}
	defer g.mu.unlock()
	for range n {
		id, err := g.next(ctx)
		if err != nil {
			return dst, err
		}
		dst = append(dst, id)
	}
	return dst, nil
}

func (g *Generator) next(ctx context.Context) (int64, error) {
	waited := time.Duration(0)
	for {
		now := g.o.Now()
		ms := now.UnixMilli() - Epoch
		if ms < 0 || ms > timeMax {
			return 0, sqlstate.New(sqlstate.ObjectNotInState, "the clock of this machine says %s: ids have room for 2025 to 2094", now.UTC().Format(time.RFC3339)).
				WithHint("set the clock: timedatectl status")
		}
		if node := g.o.Node() & nodeMax; g.revision == 0 || node != g.node {
			if err := g.reserve(ctx, node, ms); err != nil {
				return 0, err
			}
			continue
		}
		if ms >= g.until || ms >= g.until-window.Milliseconds()/2 && now.After(g.pause) {
			// The first half of the window is gone: reserve more while there is time.
			limit := reserveMax
			if ms < g.until {
				// It must not hold up others for long if the directory hangs.
				limit = time.Duration(g.until-ms) * time.Millisecond / 4
			}
			bound, stop := context.WithTimeout(ctx, limit)
			err := g.reserve(bound, g.node, ms)
			stop()
			if err == nil {
				continue // perhaps another holder came in between
			}
			if ms >= g.until || ctx.Err() != nil {
				return 0, err
			}
			g.pause = now.Add(retryPause)
		}
		switch {
		case ms < g.from: // reserved by another holder, or by this process for another number
		case ms > g.last:
			g.last, g.counter = ms, 0
			return g.id(), nil
		case ms == g.last && g.counter < counterMax:
			g.counter++
			return g.id(), nil
		}
		// The clock is behind, or the millisecond is full.
		wait := time.Duration(max(g.last+1, g.from)-ms) * time.Millisecond
		if wait > waitMax-waited {
			return 0, sqlstate.New(sqlstate.ObjectNotInState, "the clock of this machine is %s behind the ids that were given for node %d", wait.Round(time.Millisecond), g.node).
				WithDetail("Ids of that time would repeat. It is %s here; the last ids are of %s.", now.UTC().Format(time.RFC3339Nano),
					time.UnixMilli(Epoch+max(g.last, g.from-1)).UTC().Format(time.RFC3339Nano)).
				WithHint("set the clock right (timedatectl status), or wait: ids are given again when the clock has caught up")
		}
		// Once more at least each second: the clock may be set right meanwhile.
		step := min(wait, time.Second)
		if err := g.o.Sleep(ctx, step); err != nil {
			return 0, err
		}
		waited += step
	}
}

func (g *Generator) id() int64 {
	return g.last<<(nodeBits+counterBits) | int64(g.node)<<counterBits | g.counter
}

// Parts takes an id apart.
func Parts(id int64) (at time.Time, node uint16, counter int) {
	return time.UnixMilli(Epoch + id>>(nodeBits+counterBits)).UTC(), uint16(id >> counterBits & nodeMax), int(id & counterMax)
}

// reserve extends the window of a node number, or takes one that begins after
// whatever was reserved before.
func (g *Generator) reserve(ctx context.Context, node uint16, ms int64) error {
	ctx, stop := context.WithTimeout(ctx, reserveMax)
	defer stop()
	if err := g.checkLayout(ctx); err != nil {
		return err
	}
	key := nodeKey(node)
	for range rounds {
		var was nodeRecord
		rec, err := g.o.Records.Record(ctx, key)
		switch {
		case errors.Is(err, shardmap.ErrNotFound):
			rec.Revision = 0
		case err != nil:
			return unreachable(err)
		default:
			if err := decode(rec, &was); err != nil {
				return err
			}
		}
		mine := g.revision != 0 && rec.Revision == g.revision && node == g.node
		from := g.from
		if !mine {
			// Also not the rest of this millisecond: ids of this process ascend.
			from = max(was.Until, ms, g.last+1)
		}
		until := max(from, ms, was.Until) + window.Milliseconds()
		b, err := json.Marshal(nodeRecord{Until: until})
		if err != nil {
			return sqlstate.Wrap(err, sqlstate.InternalError, "the record %s cannot be written", key)
		}
		revision, err := g.o.Records.PutRecord(ctx, key, b, rec.Revision)
		switch {
		case errors.Is(err, shardmap.ErrConflict):
			continue
		case err != nil:
			// Perhaps it was written: then the revision is another one, and the
			// next reservation begins after it.
			return unreachable(err)
		}
		g.node, g.revision, g.from, g.until = node, revision, from, until
		return nil
	}
	return busy(key)
}

// layoutRecord says how ids are made, so that no later version of Cleave makes
// them otherwise in the same cluster.
type layoutRecord struct {
	Epoch   int64 `json:"epoch_ms"`
	Time    int   `json:"time_bits"`
	Node    int   `json:"node_bits"`
	Counter int   `json:"counter_bits"`
}

const layoutKey = "ids/layout"

func (g *Generator) checkLayout(ctx context.Context) error {
	if g.layout {
		return nil
	}
	want := layoutRecord{Epoch: Epoch, Time: timeBits, Node: nodeBits, Counter: counterBits}
	for range rounds {
		rec, err := g.o.Records.Record(ctx, layoutKey)
		if errors.Is(err, shardmap.ErrNotFound) {
			b, err := json.Marshal(want)
			if err != nil {
				return sqlstate.Wrap(err, sqlstate.InternalError, "the record %s cannot be written", layoutKey)
			}
			if _, err = g.o.Records.PutRecord(ctx, layoutKey, b, 0); err != nil && !errors.Is(err, shardmap.ErrConflict) {
				return unreachable(err)
			}
			continue
		}
		if err != nil {
			return unreachable(err)
		}
		var is layoutRecord
		if err := decode(rec, &is); err != nil {
			return err
		}
		if is != want {
			return sqlstate.New(sqlstate.ObjectNotInState, "the ids of this cluster are made otherwise than this version of Cleave makes them (%s)", rec.Value).
				WithHint("run the version of Cleave that the other routers run")
		}
		g.layout = true
		return nil
	}
	return busy(layoutKey)
}

func decode(rec shardmap.Record, into any) error {
	if err := json.Unmarshal(rec.Value, into); err != nil {
		return sqlstate.Wrap(err, sqlstate.DataCorrupted, "the directory's record %s cannot be read", rec.Key).WithHint("bring the directory back from a backup")
	}
	return nil
}

func noRecords(what string) error {
	return sqlstate.Refusal("CLV-0501", "%s needs a directory that keeps records, which this router's does not", what).
		WithHint("Run the router with a directory (cleave router --directory).")
}

// unreachable is the error when the directory does not answer.
func unreachable(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	e := sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the directory could not be asked for new ids").
		WithHint("nothing was given out: run the statement again; cleave doctor looks at the directory")
	e.Retry = sqlstate.RetryTransaction
	return e
}

func busy(key string) error {
	return sqlstate.New(sqlstate.CannotConnectNow, "the directory's record %s changes too often", key).WithHint("run the statement again")
}
