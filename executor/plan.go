package executor

import (
	"hash/maphash"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// planCache keeps analysed statements under (text, search_path, SchemaVersion),
// in parts with a lock each. What was not used since the last sweep goes first.
type planCache struct {
	seed  maphash.Seed
	parts [16]planPart
	// handed is the last plan that no part takes. The conversation over several shards, which asks for it after the
	// session has, takes it out.
	handed atomic.Pointer[handedPlan]
}

// plans analyses statements, and keeps the analyses.
type plans struct {
	planner *planner.Planner
	cache   planCache
	metrics *telemetry.Metrics
	log     *slog.Logger
	origins *origins // which says who "$user" is
	// beside runs what takes a bounded time in a goroutine; false: no more.
	beside func(f func()) bool
	left   chan struct{} // plans that are finished for nobody
}

type handedPlan struct {
	key planKey
	st  *plan.Statement
}

// take gives the handed plan if it is of that text, path and version.
func (c *planCache) take(text []byte, path string, version uint64) *plan.Statement {
	h := c.handed.Load()
	if h == nil || h.key.version != version || h.key.path != path || h.key.text != string(text) || !c.handed.CompareAndSwap(h, nil) {
		return nil
	}
	return h.st
}

// find gives a plan that is kept or handed.
func (c *planCache) find(text []byte, path string, version uint64) *plan.Statement {
	if st := c.part(text).get(text, path, version); st != nil {
		return st
	}
	return c.take(text, path, version)
}

// keep keeps a plan, or hands it on if it is too large.
func (c *planCache) keep(text, path string, version uint64, st *plan.Statement) {
	if !c.part([]byte(text)).put(text, path, version, st) && (st.Kind == plan.Several || len(st.Keys) > 1) {
		c.handed.Store(&handedPlan{planKey{text, path, version}, st})
	}
}

type planPart struct {
	mu       sync.Mutex
	plans    map[planKey]*cachedPlan
	bytes    int
	maxPlans int
	maxBytes int
}

type planKey struct {
	text, path string
	version    uint64
}

type cachedPlan struct {
	st   *plan.Statement
	size int
	used bool
}

func (c *planCache) init(entries, bytes int) {
	c.seed = maphash.MakeSeed()
	for i := range c.parts {
		c.parts[i] = planPart{plans: map[planKey]*cachedPlan{}, maxPlans: max(entries/len(c.parts), 1), maxBytes: max(bytes/len(c.parts), 1<<10)}
	}
}

func (c *planCache) size() (entries, bytes int) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		entries += len(p.plans)
		bytes += p.bytes
		p.mu.Unlock()
	}
	return entries, bytes
}

func (c *planCache) part(text []byte) *planPart {
	return &c.parts[maphash.Bytes(c.seed, text)%uint64(len(c.parts))]
}

func (p *planPart) get(text []byte, path string, version uint64) *plan.Statement {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.plans[planKey{string(text), path, version}] // does not allocate
	if !ok {
		return nil
	}
	e.used = true
	return e.st
}

// put reports whether the plan is kept.
func (p *planPart) put(text, path string, version uint64, st *plan.Statement) bool {
	size := planSize(text, st)
	if size > p.maxBytes/4 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := planKey{text, path, version}
	if e, ok := p.plans[k]; ok {
		p.bytes += size - e.size
		e.st, e.size = st, size
		return true
	}
	for sweep := 0; sweep < 2 && (len(p.plans) >= p.maxPlans || p.bytes+size > p.maxBytes); sweep++ {
		// Go's random order of maps makes this a random choice among the unused.
		for k, e := range p.plans {
			if len(p.plans) < p.maxPlans*7/8+1 && p.bytes+size <= p.maxBytes*7/8 {
				break
			}
			if e.used && sweep == 0 && k.version == version {
				e.used = false
				continue
			}
			delete(p.plans, k)
			p.bytes -= e.size
		}
	}
	p.plans[k] = &cachedPlan{st: st, size: size}
	p.bytes += size
	return true
}

// planSize estimates what a plan holds.
func planSize(text string, st *plan.Statement) int {
	n := 512 + 3*len(text) + len(st.Text) + len(st.Shape)
	for _, k := range st.Keys {
		n += 96 * len(k)
	}
	if st.Fill != nil {
		n += len(st.Text) + 96*len(st.Fill.Values)
	}
	if st.Inner != nil {
		n += planSize("", st.Inner)
	}
	if p := st.Plan; p != nil {
		n += 512 + len(p.Text)
		for i := range p.Relations {
			n += 256 + len(p.Relations[i].Text)
		}
	}
	return n
}

// Plan returns the analysis of one statement under a search path, from the
// cache if it can. text is copied when it is kept. snap may be a session's
// private snapshot; then nothing is cached.
func (p *plans) Plan(w Waiter, text []byte, s *Settings, snap *shardmap.Snapshot, private bool) (*plan.Statement, error) {
	return p.planAs(w, text, s.searchPathKey(), (*planner.Planner).Analyze, s, snap, private)
}

