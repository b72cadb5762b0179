package wiring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/moment"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/gateway/arrival"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// Drivers are the engines that this program has.
func Drivers() []engine.Driver { return append(embedded(), postgres.Driver{}) }

// Rooms are the rooms of one process over one directory.
type Rooms struct {
	Directory shardmap.Directory
	Metrics   *telemetry.Metrics
	Planner   *planner.Planner
	Executor  *executor.Executor
	Ops       *admin.Ops
	Gateway   *gateway.Server
	// Coordinator runs workflows while it leads; nil if this process has none.
	Coordinator *coordinator.Coordinator

	// Users may connect, where clients are asked who they are.
	Users *access.Users

	transactions *txn.Transactions
	peers        *moment.Peers // nil: no other router is asked
	// Peer answers other routers; nil: nobody does.
	Peer    arrival.Peer
	life    context.Context
	stop    context.CancelFunc // ends recovery
	stopped sync.WaitGroup
	refused chan struct{} // a guard refused what the map allows
	left    chan struct{} // a schema change stays prepared

	tls    *arrival.TLS // nil: none
	tracer *trace.Tracer
	log    *slog.Logger
}

// Options are what Rooms are made of.
type Options struct {
	Directory shardmap.Directory // stays the caller's to close
	// Lease, if there is one, is what the directory's Join returned: without a
	// live one no statement is answered. Join before New, which loads the map.
	Lease *shardmap.Lease
	// Member is the id with which Join was called. Transactions over several shards
	// carry it, so that others see whether their router is gone. "": nobody
	// takes this process's transactions for alive after they are a moment old.
	Member string
	Config *config.Config
	// Asked: it takes clients at the address with which Join was called, so other members can ask it there.
	Asked bool
	// Candidate is the name under which the process takes part in the coordinators'
	// election; "": it does not.
	Candidate string
	Software  string // version of Cleave
	Log       *slog.Logger
}

