package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

const (
	// applyChanges and applyAfter bound what is applied in one transaction here, if
	// the transactions there allow it.
	applyChanges = 1000
	applyAfter   = 200 * time.Millisecond
	// applyIdle bounds how often a position is written with which nothing came.
	applyIdle = time.Second
	// applySend is when statements go to the server; applyAhead is how many may be
	// without an answer.
	applySend  = 32 << 10
	applyAhead = 8192
)

// Applied reads the row of the id.
func (v *mover) Applied(ctx context.Context, id string) (engine.Position, error) {
	const op = "read the applied position"
	if err := v.checkID(id); err != nil {
		return "", err
	}
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return "", err
	}
	defer v.done(c)
	res, err := c.exec(ctx, "SELECT position FROM cleave_internal.applied WHERE id = "+literal(id))
	if err != nil || len(res.Rows) == 0 {
		return "", v.failed(ctx, op, err)
	}
	return engine.Position(res.Rows[0][0].String), nil
}

// SetApplied writes the row, which then belongs to no applier.
func (v *mover) SetApplied(ctx context.Context, id string, at engine.Position) error {
	const op = "write the applied position"
	if err := v.checkID(id); err != nil {
		return err
	}
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return err
	}
	defer v.done(c)
	return v.failed(ctx, op, v.transact(ctx, c, func() error {
		_, err := c.exec(ctx, fmt.Sprintf(`INSERT INTO cleave_internal.applied (id, position) VALUES (%s, %s)
			ON CONFLICT (id) DO UPDATE SET position = EXCLUDED.position, owner = ''`, literal(id), literal(string(at))))
		return err
	}))
}

// applier sends statements without waiting for their answers, and a transaction's
// COMMIT only when all of them are known to have done what they should.
type applier struct {
	v     *mover
	c     *conn
	id    string
	owner string
	set   engine.Set
	where []string // of each table's rows in the set
	fixed [][]bool // columns that no UPDATE can set
	keyed []bool   // the identity is unique
	equal []map[string]string

	use        sync.Mutex // one caller at a time; the timer is one
	buf        []byte
	statements map[string]statement
	values     [][]byte
	shape      []byte
	open       bool // a transaction
	whole      bool // and no Commit is missing
	changes    int
	position   engine.Position // of the last Commit
	idle       bool            // position was not committed, nothing else is open
	wrote      time.Time
	timer      *time.Timer
	closed     bool

	mu        sync.Mutex // what the reader shares
	moved     *sync.Cond
	expected  []expectation
	head      int
	err       error
	committed engine.Position
	token     string
	ended     chan struct{} // the reader has
}

type statement struct {
	name string
	skip []bool // columns without a value
}

// expectation is an answer that will come: that of an Execute, or of a Sync.
type expectation struct {
	op    byte // a ChangeOp, or one of the following
	table int32
	at    engine.Position // of a COMMIT
}

const (
	opPlain    byte = 0   // any tag
	opProgress byte = 'P' // one row
	opToken    byte = 'K' // a row with the token, or none
	opCommit   byte = 'C'
	opSync     byte = 'S'
)

// Apply takes the row of the id over: the applier that had it commits no more.
func (v *mover) Apply(ctx context.Context, id string, set engine.Set) (engine.Applier, error) {
	const op = "begin to apply"
	if err := v.checkID(id); err != nil {
		return nil, err
	}
	h, err := v.housekeeping(ctx, op)
	if err != nil {
		return nil, err
	}
	defer v.done(h)
	a := &applier{v: v, id: id, set: set, owner: token(), statements: map[string]statement{}, ended: make(chan struct{})}
	a.moved = sync.NewCond(&a.mu)
	if err := a.begin(ctx, h); err != nil {
		return nil, v.failed(ctx, op, err)
	}
	go a.read()
	return a, nil
}

