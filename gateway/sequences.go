package gateway

import (
	"cmp"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/ids"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// idSource makes the values that statements leave to the router (plan.Fill).
// The sessions of one router share it.
type idSource struct {
	next      *ids.Generator
	sequences *ids.Sequences
	records   shardmap.Records
}

func newIDSource(ex *executor.Executor) *idSource {
	if ex == nil {
		return &idSource{next: ids.NewGenerator(ids.GeneratorOptions{}), sequences: ids.NewSequences(nil)}
	}
	var records shardmap.Records = ex.Directory()
	// Without a lease the number is a guess: the records keep two processes that
	// guess the same one apart.
	guess := uint16(rand.Uint32N(1 << 10))
	return &idSource{
		records:   records,
		sequences: ids.NewSequences(records),
		next: ids.NewGenerator(ids.GeneratorOptions{Records: records, Node: func() uint16 {
			if l, ok := any(ex).(interface{ Lease() *shardmap.Lease }); ok && l.Lease() != nil {
				return l.Lease().Node()
			}
			return guess
		}}),
	}
}

// release gives back what was taken and not given, when no session is left.
func (s *idSource) release() {
	ctx, stop := timeLeft()
	defer stop()
	s.sequences.Release(ctx)
}

// sessionSequences is what a session remembers of sequences: currval and lastval.
type sessionSequences struct {
	current map[string]int64 // by life of the sequence, see lifeOf
	last    string           // whose value lastval is; "" if none
	// elsewhere: a statement since may have taken a value from a sequence of the
	// default shard's own, which lastval would have to give. before: so may one before.
	elsewhere, before bool
}

// currentMax bounds the sequences that one session remembers.
const currentMax = 10_000

// lifeOf is the part of a sequence's ID that RESTART leaves as it is.
func lifeOf(q *shardmap.Sequence) string { return q.ID[:min(len(q.ID), 36)] }

func (s *sessionSequences) took(q *shardmap.Sequence, v int64) {
	life := lifeOf(q)
	if s.current == nil || len(s.current) >= currentMax {
		s.current = map[string]int64{}
	}
	s.current[life], s.last, s.before, s.elsewhere = v, life, s.before || s.elsewhere, false
}

// evaluate returns the values of a statement as text. args are the client's own
// parameters, which setval may need.
func (x *prepared) evaluate(f *plan.Fill, args *plan.Args) ([][]byte, error) {
	ctx, done := x.interrupts.waiting()
	defer done()
	out := make([][]byte, len(f.Values))
	signals := 0
	for i := 0; i < len(f.Values); {
		if v := &f.Values[i]; v.Source == plan.SourceSetvals || v.NameParam > 0 {
			var err error
			if v.NameParam > 0 {
				out[i], err = x.ofNamed(v, args)
			} else {
				out[i], err = x.setvals(ctx, v)
			}
			if err != nil {
				return nil, userCancel(err)
			}
			i++
			continue
		}
		if f.Values[i].Asks != "" {
			signals++
			i++
			continue
		}
		n, err := x.evaluateRun(ctx, f.Values[i:], out[i:], args)
		if err != nil {
			return nil, userCancel(err)
		}
		i += n
	}
	if signals == 0 {
		return out, nil
	}
	others := make([][]byte, 0, len(out)-signals)
	for i := range f.Values {
		if f.Values[i].Asks == "" {
			others = append(others, out[i])
		}
	}
	for i := range f.Values {
		if v := &f.Values[i]; v.Asks != "" {
			var err error
			if out[i], err = x.signals(v, args, others); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// evaluateRun evaluates the first value and those after it that come from the
// same source, and returns how many they are: rows of one INSERT take one block.
func (x *prepared) evaluateRun(ctx context.Context, list []plan.FillValue, out [][]byte, args *plan.Args) (int, error) {
	v, src := &list[0], x.srv.ids
	n := 1
	for n < len(list) && list[n].Source == v.Source && list[n].Sequence == v.Sequence {
		n++
	}
	var err error
	numbers := make([]int64, 0, n)
	switch v.Source {
	case shardmap.NextID:
		numbers, err = src.next.Next(ctx, numbers, n)
	case "nextval":
		if err = x.mayWrite("nextval()"); err != nil {
			return 0, err
		}
		if numbers, err = src.sequences.Next(ctx, v.Sequence, numbers, n); len(numbers) > 0 {
			x.sequences.took(v.Sequence, numbers[len(numbers)-1])
		}
	case "currval":
		at, ok := x.sequences.current[lifeOf(v.Sequence)]
		if !ok {
			return 0, sqlstate.New(sqlstate.ObjectNotInState, "currval of sequence \"%s\" is not yet defined in this session", v.Sequence.Name)
		}
		numbers, n = append(numbers, at), 1
	case "lastval":
		at, ok := x.sequences.current[x.sequences.last]
		ok = ok && slices.ContainsFunc(x.srv.ex.Snapshot().State().Sequences, func(q shardmap.Sequence) bool { return lifeOf(&q) == x.sequences.last })
		switch {
		case (x.sequences.elsewhere || x.sequences.last == "") && !plainDefault(x.srv.ex):
			if at, err = x.lastOwn(at, ok); err == nil {
				numbers, n = append(numbers, at), 1
			}
		case !ok:
			return 0, errNoLastval()
		default:
			numbers, n = append(numbers, at), 1
		}
	case "setval":
		if err = x.mayWrite("setval()"); err != nil {
			return 0, err
		}
		at := v.Value
		if v.ValueParam > 0 {
			var null bool
			if at, null, err = intArg(args, v.ValueParam); null {
				return 1, nil // it is strict: NULL, and nothing is set
			}
		}
		if err == nil {
			x.unit.effects = true
			err = x.setval(ctx, v.Sequence, at, v.Called)
		}
		numbers, n = append(numbers, at), 1
	case shardmap.UUIDv7, shardmap.UUIDv4:
		for i := range n {
			var u string
			if v.Source == shardmap.UUIDv7 {
				u, err = ids.UUIDv7()
			} else {
				u, err = ids.UUIDv4()
			}
			out[i] = []byte(u)
		}
		return n, err
	case plan.SourceExport:
		out[0], err = exportSnapshot(&x.unitRun)
		return 1, err
	default:
		if plan.SessionCalls[v.Source] != "" {
			for i := range n {
				out[i] = ofSession(v.Source, x.pid, x.start.Remote, x.nc.LocalAddr())
			}
			return n, nil
		}
		if v.Type() == "json" {
			out[0], err = x.sessionJSON(v.Source)
			return 1, err
		}
		return 0, sqlstate.New(sqlstate.InternalError, "no way to make a value of %q", v.Source)
	}
	if err != nil {
		return 0, err
	}
	for i, number := range numbers {
		out[i] = strconv.AppendInt(nil, number, 10)
	}
	return n, nil
}

// setval sets a sequence.
func (x *prepared) setval(ctx context.Context, q *shardmap.Sequence, at int64, called bool) error {
	if err := x.srv.ids.sequences.Set(ctx, q, at, called); err != nil || !called {
		return err
	}
	x.sequences.was(q, at)
	return nil
}

// was notes what currval() of a sequence is.
func (s *sessionSequences) was(q *shardmap.Sequence, at int64) {
	if _, known := s.current[lifeOf(q)]; known || len(s.current) < currentMax {
		if s.current == nil {
			s.current = map[string]int64{}
		}
		s.current[lifeOf(q)] = at
	}
}

// setvals sets a sequence once for each row of a query, and returns the array of what it was set to. A row with a NULL
// gives NULL and sets nothing. Nobody sees between the rows: only the last value is stored, or the one before an error.
func (x *prepared) setvals(ctx context.Context, v *plan.FillValue) ([]byte, error) {
	rows, types, err := x.askWithin(v.Asks)
	if err != nil {
		return nil, inText(err, v.Asks, "")
	}
	if !takesSetval(types) {
		return nil, sqlstate.New(sqlstate.UndefinedFunction, "setval() takes a bigint and a boolean").WithHint("cast the arguments: setval('name', max(id)::bigint, true)")
	}
	out := []byte{'{'}
	var last, current *setting
	set := func() error { // the last of them, for all
		if last == nil {
			return nil
		}
		x.unit.effects = true
		if err := x.setval(ctx, v.Sequence, last.at, last.called); err != nil || current == nil {
			return err
		}
		x.sequences.was(v.Sequence, current.at)
		return nil
	}
	for i, row := range rows {
		if i > 0 {
			out = append(out, ',')
		}
		next, err := settingOf(row)
		if err != nil {
			return nil, err
		}
		if next == nil {
			out = append(out, "NULL"...)
			continue
		}
		if err := x.mayWrite("setval()"); err != nil {
			return nil, err
		}
		if next.at < v.Sequence.Min || next.at > v.Sequence.Max {
			return nil, cmp.Or(set(), x.setval(ctx, v.Sequence, next.at, next.called))
		}
		if last = next; next.called {
			current = next
		}
		out = strconv.AppendInt(out, next.at, 10)
	}
	return append(out, '}'), set()
}

// takesSetval reports whether setval() takes arguments of the types, without a cast that has to be written.
func takesSetval(types []uint32) bool {
	return slices.Contains([]uint32{pgoid.Int8, pgoid.Int4, pgoid.Int2}, types[0]) && (len(types) == 1 || types[1] == pgoid.Bool)
}

// setting is what one setval() does to a sequence.
type setting struct {
	at     int64
	called bool
}

// settingOf reads the arguments of a setval(), nil if one is NULL.
func settingOf(row [][]byte) (*setting, error) {
	if slices.ContainsFunc(row, func(b []byte) bool { return b == nil }) {
		return nil, nil
	}
	at, err := strconv.ParseInt(string(row[0]), 10, 64)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.InternalError, "%q is no number", row[0])
	}
	return &setting{at, len(row) == 1 || string(row[1]) == "t"}, nil
}

// ofNamed is the value of nextval() or currval() of the sequence that a parameter names, which is asked for as the client could
// have asked for it. nil is NULL.
func (x *prepared) ofNamed(v *plan.FillValue, args *plan.Args) ([]byte, error) {
	raw, oid, format, ok := args.Param(v.NameParam)
	if !ok {
		return nil, sqlstate.New(sqlstate.UndefinedParameter, "there is no parameter $%d", v.NameParam)
	}
	if raw == nil {
		return nil, nil
	}
	name := string(raw)
	text := oid == 0 || slices.Contains([]uint32{pgoid.Text, pgoid.Varchar, pgoid.Unknown, pgoid.Name}, oid) || oid == pgoid.Regclass && format == 0
	if !text || strings.Trim(name, "0123456789 ") == "" {
		return nil, sqlstate.Refusal("CLV-1312", "a parameter that names a sequence by a number is not supported: a sequence of the cluster has none").
			WithHint("Give the name as a text.")
	}
	rows, _, err := x.askWithin("SELECT pg_catalog." + v.Source + "(" + executor.QuoteLiteral(name) + ")")
	if err != nil {
		return nil, err
	}
	if len(rows) != 1 || len(rows[0]) != 1 {
		return nil, sqlstate.New(sqlstate.InternalError, "%s() gave %d rows", v.Source, len(rows))
	}
	return rows[0][0], nil
}

// askWithin runs a query without parameters in the open transaction, or in one that the messages up to Sync become, and
// returns its rows as texts with the columns' types.
func (x *prepared) askWithin(text string) (rows [][][]byte, types []uint32, err error) {
	was := x.args
	defer func() { x.args = was }()
	if err := x.inTransaction(); err != nil {
		return nil, nil, err
	}
	if err := x.drain(); err != nil {
		return nil, nil, err
	}
	st, err := x.plan([]byte(text))
	if err != nil {
		return nil, nil, err
	}
	if !runsWithin(st) {
		return nil, nil, sqlstate.Refusal("CLV-1313", "the router cannot read the arguments of nextval(), currval() or setval() from this query").
			WithHint("Read them in a statement of its own, and pass them.")
	}
	out, err := x.within(st, true)
	if err != nil {
		return nil, nil, err
	}
	rows, types, err = textsOf(out)
	if err == nil && len(types) == 0 {
		err = sqlstate.New(sqlstate.InternalError, "a query gives no columns")
	}
	return rows, types, err
}

// textsOf are the rows of an answer in the text format, and the types of its columns.
func textsOf(answer []byte) (rows [][][]byte, types []uint32, err error) {
	frames(answer, func(typ byte, body []byte) {
		switch {
		case typ == wire.RowDescription:
			for _, f := range wire.ReadFields(body) {
				types = append(types, f.TypeOID)
			}
		case typ == wire.DataRow && err == nil:
			var row [][]byte
			row, err = wire.SplitRow(append([]byte(nil), body...), nil)
			rows = append(rows, row)
		}
	})
	return rows, types, err
}

// mayWrite refuses in a read-only transaction what no shard refuses there.
func (x *prepared) mayWrite(what string) error {
	readOnly := x.tx.readOnly()
	if v, ok := x.gucs.Settings.Get("default_transaction_read_only"); ok && !settings.HasModes(x.tx.begin()) {
		readOnly = readOnly || settings.IsOn(v)
	}
	if readOnly {
		return sqlstate.New(sqlstate.ReadOnlyTransaction, "cannot execute %s in a read-only transaction", what)
	}
	return nil
}

// plainDefault reports whether the default shard has no sequences of its own.
func plainDefault(ex *executor.Executor) bool {
	snap := ex.Snapshot()
	sh, ok := snap.Shard(snap.State().DefaultShard)
	return ok && !sh.Can().Sequences
}

// intArg reads a bound parameter as an integer.
func intArg(args *plan.Args, param int) (n int64, null bool, err error) {
	bad := func() error {
		return sqlstate.New(sqlstate.InvalidTextRepresentation, "parameter $%d is not a number", param)
	}
	if args == nil || param > len(args.Values) {
		return 0, false, sqlstate.New(sqlstate.UndefinedParameter, "there is no parameter $%d", param)
	}
	b := args.Values[param-1]
	if b == nil {
		return 0, true, nil
	}
	if wire.FormatAt(args.Formats, param-1) == 0 {
		if n, err = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err != nil {
			return 0, false, bad()
		}
		return n, false, nil
	}
	switch len(b) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(b))), false, nil
	case 4:
		return int64(int32(binary.BigEndian.Uint32(b))), false, nil
	case 8:
		return int64(binary.BigEndian.Uint64(b)), false, nil
	}
	return 0, false, bad()
}

