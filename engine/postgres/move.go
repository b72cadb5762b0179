package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

// What a move leaves on a shard, in schema cleave_internal, made at the first move:
// the row of leader is the highest token seen; capture has a row for each capture,
// written before its publication and slot are made, so that a crash leaves nothing
// that is not listed; applied says how far changes from elsewhere were applied, and
// owner is the one Applier that may commit; loaded has the tables whose rows are all
// there, and what they were; loaded_part has the parts that are there of others;
// leader_of_parts is the token of the last leader that knew of parts.
const moveTables = `CREATE TABLE IF NOT EXISTS cleave_internal.leader (one boolean PRIMARY KEY DEFAULT true CHECK (one), token numeric NOT NULL);
CREATE TABLE IF NOT EXISTS cleave_internal.capture (id text PRIMARY KEY, slot text NOT NULL, began pg_catalog.pg_lsn, definition text NOT NULL,
	made_at timestamptz NOT NULL DEFAULT pg_catalog.now());
CREATE TABLE IF NOT EXISTS cleave_internal.applied (id text PRIMARY KEY, position text NOT NULL, owner text NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS cleave_internal.loaded (id text, table_schema text, table_name text, rows bigint NOT NULL, bytes bigint NOT NULL, PRIMARY KEY (id, table_schema, table_name));
CREATE TABLE IF NOT EXISTS cleave_internal.loaded_part (id text, table_schema text, table_name text, place text, since text NOT NULL, rows bigint NOT NULL, bytes bigint NOT NULL,
	PRIMARY KEY (id, table_schema, table_name, place));
CREATE TABLE IF NOT EXISTS cleave_internal.leader_of_parts (one boolean PRIMARY KEY DEFAULT true CHECK (one), token numeric NOT NULL)`

const moveTablesSQL = `BEGIN;
SELECT pg_catalog.pg_advisory_xact_lock(%d);
` + moveTables + `;
COMMIT`

var _ engine.Movable = (*shard)(nil)

// Mover returns the shard's part in moves. See docs/design/moving-postgres.md.
func (s *shard) Mover(token uint64) engine.Mover { return &mover{s: s, token: token} }

type mover struct {
	s     *shard
	token uint64
}

// moveParams are the startup parameters of a mover's conversations: values have one
// text each, names in SQL are the catalogue's or qualified, nobody is waited for by
// a timeout that was made for clients, and row level security hides no row.
var moveParams = map[string]string{
	"client_encoding": "UTF8", "DateStyle": "ISO, MDY", "IntervalStyle": "postgres", "TimeZone": "UTC", "bytea_output": "hex", "extra_float_digits": "1",
	"lc_monetary": "C", "xmloption": "content", "search_path": "pg_catalog", "row_security": "off", "standard_conforming_strings": "on",
	"default_transaction_isolation": "read committed", "default_transaction_read_only": "off", "default_transaction_deferrable": "off",
	"statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0", "idle_session_timeout": "0", "jit": "off",
}

// What a conversation of a mover is for; with the id it is its application_name, by
// which Release finds those that others have.
const (
	forCapture = "capture"
	forChanges = "changes"
	forLoad    = "load"
	forApply   = "apply"
	forOther   = "other"
)

func appName(what, id string) string { return "cleave " + what + " " + id }

// idPattern keeps what is put into names and application_name harmless.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)

func (v *mover) checkID(id string) error {
	if !idPattern.MatchString(id) {
		return sqlstate.New(sqlstate.InvalidParameterValue, "%q cannot be the id of a move", id).WithHint("use 1 to 40 letters, digits, '_' and '-'")
	}
	return nil
}

// moveBuffer is larger than other conversations' read buffer: rows come in masses.
const moveBuffer = 128 << 10

// dial opens a conversation. With write, what it writes fires no triggers, and is on the
// shard's disk when it is committed.
func (v *mover) dial(ctx context.Context, what, id string, write bool) (*conn, error) {
	c, _, err := v.settled(ctx, what, what, id, write)
	return c, err
}

