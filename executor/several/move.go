package several

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// move carries out an UPDATE of a shard key. The rows are locked first, as an
// UPDATE locks them; then it is known which of them leave their shard. Those are
// deleted there and inserted where they belong; the others are updated.
func (m *modifying) move(ctx context.Context, shards []string) (job, error) {
	c, v := m.c, m.m.Move
	parts, err := c.partsOf(ctx, shards, true)
	if err != nil {
		return nil, err
	}
	lock := m.each(&v.Lock)
	var streams []*stream
	for _, p := range parts {
		q, err := lock(p)
		if err != nil {
			return nil, err
		}
		q.carry(1, nil, columnOIDs(nil, append(slices.Clone(v.Types), v.Types...)))
		s, err := c.send(p, q)
		if err != nil {
			return nil, err
		}
		streams = append(streams, s)
	}
	leaving, staying := map[string][]string{}, map[string][]string{}
	given := &givenUp{types: v.Types, old: map[string]bool{}, gone: map[string]bool{}}
	moves := false
	for _, s := range streams {
		bodies, err := s.all(m.left)
		if err != nil {
			return nil, err
		}
		at := map[string]string{} // the new owner by ctid
		for _, b := range bodies {
			vals, err := wire.SplitRow(b, nil)
			if err != nil || len(vals) != 1+2*len(v.Types) {
				return nil, sqlstate.Wrap(err, sqlstate.ProtocolViolation, "a shard sent a malformed row")
			}
			key, owner, err := m.owner(vals[1 : 1+len(v.Types)])
			if err != nil {
				return nil, err
			}
			if err := given.note(key, vals[1+len(v.Types):], owner != s.p.Shard); err != nil {
				return nil, err
			}
			tid := string(vals[0])
			if was, twice := at[tid]; twice {
				if was != owner {
					return nil, sqlstate.Refusal("CLV-0301", "a row of %s matches several rows of FROM, which give it shard keys on different shards", m.m.Table.QualifiedName()).
						WithHint("Make the match unique.")
				}
				continue
			}
			at[tid] = owner
			if owner == s.p.Shard {
				staying[owner] = append(staying[owner], tid)
			} else {
				leaving[s.p.Shard] = append(leaving[s.p.Shard], tid)
				moves = true
			}
		}
	}
	if len(leaving)+len(staying) == 0 && len(parts) > 0 {
		staying[parts[0].Shard] = []string{"(0,0)"} // no row: triggers of the statement run nevertheless
	}
	j := &answer{}
	total := int64(0)
	if moves {
		if v.Joined {
			return nil, sqlstate.Refusal("CLV-0302", "rows would change their shard, and RETURNING names other tables").
				WithHint("Leave RETURNING out, or read the rows afterwards.")
		}
		if err := m.mayMove(ctx); err != nil {
			return nil, err
		}
	}
	reused := false
	if moves {
		if reused, err = m.reuses(ctx, parts, given, leaving); err != nil {
			return nil, err
		}
	}
	// Rows leave before others come, so that they are not in each other's way.
	arriving := map[string][][][]byte{}
	take := m.request(&v.Take)
	take.carry(0, nil, columnOIDs(v.Columns, v.Types))
	streams, err = m.sendAll(parts, tuples(take, v.Tuples, leaving))
	if err != nil {
		return nil, err
	}
	var fields []wire.Field
	var types []string
	for _, s := range streams {
		bodies, err := s.all(m.left)
		if err != nil {
			return nil, err
		}
		if fields == nil {
			fields = wire.ReadFields(s.columns)
			if types, err = c.typeNames(s.p, fields); err != nil {
				return nil, err
			}
			if err := c.faithful(s.p, fields, s.carried); err != nil {
				return nil, err
			}
		}
		for _, b := range bodies {
			vals, err := wire.SplitRow(b, nil)
			if err != nil || len(vals) != len(v.Columns)+len(v.Types) {
				return nil, sqlstate.Wrap(err, sqlstate.ProtocolViolation, "a shard sent a malformed row")
			}
			_, owner, err := m.owner(vals[len(v.Columns):])
			if err != nil {
				return nil, err
			}
			arriving[owner] = append(arriving[owner], vals[:len(v.Columns)])
		}
	}
	stay := m.request(&v.Stay)
	stay.results = m.e.results
	streams, err = m.sendAll(parts, tuples(stay, v.Tuples, staying))
	if err != nil {
		return nil, err
	}
	if total, err = m.take(j, streams, total); err != nil {
		return nil, err
	}
	if len(arriving) > 0 {
		var owners []string
		for _, s := range c.host.Snapshot().Shards() {
			if len(arriving[s.Name]) > 0 {
				owners = append(owners, s.Name)
			}
		}
		to, err := c.partsOf(ctx, owners, true)
		if err != nil {
			return nil, err
		}
		streams, err = m.sendAll(to, func(p *txn.Participant) (request, bool) {
			q := m.base.clone()
			q.text = v.Put.Join(func(n int) string {
				if n < len(m.sets) {
					return m.sets[n].relation(&q)
				}
				return unnested(&q, arriving[p.Shard], len(v.Columns), columnsOf(v.Columns, fields, types))
			})
			q.only(q.text)
			q.results = m.e.results
			return q, true
		})
		if err != nil {
			return nil, err
		}
		if total, err = m.take(j, streams, total); err != nil {
			return nil, err
		}
	}
	if reused {
		return nil, m.keysReused()
	}
	j.tag = finished(m.e.st, total)
	return j, nil
}