// New wires the rooms and starts to follow the map. Nothing is served yet.
func New(ctx context.Context, o Options) (*Rooms, error) {
	r := &Rooms{Directory: o.Directory, Metrics: telemetry.New(), Planner: planner.New(planLimits(o.Config)), log: o.Log, refused: make(chan struct{}, 1), left: make(chan struct{}, 1)}
	if o.Config.TLSCert != "" {
		var err error
		if r.tls, err = arrival.LoadTLS(arrival.TLSFiles{Certificate: o.Config.TLSCert, Key: o.Config.TLSKey, ClientCA: o.Config.TLSClientCA}); err != nil {
			return nil, err
		}
	}
	byName := map[string]engine.Driver{}
	for _, d := range append(embedded(), postgres.Driver{SocketDirs: socketDirs(o.Config)}) {
		byName[d.Name()] = d
	}
	r.Executor = executor.New(executor.Options{
		Directory: o.Directory, Drivers: byName, Planner: r.Planner, Limits: executorLimits(o.Config), Log: o.Log, Metrics: r.Metrics,
		Lease: o.Lease, Member: o.Member,
	})
	if err := r.Executor.Start(ctx); err != nil {
		_ = r.Executor.Close() // the first error is the one to report
		return nil, err
	}
	if err := passes(o.Config, r.Executor.Snapshot()); err != nil {
		_ = r.Executor.Close() // the first error is the one to report
		return nil, err
	}
	if lease := o.Lease; lease != nil {
		r.Metrics.Lease(func() (time.Duration, bool) { return lease.Left(), true })
		r.Metrics.Serving(lease.Live)
	}
	var err error
	if r.tracer, err = newTracer(ctx, o, r.Metrics); err != nil {
		_ = r.Executor.Close() // the first error is the one to report
		return nil, err
	}
	r.Users = access.NewUsers(o.Directory)
	r.Ops = admin.New(admin.Options{
		Directory: o.Directory, Drivers: Drivers(), Connect: r.Executor.Connect, Shard: r.Executor.Shard, Software: o.Software, Log: o.Log,
		Member: o.Member, Answer: func(ctx context.Context, op string, in []byte) ([]byte, error) { return r.Gateway.Answer(ctx, op, in) },
	})
	key := moment.NewKey(o.Directory)
	var others moment.Others
	cluster := o.Config.Moments == "cluster" && o.Member != ""
	if cluster {
		r.peers = moment.NewPeers(o.Directory, o.Member, key)
		others = r.peers
	}
	r.transactions = txn.NewTransactions(txn.TransactionsOptions{Executor: r.Executor, Member: o.Member, Others: others, Key: key, Log: o.Log, Metrics: r.Metrics, SchemaLeft: r.schemaLeft})
	if cluster && o.Asked {
		r.Peer = r.transactions.Answerer(o.Member, o.Lease, key).Serve
	}
	r.life, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.stopped.Go(func() { r.transactions.Run(r.life) })
	r.stopped.Go(func() { r.finishIntents(r.life) })
	r.stopped.Go(func() { r.mendGuards(r.life) })
	r.stopped.Go(func() { r.settleChanges(r.life) })
	if o.Candidate != "" {
		r.Coordinator = coordinator.New(coordinator.Options{Directory: o.Directory, Shard: r.Executor.ShardInService, Candidate: o.Candidate, Member: o.Member, Log: o.Log})
		r.stopped.Go(func() { r.Coordinator.Run(r.life) })
		r.Metrics.Leader(r.Coordinator.Leads)
		r.Metrics.Stuck(r.Coordinator.Stuck)
	}
	r.Gateway = gateway.New(gateway.Options{
		Executor: r.Executor, Admin: r.Ops, Virtual: openVirtual, Limits: gatewayLimits(o.Config), Log: o.Log, Metrics: r.Metrics,
		Slow: o.Config.SlowStatement, Tracer: r.tracer, Authenticate: authenticate(o.Config, r.Users, r.Executor), TLS: r.tls, TLSRequired: o.Config.TLS == "required", Users: r.Users,
		Transactions: r.transactions, Several: severalDefaults(o.Config), Refused: r.doubtGuards, Peer: r.Peer,
		ReadPolicy: readPolicy(o.Config), ReplicaLag: replicaLag(o.Config),
	})
	if o.Member != "" {
		r.stopped.Go(func() { shardmap.Answer(r.life, o.Directory, o.Member, r.Gateway.Answer) })
	}
	return r, nil
}

// Answers is what answers to clients have to pass, wherever the rooms do not give them.
func (r *Rooms) Answers() *moment.Gate { return r.transactions.Answers() }

// TLS is what encrypts the conversations with clients, nil if nothing does.
func (r *Rooms) TLS() *arrival.TLS { return r.tls }

// Close closes what New made, after the gateway was shut down.
func (r *Rooms) Close() error {
	limit, stop := context.WithTimeout(context.Background(), flushMax)
	defer stop()
	if err := r.tracer.Close(limit); err != nil {
		r.log.Warn("tracing was not ended cleanly", telemetry.KeyError, err)
	}
	r.stop()
	r.stopped.Wait()
	if r.peers != nil {
		r.peers.Close()
	}
	return errors.Join(r.Ops.Close(), r.Executor.Close())
}

// Reload puts the settings in force that can change while it runs.
func (r *Rooms) Reload(cfg *config.Config) {
	r.Gateway.SetSlow(cfg.SlowStatement)
	r.tracer.SetSample(cfg.TraceSample)
	if r.tls == nil {
		return
	}
	if err := r.tls.Reload(); err != nil {
		r.log.Error("the certificate could not be read again; the old one stays in force", telemetry.KeyError, err)
		return
	}
	leaf := r.tls.Leaf()
	r.log.Info("the certificate was read again", "subject", leaf.Subject.String(), "expires", leaf.NotAfter)
}

// passes refuses to pass users through to a shard that has none.
func passes(cfg *config.Config, snap *shardmap.Snapshot) error {
	shard, ok := snap.Shard(snap.State().DefaultShard)
	if cfg.Auth != "passthrough" || !ok || shard.Can().Servers {
		return nil
	}
	return sqlstate.New(sqlstate.ConfigFileError, "auth is passthrough, but shard %s, the default shard, is no PostgreSQL database and has no users", shard.Name).
		WithHint("let the cluster have users of its own: --auth scram, and cleave user add")
}

