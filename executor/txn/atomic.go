package txn

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/txnrecord"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/sqlstate"
)

const (
	// snapshotsMax bounds the time from the first look to the proof. Records stay
	// longer than that after their transaction has ended everywhere (cleanGap).
	snapshotsMax = 10 * time.Second
	// snapshotsTries bounds the rounds.
	snapshotsTries = 200
	// gateMax is how long this process's commits and a reader wait for each other,
	// after some rounds that did not fit. It is for speed; the proof does not need it.
	gateMax = 20 * time.Millisecond
)

// view is one shard's part in an atomic read.
type view struct {
	*Participant
	records txnrecord.Records
	before  string // a snapshot from before all that are read from
	taken   bool   // it is in a transaction whose snapshot is taken
	// recent are the transactions that the snapshot sees and before does not;
	// prepared those that were prepared when it was taken, with their global ids.
	recent   []txid
	prepared map[txid]string
	sees     map[txid]bool
}

// Snapshots begins a transaction on each part, with begin (which has to ask for
// REPEATABLE READ at least), and takes snapshots that fit each other: each of them
// sees a transaction over several shards wholly or not at all. The parts must be
// outside of transactions. After an error they are so again, or broken.
//
// Errors: 40001 if no fitting snapshots were found in time; 57014 when ctx ends;
// 57P03 when a shard is lost.
func (t *Transactions) Snapshots(ctx context.Context, parts []*Participant, begin string) error {
	return t.snapshotsOf(ctx, parts, begin, t.beside)
}

// snapshotsOf is Snapshots, with the way in which they are taken.
func (t *Transactions) snapshotsOf(ctx context.Context, parts []*Participant, begin string, way taking) error {
	views := make([]*view, len(parts))
	for i, p := range parts {
		views[i] = &view{Participant: p, records: t.records(p.Shard)}
		if err := t.prepareShard(ctx, p.Shard); err != nil {
			return onShard(err, p.Shard)
		}
	}
	err := t.snapshots(ctx, views, begin, way)
	if err != nil {
		rollback(views)
		if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
			var se *sqlstate.Error
			if errors.As(cause, &se) {
				return se
			}
		}
	}
	return err
}

// taking takes the snapshots of a try that are missing, or all of them. again: none can be used.
type taking func(ctx context.Context, try int, views []*view, begin string) (again bool, err error)

// beside is the taking of snapshots of which each may be taken again by itself.
func (t *Transactions) beside(_ context.Context, try int, views []*view, begin string) (again bool, err error) {
	if try >= 2 {
		defer t.gate.shut()()
	}
	return false, t.takeViews(views, begin)
}

func (t *Transactions) snapshots(ctx context.Context, views []*view, begin string, way taking) error {
	all := make([]*voter, len(views))
	for i, v := range views {
		all[i] = &voter{Participant: v.Participant}
	}
	defer interruptible(ctx, all)()
	first, started := time.Now(), time.Time{}
	for try := range snapshotsTries {
		if try%8 == 0 { // from scratch: what lies before is old, and more and more would have to be compared
			rollback(views)
			started = time.Now()
			if err := lookBefore(views); err != nil {
				return err
			}
		}
		again, err := way(ctx, try, views, begin)
		if err != nil {
			return err
		}
		var behind map[*view][]txid
		if !again {
			if behind, err = compareViews(views); err != nil {
				return err
			}
		}
		if len(behind) == 0 && !again && time.Since(started) <= snapshotsMax {
			return nil
		}
		if time.Since(first) > snapshotsMax || ctx.Err() != nil {
			break
		}
		if err := t.help(ctx, views, behind); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to user request")
	}
	return Unfit(len(views))
}

// lookBefore takes what is earlier than all snapshots to come.
func lookBefore(views []*view) error {
	return askViews(views, txnrecord.Records.Snapshot, func(v *view, res *engine.Result) error {
		row, err := res.OneRow(1, v.Shard)
		if err == nil {
			v.before = row[0].String
		}
		return err
	})
}

// Unfit is the error of a read for which no snapshots were found that fit each other.
func Unfit(shards int) error {
	e := sqlstate.New(sqlstate.SerializationFailure, "no snapshots of the %d shards were found that see the same transactions over several shards", shards).
		WithHint("run it again; with cleave.read_consistency = 'shard' each shard's snapshot is its own")
	e.Retry = sqlstate.RetryTransaction
	return e
}

