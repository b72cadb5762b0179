package several

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/timeinput"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// timeInputs puts the transaction's time in place of special date/time inputs, among the statement's literals and among its
// parameters: each shard would read them with the time of its own transaction.
//
// Errors: 0A000 if PostgreSQL cannot be asked which literals they are, and the shard's for a text that is no value of its type.
func (c *runner) timeInputs(ctx context.Context, e *execution) error {
	if e.read || e.st.Kind != planner.Several && !c.block {
		return nil
	}
	e.read = true
	t := c.ex.TimeInputs(e.st.Text)
	types, err := c.literalTypes(ctx, e, t)
	if err != nil {
		return err
	}
	params, err := c.paramInputs(ctx, e)
	if err != nil {
		return err
	}
	var list []planner.TimeInput
	var at map[int]int
	if t != nil {
		list, at = t.Inputs(types)
	}
	literals := len(list)
	for _, p := range params {
		list = append(list, p.TimeInput)
	}
	if len(list) == 0 {
		return nil
	}
	values, err := c.inputValues(ctx, list)
	if err != nil {
		return err
	}
	if len(params) > 0 {
		args := *e.args
		args.Values = slices.Clone(args.Values)
		for i, p := range params {
			if v := values[literals+i]; v != "" {
				args.Values[p.at] = []byte(v)
			}
		}
		e.args = &args
	}
	if literals == 0 {
		return nil
	}
	text := t.With(e.st.Text, at, values)
	if e.st.Kind == planner.Several {
		e.st, err = c.ex.PlanSeveral(c, []byte(text), c.host.Settings(), c.host.Snapshot(), c.opt.Owner != nil)
		return err
	}
	e.st, err = c.plan(text)
	return err
}

// literalTypes are the types of a statement's literals, see timeinput.Server.Types.
func (c *runner) literalTypes(ctx context.Context, e *execution, t *planner.TimeInputs) ([]string, error) {
	if t == nil {
		return nil, nil
	}
	prep := c.ex.Prepare(t.Ask, e.desc.params, c.host.Snapshot().SchemaVersion(), c.host.Settings())
	if d := c.shared.get(prep); d != nil {
		return d.inputs, nil
	}
	shard := c.describerOf(e.st)
	if shard == "" {
		shard = c.ownerOf(e.st)
	}
	p, err := c.part(ctx, shard, false)
	if err != nil {
		return nil, err
	}
	types, err := serverOf(c, p).Types(t, e.desc.params)
	if err != nil {
		if !timeinput.About(err) {
			return nil, err
		}
		return nil, timeinput.Refuse(t, err)
	}
	c.shared.put(prep, &description{inputs: types})
	return types, nil
}

// paramInput is a parameter that may be a special input.
type paramInput struct {
	planner.TimeInput
	at int
}

// paramInputs are the parameters in text form that may be special inputs, but for those whose types read no times.
func (c *runner) paramInputs(ctx context.Context, e *execution) (list []paramInput, err error) {
	var oids []uint32 // of those whose types are to be asked for
	for i, v := range e.args.Values {
		if len(v) < 3 || i >= len(e.desc.params) || wire.FormatAt(e.args.Formats, i) != 0 {
			continue
		}
		if alone, inside := planner.MayReadTime(e.desc.params[i]); (alone || inside) && planner.MayBeTimeInput(string(v)) {
			name := planner.TimeTypes[e.desc.params[i]]
			if name == "" {
				oids = append(oids, e.desc.params[i])
			}
			list = append(list, paramInput{TimeInput: planner.TimeInput{Text: string(v), Type: name}, at: i})
		}
	}
	if len(oids) == 0 {
		return list, nil
	}
	p, err := c.part(ctx, c.host.Snapshot().State().DefaultShard, false) // clients see its numbers
	if err != nil {
		return nil, err
	}
	names, err := serverOf(c, p).Named(oids)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Type == "" {
			list[i].Type, names = names[0], names[1:]
		}
	}
	return slices.DeleteFunc(list, func(p paramInput) bool { return p.Type == "" }), nil
}

// inputValues are what inputs say at the transaction's time; "" for one that the shards are to read.
func (c *runner) inputValues(ctx context.Context, list []planner.TimeInput) ([]string, error) {
	now, err := c.clock(ctx)
	if err != nil {
		return nil, err
	}
	p, err := c.part(ctx, c.clockOn, false)
	if err != nil {
		return nil, err
	}
	return serverOf(c, p).Values(list, executor.QuoteLiteral(now)+"::pg_catalog.timestamptz")
}

// ReadInputs is [timeinput.Server.Read] at the transaction's time.
func (c *Conn) ReadInputs(t *planner.TimeInputs, sql string, oids []uint32) (text string, err error) {
	if err := c.enter(); err != nil {
		return "", err
	}
	defer func() {
		if left := c.leave(); err == nil {
			err = left
		}
	}()
	now, err := c.clock(c.ctx)
	if err != nil {
		return "", err
	}
	p, err := c.part(c.ctx, c.clockOn, false)
	if err != nil {
		return "", err
	}
	return serverOf(&c.runner, p).Read(t, sql, oids, executor.QuoteLiteral(now)+"::pg_catalog.timestamptz")
}

// serverOf is the conversation of a part.
func serverOf(c *runner, p *part) *timeinput.Server {
	return &timeinput.Server{Conn: p.conn, Exec: func(sql string) (*engine.Result, error) { return c.exec(p, sql) }, Block: true, Clock: c.can(p.shard).Clock}
}

// evaluate gives the values of expressions in which $1 is the transaction's time, from the shard whose time it
// is. In text times are in ISO form, whatever the settings are. It changes the list.
func (c *runner) evaluate(ctx context.Context, list []string, now string, binary bool) ([][]byte, error) {
	part, err := c.part(ctx, c.clockOn, false)
	if err != nil {
		return nil, err
	}
	q := request{results: []int16{0}}
	q.add(pgoid.Timestamptz, 0, []byte(now))
	for i := range list {
		switch {
		case binary:
			q.results[0] = 1
		case !c.can(part.shard).Styles:
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
