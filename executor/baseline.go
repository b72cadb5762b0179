package executor

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// baseline is what the default shard's connections have when they begin. The
// settings among them that change answers are given to the connections of every
// other shard, so that a session gets the same answers from all of them.
type baseline struct {
	reported map[string]string
	start    map[string]string
	values   map[string]string // see engine.Alike; nil: the engine has none
	path     string            // search_path as SQL, "" if it is PostgreSQL's default
	other    bool              // the shard itself says otherwise: see readable
	learned  atomic.Int64      // when it was last seen to hold, Unix nanoseconds
}

var pinned = []string{"TimeZone", "DateStyle", "IntervalStyle"}

var plainStart = map[string]string{"client_encoding": "UTF8"}

const (
	// learnEvery is how old the baseline may be when the default shard gets a new connection.
	// Servers behind one URL that differ replace it no more often than that.
	learnEvery = time.Minute
	// likeTries bounds how often one connection is begun anew to be like the default shard's.
	likeTries = 8
)

// startOf is what connections begin with that need nothing else to be alike.
func startOf(b *baseline, login *Login) (start, values map[string]string) {
	switch {
	case login != nil:
		return login.start, login.values
	case b != nil:
		return b.start, b.values
	}
	return plainStart, nil
}

// likeness is what a shard's connections need at their start to be like the
// default shard's, and what they cannot be given. It does not change.
type likeness struct {
	base    *baseline
	extra   map[string]string
	refused map[string]bool
}

// with is the likeness with more settings.
func (l *likeness) with(more map[string]string) *likeness {
	extra := maps.Clone(l.extra)
	if extra == nil {
		extra = map[string]string{}
	}
	maps.Copy(extra, more)
	return &likeness{base: l.base, extra: extra, refused: l.refused}
}

// without is the likeness without the settings for which a shard refused the
// connection: those that its message names, else all. It is nil if they are not why.
func (l *likeness) without(err error) *likeness {
	var said *sqlstate.Error
	if len(l.extra) == 0 || !errors.As(err, &said) {
		return nil
	}
	switch said.Code {
	case sqlstate.InvalidParameterValue, sqlstate.UndefinedObject, sqlstate.InsufficientPrivilege, sqlstate.ProtocolViolation:
	default:
		return nil
	}
	blamed := map[string]bool{}
	for name := range l.extra {
		if strings.Contains(said.Message+said.Detail, `"`+name+`"`) {
			blamed[name] = true
		}
	}
	n := &likeness{base: l.base, extra: map[string]string{}, refused: map[string]bool{}}
	maps.Copy(n.refused, l.refused)
	for name, value := range l.extra {
		if len(blamed) > 0 && !blamed[name] {
			n.extra[name] = value
		} else {
			n.refused[name] = true
		}
	}
	return n
}

// ignored takes out of differ what the connection was given and has not: a pooler in between leaves startup parameters out. It
// returns the likeness that does not ask for them again.
func (l *likeness) ignored(differ map[string]string) *likeness {
	n := &likeness{base: l.base, extra: maps.Clone(l.extra), refused: maps.Clone(l.refused)}
	for name, value := range differ {
		if given, ok := l.extra[name]; ok && given == value {
			if n.refused == nil {
				n.refused = map[string]bool{}
			}
			n.refused[name] = true
			delete(n.extra, name)
			delete(differ, name)
		}
	}
	if len(n.refused) == len(l.refused) {
		return l
	}
	return n
}

// differs are the settings that a connection has otherwise than it should, with
// the values that it should have.
func (l *likeness) differs(is, want map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range want {
		if now, known := is[name]; known && now != value && !l.refused[name] {
			out[name] = value
		}
	}
	return out
}

// connect opens a conversation that has the default shard's values of the settings
// that change answers. They are given to it as startup parameters, to which RESET
// and DISCARD ALL go back, and only where the shard differs. A shard that cannot have
// one of them is used without it: doctor tells.
func (p *pool) connect(ctx context.Context, base *baseline, login *Login) (engine.Conn, error) {
	plain, want := startOf(base, login)
	if _, has := want["default_transaction_isolation"]; has && p.role == engine.Replica {
		want = maps.Clone(want)
		delete(want, "default_transaction_isolation") // a hot standby runs nothing as SERIALIZABLE
	}
	like := p.like.Load()
	if like == nil || like.base != base || login != nil {
		like = &likeness{base: base}
	}
	for try := 1; ; try++ {
		start := maps.Clone(plain)
		maps.Copy(start, like.extra)
		ec, err := connectAs(ctx, p.shard, start, login)
		if err != nil {
			less := like.without(err)
			if less == nil || try == likeTries {
				return nil, err
			}
			like = less
			continue
		}
		is, err := alike(ctx, ec, want != nil && p.relays())
		if err != nil {
			_ = ec.Close()
			return nil, err
		}
		differ := like.differs(is, want)
		like = like.ignored(differ)
		if len(differ) == 0 || try == likeTries {
			p.keep(like, login)
			return ec, nil
		}
		_ = ec.Close()
		like = like.with(differ)
	}
}

