package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// Result is what a statement gave, decoded: for housekeeping, not for the data path.
type Result struct {
	Columns []string
	Rows    [][]Text
	Tag     string // of the last statement
	Status  byte   // transaction status after it: 'I', 'T' or 'E'
}

// Text is a value in text format; Null tells NULL from "".
type Text struct {
	String string
	Null   bool
}

// Exec runs one simple-protocol message and collects its last result. A
// statement's error is returned as *sqlstate.Error and leaves the conversation
// usable; any other error means that the Conn is broken. COPY is refused, and
// results are held in memory: for housekeeping with small results.
func Exec(c Conn, sql string) (*Result, error) {
	if err := Ask(c, sql); err != nil {
		return nil, err
	}
	return Answer(c, nil)
}

// Ask is the first half of [Exec]: it sends the message. Answer must follow, so
// that several conversations can be at work at the same time.
func Ask(c Conn, sql string) error {
	if strings.IndexByte(sql, 0) >= 0 {
		return sqlstate.New(sqlstate.CharacterNotInRepertoire, "a statement cannot contain a zero byte")
	}
	return c.Send(wire.AppendQuery(nil, sql))
}

// Answer is the second half of [Exec]. aside, if it is not nil, is given the
// whole frames of notices and reported parameters; they are valid during the call.
func Answer(c Conn, aside func(frame []byte)) (*Result, error) {
	all, err := Answers(c, 1, aside)
	if len(all) == 0 {
		return nil, err
	}
	return all[0], err
}

// Answers is Answer for n Query messages that were sent together. The error is
// the first one's that failed; if it is a *sqlstate.Error all have been answered,
// and there are n results.
func Answers(c Conn, n int, aside func(frame []byte)) ([]*Result, error) {
	all := make([]*Result, 0, n)
	res := &Result{}
	var failed, first *sqlstate.Error
	for {
		b, err := c.Receive()
		if err != nil {
			return nil, because(err, failed)
		}
		for len(b) > 0 {
			f, rest, ok, err := wire.Cut(b)
			if err != nil {
				return nil, err
			}
			if !ok {
				return nil, wire.ErrMalformed
			}
			if t := f.Type(); aside != nil && (t == wire.NoticeResponse || t == wire.ParameterStatus) {
				aside(f)
			}
			b = rest
			done, err := res.take(c, f, &failed)
			if err != nil {
				return nil, because(err, failed)
			}
			if !done {
				continue
			}
			if all = append(all, res); first == nil {
				first = failed
			}
			res, failed = &Result{}, nil
			if len(all) == n && first != nil {
				return all, first
			}
			if len(all) == n {
				return all, nil
			}
		}
	}
}

// OneRow is the only row of an answer to a question of the router's own, with n columns. A shard that gives anything else has
// broken the protocol.
func (r *Result) OneRow(n int, shard string) ([]Text, error) {
	if len(r.Rows) != 1 || len(r.Rows[0]) != n {
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "shard %s gave %d rows where it was asked for one of %d columns", shard, len(r.Rows), n).OnShard(shard).
			WithHint("cleave doctor")
	}
	return r.Rows[0], nil
}

// take adds one frame to the result; done is true at ReadyForQuery.
func (r *Result) take(c Conn, f wire.Frame, failed **sqlstate.Error) (done bool, err error) {
	switch f.Type() {
	case wire.RowDescription:
		r.Columns, r.Rows = columnNames(f.Body()), nil
	case wire.DataRow:
		row, err := wire.SplitRow(f.Body(), nil)
		if err != nil {
			return false, err
		}
		texts := make([]Text, len(row))
		for i, v := range row {
			texts[i] = Text{String: string(v), Null: v == nil}
		}
		r.Rows = append(r.Rows, texts)
	case wire.CommandComplete:
		r.Tag, _, _ = wire.CutString(f.Body())
	case wire.ErrorResponse:
		if *failed == nil {
			*failed = wire.ParseReport(f.Body())
		}
	case wire.CopyInResponse:
		return false, c.Send(wire.AppendCopyFail(nil, "COPY is not expected here"))
	case wire.ReadyForQuery:
		if len(f.Body()) == 1 {
			r.Status = f.Body()[0]
		}
		return true, nil
	}
	return false, nil
}

// Each is Exec for a result of any size: f is given one row of it after the other, of every statement of the message. An error
// of f is returned when all rows were read; it is not called any more then.
func Each(c Conn, sql string, f func(row []Text) error) error {
	if err := Ask(c, sql); err != nil {
		return err
	}
	res := &Result{}
	var failed *sqlstate.Error
	var stopped error
	for {
		b, err := c.Receive()
		if err != nil {
			return because(err, failed)
		}
		for len(b) > 0 {
			frame, rest, ok, err := wire.Cut(b)
			if err != nil {
				return err
			}
			if !ok {
				return wire.ErrMalformed
			}
			b = rest
			done, err := res.take(c, frame, &failed)
			if err != nil {
				return because(err, failed)
			}
			for _, row := range res.Rows {
				if stopped == nil {
					stopped = f(row)
				}
			}
			res.Rows = res.Rows[:0]
			if done && failed != nil {
				return failed
			}
			if done {
				return stopped
			}
		}
	}
}

// because adds what the shard said before it went away ("terminating
// connection due to administrator command"). It stays a broken conversation, so
// the report is text only and not in the chain.
func because(err error, said *sqlstate.Error) error {
	if said == nil {
		return err
	}
	if lost := Lost(err); lost != nil {
		return &LostError{Shard: lost.Shard, Sent: lost.Sent,
			Err: fmt.Errorf("%w; the shard said: %s (SQLSTATE %s)", lost.Err, said.Message, said.Code)}
	}
	return fmt.Errorf("%w; the shard said: %s (SQLSTATE %s)", err, said.Message, said.Code)
}

// ExecContext is Exec bounded by ctx. When ctx ends first, the statement is
// cancelled (its error is then 57014, and the conversation is usable); a shard
// that does not answer that within grace loses the conversation (LostError). A
// ctx that is already over is returned as it is, and nothing is sent. If ctx
// ends during the statement, c has no deadline afterwards.
func ExecContext(ctx context.Context, c Conn, sql string) (*Result, error) {
	var res *Result
	err := Bounded(ctx, c, time.Time{}, func() (err error) {
		res, err = Exec(c, sql)
		return err
	})
	return res, err
}

// grace is how long a shard may take to answer a Cancel before the conversation
// is given up.
const grace = 3 * time.Second

// Bounded runs talk, which converses on c, under ctx in the way of
// [ExecContext]; restore is the deadline that c gets back if ctx ended meanwhile.
func Bounded(ctx context.Context, c Conn, restore time.Time, talk func() error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Done() == nil {
		return talk()
	}
	finished := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(finished)
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		// Whether or not the request arrives, the conversation must end.
		_ = c.SetDeadline(time.Now().Add(grace))
		_ = c.Cancel(limit)
	})
	defer func() { // after a fault of talk too
		if !stop() {
			// A Cancel under way must not hit the next statement.
			<-finished
			if e := c.SetDeadline(restore); e != nil && err == nil {
				err = e
			}
		}
	}()
	return talk()
}

func columnNames(body []byte) []string {
	if len(body) < 2 {
		return nil
	}
	n := int(body[0])<<8 | int(body[1])
	body = body[2:]
	names := make([]string, 0, n)
	for range n {
		name, rest, ok := wire.CutString(body)
		if !ok || len(rest) < 18 {
			return names
		}
		names, body = append(names, name), rest[18:]
	}
	return names
}
