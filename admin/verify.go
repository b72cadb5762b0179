package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// VerifyRequest asks for the rows of sharded tables to be looked at.
type VerifyRequest struct {
	Meta
	Keyspace string `json:"keyspace,omitempty"` // "" is all
	Shard    string `json:"shard,omitempty"`    // "" is all
	Table    string `json:"table,omitempty"`    // "" is all; name or schema.name
	// After is a table: only those that come after it are looked at, to go on where
	// somebody stopped.
	After string `json:"after,omitempty"`
	// Repair brings rows home: see VerifyResult. With DryRun it only says so.
	Repair bool `json:"repair,omitempty"`

	// Of VerifyPieces. ID is the id under which the directory keeps how far it has come, ForMS after how long a call comes
	// back, milliseconds, PieceBytes about how much of a table is read as of one moment; 0 is 2 s and 256 MiB.
	ID         string `json:"id,omitempty"`
	ForMS      int64  `json:"for_ms,omitempty"`
	PieceBytes int64  `json:"piece_bytes,omitempty"`
}

// VerifyResult is what one shard has of one table. Strangers are rows that a move has
// there; orphans are rows of keys that the shard does not own, which nobody sees.
// Repair deletes an orphan that the owner has as well, and moves one that the owner
// has not; one that differs from the owner's row with the same primary key is left to
// people.
type VerifyResult struct {
	Keyspace  string `json:"keyspace"`
	Shard     string `json:"shard"`
	Table     string `json:"table"`
	Rows      int64  `json:"rows"`     // of keys that the shard owns
	Checksum  string `json:"checksum"` // of them, hexadecimal; see engine.Sum
	Strangers int64  `json:"strangers"`
	Orphans   int64  `json:"orphans"`
	// What the orphans are.
	Copies    int64 `json:"copies,omitempty"`    // the owner has the same row
	Misplaced int64 `json:"misplaced,omitempty"` // the owner has no such row
	Differing int64 `json:"differing,omitempty"` // the owner has another row with that primary key
	Homeless  int64 `json:"homeless,omitempty"`  // no shard owns the key
	Repaired  int64 `json:"repaired,omitempty"`  // orphans that are gone
	// Sample are some keys of orphans.
	Sample []Orphan `json:"sample,omitempty"`
	// Problem says why an orphan was not repaired, or not looked at.
	Problem string `json:"problem,omitempty"`
	// Error says why the shard could not be asked.
	Error string `json:"error,omitempty"`
}

// Orphan is a shard key with rows where they should not be.
type Orphan struct {
	Key   []string `json:"key"`
	Owner string   `json:"owner,omitempty"`
	Is    string   `json:"is"` // "copy", "misplaced", "differing" or "homeless"
}

const (
	// verifyPage is how many keys of orphans are asked for at a time, verifyBatch how many are compared.
	verifyPage   = 2000
	verifyBatch  = 100
	verifySample = 5
)

// verification compares and repairs tables.
type verification struct {
	*backend
	// repairs: rows of one key may be on several shards that do not own it. One shard's are brought home
	// after the other's, so that each is compared with the rows that its owner has then.
	repairs sync.Mutex
}

