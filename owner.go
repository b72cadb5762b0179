package cleave

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Owner is the shard that owns a key, and direct connections to it: no
// statement on them is planned or routed. What runs there is the shard's own
// SQL, and whether it belongs there is the caller's business; a write to rows
// of other shards is refused by the shard's guard (ZC001). While a part of the
// keyspace moves, the shard's tables may have rows that it does not own: what reads
// more than keys of the Owner has to leave them out, or go through the router.
//
// An Owner is good for all keys of its keyspace that its shard owned when
// ForKey returned it. When what the shard owns of the keyspace changes, in
// whatever way, the Owner has changed for good: ForKey then gives another one.
// Its connections take no statement from then on: they fail with 40001 and do
// nothing, so that a program can call ForKey again and repeat its work. A
// statement that was under way at that moment and may have read what another
// shard has overtaken ends its connection with 08007.
//
// Methods are safe for concurrent use.
type Owner struct {
	c        *Cluster
	keyspace string
	owned    keyspace.Ownership
	shard    string

	changed chan struct{}

	mu   sync.Mutex
	pool *pgxpool.Pool
	db   *sql.DB
	// former: it has changed. last: it is closed, nothing new is opened.
	former, last bool
}

// Shard returns the name of the shard.
func (o *Owner) Shard() string { return o.shard }

// Keyspace returns the name of the keyspace.
func (o *Owner) Keyspace() string { return o.keyspace }

// Epoch returns the version of the map at which the newest part of what the
// shard owns of the keyspace was assigned.
func (o *Owner) Epoch() uint64 { return o.owned.Epoch }

// Valid reports whether nothing has changed, and the program has not lost the
// directory, without which it cannot know.
func (o *Owner) Valid() bool { return o.refusal() == nil }

// refusal is why a statement is refused; nil if it is not.
func (o *Owner) refusal() *sqlstate.Error {
	term := o.c.rooms.Executor.Lease().Term() // before the map is looked at
	o.c.owners.current()                      // a newer map counts as soon as statements are routed by it
	select {
	case <-o.changed:
		return o.stale()
	default:
	}
	return o.c.lost(term)
}

// lost is the error of a program whose lease on the directory has run out, or
// was another one when Term was term; nil if what was found in the map since
// then is true.
func (c *Cluster) lost(term uint64) *sqlstate.Error {
	if c.rooms.Executor.Lease().Holds(term) {
		return nil
	}
	if c.life.Err() != nil {
		return errClosed()
	}
	e := c.rooms.Executor.NotServing()
	e.Retry = sqlstate.RetrySafe
	return e
}

// Changed returns a channel that is closed when the owner has changed, or the
// cluster was closed.
func (o *Owner) Changed() <-chan struct{} { return o.changed }

// Pool returns a pgx pool of connections to the shard, the same one at each
// call. It is closed with the cluster, and some time after the owner changed.
func (o *Owner) Pool() *pgxpool.Pool {
	o.open(func() {
		if o.pool == nil {
			o.pool = openPool(o.config())
			if o.last {
				o.pool.Close() // it answers that it is closed
			}
		}
	})
	return o.pool
}

// DB is Pool for database/sql. It has connections of its own.
func (o *Owner) DB() *sql.DB {
	o.open(func() {
		if o.db == nil {
			o.db = openDB(o.config())
			if o.last {
				_ = o.db.Close() // it answers that it is closed
			}
		}
	})
	return o.db
}

// open makes a pool, of which owners must know if o has changed already.
func (o *Owner) open(make func()) {
	o.mu.Lock()
	make()
	former := o.former
	o.mu.Unlock()
	if former {
		o.c.owners.keep(o)
	}
}

// Conn opens a connection of its own, which the caller closes. It fails with
// 40001 if the owner has changed, with 57P03 if the shard cannot be reached.
func (o *Owner) Conn(ctx context.Context) (*pgx.Conn, error) {
	return pgx.ConnectConfig(ctx, o.config().ConnConfig)
}

func (o *Owner) config() *pgxpool.Config {
	cfg := o.c.session.Copy()
	cfg.ConnConfig.DialFunc = o.dial
	return cfg
}

