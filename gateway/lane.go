package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"time"
	"unicode/utf8"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/internal/lane"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// This file is the fast lane: while a session idles, a loop (package lane) runs
// it, and statements that need nothing unusual go to their shard and back
// without waking the session's goroutine. docs/design/lane.md has the states.
//
// The lane has no way of its own to run a statement: it calls the session's
// code, frame by frame. What would have to wait fails with errWait before it has
// changed anything; then the goroutine goes on from there.

// errWait says that something has to be waited for; see session.nowait.
var errWait = errors.New("gateway: this has to wait")

// laned is the lane's part of a session. The runner of the session owns it: the loop
// between park and handOver, else the goroutine.
type laned struct {
	client *lane.Conn // nil: the client's socket cannot be watched
	out    chan landing
	flight flight
	flying bool   // the shard's answers are awaited
	spoke  bool   // something happened on the client's socket meanwhile
	rest   []byte // what came after the message in flight
}

// landing is how the loop hands a session over to its goroutine.
type landing struct {
	how landed
	o   executor.Outcome
	err error
}

type landed uint8

const (
	toRead   landed = iota // the client is to be read; the reader may hold bytes of it
	toResume               // answers are awaited
	toJudge                // the answers are o and err
	toFinish               // they have been judged: err
	toFlush                // all is done but for what the client has not taken yet
	toEnd                  // err ends the session
	toPanic                // a fault: err
)

func (l *laned) init(nc net.Conn) {
	if c, ok := nc.(*lane.Conn); ok {
		l.client, l.out = c, make(chan landing, 1)
	}
}

// parkable reports whether the loop can run the session.
func (x *session) parkable() bool {
	return x.lane.client != nil && !x.gucs.Early && x.tx.state == txNone && x.pipe.Conn == nil && !x.listener.Listens() && !x.unit.open && !x.skip &&
		x.pending == nil && x.w.err == nil && len(x.w.buf) == 0 && x.r.Buffered() == 0
}

// park lets the loop run the session until it hands it back. An error ends the session.
func (x *session) park() error {
	x.shards.nowait, x.w.hold = true, true
	x.lane.client.Watch(x)
	l := <-x.lane.out
	x.srv.metrics.LaneLeft(l.how != toRead)
	err := l.err
	switch l.how {
	case toRead:
		return nil
	case toResume:
		l.o, err = x.pipe.Resume(&x.w)
		fallthrough
	case toJudge:
		_, err = x.concluded(x.lane.flight, l.o, err)
		fallthrough
	case toFinish:
		err = x.finishFlight(err)
		for errors.Is(err, errAgain) {
			err = x.again(nil)
		}
	case toFlush:
		err = x.w.flush()
	case toEnd:
	case toPanic:
		panic(err)
	}
	if err != nil {
		return x.broken(err)
	}
	x.idle()
	return nil
}

// finishFlight is what follows the answers, for a flight that the lane began.
func (x *session) finishFlight(err error) error {
	if x.lane.flight.end == executor.Sync {
		return x.synced(false, err)
	}
	if err == nil && x.pipe.outside() {
		x.pipe.release()
	}
	return x.queried(err)
}

// handOver gives the session back to its goroutine; the loop must not touch it
// afterwards.
func (x *session) handOver(l landing) {
	client := x.lane.client
	if x.lane.flying {
		x.pipe.Conn.Lane().Leave()
	}
	if x.lane.spoke {
		// The goroutine may find whole frames in its reader and read no further
		// before it parks.
		client.Again()
	}
	x.lane.flying, x.lane.spoke = false, false
	x.shards.nowait, x.w.hold = false, false
	x.r.Give(x.lane.rest)
	x.lane.rest = nil
	client.Leave()
	x.lane.out <- l
	client.Loop().Woke()
}

// Ready is called by the loop when something happened on the client's or the
// shard's socket (lane.Handler).
func (x *session) Ready(c *lane.Conn) {
	defer func() {
		if fault := recover(); fault != nil {
			x.handOver(landing{how: toPanic, err: fmt.Errorf("%v\n%s", fault, debug.Stack())})
		}
	}()
	switch {
	case c != x.lane.client:
		if x.lane.flying {
			x.heard()
		}
	case x.lane.flying:
		x.lane.spoke = true
	default:
		x.spoken()
	}
}

