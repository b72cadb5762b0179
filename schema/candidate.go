package schema

import (
	"context"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
)

// Differences compares a database with what the map says of a shard, without changing anything: the schema changes that
// were run there, the tables and their guards. It is for a database that is to take the place of the shard's: conn leads
// there and has no open transaction. Guards of a keyspace that is moving there are not compared.
//
// Errors: those of the directory and of the database, when the comparison did not come to its end.
func Differences(ctx context.Context, o RecoverOptions, snap *shardmap.Snapshot, shard string, conn engine.Conn) ([]Finding, error) {
	o = o.withDefaults()
	o.DryRun, o.SetBack, o.candidate = true, false, true
	sh, _ := snap.Shard(shard)
	entries, err := History(ctx, o.Directory, 0)
	if err != nil {
		return nil, err
	}
	entries = inForce(entries)
	gone, err := tombstones(entries, snap)
	if err != nil {
		return nil, err
	}
	if _, _, err := run(ctx, conn, "BEGIN"); err != nil {
		return nil, onShard(err, shard)
	}
	c := comparison{o: o, snap: snap, shard: sh, def: shard == snap.State().DefaultShard, conn: conn, entries: entries, gone: gone, absent: map[string]int{}}
	c.all(ctx)
	if _, _, err := run(ctx, conn, "ROLLBACK"); err != nil {
		return nil, onShard(err, shard)
	}
	var out []Finding
	for _, f := range c.found {
		if f.Level != levelOK {
			out = append(out, f)
		}
	}
	return out, nil
}