func token() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (a *applier) begin(ctx context.Context, h *conn) error {
	v := a.v
	// Before others' work is ended.
	if err := v.transact(ctx, h, func() error { return nil }); err != nil {
		return err
	}
	if err := v.end(ctx, h, "application_name = "+literal(appName(forApply, a.id))); err != nil {
		return err
	}
	err := v.transact(ctx, h, func() error {
		res, err := h.exec(ctx, fmt.Sprintf(`INSERT INTO cleave_internal.applied (id, position, owner) VALUES (%s, '', %s)
			ON CONFLICT (id) DO UPDATE SET owner = EXCLUDED.owner RETURNING position`, literal(a.id), literal(a.owner)))
		if err == nil {
			a.committed = engine.Position(res.Rows[0][0].String)
			a.position = a.committed
		}
		return err
	})
	if err != nil {
		return err
	}
	facts, err := v.factsOf(ctx, h, a.set.Tables)
	if err != nil {
		return err
	}
	for i, f := range facts {
		t := &a.set.Tables[i]
		fixed := make([]bool, len(t.Columns))
		for j, name := range t.Columns {
			k := slices.IndexFunc(f.Columns, func(c columnFacts) bool { return c.Name == name })
			if k < 0 {
				return changed(t, fmt.Sprintf("shard %s has no column %q", v.s.cfg.Name, name))
			}
			fixed[j] = f.Columns[k].Identity == "a"
		}
		a.fixed = append(a.fixed, fixed)
		a.equal = append(a.equal, f.Equal)
		a.keyed = append(a.keyed, len(t.Identity) < len(t.Columns) || slices.Equal(t.Identity, f.Primary) || slices.Equal(t.Identity, f.Index))
		a.where = append(a.where, keyspace.Condition(&a.set.Keys, idents(t.ShardKey)))
	}
	c, err := v.dial(ctx, forApply, a.id, true)
	if err != nil {
		return err
	}
	if _, err = c.exec(ctx, "SET plan_cache_mode = force_generic_plan"); err != nil {
		_ = c.Close()
		return err
	}
	a.c = c
	for name, sql := range map[string]string{
		"begin": "BEGIN", "commit": "COMMIT", "token": tokenSQL,
		"progress": "UPDATE cleave_internal.applied SET position = $1 WHERE id = $2 AND owner = $3",
	} {
		a.buf = wire.AppendParse(a.buf, name, sql, nil)
	}
	a.buf = wire.AppendEmpty(a.buf, wire.Sync)
	a.expected = append(a.expected, expectation{op: opSync})
	return a.send()
}

// Change sends one statement.
func (a *applier) Change(ctx context.Context, c *engine.Change) error {
	a.use.Lock()
	defer a.use.Unlock()
	if err := a.room(); err != nil {
		return a.v.failed(ctx, opApply, err)
	}
	if !a.open {
		a.execute("begin", opPlain, 0, nil)
		a.open, a.changes = true, 0
	}
	a.idle, a.whole = false, false
	a.changes++
	s, err := a.statement(c)
	if err != nil {
		return err
	}
	values := a.values[:0]
	add := func(t engine.Text) {
		if t.Null {
			values = append(values, nil)
		} else {
			values = append(values, []byte(t.String))
		}
	}
	if c.Op == engine.ChangeInsert || c.Op == engine.ChangeUpdate {
		for i, v := range c.New {
			if !s.skip[i] {
				add(v)
			}
		}
	}
	if c.Op.HasOld() {
		for _, v := range c.Old {
			add(v)
		}
	}
	a.values = values
	a.execute(s.name, byte(c.Op), c.Table, values)
	if len(a.buf) < applySend {
		return nil
	}
	stop := context.AfterFunc(ctx, a.c.Sever)
	defer stop()
	return a.v.failed(ctx, opApply, a.send())
}

const opApply = "apply changes"

// Commit ends a transaction. Several are committed together, and the answer to COMMIT is not waited for but
// where nothing was changed.
func (a *applier) Commit(ctx context.Context, at engine.Position) error {
	a.use.Lock()
	defer a.use.Unlock()
	if err := a.room(); err != nil {
		return a.v.failed(ctx, opApply, err)
	}
	first, nothing := !a.whole, a.whole || !a.open
	a.position, a.whole = at, true
	switch {
	case !a.open:
		a.idle = true
		if time.Since(a.wrote) < applyIdle {
			return a.settled(ctx)
		}
		return cmp.Or(a.commitIn(ctx), a.settled(ctx))
	case nothing:
		return cmp.Or(a.commitIn(ctx), a.settled(ctx))
	case a.changes >= applyChanges:
		return a.commitIn(ctx)
	case first && a.timer == nil:
		a.timer = time.AfterFunc(applyAfter, a.overdue)
	}
	return nil
}

func (a *applier) commitIn(ctx context.Context) error {
	stop := context.AfterFunc(ctx, a.c.Sever)
	defer stop()
	return a.v.failed(ctx, opApply, a.commit())
}

// settled waits for the answer to COMMIT. Nothing else is under way.
func (a *applier) settled(ctx context.Context) error {
	stop := context.AfterFunc(ctx, a.c.Sever)
	defer stop()
	return a.v.failed(ctx, opApply, a.answered())
}