// spoken reads what the client said.
func (x *session) spoken() {
	client := x.lane.client
	buf := client.Loop().Buffer()
	n, err := client.ReadNow(buf)
	switch {
	case err == lane.ErrAgain:
		if client.Due() {
			x.handOver(landing{how: toRead})
			return
		}
		if client.Loop().Now().UnixNano()-x.interrupts.since.Load() > int64(trimAfter) {
			x.trim()
		}
	case err != nil: // the goroutine meets it again
		x.handOver(landing{how: toRead})
	case n == len(buf) || !wholeUnits(buf[:n]):
		if n == len(buf) {
			client.Again()
		}
		x.r.Give(buf[:n])
		x.handOver(landing{how: toRead})
	default:
		x.units(buf[:n])
	}
}

// trimAfter is how long a session idles before it gives up its buffers.
const trimAfter = time.Second

func (x *session) trim() {
	x.r.Trim()
	x.w.buf, x.unit.replay = nil, nil
	x.pipe.Trim()
	x.trimmed.Store(true)
}

// wholeUnits reports whether b holds whole frames, of which the last ends a unit.
func wholeUnits(b []byte) bool {
	var last byte
	for len(b) > 0 {
		if len(b) < wire.Header {
			return false
		}
		n := int(binary.BigEndian.Uint32(b[1:])) + 1
		if n < wire.Header || n > len(b) {
			return false
		}
		last, b = b[0], b[n:]
	}
	return last == wire.Sync || last == wire.Query
}

// units runs the units in b, up to the first that has to wait for its shard.
func (x *session) units(b []byte) {
	now := x.lane.client.Loop().Now()
	x.interrupts.since.Store(now.UnixNano())
	x.interrupts.begins()
	x.trimmed.Store(false)
	x.ahead = 0
	whole := len(b)
	for len(b) > 0 {
		f := wire.Frame(b[:1+binary.BigEndian.Uint32(b[1:])])
		if !x.unit.open {
			x.stats.Began = now
			x.beginUnit()
		}
		flying, err := x.step(f)
		if err != nil {
			x.srv.metrics.Traffic(whole-len(b), 0)
			// The goroutine runs this frame once more, and the rest.
			x.r.Give(b)
			x.handOver(landing{how: toRead})
			return
		}
		b = b[len(f):]
		if flying {
			x.srv.metrics.Traffic(whole-len(b), 0)
			x.lane.rest = append(x.lane.rest[:0], b...)
			x.takeOff(now)
			return
		}
		if !x.unit.open && !x.flushed() {
			x.srv.metrics.Traffic(whole-len(b), 0)
			x.lane.rest = append(x.lane.rest[:0], b...)
			x.handOver(landing{how: toFlush})
			return
		}
	}
	x.srv.metrics.Traffic(whole, 0)
	x.rest()
}

// rest awaits the client.
func (x *session) rest() {
	x.interrupts.since.Store(x.lane.client.Loop().Now().UnixNano())
	x.interrupts.state.Store(stateIdle)
	if x.srv.drain.Load() || x.interrupts.endsHere() {
		x.interrupts.wakeUp()
	}
	if x.lane.spoke || x.lane.client.HungUp() {
		x.lane.spoke = false
		x.spoken()
	}
}

// flushed gives the client its answers, and reports whether it took all.
func (x *session) flushed() bool { return x.w.flushNow(x.lane.client) && x.w.err == nil }

// step handles one frame. An error means that nothing was changed: the frame is
// not for the lane. flying: what is pending has to go to the shard.
func (x *session) step(f wire.Frame) (flying bool, err error) {
	switch f.Type() {
	case wire.Parse:
		err = x.parse(f)
	case wire.Bind:
		err = x.bind(f)
	case wire.Describe:
		if what, name, bad := wire.ReadDescribe(f.Body()); bad != nil || what != 'P' || !x.mayUse(name) {
			return false, errWait
		}
		err = x.describe(f)
	case wire.Execute:
		if name, _, bad := wire.ReadExecute(f.Body()); bad != nil || !x.mayUse(name) {
			return false, errWait
		}
		err = x.execute(f)
	case wire.Close:
		err = x.close(f)
	case wire.Sync:
		if x.pending != nil || x.pipe.Pending() > flushAt {
			return false, errWait
		}
		if x.pipe.Conn == nil {
			return false, x.sync()
		}
		x.lane.flight.end, flying = executor.Sync, true
	case wire.Query:
		err = x.quickQuery(f)
		x.lane.flight.end, flying = executor.None, true
	default:
		err = errWait
	}
	if err != nil {
		return false, err
	}
	x.unit.replay = append(x.unit.replay, f...)
	return flying, nil
}

