package several

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several/copydata"
	"github.com/cleavedb/cleave/executor/several/explain"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// gather is a job that fetches relations from their shards and runs a text on
// them. All is fetched before the first row of the answer is given, so that
// parts are free then.
type gather struct {
	c       *runner
	e       *execution
	in      inputs
	max     limits.GatherLimits
	rels    []*fetched
	mixed   bool // shards of several engines
	plain   bool // rows travel as text
	values  int  // that relations kept have
	kept    int  // bytes of them
	rows    int64
	bytes   int64
	scratch *scratch
	entered bool
	s       *stream // of the text, if it runs on a part
	snap    *shardmap.Snapshot
}

func (c *runner) startGather(ctx context.Context, e *execution) (job, error) {
	g := &gather{c: c, e: e, in: e.inputs(), max: c.shared.defaults.Gather(c.host.Settings())}
	if err := g.open(ctx); err != nil {
		g.stop()
		return nil, err
	}
	return g, nil
}

// open does everything up to the first row.
func (g *gather) open(ctx context.Context) error {
	g.snap = g.c.host.Snapshot()
	shards := g.snap.Shards()
	for i := range shards {
		g.mixed = g.mixed || shards[i].Engine != shards[0].Engine
		g.plain = g.plain || g.mixed || !shards[i].Can().TypedRelations
	}
	if err := g.fetch(ctx); err != nil {
		return err
	}
	return g.final(ctx)
}

// turn is what one part has to fetch: relations in their order.
type turn struct {
	p    *txn.Participant
	rels []*fetched
	s    *stream // of rels[0]
	// bound are the requests of rels, where all were bound at once; those that were sent are taken away.
	bound []request
	once  bool
}

// fetch brings the relations' rows to the router and on to the scratch
// conversation. Shards work at the same time, each through its relations in order.
func (g *gather) fetch(ctx context.Context) error {
	plan := g.e.st.Plan
	var all []string
	for i := range plan.Relations {
		r := &fetched{r: &plan.Relations[i]}
		var err error
		if r.shards, err = g.shardsOf(r); err != nil {
			return err
		}
		if r.format = r.known(); g.plain {
			r.format = 0
		}
		g.rels = append(g.rels, r)
		all = append(all, r.shards...)
	}
	slices.Sort(all)
	parts, err := g.c.partsOf(ctx, slices.Compact(all), false)
	if err != nil {
		return err
	}
	turns := make([]*turn, len(parts))
	for i, p := range parts {
		turns[i] = &turn{p: p}
		for _, r := range g.rels {
			if slices.Contains(r.shards, p.Shard) {
				turns[i].rels = append(turns[i].rels, r)
			}
		}
		g.together(turns[i])
	}
	if err := g.bindAll(turns); err != nil {
		return err
	}
	for _, t := range turns {
		if err := g.next(t); err != nil {
			return err
		}
	}
	if err := g.c.fits(); err != nil {
		return err
	}
	for _, r := range g.rels {
		if err := g.fetchOne(ctx, r, turns); err != nil {
			return err
		}
	}
	return nil
}

// together sees to it that a part's relations have one snapshot, as one statement has.
func (g *gather) together(t *turn) {
	switch {
	case len(t.rels) < 2:
	case !g.c.Block && !t.p.Begun:
		t.p.Begin = "BEGIN ISOLATION LEVEL REPEATABLE READ"
		if g.c.proof != nil {
			g.c.proof.Own(t.p)
		}
	case g.c.proof != nil && !g.c.Lasting(t.p):
		t.once = true
		for _, r := range t.rels {
			r.format = 0 // nobody may have to ask again
		}
	}
}

// shardsOf are the shards that a relation is read from.
func (g *gather) shardsOf(r *fetched) ([]string, error) {
	if r.r.Target.Where == plan.AnyOne && len(g.c.Joined) > 0 {
		return []string{g.c.Joined[0].Shard}, nil
	}
	return g.c.shardsOf(&r.r.Target, g.snap, g.e.args)
}