// fillText returns the text of a statement of the simple protocol with its
// values, by which x.args routes it.
func (x *prepared) fillText(st *plan.Statement) (string, error) {
	values, err := x.evaluate(st.Fill, nil)
	if err != nil {
		return "", err
	}
	x.args = plan.Args{Values: values}
	return st.Fill.Literals(values), nil
}

// fillArgs adds a statement's values to the parameters of a Bind: to x.args, and to
// rest, the Bind's body after its names, which readArgs has read.
func (x *prepared) fillArgs(s *statement, rest []byte) ([]byte, error) {
	st, a := s.plan, &x.args
	const most = 1<<16 - 1
	own := len(a.Values)
	switch {
	case own != st.Params:
		return nil, pgbackend.Unsupplied(own, s.name, st.Params)
	case len(s.oids) > st.Params:
		return nil, sqlstate.Refusal("CLV-1106", "the statement is declared with more parameters than it has").
			WithHint("Declare the types of its own parameters only.")
	case own+len(st.Fill.Values) > most:
		return nil, sqlstate.New(sqlstate.ProgramLimitExceeded, "%d parameters and %d values that the router makes are more than the protocol's %d", own, len(st.Fill.Values), most).
			WithHint("insert fewer rows at a time, or use the simple protocol")
	}
	values, err := x.evaluate(st.Fill, a)
	if err != nil {
		return nil, err
	}
	formats := make([]int16, own+len(values))
	for i := range own {
		formats[i] = wire.FormatAt(a.Formats, i)
	}
	out := wire.AppendInt16(make([]byte, 0, len(rest)+32*len(values)), int16(uint16(len(formats))))
	for _, f := range formats {
		out = wire.AppendInt16(out, f)
	}
	a.Formats, a.Values = formats, append(a.Values, values...)
	out = wire.AppendInt16(out, int16(uint16(len(a.Values))))
	for _, v := range a.Values {
		out = wire.AppendValue(out, v)
	}
	return append(out, x.bound.Tail...), nil
}