// quick reports whether running the statement means nothing but to send it to a
// shard that its keys name and to relay the answer.
func quick(st *plan.Statement) bool {
	return st != nil && (st.Kind == plan.OneShard || st.Kind == plan.DefaultShard) && !st.Copy && st.Set == nil && len(st.Sets) == 0 && st.Fill == nil
}

// mayUse vets a portal.
func (x *session) mayUse(name []byte) bool {
	p, ok := x.portals.Named(name)
	return ok && p.conn != nil && p.conn == x.pipe.Conn && quick(p.st)
}

// quickQuery puts a simple Query into the pipeline: one statement whose shape is known.
func (x *session) quickQuery(f wire.Frame) error {
	body := f.Body()
	if x.pipe.Conn != nil || x.pipe.Waiting() || len(body) == 0 || bytes.IndexByte(body, 0) != len(body)-1 {
		return errWait
	}
	// As in simple. The plan is found whether or not there are comments.
	sql, parent, _ := trace.CutEnd(body[:len(body)-1])
	x.stats.Unit = parent
	if i := bytes.IndexByte(sql, ';'); i >= 0 {
		if len(bytes.TrimSpace(sql[i+1:])) > 0 {
			return errWait
		}
		sql = sql[:i]
	}
	if !utf8.Valid(sql) {
		return errWait
	}
	var err error
	if x.shards.hint, err = settings.HintOf(sql); err != nil {
		return errWait
	}
	if rest, p, ok := trace.CutBegin(sql); ok {
		sql, x.stats.Unit = rest, p
	}
	snap, _ := x.snapshot()
	st, r, routed := x.srv.ex.CachedText(&x.shaper, sql, x.gucs.Settings, snap)
	if !routed || !quick(st) || st.Secret != "" || r.Held != nil || x.tx.state != txNone && snap.Holding() {
		return errWait
	}
	if err := x.reach(r.Shard, useOf(st)); err != nil {
		return err
	}
	x.stats.Runs(st)
	x.countText(snap, st, &r, sql)
	x.forgetUnnamed()
	x.pipe.QueryFrame(f)
	return nil
}

// takeOff sends what is pending.
func (x *session) takeOff(now time.Time) {
	c, l := x.pipe.Conn, &x.lane
	l.flight.reroutable = x.pipe.sent()
	l.flying = true
	x.shards.setRunning(c) // nothing ran, so that no cancel holds the lock for long
	news := c.Lane().Take(x)
	all, err := x.pipe.Start(l.flight.end, now)
	switch {
	case err != nil:
		x.handOver(landing{how: toJudge, err: err})
	case !all:
		x.handOver(landing{how: toResume})
	case news:
		x.heard()
	}
}

// heard relays what the shard said.
func (x *session) heard() {
	for {
		o, state, err := x.pipe.Poll(&x.w)
		switch {
		case err != nil:
			x.handOver(landing{how: toJudge, o: o, err: err})
			return
		case state == executor.Done:
			x.landed(o)
			return
		case state == executor.Stuck || len(x.w.buf) > flushAt/2:
			// A large result, or one that needs the client.
			x.handOver(landing{how: toResume})
			return
		case state == executor.Later:
			return
		}
	}
}

// landed ends the unit that all answers have come for.
func (x *session) landed(o executor.Outcome) {
	l := &x.lane
	// A slow statement's line is the goroutine's: the log may wait for its reader.
	slow := x.srv.sinks.IsSlow(x.lane.client.Loop().Now().Sub(x.stats.Began))
	if o.Err != nil || slow || !x.interrupts.landed() {
		x.handOver(landing{how: toJudge, o: o})
		return
	}
	// From here on a cancel finds nothing that runs, and holds the lock briefly.
	x.pipe.Conn.Lane().Leave()
	l.flying = false
	x.srv.metrics.Lane()
	if _, err := x.conversed(l.flight, o, nil); err != nil {
		x.handOver(landing{how: toFinish, err: err})
		return
	}
	if err := x.finishFlight(nil); err != nil {
		x.handOver(landing{how: toEnd, err: err})
		return
	}
	if !x.flushed() {
		x.handOver(landing{how: toFlush})
		return
	}
	if len(l.rest) > 0 {
		b := l.rest
		l.rest = nil
		x.units(b)
		return
	}
	x.rest()
}
