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
// other shard, so that a session gets the same answers from all of them. A session
// keeps the baseline that it began with: ALTER DATABASE ... SET is for new sessions.
type baseline struct {
	number   uint64 // from 1
	reported map[string]string
	start    map[string]string
	values   map[string]string // see engine.Alike; nil: the engine has none
	path     string            // search_path as a Setting's Value, "" if it is PostgreSQL's default
	other    bool              // the shard itself says otherwise: see readable
	learned  atomic.Int64      // when it was last seen to hold, Unix nanoseconds
	bare     *Settings         // of sessions that began with it, before their first SET
	patient  *baseline         // it without its timeouts; itself if it has none
	timeouts []Setting         // those that it has
}

// origin is what a session, or a connection, began with. Sessions use connections of their own origin alone.
type origin struct {
	login *Login
	base  *baseline // nil: the one of now; always nil with a login, which has values of its own
}

// origins are the baselines that sessions and connections have begun with.
type origins struct {
	baseline atomic.Pointer[baseline] // of now, nil while none was learned
	// learning is held by the goroutine that asks for the baseline. It guards baselines, the last ones.
	learning  chan struct{}
	baselines []*baseline
}

// from is the origin of the set's session.
func (s *Settings) from() origin {
	if s == nil {
		return origin{}
	}
	return s.origin
}

// now is the origin with the baseline of now in the place of none.
func (o *origins) now(from origin) origin {
	if from.login == nil && from.base == nil {
		from.base = o.baseline.Load()
	}
	return from
}

// fits reports whether a session of that origin can use the connection.
func (o *origins) fits(c *Conn, from origin) bool {
	return c.login == from.login && (from.login != nil || c.baseline == o.now(from).base)
}

var pinned = []string{"TimeZone", "DateStyle", "IntervalStyle"}

var plainStart = map[string]string{"client_encoding": "UTF8"}

const (
	// baselinesMax is how many earlier baselines are found again, should they hold again.
	baselinesMax = 8
	// likeTries bounds how often one connection is begun anew to be like the default shard's.
	likeTries = 8
)

// timeouts end a session or a statement, which the router's own work is not to be ended by.
var timeouts = []string{"statement_timeout", "lock_timeout", "transaction_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"}