// PlanSeveral is Plan for a statement whose shard keys turned out to be on
// several shards: it plans for several without a try to prove one. The plans are
// cached beside the others.
func (p *plans) PlanSeveral(w Waiter, text []byte, s *Settings, snap *shardmap.Snapshot, private bool) (*plan.Statement, error) {
	// No search_path begins with a zero byte.
	return p.planAs(w, text, "\x00"+s.searchPathKey(), (*planner.Planner).Several, s, snap, private)
}

// PlanTyped is Plan, or PlanSeveral, of a text of whose literals the types are known.
func (p *plans) PlanTyped(w Waiter, text string, several bool, types plan.InputTypes, s *Settings, snap *shardmap.Snapshot, private bool) (*plan.Statement, error) {
	path, by := "\x01", (*planner.Planner).Analyze
	if several {
		path, by = "\x02", (*planner.Planner).Several
	}
	for _, t := range types.Types {
		path += strconv.FormatUint(uint64(t.OID), 10) + t.Name + "\x00"
	}
	return p.planAs(w, []byte(text), path+"\x00"+s.searchPathKey(), func(with *planner.Planner, sql string, snap *shardmap.Snapshot, path []string) (*plan.Statement, error) {
		return by(with.With(types), sql, snap, path)
	}, s, snap, private)
}

type analysis = func(p *planner.Planner, sql string, snap *shardmap.Snapshot, path []string) (*plan.Statement, error)

// planAs plans by an analysis, and caches under path.
func (p *plans) planAs(w Waiter, text []byte, path string, by analysis, s *Settings, snap *shardmap.Snapshot, private bool) (*plan.Statement, error) {
	if !private {
		st := p.cache.find(text, path, snap.SchemaVersion())
		p.metrics.PlanCache(st != nil)
		if st != nil {
			return mayView(st, s)
		}
	}
	sql, names := string(text), p.path(s, snap)
	st, err := p.attend(w, func(with *planner.Planner) (*plan.Statement, error) { return by(with, sql, snap, names) })
	if err != nil {
		return nil, err
	}
	p.classify(st)
	if !private {
		p.cache.keep(sql, path, snap.SchemaVersion(), st)
	}
	return mayView(st, s)
}

// mayView refuses a statement whose views were written out to a user whom the shards check: they
// would look at the privileges on the views' tables, which a view's reader need not have.
func mayView(st *plan.Statement, s *Settings) (*plan.Statement, error) {
	if st.Views && s.Login() != nil {
		return nil, sqlstate.Refusal("CLV-1418", "a view over sharded or reference tables cannot be read by a user who is passed through to the shards").
			WithHint("Read its tables, or let an administrator read it.")
	}
	return st, nil
}

// PreparedWords is Planner.PreparedWords under a search path.
func (p *plans) PreparedWords(text string, s *Settings, snap *shardmap.Snapshot, asked *plan.InputQuestion, types []plan.InputType) []planner.PreparedWord {
	return p.planner.PreparedWords(text, snap, p.path(s, snap), asked, types)
}

// KeyTexts is Planner.KeyTexts under a search path. w can leave as it can leave a plan.
func (p *plans) KeyTexts(w Waiter, text string, s *Settings, snap *shardmap.Snapshot) ([]planner.PreparedWord, error) {
	var words []planner.PreparedWord
	path := p.path(s, snap)
	if _, err := p.attend(w, func(by *planner.Planner) (*plan.Statement, error) {
		words = by.KeyTexts(text, snap, path)
		return nil, nil
	}); err != nil {
		return nil, err
	}
	return words, nil
}

// ArgsUseClock is Planner.ArgsUseClock under a search path, and ArgsAt is Planner.ArgsAt.
func (p *plans) ArgsUseClock(args string, s *Settings, snap *shardmap.Snapshot) (bool, error) {
	return p.planner.ArgsUseClock(args, snap, p.path(s, snap))
}

// ArgsAt puts a time in the place of now() and its like.
func (p *plans) ArgsAt(args, now string, s *Settings, snap *shardmap.Snapshot) (string, error) {
	return p.planner.ArgsAt(args, now, snap, p.path(s, snap))
}

// UsesClock is Planner.UsesClock.
func (p *plans) UsesClock(st *plan.Statement) bool { return p.planner.UsesClock(st) }

// AtTime is Planner.AtTime under a search path, with the types of literals. Nothing is cached.
func (p *plans) AtTime(st *plan.Statement, types plan.InputTypes, s *Settings, snap *shardmap.Snapshot) (text string, clock bool, asks *plan.InputQuestion, err error) {
	return p.planner.With(types).AtTime(st, snap, p.path(s, snap))
}

