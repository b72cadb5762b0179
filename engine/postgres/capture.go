package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// slotPrefix begins the names of slots and publications.
const slotPrefix = "cleave_"

// slotMax is what a name holds.
const slotMax = 63

// slotName is the name of a capture's slot and publication. Slots belong to the whole
// server, so the database is in it. Names hold small letters, digits and '_': '_' stands
// for "__", '-' for "_0", a capital for '_' and its small letter; an id that gets too
// long by this is hashed.
func slotName(database, id string) string {
	var b strings.Builder
	b.WriteString(slotPrefix + database + "_")
	head := b.Len()
	for i := range len(id) {
		switch c := id[i]; {
		case c == '_':
			b.WriteString("__")
		case c == '-':
			b.WriteString("_0")
		case c >= 'A' && c <= 'Z':
			b.WriteByte('_')
			b.WriteByte(c - 'A' + 'a')
		default:
			b.WriteByte(c)
		}
	}
	if b.Len() > slotMax {
		sum := sha256.Sum256([]byte(id))
		return b.String()[:head] + "_1" + hex.EncodeToString(sum[:16])
	}
	return b.String()
}

// slotID is the id in a slot's name. ok is false for one that is hashed.
func slotID(database, slot string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(slot, slotPrefix+database+"_")
	if !ok {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(rest); i++ {
		c := rest[i]
		if c != '_' {
			b.WriteByte(c)
			continue
		}
		if i++; i == len(rest) {
			return "", false
		}
		switch c = rest[i]; {
		case c == '_':
			b.WriteByte('_')
		case c == '0':
			b.WriteByte('-')
		case c >= 'a' && c <= 'z':
			b.WriteByte(c - 'a' + 'A')
		default:
			return "", false
		}
	}
	return b.String(), true
}

func (v *mover) slot(ctx context.Context, c *conn, id string) (string, error) {
	res, err := c.exec(ctx, `SELECT oid::pg_catalog.int8::pg_catalog.text FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()`)
	if err != nil {
		return "", err
	}
	return slotName(res.Rows[0][0].String, id), nil
}

// Capture makes publication and slot, and keeps the replication connection open whose
// snapshot the view's readers take.
func (v *mover) Capture(ctx context.Context, id string, set engine.Set) (engine.RowSource, error) {
	const op = "capture rows"
	if err := v.checkID(id); err != nil {
		return nil, err
	}
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return nil, err
	}
	defer v.done(c)
	view, err := v.capture(ctx, c, id, set, true)
	if err != nil {
		return nil, v.failed(ctx, op, err)
	}
	return view, nil
}

// CaptureChanges is Capture without a snapshot.
func (v *mover) CaptureChanges(ctx context.Context, id string, set engine.Set) (engine.Position, error) {
	const op = "capture changes"
	if err := v.checkID(id); err != nil {
		return "", err
	}
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return "", err
	}
	defer v.done(c)
	var began engine.Position
	err = v.transact(ctx, c, func() error {
		res, err := c.exec(ctx, `SELECT c.began::pg_catalog.text FROM cleave_internal.capture AS c JOIN pg_catalog.pg_replication_slots AS s ON s.slot_name = c.slot
			WHERE c.began IS NOT NULL AND c.id = `+literal(id))
		if err == nil && len(res.Rows) > 0 {
			began = engine.Position(res.Rows[0][0].String)
		}
		return err
	})
	if err == nil && began == "" {
		var view *rowSource
		if view, err = v.capture(ctx, c, id, set, false); err == nil {
			began = view.at
		}
	}
	return began, v.failed(ctx, op, err)
}