// settled is dial, and says whether the tables of moves are there. A mover may have come or gone since the shard was asked for it: then the
// conversation is begun again, once.
func (v *mover) settled(ctx context.Context, op, what, id string, write bool) (c *conn, tables bool, err error) {
	for again := true; ; again = false {
		if c, err = v.dialAs(ctx, what, id, false); err != nil {
			return nil, false, err
		}
		var current bool
		if tables, current, err = v.settle(ctx, c, write); err == nil && current {
			return c, tables, nil
		}
		_ = c.Close()
		mayNot := sqlstate.CodeOf(err) == sqlstate.InsufficientPrivilege
		if again && (err == nil || mayNot) {
			v.s.mover.Store(nil)
			continue
		}
		switch {
		case err == nil:
			err = sqlstate.New(sqlstate.CannotConnectNow, "the role of moves on shard %s has just changed", v.s.cfg.Name)
		case mayNot:
			err = notAllowed(err)
		}
		return nil, false, v.failed(ctx, op, err)
	}
}

// settle makes the settings that are no startup parameters, and says whether the tables
// of moves are there, and whether the conversation's role is the one that moves act as now: one message, since a cutover waits for it.
func (v *mover) settle(ctx context.Context, c *conn, write bool) (tables, current bool, err error) {
	set := ""
	if serverVersion(c) >= 170000 {
		set = "SET transaction_timeout = 0; "
	}
	if write {
		set += `SELECT pg_catalog.set_config('session_replication_role', 'replica', false), CASE pg_catalog.current_setting('synchronous_commit') WHEN 'off' THEN pg_catalog.set_config('synchronous_commit', 'local', false) END; `
	}
	res, err := c.exec(ctx, set+`SELECT pg_catalog.to_regclass('cleave_internal.leader_of_parts') IS NOT NULL, `+v.s.moverSQL()+` IS NOT NULL`)
	if err != nil {
		return false, false, err
	}
	return res.Rows[0][0].String == "t", (res.Rows[0][1].String == "t") == c.mover, nil
}

func (v *mover) dialAs(ctx context.Context, what, id string, replication bool) (*conn, error) {
	params := maps.Clone(moveParams)
	params["application_name"] = strings.TrimSpace(appName(what, id))
	params[paramMasses] = ""
	if replication {
		params[paramReplication] = "database"
	}
	if err := v.s.moverParams(ctx, params); err != nil {
		return nil, err
	}
	c, err := v.s.connect(ctx, params)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// failed names operation and shard in an error. A lost conversation stays a LostError,
// and the error of a context that has ended has the context's in its chain.
func (v *mover) failed(ctx context.Context, op string, err error) error {
	switch e := ctx.Err(); {
	case err == nil:
		return nil
	case e != nil && !errors.Is(err, e):
		return fmt.Errorf("%s on shard %s: %w: %w", op, v.s.cfg.Name, e, err)
	case engine.Lost(err) != nil:
		return fmt.Errorf("%s: %w", op, err)
	}
	var e *sqlstate.Error
	if errors.As(err, &e) {
		if e.Op == "" {
			e.Op = op
		}
		if e.Shard == "" {
			e.Shard = v.s.cfg.Name
		}
		return err
	}
	return fmt.Errorf("%s on shard %s: %w", op, v.s.cfg.Name, err)
}

// housekeeping gives a conversation to a method that needs the tables of moves, and
// makes them if they are not there. It is one of the shard's spare ones, if that still
// answers: a cutover should not wait for a server's process to start. It writes as
// movers do, in all methods.
func (v *mover) housekeeping(ctx context.Context, op string) (*conn, error) {
	if c := v.spare(ctx); c != nil {
		return c, nil
	}
	c, tables, err := v.settled(ctx, op, forOther, "", true)
	if err != nil {
		return nil, err
	}
	if !tables {
		if _, err = c.exec(ctx, fmt.Sprintf(moveTablesSQL, int64(installLock))); err != nil && engine.Lost(err) == nil {
			_, _ = c.exec(ctx, "ROLLBACK") // the first error says it all
		}
	}
	if err != nil {
		_ = c.Close()
		return nil, v.failed(ctx, op, err)
	}
	return c, nil
}

// spare is a spare conversation that still answers as a mover's does; nil if there is none. Where one does not, the
// others are of the same server of before: none of them is waited for.
func (v *mover) spare(ctx context.Context) *conn {
	c := v.s.spares.take()
	if c == nil {
		return nil
	}
	if tables, current, err := v.settle(ctx, c, true); err == nil && tables && current {
		return c
	}
	_ = c.Close()
	v.s.spares.drop(false)
	return nil
}

// reading gives a conversation to a method that reads the catalogue, and changes nothing: a spare one, whose process
// knows the catalogue already, or one that done closes. It makes no tables of moves.
func (v *mover) reading(ctx context.Context) (c *conn, done func(), err error) {
	if c := v.spare(ctx); c != nil {
		return c, func() { v.done(c) }, nil
	}
	if c, err = v.dial(ctx, forOther, "", false); err != nil {
		return nil, nil, err
	}
	return c, func() { _ = c.Close() }, nil
}

// done keeps a conversation as a spare one, if it can be.
func (v *mover) done(c *conn) {
	if c.broken.Load() || c.status != 'I' || !v.s.spares.put(c, time.Now()) {
		_ = c.Close()
	}
}

const (
	// sparesMax bounds the spare conversations of a shard's movers; spareIdle is for how long more than one is kept.
	sparesMax = 4
	spareIdle = 20 * time.Second
)

// spares are idle conversations of movers. An effect of a move has two or three under way at a time.
type spares struct {
	mu     sync.Mutex
	idle   []spare // the last one was used last
	closed bool
}

type spare struct {
	c     *conn
	since time.Time
}

func (p *spares) take() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	c := p.idle[last].c
	p.idle[last] = spare{}
	p.idle = p.idle[:last]
	return c
}

