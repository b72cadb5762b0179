package schema

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// cancelMax bounds the request that asks a shard to stop.
const cancelMax = 2 * time.Second

// graceMax is how long a shard may take to answer after it was asked to stop.
const graceMax = 2 * time.Second

// noticesMax bounds the notices kept of one statement.
const noticesMax = 100

// run sends one simple-protocol message and waits for its end, at most until
// ctx ends: then the shard is asked to stop, and after a grace the conversation
// is cut. Errors of the statement are *sqlstate.Error and leave the conversation usable.
func run(ctx context.Context, c engine.Conn, sql string) (*engine.Result, []*sqlstate.Error, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, canceled(err)
	}
	if strings.IndexByte(sql, 0) >= 0 {
		return nil, nil, sqlstate.New(sqlstate.CharacterNotInRepertoire, "a statement cannot contain a zero byte")
	}
	asked := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(asked)
		bound, end := context.WithTimeout(context.WithoutCancel(ctx), cancelMax)
		defer end()
		// If the request does not arrive, the deadline ends it.
		_ = c.Cancel(bound)
		_ = c.SetDeadline(time.Now().Add(graceMax))
	})
	res, notices, err := converse(c, sql)
	if !stop() {
		<-asked
		if err != nil {
			var own *sqlstate.Error
			if !errors.As(err, &own) || own.Code == sqlstate.QueryCanceled {
				err = errors.Join(canceled(ctx.Err()), err)
			}
		}
		_ = c.SetDeadline(time.Time{})
	}
	return res, notices, err
}

func canceled(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return sqlstate.Wrap(err, sqlstate.QueryCanceled, "canceling statement due to statement timeout")
	}
	return sqlstate.Wrap(err, sqlstate.QueryCanceled, "canceling statement due to user request")
}

func converse(c engine.Conn, sql string) (*engine.Result, []*sqlstate.Error, error) {
	if err := c.Send(wire.AppendQuery(nil, sql)); err != nil {
		return nil, nil, err
	}
	r := &reply{}
	for {
		b, err := c.Receive()
		if err != nil {
			return nil, r.notices, err
		}
		for len(b) > 0 {
			f, rest, ok, err := wire.Cut(b)
			if err == nil && !ok {
				err = wire.ErrMalformed
			}
			if err == nil {
				err = r.add(c, f)
			}
			if err != nil {
				return nil, r.notices, err
			}
			b = rest
			if f.Type() != wire.ReadyForQuery {
				continue
			}
			if r.failed != nil {
				return &r.res, r.notices, r.failed
			}
			return &r.res, r.notices, nil
		}
	}
}

// reply is what came of the answer to a query.
type reply struct {
	res     engine.Result
	notices []*sqlstate.Error
	failed  *sqlstate.Error // the first error
}

func (r *reply) add(c engine.Conn, f wire.Frame) error {
	switch f.Type() {
	case wire.DataRow:
		row, err := wire.SplitRow(f.Body(), nil)
		if err != nil {
			return err
		}
		texts := make([]engine.Text, len(row))
		for i, v := range row {
			texts[i] = engine.Text{String: string(v), Null: v == nil}
		}
		r.res.Rows = append(r.res.Rows, texts)
	case wire.CommandComplete:
		if tag, _, ok := wire.CutString(f.Body()); ok {
			r.res.Tag = tag
		}
	case wire.NoticeResponse:
		if len(r.notices) < noticesMax {
			r.notices = append(r.notices, wire.ParseReport(f.Body()))
		}
	case wire.ErrorResponse:
		if r.failed == nil {
			r.failed = wire.ParseReport(f.Body())
		}
	case wire.CopyInResponse:
		return c.Send(wire.AppendCopyFail(nil, "COPY is not expected here"))
	case wire.ReadyForQuery:
		if len(f.Body()) == 1 {
			r.res.Status = f.Body()[0]
		}
	}
	return nil
}

// lost reports whether the conversation is over: anything but an error that the
// shard itself reported.
func lost(err error) bool {
	if err == nil {
		return false
	}
	if engine.Lost(err) != nil {
		return true
	}
	var own *sqlstate.Error
	if !errors.As(err, &own) {
		return true
	}
	return own.Severity == "FATAL" || own.Severity == "PANIC"
}

// onShard makes err an *sqlstate.Error that names the shard.
func onShard(err error, shard string) error {
	if err == nil {
		return nil
	}
	var own *sqlstate.Error
	if errors.As(err, &own) {
		if own.Shard == "" {
			own.Shard = shard
		}
		return own
	}
	if l := engine.Lost(err); l != nil {
		return l.State(false)
	}
	return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the conversation with shard %s broke", shard).OnShard(shard).
		WithHint("cleave doctor says what is wrong with it")
}

// quote makes an SQL string literal.
func quote(s string) string {
	q := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) {
		q = " E" + strings.ReplaceAll(q, `\`, `\\`)
	}
	return q
}

// ident makes an SQL identifier.
func ident(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