// capture begins one in steps, each of which finds what a crash left of it: the row
// and the publication, the slot, the position in the row.
func (v *mover) capture(ctx context.Context, c *conn, id string, set engine.Set, rows bool) (*rowSource, error) {
	if err := v.release(ctx, c, id); err != nil {
		return nil, err
	}
	slot, err := v.slot(ctx, c, id)
	if err != nil {
		return nil, err
	}
	var facts []*tableFacts
	err = v.transact(ctx, c, func() (err error) {
		if facts, err = v.ready(ctx, c, set); err != nil {
			return err
		}
		if _, err = c.exec(ctx, fmt.Sprintf(`INSERT INTO cleave_internal.capture (id, slot, definition) VALUES (%s, %s, %s)`,
			literal(id), literal(slot), literal(definitions(set, facts)))); err != nil {
			return err
		}
		return v.publish(ctx, c, slot, set, facts)
	})
	if err != nil {
		return nil, err
	}
	view, err := v.makeSlot(ctx, slot, id, set, facts, rows, false)
	if err == nil {
		err = v.transact(ctx, c, func() error {
			res, err := c.exec(ctx, fmt.Sprintf(`UPDATE cleave_internal.capture SET began = %s WHERE id = %s AND slot = %s AND began IS NULL`,
				literal(string(view.at)), literal(id), literal(slot)))
			if err == nil && res.Tag != "UPDATE 1" {
				err = sqlstate.New(sqlstate.ObjectNotInState, "the capture %s was released while it began", id)
			}
			return err
		})
		if err != nil {
			_ = view.Close()
			v.disown(ctx, c, slot, id)
		}
	}
	if err != nil && ctx.Err() == nil && sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
		_ = v.release(ctx, c, id) // what it leaves is in Captures
	}
	return view, err
}

// disown drops a slot that was made for a capture which somebody else has released
// meanwhile. One that is somebody else's by now has a row.
func (v *mover) disown(ctx context.Context, c *conn, slot, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	res, err := c.exec(ctx, "SELECT FROM cleave_internal.capture WHERE id = "+literal(id))
	if err == nil && len(res.Rows) == 0 {
		_ = v.dropSlot(ctx, c, slot) // what it leaves is in Captures
	}
}

// publish makes the publication. Rows are filtered in the server where it can; the
// filter is repeated here for every row anyway.
func (v *mover) publish(ctx context.Context, c *conn, name string, set engine.Set, facts []*tableFacts) error {
	version := serverVersion(c)
	with := `publish = 'insert, update, delete, truncate'`
	if version >= 180000 {
		with += `, publish_generated_columns = stored` // a replica identity may have some
	}
	sql := func(filter bool) string {
		parts := make([]string, len(set.Tables))
		for i := range set.Tables {
			t := &set.Tables[i]
			parts[i] = "ONLY " + qualify(t)
			if filter {
				parts[i] += " WHERE (" + keyspace.Condition(&set.Keys, idents(t.ShardKey)) + ")"
			}
		}
		tables := "" // a keyspace may have none
		if len(parts) > 0 {
			tables = " FOR TABLE " + strings.Join(parts, ", ")
		}
		return "CREATE PUBLICATION " + ident(name) + tables + " WITH (" + with + ")"
	}
	if version >= 150000 {
		if _, err := c.exec(ctx, "SAVEPOINT filtered"); err != nil {
			return err
		}
		_, err := c.exec(ctx, sql(true))
		if err == nil || engine.Lost(err) != nil {
			return err
		}
		if _, err := c.exec(ctx, "ROLLBACK TO SAVEPOINT filtered"); err != nil {
			return err
		}
	}
	_, err := c.exec(ctx, sql(false))
	return err
}

// makeSlot makes a slot, whose snapshot the view has if rows is set. It waits for the
// transactions that have written and are open on the server.
func (v *mover) makeSlot(ctx context.Context, slot, id string, set engine.Set, facts []*tableFacts, rows, temporary bool) (*rowSource, error) {
	rc, err := v.dialAs(ctx, forCapture, id, true)
	if err != nil {
		return nil, err
	}
	sql := "CREATE_REPLICATION_SLOT " + quoteName(slot)
	if temporary {
		sql += " TEMPORARY"
	}
	if sql += " LOGICAL pgoutput"; rows {
		sql += " EXPORT_SNAPSHOT"
	} else {
		sql += " NOEXPORT_SNAPSHOT"
	}
	res, err := rc.exec(ctx, sql)
	if err != nil {
		_ = rc.Close()
		return nil, err
	}
	view := &rowSource{v: v, id: id, set: set, facts: facts, at: engine.Position(res.Rows[0][1].String), snapshot: res.Rows[0][2].String, slot: rc}
	if !rows {
		view.slot = nil
		view.closed = true
		return view, rc.Close()
	}
	return view, nil
}

