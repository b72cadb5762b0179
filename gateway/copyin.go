package gateway

import (
	"fmt"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
)

const (
	// copyPause is how long a client that sends a COPY's data may be silent before the shard is looked at, which may
	// have refused a row; again after twice the time, up to copyPauseMax.
	copyPause    = 10 * time.Millisecond
	copyPauseMax = 160 * time.Millisecond
	// copyAsk is after how many bytes it is looked at while data comes.
	copyAsk = 256 << 10
)

// copyIn feeds a COPY FROM STDIN with the client's data.
func (x *unitRun) copyIn() (executor.Outcome, error) {
	x.unit.effects = true
	if err := x.w.flush(); err != nil {
		x.pipe.Conn.Break()
		return executor.Outcome{}, err
	}
	x.interrupts.copying.Store(true)
	defer x.interrupts.copying.Store(false)
	// A client that did not wait may have sent data with the statement.
	x.r.Unread(x.ahead)
	x.ahead = 0
	defer func() { _ = x.nc.SetReadDeadline(time.Time{}) }() // a client that is gone is met by the next read
	pause, unasked := copyPause, 0
	for {
		if !x.r.HasFrame() {
			_ = x.nc.SetReadDeadline(time.Now().Add(pause)) // likewise
		}
		f, err := x.r.Next()
		if err != nil && x.timedOut(err) {
			cancelled := x.interrupts.asked()
			if !cancelled {
				if failed, err := x.pipe.copyFailed(true); failed || err != nil {
					return x.copyOver(err)
				}
				pause = min(2*pause, copyPauseMax)
				continue
			}
			// The shard has given up already, or does now.
			f, err = wire.AppendCopyFail(nil, "the statement was cancelled"), nil
		}
		if err != nil {
			// The shard gets no CopyDone, so that nothing is kept.
			x.pipe.Conn.Break()
			return executor.Outcome{}, &clientGone{err}
		}
		switch f.Type() {
		case wire.CopyDataF:
			if err := x.pipe.Copy(f); err != nil {
				return executor.Outcome{}, err
			}
			pause = copyPause
			if unasked += len(f); unasked >= copyAsk {
				unasked = 0
				if failed, err := x.pipe.copyFailed(false); failed || err != nil {
					return x.copyOver(err)
				}
			}
			continue
		case wire.CopyDoneF, wire.CopyFail:
			if err := x.pipe.Copy(f); err != nil {
				return executor.Outcome{}, err
			}
		case wire.Sync, wire.Flush:
			continue // ignored in this state, as PostgreSQL does
		default:
			if err := x.pipe.Copy(wire.AppendCopyFail(nil, fmt.Sprintf("unexpected message type 0x%02X during COPY from stdin", f.Type()))); err != nil {
				return executor.Outcome{}, err
			}
		}
		if !x.pipe.InQuery() {
			// The shard keeps its answer until it is asked for.
			if err := x.pipe.Copy(wire.AppendEmpty(nil, wire.Flush)); err != nil {
				return executor.Outcome{}, err
			}
			x.pipe.syncIgnored = x.pipe.IgnoredSync()
		}
		return x.pipe.Resume(&x.w)
	}
}

// copyOver takes the error that has ended a COPY before the client has sent all. It is told at once; what the client
// goes on sending is ignored.
func (x *unitRun) copyOver(err error) (executor.Outcome, error) {
	if err != nil {
		return executor.Outcome{}, err
	}
	x.urgent = true
	if !x.pipe.InQuery() {
		x.pipe.syncIgnored = x.pipe.IgnoredSync()
	}
	return x.pipe.Resume(&x.w)
}