// next sends the text of a part's next relation.
func (g *gather) next(t *turn) error {
	t.s = nil
	if len(t.rels) == 0 {
		return nil
	}
	var q request
	switch {
	case len(t.bound) > 0:
		q, t.bound = t.bound[0], t.bound[1:]
	default:
		var err error
		if q, err = g.request(t.p, t.rels[0]); err != nil {
			return err
		}
	}
	s, err := g.c.send(t.p, q)
	t.s = s
	return err
}

// bindAll binds the texts of all relations of each part that is to read them at once.
func (g *gather) bindAll(turns []*turn) error {
	var answers []*stream
	for _, t := range turns {
		if !t.once {
			continue
		}
		for _, r := range t.rels {
			if err := g.foresees(t.p, r); err != nil {
				return err
			}
			q, err := g.request(t.p, r)
			if err != nil {
				return err
			}
			t.bound = append(t.bound, q)
		}
		s, err := g.c.bindAll(t.p, t.bound)
		if err != nil {
			return err
		}
		answers = append(answers, s)
	}
	for _, s := range answers {
		if err := s.take(); err != nil {
			return err
		}
	}
	return nil
}

// foresees finds out in which formats a relation's rows have to come that nobody can ask for again, if the settings may print what
// does not give the values back.
func (g *gather) foresees(p *txn.Participant, r *fetched) error {
	if r.as != nil || unfaithfulIn(g.c.host.Settings()) == (unfaithful{}) {
		return nil
	}
	q, err := g.request(p, r)
	if err == nil {
		err = q.fit()
	}
	if err != nil {
		return err
	}
	d, err := g.c.describeOn(p, q.text, q.oids)
	if err != nil {
		return err
	}
	r.as = carriedAs(0, oidsOf(d.fields))
	return g.c.faithful(p, d.fields, r.as)
}

// request is the request of a relation on a part.
func (g *gather) request(p *txn.Participant, r *fetched) (request, error) {
	text, err := r.r.On(p.Shard, g.c.Maps(p, g.snap)...)
	if err != nil {
		return request{}, err
	}
	q := request{text: text, oids: g.in.typed(text), formats: g.in.formats, values: g.in.values, results: []int16{r.format}, named: g.e.named, alone: g.e.st.Stable, proved: true, step: "relation " + r.r.Name}
	if r.as != nil {
		q.carried, q.results = r.as, r.as.formats(nil)
	}
	return q, nil
}

// fetchOne takes one relation from its shards, a chunk of each in turn.
func (g *gather) fetchOne(ctx context.Context, r *fetched, turns []*turn) error {
	var active []*turn
	for _, t := range turns {
		if len(t.rels) > 0 && t.rels[0] == r {
			active = append(active, t)
		}
	}
	for _, t := range active {
		if err := t.s.head(); err != nil {
			return err
		}
		if r.fields == nil {
			r.fields = wire.ReadFields(t.s.columns)
		}
	}
	if err := r.legible(); err != nil {
		return err
	}
	if err := g.faithful(r, active); err != nil {
		return err
	}
	if r.r.Keyed || r.r.Exact || g.plain {
		if err := g.load(ctx, r); err != nil {
			return err
		}
	}
	if err := g.takeAll(ctx, r, active); err != nil {
		return err
	}
	if r.loaded {
		return g.loadedAll(r)
	}
	return nil
}

// takeAll takes the rows of a relation, a chunk of each shard in turn.
func (g *gather) takeAll(ctx context.Context, r *fetched, active []*turn) error {
	for len(active) > 0 {
		rest := active[:0]
		for _, t := range active {
			b, err := t.s.chunk(0)
			if err != nil {
				return err
			}
			if b != nil {
				if err := g.take(ctx, r, b); err != nil {
					return err
				}
				rest = append(rest, t)
				continue
			}
			t.rels = t.rels[1:]
			if err := g.next(t); err != nil {
				return err
			}
		}
		active = rest
	}
	return nil
}