// tuples is a request for those shards that have rows, with their places.
func tuples(q request, number int, rows map[string][]string) func(*txn.Participant) (request, bool) {
	return func(p *txn.Participant) (request, bool) {
		list := rows[p.Shard]
		if len(list) == 0 {
			return q, false
		}
		mine := q.clone()
		mine.values[number-1] = []byte(`{"` + strings.Join(list, `","`) + `"}`)
		return mine, true
	}
}

// sendAll sends to the parts that have something to do.
func (m *modifying) sendAll(parts []*txn.Participant, to func(*txn.Participant) (request, bool)) ([]*stream, error) {
	var streams []*stream
	for _, p := range parts {
		q, ok := to(p)
		if !ok {
			continue
		}
		s, err := m.c.send(p, q)
		if err != nil {
			return nil, err
		}
		streams = append(streams, s)
	}
	return streams, nil
}

// take adds rows and numbers of rows to the answer.
func (m *modifying) take(j *answer, streams []*stream, total int64) (int64, error) {
	for _, s := range streams {
		bodies, err := s.all(m.left)
		if err != nil {
			return 0, err
		}
		total += counted(s.tag)
		for _, b := range bodies {
			f, err := dataRow(b, 0)
			if err != nil {
				return 0, err
			}
			j.rows = append(j.rows, f)
		}
	}
	return total, nil
}

// owner is a new shard key, as it will be stored, and its shard.
func (m *modifying) owner(values [][]byte) (keyspace.Key, string, error) {
	v := m.m.Move
	key := make(keyspace.Key, len(values))
	for i := range values {
		var err error
		if key[i], err = plan.StoredKey(m.m.Table, i, &v.Keys[i], values[i]); err != nil {
			return nil, "", err
		}
	}
	owner, _, err := plan.Owner(m.c.host.Snapshot(), m.m.Table, key)
	return key, owner, err
}

// mayMove refuses to delete and insert rows where an UPDATE would do something
// else: foreign keys that act on DELETE or UPDATE, and triggers of the user's.
func (m *modifying) mayMove(ctx context.Context) error {
	c, t := m.c, m.m.Table
	p, err := c.Participant(ctx, c.describer(), false)
	if err != nil {
		return err
	}
	table := executor.QuoteLiteral(quote(t.Schema)+"."+quote(t.Name)) + "::pg_catalog.regclass"
	res, err := c.Exec(p, "SELECT 'foreign key', conname FROM pg_catalog.pg_constraint WHERE contype = 'f' AND confrelid = "+table+
		" AND (confdeltype NOT IN ('a', 'r') OR confupdtype NOT IN ('a', 'r'))"+
		" UNION ALL SELECT 'trigger', tgname FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc f ON f.oid = t.tgfoid JOIN pg_catalog.pg_namespace n ON n.oid = f.pronamespace"+
		" WHERE tgrelid = "+table+" AND NOT tgisinternal AND n.nspname <> 'cleave_internal'"+
		" UNION ALL SELECT 'rule', rulename FROM pg_catalog.pg_rewrite WHERE ev_class = "+table)
	if err != nil {
		return err
	}
	if len(res.Rows) > 0 {
		what, name := res.Rows[0][0].String, res.Rows[0][1].String
		return sqlstate.Refusal("CLV-0303", "the UPDATE would move rows of %s to other shards, where they are inserted anew, and %s %s could tell that from an UPDATE", t.QualifiedName(), what, quote(name)).
			WithHint("Delete the rows and insert them with the new key, in one transaction.")
	}
	return nil
}

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