// rowSource is the snapshot of a slot. Its readers are conversations in transactions
// that have taken it.
type rowSource struct {
	v        *mover
	id       string
	set      engine.Set
	facts    []*tableFacts
	at       engine.Position
	snapshot string
	slot     *conn // whose snapshot it is, while it is idle

	mu     sync.Mutex
	idle   []*conn
	all    map[*conn]bool
	closed bool
}

func (r *rowSource) Position() engine.Position { return r.at }

func (r *rowSource) reader(ctx context.Context) (*conn, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, sqlstate.New(sqlstate.ObjectNotInState, "the view was closed").OnShard(r.v.s.cfg.Name)
	}
	if n := len(r.idle); n > 0 {
		c := r.idle[n-1]
		r.idle = r.idle[:n-1]
		r.mu.Unlock()
		return c, nil
	}
	r.mu.Unlock()
	c, err := r.v.dial(ctx, forCapture, r.id, false)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = c.Close()
		return nil, sqlstate.New(sqlstate.ObjectNotInState, "the view was closed").OnShard(r.v.s.cfg.Name)
	}
	if r.all == nil {
		r.all = map[*conn]bool{}
	}
	r.all[c] = true
	return c, nil
}

// back gives a reader back, or drops it after an error.
func (r *rowSource) back(c *conn, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && !r.closed {
		r.idle = append(r.idle, c)
		return
	}
	delete(r.all, c)
	_ = c.Close()
}

// in runs do on a reader, in a transaction with the snapshot. It ends with do, so that
// the tables are locked (in the way of a SELECT) no longer than they are read.
func (r *rowSource) in(ctx context.Context, do func(c *conn) error) error {
	c, err := r.reader(ctx)
	if err != nil {
		return err
	}
	err = func() error {
		if _, err := c.exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT "+literal(r.snapshot)); err != nil {
			return err
		}
		if err := do(c); err != nil {
			return err
		}
		_, err := c.exec(ctx, "COMMIT")
		return err
	}()
	r.back(c, err)
	return err
}

// Rows relays COPY's bytes. Should the table get another file
// meanwhile (TRUNCATE, VACUUM FULL, ALTER TABLE), rows may have been read twice or not at
// all: it fails with 55000, and the capture has to begin anew.
func (r *rowSource) Rows(ctx context.Context, table int, part engine.Part, pace engine.Pace, to io.Writer) error {
	const op = "read rows"
	t, f := &r.set.Tables[table], r.facts[table]
	sql := "COPY (SELECT " + strings.Join(idents(t.Columns), ", ") + " FROM ONLY " + qualify(t) + " WHERE " + keyspace.Condition(&r.set.Keys, idents(t.ShardKey))
	place, err := run{f.Filenode, blocks{to: f.Blocks, last: true}}, error(nil)
	if part.Place != "" {
		place, err = runOf(part.Place)
	}
	if err == nil && part.Changed != "" {
		var since string
		since, err = changedSince(part.Changed, part.Since)
		sql += since
	}
	if err != nil {
		return r.v.failed(ctx, op, err)
	}
	err = r.in(ctx, func(c *conn) error {
		if err := place.each(ctx, pace, func(cond string) error { return copyOut(ctx, c, sql+cond+") TO STDOUT", to) }); err != nil {
			return onTable(err, t)
		}
		// The lock of the first COPY lasts to the transaction's end: what is true now was
		// true all the time.
		now, err := r.v.facts(ctx, c, t)
		if err == nil && (now.OID != f.OID || now.Filenode != place.file) {
			err = moved(t)
		}
		return err
	})
	return r.v.failed(ctx, op, err)
}

// copyChunk is what is handed to a copy's writer at once.
const copyChunk = 128 << 10

