package admin

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/crashpoint"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Options are what operations need.
type Options struct {
	Directory shardmap.Directory
	// Drivers are the engines, found by the scheme of a shard's URL ("postgres:",
	// "postgresql:" or "file:").
	Drivers []engine.Driver
	// Connect gives conversations with the shards of the map, usually from the
	// executor's pools. nil: each operation opens its own.
	Connect schema.Connect
	// Shard gives a shard of the map at the server that is its primary now, for shards with replicas. nil: at its first URL.
	Shard func(name string) (engine.Shard, error)
	// Answer answers what this process, the member Member, is asked about its sessions. nil: it has none.
	Answer shardmap.Answerer
	Member string
	// Software is the version of Cleave, for Status.
	Software string
	Log      *slog.Logger // nil: nothing is logged
	// ProbeTimeout bounds the look at one shard; 0 is 2 seconds.
	ProbeTimeout time.Duration
	// LockTimeout bounds each wait for a lock; 0 is 5 seconds.
	LockTimeout time.Duration

	// step is called between the steps; an error stands for a crash there. Tests only.
	step func(step, shard string) error
}

// Ops carries the operations out. Methods are safe for concurrent use.
type Ops struct {
	*backend
	users
	sessions
	views
	workflows
	verification
	replicas
	copies
}

// backend is what operations work on: the directory, and the shards, which are opened once.
type backend struct {
	opts    Options
	drivers map[string]engine.Driver

	mu     sync.Mutex
	shards map[string]openShard
	closed bool
}

type openShard struct {
	url   string
	shard engine.Shard
}

var _ API = (*Ops)(nil)

// DefaultProbeTimeout is that of Options.
const DefaultProbeTimeout = 2 * time.Second

// New returns the operations on the cluster of a directory. Nothing is opened yet.
func New(opts Options) *Ops {
	if opts.ProbeTimeout <= 0 {
		opts.ProbeTimeout = DefaultProbeTimeout
	}
	if opts.LockTimeout <= 0 {
		opts.LockTimeout = schema.DefaultLockTimeout
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	b := &backend{opts: opts, drivers: map[string]engine.Driver{}, shards: map[string]openShard{}}
	for _, d := range opts.Drivers {
		b.drivers[d.Name()] = d
	}
	o := &Ops{
		backend: b, users: users{opts.Directory, opts.Log}, sessions: sessions{backend: b}, views: views{backend: b, started: time.Now().UTC()},
		verification: verification{backend: b}, replicas: replicas{b}, copies: copies{b},
	}
	o.workflows = workflows{backend: b, pin: o.Pin}
	return o
}

// Close closes the shards that the operations opened themselves. Later
// operations that need one fail with 57P01.
func (o *backend) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	var errs []error
	for _, s := range o.shards {
		errs = append(errs, s.shard.Close())
	}
	clear(o.shards)
	return errors.Join(errs...)
}

// driver returns the engine of a URL.
func (o *backend) driver(shardURL string) (engine.Driver, error) {
	for _, d := range o.drivers {
		if d.Opens(shardURL) {
			return d, nil
		}
	}
	return nil, sqlstate.New(sqlstate.InvalidParameterValue, "no engine for the URL %s", shardmap.Redacted(shardURL)).
		WithHint("use postgres://user@host:5432/database or file:/path/to/shard.db")
}

// open returns the handle of a shard of the map, opened once for each URL.
func (o *backend) open(cluster string, s *shardmap.Shard) (engine.Shard, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, sqlstate.New(sqlstate.AdminShutdown, "the process is ending")
	}
	if have, ok := o.shards[s.Name]; ok && have.url == s.URL {
		return have.shard, nil
	}
	d, ok := o.drivers[s.Engine]
	if !ok {
		return nil, sqlstate.Refusal("CLV-1402", "this program has no engine %q", s.Engine).OnShard(s.Name)
	}
	sh, err := d.Open(engine.Config{Cluster: cluster, Name: s.Name, URL: s.URL})
	if err != nil {
		return nil, err
	}
	if have, ok := o.shards[s.Name]; ok {
		_ = have.shard.Close() // its URL is no longer the shard's
	}
	o.shards[s.Name] = openShard{url: s.URL, shard: sh}
	return sh, nil
}

// primary is open for a shard of the map, at the server that is its primary now.
func (o *backend) primary(cluster string, s *shardmap.Shard) (engine.Shard, error) {
	if len(s.Replicas) > 0 && o.opts.Shard != nil {
		return o.opts.Shard(s.Name)
	}
	return o.open(cluster, s)
}

// forget closes the handle of a shard that left the map.
func (o *backend) forget(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s, ok := o.shards[name]; ok {
		_ = s.shard.Close()
		delete(o.shards, name)
	}
}

// params are the startup parameters of the operations' own conversations.
// Rows are read after locks were waited for, so each statement needs a snapshot of its own.
var params = map[string]string{"application_name": "cleave", "client_encoding": "UTF8", "default_transaction_isolation": "read committed"}

