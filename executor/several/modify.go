package several

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// startModify runs a statement that changes rows on each shard of its target.
func (c *runner) startModify(ctx context.Context, e *execution) (job, error) {
	m := &modifying{c: c, e: e, m: e.st.Plan.Modify, left: c.shared.defaults.Allowance(c.host.Settings())}
	m.base = e.parameters()
	if m.m.Move != nil {
		m.base.add(pgoid.TIDArray, 0, []byte("{}"))
	}
	if err := m.read(ctx); err != nil {
		return nil, err
	}
	m.snap = c.host.Snapshot()
	shards, err := c.shardsOf(&e.st.Plan.Target, m.snap, e.args)
	if err != nil {
		return nil, err
	}
	if m.m.Split != nil && len(shards) > 0 {
		if shards, err = m.split(shards); err != nil {
			return nil, err
		}
	}
	switch {
	case len(shards) == 0:
		return &answer{tag: finished(e.st, 0)}, nil
	case m.m.Locks != nil:
		return m.lockCopies(ctx, shards)
	case m.m.Reference != nil:
		return m.reference(ctx, shards)
	case m.m.Move != nil:
		return m.move(ctx, shards)
	}
	parts, err := c.partsOf(ctx, shards, e.st.Tag != "SELECT")
	if err != nil {
		return nil, err
	}
	write := m.each(&m.m.Write)
	j := &modified{st: e.st}
	for _, p := range parts {
		q, err := write(p)
		if err != nil {
			return nil, err
		}
		q.results, q.portion = e.results, e.portion
		s, err := c.send(p, q)
		if err != nil {
			return nil, err
		}
		j.streams = append(j.streams, s)
	}
	return j, nil
}

// read reads the rows that the statement is about, and makes the values that routers give.
func (m *modifying) read(ctx context.Context) error {
	for _, st := range m.m.Reads {
		set, err := m.c.collect(ctx, m.e, st, m.left)
		if err != nil {
			return err
		}
		m.sets = append(m.sets, set)
	}
	if m.m.Made == nil {
		return nil
	}
	return m.make(m.m.Made)
}

// apart refuses a statement whose parts, which are run one after the other, are tied
// by foreign keys: PostgreSQL checks those at the end of the whole statement. Where
// what is referred to is inserted first, or what refers deleted first, it is the same.
func (c *runner) apart(ctx context.Context, changes []plan.Change) error {
	if len(changes) == 0 {
		return nil
	}
	shard := c.describer()
	names := make([]string, len(changes))
	for i, w := range changes {
		names[i] = "pg_catalog.to_regclass(" + quoteText(quote(w.Table.Schema)+"."+quote(w.Table.Name)) + ")::pg_catalog.oid"
		if w.Table.Kind == shardmap.Whole {
			shard = c.host.Snapshot().State().DefaultShard
		}
	}
	p, err := c.Participant(ctx, shard, false)
	if err != nil {
		return err
	}
	list := "ARRAY[" + strings.Join(names, ", ") + "]"
	columns := func(of, numbers string) string {
		return "(SELECT pg_catalog.string_agg(attname, ',') FROM pg_catalog.pg_attribute WHERE attrelid = " + of + " AND attnum = ANY (" + numbers + "))"
	}
	res, err := c.Exec(p, "SELECT conname, COALESCE(pg_catalog.array_position("+list+", conrelid), 0)::text, pg_catalog.array_position("+list+", confrelid)::text,"+
		" (confdeltype NOT IN ('a', 'r') OR confupdtype NOT IN ('a', 'r'))::text, "+columns("conrelid", "conkey")+", "+columns("confrelid", "confkey")+
		" FROM pg_catalog.pg_constraint WHERE contype = 'f' AND confrelid = ANY ("+list+")")
	if err != nil {
		return err
	}
	sets := func(w plan.Change, columns string) bool {
		return slices.ContainsFunc(strings.Split(columns, ","), func(n string) bool { return slices.Contains(w.Set, n) })
	}
	for _, r := range res.Rows {
		child, err1 := strconv.Atoi(r[1].String)
		parent, err2 := strconv.Atoi(r[2].String)
		if err1 != nil || err2 != nil || parent < 1 || parent > len(changes) || child > len(changes) {
			return sqlstate.New(sqlstate.InternalError, "the foreign keys of the statement's tables were not understood")
		}
		referred := changes[parent-1]
		free := referred.Op == "INSERT" || referred.Op == "UPDATE" && !sets(referred, r[5].String)
		switch {
		case r[3].String == "true" && !free:
		case child == 0 || child == parent:
			continue
		case free && (referred.Op != "INSERT" || parent < child):
			continue
		default:
			if w := changes[child-1]; w.Op == "DELETE" && child < parent || w.Op == "UPDATE" && !sets(w, r[4].String) {
				continue
			}
		}
		return sqlstate.Refusal("CLV-0306", "the statement changes tables on several shards that the foreign key %s ties together, which is checked when all of its WITH queries have run", quote(r[0].String)).
			WithHint("Run the WITH queries as statements of their own, in one transaction.")
	}
	return nil
}

