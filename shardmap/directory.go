package shardmap

import (
	"context"
	"errors"
	"time"

	"github.com/cleavedb/cleave/sqlstate"
)

// ErrConflict is returned by [Directory.Update] when the map is no longer at
// the version that the change expected. Load again and decide again.
var ErrConflict = errors.New("shardmap: the map was changed by somebody else")

// ErrNotFound is returned by [Directory.At] for a version that is not kept, and
// by [Directory.Load] when no map was ever stored.
var ErrNotFound = errors.New("shardmap: no such version")

// Change says who changes the map, why, and what is done.
type Change struct {
	// Expect is the version that the change was made from; ErrConflict if it is
	// not the stored one. 0 creates the first version and fails with
	// ErrConflict if there is one.
	Expect uint64
	By     string // session user, CLI user@host, or "system"
	Why    string // one line for people
	// Op is the operation's name as SQL, CLI and API spell it: "ddl",
	// "create_keyspace", "distribute", "pin", "shard_add", ...
	Op string
	// Statement is the DDL text that shards received, for the ledger that
	// brings a new shard to the same schema; Tables are the schema.name of the
	// tables it concerns; AllShards says whether every shard got it.
	Statement string
	Tables    []string
	AllShards bool
	// ID makes a change findable after a crash (see [Directory.Find]). Optional.
	ID string
	// Transit is the id of the transit that the change is made for: it alone may
	// change that transit, and owners, bounds and pins in its part. A change that
	// puts a new transit need not name it. It is not kept.
	Transit string
	// Token, if it is not 0, is that of the leadership under which the change
	// is made: Update fails with ErrDeposed if that has ended. It is not kept.
	Token uint64
}

// Entry is one line of the map's history.
type Entry struct {
	Version   uint64    `json:"version"`
	At        time.Time `json:"at"`
	By        string    `json:"by"`
	Why       string    `json:"why"`
	Op        string    `json:"op"`
	Statement string    `json:"statement,omitempty"`
	Tables    []string  `json:"tables,omitempty"`
	AllShards bool      `json:"all_shards,omitempty"`
	ID        string    `json:"id,omitempty"`
}

// Directory stores the shard map. Every implementation passes the suite in
// shardmaptest. Methods are safe for concurrent use.
type Directory interface {
	// Load returns the current snapshot, ErrNotFound if there is none yet.
	Load(ctx context.Context) (*Snapshot, error)
	// At returns the snapshot of one version, ErrNotFound if it does not exist.
	At(ctx context.Context, version uint64) (*Snapshot, error)
	// Update stores next as the version after change.Expect and returns its
	// snapshot, as [Advance] computes it: with Version, SchemaVersion and the
	// epochs of what changed. next is neither changed nor kept. An invalid
	// state or change is refused before anything is stored.
	//
	// Errors: ErrConflict, ErrInvalid, ErrDuplicateID and ErrDeposed, ErrClosed
	// and ctx's own mean that nothing was stored. One with code 08007 means that nobody
	// knows: look with Find before trying again.
	Update(ctx context.Context, change Change, next State) (*Snapshot, error)
	// Watch sends the current snapshot, if there is one yet, and then each newer
	// one, in order. A slow reader gets only the newest. The channel is closed
	// when ctx ends or the directory is closed. It is silent while the store
	// cannot be reached, and goes on with the newest map afterwards.
	Watch(ctx context.Context) (<-chan *Snapshot, error)
	// History returns entries with after < version, oldest first, at most limit.
	History(ctx context.Context, after uint64, limit int) ([]Entry, error)
	// Find returns the entry with the change ID, ErrNotFound if there is none.
	Find(ctx context.Context, id string) (Entry, error)
	// Records are kept beside the map.
	Records
	// Fenced returns the same records, whose writes fail with ErrDeposed once
	// the leadership with that token has ended.
	Fenced(token uint64) Records
	// Join makes the process a member of the cluster and keeps it one until
	// leave is called or the directory is closed; then the lease runs out. The
	// lease is live when Join returns. Join before you load the map that you
	// serve by: from then on changes that concern readers wait for you.
	Join(ctx context.Context, m Member) (lease *Lease, leave func(ctx context.Context) error, err error)
	// Members returns the members whose leases have not run out, in order of
	// node number.
	Members(ctx context.Context) ([]MemberState, error)
	// Campaign waits until the process is the leader of the election, or ctx
	// ends. candidate says who it is, for people. At any time at most one
	// Leadership of an election has a valid token.
	Campaign(ctx context.Context, election, candidate string) (*Leadership, error)
	// Close ends the watches and releases what is held. Leases and leaderships
	// that were not given up before run out by themselves.
	Close() error
}