// connect is the schema.Connect of operations.
func (o *backend) connect(ctx context.Context, name string) (engine.Conn, func(broken bool), error) {
	if o.opts.Connect != nil {
		return o.opts.Connect(ctx, name)
	}
	snap, err := o.load(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, ok := snap.Shard(name)
	if !ok {
		return nil, nil, noShard(name)
	}
	sh, err := o.primary(snap.State().Cluster, s)
	if err != nil {
		return nil, nil, err
	}
	return dial(ctx, sh)
}

// dial opens a conversation for one operation.
func dial(ctx context.Context, sh engine.Shard) (engine.Conn, func(broken bool), error) {
	conn, err := sh.Connect(ctx, params)
	if err != nil {
		return nil, nil, err
	}
	return conn, func(bool) { _ = conn.Close() }, nil
}

// dialCarrier is dial for one whose writes may pass triggers, where the shard tells them from others.
func dialCarrier(ctx context.Context, sh engine.Shard) (engine.Conn, func(broken bool), error) {
	carrier, ok := sh.(engine.Carrier)
	if !ok {
		return dial(ctx, sh)
	}
	conn, err := carrier.ConnectCarrier(ctx, params)
	if err != nil {
		return nil, nil, err
	}
	return conn, func(bool) { _ = conn.Close() }, nil
}

func (o *backend) load(ctx context.Context) (*shardmap.Snapshot, error) {
	snap, err := o.opts.Directory.Load(ctx)
	if err != nil {
		return nil, directoryError(err)
	}
	return snap, nil
}

func directoryError(err error) error {
	if _, ok := errors.AsType[*sqlstate.Error](err); ok {
		return err
	}
	return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the directory cannot be reached").WithHint("nothing was changed; see: cleave doctor")
}

func (o *backend) schemaOptions(m Meta) schema.Options {
	return schema.Options{Directory: o.opts.Directory, Connect: o.connect, Actor: m.by(), Why: m.Why, LockTimeout: o.opts.LockTimeout}
}

func (o *backend) step(name, shard string) error {
	crashpoint.Step("")
	if o.opts.step == nil {
		return nil
	}
	return o.opts.step(name, shard)
}

// by is who does it.
func (m Meta) by() string {
	if m.By == "" {
		return "unknown"
	}
	return m.By
}

// why is the line for people: what was given, else what was done.
func (m Meta) why(done string) string {
	if m.Why == "" {
		return done
	}
	return m.Why
}

// updateTries bounds how often a change is made anew because somebody was faster.
const updateTries = 8

// update changes the map by compare-and-set. edit validates against the current
// map and returns the next state, or nil when nothing is left to do; it is asked
// again when somebody was faster.
func (o *backend) update(ctx context.Context, c shardmap.Change, edit func(cur *shardmap.Snapshot) (*shardmap.State, error)) (*shardmap.Snapshot, error) {
	for range updateTries {
		cur, err := o.load(ctx)
		if err != nil {
			return nil, err
		}
		next, err := edit(cur)
		if err != nil {
			return nil, err
		}
		if next == nil {
			return cur, nil
		}
		c.Expect = cur.Version()
		snap, err := o.opts.Directory.Update(ctx, c, *next)
		if err == nil {
			o.opts.Log.Info("map changed", "version", snap.Version(), "op", c.Op, "by", c.By, "why", c.Why)
			o.told(ctx, cur, snap)
			return snap, nil
		}
		if !errors.Is(err, shardmap.ErrConflict) {
			return nil, directoryError(err)
		}
	}
	return nil, busyMap()
}

// tried makes an edit of the current map without storing it: what would be refused is refused before anything is done, and in a
// dry run. Errors: those of edit; what is wrong with the map that it makes.
func (o *backend) tried(ctx context.Context, edit func(cur *shardmap.Snapshot) (*shardmap.State, error)) (*shardmap.Snapshot, error) {
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	next, err := edit(cur)
	if err != nil {
		return nil, err
	}
	_, err = shardmap.NewSnapshot(*next)
	return cur, err
}

// told waits until every member knows a change that is in no statement's way: a keyspace that was made on one router can be
// used on another one. Other changes are followed by those whom a shard refuses; long statements would hold them up here.
func (o *backend) told(ctx context.Context, was, is *shardmap.Snapshot) {
	if c := shardmap.Concerned(was, is); c.All || len(c.Shards) > 0 || c.Strangers() {
		return
	}
	if err := schema.AwaitMembers(ctx, o.opts.Directory, is.Version(), toldMax); err != nil {
		o.opts.Log.Warn("not everybody knows the map yet", "version", is.Version(), "error", err)
	}
}

// toldMax bounds that wait.
const toldMax = 10 * time.Second

func noShard(name string) error {
	return sqlstate.New(sqlstate.UndefinedObject, "shard %q does not exist", name).WithHint("see: cleave shard list")
}

func noKeyspace(name string) error {
	return sqlstate.New(sqlstate.UndefinedObject, "keyspace %q does not exist", name).WithHint("see: cleave keyspace list")
}

// sameDatabase reports whether two URLs name the same database, as far as the
// texts tell: the password and parameters aside.
func sameDatabase(a, b string) bool {
	if a == b {
		return true
	}
	ua, errA := url.Parse(a)
	ub, errB := url.Parse(b)
	if errA != nil || errB != nil || ua.Host == "" && ua.Path == "" && ua.Opaque == "" {
		return false
	}
	return ua.Scheme == ub.Scheme && strings.EqualFold(ua.Host, ub.Host) && ua.Path == ub.Path && ua.Opaque == ub.Opaque &&
		(ua.Host != "" || ua.RawQuery == ub.RawQuery || ua.Query().Has("host") && samePlace(ua.Query(), ub.Query()))
}

// samePlace reports whether two URLs without a host name the same one among their parameters, as those of sockets do.
func samePlace(a, b url.Values) bool {
	return slices.Equal(a["host"], b["host"]) && slices.Equal(a["port"], b["port"])
}