// Verify implements API. Statements go on meanwhile. A shard is looked at as of one
// moment, and by the map of that moment.
func (o *verification) Verify(ctx context.Context, req VerifyRequest) ([]VerifyResult, error) {
	snap, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	tables, err := verified(snap, req)
	if err != nil {
		return nil, err
	}
	if _, ok := snap.Shard(req.Shard); !ok && req.Shard != "" {
		return nil, noShard(req.Shard)
	}
	var shards []shardmap.Shard
	for _, s := range snap.Shards() {
		if req.Shard == "" || s.Name == req.Shard {
			shards = append(shards, s)
		}
	}
	out := []VerifyResult{}
	for _, t := range tables {
		found := make([]VerifyResult, len(shards))
		atOnce(len(shards), checksAtOnce, func(i int) {
			var err error
			if found[i], err = o.verify(ctx, t, shards[i].Name, req); err != nil {
				found[i].Error = sqlstate.As(err).Message
			}
		})
		if err := ctx.Err(); err != nil {
			return out, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// verified are the tables to look at, in the order of their names.
func verified(snap *shardmap.Snapshot, req VerifyRequest) ([]*shardmap.Table, error) {
	if req.Keyspace != "" {
		if _, ok := snap.Keyspace(req.Keyspace); !ok {
			return nil, sqlstate.New(sqlstate.UndefinedObject, "keyspace %q does not exist", req.Keyspace).WithHint("list the keyspaces with \"cleave keyspace list\"")
		}
	}
	find := func(text string) (string, error) { return shardedTable(snap, text) }
	only, err := find(req.Table)
	if err != nil {
		return nil, err
	}
	after, err := find(req.After)
	if err != nil {
		return nil, err
	}
	var out []*shardmap.Table
	tables := snap.State().Tables
	for i := range tables {
		t := &tables[i]
		name := t.QualifiedName()
		if t.Kind == shardmap.Sharded && (only == "" || name == only) && name > after && (req.Keyspace == "" || t.Keyspace == req.Keyspace) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b *shardmap.Table) int { return strings.Compare(a.QualifiedName(), b.QualifiedName()) })
	return out, nil
}

// shardedTable is the whole name of a sharded table; "" for none.
func shardedTable(snap *shardmap.Snapshot, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	name, err := parseTable(text)
	if err != nil {
		return "", err
	}
	t, ok := snap.Table(name.Schema, name.Name)
	if !ok || t.Kind != shardmap.Sharded {
		return "", sqlstate.New(sqlstate.UndefinedTable, "there is no sharded table %s", text).WithHint("list the tables with \"cleave table list\"")
	}
	return t.QualifiedName(), nil
}

// verifier looks at one table on one shard.
type verifier struct {
	o     *verification
	t     *shardmap.Table
	shard string
	snap  *shardmap.Snapshot
	m     engine.Mover
	table engine.MoveTable
	conn  map[string]engine.Conn
	done  []func(broken bool)
	own   int64  // of keys that the shard owns
	sum   uint64 // their checksum
	info  VerifyResult
}

// verifier begins to look at a table on a shard. end must follow, also after an error.
func (o *verification) verifier(ctx context.Context, t *shardmap.Table, shard string) (v *verifier, end func(broken bool), err error) {
	v = &verifier{o: o, t: t, shard: shard, conn: map[string]engine.Conn{}}
	end = func(broken bool) {
		for _, done := range v.done {
			done(broken)
		}
	}
	v.clear()
	if v.snap, err = o.load(ctx); err != nil {
		return v, end, err
	}
	s, ok := v.snap.Shard(shard)
	if !ok {
		return v, end, noShard(shard)
	}
	if v.m, err = o.mover(v.snap, s); err != nil {
		return v, end, err
	}
	described, err := v.m.Describe(ctx, []engine.MoveTable{{Schema: t.Schema, Name: t.Name, ShardKey: t.ShardKey}})
	if err != nil {
		return v, end, err
	}
	v.table = described[0]
	return v, end, nil
}

// clear begins to count.
func (v *verifier) clear() {
	v.own, v.sum = 0, 0
	v.info = VerifyResult{Table: v.t.Schema + "." + v.t.Name, Keyspace: v.t.Keyspace, Shard: v.shard}
}

func (o *verification) verify(ctx context.Context, t *shardmap.Table, shard string, req VerifyRequest) (info VerifyResult, err error) {
	v, end, err := o.verifier(ctx, t, shard)
	defer func() { end(err != nil) }()
	if err != nil {
		return v.info, err
	}
	for round := 0; ; round++ {
		if err := v.count(ctx); err != nil {
			return v.info, err
		}
		// Counted by a map that was the newest all the while?
		now, err := o.load(ctx)
		if err != nil {
			return v.info, err
		}
		if sameKeys(v.snap, now, t.Keyspace, shard) || round == 5 {
			break
		}
		v.snap = now
	}
	if v.info.Orphans > 0 {
		err = v.orphans(ctx, req.Repair && !req.DryRun)
	}
	return v.info, err
}

// sameKeys reports whether two maps give a shard the same keys, its transits included.
func sameKeys(a, b *shardmap.Snapshot, ks, shard string) bool {
	if a.Version() == b.Version() {
		return true
	}
	return keysText(a, ks, shard) == keysText(b, ks, shard)
}

// keysText is what a map says of a shard's keys.
func keysText(s *shardmap.Snapshot, ks, shard string) string {
	strangers, ok := s.Strangers(ks, shard)
	return fmt.Sprintf("%+v %+v %v", s.Ownership(ks, shard), strangers, ok)
}

// count fills in how many rows there are.
func (v *verifier) count(ctx context.Context) error {
	v.clear()
	if err := v.owns(ctx, 0, 1); err != nil {
		return err
	}
	v.info.Rows, v.info.Checksum = v.own, checksum(v.sum)
	return v.others(ctx)
}

// owns counts the rows of a piece of the keys that the shard owns.
func (v *verifier) owns(ctx context.Context, piece, pieces int) error {
	owned := v.snap.Ownership(v.t.Keyspace, v.shard)
	keys := owned.Piece(piece, pieces)
	if pieces > 1 && keys.Empty() {
		return nil
	}
	sum, err := v.m.Sums(ctx, engine.Set{Tables: []engine.MoveTable{v.table}, Keys: keys}, nil)
	if err != nil {
		return err
	}
	v.own, v.sum = v.own+sum[0].Rows, v.sum+sum[0].Checksum
	return nil
}

// others counts the rows of keys that the shard does not own.
func (v *verifier) others(ctx context.Context) error {
	conn, err := v.with(ctx, v.shard)
	if err != nil {
		return err
	}
	// Not as a difference: a move may delete strangers between two counts.
	if v.info.Orphans, err = count(ctx, conn, v.t, orphanCondition(v.snap, v.t, v.shard)); err != nil {
		return err
	}
	if strangers, ok := v.snap.Strangers(v.t.Keyspace, v.shard); ok {
		v.info.Strangers, err = count(ctx, conn, v.t, "coalesce("+keyspace.Condition(&strangers, v.key())+", false)")
	}
	return err
}

func (v *verifier) key() []string { return quotedKey(v.t) }

func (v *verifier) owned() string {
	own := v.snap.Ownership(v.t.Keyspace, v.shard)
	return keyspace.Condition(&own, v.key())
}

// with returns a conversation with a shard, in which values are printed alike everywhere.
func (v *verifier) with(ctx context.Context, shard string) (engine.Conn, error) {
	if c := v.conn[shard]; c != nil {
		return c, nil
	}
	s, ok := v.snap.Shard(shard)
	if !ok {
		return nil, noShard(shard)
	}
	sh, err := v.o.primary(v.snap.State().Cluster, s)
	if err != nil {
		return nil, err
	}
	c, done, err := dial(ctx, sh)
	if err != nil {
		return nil, err
	}
	v.conn[shard], v.done = c, append(v.done, done)
	for _, set := range []string{"TimeZone = 'UTC'", "DateStyle = 'ISO, MDY'", "bytea_output = 'hex'", "extra_float_digits = '1'"} {
		if _, err := engine.Exec(c, "SET "+set); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// keysOf are some keys, as an ownership.
func (v *verifier) keysOf(keys []keyspace.Key) keyspace.Ownership {
	own := v.snap.Ownership(v.t.Keyspace, v.shard)
	return keyspace.Ownership{Keyspace: own.Keyspace, Strategy: own.Strategy, Types: own.Types, Seed: own.Seed, Pinned: keys}
}

// orphans looks at the orphans' keys, some at a time.
func (v *verifier) orphans(ctx context.Context, repair bool) error {
	if repair {
		v.o.repairs.Lock()
		defer v.o.repairs.Unlock()
	}
	conn, err := v.with(ctx, v.shard)
	if err != nil {
		return err
	}
	ix, _ := v.snap.Keyspace(v.t.Keyspace)
	types := v.keysOf(nil).Types
	var last []string // the key that was looked at last
	for {
		where := []string{"NOT coalesce(" + v.owned() + ", false)"}
		for _, k := range v.key() {
			where = append(where, k+" IS NOT NULL")
		}
		if strangers, ok := v.snap.Strangers(v.t.Keyspace, v.shard); ok {
			where = append(where, "NOT "+keyspace.Condition(&strangers, v.key()))
		}
		if last != nil {
			where = append(where, v.after(last))
		}
		list := strings.Join(v.key(), ", ")
		res, err := engine.Exec(conn, fmt.Sprintf("SELECT DISTINCT %s FROM %s WHERE %s ORDER BY %s LIMIT %d", list, quotedTable(v.t), strings.Join(where, " AND "), list, verifyPage))
		if err != nil {
			return err
		}
		for rows := range slices.Chunk(res.Rows, verifyBatch) {
			if err := ctx.Err(); err != nil {
				return err
			}
			byOwner, lastOf, err := keysByOwner(ix, types, rows)
			if err != nil {
				return err
			}
			last = lastOf
			for _, owner := range slices.Sorted(maps.Keys(byOwner)) {
				if err := v.compare(ctx, conn, owner, byOwner[owner], repair); err != nil {
					return err
				}
			}
		}
		if len(res.Rows) < verifyPage {
			return nil
		}
	}
}

// keysByOwner divides keys by the shards that own them: "" for those of a list that are not listed. last are the texts of the last one.
func keysByOwner(ix *shardmap.Index, types []keyspace.Type, rows [][]engine.Text) (byOwner map[string][]keyspace.Key, last []string, err error) {
	byOwner = map[string][]keyspace.Key{}
	for _, row := range rows {
		last = make([]string, len(row))
		for i := range row {
			last[i] = row[i].String
		}
		k, err := keyspace.ParseKey(types, last)
		if err != nil {
			return nil, nil, err
		}
		at, err := ix.Locate(k)
		if err != nil { // of a list, and not listed
			at.Shard = ""
		}
		byOwner[at.Shard] = append(byOwner[at.Shard], k)
	}
	return byOwner, last, nil
}

// after is the condition of keys that come after one in their order.
func (v *verifier) after(last []string) string {
	var any []string
	for i := range last {
		var all []string
		for n := range i + 1 {
			is := " = "
			if n == i {
				is = " > "
			}
			at := slices.Index(v.table.Columns, v.t.ShardKey[n])
			all = append(all, quoted(v.t.ShardKey[n])+is+keyspace.Quote(last[n])+"::"+v.table.Types[at])
		}
		any = append(any, "("+strings.Join(all, " AND ")+")")
	}
	return "(" + strings.Join(any, " OR ") + ")"
}

func (v *verifier) problem(text string) {
	if v.info.Problem == "" {
		v.info.Problem = text
	}
}

// verifiedRows are rows of some keys.
type verifiedRows struct {
	all   [][]engine.Text
	times map[string]int  // by the whole row
	keys  map[string]bool // of the primary key
}

func (v *verifier) rows(conn engine.Conn, keys []keyspace.Key, identity []int) (*verifiedRows, error) {
	own := v.keysOf(keys)
	names := make([]string, len(v.table.Columns))
	for i, n := range v.table.Columns {
		names[i] = quoted(n)
	}
	res, err := engine.Exec(conn, "SELECT "+strings.Join(names, ", ")+" FROM "+quotedTable(v.t)+" WHERE "+keyspace.Condition(&own, v.key()))
	if err != nil {
		return nil, err
	}
	r := &verifiedRows{all: res.Rows, times: map[string]int{}, keys: map[string]bool{}}
	for _, row := range res.Rows {
		r.times[rowText(row)]++
		if identity != nil {
			r.keys[copyKeyText(row, identity)] = true
		}
	}
	return r, nil
}

// compare looks at the orphans of keys that one shard owns.
func (v *verifier) compare(ctx context.Context, conn engine.Conn, owner string, keys []keyspace.Key, repair bool) error {
	place := func(names []string) []int {
		out := make([]int, len(names))
		for i, n := range names {
			out[i] = slices.Index(v.table.Columns, n)
		}
		return out
	}
	var identity []int
	if len(v.table.Identity) < len(v.table.Columns) {
		identity = place(v.table.Identity)
	}
	here, err := v.rows(conn, keys, identity)
	if err != nil {
		return err
	}
	if owner == "" {
		v.info.Homeless += int64(len(here.all))
		for _, k := range keys {
			v.note(k, "", "homeless")
		}
		return nil
	}
	home, err := v.with(ctx, owner)
	if err != nil {
		return err
	}
	there, err := v.rows(home, keys, identity)
	if err != nil {
		return err
	}
	byKey := map[string][][]engine.Text{}
	shardKey := place(v.t.ShardKey)
	for _, row := range here.all {
		byKey[copyKeyText(row, shardKey)] = append(byKey[copyKeyText(row, shardKey)], row)
	}
	for _, k := range keys {
		texts := make([]engine.Text, len(k))
		for i, s := range k.Texts() {
			texts[i] = engine.Text{String: s}
		}
		all := make([]int, len(k))
		for i := range all {
			all[i] = i
		}
		is := "copy"
		rows := byKey[copyKeyText(texts, all)]
		var missing [][]engine.Text // on the owner
		for _, row := range rows {
			text := rowText(row)
			switch {
			case there.times[text] > 0:
				there.times[text]--
				v.info.Copies++
			case identity != nil && there.keys[copyKeyText(row, identity)]:
				v.info.Differing++
				is = "differing"
			default:
				v.info.Misplaced++
				missing = append(missing, row)
				if is == "copy" {
					is = "misplaced"
				}
			}
		}
		if repair && is == "differing" {
			v.problem(fmt.Sprintf("the rows of key %s stay: shard %s has another row with the same primary key; compare both, and delete one", k, owner))
		} else if repair && len(missing) > 0 {
			if err := v.bring(home, missing); err != nil {
				var e *sqlstate.Error
				if !errors.As(err, &e) {
					return err
				}
				v.problem(fmt.Sprintf("the rows of key %s stay, since one cannot be moved to shard %s: %s", k, owner, e.Message))
				is = "differing"
			}
		}
		v.note(k, owner, is)
		if !repair || is == "differing" || len(rows) == 0 {
			continue
		}
		if err := v.evict(ctx, k, owner, int64(len(rows))); err != nil {
			if engine.Lost(err) != nil {
				return err
			}
			v.problem(fmt.Sprintf("the rows of key %s stay: %s", k, sqlstate.As(err).Message))
			continue
		}
		v.info.Repaired += int64(len(rows))
	}
	return nil
}

func (v *verifier) note(k keyspace.Key, owner, is string) {
	if len(v.info.Sample) < verifySample {
		v.info.Sample = append(v.info.Sample, Orphan{Key: k.Texts(), Owner: owner, Is: is})
	}
}

// bring adds the rows of a key on its owner: all, or none.
func (v *verifier) bring(conn engine.Conn, rows [][]engine.Text) error {
	if _, err := engine.Exec(conn, "BEGIN"); err != nil {
		return err
	}
	for _, row := range rows {
		if err := v.insert(conn, row); err != nil {
			_, back := engine.Exec(conn, "ROLLBACK")
			if engine.Lost(back) != nil {
				return back
			}
			return err
		}
	}
	_, err := engine.Exec(conn, "COMMIT")
	return err
}

// insert adds a row on its owner as a client would: the guard, the constraints and a
// move that is under way see it.
func (v *verifier) insert(conn engine.Conn, row []engine.Text) error {
	names, values := make([]string, len(row)), make([]string, len(row))
	for i, x := range row {
		names[i], values[i] = quoted(v.table.Columns[i]), "NULL"
		if !x.Null {
			values[i] = keyspace.Quote(x.String)
		}
	}
	_, err := engine.Exec(conn, "INSERT INTO "+quotedTable(v.t)+" ("+strings.Join(names, ", ")+") VALUES ("+strings.Join(values, ", ")+")")
	return err
}

// evict deletes the rows of a key where they do not belong, if that is so still when
// they are locked.
func (v *verifier) evict(ctx context.Context, k keyspace.Key, owner string, rows int64) error {
	e, ok := v.m.(engine.Evictor)
	if !ok {
		return sqlstate.Refusal("CLV-1412", "this engine cannot delete rows of keys that it does not own").
			WithHint("Delete them there.")
	}
	set := engine.Set{Tables: []engine.MoveTable{v.table}, Keys: v.keysOf([]keyspace.Key{k})}
	return e.Evict(ctx, set, rows, func(ctx context.Context) error {
		now, err := v.o.load(ctx)
		if err != nil {
			return err
		}
		ix, ok := now.Keyspace(v.t.Keyspace)
		if !ok {
			return sqlstate.New(sqlstate.SerializationFailure, "keyspace %s is gone", v.t.Keyspace)
		}
		at, err := ix.Locate(k)
		if err != nil {
			return err
		}
		strangers, moving := now.Strangers(v.t.Keyspace, v.shard)
		if at.Shard != owner || moving && strangers.Owns(k) {
			return sqlstate.New(sqlstate.SerializationFailure, "the key is being moved")
		}
		return nil
	})
}

// VerifySummary says in a line what Verify found.
func VerifySummary(list []VerifyResult) string {
	so, tables := VerifyProgress{}, map[string]bool{}
	for i := range list {
		tables[list[i].Table] = true
		so.Rows, so.Orphans, so.Repaired = so.Rows+list[i].Rows, so.Orphans+list[i].Orphans, so.Repaired+list[i].Repaired
	}
	so.Tables = len(tables)
	return so.Summary()
}

// Summary says in a line what was found in the tables that are done.
func (p *VerifyProgress) Summary() string {
	text := fmt.Sprintf("%d rows of %d tables are where the map says", p.Rows, p.Tables)
	if p.Orphans > 0 {
		text += fmt.Sprintf("; %d are where they should not be", p.Orphans)
		if p.Repaired > 0 {
			text += fmt.Sprintf(", of which %d were brought home", p.Repaired)
		}
	}
	return text
}
