package timeinput

import (
	"encoding/binary"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
)

// Shards without Clock (engine/capability) read no special inputs. Those that are one word, of a type of times, are computed from the time.

// described is Types by the protocol's Describe.
func (s *Server) described(t *planner.TimeInputs, oids []uint32) ([]string, error) {
	p, d := executor.Pipeline{Conn: s.Conn}, &described{}
	p.Unnamed(d, t.Ask, oids, s.Conn.Settings(), false)
	p.DescribeStatement("", true, nil)
	o, err := p.Run(executor.Sync, d)
	switch {
	case err != nil:
		return nil, err
	case o.Err != nil:
		return nil, o.Err
	}
	types := make([]string, max(0, len(d.params)-t.Params))
	for i := range types {
		types[i] = planner.TimeTypes[d.params[t.Params+i]]
	}
	return types, nil
}

// described takes the types of parameters (executor.Sink).
type described struct{ params []uint32 }

// Frames implements [executor.Sink].
func (d *described) Frames(b []byte) error {
	for len(b) >= wire.Header {
		n := 1 + int(binary.BigEndian.Uint32(b[1:]))
		if b[0] == wire.ParameterDescription {
			for at := wire.Header + 2; at+4 <= n; at += 4 {
				d.params = append(d.params, binary.BigEndian.Uint32(b[at:]))
			}
		}
		b = b[n:]
	}
	return nil
}

// Parameter implements [executor.Sink].
func (d *described) Parameter(string, string) {}

// computed is Values by expressions.
func (s *Server) computed(list []planner.TimeInput, now string) ([]string, error) {
	values := make([]string, len(list))
	var columns []string
	var at []int
	for i, in := range list {
		word := strings.ToLower(strings.TrimSpace(in.Text))
		if !planner.TimeWord(word) || word != "now" && strings.HasPrefix(in.Type, "time") && !strings.HasPrefix(in.Type, "timestamp") {
			continue
		}
		columns, at = append(columns, "("+Expr(now, word)+"::"+in.Type+")::text"), append(at, i)
	}
	if len(columns) == 0 {
		return values, nil
	}
	res, err := s.Exec("SELECT " + strings.Join(columns, ", "))
	if err != nil {
		return nil, err
	}
	for i, v := range res.Rows[0] {
		values[at[i]] = v.String
	}
	return values, nil
}

// Expr is what one of the words means, in SQL, now being the time as an expression.
func Expr(now, word string) string {
	switch word {
	case "today":
		return now + "::pg_catalog.date"
	case "tomorrow":
		return "(" + now + "::pg_catalog.date + 1)"
	case "yesterday":
		return "(" + now + "::pg_catalog.date - 1)"
	}
	return now
}