// start is what connections begin with that need nothing else to be alike.
func (o origin) start() (start, values map[string]string) {
	switch {
	case o.login != nil:
		return o.login.start, o.login.values
	case o.base != nil:
		return o.base.start, o.base.values
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
func (p *pool) connect(ctx context.Context, from origin) (engine.Conn, error) {
	plain, want := from.start()
	if _, has := want["default_transaction_isolation"]; has && p.role == engine.Replica {
		want = maps.Clone(want)
		delete(want, "default_transaction_isolation") // a hot standby runs nothing as SERIALIZABLE
	}
	like := p.like.Load()
	if like == nil || like.base != from.base || from.login != nil {
		like = &likeness{base: from.base}
	}
	for try := 1; ; try++ {
		start := maps.Clone(plain)
		maps.Copy(start, like.extra)
		ec, err := connectAs(ctx, p.shard, start, from.login)
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
			p.keep(like, from)
			return ec, nil
		}
		_ = ec.Close()
		like = like.with(differ)
	}
}

// keep remembers what the next connection needs, if it begins with the baseline of now.
func (p *pool) keep(like *likeness, from origin) {
	if from.login != nil || from.base != p.ex.baseline.Load() || like == p.like.Load() {
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
func (p *pool) begin(ctx context.Context, from origin) (engine.Conn, *baseline, error) {
	done, err := p.learns(ctx, from.login)
	if err != nil {
		return nil, nil, err
	}
	if done != nil {
		c, learned, err := func() (engine.Conn, *baseline, error) {
			defer done() // after a fault too: others wait for it
			return p.learn(ctx)
		}()
		if err != nil {
			return nil, nil, err
		}
		if !learned.other && p.ex.now(from).base == learned {
			return c, learned, nil
		}
		_ = c.Close()
	}
	from = p.ex.now(from)
	c, err := p.connect(ctx, from)
	return c, from.base, err
}

// learns reports, by what has to be called when it is done, whether a new connection of the pool is asked for the
// baseline. One at a time is. While there is none yet, the others wait for it.
func (p *pool) learns(ctx context.Context, login *Login) (done func(), err error) {
	fresh := func() bool {
		b := p.ex.baseline.Load()
		return b != nil && time.Now().UnixNano()-b.learned.Load() <= int64(p.ex.limits.LearnEvery)
	}
	if login != nil || p.role == engine.Replica || p.ex.Snapshot().State().DefaultShard != p.name || fresh() {
		return nil, nil
	}
	done = func() { <-p.ex.learning }
	if p.ex.baseline.Load() != nil {
		select {
		case p.ex.learning <- struct{}{}:
			return done, nil
		default:
			return nil, nil
		}
	}
	select {
	case p.ex.learning <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if fresh() {
		done()
		return nil, nil
	}
	return done, nil
}

// learn opens a conversation with the default shard and makes what it has the baseline. p.ex.learning is held.
func (p *pool) learn(ctx context.Context) (engine.Conn, *baseline, error) {
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
	b = p.ex.origins.known(b)
	b.learned.Store(time.Now().UnixNano())
	p.ex.baseline.Store(b)
	return c, b, nil
}

// known is the baseline as it was learned before, or it is a new one. o.learning is held.
func (o *origins) known(b *baseline) *baseline {
	for _, was := range o.baselines {
		if was.other == b.other && maps.Equal(was.reported, b.reported) && maps.Equal(was.values, b.values) {
			return was
		}
	}
	b.number = 1
	if n := len(o.baselines); n > 0 {
		b.number = o.baselines[n-1].number + 1
	}
	if path, ok := b.values["search_path"]; ok {
		b.path = startPath(path)
	}
	b.bare, b.patient = &Settings{path: defaultPath, origin: origin{base: b}}, b
	quiet := map[string]string{}
	for _, name := range timeouts {
		if v, ok := b.values[name]; ok && v != "0" {
			quiet[name] = "0"
			b.timeouts = append(b.timeouts, Setting{Name: name, Value: QuoteLiteral(v)})
		}
	}
	if len(quiet) > 0 {
		values := maps.Clone(b.values)
		maps.Copy(values, quiet)
		b.patient = &baseline{number: b.number, reported: b.reported, start: b.start, values: values, path: b.path}
		b.patient.bare, b.patient.patient = &Settings{path: defaultPath, origin: origin{base: b.patient}}, b.patient
	}
	o.baselines = append(o.baselines, b)
	if len(o.baselines) > baselinesMax {
		o.baselines = o.baselines[1:]
	}
	return b
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

// startPath is a search_path that a session begins with as a Setting's Value, "" for PostgreSQL's default.
func startPath(path string) string {
	if path == `"$user", public` {
		return ""
	}
	return Text(path)
}

// Begin returns the settings of a session that begins now. From now on it has the default shard's baseline of now,
// or its login's. While the default shard was not reached yet, it has none. Fails when no shard can be reached.
func (e *Executor) Begin(ctx context.Context, s *Settings) (*Settings, error) {
	if s.Login() != nil {
		return s, nil
	}
	if _, err := e.Parameters(ctx); err != nil { // which learns it
		return nil, err
	}
	b := e.baseline.Load()
	switch {
	case b == nil:
		return s, nil
	case s.Len() == 0:
		return b.bare, nil
	}
	return newSettings(s.list(), origin{base: b}), nil
}

// Bare is what the set's session had before its first SET, and its startup parameters.
func (s *Settings) Bare() *Settings { return newSettings(nil, s.from()) }

// BeganAs is the number of the baseline that the set's session has, 0 if it has none.
func (s *Settings) BeganAs() uint64 {
	if b := s.from().base; b != nil {
		return b.number
	}
	return 0
}

// OwnPath is the search_path that the set's session began with, as a Setting's Value; "" if it is PostgreSQL's default or not known.
func (s *Settings) OwnPath() string {
	switch from := s.from(); {
	case from.login != nil:
		return from.login.path
	case from.base != nil:
		return from.base.path
	}
	return ""
}

// Began is the value that the set's session began with of a setting, "" if it is not known.
func (s *Settings) Began(name string) string {
	from := s.from()
	_, values := from.start()
	reported := map[string]string(nil)
	switch {
	case from.login != nil:
		reported = from.login.reported
	case from.base != nil:
		reported = from.base.reported
	}
	for _, p := range pinned {
		if strings.EqualFold(p, name) {
			name = p // PostgreSQL's own spelling
		}
	}
	if v, ok := values[name]; ok {
		return v
	}
	return reported[name]
}

// Value is the SQL text of a setting, or else the value that the set's session began with, "" if neither is known.
func (s *Settings) Value(name string) string {
	if v, ok := s.Get(name); ok {
		return v
	}
	return s.Began(name)
}

// Text is Value without its quotes.
func (s *Settings) Text(name string) string {
	v := strings.TrimSpace(s.Value(name))
	if len(v) >= 2 && v[0] == '\'' && v[len(v)-1] == '\'' {
		return strings.ReplaceAll(v[1:len(v)-1], "''", "'")
	}
	return v
}

// Timed is the set with the timeouts that its session began with, for a conversation that has not begun with them: one of
// [Executor.ConnectFor].
func (s *Settings) Timed() *Settings {
	if b := s.from().base; b != nil {
		for _, e := range b.timeouts {
			if _, ok := s.Get(e.Name); !ok {
				s = s.With(e.Name, e.Value)
			}
		}
	}
	return s
}

// Patient is the set for a schema change of its session: without the timeouts that the session began with and has not set itself.
// lock_timeout stays, which says how long a schema change waits.
func (s *Settings) Patient() *Settings {
	if b := s.from().base; b != nil {
		for _, e := range b.timeouts {
			if _, ok := s.Get(e.Name); ok {
				continue
			}
			if e.Name != "lock_timeout" {
				e.Value = "0"
			}
			s = s.With(e.Name, e.Value)
		}
	}
	return s
}

// OwnIsolation is the default_transaction_isolation that the set's session began with, "" if it is not known.
func (s *Settings) OwnIsolation() string {
	_, values := s.from().start()
	return values["default_transaction_isolation"]
}

// ParametersOf returns what the session of the set reports to its client before startup parameters: see Parameters.
func (e *Executor) ParametersOf(ctx context.Context, s *Settings) (map[string]string, error) {
	switch from := s.from(); {
	case from.login != nil:
		return from.login.reported, nil
	case from.base != nil:
		return from.base.reported, nil
	}
	return e.Parameters(ctx)
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