// stale is the answer to a statement on an Owner that has changed.
func (o *Owner) stale() *sqlstate.Error {
	if o.c.life.Err() != nil {
		return errClosed()
	}
	e := sqlstate.New(sqlstate.SerializationFailure, "what shard %s owns of keyspace %s has changed since ForKey", o.shard, o.keyspace).
		OnShard(o.shard).WithHint("nothing was done: call ForKey again and repeat the statement or transaction there")
	e.Keyspace = o.keyspace
	return e
}

// close closes the connections; it waits for those in use.
func (o *Owner) close() error {
	o.mu.Lock()
	o.last = true
	pool, db := o.pool, o.db
	o.mu.Unlock()
	var errs []error
	if db != nil {
		errs = append(errs, db.Close())
	}
	if pool != nil {
		errs = append(errs, closePool(pool))
	}
	return errors.Join(errs...)
}

// owners are the Owners of the current map.
type owners struct {
	c     *Cluster
	table atomic.Pointer[ownerTable]

	mu sync.Mutex // of replacing table
	// former are Owners that have changed and whose pools are still open, so that
	// who holds one is told why it does not work; with what will close them.
	former map[*Owner]*time.Timer
	closed bool
	direct directs
}

// formerMax is how long the pools of an Owner that has changed stay open.
const formerMax = time.Minute

// ownerTable is what one snapshot gives. It is not changed once it is stored.
type ownerTable struct {
	snap      *shardmap.Snapshot
	keyspaces map[string]*keyspaceOwners
}

type keyspaceOwners struct {
	snap   *shardmap.Snapshot
	index  *shardmap.Index
	types  []keyspace.Type
	ranges []*Owner // by the range's index
	shards map[string]*Owner
}

func (s *owners) init(c *Cluster) {
	s.c = c
	s.table.Store(&ownerTable{})
	s.former, s.direct.all = map[*Owner]*time.Timer{}, map[uint32]*direct{}
}

// current returns the table of the map that statements are routed by.
func (s *owners) current() *ownerTable {
	t := s.table.Load()
	if t.snap == s.c.rooms.Executor.Snapshot() {
		return t
	}
	return s.replace()
}

// follow tells Owners of changes that no caller notices.
func (s *owners) follow() {
	for {
		changed := s.c.rooms.Executor.Changed()
		s.current()
		select {
		case <-changed:
		case <-s.c.life.Done():
			return
		}
	}
}

// replace makes the table of the newest snapshot. Owners of which nothing has
// changed are in it again.
func (s *owners) replace() *ownerTable {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, snap := s.table.Load(), s.c.rooms.Executor.Snapshot()
	if old.snap == snap || s.closed {
		return old
	}
	next := &ownerTable{snap: snap, keyspaces: map[string]*keyspaceOwners{}}
	for i := range snap.State().Keyspaces {
		name := snap.State().Keyspaces[i].Name
		ix, _ := snap.Keyspace(name)
		def := ix.Def()
		ko := &keyspaceOwners{snap: snap, index: ix, types: def.Types, shards: map[string]*Owner{}}
		var before map[string]*Owner
		if b := old.keyspaces[name]; b != nil {
			before = b.shards
		}
		for _, shard := range ix.Owners() {
			owned := snap.Ownership(name, shard)
			o := before[shard]
			if o == nil || !sameShard(old.snap, snap, shard) || !reflect.DeepEqual(o.owned, owned) {
				o = &Owner{c: s.c, keyspace: name, shard: shard, owned: owned, changed: make(chan struct{})}
			}
			ko.shards[shard] = o
		}
		ko.ranges = make([]*Owner, len(def.Ranges))
		for i := range def.Ranges {
			ko.ranges[i] = ko.shards[def.Ranges[i].Shard]
		}
		next.keyspaces[name] = ko
	}
	for name, ko := range old.keyspaces {
		for shard, o := range ko.shards {
			if now := next.keyspaces[name]; now == nil || now.shards[shard] != o {
				s.retire(o)
			}
		}
	}
	s.table.Store(next)
	return next
}

// sameShard reports whether the name stands for the same database in both maps.
func sameShard(a, b *shardmap.Snapshot, name string) bool {
	x, ok := a.Shard(name)
	y, also := b.Shard(name)
	return ok && also && x.URL == y.URL
}