// Parameters is how many of the shard's parameters the client knows of, -1 for
// all (executor.ParameterWatch): those after them are the router's.
func (s *statement) Parameters() int {
	if s.plan.Fill == nil {
		return -1
	}
	return s.plan.Params
}

// bounds refuses new bounds of a sequence that leave out where it is, as PostgreSQL
// does (init_params of sequence.c). What another router has taken counts as given, as
// the values do that a session of PostgreSQL holds by CACHE.
func (x *prepared) bounds(changes []plan.SequenceChange) error {
	for i := range changes {
		c := &changes[i]
		if c.Op != "alter" || c.Was.Min == c.Sequence.Min && c.Was.Max == c.Sequence.Max {
			continue
		}
		ctx, done := x.interrupts.waiting()
		at, err := x.srv.ids.sequences.Settle(ctx, c.Was)
		done()
		switch {
		case err != nil:
			return userCancel(err)
		case at.Last < c.Sequence.Min:
			return sqlstate.New(sqlstate.InvalidParameterValue, "RESTART value (%d) cannot be less than MINVALUE (%d)", at.Last, c.Sequence.Min)
		case at.Last > c.Sequence.Max:
			return sqlstate.New(sqlstate.InvalidParameterValue, "RESTART value (%d) cannot be greater than MAXVALUE (%d)", at.Last, c.Sequence.Max)
		}
	}
	return nil
}

