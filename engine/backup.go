package engine

import (
	"context"
	"io"
)

// Markable is implemented by Shards of which a backup can be taken.
type Markable interface {
	// Marker opens what marks places of the shard. Errors as of Connect.
	Marker(ctx context.Context) (Marker, error)
}

// Marker marks places of a shard that a copy can be brought to. It is used by one goroutine at a time.
type Marker interface {
	// Mark marks the place of now under a name of letters, digits, '-' and '_', and says where it is, for people. The place
	// has every commit and every PREPARE TRANSACTION that was answered before the call, and none that began after its
	// return. No writer waits for it. An earlier place of the same Marker need not be kept.
	Mark(ctx context.Context, name string) (where string, err error)
	// Close ends it, and gives up the last place if that needs the Marker.
	Close() error
}

// Copier is implemented by Markers that can copy the shard as of the last place, while others write.
type Copier interface {
	// Copy writes the shard as of the last Mark. progress, if it is not nil, is told what is done of how much.
	Copy(ctx context.Context, to io.Writer, progress func(done, total int64)) error
}

// Renamable is implemented by Shards that can become one of another cluster.
type Renamable interface {
	// Rename makes the database one of the cluster; it changes nothing if it is already. Nobody may use it meanwhile. From
	// then on those who know it as the former cluster's are refused (55000). The shard's own name stays.
	Rename(ctx context.Context, cluster string) error
}
