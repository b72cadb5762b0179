package txn

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/capability"
	"github.com/cleavedb/cleave/engine/txnrecord"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/moment"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// Bounds of the protocol. docs/design/transactions.md says what hangs on each.
const (
	// prepareMax is how long after its first PREPARE a transaction may be decided.
	prepareMax = time.Minute
	// decideMax is by how much the coordinating shard's clock may differ from this
	// process's before it refuses every decision.
	decideMax = 12 * time.Hour
	// finishMax bounds what the client waits for after the decision: the other
	// shards' COMMIT PREPARED.
	finishMax = 5 * time.Second
	// resolveMax bounds the asking for a decision whose answer was lost.
	resolveMax = 5 * time.Second
)

// TransactionsOptions are what Transactions are made of.
type TransactionsOptions struct {
	Executor *executor.Executor
	// Member is the id under which the process has joined the cluster; "" is one
	// of its own that nobody else takes for alive.
	Member string
	Log    *slog.Logger // nil: nothing is logged
	// Others are the other processes that answer clients; nil: there are none that moments count on.
	Others moment.Others
	// Key is the cluster's, by which the names of exported snapshots are known; nil: it makes one for itself.
	Key *moment.Key
	// Metrics are told of ends; nil: nobody is.
	Metrics *telemetry.Metrics
	// SchemaLeft is called when a schema change stays prepared on a shard for two looks in succession: it may have been left,
	// and package schema can settle it. It must not wait. nil: nobody is told.
	SchemaLeft func()
}

// Transactions ends the transactions of one process that several shards take part
// in, and finishes what others have left when they died. Methods are safe for
// concurrent use.
type Transactions struct {
	ex      *executor.Executor
	log     *slog.Logger
	metrics *telemetry.Metrics
	owner   [8]byte
	seq     atomic.Uint64
	// wake asks Run to look now: something was left unfinished.
	wake chan struct{}
	gate gate
	base base
	// answers is what the process tells its clients passes, moments are the hushes of its transactions.
	answers moment.Gate
	moments *moment.Moments
	key     *moment.Key
	// schemaLeft is TransactionsOptions.SchemaLeft; changes are the schema changes that Run saw prepared when it looked last.
	schemaLeft func()
	changes    []txid

	mu     sync.Mutex
	active map[txid]*commitment
	// ready are the shards that have the table of records, by their handles.
	ready map[engine.Shard]bool

	// looks are the last looks at the shards' locks, see locksOf.
	lookMu sync.Mutex
	looks  map[string]*lockLook

	// step is told of each step in tests; an error stops the protocol there, as
	// if the process had died.
	step func(step, shard string) error
}

// NewTransactions makes what ends transactions over several shards. Run has to
// run beside it, so that nothing is left prepared.
func NewTransactions(o TransactionsOptions) *Transactions {
	t := &Transactions{ex: o.Executor, log: telemetry.Log(o.Log), metrics: o.Metrics, wake: make(chan struct{}, 1), schemaLeft: o.SchemaLeft,
		active: map[txid]*commitment{}, ready: map[engine.Shard]bool{}, base: base{own: make(chan struct{}, ownCuts)}}
	if o.Member == "" {
		o.Member = rand.Text()
	}
	t.owner = ownerOf(o.Member)
	if t.key = o.Key; o.Key == nil && o.Executor != nil {
		t.key = moment.NewKey(o.Executor.Directory())
	}
	t.moments = moment.New(&t.answers, o.Others, t.gate.shut, o.Metrics)
	return t
}

// ownerOf is the beginning of the ids of a member's transactions.
func ownerOf(member string) (owner [8]byte) {
	sum := sha256.Sum256([]byte(member))
	copy(owner[:], sum[:])
	return owner
}

// txid names a transaction over several shards: its owner, and a number that the
// owner gives once.
type txid [16]byte

func (id txid) String() string { return hex.EncodeToString(id[:]) }

func (id txid) owner() (owner [8]byte) {
	copy(owner[:], id[:8])
	return owner
}

func parseID(s string) (id txid, ok bool) {
	if len(s) != 2*len(id) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(s))
	return id, err == nil
}

func (t *Transactions) newID() (id txid) {
	copy(id[:], t.owner[:])
	binary.BigEndian.PutUint64(id[8:], t.seq.Add(1))
	return id
}

// gid is the global id of one part of a transaction, as PREPARE TRANSACTION takes it:
//
//	cleave_<beginning of the cluster's id>_<transaction>_<number of the part>_<coordinating shard>
//
// It tells a process that finds the part whose it is and where its decision stands. A
// server's databases share one space of such ids: the number keeps the parts apart.
type gid struct {
	cluster      string
	id           txid
	n            int
	coordinating string
}

const gidPrefix = "cleave_"

func (g gid) String() string {
	return fmt.Sprintf("%s%s_%s_%d_%s", gidPrefix, clusterPart(g.cluster), g.id, g.n, g.coordinating)
}

// clusterPart is what a gid says of the cluster: a database belongs to one
// cluster only, so this is for people.
func clusterPart(cluster string) string {
	var b strings.Builder
	for _, c := range cluster {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			b.WriteRune(c)
		}
		if b.Len() == 8 {
			break
		}
	}
	return b.String()
}

// parseGID reads a global id; ok is false for those of others, schema changes
// included.
func parseGID(s, cluster string) (g gid, ok bool) {
	rest, ok := strings.CutPrefix(s, gidPrefix+clusterPart(cluster)+"_")
	if !ok {
		return g, false
	}
	parts := strings.SplitN(rest, "_", 3)
	if len(parts) != 3 {
		return g, false
	}
	g.cluster, g.coordinating = cluster, parts[2]
	if g.id, ok = parseID(parts[0]); !ok {
		return g, false
	}
	n, err := strconv.Atoi(parts[1])
	g.n = n
	return g, err == nil && g.coordinating != ""
}