// modifying is an UPDATE, DELETE or MERGE on several shards, or a write to a
// table that they have in common.
type modifying struct {
	c    *runner
	e    *execution
	m    *plan.ModifyPlan
	left *limits.Allowance
	base request
	sets []*rowset
	snap *shardmap.Snapshot // that said which shards take part
	// owned are the rows of the read Split.Read by their shard; nil without Split.
	owned map[string][][][]byte
}

// make adds the values that the router makes for each row of a read.
func (m *modifying) make(p *plan.MadePlan) error {
	set, own := m.sets[p.Read], len(p.Columns)-len(p.Values)
	if len(set.fields) != own {
		return sqlstate.Refusal("CLV-0305", "the number of columns that the SELECT gives is not certain before it runs").
			WithHint("Name the columns of the INSERT.")
	}
	set.fields, set.types = slices.Clone(set.fields), slices.Clone(set.types)
	for i, col := range p.Columns[:own] {
		set.types[i] = assigned(set.fields[i], set.types[i], col)
	}
	for _, col := range p.Columns[own:] {
		set.fields, set.types = append(set.fields, wire.Field{Name: col.Name, TypeOID: pgoid.Text}), append(set.types, col.Type)
	}
	return m.c.make(set.rows, p.Values)
}

// request is a template with the reads in it.
func (m *modifying) request(t *plan.Template) request {
	q := m.base.clone()
	q.results = nil
	q.text = t.Join(func(n int) string { return m.sets[n].relation(&q) })
	q.named = m.e.named && len(t.At) == 0
	q.only(q.text)
	return q
}

// each returns what gives the request of each part: what the template is there.
func (m *modifying) each(t *plan.Template) func(p *txn.Participant) (request, error) {
	if m.owned != nil {
		return func(p *txn.Participant) (request, error) {
			own, err := t.On(p.Shard, m.c.Maps(p, m.snap)...)
			if err != nil {
				return request{}, err
			}
			m.sets[m.m.Split.Read].rows = m.owned[p.Shard]
			return m.request(own), nil
		}
	}
	common := m.request(t)
	return func(p *txn.Participant) (request, error) {
		own, err := t.On(p.Shard, m.c.Maps(p, m.snap)...)
		if err != nil || own == t {
			return common, err
		}
		return m.request(own), nil
	}
}