// takeViews takes the snapshots that are missing, at the same time. What is
// prepared is listed before: what is prepared when the snapshot is taken and not
// in the list was prepared after before, and so is recent wherever it is seen.
func (t *Transactions) takeViews(views []*view, begin string) error {
	var asked []*view
	var first error
	for _, v := range views {
		if v.taken {
			continue
		}
		// Two messages: a transaction's isolation is set before its first query.
		if err := v.Conn.AskAll(v.records.Prepared(), begin+"; "+v.records.Recent(v.before)); err != nil {
			drainViews(asked, 2)
			return onShard(err, v.Shard)
		}
		if t.step == nil {
			asked = append(asked, v)
			continue
		}
		// One after the other, so that the steps are what they say.
		if err := errors.Join(v.take(), t.at("snapshot", v.Shard)); err != nil {
			return err
		}
	}
	for _, v := range asked {
		if err := v.take(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// take reads the answers of takeViews.
func (v *view) take() error {
	got, err := v.Conn.Answers(2, nil)
	if err != nil {
		return onShard(err, v.Shard)
	}
	list, recent := got[0], got[1]
	v.taken, v.recent, v.prepared = true, v.recent[:0], map[txid]string{}
	for _, row := range list.Rows {
		// The cluster is the database's: any will do.
		if id, ok := gidID(row[0].String); ok {
			v.prepared[id] = row[0].String
		}
	}
	for _, row := range recent.Rows {
		if id, ok := parseUUID(row[0].String); ok {
			v.recent = append(v.recent, id)
		}
	}
	return nil
}

// compareViews returns, by transaction, the views that do not see what another one
// sees although it wrote there as well.
func compareViews(views []*view) (behind map[*view][]txid, err error) {
	var ids []string
	seen := map[txid]bool{}
	add := func(id txid) {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id.String())
		}
	}
	for _, v := range views {
		for _, id := range v.recent {
			add(id)
		}
		for id := range v.prepared {
			add(id)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	shards := map[txid][]string{}
	err = askViews(views, func(r txnrecord.Records) string { return r.Visible(ids) }, func(v *view, res *engine.Result) error {
		v.sees = map[txid]bool{}
		for _, row := range res.Rows {
			if id, ok := parseUUID(row[0].String); ok {
				v.sees[id] = true
				shards[id] = strings.Split(row[1].String, ",")
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	behind = map[*view][]txid{}
	for id, names := range shards {
		for _, v := range views {
			if !v.sees[id] && slices.Contains(names, v.Shard) {
				behind[v] = append(behind[v], id)
			}
		}
	}
	return behind, nil
}

// help gives the views that are behind up, to be taken again. What they miss is
// seen elsewhere, so it is decided: if it is still prepared it is committed now,
// by the first process that comes.
func (t *Transactions) help(ctx context.Context, views []*view, behind map[*view][]txid) error {
	var again []*view
	for _, v := range views {
		if behind[v] != nil {
			again = append(again, v)
		}
	}
	rollback(again)
	for _, v := range again {
		if v.Conn.Broken() {
			return sqlstate.New(sqlstate.CannotConnectNow, "the connection to shard %s was lost", v.Shard).OnShard(v.Shard)
		}
		for _, id := range behind[v] {
			g, ok := v.prepared[id]
			if !ok {
				continue
			}
			if _, err := v.Conn.Exec("COMMIT PREPARED " + executor.QuoteLiteral(g)); err != nil {
				if v.Conn.Broken() {
					return onShard(err, v.Shard)
				}
				// Its owner is at it, or has done it, or another role prepared it: then
				// recovery does.
				if code := sqlstate.CodeOf(err); code != sqlstate.UndefinedObject && !sleep(ctx, time.Millisecond) {
					return sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to user request")
				}
			}
		}
	}
	return nil
}

// askViews runs a text on all views at the same time.
func askViews(views []*view, sql func(txnrecord.Records) string, take func(v *view, res *engine.Result) error) error {
	for i, v := range views {
		if err := v.Conn.Ask(sql(v.records)); err != nil {
			drainViews(views[:i], 1)
			return onShard(err, v.Shard)
		}
	}
	var first error
	for _, v := range views {
		res, err := v.Conn.Answer(nil)
		if err != nil {
			err = onShard(err, v.Shard)
		} else {
			err = take(v, res)
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// drainViews reads answers that nobody wants.
func drainViews(views []*view, n int) {
	for _, v := range views {
		_, _ = v.Conn.Answers(n, nil) // it is broken then, or usable
	}
}

// rollback ends the transactions of the views.
func rollback(views []*view) {
	conns := make([]*executor.Conn, len(views))
	for i, v := range views {
		v.taken, conns[i] = false, v.Conn
	}
	RollBack(conns)
}

// gidID reads the transaction off a global id.
func gidID(s string) (id txid, ok bool) {
	rest, ok := strings.CutPrefix(s, gidPrefix)
	if !ok {
		return id, false
	}
	if u, ok := strings.CutPrefix(rest, "ddl_"); ok { // of a schema change that wrote rows
		u, _, _ = strings.Cut(u, "_")
		id, err := uuid.Parse(u)
		return txid(id), err == nil
	}
	parts := strings.SplitN(rest, "_", 4)
	if len(parts) != 4 {
		return id, false
	}
	return parseID(parts[1])
}

func parseUUID(s string) (id txid, ok bool) {
	_, err := hex.Decode(id[:], []byte(strings.ReplaceAll(s, "-", "")))
	return id, err == nil
}

// gate lets the commits of a process wait a moment for a reader, and the reader
// for those under way, so that its snapshots fall between them.
type gate struct {
	mu     sync.Mutex
	inside int
	open   chan struct{} // closed when a reader is done; nil: nobody waits
	empty  chan struct{} // closed when nobody is inside
}

// enter is called before a decision; leave has to follow when it is carried out.
func (g *gate) enter() {
	g.mu.Lock()
	if open := g.open; open != nil {
		g.mu.Unlock()
		timer := time.NewTimer(gateMax)
		select {
		case <-open:
		case <-timer.C:
		}
		timer.Stop()
		g.mu.Lock()
	}
	g.inside++
	g.mu.Unlock()
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// shut keeps commits out until the returned function is called, and waits for
// those inside; for both not longer than gateMax.
func (g *gate) shut() (reopen func()) {
	g.mu.Lock()
	if g.open != nil { // another reader's
		g.mu.Unlock()
		return func() {}
	}
	open := make(chan struct{})
	g.open = open
	var empty chan struct{}
	if g.inside > 0 {
		if g.empty == nil {
			g.empty = make(chan struct{})
		}
		empty = g.empty
	}
	g.mu.Unlock()
	if empty != nil {
		timer := time.NewTimer(gateMax)
		select {
		case <-empty:
		case <-timer.C:
		}
		timer.Stop()
	}
	return func() {
		g.mu.Lock()
		g.open = nil
		g.mu.Unlock()
		close(open)
	}
}