// faithful asks for a relation again where its rows would not mean the same everywhere in the format that was
// asked for.
func (g *gather) faithful(r *fetched, active []*turn) error {
	unsure := unfaithfulIn(g.c.host.Settings()) != (unfaithful{})
	again := !r.readable()
	if again {
		r.format = 0
	}
	if r.format == 0 && unsure && r.as == nil {
		again, r.as = true, carriedAs(0, oidsOf(r.fields))
	}
	if !again || len(active) == 0 {
		return nil
	}
	for _, t := range active {
		if t.s.stop(); t.s.err != nil && t.p.Begun {
			return refused(t.s.err, false, g.e.st) // its transaction is aborted; 42883: there is no binary form
		}
	}
	if r.format == 0 && unsure {
		if err := g.c.faithful(active[0].p, r.fields, r.as); err != nil {
			return err
		}
	}
	for _, t := range active {
		if err := g.next(t); err != nil {
			return err
		}
	}
	return g.c.fits()
}

// take has some rows of a relation.
func (g *gather) take(ctx context.Context, r *fetched, frames []byte) error {
	if err := context.Cause(g.c.Ctx); err != nil {
		return err
	}
	n := 0
	for at := 0; at < len(frames); n++ {
		at += 1 + int(binary.BigEndian.Uint32(frames[at+1:]))
	}
	r.rows += int64(n)
	r.bytes += int64(len(frames))
	g.rows += int64(n)
	g.bytes += int64(len(frames))
	if err := g.max.Check(g.rows, g.bytes); err != nil {
		return err
	}
	if r.loaded {
		return g.put(r, frames)
	}
	g.values += n * len(r.fields)
	g.kept += len(frames)
	values, bytes := smallValues, smallBytes
	if g.c.Change != nil { // there is no scratch conversation
		values, bytes = ownerValues, ownerBytes
	}
	if g.values > min(values, parametersMax-len(g.in.values)) || g.kept > bytes || r.unfit() {
		return g.spill(ctx, r, frames, n)
	}
	r.kept = append(r.kept, frames...)
	return nil
}

// unfit reports whether rows cannot be parameters: their types have other
// numbers elsewhere, or, as names do, a collation that a column's own would be at odds with.
func (r *fetched) unfit() bool {
	for i := range r.fields {
		if o := r.fields[i].TypeOID; o >= firstUserOID || o == pgoid.Name || o == pgoid.NameArray {
			return true
		}
	}
	return false
}

// spill makes a temporary table of a relation that grew too large.
func (g *gather) spill(ctx context.Context, r *fetched, frames []byte, n int) error {
	g.values -= int(r.rows) * len(r.fields)
	g.kept -= int(r.bytes)
	if err := g.load(ctx, r); err != nil {
		return err
	}
	if err := g.put(r, r.kept); err != nil {
		return err
	}
	r.kept = nil
	return g.put(r, frames)
}

// work makes sure that there is a scratch conversation.
func (g *gather) work(ctx context.Context) error {
	if g.scratch != nil {
		return nil
	}
	var err error
	g.scratch, err = g.c.newScratch(ctx, g.place())
	return err
}

// place is the shard of the scratch conversation: of those that the rows come from each in turn. Of a cluster with several
// engines it is one of PostgreSQL.
func (g *gather) place() string {
	snap := g.c.host.Snapshot()
	if g.e.st.Plan.Target.Where == plan.Default {
		return snap.State().DefaultShard
	}
	var shards []string
	for _, r := range g.rels {
		shards = append(shards, r.shards...)
	}
	name := g.c.Ex.AnyOf(shards)
	if g.mixed && !g.c.Can(name).TypedRelations {
		for _, sh := range snap.Shards() {
			if sh.Can().TypedRelations {
				return sh.Name
			}
		}
	}
	return name
}

// load makes a relation's temporary table and begins to fill it.
func (g *gather) load(ctx context.Context, r *fetched) error {
	if !g.entered {
		if err := g.c.shared.enterGather(ctx); err != nil {
			return err
		}
		g.entered = true
	}
	if err := g.work(ctx); err != nil {
		return err
	}
	if rel := g.scratch.relations; rel != nil {
		r.loaded = true
		cols := make([]engine.RelationColumn, len(r.fields))
		for i, f := range r.fields {
			cols[i] = engine.RelationColumn{Name: f.Name, OID: f.TypeOID, Modifier: f.TypeMod}
		}
		return g.scratch.made(rel.MakeRelation(r.r.Name, cols))
	}
	if err := g.scratch.begin(); err != nil {
		return err
	}
	if err := g.scratch.run("CREATE TEMP TABLE "+r.r.Name+" ON COMMIT DROP AS "+r.r.Text+" WITH NO DATA", g.in); err != nil {
		return err
	}
	r.loaded = true
	copyText := "COPY " + r.r.Name + " FROM STDIN"
	if r.format == 1 {
		copyText += " (FORMAT binary)"
	}
	if err := g.scratch.copyIn(copyText); err != nil {
		return err
	}
	if r.format == 1 {
		return g.scratch.copyData(copyFrame(copydata.Header))
	}
	return nil
}

