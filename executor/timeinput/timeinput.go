// Package timeinput asks a shard's parse analysis of which types the literals of a statement are that may be special
// date/time inputs ('now', 'today', 'tomorrow', 'yesterday'). docs/design/timeinput.md.
package timeinput

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/datetime"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// NoTimes are the categories of types that read no times: enumerations, strings, numbers and others of pg_type.typcategory.
//
// U, which CREATE TYPE gives what says nothing, is none: a type of times may have it.
const NoTimes = "ESNBGIVX"

// Server is a conversation with a shard.
type Server interface {
	// Describe describes a statement with the unnamed name, and gives the types of its parameters, as the shard numbers them. An
	// error of the shard's leaves the transaction as it was.
	Describe(text string, oids []uint32) ([]uint32, error)
	// Exec runs a query.
	Exec(sql string) (*engine.Result, error)
}

// Answers are what shards said. The zero value is ready; methods are safe for concurrent use.
type Answers struct {
	mu    sync.Mutex
	kept  map[key][]plan.InputType
	bytes int // of the texts of kept
}

// key is a question: what is described, under a schema and settings, and how many of its parameters are the client's.
type key struct {
	prep   *executor.Prepared
	params int
}

// What bounds the answers that are kept; when they are so many, or their texts have so many bytes, all are forgotten.
const (
	keptMax  = 4096
	bytesMax = 16 << 20
)

// Types are the types of the literals that q asks for, in the order of their parameters; none if it cannot be answered. ex makes the
// key under which the answer is kept, of the text and oids, which are the types of the statement's own parameters, 0 where nobody has
// said them. serve is called if a shard is to be asked.
//
// Errors: those of the conversation, not of the text.
func (a *Answers) Types(q *plan.InputQuestion, oids []uint32, prepared func(text string, oids []uint32) *executor.Prepared, serve func() (Server, error)) ([]plan.InputType, error) {
	oids = slices.Clone(oids[:min(len(oids), q.Params)])
	k := key{prepared(q.Text(nil), oids), q.Params}
	a.mu.Lock()
	types, ok := a.kept[k]
	a.mu.Unlock()
	if ok {
		return types, nil
	}
	s, err := serve()
	if err != nil {
		return nil, err
	}
	types, err = Ask(s, q, oids)
	if err != nil {
		return nil, err
	}
	if types == nil { // by this shard, perhaps, or for now
		return nil, nil
	}
	a.keep(k, types)
	return types, nil
}

// keep notes an answer, within the bounds.
func (a *Answers) keep(k key, types []plan.InputType) {
	size := len(k.prep.Text)
	if size > bytesMax {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kept == nil || len(a.kept) >= keptMax || a.bytes+size > bytesMax {
		a.kept, a.bytes = map[key][]plan.InputType{}, 0
	}
	if _, had := a.kept[k]; !had {
		a.bytes += size
	}
	a.kept[k] = types
}

const (
	// literalsMax bounds the parameters of a question: the protocol takes 65,535.
	literalsMax = 65_000
	// textsMax bounds how often a shard is asked again.
	textsMax = 100
)

// Ask asks a shard. What nothing gives a type (concat($1)) is a text where it is a literal, and an error where it is a parameter: the
// shard is asked again, with the literal. No types: the question has an error that the statement may not have.
func Ask(s Server, q *plan.InputQuestion, oids []uint32) ([]plan.InputType, error) {
	if q.Params+q.Literals > literalsMax {
		return nil, nil
	}
	texts := map[int]bool{}
	for {
		got, err := s.Describe(q.Text(texts), oids)
		var said *sqlstate.Error
		switch {
		case err == nil:
			return named(s, q, got, texts)
		case !errors.As(err, &said) || !about(said.Code):
			return nil, err
		case said.Code != sqlstate.IndeterminateDatatype || len(texts) == textsMax:
			return nil, nil
		}
		n := parameterIn(said.Message)
		if n <= q.Params || n > q.Params+q.Literals || texts[n] {
			return nil, nil
		}
		texts[n] = true
		for len(oids) < n {
			oids = append(oids, 0)
		}
		oids[n-1] = pgoid.Text // the text no longer names it
	}
}

// about reports whether an error's code says something of a text: its syntax, its names and types, its values or its size.
func about(code sqlstate.Code) bool {
	switch string(code)[:min(2, len(code))] {
	case "42", "22", "0A", "54":
		return true
	}
	return false
}

// parameterIn is the number of the parameter that an error's message names, in any language; 0 if there is none.
func parameterIn(message string) int {
	_, rest, _ := strings.Cut(message, "$")
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(rest[:end])
	if err != nil {
		return 0
	}
	return n
}

// named are the types of the literals, of which it asks for those that may have times inside.
func named(s Server, q *plan.InputQuestion, got []uint32, texts map[int]bool) ([]plan.InputType, error) {
	types := make([]plan.InputType, q.Literals)
	var unsure []string
	for i := range types {
		n := q.Params + i + 1
		switch {
		case texts[n]:
			types[i].OID = pgoid.Text
		case n <= len(got):
			types[i].OID = got[n-1]
			if _, inside := datetime.MayRead(got[n-1]); inside && got[n-1] != 0 {
				unsure = append(unsure, strconv.FormatUint(uint64(got[n-1]), 10))
			}
		}
	}
	if len(unsure) == 0 {
		return types, nil
	}
	slices.Sort(unsure)
	unsure = slices.Compact(unsure)
	res, err := s.Exec("SELECT oid, typcategory, pg_catalog.format_type(oid, NULL) FROM pg_catalog.pg_type WHERE oid IN (" + strings.Join(unsure, ", ") + ")")
	if err != nil {
		return nil, err
	}
	if len(res.Rows) < len(unsure) {
		return nil, nil // dropped meanwhile
	}
	for _, row := range res.Rows {
		for i := range types {
			switch {
			case strconv.FormatUint(uint64(types[i].OID), 10) != row[0].String:
			case strings.Contains(NoTimes, row[1].String):
				types[i] = plan.InputType{OID: pgoid.Text}
			default:
				types[i].Name = row[2].String
			}
		}
	}
	return types, nil
}

// Describe is what a [Server] does with a conversation that has nothing under way.
func Describe(c *executor.Conn, text string, oids []uint32) ([]uint32, error) {
	p, d := executor.Pipeline{Conn: c, Inner: true}, &described{}
	p.Unnamed(d, text, oids, c.Settings(), false)
	p.DescribeStatement("", true, nil)
	o, err := p.Run(executor.Sync, d)
	if err == nil && o.Err != nil {
		err = o.Err
	}
	return d.params, err
}

// described takes the types of parameters ([executor.Sink]).
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