// authenticate returns how clients are let in.
func authenticate(cfg *config.Config, users *access.Users, logins arrival.Logins) arrival.Authenticate {
	switch cfg.Auth {
	case "passthrough":
		return arrival.PassThrough(logins, arrival.TrustNetworks(cfg.Trust))
	case "scram":
		return arrival.Password(users, arrival.TrustNetworks(cfg.Trust))
	case "cert":
		return arrival.Certificate(users, arrival.TrustNetworks(cfg.Trust))
	}
	return arrival.Trust(cfg.Trust)
}

// flushMax bounds the sending of the last spans.
const flushMax = 5 * time.Second

// newTracer returns nil unless a collector is named, by the setting or by the
// variables that are standard for it.
func newTracer(ctx context.Context, o Options, m *telemetry.Metrics) (*trace.Tracer, error) {
	if o.Config.TraceEndpoint == "" && os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil, nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return trace.New(ctx, trace.Options{
		Endpoint: o.Config.TraceEndpoint, Sample: o.Config.TraceSample, Version: o.Software,
		Instance: fmt.Sprintf("%s-%d", host, os.Getpid()), Metrics: m, Log: o.Log,
	})
}

// recoverPause is between two tries to finish what only time lets finish.
const recoverPause = time.Second

// stoppedLooks is after how many pauses stopped shards are looked at although the map has not changed.
const stoppedLooks = 5

// Recover finishes what a crash left, and logs what it found. What has to wait for a moment, until the lease of
// a dead router is over or a lock is given back, is finished later, while the rooms are open. What cannot be
// finished by itself (a shard is down) waits for `cleave doctor --repair`.
func (r *Rooms) Recover(ctx context.Context) {
	looked := r.Executor.Snapshot().Version()
	if !r.recoverOnce(ctx) {
		return
	}
	r.stopped.Go(func() {
		tick := time.NewTicker(recoverPause)
		defer tick.Stop()
		for idle := 0; ; {
			select {
			case <-tick.C:
			case <-r.life.Done():
				return
			}
			version := r.Executor.Snapshot().Version()
			// Who decides about stopped shards changes the map, and then the guards: a look may have been between the two.
			if idle++; version == looked && len(r.Executor.Stopped()) > 0 && idle < stoppedLooks {
				continue
			}
			if !r.recoverOnce(r.life) {
				return
			}
			looked, idle = version, 0
		}
	})
}

// intentPause is between two looks for statements whose router has died in the middle.
const intentPause = 2 * time.Second

// finishIntents ends what other routers have left half way: an index on some of the shards.
func (r *Rooms) finishIntents(ctx context.Context) {
	tick := time.NewTicker(intentPause)
	defer tick.Stop()
	said := map[string]bool{}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		found, err := r.Ops.FinishIntents(ctx)
		if err != nil {
			continue // other code reports a directory that does not answer
		}
		for _, f := range found {
			if f.Done != "" || !said[f.What] {
				r.report(ctx, f)
			}
			said[f.What] = f.Done == ""
		}
	}
}

// guardPause is how long guards may refuse what the map allows before they are held against it: longer than a change of both
// takes between the one and the other. While that finds nothing it is done the less often, down to guardPauseMax.
const (
	guardPause    = 5 * time.Second
	guardPauseMax = 5 * time.Minute
)

// doubtGuards has the guards held against the map: one of them refused what the map allows.
func (r *Rooms) doubtGuards() {
	select {
	case r.refused <- struct{}{}:
	default: // somebody has said so
	}
}

