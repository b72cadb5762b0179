package several

import (
	"errors"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// oidUnknown is what stands for a type that the default shard does not have.
const oidUnknown = 705

// number gets a request ready for a part, whose OIDs of types may be others than those
// that clients know; see executor/oids.go.
func (c *sender) number(p *txn.Participant, q *request) error {
	if err := numbered(p.Conn, q); err != nil {
		return c.Failure(p, err)
	}
	return nil
}

func numbered(conn *executor.Conn, q *request) error {
	if _, err := conn.OIDs(q.oids, true); err != nil {
		return unnumbered(conn, err)
	}
	values, err := conn.Values(q.oids, q.formats, q.values, true)
	if err != nil {
		return unnumbered(conn, err)
	}
	q.values = values
	return nil
}

func unnumbered(conn *executor.Conn, err error) error {
	if se := new(sqlstate.Error); errors.As(err, &se) {
		return se
	}
	return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the OIDs of types could not be asked for").OnShard(conn.Shard()).
		WithHint("nothing was done: run it again; `cleave doctor` says which shards answer")
}

// copyRows is a query of the columns that a COPY of a table carries, "" if none of them
// could have OIDs inside that differ between shards.
func copyRows(p *planner.CopyPlan, made bool) string {
	if !p.Binary || p.Table == nil {
		return ""
	}
	var names []string
	if made {
		for _, col := range p.MadeFor {
			names = append(names, quote(col.Name))
		}
	}
	numbered := false
	for i := range p.Table.Columns {
		numbered = numbered || executor.MayNumber(p.Table.Columns[i].OID)
		if len(p.Columns) == 0 && !p.Table.Columns[i].Computed {
			names = append(names, quote(p.Table.Columns[i].Name))
		}
	}
	if !numbered {
		return ""
	}
	for _, n := range p.Columns {
		names = append(names, quote(n))
	}
	return "SELECT " + strings.Join(names, ", ") + " FROM ONLY " + quote(p.Table.Schema) + "." + quote(p.Table.Name)
}

// columnsOf finds out which of a query's columns have OIDs inside on a part; nil if
// none has to be translated there.
func (c *sender) columnsOf(p *txn.Participant, text string) (*executor.Columns, error) {
	if text == "" || !p.Conn.Foreign() {
		return nil, nil
	}
	if batched, err := c.Begin(p); err != nil {
		return nil, err
	} else if batched {
		p.Pipe.Begin(c.Ex.Prepare(p.BeginText(), nil, 0, nil))
	} else if err := c.Settle(p); err != nil {
		return nil, err
	}
	values := &executor.Columns{}
	p.Pipe.Unnamed(values, text, nil, p.Conn.Settings(), false)
	p.Pipe.Bind("", "", bindBody(request{results: []int16{1}}), false)
	p.Pipe.LearnColumns("", nil, values)
	o, err := p.Pipe.Run(executor.Sync, &describing{c: c, p: p})
	if err == nil && o.Err != nil {
		err = o.Err
	}
	if err != nil {
		return nil, c.Failure(p, err)
	}
	return values, nil
}

// typesOfRows are the types of a query's columns, as clients number them; nil without a text.
func (c *runner) typesOfRows(p *txn.Participant, text string) ([]uint32, error) {
	if text == "" {
		return nil, nil
	}
	d, err := c.describeOn(p, text, nil)
	if err != nil {
		return nil, err
	}
	types := make([]uint32, len(d.fields))
	for i := range d.fields {
		types[i] = d.fields[i].TypeOID
	}
	return types, nil
}

// renumber translates a row of a COPY in binary for its part, or from it.
func renumber(p *txn.Participant, row []byte, columns *executor.Columns, types []uint32) error {
	err := p.Conn.Row(row, columns, types)
	if err != nil {
		return sqlstate.As(unnumbered(p.Conn, err))
	}
	return nil
}