// put adds rows to the temporary table.
func (g *gather) put(r *fetched, frames []byte) error {
	if len(frames) == 0 {
		return nil
	}
	if rel := g.scratch.relations; rel != nil {
		return g.scratch.made(rel.FillRelation(r.r.Name, frames))
	}
	data, err := r.copied(frames)
	if err != nil {
		return err
	}
	return g.scratch.copyData(data)
}

// loadedAll ends the filling of a temporary table.
func (g *gather) loadedAll(r *fetched) error {
	if g.scratch.relations != nil {
		return g.indexRelation(r)
	}
	if r.format == 1 {
		if err := g.scratch.copyData(copyFrame(copydata.Trailer)); err != nil {
			return err
		}
	}
	if err := g.scratch.copyDone(); err != nil {
		return err
	}
	var after []string
	if r.r.Keyed && r.r.Table != nil {
		key, err := g.scratch.primaryKey(r.r.Table.Schema, r.r.Table.Name)
		if err != nil {
			return err
		}
		if r.has(key) {
			after = append(after, "ALTER TABLE "+r.r.Name+" ADD PRIMARY KEY ("+quoteAll(key)+")")
		}
	}
	if r.rows >= indexRows {
		for _, cols := range r.r.Index {
			if r.has(cols) {
				after = append(after, "CREATE INDEX ON "+r.r.Name+" ("+quoteAll(cols)+")")
			}
		}
		after = append(after, "ANALYZE "+r.r.Name)
	}
	if len(after) == 0 {
		return nil
	}
	return g.scratch.exec(strings.Join(after, ";"))
}

// indexRelation makes the indexes of a relation of an engine that takes relations without a temporary table.
func (g *gather) indexRelation(r *fetched) error {
	for _, cols := range r.r.Index {
		if r.rows >= indexRows && r.has(cols) {
			if err := g.scratch.made(g.scratch.relations.IndexRelation(r.r.Name, cols)); err != nil {
				return err
			}
		}
	}
	return nil
}

func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return strings.Join(quoted, ", ")
}

// primaryKey are the columns of a table's primary key, none if it has none that
// GROUP BY may rely on.
func (s *scratch) primaryKey(schema, table string) ([]string, error) {
	res, err := s.conn.Exec(`SELECT a.attname FROM pg_catalog.pg_constraint c
JOIN pg_catalog.pg_class t ON t.oid = c.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
CROSS JOIN LATERAL pg_catalog.unnest(c.conkey) WITH ORDINALITY k (attnum, place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.attnum
WHERE n.nspname = ` + executor.QuoteLiteral(schema) + ` AND t.relname = ` + executor.QuoteLiteral(table) + ` AND c.contype = 'p' AND NOT c.condeferrable ORDER BY k.place`)
	if err != nil {
		return nil, s.failure(err)
	}
	var key []string
	for _, row := range res.Rows {
		key = append(key, row[0].String)
	}
	return key, nil
}