// mendGuards sets guards that refuse what the map allows: who set them died before the map followed.
func (r *Rooms) mendGuards(ctx context.Context) {
	pause, looked, stale := guardPause, uint64(0), false
	for {
		select {
		case <-r.refused:
		case <-ctx.Done():
			return
		}
		version := r.Executor.Snapshot().Version()
		if version != looked {
			pause = guardPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		// Who is refused by the newer map as well says so. A map that changes all the time is looked at all the same.
		if stale = !stale && r.Executor.Snapshot().Version() != version; stale {
			continue
		}
		if r.recoverOnce(ctx) {
			r.doubtGuards()
		}
		looked, pause = version, min(2*pause, guardPauseMax)
	}
}

// schemaLeft has the schema changes settled that stay prepared on a shard.
func (r *Rooms) schemaLeft() {
	select {
	case r.left <- struct{}{}:
	default: // somebody has said so
	}
}

// settleChanges ends the schema changes whose router died, or a shard of which was down, after they were prepared: they hold
// tables.
func (r *Rooms) settleChanges(ctx context.Context) {
	for {
		select {
		case <-r.left:
		case <-ctx.Done():
			return
		}
		limit, stop := context.WithTimeout(ctx, 30*time.Second)
		found, err := r.Ops.SettleChanges(limit)
		stop()
		for _, f := range found {
			if f.Done != "" {
				r.report(ctx, f)
			}
		}
		if err != nil && ctx.Err() == nil {
			r.log.Warn("a schema change that is prepared could not be settled", telemetry.KeyError, err)
		}
	}
}

// report logs a finding.
func (r *Rooms) report(ctx context.Context, f admin.Finding) {
	level := slog.LevelDebug
	switch {
	case f.Level == admin.LevelError:
		level = slog.LevelError
	case f.Level == admin.LevelWarning:
		level = slog.LevelWarn
	case f.Done != "":
		level = slog.LevelInfo
	}
	attrs := []any{}
	for _, kv := range [][2]string{{telemetry.KeyShard, f.Shard}, {"table", f.Table}, {"done", f.Done}, {"next", f.Next}} {
		if kv[1] != "" {
			attrs = append(attrs, kv[0], kv[1])
		}
	}
	r.log.Log(ctx, level, f.What, attrs...)
}

// recoverOnce reports whether something is to be finished later.
func (r *Rooms) recoverOnce(ctx context.Context) (later bool) {
	findings, err := r.Ops.Recover(ctx)
	for _, f := range findings {
		later = later || f.Later
		r.report(ctx, f)
	}
	if r.stopNewer(findings, err) {
		later = true
	}
	if err != nil {
		r.log.Warn("not everything could be recovered; run cleave doctor --repair when all shards are up", telemetry.KeyError, err)
	}
	return later
}

// noLimit stands for a setting of 0: the rooms take 0 as "your default".
const noLimit = 10 * 365 * 24 * time.Hour

func orNoLimit(d time.Duration) time.Duration {
	if d == 0 {
		return noLimit
	}
	return d
}

func severalDefaults(cfg *config.Config) limits.Defaults {
	return limits.Defaults{
		ScatterOff: cfg.Scatter == "off", ShardsMax: int64(cfg.ShardsTouchedMax), RowsMax: int64(cfg.RowsMax), BytesMax: int64(cfg.BytesMax), Timeout: cfg.SeveralTimeout,
		GatherRowsMax: int64(cfg.GatherRowsMax), GatherBytesMax: int64(cfg.GatherBytesMax), DeadlockTimeout: cfg.DeadlockTimeout,
	}
}

func planLimits(cfg *config.Config) planner.Limits {
	return planner.Limits{Bytes: cfg.StatementMax}
}

func executorLimits(cfg *config.Config) executor.Limits {
	return executor.Limits{PoolMax: cfg.PoolSize, ConnectTimeout: cfg.ConnectTimeout, FailoverWait: failoverWait(cfg), HoldTimeout: cfg.HoldTimeout, Lanes: cfg.Lanes, LoadWindow: cfg.LoadWindow}
}

func gatewayLimits(cfg *config.Config) gateway.Limits {
	return gateway.Limits{
		SessionsMax: cfg.MaxConnections, MessageMax: cfg.MessageMax,
		IdleMax: orNoLimit(cfg.IdleTimeout), IdleInTransactionMax: orNoLimit(cfg.IdleInTransactionTimeout),
		StatementMax: orNoLimit(cfg.StatementTimeout),
	}
}