// retire deletes the records of sequences that are gone. What is left behind takes
// a little room, and nothing else.
func (s *Server) retire(gone []shardmap.Sequence) {
	if len(gone) == 0 {
		return
	}
	ctx, stop := timeLeft()
	defer stop()
	for i := range gone {
		if err := s.ids.sequences.Forget(ctx, &gone[i]); err != nil {
			s.log.Warn("the record of a dropped sequence could not be deleted", "sequence", gone[i].QualifiedName(), "error", err)
			return
		}
	}
}

// currval() and lastval() of sequences that are the default shard's own are kept by
// the session of that shard in which nextval() ran. The client's session has an
// executor.Counter, which knows where that is. A statement that asks for them runs
// there. If another client's session had to use that connection meanwhile, the
// values are gone: then the statement is refused, and never told that there are none.

// counts says that what is about to be sent may call nextval(), or asks for what it gave. On the
// conversation that the session keeps anything may: it has temporary views and functions. What takes no snapshot may not, and
// DISCARD SEQUENCES before it would take one.
func (b *shardConns) counts(u use) {
	c := b.pipe.Conn
	if c == nil || onSeveral(c) || u.blind || u.on != nil && sightless[u.on.Tag] || c != b.pin && (u.on == nil && u.readOnly || u.on != nil && !u.on.Counts()) {
		return
	}
	if c.Shard() == b.ex.Snapshot().State().DefaultShard {
		c.Count(b.counter)
	}
}

