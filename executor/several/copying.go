package several

import (
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// copying is a COPY ... FROM STDIN that awaits the client's data. Data is run
// when it is sent, so that it does not pile up; what goes wrong is told at the end.
type copying struct {
	job    copyJob
	simple bool
	err    error
}

// copyFrames runs frames that are sent while data is awaited.
func (c *Conn) copyFrames(frames []byte) error {
	if err := c.enter(); err != nil {
		return err
	}
	for len(frames) > 0 && c.copying != nil && len(c.in) == 0 {
		f, rest, ok, err := wire.Cut(frames)
		if err != nil || !ok || f.Type() != wire.CopyDataF {
			break
		}
		frames = rest
		c.copyFrame(f)
	}
	c.in = append(c.in, frames...)
	return c.leave()
}

// copyFrame handles a frame while data is awaited.
func (c *Conn) copyFrame(f wire.Frame) {
	k := c.copying
	switch f.Type() {
	case wire.CopyDataF:
		if k.err == nil {
			c.progress.bytes.Add(int64(len(f.Body())))
			k.err = k.job.take(f.Body())
		}
		return
	case wire.Sync, wire.Flush:
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
