package several

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// PostgreSQL checks a unique key with each row that an UPDATE changes, so that a row
// may not take a key that another one is about to give up (or may, if that one happens
// to be changed first). Rows that move to other shards are deleted before they are
// inserted, and would never meet. An UPDATE in which they might is refused.

// givenUp are the shard keys of the rows that an UPDATE changes.
type givenUp struct {
	types []keyspace.Type
	old   map[string]bool // of all rows
	gone  map[string]bool // of those that leave their shard
	took  []taken
}

// taken is a key that a row gets in place of another one.
type taken struct {
	key   string
	moves bool
}

func (g *givenUp) note(key keyspace.Key, was [][]byte, moves bool) error {
	old := make(keyspace.Key, len(was))
	for i, v := range was {
		var err error
		if old[i], err = keyspace.ParseText(g.types[i], v); err != nil {
			return sqlstate.Wrap(err, sqlstate.ProtocolViolation, "a shard sent a malformed shard key")
		}
	}
	is, before := textOf(key), textOf(old)
	g.old[before] = true
	if moves {
		g.gone[before] = true
	}
	if is != before {
		g.took = append(g.took, taken{is, moves})
	}
	return nil
}

func textOf(k keyspace.Key) string { return strings.Join(k.Texts(), "\x00") }

// reuses reports whether a row that moves meets one that the statement changes, or
// that only seems so because it meets another one: then the insert fails.
func (m *modifying) reuses(ctx context.Context, parts []*txn.Participant, g *givenUp, leaving map[string][]string) (bool, error) {
	v := m.m.Move
	if slices.ContainsFunc(g.took, func(t taken) bool { return !t.moves && g.gone[t.key] }) {
		return false, m.keysReused()
	}
	if !slices.ContainsFunc(g.took, func(t taken) bool { return t.moves && g.old[t.key] }) {
		return false, nil
	}
	look := m.request(&v.Look)
	look.carry(0, nil, columnOIDs(v.Columns, v.Types))
	streams, err := m.sendAll(parts, tuples(look, v.Tuples, leaving))
	if err != nil {
		return false, err
	}
	arriving := map[string][][][]byte{}
	var fields []wire.Field
	var types []string
	for _, s := range streams {
		bodies, err := s.all(m.left)
		if err != nil {
			return false, err
		}
		if fields == nil {
			if fields, types, err = m.rowType(s); err != nil {
				return false, err
			}
		}
		if err := m.byOwner(bodies, arriving); err != nil {
			return false, err
		}
	}
	return m.meets(ctx, arriving, fields, types)
}

// rowType is the columns of a shard's rows, whose texts have to be the same on the shard that reads them.
func (m *modifying) rowType(s *stream) (fields []wire.Field, types []string, err error) {
	fields = wire.ReadFields(s.columns)
	if types, err = m.c.typeNames(s.p, fields); err != nil {
		return nil, nil, err
	}
	return fields, types, m.c.faithful(s.p, fields, s.carried)
}

// meets reports whether rows that come to a shard meet others there.
func (m *modifying) meets(ctx context.Context, arriving map[string][][][]byte, fields []wire.Field, types []string) (bool, error) {
	c, v := m.c, m.m.Move
	for _, s := range c.host.Snapshot().Shards() {
		rows := arriving[s.Name]
		if len(rows) == 0 {
			continue
		}
		p, err := c.Participant(ctx, s.Name, true)
		if err != nil {
			return false, err
		}
		q := m.base.clone()
		q.text = v.Probe.Join(func(int) string { return unnested(&q, rows, len(v.Columns), columnsOf(v.Columns, fields, types)) })
		q.only(q.text)
		if n, err := m.probe(p, q); err != nil || n < int64(len(rows)) {
			return err == nil, err
		}
	}
	return false, nil
}

// byOwner adds rows that move to those that their new shards get.
func (m *modifying) byOwner(bodies [][]byte, arriving map[string][][][]byte) error {
	v := m.m.Move
	for _, b := range bodies {
		vals, err := wire.SplitRow(b, nil)
		if err != nil || len(vals) != len(v.Columns)+len(v.Types) {
			return sqlstate.Wrap(err, sqlstate.ProtocolViolation, "a shard sent a malformed row")
		}
		_, owner, err := m.owner(vals[len(v.Columns):])
		if err != nil {
			return err
		}
		arriving[owner] = append(arriving[owner], vals[:len(v.Columns)])
	}
	return nil
}

// probe counts the rows of a statement whose effects are taken back.
func (m *modifying) probe(p *txn.Participant, q request) (int64, error) {
	if _, err := m.c.Exec(p, "SAVEPOINT cleave_probe"); err != nil {
		return 0, err
	}
	s, err := m.c.send(p, q)
	if err != nil {
		return 0, err
	}
	if _, err := s.all(m.left); err != nil {
		return 0, err
	}
	_, err = m.c.Exec(p, "ROLLBACK TO SAVEPOINT cleave_probe; RELEASE SAVEPOINT cleave_probe")
	return counted(s.tag), err
}

func (m *modifying) keysReused() error {
	return sqlstate.Refusal("CLV-0202", "the UPDATE gives rows of %s on other shards keys that the same statement takes away from others: PostgreSQL's answer depends on which row is changed first", m.m.Table.QualifiedName()).
		WithHint("Change the keys in several statements, by way of keys that no row has.")
}