// split puts the rows of a MERGE's source with the shards that own their shard key, and returns those
// that the statement runs on, in their order. A row whose key no row of the target can have
// (NULL, a number out of range) is any shard's: what becomes of it there is the same.
func (m *modifying) split(shards []string) ([]string, error) {
	s := m.m.Split
	set := m.sets[s.Read]
	at := make([]int, len(s.Columns))
	for i, name := range s.Columns {
		at[i] = slices.IndexFunc(set.fields, func(f wire.Field) bool { return f.Name == name })
		if at[i] < 0 {
			return nil, sqlstate.New(sqlstate.UndefinedColumn, "column %q of the source of MERGE does not exist", name)
		}
		if !s.Compares(i, set.fields[at[i]].TypeOID) {
			return nil, sqlstate.Refusal("CLV-0307", "MERGE into %s concerns several shards, and column %s of its source has not the type of the shard key", m.m.Table.QualifiedName(), quote(name)).
				WithHint("Let the source have it as %s; a cast, %s::%s, is the same where it changes no value: 2.5::bigint is 3.", s.Types[i].String(), name, s.Types[i].String())
		}
	}
	m.owned = map[string][][][]byte{}
	key := make(keyspace.Key, len(at))
	for _, row := range set.rows {
		shard, possible := shards[0], true
		for i, c := range at {
			if possible = row[c] != nil; !possible {
				break
			}
			var err error
			if key[i], err = keyspace.ParseText(s.Types[i], row[c]); err != nil {
				if sqlstate.CodeOf(err) != sqlstate.NumericOutOfRange {
					return nil, err
				}
				possible = false
				break
			}
		}
		if possible {
			var err error
			if shard, _, err = plan.Owner(m.snap, m.m.Table, key); err != nil && s.Inserts {
				return nil, err
			} else if err != nil {
				shard = shards[0]
			}
		}
		m.owned[shard] = append(m.owned[shard], row)
	}
	if s.All {
		return shards, nil
	}
	return slices.DeleteFunc(slices.Clone(shards), func(shard string) bool { return m.owned[shard] == nil }), nil
}

// modified hands on the rows of RETURNING, and adds up the numbers of rows.
type modified struct {
	st      *plan.Statement
	streams []*stream
	at      int
	total   int64
}

func (j *modified) step(out []byte, rows int32) ([]byte, bool, string, error) {
	for j.at < len(j.streams) {
		s := j.streams[j.at]
		b, err := s.chunk(rows)
		if err != nil {
			return out, false, "", err
		}
		if b != nil {
			return append(out, b...), false, "", nil
		}
		j.total += counted(s.tag)
		j.at++
	}
	return out, true, finished(j.st, j.total), nil
}

func (j *modified) stop() {
	for _, s := range j.streams {
		s.stop()
	}
}

// reference changes every copy of a reference table. The default shard is first:
// transactions that change the same rows wait there, and none holds what another waits for.
func (m *modifying) reference(ctx context.Context, shards []string) (job, error) {
	c, r := m.c, m.m.Reference
	first := m.snap.State().DefaultShard
	shards = slices.DeleteFunc(slices.Clone(shards), func(s string) bool { return s == first })
	hidden := len(r.Columns)
	q := m.request(&m.m.Write)
	q.carry(len(m.e.desc.fields), m.e.results, columnOIDs(r.Columns, nil))
	p, err := c.Participant(ctx, first, true)
	if err != nil {
		return nil, err
	}
	if err := c.unlockCopies(p, m.snap); err != nil {
		return nil, err
	}
	s, err := c.send(p, q)
	if err != nil {
		return nil, err
	}
	rows, err := s.all(m.left)
	if err != nil {
		return nil, err
	}
	j := &answer{tag: s.tag}
	own, err := lastColumns(rows, hidden)
	if err != nil {
		return nil, err
	}
	replay := len(r.Replay.Pieces) > 0
	if replay && hidden > 0 {
		fields := wire.ReadFields(s.columns)
		if err := c.faithful(p, fields[len(fields)-hidden:], s.carried); err != nil {
			return nil, err
		}
	}
	if m.m.Returning {
		if j.rows, err = dataRows(rows, hidden); err != nil {
			return nil, err
		}
	}
	changed := counted(s.tag)
	if replay {
		if changed == 0 {
			return j, nil
		}
		q = m.base.clone()
		column := func(i int) (string, string) { return r.Columns[i].Name, r.Columns[i].Type }
		q.text = r.Replay.Join(func(int) string { return unnested(&q, own, hidden, column) })
		q.only(q.text)
		q.carry(0, nil, columnOIDs(r.Columns, nil))
	}
	parts, err := c.partsOf(ctx, shards, true)
	if err != nil {
		return nil, err
	}
	streams, err := m.sendCopies(parts, q)
	if err != nil {
		return nil, err
	}
	return j, m.sameCopies(streams, own, changed, first)
}