// keep remembers what the next connection needs.
func (p *pool) keep(like *likeness, login *Login) {
	if login != nil || like == p.like.Load() {
		return
	}
	p.like.Store(like)
	for name := range like.refused {
		p.ex.log.Warn("a shard cannot have a setting as the default shard has it", telemetry.KeyShard, p.name, "setting", name, "next", "cleave doctor")
	}
}

// alike asks a conversation for its values of the settings that change answers. They are nil where they are not asked for,
// or cannot be read.
func alike(ctx context.Context, c engine.Conn, ask bool) (map[string]string, error) {
	if !ask {
		return nil, nil
	}
	res, err := engine.ExecContext(ctx, c, engine.Alike)
	if code := sqlstate.CodeOf(err); err != nil && (code == sqlstate.InsufficientPrivilege || code == sqlstate.FeatureNotSupported) { // the latter of a hot standby, as SERIALIZABLE
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return engine.AlikeRows(res), nil
}

// begin opens a conversation and returns the baseline that it has.
func (p *pool) begin(ctx context.Context, login *Login) (engine.Conn, *baseline, error) {
	base := p.ex.baseline.Load()
	if p.learns(base, login) {
		c, learned, err := p.learn(ctx, base)
		if err != nil || !learned.other {
			return c, learned, err
		}
		_ = c.Close()
		base = learned
	}
	c, err := p.connect(ctx, base, login)
	return c, base, err
}

// learns reports whether a new connection of the pool is asked for the baseline.
func (p *pool) learns(base *baseline, login *Login) bool {
	return login == nil && p.role != engine.Replica && p.ex.Snapshot().State().DefaultShard == p.name &&
		(base == nil || time.Now().UnixNano()-base.learned.Load() > int64(learnEvery))
}

// learn opens a conversation with the default shard and makes what it has the baseline, if it differs from was.
// Connections made before that are closed when they are released.
func (p *pool) learn(ctx context.Context, was *baseline) (engine.Conn, *baseline, error) {
	c, err := connectAs(ctx, p.shard, plainStart, nil)
	if err != nil {
		return nil, nil, err
	}
	b := &baseline{reported: maps.Clone(c.Parameters()), start: maps.Clone(plainStart)}
	if b.values, err = alike(ctx, c, p.relays()); err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	for _, name := range pinned {
		if v := c.Parameter(name); v != "" {
			b.start[name] = v
		}
	}
	b.other = readable(b.values)
	b.path = pathAsSQL(b.values["search_path"])
	b.learned.Store(time.Now().UnixNano())
	if was != nil && maps.Equal(was.reported, b.reported) && maps.Equal(was.values, b.values) {
		was.learned.Store(b.learned.Load())
		return c, was, nil
	}
	if p.ex.baseline.CompareAndSwap(was, b) {
		return c, b, nil
	}
	if now := p.ex.baseline.Load(); maps.Equal(now.reported, b.reported) && maps.Equal(now.values, b.values) {
		return c, now, nil // another connection has learned the same meanwhile
	}
	return c, b, nil // which is outdated: it is closed when it is released
}

// readable puts PostgreSQL's default in the place of values under which the router would read
// statements otherwise than the shards, and reports whether there were any.
func readable(values map[string]string) (other bool) {
	for name, usual := range map[string]string{"standard_conforming_strings": "on", "transform_null_equals": "off"} {
		if v, ok := values[name]; ok && v != usual {
			values[name], other = usual, true
		}
	}
	return other
}

// pathAsSQL is "" for PostgreSQL's default.
func pathAsSQL(path string) string {
	if path == `"$user", public` {
		return ""
	}
	return path
}

// SearchPath is the default shard's own search_path as SQL, "" if it is
// PostgreSQL's default or not known yet.
func (e *Executor) SearchPath() string {
	if b := e.baseline.Load(); b != nil {
		return b.path
	}
	return ""
}

// Isolation returns the default shard's default_transaction_isolation, "" if it is not known.
func (e *Executor) Isolation() string {
	if b := e.baseline.Load(); b != nil {
		return b.values["default_transaction_isolation"]
	}
	return ""
}

// Parameters returns what a new session reports to its client (server_version,
// TimeZone, ...): the default shard's, or, while that has not been reached yet,
// any live shard's. Fails with the reason when no shard can be reached.
func (e *Executor) Parameters(ctx context.Context) (map[string]string, error) {
	if b := e.baseline.Load(); b != nil {
		return b.reported, nil
	}
	c, err := e.AcquireAny(ctx, e.Snapshot().State().DefaultShard, nil)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	return maps.Clone(c.Parameters()), nil
}
