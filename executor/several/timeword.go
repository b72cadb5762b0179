package several

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/timeinput"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/planner/datetime"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// timeWords puts the transaction's time in place of parameters that are a word for it:
// each shard would read it with the time of its own transaction.
//
// Errors: 0A000 for words inside of something else: beside a time of day, in arrays and ranges.
func (c *runner) timeWords(ctx context.Context, e *execution) error {
	if e.st.Kind != plan.Several && !c.Block {
		return nil
	}
	copied := false
	for i, v := range e.args.Values {
		if len(v) < 3 || i >= len(e.desc.params) || wire.FormatAt(e.args.Formats, i) != 0 {
			continue
		}
		alone, inside := datetime.MayRead(e.desc.params[i])
		if !alone && !inside || !datetime.HasSpecial(string(v)) {
			continue
		}
		if inside && e.desc.params[i] >= firstUserOID {
			if plain, err := c.readsNoTime(ctx, e.desc.params[i]); err != nil {
				return err
			} else if plain {
				continue
			}
		}
		if !alone || !datetime.IsSpecial(string(v)) {
			return sqlstate.Refusal("CLV-0602", "the parameter $%s has a word for the time inside, which each shard could read by its own clock", itoa(i+1)).
				WithHint("Pass the time itself, or a text as $%s::text.", itoa(i+1))
		}
		value, err := c.wordValue(ctx, e.desc.params[i], strings.ToLower(strings.TrimSpace(string(v))))
		if err != nil {
			return err
		}
		if value == nil {
			continue // the shards refuse it
		}
		if !copied {
			copied = true
			args := *e.args
			args.Values = slices.Clone(args.Values)
			e.args = &args
		}
		e.args.Values[i] = value
	}
	return nil
}

// readsNoTime asks the default shard, whose numbers clients see.
func (c *runner) readsNoTime(ctx context.Context, oid uint32) (bool, error) {
	p, err := c.Participant(ctx, c.host.Snapshot().State().DefaultShard, false)
	if err != nil {
		return false, err
	}
	res, err := c.Exec(p, "SELECT typcategory FROM pg_catalog.pg_type WHERE oid = "+itoa(int(oid)))
	if err != nil || len(res.Rows) != 1 {
		return false, err
	}
	return strings.Contains(timeinput.NoTimes, res.Rows[0][0].String), nil
}

// wordValue is what a word means as a value of a type of times; nil if nothing.
func (c *runner) wordValue(ctx context.Context, oid uint32, word string) ([]byte, error) {
	now, err := c.Clock(ctx)
	if err != nil {
		return nil, err
	}
	expr := wordExpr("$1::pg_catalog.timestamptz", word)
	switch oid {
	case pgoid.Timestamptz:
		if word == "now" {
			return []byte(now), nil
		}
		expr += "::pg_catalog.timestamptz"
	case pgoid.Timestamp:
		expr += "::pg_catalog.timestamp"
	case pgoid.Date:
		expr += "::pg_catalog.date"
	case pgoid.Time:
		expr += "::pg_catalog.time"
	case pgoid.Timetz:
		expr += "::pg_catalog.timetz"
	}
	if word != "now" && (oid == pgoid.Time || oid == pgoid.Timetz) {
		return nil, nil
	}
	values, err := c.evaluate(ctx, []string{expr}, now, false)
	if err != nil {
		return nil, err
	}
	return values[0], nil
}

// evaluate gives the values of expressions in which $1 is the transaction's time, from the shard whose time it
// is. In text times are in ISO form, whatever the settings are. It changes the list.
func (c *runner) evaluate(ctx context.Context, list []string, now string, binary bool) ([][]byte, error) {
	part, err := c.Participant(ctx, c.ClockOn, false)
	if err != nil {
		return nil, err
	}
	q := request{results: []int16{0}}
	q.add(pgoid.Timestamptz, 0, []byte(now))
	for i := range list {
		switch {
		case binary:
			q.results[0] = 1
		case !c.Can(part.Shard).Styles:
			list[i] += "::text"
		default:
			list[i] = "pg_catalog.to_jsonb(" + list[i] + ") #>> '{}'" // whatever the DateStyle is
		}
	}
	q.text = "SELECT " + strings.Join(list, ", ")
	s, err := c.send(part, q)
	if err != nil {
		return nil, err
	}
	body, err := s.Next()
	if err != nil {
		return nil, err
	}
	values, err := wire.SplitRow(bytes.Clone(body), nil)
	if err != nil || len(values) != len(list) {
		return nil, sqlstate.Wrap(err, sqlstate.ProtocolViolation, "a shard sent a malformed row")
	}
	_, err = s.Next()
	return values, err
}

