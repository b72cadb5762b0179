package shardmap

import "context"

// Record is a small value that the directory keeps beside the map: the next
// block of a sequence, the ids that a node may give out. It has no history.
type Record struct {
	Key   string // slash-separated, as "sequence/public.orders_id_seq"
	Value []byte // at most 64 KiB
	// Revision changes with every write of the record; never 0.
	Revision uint64
}

// Records keeps [Record]s. Every [Directory] does; the suite in shardmaptest
// holds them to it. Methods are safe for concurrent use.
type Records interface {
	// Record returns the record, ErrNotFound if there is none.
	Record(ctx context.Context, key string) (Record, error)
	// PutRecord writes it if its revision is expect; 0: if there is none. It
	// returns the new revision. ErrConflict means that nothing was written, an
	// error with code 08007 that nobody knows.
	PutRecord(ctx context.Context, key string, value []byte, expect uint64) (revision uint64, err error)
	// DeleteRecord deletes it if its revision is expect; ErrConflict otherwise.
	DeleteRecord(ctx context.Context, key string, expect uint64) error
	// Records returns those whose key begins with prefix, in order of key, at
	// most limit; after is the last key already seen, "" for the first page.
	Records(ctx context.Context, prefix, after string, limit int) ([]Record, error)
}