// put takes a conversation, and reports whether it did. It lets go of those that nobody has needed for a while.
func (p *spares) put(c *conn, now time.Time) bool {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return false
	}
	p.idle = append(p.idle, spare{c, now})
	drop := 0
	for drop < len(p.idle)-1 && (len(p.idle)-drop > sparesMax || now.Sub(p.idle[drop].since) > spareIdle) {
		drop++
	}
	old := slices.Clone(p.idle[:drop])
	p.idle = slices.Delete(p.idle, 0, drop)
	p.mu.Unlock()
	for _, s := range old {
		_ = s.c.Close()
	}
	return true
}

// drop closes all; for good: none is taken any more.
func (p *spares) drop(forGood bool) {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, p.closed || forGood
	p.mu.Unlock()
	for _, s := range idle {
		_ = s.c.Close()
	}
}

const tokenSQL = `SELECT token::pg_catalog.text FROM cleave_internal.leader FOR SHARE`

// obey fails unless the mover's leader is the newest that the shard knows; until the
// end of c's transaction there is no newer one.
func (v *mover) obey(ctx context.Context, c *conn) error {
	res, err := c.exec(ctx, tokenSQL)
	if err != nil || len(res.Rows) == 0 {
		return err
	}
	return v.compare(res.Rows[0][0].String)
}

func (v *mover) compare(token string) error {
	highest, err := strconv.ParseUint(token, 10, 64)
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.InternalError, "the token of a leader is not a number")
	}
	if highest <= v.token {
		return nil
	}
	return (&sqlstate.Error{
		Code: sqlstate.ObjectNotInState, Shard: v.s.cfg.Name,
		Message: "the leadership has ended: the shard knows a newer leader",
		Detail:  fmt.Sprintf("The token is %d, that of the newest leader is %d.", v.token, highest),
	}).WithHint("nothing was done; the newer leader goes on with the move. If the directory was put back to an older state: cleave doctor --repair --set-back-guards")
}

// transact runs do in a transaction that a newer leader's Seize comes before or after.
func (v *mover) transact(ctx context.Context, c *conn, do func() error) error {
	err := func() error {
		if _, err := c.exec(ctx, "BEGIN"); err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
		if err := v.obey(ctx, c); err != nil {
			return err
		}
		res, err := c.exec(ctx, "COMMIT")
		if err == nil && res.Tag != "COMMIT" {
			err = sqlstate.New(sqlstate.InternalError, "the transaction ended with %s", res.Tag)
		}
		return err
	}()
	if err != nil && engine.Lost(err) == nil {
		_, _ = c.exec(context.WithoutCancel(ctx), "ROLLBACK") // if it fails the conversation is closed next
	}
	return err
}