// CanWrite reports whether a transaction can write on all these shards and still
// be committed on all of them or none. Call it before the second one writes, since
// nothing is undone by the refusal: 0A000 if shards cannot prepare transactions,
// 57P03 if one cannot be reached.
func (t *Transactions) CanWrite(ctx context.Context, parts []*Participant) error {
	for _, p := range parts {
		if !p.Conn.CanPrepare() {
			return cannotPrepare(t.can(p.Shard), p.Shard, parts)
		}
	}
	for _, p := range parts {
		if err := t.prepareShard(ctx, p.Shard); err != nil {
			return err
		}
	}
	return nil
}

// can is what a shard can do.
func (t *Transactions) can(shard string) capability.Set {
	sh, ok := t.ex.Snapshot().Shard(shard)
	if !ok {
		return capability.Set{}
	}
	return sh.Can()
}

func cannotPrepare(can capability.Set, shard string, parts []*Participant) error {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.Shard
	}
	why := "a transaction that writes on several shards (" + strings.Join(names, ", ") + ") needs shards that can prepare transactions, and " + shard + " cannot"
	if !can.Servers {
		return sqlstate.Refusal("CLV-1015", "%s, so all or none cannot be promised", why).
			WithHint("Write on one shard in a transaction.").OnShard(shard)
	}
	return sqlstate.Refusal("CLV-1101", "%s: its max_prepared_transactions is 0", why).
		WithHint("Run ALTER SYSTEM SET max_prepared_transactions = 100 on that shard, and restart its server; or write on one shard in a transaction.").OnShard(shard)
}

// records is how a shard keeps the records of transactions.
func (t *Transactions) records(shard string) txnrecord.Records {
	return recordsOn(t.ex.Snapshot(), shard)
}

// recordsOn is how a shard of a map keeps the records; one that is not in it, as PostgreSQL does.
func recordsOn(snap *shardmap.Snapshot, shard string) txnrecord.Records {
	s, ok := snap.Shard(shard)
	if !ok {
		return txnrecord.Of("")
	}
	return txnrecord.Of(s.Engine)
}

// Record is the statement by which a shard notes, inside of its part, a transaction that somebody else ends and that
// wrote on these shards. id is a UUID. Atomic reads rely on it: see docs/design/transactions.md. Errors: those of
// Connect, where the shard has no table for it yet.
func (t *Transactions) Record(ctx context.Context, id, shard string, shards []string) (string, error) {
	u, err := uuid.Parse(id)
	if err == nil {
		err = t.prepareShard(ctx, shard)
	}
	if err != nil {
		return "", err
	}
	return t.records(shard).Record(txid(u).String(), shards), nil
}

// makeTable makes the table of records where it is missing.
func makeTable(ctx context.Context, conn engine.Conn, r txnrecord.Records) error {
	if r.Create() == "" {
		return nil
	}
	res, err := engine.ExecContext(ctx, conn, "SELECT pg_catalog.to_regclass('"+txnrecord.Table+"') IS NULL")
	if err != nil {
		return err
	}
	if len(res.Rows) == 1 && res.Rows[0][0].String == "f" {
		return nil
	}
	_, err = engine.ExecContext(ctx, conn, r.Create())
	return err
}

// prepareShard makes sure that the shard has the table of records.
func (t *Transactions) prepareShard(ctx context.Context, shard string) error {
	handle, err := t.ex.Shard(shard)
	if err != nil {
		return err
	}
	t.mu.Lock()
	ready := t.ready[handle]
	t.mu.Unlock()
	if ready || t.records(shard).Create() == "" {
		return nil
	}
	limit, stop := context.WithTimeout(ctx, resolveMax)
	defer stop()
	conn, err := handle.Connect(limit, housekeeping)
	if err == nil {
		defer conn.Close()
		err = makeTable(limit, conn, t.records(shard))
	}
	switch {
	case err == nil:
	case ctx.Err() == nil && bounded(err):
		return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "shard %s did not say in time whether it has the table of transactions", shard).
			WithHint("nothing was done: run it again; `cleave doctor` says which shards answer").OnShard(shard)
	default:
		return onShard(err, shard)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ready) > 4096 {
		clear(t.ready) // shards that left the map
	}
	t.ready[handle] = true
	return nil
}

// bounded reports whether an error is that of a bound which the router has set itself: no client has asked for that.
func bounded(err error) bool {
	code := sqlstate.CodeOf(err)
	return code == sqlstate.QueryCanceled || code == sqlstate.LockNotAvailable || errors.Is(err, context.DeadlineExceeded)
}

// forget makes the next transaction look again whether the shard has the table.
func (t *Transactions) forget(shard string) {
	if handle, err := t.ex.Shard(shard); err == nil {
		t.mu.Lock()
		delete(t.ready, handle)
		t.mu.Unlock()
	}
}

// housekeeping are the startup parameters of conversations that recovery has
// outside of the pools: when those are full of statements that wait for a
// prepared row, recovery must not wait for them.
var housekeeping = map[string]string{
	"application_name": "cleave", "client_encoding": "UTF8", "DateStyle": "ISO",
	"default_transaction_isolation": "read committed", "default_transaction_read_only": "off",
	"lock_timeout": "2s", "statement_timeout": "10s",
}

// onShard says where an error of a shard happened, and turns the loss of a
// conversation in which nothing was at stake into 57P03.
func onShard(err error, shard string) error {
	if lost := engine.Lost(err); lost != nil {
		if lost.Shard == "" {
			lost.Shard = shard
		}
		return lost.State(false)
	}
	e := *sqlstate.As(err)
	if e.Shard == "" {
		e.Shard = shard
	}
	return &e
}