// overdue is the timer's: it commits, unless a transaction is in the middle.
func (a *applier) overdue() {
	a.use.Lock()
	defer a.use.Unlock()
	a.timer = nil
	if a.closed || !a.open {
		return
	}
	if !a.whole {
		a.changes = max(a.changes, applyChanges) // its Commit will
		return
	}
	_ = a.commit() // the error stays, for the next caller
}

// Flush commits what is whole.
func (a *applier) Flush(ctx context.Context) (engine.Position, error) {
	a.use.Lock()
	defer a.use.Unlock()
	stop := context.AfterFunc(ctx, a.c.Sever)
	defer stop()
	if err := a.room(); err != nil {
		return "", a.v.failed(ctx, opApply, err)
	}
	if a.open && a.whole || a.idle {
		if err := a.commit(); err != nil {
			return "", a.v.failed(ctx, opApply, err)
		}
	} else if err := a.send(); err != nil {
		return "", a.v.failed(ctx, opApply, err)
	}
	if a.open && !a.whole {
		// A transaction is in the middle: what was committed before is all there is.
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.committed, a.err
	}
	if err := a.answered(); err != nil {
		return "", a.v.failed(ctx, opApply, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.committed, nil
}

// Close waits until the server has rolled back what was not committed, so that the
// next applier does not meet it.
func (a *applier) Close() error {
	a.use.Lock()
	defer a.use.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	if a.timer != nil {
		a.timer.Stop()
	}
	limit := time.AfterFunc(3*time.Second, a.c.Sever)
	defer limit.Stop()
	_ = a.c.Send(wire.AppendEmpty(nil, wire.TerminateFE)) // else the connection is gone
	<-a.ended
	return a.c.Close()
}

// commit sends what proves the transaction whole, waits for all answers, and sends
// COMMIT, whose answer the reader takes.
func (a *applier) commit() error {
	if !a.open {
		a.execute("begin", opPlain, 0, nil)
	}
	a.execute("progress", opProgress, 0, [][]byte{[]byte(a.position), []byte(a.id), []byte(a.owner)})
	a.execute("token", opToken, 0, nil)
	a.sync()
	if err := a.send(); err != nil {
		return err
	}
	if err := a.answered(); err != nil {
		return err
	}
	a.mu.Lock()
	newer := a.token
	a.mu.Unlock()
	if newer != "" {
		if err := a.v.compare(newer); err != nil {
			a.fail(err)
			return err
		}
	}
	a.expect(expectation{op: opCommit, at: a.position})
	a.buf = wire.AppendExecute(wire.AppendBind(a.buf, "", "commit", nil, nil, nil), "", 0)
	a.sync()
	a.open, a.whole, a.idle, a.changes, a.wrote = false, false, false, 0, time.Now()
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	return a.send()
}

func (a *applier) execute(name string, op byte, table int, values [][]byte) {
	a.expect(expectation{op: op, table: int32(table)})
	a.buf = wire.AppendExecute(wire.AppendBind(a.buf, "", name, nil, values, nil), "", 0)
}

func (a *applier) sync() {
	a.expect(expectation{op: opSync})
	a.buf = wire.AppendEmpty(a.buf, wire.Sync)
}

func (a *applier) expect(e expectation) {
	a.mu.Lock()
	a.expected = append(a.expected, e)
	a.mu.Unlock()
}

// send hands the statements to the server, without the lock that the reader needs: the
// server takes them only as fast as we take its answers.
func (a *applier) send() error {
	if len(a.buf) == 0 {
		return nil
	}
	err := a.c.Send(a.buf)
	a.buf = a.buf[:0]
	if cap(a.buf) > 1<<20 {
		a.buf = nil
	}
	if err != nil {
		return a.fail(err)
	}
	return nil
}

// fail keeps the first error.
func (a *applier) fail(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = err
	}
	a.moved.Broadcast()
	return a.err
}

var errApplierClosed = errors.New("the applier was closed")

// room waits until not too many answers are missing.
func (a *applier) room() error {
	if a.closed {
		return errApplierClosed
	}
	a.mu.Lock()
	missing := len(a.expected) - a.head
	err := a.err
	a.mu.Unlock()
	if err != nil || missing < applyAhead {
		return err
	}
	// Answers lie in the server's buffer until it is full or asked for.
	a.buf = wire.AppendEmpty(a.buf, wire.Flush)
	if err := a.send(); err != nil {
		return err
	}
	return a.await(applyAhead / 2)
}

// answered waits for all answers.
func (a *applier) answered() error { return a.await(0) }

func (a *applier) await(missing int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.err == nil && len(a.expected)-a.head > missing {
		a.moved.Wait()
	}
	return a.err
}

// read takes the answers until the connection ends.
func (a *applier) read() {
	defer close(a.ended)
	for {
		b, err := a.c.Receive()
		if err != nil {
			_ = a.fail(err)
			return
		}
		a.mu.Lock()
		for len(b) > 0 {
			f, rest, ok, err := wire.Cut(b)
			if err != nil || !ok {
				a.setError(wire.ErrMalformed)
				break
			}
			b = rest
			a.answer(f)
		}
		a.moved.Broadcast()
		a.mu.Unlock()
	}
}

func (a *applier) setError(err error) {
	if a.err == nil {
		a.err = err
	}
}

// answer takes one frame; the lock is held.
func (a *applier) answer(f wire.Frame) {
	switch f.Type() {
	case wire.DataRow: // the token
		if row, err := wire.SplitRow(f.Body(), nil); err == nil && len(row) == 1 {
			a.token = string(row[0])
		}
	case wire.CommandComplete:
		e := a.next()
		tag, _, _ := wire.CutString(f.Body())
		a.tag(e, tag)
	case wire.ErrorResponse:
		a.refused(a.next(), wire.ParseReport(f.Body()))
	case wire.ReadyForQuery:
		for a.head < len(a.expected) && a.next().op != opSync {
		}
	}
}

func (a *applier) next() expectation {
	if a.head >= len(a.expected) {
		return expectation{}
	}
	e := a.expected[a.head]
	if a.head++; a.head == len(a.expected) {
		a.expected, a.head = a.expected[:0], 0
	} else if a.head > applyAhead {
		a.expected = slices.Delete(a.expected, 0, a.head)
		a.head = 0
	}
	return e
}

// tag checks that a statement did what it should.
func (a *applier) tag(e expectation, tag string) {
	if a.err != nil {
		return
	}
	_, rows, _ := strings.Cut(tag, " ")
	switch e.op {
	case byte(engine.ChangeUpdate), byte(engine.ChangeDelete):
		if rows != "1" {
			a.err = a.misfit(e, fmt.Sprintf("it hit %s rows", rows), "")
		}
	case byte(engine.ChangeLeave):
		if rows != "0" && rows != "1" {
			a.err = a.misfit(e, fmt.Sprintf("it hit %s rows", rows), "")
		}
	case opProgress:
		if rows != "1" {
			a.err = (&sqlstate.Error{
				Code: sqlstate.ObjectNotInState, Op: opApply, Shard: a.v.s.cfg.Name,
				Message: fmt.Sprintf("the changes of %s are applied by somebody else now", a.id),
			}).WithHint("nothing of the last transactions was applied; end this applier")
		}
	case opCommit:
		if tag != "COMMIT" {
			a.err = sqlstate.New(sqlstate.InternalError, "the transaction ended with %s", tag).OnShard(a.v.s.cfg.Name)
			return
		}
		a.committed = e.at
	}
}

func (a *applier) refused(e expectation, err *sqlstate.Error) {
	if a.err != nil {
		return
	}
	if err.Op, err.Shard = opApply, a.v.s.cfg.Name; err.Code == sqlstate.UniqueViolation || err.Code == "23P01" {
		a.err = a.misfit(e, "a row is in its way: "+err.Message, err.Detail)
		return
	}
	if op := engine.ChangeOp(e.op); op == engine.ChangeInsert || op == engine.ChangeTruncate || op.HasOld() {
		_ = onTable(err, &a.set.Tables[e.table])
	}
	a.err = err
}

// misfit is the error for a change that does not fit the rows.
func (a *applier) misfit(e expectation, what, detail string) error {
	t := &a.set.Tables[e.table]
	kind := map[byte]string{'I': "an INSERT", 'U': "an UPDATE", 'D': "a DELETE", 'L': "a DELETE"}[e.op]
	return (&sqlstate.Error{
		Code: sqlstate.DataCorrupted, Op: opApply, Shard: a.v.s.cfg.Name, Schema: t.Schema, Table: t.Name,
		Message: fmt.Sprintf("%s of table %q does not fit the copy: %s", kind, t.Schema+"."+t.Name, what), Detail: detail,
	}).WithHint("nothing of it was applied; somebody else has written to the copy: begin it anew")
}

// statement returns the one for a change, which the server parses once.
func (a *applier) statement(c *engine.Change) (statement, error) {
	if c.Table < 0 || c.Table >= len(a.set.Tables) {
		return statement{}, sqlstate.New(sqlstate.InternalError, "a change of a table that is not in the set")
	}
	t := &a.set.Tables[c.Table]
	key := append(a.shape[:0], byte(c.Op), byte(c.Table), byte(c.Table>>8))
	if c.Op == engine.ChangeUpdate {
		for _, same := range c.Same {
			if same {
				key = append(key, 1)
			} else {
				key = append(key, 0)
			}
		}
	}
	a.shape = key
	if s, ok := a.statements[string(key)]; ok {
		return s, nil
	}
	if isNew := c.Op == engine.ChangeInsert || c.Op == engine.ChangeUpdate; isNew && len(c.New) != len(t.Columns) ||
		c.Op.HasOld() && len(c.Old) != len(t.Identity) ||
		c.Op == engine.ChangeUpdate && len(c.Same) != len(t.Columns) {
		return statement{}, sqlstate.New(sqlstate.InternalError, "a change of table %q with other columns than the set's", t.Name)
	}
	s := statement{name: fmt.Sprintf("s%d", len(a.statements)), skip: make([]bool, len(t.Columns))}
	sql := ""
	switch c.Op {
	case engine.ChangeInsert:
		places := make([]string, len(t.Columns))
		for i := range places {
			places[i] = fmt.Sprintf("$%d", i+1)
		}
		sql = "INSERT INTO " + qualify(t) + " (" + strings.Join(idents(t.Columns), ", ") + ") OVERRIDING SYSTEM VALUE VALUES (" + strings.Join(places, ", ") + ")"
	case engine.ChangeUpdate:
		var sets []string
		for i, name := range t.Columns {
			if s.skip[i] = c.Same[i] || a.fixed[c.Table][i]; !s.skip[i] {
				sets = append(sets, fmt.Sprintf("%s = $%d", ident(name), len(sets)+1))
			}
		}
		n := len(sets)
		if n == 0 {
			free := slices.Index(a.fixed[c.Table], false)
			if free < 0 {
				return statement{}, sqlstate.Refusal("CLV-1415", "no column of table %q can be updated", t.Name)
			}
			sets = []string{ident(t.Columns[free]) + " = " + ident(t.Columns[free])}
		}
		sql = "UPDATE ONLY " + qualify(t) + " SET " + strings.Join(sets, ", ") + " WHERE " + a.found(c.Table, n)
	case engine.ChangeDelete, engine.ChangeLeave:
		if sql = "DELETE FROM ONLY " + qualify(t) + " WHERE " + a.found(c.Table, 0); c.Op == engine.ChangeLeave {
			// No row need be there, so one with that key may be another's: a key without the shard key is not unique over shards.
			sql += " AND (" + a.where[c.Table] + ")"
		}
	case engine.ChangeTruncate:
		sql = "DELETE FROM ONLY " + qualify(t) + " WHERE " + a.where[c.Table]
	default:
		return statement{}, sqlstate.New(sqlstate.InternalError, "a change of kind %q", c.Op)
	}
	a.buf = wire.AppendParse(a.buf, s.name, sql, nil)
	a.statements[string(key)] = s
	return s, nil
}

// found is the condition for one row; its parameters begin after n.
func (a *applier) found(table, n int) string {
	t := &a.set.Tables[table]
	var parts []string
	if a.keyed[table] {
		for i, name := range t.Identity {
			parts = append(parts, fmt.Sprintf("%s %s $%d", ident(name), cmp.Or(a.equal[table][name], "="), n+i+1))
		}
		return strings.Join(parts, " AND ")
	}
	// All columns: NULLs are equal, values are equal if their texts are (not all types
	// have an equality, and some call values equal that are not the same). Of rows that
	// are equal in everything any will do, but only one.
	for i, name := range t.Identity {
		column, value := ident(name), fmt.Sprintf("$%d", n+i+1)
		if slices.Contains(t.ShardKey, name) {
			parts = append(parts, column+" = "+value) // never NULL, and perhaps in an index
			continue
		}
		parts = append(parts, fmt.Sprintf(`CASE WHEN %[2]s::pg_catalog.text IS NULL THEN pg_catalog.num_nulls(%[1]s) = 1
			ELSE pg_catalog.num_nulls(%[1]s) = 0 AND pg_catalog.concat(%[1]s) = %[2]s::pg_catalog.text COLLATE pg_catalog."C" END`, column, value))
	}
	return "ctid = (SELECT ctid FROM ONLY " + qualify(t) + " WHERE " + strings.Join(parts, " AND ") + " LIMIT 1)"
}
