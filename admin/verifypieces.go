package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// VerifyProgress is how far a verification has come.
type VerifyProgress struct {
	ID string `json:"id"`
	// Found are the results of tables that were done in this call.
	Found []VerifyResult `json:"found,omitempty"`
	// Table is the one that is under way, on all shards together in so many Pieces.
	Table  string `json:"table,omitempty"`
	Piece  int    `json:"piece,omitempty"` // done
	Pieces int    `json:"pieces,omitempty"`
	// Tables, Rows and Bytes are what was looked at, all calls together; TablesAll, RowsAll and
	// BytesAll what there is, of rows and bytes about.
	Tables    int   `json:"tables"`
	TablesAll int   `json:"tables_all"`
	Rows      int64 `json:"rows"`
	RowsAll   int64 `json:"rows_all"`
	Bytes     int64 `json:"bytes"`
	BytesAll  int64 `json:"bytes_all"`
	// Orphans, Repaired and Errors are of the tables that are done.
	Orphans  int64 `json:"orphans"`
	Repaired int64 `json:"repaired"`
	Errors   int   `json:"errors"`
	Ended    bool  `json:"ended"`
}

// verifying is a verification under way, as the directory keeps it.
type verifying struct {
	Request VerifyRequest  `json:"request"`
	At      int64          `json:"at"`    // of the last change, milliseconds since 1970
	After   string         `json:"after"` // tables up to this one are done
	So      VerifyProgress `json:"so"`
	// Parts are, by shard, what of the next table is done.
	Parts map[string]*verifiedPart `json:"parts,omitempty"`
}

// verifiedPart is what of a table on a shard is done.
type verifiedPart struct {
	// Keys is a checksum of what the shard owned when the first piece was begun: what was
	// counted by another map is of no use.
	Keys    uint64 `json:"keys"`
	Anew    int    `json:"anew,omitempty"`
	Pieces  int    `json:"pieces"` // and one more, of the rows that the shard does not own
	Done    int    `json:"done"`
	Rows    int64  `json:"rows"`
	Sum     uint64 `json:"sum"`
	Bytes   int64  `json:"bytes"`    // looked at, about
	OfBytes int64  `json:"of_bytes"` // there are, about
	// Result is there when all is done.
	Result *VerifyResult `json:"result,omitempty"`
}

const (
	verifyPrefix = "verify/"
	// verifyPieceBytes is about how much of a table is read as of one moment, verifyPiecesMax bounds the
	// pieces of a hash keyspace's table: each of them reads it.
	verifyPieceBytes = 256 << 20
	verifyPiecesMax  = 8
	// verifyFor is how long a call goes on, if it does not say.
	verifyFor = 2 * time.Second
	// verifyKept is how long an interrupted verification is kept.
	verifyKept = 7 * 24 * time.Hour
	// verifyAnew is how often a table is begun anew because keys came or went, before what was counted by
	// different maps is taken.
	verifyAnew = 5
)

// VerifyPieces implements API: it goes on with the verification of that id, or begins it, and comes back after about
// req.ForMS milliseconds, or when it has ended. Each piece is looked at as of one moment, and by the map of that
// moment; how far it has come is a record of the directory.
//
// Errors: 22023 for an id that cannot be, 55000 for one that is of other tables, 40001 if somebody else goes on with it too.
func (o *verification) VerifyPieces(ctx context.Context, req VerifyRequest) (*VerifyProgress, error) {
	if err := workflow.CheckID(req.ID); err != nil {
		return nil, err
	}
	span := verifyFor
	if req.ForMS > 0 {
		span = time.Duration(req.ForMS) * time.Millisecond
	}
	until := time.Now().Add(span)
	snap, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	st, rev, err := o.verification(ctx, req)
	if err != nil {
		return nil, err
	}
	if rev == 0 {
		if err := o.beginVerifying(ctx, snap, st); err != nil {
			return nil, err
		}
	}
	st.So.Found = nil
	for {
		tables, err := verified(snap, st.Request)
		if err != nil {
			return nil, err
		}
		for len(tables) > 0 && tables[0].QualifiedName() <= st.After {
			tables = tables[1:]
		}
		if len(tables) == 0 {
			st.So.Ended, st.So.Table, st.So.Piece, st.So.Pieces = true, "", 0, 0
			return &st.So, o.forgetVerifying(ctx, req.ID, rev)
		}
		err = o.verifyTable(ctx, snap, st, tables[0], until)
		// What was done is kept, also if somebody has gone away meanwhile.
		keep, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		rev, err = o.keepVerifying(keep, st, rev, err)
		cancel()
		if err != nil {
			return nil, err
		}
		if !time.Now().Before(until) {
			so := st.progress()
			return &so, nil
		}
	}
}

// forgetVerifying deletes the record of a verification that has ended, if it has one.
func (o *verification) forgetVerifying(ctx context.Context, id string, rev uint64) error {
	if rev == 0 {
		return nil
	}
	if err := o.opts.Directory.DeleteRecord(ctx, verifyPrefix+id, rev); err != nil && !errors.Is(err, shardmap.ErrNotFound) {
		return directoryError(err)
	}
	return nil
}

