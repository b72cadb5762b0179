package several

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// scratch is the conversation on which a gather's relations are brought together.
// It is never a part: what goes wrong on it says nothing about the transaction's
// parts, and its own transaction is rolled back. It implements executor.Sink and
// executor.Watch.
type scratch struct {
	c    *runner
	conn *executor.Conn
	pipe executor.Pipeline
	// begun: a transaction is open on it, so that it can hold temporary tables.
	begun bool
	// relations is the conversation where relations are not made with SQL.
	relations engine.Relations
	sent      time.Time // when the last text was
	rows      int64     // of its answer
	bytes     int64
	values    executor.Columns
	columns   []byte // the body of the last RowDescription
	buf       []byte // DataRow frames
	pos       int
	reading   bool // answers are outstanding
	copying   bool // it takes CopyData
}

// newScratch borrows a conversation with a shard.
func (c *runner) newScratch(ctx context.Context, shard string) (*scratch, error) {
	if c.Change != nil {
		return nil, sqlstate.Refusal("CLV-0801", "a statement that needs a temporary table of rows of several shards is not supported after a schema change in the same transaction").
			WithHint("Commit the schema change first, or use a statement that each shard can run for itself.")
	}
	s := &scratch{c: c}
	// Other statements may hold all of the pool's conversations as parts and wait
	// for a scratch one as well. So this one does not wait for long: beyond the pool
	// there are as many as gathers may run.
	limit, stop := context.WithTimeout(ctx, scratchWait)
	defer stop()
	conn, err := c.Borrow(limit, shard)
	if err != nil && ctx.Err() == nil && limit.Err() != nil {
		conn, err = c.Dial(ctx, shard)
	}
	if err != nil {
		return nil, err
	}
	s.conn, s.pipe.Conn, s.pipe.Inner = conn, conn, true
	s.relations, _ = conn.Conn.(engine.Relations)
	return s, nil
}

// local are the statements that give it the session's settings, if those have
// changed since the transaction began.
func (s *scratch) local() []string { return s.conn.LocalChanges(s.c.host.Settings()) }

// begin opens the transaction that will be rolled back.
func (s *scratch) begin() error {
	if s.begun {
		return nil
	}
	s.begun = true
	if s.relations != nil {
		return s.exec(strings.Join(append([]string{"BEGIN"}, s.local()...), ";"))
	}
	all := append([]string{"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"}, s.local()...)
	// It waits while the shards' rows come.
	return s.exec(strings.Join(append(all, "SET LOCAL idle_in_transaction_session_timeout = 0"), ";"))
}

// exec runs a message of the router's own.
func (s *scratch) exec(sql string) error {
	_, err := s.conn.Exec(sql)
	if err != nil {
		return s.failure(err)
	}
	return nil
}

// failure is the error of what failed on the scratch conversation.
func (s *scratch) failure(err error) error {
	s.reading, s.copying = false, false
	var se *sqlstate.Error
	cause := context.Cause(s.c.Ctx)
	if errors.As(err, &se) && engine.Lost(err) == nil && se.Severity != "FATAL" && se.Severity != "PANIC" {
		if se.Code == sqlstate.QueryCanceled && cause != nil {
			return cause
		}
		if refusal := castWord(se); refusal != nil {
			return refusal.OnShard(s.conn.Shard())
		}
		e := *se
		e.Position = 0 // in a text that the client did not write
		if e.Shard == "" {
			e.Shard = s.conn.Shard()
		}
		return &e
	}
	s.conn.Break()
	if cause != nil {
		return cause
	}
	e := sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the connection to shard %s was lost, on which rows of several shards were brought together", s.conn.Shard()).
		OnShard(s.conn.Shard()).WithHint("the statement changed nothing: run it again")
	e.Retry = sqlstate.RetrySafe
	return e
}

// run runs a text with parameters whose rows do not matter.
func (s *scratch) run(text string, in inputs) error {
	if err := s.send(text, in, nil); err != nil {
		return err
	}
	for s.reading {
		if err := s.fill(); err != nil {
			return err
		}
	}
	s.buf, s.pos = s.buf[:0], 0
	return nil
}

// send sends a text with parameters.
func (s *scratch) send(text string, in inputs, results []int16) error {
	if err := context.Cause(s.c.Ctx); err != nil {
		return err
	}
	s.columns, s.buf, s.pos = nil, s.buf[:0], 0
	s.sent, s.rows, s.bytes = time.Now(), 0, 0
	q := request{text: text, oids: in.typed(text), formats: in.formats, values: in.values, results: results}
	if err := q.fit(); err != nil {
		return err
	}
	if err := numbered(s.conn, &q); err != nil {
		return s.failure(err)
	}
	s.pipe.Unnamed(new(int), q.text, q.oids, s.conn.Settings(), false)
	s.pipe.Bind("", "", bindBody(q), false)
	s.pipe.DescribePortal("", false, s, &s.values)
	s.pipe.Execute("", 0, &s.values)
	s.reading = true
	if err := s.pipe.Dispatch(executor.Sync); err != nil {
		return s.failure(err)
	}
	return nil
}