// Watchful is implemented by directories that can be read while they take no writes.
type Watchful interface {
	// TakesWrites returns nil if nothing is known that keeps the directory from storing, else why it does not
	// (53100), with what to do about it as hint. That it cannot be asked is no such reason.
	TakesWrites(ctx context.Context) error
}

// ErrMoved is returned by every write, and by Join and Campaign, of a directory
// whose cluster goes on in another one. Leases in it are not renewed.
var ErrMoved = errors.New("shardmap: the cluster has moved to another directory")

// ErrTakenBack is why a lease ends for good whose directory was put back to an older state than its holder has seen: only a process
// that starts anew may serve by it.
var ErrTakenBack = errors.New("shardmap: the directory was put back to an older state")

// Move marks a directory whose cluster is not here: it went to Target, or, if
// From is set, a copy from there is not finished. Addresses are without passwords.
type Move struct {
	Target string    `json:"target,omitempty"`
	From   string    `json:"from,omitempty"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// Mover is what a [Directory] can do beyond its contract so that a cluster can
// move to another one. The mark fences: a directory with one takes no writes but
// those of a copy into it, and lets no process join or keep a lease. So there is
// one place at any time where the map can change.
type Mover interface {
	// Moved returns the mark, nil if there is none.
	Moved(ctx context.Context) (*Move, error)
	// SetMoved sets, replaces or (next nil) removes the mark, if the mark is
	// expect and the newest version is version; else ErrConflict.
	SetMoved(ctx context.Context, expect, next *Move, version uint64) error
	// Restore stores a version as it was in another directory, if it is the next
	// one and the mark says that a copy is going on.
	Restore(ctx context.Context, e Entry, snap *Snapshot) error
	// RestoreRecord writes a record, or deletes it (value nil), whatever its
	// revision, if the mark says that a copy is going on.
	RestoreRecord(ctx context.Context, key string, value []byte) error
}

// Same reports whether two marks are the same.
func (m *Move) Same(o *Move) bool {
	if m == nil || o == nil {
		return m == o
	}
	return m.Target == o.Target && m.From == o.From && m.By == o.By && m.At.Equal(o.At)
}

// Moved returns the error of a directory with a mark, wrapping ErrMoved.
func Moved(m Move) error {
	if m.From != "" {
		return sqlstate.Wrap(ErrMoved, sqlstate.ObjectNotInState, "a copy from %s into this directory was begun (%s, %s) and is not finished",
			Redacted(m.From), m.By, m.At.UTC().Format(time.RFC3339)).
			WithHint("run the same command again: cleave directory copy --from '%s' --to THIS", Redacted(m.From))
	}
	return sqlstate.Wrap(ErrMoved, sqlstate.ObjectNotInState, "the cluster of this directory has moved to %s (%s, %s)",
		Redacted(m.Target), m.By, m.At.UTC().Format(time.RFC3339)).
		WithHint("start the process with --directory '%s'", Redacted(m.Target))
}

// NotCopying returns the error of Restore on a directory into which no copy goes on.
func NotCopying() error {
	return sqlstate.New(sqlstate.ObjectNotInState, "no copy into this directory is going on").
		WithHint("run cleave directory copy")
}
