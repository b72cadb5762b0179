// Package memory keeps a shard map in memory: for tests, and for a cluster that
// lives no longer than its process. It keeps every version and the whole
// history, as every directory does, so it grows with the number of changes:
// some hundred bytes and the compressed map for each.
package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cleavedb/cleave/shardmap"
)

// Options change what New does by default.
type Options struct {
	// Now is the clock of the history; nil is time.Now.
	Now func() time.Time
	// LeaseTTL is for how long a lease runs without renewal; 0 is
	// shardmap.DefaultLeaseTTL, less than shardmap.MinLeaseTTL is that.
	LeaseTTL time.Duration
}

// New returns an empty directory.
func New() shardmap.Directory { return NewWith(Options{}) }

// NewWith is New with options.
func NewWith(o Options) shardmap.Directory {
	if o.Now == nil {
		o.Now = time.Now
	}
	ttl, err := shardmap.LeaseTTL(o.LeaseTTL)
	if err != nil {
		ttl = shardmap.MinLeaseTTL
	}
	d := &directory{
		now: o.Now, ttl: ttl, ids: map[string]int{}, records: map[string]shardmap.Record{},
		members: map[string]*member{}, elections: map[string]*leader{},
	}
	d.life, d.end = context.WithCancel(context.Background())
	return d
}

// directory: versions[i] and entries[i] are of version i+1. Old versions are
// kept packed, since they are looked at rarely and a snapshot takes ten times
// the memory.
type directory struct {
	now  func() time.Time
	ttl  time.Duration
	feed shardmap.Feed
	life context.Context // ends with Close
	end  context.CancelFunc

	mu       sync.Mutex
	current  *shardmap.Snapshot
	versions [][]byte
	entries  []shardmap.Entry
	ids      map[string]int
	closed   bool

	// counter is the last revision or token that was given.
	counter   uint64
	records   map[string]shardmap.Record
	members   map[string]*member // by id
	elections map[string]*leader
}

// enter locks the directory for one call.
func (d *directory) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return shardmap.Closed()
	}
	return nil
}

func (d *directory) Load(ctx context.Context) (*shardmap.Snapshot, error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	if d.current == nil {
		return nil, shardmap.NoMap()
	}
	return d.current, nil
}

func (d *directory) At(ctx context.Context, version uint64) (*shardmap.Snapshot, error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	if version == 0 || version > uint64(len(d.versions)) {
		return nil, shardmap.NotFound("version %d of the shard map does not exist; the current one is %d", version, len(d.versions))
	}
	if version == d.current.Version() {
		return d.current, nil
	}
	return shardmap.Unpack(d.versions[version-1])
}

func (d *directory) Update(ctx context.Context, change shardmap.Change, next shardmap.State) (*shardmap.Snapshot, error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	if err := d.fence(change.Token); err != nil {
		return nil, err
	}
	snap, err := shardmap.Advance(d.current, change, next)
	if err != nil {
		return nil, err
	}
	if i, dup := d.ids[change.ID]; dup && change.ID != "" {
		return nil, shardmap.DuplicateID(change.ID, d.entries[i].Version)
	}
	packed, err := shardmap.Pack(snap)
	if err != nil {
		return nil, err
	}
	if change.ID != "" {
		d.ids[change.ID] = len(d.entries)
	}
	d.entries = append(d.entries, change.Entry(snap.Version(), d.now()))
	d.versions = append(d.versions, packed)
	d.current = snap
	d.feed.Publish(snap)
	return snap, nil
}

func (d *directory) Watch(ctx context.Context) (<-chan *shardmap.Snapshot, error) {
	return d.feed.Watch(ctx)
}

func (d *directory) History(ctx context.Context, after uint64, limit int) ([]shardmap.Entry, error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	if after >= uint64(len(d.entries)) || limit <= 0 {
		return nil, nil
	}
	from := int(after)
	entries := slices.Clone(d.entries[from:min(len(d.entries), from+min(limit, len(d.entries)))])
	for i := range entries {
		entries[i].Tables = slices.Clone(entries[i].Tables)
	}
	return entries, nil
}

func (d *directory) Find(ctx context.Context, id string) (shardmap.Entry, error) {
	if err := d.enter(ctx); err != nil {
		return shardmap.Entry{}, err
	}
	defer d.mu.Unlock()
	i, ok := d.ids[id]
	if !ok || id == "" {
		return shardmap.Entry{}, shardmap.NotFound("no change of the shard map has the ID %q", id)
	}
	e := d.entries[i]
	e.Tables = slices.Clone(e.Tables)
	return e, nil
}

func (d *directory) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.end()
	d.feed.Close()
	return nil
}