// copyOut runs a COPY TO STDOUT. After an error of to the conversation is lost.
func copyOut(ctx context.Context, c *conn, sql string, to io.Writer) error {
	return engine.Bounded(ctx, c, time.Time{}, func() error {
		if err := engine.Ask(c, sql); err != nil {
			return err
		}
		out := make([]byte, 0, copyChunk+4096)
		var failed error
		for {
			b, err := c.Receive()
			if err != nil {
				return err
			}
			for len(b) > 0 {
				f, rest, ok, err := wire.Cut(b)
				if err != nil || !ok {
					return wire.ErrMalformed
				}
				b = rest
				switch f.Type() {
				case wire.CopyData:
					out = append(out, f.Body()...)
					if len(out) < copyChunk {
						continue
					}
					if _, err := to.Write(out); err != nil {
						c.Sever()
						return err
					}
					out = out[:0]
				case wire.ErrorResponse:
					failed = wire.ParseReport(f.Body())
				case wire.ReadyForQuery:
					if failed == nil && len(out) > 0 {
						_, failed = to.Write(out)
					}
					return failed
				}
			}
		}
	})
}

func (r *rowSource) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	for _, c := range r.idle {
		delete(r.all, c)
		_ = c.Close()
	}
	for c := range r.all { // in use: their users close them
		c.Sever()
	}
	_ = r.slot.Close()
	return nil
}

// View takes the snapshot of a temporary slot, which goes with its connection.
func (v *mover) View(ctx context.Context, set engine.Set) (engine.View, error) {
	const op = "view rows"
	c, done, err := v.reading(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	facts, err := v.factsOf(ctx, c, set.Tables)
	if err != nil {
		return nil, v.failed(ctx, op, err)
	}
	r, err := v.makeSlot(ctx, viewSlot(c), "", set, facts, true, true)
	if err != nil {
		return nil, v.failed(ctx, op, err)
	}
	return &view{r}, nil
}

// viewSlot names a temporary slot.
func viewSlot(c *conn) string {
	return fmt.Sprintf("%sview_%d_%x", slotPrefix, c.PID(), time.Now().UnixNano())
}

// CaptureRows takes the snapshot of a temporary slot too; its processes are those of the capture.
func (v *mover) CaptureRows(ctx context.Context, id string, set engine.Set) (engine.RowSource, error) {
	const op = "capture rows again"
	if err := v.checkID(id); err != nil {
		return nil, err
	}
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return nil, err
	}
	defer v.done(c)
	r, err := v.captureRows(ctx, c, id, set)
	if err != nil {
		return nil, v.failed(ctx, op, err)
	}
	return r, nil
}

func (v *mover) captureRows(ctx context.Context, c *conn, id string, set engine.Set) (*rowSource, error) {
	if err := v.transact(ctx, c, func() error { return nil }); err != nil {
		return nil, err // before anything is ended
	}
	if err := v.end(ctx, c, "application_name = "+literal(appName(forCapture, id))); err != nil {
		return nil, err
	}
	known, err := v.captured(ctx, c, id)
	if err != nil {
		return nil, err
	}
	facts, err := v.ready(ctx, c, set)
	if err != nil {
		return nil, err
	}
	if err := unchanged(known.definition, set, facts); err != nil {
		return nil, err
	}
	return v.makeSlot(ctx, viewSlot(c), id, set, facts, true, true)
}

type view struct{ *rowSource }

func (w *view) Sums(ctx context.Context, pace engine.Pace) ([]engine.Sum, error) {
	var sums []engine.Sum
	err := w.in(ctx, func(c *conn) (err error) {
		sums, err = w.v.sums(ctx, c, w.set, pace)
		return err
	})
	return sums, w.v.failed(ctx, "compute sums", err)
}

// Release removes slot, publication and rows of the id.
func (v *mover) Release(ctx context.Context, id string) error {
	const op = "release"
	if err := v.checkID(id); err != nil {
		return err
	}
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return err
	}
	defer v.done(c)
	return v.failed(ctx, op, v.release(ctx, c, id))
}

