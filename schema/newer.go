package schema

import (
	"context"
	"fmt"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
)

// NewerGuard reports whether a guard's epoch says that the directory was put back to an older state. One above the map is
// what an operation leaves that dies between the guards and the map: it gives an empty key away (a pin), or
// nothing. Rows change hands in workflows only, and those write the map several times.
func NewerGuard(epoch uint64, now *shardmap.Snapshot) bool { return epoch > now.Version()+1 }

// newer is the finding about a sharded table's guard that no version of the map has made: nil if there is no such. Somebody
// has put the directory back to an older state then, and rows may have moved since. The guard was read before
// the map is, so that one which a move has set just now is not taken for such.
func (c *comparison) newer(ctx context.Context, t *shardmap.Table, is *engine.GuardState) (*Finding, error) {
	if t.Kind != shardmap.Sharded || is == nil || is.Epoch <= c.snap.Version() {
		return nil, nil
	}
	now, err := c.o.Directory.Load(ctx)
	if err != nil {
		return nil, directoryError(err)
	}
	if !NewerGuard(is.Epoch, now) || Moving(now, t.Keyspace, c.shard.Name) {
		return nil, nil
	}
	return &Finding{Level: levelError, Shard: c.shard.Name, Table: t.QualifiedName(), Newer: true,
		What: fmt.Sprintf("the guard of %s on %s has epoch %d, but the newest version of the map is %d: the directory was put back to an older state, and rows may be where the map does not say",
			t.QualifiedName(), c.shard.Name, is.Epoch, now.Version()),
		Next: "stop the routers and restore a newer state of the directory; only if the map is right nevertheless: cleave doctor --repair --set-back-guards, then cleave verify --repair"}, nil
}