// final sends the text that reads the relations. Where they are few rows, it runs
// on a part, and they are its parameters.
func (g *gather) final(ctx context.Context) error {
	text, in := g.e.st.Plan.Text, g.in
	in.oids, in.formats, in.values = slices.Clip(in.oids), slices.Clip(in.formats), slices.Clip(in.values)
	var with []string
	for _, r := range g.rels {
		if r.loaded {
			continue
		}
		q, err := r.inline(&in)
		if err != nil {
			return err
		}
		with = append(with, q)
	}
	if len(with) > 0 {
		text = withQueries(with, text)
	}
	var columns []byte
	var err error
	if g.scratch == nil {
		if g.s, err = g.sendPart(ctx, text, in); err != nil {
			return err
		}
		err = g.s.head()
		columns = g.s.columns
	} else {
		if !g.scratch.begun && len(g.scratch.local()) > 0 {
			if err := g.scratch.begin(); err != nil {
				return err
			}
		}
		if err := g.scratch.send(text, in, g.e.results); err != nil {
			return err
		}
		err = g.scratch.head()
		columns = g.scratch.columns
	}
	if err != nil {
		return refused(err, columns != nil, g.e.st)
	}
	if !sameColumns(g.e.desc.fields, wire.ReadFields(columns)) && g.e.desc.columns != nil {
		return sqlstate.Refusal("CLV-0211", "the statement has other result columns when it runs on rows brought together from several shards").
			WithHint("Cast its columns to the types that you need.")
	}
	return nil
}

// sendPart sends the text to a part: any one, but the default shard's where the
// text asks for it.
func (g *gather) sendPart(ctx context.Context, text string, in inputs) (*stream, error) {
	shard := ""
	switch {
	case g.e.st.Plan.Target.Where == plan.Default:
		shard = g.c.host.Snapshot().State().DefaultShard
	case len(g.c.Joined) > 1:
		// Not always the first.
		g.c.portalNo++
		shard = g.c.Joined[g.c.portalNo%len(g.c.Joined)].Shard
	}
	p, err := g.c.Participant(ctx, shard, false)
	if err != nil {
		return nil, err
	}
	q := request{text: text, oids: in.typed(text), formats: in.formats, values: in.values, results: g.e.results, portion: g.e.portion, alone: g.e.st.Stable, step: "text"}
	// The number of rows is a part of the text, so that few of many are the same.
	q.named = g.e.named && len(in.values)-len(g.in.values) <= 64
	return g.c.send(p, q)
}

// withQueries puts WITH queries before those that a text has.
func withQueries(with []string, text string) string {
	list := strings.Join(with, ", ")
	if rest, ok := strings.CutPrefix(text, "WITH RECURSIVE "); ok {
		return "WITH RECURSIVE " + list + ", " + rest
	}
	if rest, ok := strings.CutPrefix(text, "WITH "); ok {
		return "WITH " + list + ", " + rest
	}
	return "WITH " + list + " " + text
}

// refused turns an error about the text itself into a refusal: PostgreSQL took
// the statement as the client wrote it. known says that the text was taken. A table of the statement that is not
// there was dropped meanwhile.
func refused(err error, known bool, st *plan.Statement) error {
	se := sqlstate.As(err)
	if known || len(se.Code) != 5 || se.Code[:2] != "42" {
		return err
	}
	if se.Code == sqlstate.UndefinedTable && slices.ContainsFunc(st.Tables, func(t *shardmap.Table) bool {
		return strings.Contains(se.Message, `"`+t.Name+`"`) || strings.Contains(se.Message, `"`+t.Schema+"."+t.Name+`"`)
	}) {
		return err
	}
	return sqlstate.Refusal("CLV-0212", "the statement cannot be run on rows brought together from several shards: %s", se.Message).
		WithHint("Write it in another way, or fix the shard key.")
}

// step implements job.
func (g *gather) step(out []byte, rows int32) ([]byte, bool, string, error) {
	var b []byte
	var err error
	if g.s != nil {
		b, err = g.s.chunk(rows)
	} else {
		b, err = g.scratch.chunk(rows)
	}
	if err != nil {
		return out, false, "", err
	}
	if b != nil {
		return append(out, b...), false, "", nil
	}
	if g.scratch != nil {
		g.c.Note(explain.Step{Name: "text", Shard: g.scratch.conn.Shard(), Rows: g.scratch.rows, Bytes: g.scratch.bytes, Took: time.Since(g.scratch.sent)})
	}
	g.stop()
	return out, true, "SELECT", nil
}

// stop implements job.
func (g *gather) stop() {
	if g.s != nil {
		g.s.stop()
	}
	if g.scratch != nil {
		g.scratch.close()
		g.scratch = nil
	}
	if g.entered {
		g.entered = false
		g.c.shared.leaveGather()
	}
}

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