// verification reads the record of an id; revision 0: there was none.
func (o *verification) verification(ctx context.Context, req VerifyRequest) (*verifying, uint64, error) {
	st := &verifying{Request: req, So: VerifyProgress{ID: req.ID}}
	st.Request.ForMS = 0
	r, err := o.opts.Directory.Record(ctx, verifyPrefix+req.ID)
	if errors.Is(err, shardmap.ErrNotFound) {
		return st, 0, nil
	}
	if err != nil {
		return nil, 0, directoryError(err)
	}
	was := &verifying{}
	if err := json.Unmarshal(r.Value, was); err != nil {
		return nil, 0, sqlstate.Wrap(err, sqlstate.DataCorrupted, "the record of verification %s is damaged", req.ID)
	}
	a, b := was.Request, st.Request
	a.Meta, b.Meta = Meta{DryRun: a.DryRun}, Meta{DryRun: b.DryRun}
	if a != b {
		return nil, 0, sqlstate.New(sqlstate.ObjectNotInState, "verification %s was begun for other tables or shards, or with other settings", req.ID).WithHint("ask with those, or with another id")
	}
	return was, r.Revision, nil
}

// beginVerifying finds out how much there is, and forgets verifications that were given up.
func (o *verification) beginVerifying(ctx context.Context, snap *shardmap.Snapshot, st *verifying) error {
	if _, ok := snap.Shard(st.Request.Shard); !ok && st.Request.Shard != "" {
		return noShard(st.Request.Shard)
	}
	tables, err := verified(snap, st.Request)
	if err != nil {
		return err
	}
	st.So.TablesAll = len(tables)
	byKeyspace := map[string][]engine.MoveTable{}
	for _, t := range tables {
		byKeyspace[t.Keyspace] = append(byKeyspace[t.Keyspace], engine.MoveTable{Schema: t.Schema, Name: t.Name, ShardKey: t.ShardKey})
	}
	shards := st.shards(snap)
	type size struct{ rows, bytes int64 }
	sizes := make([]size, len(shards))
	atOnce(len(shards), checksAtOnce, func(i int) {
		s, _ := snap.Shard(shards[i])
		m, err := o.mover(snap, s)
		if err != nil {
			return // verify says so, of each table
		}
		for ks, list := range byKeyspace {
			if list, err := m.Describe(ctx, list); err == nil {
				if rows, bytes, err := m.Sizes(ctx, engine.Set{Tables: list, Keys: snap.Ownership(ks, shards[i])}); err == nil {
					sizes[i].rows, sizes[i].bytes = sizes[i].rows+rows, sizes[i].bytes+bytes
				}
			}
		}
	})
	for _, s := range sizes {
		st.So.RowsAll, st.So.BytesAll = st.So.RowsAll+s.rows, st.So.BytesAll+s.bytes
	}
	old, err := o.opts.Directory.Records(ctx, verifyPrefix, "", 100)
	if err != nil {
		return directoryError(err)
	}
	for _, r := range old {
		var was verifying
		if json.Unmarshal(r.Value, &was) != nil || time.Since(time.UnixMilli(was.At)) > verifyKept {
			_ = o.opts.Directory.DeleteRecord(ctx, r.Key, r.Revision) // the next one does it
		}
	}
	return ctx.Err()
}

// shards are the names of those that are looked at.
func (st *verifying) shards(snap *shardmap.Snapshot) []string {
	var out []string
	for _, s := range snap.Shards() {
		if st.Request.Shard == "" || s.Name == st.Request.Shard {
			out = append(out, s.Name)
		}
	}
	return out
}

