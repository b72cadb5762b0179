package moment

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/cleavedb/cleave/shardmap"
)

// Key is a secret that all members have: they find it in the directory, or put it there. Methods are safe for concurrent use.
type Key struct {
	dir  shardmap.Records
	mu   sync.Mutex
	key  []byte
	read time.Time
}

const (
	// keyRecord is where it is kept.
	keyRecord = "moment/key"
	// keyAge is how long what was read is good for Renew.
	keyAge = time.Second
)

// NewKey makes the Key of a directory's cluster.
func NewKey(dir shardmap.Records) *Key { return &Key{dir: dir} }

// Get returns it.
func (k *Key) Get(ctx context.Context) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.key == nil {
		r, err := k.dir.Record(ctx, keyRecord)
		switch {
		case err == nil:
			k.key, k.read = r.Value, time.Now()
		case !errors.Is(err, shardmap.ErrNotFound):
			return nil, err
		default:
			fresh := []byte(rand.Text())
			if _, err := k.dir.PutRecord(ctx, keyRecord, fresh, 0); err != nil && !errors.Is(err, shardmap.ErrConflict) {
				return nil, err
			}
		}
	}
	return k.key, nil
}

// Renew is Get of what the directory has now, or had a moment ago: a directory that was put back has another one.
func (k *Key) Renew(ctx context.Context) ([]byte, error) {
	k.mu.Lock()
	if time.Since(k.read) > keyAge {
		k.key = nil
	}
	k.mu.Unlock()
	return k.Get(ctx)
}
