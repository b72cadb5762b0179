package several

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
)

// clocked returns the execution with one more parameter: the time at which the
// transaction began (Plan.Clock).
func (c *sender) clocked(ctx context.Context, e *execution) (*execution, error) {
	now, err := c.Clock(ctx)
	if err != nil {
		return nil, err
	}
	in := e.inputs()
	in.add(pgoid.Timestamptz, 0, []byte(now))
	next, desc, args := *e, *e.desc, *e.args
	desc.params = append(slices.Clone(e.desc.params), make([]uint32, len(in.oids)-len(e.desc.params))...)
	desc.params[len(desc.params)-1] = pgoid.Timestamptz
	args.Formats, args.Values = in.formats, in.values
	next.desc, next.args = &desc, &args
	return &next, nil
}

// inputs are the parameters of a gather's texts.
type inputs struct {
	oids    []uint32
	formats []int16 // one each
	values  [][]byte
}

// inputs returns the parameters of an execution.
func (e *execution) inputs() inputs {
	in := inputs{oids: append([]uint32(nil), e.desc.params...)}
	for i, v := range e.args.Values {
		in.values = append(in.values, v)
		in.formats = append(in.formats, wire.FormatAt(e.args.Formats, i))
	}
	for len(in.oids) < len(in.values) {
		in.oids = append(in.oids, 0)
	}
	return in
}

// typed are the types of the parameters for a text. One without a type that the
// text does not use would be an error.
func (in inputs) typed(text string) []uint32 {
	oids := in.oids
	for i, o := range oids {
		if o == 0 && !usesParam(text, i+1) {
			if &oids[0] == &in.oids[0] {
				oids = append([]uint32(nil), oids...)
			}
			oids[i] = pgoid.Text
		}
	}
	return oids
}

// usesParam reports whether a text may use a parameter: a string that looks like
// one counts as well.
func usesParam(text string, n int) bool {
	mark := "$" + itoa(n)
	for at := 0; ; {
		i := strings.Index(text[at:], mark)
		if i < 0 {
			return false
		}
		at += i + len(mark)
		if at == len(text) || text[at] < '0' || text[at] > '9' {
			return true
		}
	}
}

// with returns the inputs and one more.
func (in *inputs) add(oid uint32, format int16, value []byte) {
	in.oids = append(in.oids, oid)
	in.formats = append(in.formats, format)
	in.values = append(in.values, value)
}