// verifyTable looks at pieces of a table on all shards, until a time or until it is done.
func (o *verification) verifyTable(ctx context.Context, snap *shardmap.Snapshot, st *verifying, t *shardmap.Table, until time.Time) error {
	name, shards := t.QualifiedName(), st.shards(snap)
	if st.So.Table != name {
		st.So.Table, st.Parts = name, map[string]*verifiedPart{}
	}
	parts := make([]*verifiedPart, len(shards))
	for i, shard := range shards {
		if parts[i] = st.Parts[shard]; parts[i] == nil {
			parts[i] = &verifiedPart{}
			st.Parts[shard] = parts[i]
		}
	}
	atOnce(len(shards), checksAtOnce, func(i int) {
		if parts[i].Result != nil {
			return
		}
		if err := o.verifyPart(ctx, t, shards[i], parts[i], st.Request, until); err != nil && ctx.Err() == nil {
			parts[i].Result = &VerifyResult{Table: t.Schema + "." + t.Name, Keyspace: t.Keyspace, Shard: shards[i], Error: sqlstate.As(err).Message}
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, p := range parts {
		if p.Result == nil {
			return nil
		}
	}
	st.So.Tables++
	for _, p := range parts {
		st.So.Found = append(st.So.Found, *p.Result)
		st.So.Rows, st.So.Bytes = st.So.Rows+p.Result.Rows, st.So.Bytes+p.OfBytes
		st.So.Orphans, st.So.Repaired = st.So.Orphans+p.Result.Orphans, st.So.Repaired+p.Result.Repaired
		if p.Result.Error != "" {
			st.So.Errors++
		}
	}
	st.After, st.So.Table, st.Parts = name, "", nil
	return nil
}

// verifyPart looks at pieces of a table on one shard, one at least.
func (o *verification) verifyPart(ctx context.Context, t *shardmap.Table, shard string, p *verifiedPart, req VerifyRequest, until time.Time) (err error) {
	v, end, err := o.verifier(ctx, t, shard)
	defer func() { end(err != nil) }()
	if err != nil {
		return err
	}
	for {
		keys := keysSum(v.snap, t.Keyspace, shard)
		if p.Pieces == 0 || p.Keys != keys && p.Anew < verifyAnew {
			*p = verifiedPart{Keys: keys, Anew: p.Anew}
			if p.Pieces, p.OfBytes, err = v.pieces(ctx, req.PieceBytes); err != nil {
				return err
			}
		}
		last := p.Done == p.Pieces
		if err := v.piece(ctx, p.Done, p.Pieces); err != nil {
			return err
		}
		// Counted by a map that was the newest all the while?
		now, err := o.load(ctx)
		if err != nil {
			return err
		}
		if !sameKeys(v.snap, now, t.Keyspace, shard) {
			v.snap = now
			if p.Anew++; p.Anew < verifyAnew {
				continue
			}
		}
		if last {
			v.info.Rows, v.info.Checksum = p.Rows, checksum(p.Sum)
			if v.info.Orphans > 0 {
				if err := v.orphans(ctx, req.Repair && !req.DryRun); err != nil {
					return err
				}
			}
			p.Result = &v.info
			return nil
		}
		p.Rows, p.Sum = p.Rows+v.own, p.Sum+v.sum
		p.Done++
		p.Bytes = p.OfBytes / int64(p.Pieces) * int64(p.Done)
		if !time.Now().Before(until) {
			return nil
		}
	}
}

// piece looks at a piece of the rows that the shard owns, and after the last of them at the others.
func (v *verifier) piece(ctx context.Context, done, pieces int) error {
	v.own, v.sum = 0, 0
	if done == pieces {
		return v.others(ctx)
	}
	return v.owns(ctx, done, pieces)
}

// pieces is in how many pieces a table's rows are read, and about how many bytes they are.
func (v *verifier) pieces(ctx context.Context, most int64) (int, int64, error) {
	if most <= 0 {
		most = verifyPieceBytes
	}
	owned := v.snap.Ownership(v.t.Keyspace, v.shard)
	_, bytes, err := v.m.Sizes(ctx, engine.Set{Tables: []engine.MoveTable{v.table}, Keys: owned})
	if err != nil {
		return 0, 0, err
	}
	n := int(min(bytes/most+1, verifyPiecesMax))
	if owned.Strategy != keyspace.Hash { // whole ranges or values
		n = min(n, max(1, len(owned.Intervals), len(owned.Listed)))
	}
	return n, bytes, nil
}

// keysSum is a checksum of the keys that a map gives to a shard, its transits included.
func keysSum(s *shardmap.Snapshot, ks, shard string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(keysText(s, ks, shard))) // never fails
	return h.Sum64()
}

// keepVerifying stores how far a verification has come, err or not. What does not fit into a record is done again.
func (o *verification) keepVerifying(ctx context.Context, st *verifying, rev uint64, err error) (uint64, error) {
	kept := *st
	kept.At, kept.So.Found = time.Now().UnixMilli(), nil
	b, failed := json.Marshal(&kept)
	if failed == nil && len(b) > shardmap.MaxRecordValueBytes {
		kept.Parts, kept.So.Table = nil, ""
		b, failed = json.Marshal(&kept)
	}
	if failed == nil {
		var next uint64
		if next, failed = o.opts.Directory.PutRecord(ctx, verifyPrefix+st.So.ID, b, rev); failed == nil {
			rev = next
		}
	}
	switch {
	case err != nil:
		return rev, err
	case errors.Is(failed, shardmap.ErrConflict):
		return rev, sqlstate.Wrap(failed, sqlstate.SerializationFailure, "somebody else goes on with verification %s", st.So.ID).WithHint("wait for it, or take another id")
	case failed != nil:
		return rev, directoryError(failed)
	}
	return rev, nil
}

// progress is how far it has come, with the table that is under way.
func (st *verifying) progress() VerifyProgress {
	so := st.So
	for _, p := range st.Parts {
		so.Piece, so.Pieces = so.Piece+p.Done, so.Pieces+p.Pieces+1
		so.Rows, so.Bytes = so.Rows+p.Rows, so.Bytes+p.Bytes
		if p.Result != nil {
			so.Piece++
		}
	}
	return so
}

func checksum(sum uint64) string { return fmt.Sprintf("%016x", sum) }