func (v *mover) release(ctx context.Context, c *conn, id string) error {
	if err := v.transact(ctx, c, func() error { return nil }); err != nil {
		return err // before anything is ended: a newer leader's work is not ours to end
	}
	if err := v.end(ctx, c, "application_name IN ("+strings.Join([]string{literal(appName(forCapture, id)), literal(appName(forChanges, id)),
		literal(appName(forLoad, id)), literal(appName(forApply, id))}, ", ")+")"); err != nil {
		return err
	}
	slot, err := v.slot(ctx, c, id)
	if err != nil {
		return err
	}
	if err := v.dropSlot(ctx, c, slot); err != nil {
		return err
	}
	if err := v.withdraw(ctx, c, slot); err != nil {
		return err
	}
	return v.transact(ctx, c, func() error {
		if _, err := c.exec(ctx, "DROP PUBLICATION IF EXISTS "+ident(slot)); err != nil {
			return err
		}
		_, err := c.exec(ctx, fmt.Sprintf("DELETE FROM cleave_internal.capture WHERE id = %[1]s; DELETE FROM cleave_internal.applied WHERE id = %[1]s; DELETE FROM cleave_internal.loaded WHERE id = %[1]s; DELETE FROM cleave_internal.loaded_part WHERE id = %[1]s", literal(id)))
		return err
	})
}

// endsWithin is how long a process of ours may take to end when it is told to. One that is stopped, or that hangs in its system, never does.
const endsWithin = 5 * time.Second

// remains is the error of a process that has not ended.
func remains(pid string) error {
	return sqlstate.New(sqlstate.ObjectInUse, "server process %s was told to end and has not ended within %s", pid, endsWithin).
		WithHint("look at that process on the shard's server: a stopped one goes on with kill -CONT %s, for one that hangs the server has to be restarted", pid)
}

// end terminates others' processes in this database, and waits until they are gone. Fails with 55006 if one remains.
func (v *mover) end(ctx context.Context, c *conn, which string) error {
	sql := `SELECT pid, pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
		WHERE datname = pg_catalog.current_database() AND pid <> pg_catalog.pg_backend_pid() AND ` + which
	for began := time.Now(); ; {
		res, err := c.exec(ctx, sql)
		if err != nil || len(res.Rows) == 0 {
			return err
		}
		if time.Since(began) > endsWithin {
			return remains(res.Rows[0][0].String)
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

func (v *mover) dropSlot(ctx context.Context, c *conn, slot string) error {
	for began := time.Now(); ; {
		res, err := c.exec(ctx, `SELECT active_pid FROM pg_catalog.pg_replication_slots WHERE slot_name = `+literal(slot))
		if err != nil || len(res.Rows) == 0 {
			return err
		}
		if pid := res.Rows[0][0]; !pid.Null {
			if time.Since(began) > endsWithin {
				return remains(pid.String)
			}
			if _, err := c.exec(ctx, "SELECT pg_catalog.pg_terminate_backend("+pid.String+")"); err != nil {
				return err
			}
			if err := pause(ctx, 5*time.Millisecond); err != nil {
				return err
			}
			continue
		}
		_, err = c.exec(ctx, "SELECT pg_catalog.pg_drop_replication_slot("+literal(slot)+")")
		switch sqlstate.CodeOf(err) {
		case sqlstate.ObjectInUse, sqlstate.UndefinedObject: // between the two statements
		default:
			return err
		}
	}
}

// Captures looks for rows, slots and publications.
func (v *mover) Captures(ctx context.Context) ([]string, error) {
	const op = "list captures"
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return nil, err
	}
	defer v.done(c)
	slot, err := v.slot(ctx, c, "")
	if err != nil {
		return nil, v.failed(ctx, op, err)
	}
	res, err := c.exec(ctx, `SELECT id, '' FROM cleave_internal.capture UNION SELECT id, '' FROM cleave_internal.applied
		UNION SELECT '', slot_name::pg_catalog.text FROM pg_catalog.pg_replication_slots WHERE pg_catalog.starts_with(slot_name::pg_catalog.text, `+literal(slot)+`)
		UNION SELECT '', pubname::pg_catalog.text FROM pg_catalog.pg_publication WHERE pg_catalog.starts_with(pubname::pg_catalog.text, `+literal(slot)+`)`)
	if err != nil {
		return nil, v.failed(ctx, op, err)
	}
	var ids []string
	database := strings.TrimSuffix(strings.TrimPrefix(slot, slotPrefix), "_")
	for _, row := range res.Rows {
		id := row[0].String
		if id == "" {
			ok := false
			if id, ok = slotID(database, row[1].String); !ok {
				continue // a hashed one is in the table
			}
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