// Seize keeps the token in a row that every transaction of a mover locks. A leader of a version that knows no parts leaves their notes, and
// may purge the rows: so they are deleted if the last leader was not one that knew them.
func (v *mover) Seize(ctx context.Context) error {
	const op = "seize the shard"
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return err
	}
	defer v.done(c)
	return v.failed(ctx, op, v.transact(ctx, c, func() error {
		_, err := c.exec(ctx, fmt.Sprintf(`SELECT FROM cleave_internal.leader FOR UPDATE;
			DELETE FROM cleave_internal.loaded_part WHERE (SELECT token FROM cleave_internal.leader) IS DISTINCT FROM (SELECT token FROM cleave_internal.leader_of_parts);
			INSERT INTO cleave_internal.leader (token) VALUES (%[1]d) ON CONFLICT (one) DO UPDATE SET token = EXCLUDED.token WHERE leader.token < EXCLUDED.token;
			INSERT INTO cleave_internal.leader_of_parts (token) VALUES (%[1]d) ON CONFLICT (one) DO UPDATE SET token = EXCLUDED.token`, v.token))
		return err
	}))
}

// Unseat implements engine.Unseater.
func (v *mover) Unseat(ctx context.Context) error {
	const op = "forget the leaders"
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return err
	}
	defer v.done(c)
	_, err = c.exec(ctx, "DELETE FROM cleave_internal.leader")
	return v.failed(ctx, op, err)
}

// lsn is a place in the write-ahead log.
type lsn uint64

func (l lsn) String() string { return fmt.Sprintf("%X/%X", uint64(l)>>32, uint32(l)) }

func parseLSN(s string) (lsn, error) {
	high, low, ok := strings.Cut(s, "/")
	h, err1 := strconv.ParseUint(high, 16, 32)
	l, err2 := strconv.ParseUint(low, 16, 32)
	if !ok || err1 != nil || err2 != nil {
		return 0, sqlstate.New(sqlstate.InvalidParameterValue, "%q is not a position of a PostgreSQL shard", s)
	}
	return lsn(h<<32 | l), nil
}

// place reads a position; "" is 0.
func place(p engine.Position) (lsn, error) {
	if p == "" {
		return 0, nil
	}
	return parseLSN(string(p))
}

// Here writes a record and waits until it is on disk: what was committed before, by
// whatever setting of synchronous_commit, is then there as well, and decoding comes
// past the position without waiting for others.
func (v *mover) Here(ctx context.Context) (engine.Position, error) {
	const op = "read the position"
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return "", err
	}
	defer v.done(c)
	at, err := v.here(ctx, c)
	return at, v.failed(ctx, op, err)
}

func (v *mover) here(ctx context.Context, c *conn) (engine.Position, error) {
	// The commit of a transaction with a message in it waits for the disk.
	if _, err := c.exec(ctx, `BEGIN; SET LOCAL synchronous_commit = local; SELECT pg_catalog.pg_logical_emit_message(true, 'cleave', ''); COMMIT`); err != nil {
		return "", err
	}
	res, err := c.exec(ctx, `SELECT pg_catalog.pg_current_wal_flush_lsn()::pg_catalog.text`)
	if err != nil {
		return "", err
	}
	return engine.Position(res.Rows[0][0].String), nil
}

// Reached compares places in the log. What is not one has reached nothing.
func (v *mover) Reached(at, goal engine.Position) bool {
	a, err1 := place(at)
	g, err2 := place(goal)
	return err1 == nil && err2 == nil && a >= g
}

// Lag is the length of the log between the position and its end.
func (v *mover) Lag(ctx context.Context, id string, at engine.Position) (int64, error) {
	const op = "measure the lag"
	if err := v.checkID(id); err != nil {
		return 0, err
	}
	from, err := place(at)
	if err != nil {
		return 0, err
	}
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return 0, err
	}
	defer v.done(c)
	since := literal(from.String())
	if from == 0 {
		since = `COALESCE((SELECT began::pg_catalog.text FROM cleave_internal.capture WHERE id = ` + literal(id) + `), pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text)`
	}
	res, err := c.exec(ctx, `SELECT GREATEST(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), (`+since+`)::pg_catalog.pg_lsn), 0)::pg_catalog.int8::pg_catalog.text`)
	if err != nil {
		return 0, v.failed(ctx, op, err)
	}
	return strconv.ParseInt(res.Rows[0][0].String, 10, 64)
}

// qualify is a table's name as SQL.
func qualify(t *engine.MoveTable) string { return ident(t.Schema) + "." + ident(t.Name) }

func idents(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = ident(n)
	}
	return out
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// onTable names a table in an error.
func onTable(err error, t *engine.MoveTable) error {
	var e *sqlstate.Error
	if errors.As(err, &e) && e.Table == "" {
		e.Schema, e.Table = t.Schema, t.Name
	}
	return err
}
