package cleave

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/telemetry"
)

// Cluster is an open cluster. Its methods are safe for concurrent use.
type Cluster struct {
	rooms   *wiring.Rooms
	options options
	session *pgxpool.Config // of sessions, copied for each use
	life    context.Context // ends with Close
	end     context.CancelFunc
	wg      sync.WaitGroup // goroutines that end with life
	owners  owners

	mu     sync.Mutex
	closed bool
	undo   []func() error // of what was opened on the way, in order
	db     *sql.DB
	pool   *pgxpool.Pool
}

// Option changes how a cluster is opened.
type Option func(*options)

type options struct {
	log      *slog.Logger
	user     string
	sessions int
	perShard int
}

// WithLogger gives the log of what the router would log. Without it nothing is
// logged: what concerns the caller is in errors.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// WithUser names the user of all sessions: current_user, and who changed
// something in the map's history. It is the user of the process without it.
func WithUser(name string) Option { return func(o *options) { o.user = name } }

// WithSessions bounds how many sessions DB and Pool open, each of them; 32
// without it. A statement that needs one more waits for it.
func WithSessions(n int) Option { return func(o *options) { o.sessions = n } }

// WithShardConnections bounds the connections to one shard that all sessions
// share; 32 without it, or what the file of settings says as pool-size.
func WithShardConnections(n int) Option { return func(o *options) { o.perShard = n } }

const (
	sessionsDefault = 32
	// drainMax is how long Close lets a statement or transaction go on.
	drainMax = 2 * time.Second
	// closeMax is how long Close waits for connections that the program still holds.
	closeMax = 5 * time.Second
	// leaveMax bounds the farewell to the directory.
	leaveMax = 2 * time.Second
)

// Open opens a cluster. The url is one of
//
//   - file:PATH, the data folder of a cluster on this machine, as `cleave up` or
//     an earlier Open made it. With file:PATH?shards=4 the folder is made, with
//     four SQLite shards, if there is no cluster in it. If there is one, it has to
//     have that many shards. PATH can also be the file of a directory;
//   - PATH.yaml (or .yml), a file of settings as for `cleave up` and `cleave
//     router`: directory, data, shards and the limits are used, the rest is not;
//   - etcd://HOST:PORT,.../PREFIX, a directory in etcd.
//
// ctx bounds opening only. Errors are *sqlstate.Error: F0000 if there is no such
// cluster or the url contradicts the existing cluster. A shard that is down is no
// reason to fail; statements that need it do.
func Open(ctx context.Context, url string, opts ...Option) (*Cluster, error) {
	o := options{sessions: sessionsDefault, user: processUser()}
	for _, set := range opts {
		set(&o)
	}
	o.log = telemetry.Log(o.log)
	place, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	if o.perShard > 0 {
		place.config.PoolSize = o.perShard
	}
	c := &Cluster{options: o}
	c.life, c.end = context.WithCancel(context.Background())
	if err := c.open(ctx, place); err != nil {
		_ = c.Close() // the first error is the one to report
		return nil, err
	}
	return c, nil
}

func (c *Cluster) open(ctx context.Context, place *place) error {
	dir, err := place.open(ctx, c.options.actor(), c.options.log)
	if err != nil {
		return err
	}
	c.undo = append(c.undo, dir.Close)
	// Before the map is loaded: from here on changes wait for this program.
	host, _ := os.Hostname() // "" says as much
	member := uuid.NewString()
	lease, leave, err := dir.Join(ctx, shardmap.Member{ID: member, Role: "client", Host: host, Software: software()})
	if err != nil {
		return err
	}
	c.undo = append(c.undo, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), leaveMax)
		defer cancel()
		if err := leave(ctx); err != nil {
			c.options.log.Warn("the directory could not be told that this program ends; its lease runs out", telemetry.KeyError, err)
		}
		return nil
	})
	place.config.Lanes = -1 // its sessions have no sockets, so that a loop would only be one wake-up more
	c.rooms, err = wiring.New(ctx, wiring.Options{Directory: dir, Lease: lease, Member: member, Config: &place.config, Software: software(), Log: c.options.log})
	if err != nil {
		return err
	}
	c.undo = append(c.undo, c.rooms.Close)
	if c.session, err = sessionConfig(c); err != nil {
		return err
	}
	c.rooms.Recover(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	c.owners.init(c)
	c.wg.Go(c.owners.follow)
	return nil
}

// Close ends everything that Open has begun. Statements and transactions that
// are under way may finish within 2 seconds, then they are cancelled; shards
// roll back what was not committed. Connections that the program took from Pool
// and does not give back are reported after 5 seconds.
func (c *Cluster) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	db, pool, undo := c.db, c.pool, c.undo
	c.mu.Unlock()
	var errs []error
	if c.rooms != nil {
		drain, cancel := context.WithTimeout(context.Background(), drainMax)
		_ = c.rooms.Gateway.Shutdown(drain) // what had to be cut off knows it
		cancel()
	}
	c.end()
	if db != nil {
		errs = append(errs, db.Close())
	}
	if pool != nil {
		errs = append(errs, closePool(pool))
	}
	errs = append(errs, c.owners.close())
	c.wg.Wait()
	for i := len(undo) - 1; i >= 0; i-- {
		errs = append(errs, undo[i]())
	}
	return errors.Join(errs...)
}

// closePool closes a pool, which waits for connections that are in use.
func closePool(p *pgxpool.Pool) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Close()
	}()
	t := time.NewTimer(closeMax)
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-t.C:
		return errors.New("cleave: the program still holds connections of a pool: rows that were not closed, or a connection that was not released")
	}
}

// Admin returns the operations on the cluster: keyspaces, pins, shards, history
// and the rest, as `cleave` and the schema cleave offer them. Its errors are
// *sqlstate.Error. A change is known to this program's statements when the call
// returns, to other programs and routers a moment later.
func (c *Cluster) Admin() admin.API { return operations{c.rooms.Ops, c} }

// Snapshot returns the shard map that statements are routed by now.
func (c *Cluster) Snapshot() *shardmap.Snapshot { return c.rooms.Executor.Snapshot() }

// Metrics returns what a router serves at /metrics, of this cluster, with the
// collectors of the Go runtime and the process. Serve it with promhttp.HandlerFor.
func (c *Cluster) Metrics() prometheus.Gatherer { return c.rooms.Metrics.Registry() }

// software is the version of Cleave in this program.
func software() string {
	const path = "github.com/cleavedb/cleave"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == path && m.Version != "" && m.Version != "(devel)" {
				return m.Version
			}
		}
	}
	return "development"
}

func processUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "cleave"
}

// program is the name of the running program.
func program() string { return filepath.Base(os.Args[0]) }

// actor is who appears in the map's history.
func (o *options) actor() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return o.user + "@" + host
}