// fill waits for answers once.
func (s *scratch) fill() error {
	o, done, err := s.pipe.Step(s)
	switch {
	case err != nil:
		return s.failure(err)
	case !done:
		return nil
	}
	s.reading = false
	if o.Err != nil {
		return s.failure(o.Err)
	}
	return nil
}

// head waits until the columns of what was sent are known.
func (s *scratch) head() error {
	for s.columns == nil && s.reading {
		if err := s.fill(); err != nil {
			return err
		}
	}
	return nil
}

// chunk returns whole frames that are at hand, at most rows DataRows (0: any
// number); nil at the end. They are valid until the next call.
func (s *scratch) chunk(rows int32) ([]byte, error) {
	for s.pos >= len(s.buf) {
		s.buf, s.pos = s.buf[:0], 0
		if cap(s.buf) > 1<<20 {
			s.buf = nil
		}
		if !s.reading {
			return nil, nil
		}
		if err := s.fill(); err != nil {
			return nil, err
		}
	}
	from, to := s.pos, s.pos
	for n := int32(0); to < len(s.buf) && (rows <= 0 || n < rows); n++ {
		to += 1 + int(binary.BigEndian.Uint32(s.buf[to+1:]))
	}
	s.pos = to
	return s.buf[from:to], nil
}

// copyIn begins a COPY into a table.
func (s *scratch) copyIn(sql string) error {
	s.pipe.Query(sql)
	if err := s.pipe.Dispatch(executor.None); err != nil {
		return s.failure(err)
	}
	for {
		o, done, err := s.pipe.Step(s)
		switch {
		case err != nil:
			return s.failure(err)
		case done && o.Err != nil:
			return s.failure(o.Err)
		case done:
			return s.failure(fmt.Errorf("COPY ended before it began"))
		case o.CopyIn:
			s.copying = true
			return nil
		}
	}
}

// copyData sends whole CopyData frames.
func (s *scratch) copyData(frames []byte) error {
	if err := context.Cause(s.c.Ctx); err != nil {
		return err
	}
	if err := s.pipe.Copy(frames); err != nil {
		return s.failure(err)
	}
	return nil
}

// copyDone ends the COPY.
func (s *scratch) copyDone() error {
	if err := s.copyData(wire.AppendEmpty(nil, wire.CopyDoneF)); err != nil {
		return err
	}
	s.copying = false
	s.pipe.ResumeCopy()
	for {
		o, done, err := s.pipe.Step(s)
		switch {
		case err != nil:
			return s.failure(err)
		case done && o.Err != nil:
			return s.failure(o.Err)
		case done:
			return nil
		}
	}
}

// close gives the conversation back; with something unread or half done on it, it
// is closed.
func (s *scratch) close() {
	if s.reading || s.copying {
		s.conn.Break()
	}
	if s.begun && !s.conn.Broken() {
		if err := s.exec("ROLLBACK"); err != nil || s.conn.Status() != 'I' {
			s.conn.Break()
		}
	}
	if s.relations != nil && !s.conn.Broken() && s.relations.DropRelations() != nil {
		s.conn.Break()
	}
	s.c.GiveBack(s.conn)
}

// Frames keeps rows (executor.Sink).
func (s *scratch) Frames(b []byte) error {
	for len(b) >= wire.Header {
		n := 1 + int(binary.BigEndian.Uint32(b[1:]))
		switch b[0] {
		case wire.DataRow:
			s.buf = append(s.buf, b[:n]...)
			s.rows++
			s.bytes += int64(n)
		case wire.NoticeResponse:
			if !s.begun {
				s.c.aside.notice(b[:n])
			}
		}
		b = b[n:]
	}
	return nil
}

// Parameter is not passed on: the settings of this conversation are nobody's
// (executor.Sink).
func (s *scratch) Parameter(string, string) {}

// Described keeps the columns (executor.Watch).
func (s *scratch) Described(columns []byte) *sqlstate.Error {
	s.columns = append([]byte{}, columns...)
	return nil
}

// made is the error of a relation that is not made with SQL.
func (s *scratch) made(err error) error {
	if err == nil {
		return nil
	}
	s.conn.Break()
	return s.failure(err)
}