// retire tells an Owner that it has changed; s.mu is held.
func (s *owners) retire(o *Owner) {
	close(o.changed)
	o.mu.Lock()
	o.former = true
	open := o.pool != nil || o.db != nil
	o.mu.Unlock()
	if open {
		s.hold(o)
	}
}

// keep is hold for an Owner whose first pool is made after it has changed.
func (s *owners) keep(o *Owner) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		_ = o.close() // it has no connections
		return
	}
	s.hold(o)
	s.mu.Unlock()
}

// hold closes an Owner's pools after a while; s.mu is held.
func (s *owners) hold(o *Owner) {
	if s.former[o] != nil {
		return
	}
	s.former[o] = time.AfterFunc(formerMax, func() {
		s.mu.Lock()
		delete(s.former, o)
		s.mu.Unlock()
		_ = o.close() // who still holds a connection of it is told when it ends
	})
}

// close ends all Owners. The cluster's life has ended.
func (s *owners) close() error {
	s.mu.Lock()
	var all []*Owner
	s.closed = true
	for o, t := range s.former {
		if t.Stop() {
			all = append(all, o)
		}
	}
	if t := s.table.Load(); t != nil {
		for _, ko := range t.keyspaces {
			for _, o := range ko.shards {
				close(o.changed)
				all = append(all, o)
			}
		}
		s.table.Store(&ownerTable{snap: t.snap})
	}
	s.mu.Unlock()
	s.direct.end()
	var errs []error
	for _, o := range all {
		errs = append(errs, o.close())
	}
	return errors.Join(errs...)
}

// ForKey returns the owner of a shard key: one value for each key column, of the
// Go type that pgx uses for the column's type, or its text. It looks the key up in
// the map that the program has, which costs no time and no allocation worth
// mentioning: call it for each piece of work rather than keep what it returns. Each call
// counts as a statement for the load of the key's range.
//
// While the key is just being given to another shard it waits for that, at most the
// setting hold-timeout (10 s); then the error is 40001.
//
// Errors: 42704 if there is no such keyspace, 42804, 22P02 or their like if the
// values are no key of it, 23514 if a list keyspace has no shard for it, 57P03 if
// the program has lost the directory, 57P01 after Close.
func (c *Cluster) ForKey(ctx context.Context, keyspaceName string, key ...any) (*Owner, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// What the map says, errors too, is true if the lease is held afterwards.
	term := c.rooms.Executor.Lease().Term()
	o, err := c.owner(ctx, keyspaceName, key)
	if lost := c.lost(term); lost != nil {
		return nil, lost
	}
	return o, err
}

// owner is ForKey without the lease.
func (c *Cluster) owner(ctx context.Context, keyspaceName string, key []any) (*Owner, error) {
	ko := c.owners.current().keyspaces[keyspaceName]
	if ko == nil {
		return nil, c.noKeyspace(keyspaceName)
	}
	if len(key) != len(ko.types) {
		return nil, wrongColumns(keyspaceName, ko.types, len(key))
	}
	var room [keyColumnsMax]keyspace.Value
	k := keyspace.Key(room[:0])
	for i, t := range ko.types {
		v, err := keyValue(t, key[i])
		if err != nil {
			return nil, err
		}
		k = append(k, v)
	}
	a, err := ko.index.Locate(k)
	if ko.index.Holds() != nil {
		ko, a, err = c.release(ctx, keyspaceName, k)
	}
	if err != nil {
		return nil, err
	}
	if _, named := c.rooms.Executor.CountUnit(ko.snap, a.Unit); named {
		c.rooms.Executor.Named(keyspaceName, k.Texts())
	}
	if a.Range >= 0 {
		return ko.ranges[a.Range], nil
	}
	return ko.shards[a.Shard], nil
}

func (c *Cluster) noKeyspace(name string) error {
	if c.life.Err() != nil {
		return errClosed()
	}
	return sqlstate.New(sqlstate.UndefinedObject, "keyspace %q does not exist", name).
		WithHint("Admin().Keyspaces lists them; a table's is in cleave.tables")
}

func wrongColumns(name string, types []keyspace.Type, have int) error {
	// The zero key is refused with the reason.
	_, err := keyspace.ParseKey(types, make([]string, have))
	e := sqlstate.As(err)
	e.Keyspace = name
	return e
}