// counting reports whether a schema change may call nextval(): it may fill a column, or a materialized view.
func counting(st *plan.Statement) bool {
	if st.DDL.As != nil || st.DDL.Source != "" {
		return true
	}
	switch st.Tag {
	case "CREATE TABLE", "CREATE INDEX", "CREATE SEQUENCE", "CREATE VIEW", "CREATE FUNCTION", "CREATE PROCEDURE", "CREATE TYPE", "CREATE SCHEMA", "COMMENT", "GRANT", "REVOKE":
		return false
	}
	return !strings.HasPrefix(st.Tag, "DROP ")
}

// forgetSequences is DISCARD SEQUENCES.
func (x *prepared) forgetSequences() {
	x.sequences = sessionSequences{}
	x.shards.counter.End()
	x.shards.counter = new(executor.Counter)
}

// forgotten reports whether a shard's error, that a sequence has no value in this session, may be
// wrong. It may be a default's or a trigger's.
func (b *shardConns) forgotten(said *sqlstate.Error) bool {
	return said.Code == sqlstate.ObjectNotInState && b.counter.Lost() && (said.Routine == "lastval" || strings.HasPrefix(said.Routine, "currval"))
}

func errForgotten() error {
	return sqlstate.Refusal("CLV-0503", "the values that nextval() gave in this session are not known any more: the connection to the default shard that knew them is gone, or serves another session").
		WithHint("Use INSERT ... RETURNING, or ask in the transaction that inserts.")
}

// lastOwn is lastval() of a session that may have taken its last value from a
// sequence of the default shard's own. If it did not, it is last, which known says.
func (x *prepared) lastOwn(last int64, known bool) (int64, error) {
	at := x.shards.counter.Conn()
	inTx := at != nil && x.tx.conn != nil && several.TakesPart(x.tx.conn, at)
	switch {
	case x.shards.nowait:
		return 0, errWait
	case at == nil && !x.shards.counter.Lost():
		if known {
			return last, nil
		}
		return 0, errNoLastval()
	case known && (x.sequences.before || inTx):
		return 0, sqlstate.Refusal("CLV-0504", "lastval() is not certain: a statement since may have taken a value from a sequence of the default shard's own").
			WithHint("Use INSERT ... RETURNING, or currval('name').")
	}
	x.srv.ex.KeepCounters()
	c := at
	switch {
	case inTx:
		if err := x.drain(); err != nil {
			return 0, err
		}
	case at != nil && at == x.shards.pin && !x.pipe.dirty: // nobody else has it
	default:
		if c = x.srv.ex.Recount(x.shards.counter, x.srv.ex.Snapshot().State().DefaultShard, x.gucs.Settings); c != nil {
			defer c.Release()
		}
	}
	if c != nil {
		v, none, err := c.Lastval(x.shards.exec)
		if err != nil {
			return 0, x.shards.shardSaid(c, err)
		}
		if !none {
			return v, nil
		}
	}
	saved := x.shards.counter.Last()
	switch {
	case saved == nil && (c == nil || x.shards.counter.Lost()), saved != nil && saved.Defined && inTx:
		return 0, errForgotten()
	case saved != nil && saved.Defined:
		return saved.Value, nil
	case known:
		return last, nil
	}
	return 0, errNoLastval()
}

func errNoLastval() error {
	return sqlstate.New(sqlstate.ObjectNotInState, "lastval is not yet defined in this session")
}