// PlanOf is the kind of plan as metrics, logs and traces name it.
func PlanOf(st *plan.Statement) telemetry.Plan {
	switch st.Kind {
	case plan.OneShard:
		return telemetry.OneShard
	case plan.DefaultShard:
		return telemetry.DefaultShard
	case plan.AnyShard:
		if len(st.Tables) > 0 {
			return telemetry.Reference
		}
		return telemetry.AnyShard
	case plan.DDLKind, plan.BlockKind:
		return telemetry.DDL
	case plan.Virtual, plan.Call, plan.ExplainRoute:
		return telemetry.Virtual
	case plan.Several:
		if st.Plan != nil && st.Plan.Op == plan.Gather {
			return telemetry.Gather
		}
		return telemetry.Scatter
	}
	return telemetry.Control
}

// classify marks a statement that nobody else has yet with what it counts as.
func (p *plans) classify(st *plan.Statement) {
	plan := PlanOf(st)
	write := !st.ReadOnly
	switch plan {
	case telemetry.Control, telemetry.Virtual:
		write = false
	case telemetry.DDL:
		write = true
	}
	st.Class = uint16(p.metrics.Class(st.Keyspace, plan, write))
}

// PlanText is Plan for a text with its literals in it, as the simple protocol
// sends them: texts that differ in literals only share one analysis, where the
// planner can tell the route from the literals. routed says that r is the route.
// text is not kept.
func (p *plans) PlanText(w Waiter, sh *sqltext.Shaper, text []byte, s *Settings, snap *shardmap.Snapshot, private bool) (st *plan.Statement, r plan.Route, routed bool, err error) {
	if private {
		st, err = p.Plan(w, text, s, snap, private)
		return st, r, false, err
	}
	key, view, literals := shapeOf(sh, text)
	if key == nil {
		st, err = p.Plan(w, text, s, snap, private)
		return st, r, false, err
	}
	part := p.cache.part(key)
	if st = part.get(key, s.searchPathKey(), snap.SchemaVersion()); st != nil {
		if r, ok, err := st.RouteText(snap, view, literals); ok && err == nil && !r.Several {
			p.metrics.PlanCache(true)
			return st, r, true, nil
		}
		st, err = p.Plan(w, text, s, snap, private)
		return st, r, false, err
	}
	st, err = p.Plan(w, text, s, snap, private)
	if err == nil && st.Reusable && st.Kind == plan.OneShard && st.Text == view {
		part.put(string(key), s.searchPathKey(), snap.SchemaVersion(), st)
	}
	return st, r, false, err
}

// shapeOf is the key of a text's shape in the cache, nil if it has none that can
// be trusted or no literals. key and literals are valid until the shaper's next use.
func shapeOf(sh *sqltext.Shaper, text []byte) (key []byte, view string, literals []sqltext.Literal) {
	if len(text) == 0 {
		return nil, "", nil
	}
	// Neither the shaper nor the planner keeps it.
	view = unsafe.String(&text[0], len(text))
	shape, literals, exact := sh.Normalize(view)
	if !exact || len(literals) == 0 {
		return nil, view, nil
	}
	// A shape cannot be mistaken for a text: $i, $s, ... are not SQL.
	return unsafe.Slice(unsafe.StringData(shape), len(shape)), view, literals
}

// SamePath reports whether names surely mean the same under both sets of settings.
func (p *plans) SamePath(s, t *Settings, snap *shardmap.Snapshot) bool {
	path := p.path(s, snap)
	if s.searchPathKey() != t.searchPathKey() && !slices.Equal(path, p.path(t, snap)) {
		return false
	}
	// A schema that only one of the roles may use is not looked into.
	was, _ := s.Get("role")
	now, _ := t.Get("role")
	return was == now || slices.Equal(path, []string{"public"})
}

// path is the search path for the planner. "$user" is the user that shards
// know, if the map has a table in a schema of that name; else there is no such
// schema, as far as the router knows, and PostgreSQL skips it as well.
func (p *plans) path(s *Settings, snap *shardmap.Snapshot) []string {
	path := s.SearchPath()
	out := make([]string, 0, len(path))
	for _, name := range path {
		if name == "$user" {
			if name = p.origins.userOf(s); !hasSchema(snap, name) {
				continue
			}
		}
		out = append(out, name)
	}
	return out
}

// userOf is the user that shards know, "" while no shard was reached.
func (o *origins) userOf(s *Settings) string {
	if l := s.Login(); l != nil {
		return l.as.User
	}
	if b := o.baseline.Load(); b != nil {
		return b.reported["session_authorization"]
	}
	return ""
}

func hasSchema(snap *shardmap.Snapshot, name string) bool {
	for i := range snap.State().Tables {
		if snap.State().Tables[i].Schema == name {
			return true
		}
	}
	return false
}

// PlanCacheSize returns the number of analysed statements kept, and their
// estimated size in bytes.
func (p *plans) PlanCacheSize() (entries, bytes int) { return p.cache.size() }

// Split returns the statements of one simple-protocol message.
func (e *Executor) Split(sql string) ([]string, error) { return e.planner.Split(sql) }

// TextKey returns the key that a text names which has the statement's shape, nil if it
// cannot be told.
func (p *plans) TextKey(sh *sqltext.Shaper, st *plan.Statement, text []byte) []string {
	_, view, literals := shapeOf(sh, text)
	return st.TextKey(view, literals)
}