// castWord is the refusal of a text that a shard found to have a word for the time, as the text that it ran had it look;
// nil if the error is another one.
func castWord(err *sqlstate.Error) *sqlstate.Error {
	text, ok := planner.CastWord(err.Message)
	if !ok {
		return nil
	}
	return planner.RefuseCastWord(text)
}

// typed plans a statement over several shards with the types of its literals, if they are to be asked for. text is what was planned,
// several that one shard was found not to be enough, and oids are the types of its parameters.
func typed(ctx context.Context, c *runner, st *plan.Statement, text string, several bool, oids []uint32) (*plan.Statement, error) {
	if st.Kind != plan.Several || st.Asks == nil {
		return st, nil
	}
	shard := c.describerOf(st)
	if shard == "" {
		shard = c.ownerOf(st)
	}
	types, err := c.literalTypes(ctx, st.Asks, oids, func() (*txn.Participant, error) {
		if c.Block {
			if err := c.consistent(ctx, &execution{st: st}); err != nil { // a description takes the shard's snapshot
				return nil, err
			}
		}
		return c.Participant(ctx, shard, false)
	})
	if err != nil {
		return nil, err
	}
	answered, err := c.Ex.PlanTyped(c, text, several, types, c.host.Settings(), c.host.Snapshot(), c.Change != nil)
	if err == nil && answered.Asks != nil {
		err = sqlstate.New(sqlstate.InternalError, "the types of literals were not enough for a plan")
	}
	return answered, err
}

// literalTypes are the types that a participant's parse analysis gives the literals of a statement.
func (c *sender) literalTypes(ctx context.Context, q *plan.InputQuestion, oids []uint32, on func() (*txn.Participant, error)) (plan.InputTypes, error) {
	types, err := c.shared.Inputs.Types(q, oids, func(text string, oids []uint32) *executor.Prepared {
		return c.Ex.Prepare(text, oids, c.host.Snapshot().SchemaVersion(), c.host.Settings())
	}, func() (timeinput.Server, error) {
		p, err := on()
		if err != nil {
			return nil, err
		}
		return &inputServer{c, p}, nil
	})
	return plan.InputTypes{Of: q.Of, Types: types}, err
}

// inputServer asks a participant ([timeinput.Server]).
type inputServer struct {
	c *sender
	p *txn.Participant
}

// Exec implements [timeinput.Server].
func (s *inputServer) Exec(sql string) (*engine.Result, error) { return s.c.Exec(s.p, sql) }

// Describe implements [timeinput.Server]. Outside of a transaction nothing is left of a description.
func (s *inputServer) Describe(text string, oids []uint32) ([]uint32, error) {
	c, p := s.c, s.p
	if p.Busy != nil {
		return nil, p.Unread()
	}
	if err := c.number(p, &request{oids: oids}); err != nil {
		return nil, err
	}
	inside := c.Block || p.Begun || len(p.Conn.LocalChanges(c.host.Settings())) > 0
	if inside {
		if _, err := c.Exec(p, "SAVEPOINT cleave_inputs"); err != nil {
			return nil, err
		}
	}
	types, err := timeinput.Describe(p.Conn, text, oids)
	var said *sqlstate.Error
	if err != nil && !(errors.As(err, &said) && engine.Lost(err) == nil && !p.Conn.Broken()) {
		return nil, c.Failure(p, err)
	}
	if inside {
		if _, err := c.Exec(p, "ROLLBACK TO SAVEPOINT cleave_inputs; RELEASE SAVEPOINT cleave_inputs"); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, c.Failure(p, err)
	}
	return types, nil
}

// planSeveral plans a text of which one shard was found not to be enough.
func planSeveral(ctx context.Context, c *runner, text string, oids []uint32) (*plan.Statement, error) {
	st, err := c.Ex.PlanSeveral(c, []byte(text), c.host.Settings(), c.host.Snapshot(), c.Change != nil)
	if err != nil {
		return nil, err
	}
	return typed(ctx, c, st, text, true, oids)
}
