package several

import (
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// copying is a COPY ... FROM STDIN that awaits the client's data. Data is run
// when it is sent, so that it does not pile up; what goes wrong is told when the client's session asks, see Failed.
type copying struct {
	job    copyJob
	simple bool
	err    error
}

// copyFrames runs frames that are sent while data is awaited.
func (c *Conn) copyFrames(frames []byte) error {
	if err := c.enters(); err != nil {
		return err
	}
	defer c.faults()
	for len(frames) > 0 && c.copying != nil && len(c.in) == 0 {
		f, rest, ok, err := wire.Cut(frames)
		if err != nil || !ok || f.Type() != wire.CopyDataF && f.Type() != wire.Flush {
			break
		}
		frames = rest
		c.copyFrame(f)
	}
	c.in = append(c.in, frames...)
	return c.leaves()
}

// copyFrame handles a frame while data is awaited.
func (c *Conn) copyFrame(f wire.Frame) {
	k := c.copying
	switch f.Type() {
	case wire.CopyDataF:
		if k.err == nil {
			c.Progress().Add(0, int64(len(f.Body())))
			k.err = k.job.take(f.Body())
		}
		return
	case wire.Flush: // the client is silent
		if j, ok := k.job.(*copyIn); ok && k.err == nil {
			k.err = j.flush()
		}
		return
	case wire.Sync:
		return // ignored in this state, as PostgreSQL does
	case wire.CopyDoneF:
	case wire.CopyFail:
		if k.err == nil {
			reason, _, _ := wire.CutString(f.Body())
			k.err = sqlstate.New(sqlstate.QueryCanceled, "COPY from stdin failed: %s", reason)
		}
	default:
		if k.err == nil {
			k.err = sqlstate.New(sqlstate.ProtocolViolation, "unexpected message type 0x%02X during COPY from stdin", f.Type())
		}
	}
	c.endCopying()
}

// Failed implements engine.Overhearer: a COPY FROM STDIN has failed, and the next Receive says how.
func (c *Conn) Failed() bool {
	k := c.copying
	if k == nil {
		return false
	}
	if k.err != nil {
		return true
	}
	for _, p := range c.Joined {
		if p.Busy != nil && p.Conn.Failed() {
			return true
		}
	}
	return false
}

// giveUpCopying ends a COPY that has failed before the client has sent all.
func (c *Conn) giveUpCopying() {
	if j, ok := c.copying.job.(*copyIn); ok {
		j.rest, j.ended = nil, true
	}
	c.endCopying()
}

// endCopying answers a COPY.
func (c *Conn) endCopying() {
	k := c.copying
	c.copying = nil
	tag := ""
	if k.err == nil {
		tag, k.err = k.job.end()
	}
	c.told()
	if k.err != nil {
		c.failActive(k.err)
		return
	}
	a := c.active
	a.stopTimer()
	c.active = nil
	a.p.done, a.p.tag = true, tag
	c.completed(tag, a.simple)
}
