package shardmap

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/sqlstate"
)

// LeaderRecord is the key of the record with the id of the member that won an election last. It is for people: who
// leads is decided by the election, and a member that is gone leads nothing.
func LeaderRecord(election string) string { return "leader/" + election }

// Bounds of a record, bytes.
const (
	MaxRecordKeyBytes   = 1 << 10
	MaxRecordValueBytes = 64 << 10
)

// Record is a small value that the directory keeps beside the map: the next
// block of a sequence, the ids that a node may give out. It has no history.
type Record struct {
	Key   string // slash-separated, as "sequence/public.orders_id_seq"
	Value []byte // at most 64 KiB
	// Revision changes with every write of the record; never 0. A record that
	// was deleted and written again has another one than before.
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

// CheckRecord checks what is to be written, for directories.
func CheckRecord(key string, value []byte) error {
	switch {
	case key == "" || len(key) > MaxRecordKeyBytes || !utf8.ValidString(key) || strings.IndexByte(key, 0) >= 0:
		return sqlstate.New(sqlstate.InvalidParameterValue, "a record needs a key of 1 to %d bytes of UTF-8 without zero bytes", MaxRecordKeyBytes)
	case len(value) > MaxRecordValueBytes:
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "record %q would take %d bytes; %d are allowed", key, len(value), MaxRecordValueBytes)
	}
	return nil
}

// NoRecord returns the error of a record that does not exist, wrapping ErrNotFound.
func NoRecord(key string) error { return NotFound("the directory holds no record %q", clip(key)) }

// RecordConflict returns the error of a write that expected another revision of
// a record, wrapping ErrConflict.
func RecordConflict(key string, expect uint64) error {
	err := sqlstate.Wrap(ErrConflict, sqlstate.SerializationFailure, "record %q is not at revision %d: somebody else wrote it", clip(key), expect).
		WithHint("read it again, then try again")
	err.Retry = sqlstate.RetryTransaction
	return err
}
