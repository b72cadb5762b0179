package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/shardmap"
)

// watchPause is between two watches when the first one ended with an error.
const watchPause = 100 * time.Millisecond

// follow publishes what others change, while somebody watches. Each watch is a
// stream of its own: one that hangs on a server that was stopped would be given
// to its successor otherwise.
func (d *directory) follow() {
	for {
		w := clientv3.NewWatcher(d.client)
		d.stream(w)
		_ = w.Close() // says that it was cancelled
		if d.life.Err() != nil || d.feed.Idle() {
			return
		}
		select {
		case <-d.life.Done():
			return
		case <-time.After(watchPause):
		}
	}
}

// stream watches until the stream fails, is behind what a request says, or
// nobody watches any more.
func (d *directory) stream(w clientv3.Watcher) {
	ctx, cancel := context.WithCancel(d.life)
	defer cancel()
	// From the revision of a look at the newest version: nothing slips through,
	// and what etcd has compacted is not asked for.
	var first clientv3.OpResponse
	err := d.ask(ctx, "read", func(ctx context.Context) (err error) {
		first, err = d.client.Do(ctx, d.last())
		return err
	})
	if err != nil {
		return
	}
	if snap, err := d.current(ctx); err != nil {
		return
	} else if snap != nil {
		d.feed.Publish(snap)
	}
	events := w.Watch(clientv3.WithRequireLeader(ctx), d.root+"map/state/", clientv3.WithPrefix(), clientv3.WithRev(first.Get().Header.Revision+1))
	looks := make(chan uint64, 1)
	tick := time.NewTicker(d.opts.Poll)
	defer tick.Stop()
	looking := false
	told := d.published()
	for {
		select {
		case <-ctx.Done():
			return
		case res, ok := <-events:
			if !ok || res.Err() != nil {
				return // compacted, no leader, the connection: begun anew
			}
			for i := len(res.Events) - 1; i >= 0; i-- {
				ev := res.Events[i]
				version, err := versionOf(ev.Kv.Key)
				if err != nil || ev.Type != clientv3.EventTypePut || version <= told {
					continue
				}
				snap := d.newest.Load()
				if snap == nil || snap.Version() != version {
					if snap, err = d.snapshot(ctx, version, ev.Kv.Value); err != nil {
						return
					}
					d.keep(snap)
				}
				d.feed.Publish(snap)
				told = version
				break // the newest one is enough
			}
		case v := <-looks:
			looking = false
			if v > d.published() && v > told {
				return // the stream is silent, or slower than a look
			}
		case <-tick.C:
			if !d.feed.Watching() {
				return
			}
			if !looking {
				looking = true
				go func() {
					v, err := d.version(ctx)
					if err != nil {
						v = 0
					}
					looks <- v
				}()
			}
		}
	}
}

// published returns the newest version that this handle knows.
func (d *directory) published() uint64 {
	if s := d.newest.Load(); s != nil {
		return s.Version()
	}
	return 0
}

var _ shardmap.Directory = (*directory)(nil)