// dataRows are the rows that the client gets, without their hidden columns.
func dataRows(rows [][]byte, hidden int) (frames [][]byte, err error) {
	for _, b := range rows {
		f, err := dataRow(b, hidden)
		if err != nil {
			return nil, err
		}
		frames = append(frames, f)
	}
	return frames, nil
}

// sendCopies sends a change to copies of a reference table.
func (m *modifying) sendCopies(parts []*txn.Participant, q request) (streams []*stream, err error) {
	for _, p := range parts {
		if err := m.c.unlockCopies(p, m.snap); err != nil {
			return nil, err
		}
		s, err := m.c.send(p, q)
		if err != nil {
			return nil, err
		}
		streams = append(streams, s)
	}
	return streams, nil
}

// sameCopies fails if a copy was not changed as the first was: as many rows, which are the same afterwards.
func (m *modifying) sameCopies(streams []*stream, own [][][]byte, changed int64, first string) error {
	hidden := len(m.m.Reference.Columns)
	want := sorted(own)
	for _, s := range streams {
		rows, err := s.all(m.left)
		if err != nil {
			return err
		}
		same := counted(s.tag) == changed
		if same && hidden > 0 {
			theirs, err := lastColumns(rows, hidden)
			if err != nil {
				return err
			}
			same = slices.Equal(want, sorted(theirs))
		}
		if !same {
			e := sqlstate.Refusal("CLV-0308", "the statement does not do the same to the rows of the reference table %s on shard %s as on shard %s", m.m.Table.QualifiedName(), s.p.Shard, first).
				WithHint("If the table's copies differ: cleave doctor --repair; else write the statement so that its result does not depend on the order of rows, on defaults or on triggers.")
			e.Shard = s.p.Shard
			return e
		}
	}
	return nil
}

// unlockCopies tells the guards of a shard's reference tables that the router
// writes to every shard that has them.
func (c *runner) unlockCopies(p *txn.Participant, snap *shardmap.Snapshot) error {
	_, err := c.Exec(p, "SET LOCAL "+engine.EpochSetting+" = '"+strconv.FormatUint(snap.CopiesEpoch(), 10)+"'")
	return err
}

// lastColumns are the last n values of each row.
func lastColumns(bodies [][]byte, n int) ([][][]byte, error) {
	if n == 0 {
		return nil, nil
	}
	out := make([][][]byte, len(bodies))
	for i, b := range bodies {
		vals, err := wire.SplitRow(b, nil)
		if err != nil || len(vals) < n {
			return nil, sqlstate.Wrap(err, sqlstate.ProtocolViolation, "a shard sent a malformed row")
		}
		out[i] = vals[len(vals)-n:]
	}
	return out, nil
}

// sorted are rows as texts in order, so that equal sets of rows are equal.
func sorted(rows [][][]byte) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = string(wire.AppendDataRow(nil, r))
	}
	slices.Sort(out)
	return out
}

// columnsOf names columns for a relation.
func columnsOf(columns []*shardmap.Column, fields []wire.Field, types []string) func(int) (name, typ string) {
	return func(i int) (string, string) { return columns[i].Name, assigned(fields[i], types[i], columns[i]) }
}
