package backup

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// settle ends what is prepared on the shards of a directory that nobody else uses: as it was decided at the cut, in the records of the
// shards and in the map's history. What was not decided is rolled back.
func settle(ctx context.Context, dir shardmap.Directory, drivers []engine.Driver) error {
	snap, err := dir.Load(ctx)
	if err != nil {
		return err
	}
	open := &opened{snap: snap, drivers: drivers}
	found, unreached, err := txn.Recovery{Directory: dir, Connect: open.connect}.Settle(ctx)
	if err != nil {
		return err
	}
	for _, err := range unreached {
		return err
	}
	for _, d := range found {
		if d.Err != nil {
			return d.Err
		}
	}
	rest, err := schema.Settle(ctx, schema.RecoverOptions{Directory: dir, Connect: open.connect, Actor: actor, Age: time.Nanosecond})
	if err != nil {
		return err
	}
	for _, f := range rest {
		if f.Level == "error" {
			return sqlstate.New(sqlstate.ObjectNotInState, "shard %s: %s", f.Shard, f.What).WithHint("%s", f.Next)
		}
	}
	return nil
}

// actor is who changes a restored cluster, in its history.
const actor = "cleave restore"

// quiet takes no logs.
var quiet = slog.New(slog.DiscardHandler)

// opened opens the shards of a map, one handle for each conversation.
type opened struct {
	snap    *shardmap.Snapshot
	drivers []engine.Driver
}

func (o *opened) shard(name string) (engine.Shard, error) {
	s, ok := o.snap.Shard(name)
	if !ok {
		return nil, sqlstate.New(sqlstate.UndefinedObject, "there is no shard %s in the map", name)
	}
	return o.open(o.snap.State().Cluster, s)
}

func (o *opened) open(cluster string, s *shardmap.Shard) (engine.Shard, error) {
	for _, d := range o.drivers {
		if d.Name() == s.Engine {
			return d.Open(engine.Config{Cluster: cluster, Name: s.Name, URL: s.URL})
		}
	}
	return nil, sqlstate.Refusal("CLV-1501", "this program has no engine %q", s.Engine).OnShard(s.Name)
}

// connect is a txn.Connect and a schema.Connect.
func (o *opened) connect(ctx context.Context, name string) (engine.Conn, func(broken bool), error) {
	sh, err := o.shard(name)
	if err != nil {
		return nil, nil, err
	}
	conn, err := sh.Connect(ctx, map[string]string{"application_name": "cleave restore", "client_encoding": "UTF8"})
	if err != nil {
		return nil, nil, errors.Join(err, sh.Close())
	}
	return conn, func(bool) { _ = errors.Join(conn.Close(), sh.Close()) }, nil // nothing is lost with them
}
