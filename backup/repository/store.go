package repository

import (
	"context"
	"io"
	"net/url"
	"sync"
	"time"

	"github.com/cleavedb/cleave/sqlstate"
)

// Store is where bytes lie: a folder or a bucket. Its errors wrap fs.ErrNotExist, fs.ErrExist, fs.ErrPermission,
// syscall.ENOSPC or os.ErrDeadlineExceeded where one of them is the cause.
type Store interface {
	// Create begins a value. The key is there when Commit has returned, and not before.
	Create(ctx context.Context, key string) (Upload, error)
	// Open reads a value from an offset on; length is -1 for the rest. Fewer bytes than asked for are no error.
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	// Stat returns the size of a value.
	Stat(ctx context.Context, key string) (Entry, error)
	// List returns what has a key that begins so, in order of keys.
	List(ctx context.Context, prefix string) ([]Entry, error)
	// Remove removes a value; that there is none is no error.
	Remove(ctx context.Context, key string) error
	// Sweep removes what uploads have left that were never committed. Those that go on will fail.
	Sweep(ctx context.Context) (removed int, err error)
	Close() error
}

// Upload is a value that is being written. Commit ends it, or Abort, also after a Commit that failed.
type Upload interface {
	io.Writer
	// Commit makes the value durable and visible. It fails with fs.ErrExist if the key has a value.
	Commit(ctx context.Context) error
	// Abort removes what was written, as far as that is possible.
	Abort()
}

// Entry is a value of a store.
type Entry struct {
	Key      string
	Size     int64
	Modified time.Time // by the clock of the store
}

// Opener opens the store that a URL names. stall bounds the time without any progress.
type Opener func(ctx context.Context, u *url.URL, stall time.Duration) (Store, error)

var drivers struct {
	sync.Mutex
	openers map[string]Opener
}

// Register makes a store known by the scheme of its URLs. Packages of drivers call it when they are imported.
func Register(scheme string, open Opener) {
	drivers.Lock()
	defer drivers.Unlock()
	if drivers.openers == nil {
		drivers.openers = map[string]Opener{}
	}
	drivers.openers[scheme] = open
}

func openStore(ctx context.Context, at string, create bool, stall time.Duration) (Store, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "the URL of the repository cannot be read")
	}
	switch u.Scheme {
	case "":
		return openFolder(ctx, at, create, stall)
	case "file":
		if u.Host != "" && u.Host != "localhost" || u.RawQuery != "" || u.Path == "" {
			return nil, sqlstate.New(sqlstate.InvalidParameterValue, "the URL of the repository is not like file:///path")
		}
		return openFolder(ctx, u.Path, create, stall)
	}
	drivers.Lock()
	open := drivers.openers[u.Scheme]
	drivers.Unlock()
	if open == nil {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "this program knows no repositories whose URL begins with %s:", cut(u.Scheme)).
			WithHint("Use file:///path or s3://bucket/prefix; a program of your own imports backup/repository/s3 for the latter.")
	}
	return open(ctx, u, stall)
}
