package several

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
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
		alone, inside := planner.MayReadTime(e.desc.params[i])
		if !alone && !inside || !planner.HasTimeWord(string(v)) {
			continue
		}
		if inside && e.desc.params[i] >= firstUserOID {
			if plain, err := c.readsNoTime(ctx, e.desc.params[i]); err != nil {
				return err
			} else if plain {
				continue
			}
		}
		if !alone || !planner.TimeWord(string(v)) {
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

// noTimes are the categories of types that read no times: enumerations, strings, numbers and others of pg_type.typcategory.
const noTimes = "ESUNBGIVX"

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
	return strings.Contains(noTimes, res.Rows[0][0].String), nil
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
