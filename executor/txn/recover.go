package txn

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/txnrecord"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

const (
	// sweepEvery is how often some member of the cluster looks for what was left.
	// Each looks the more seldom, the more there are.
	sweepEvery = 2 * time.Second
	// sweepAgain is the pause after a look that left something unfinished.
	sweepAgain = 300 * time.Millisecond
	// orphanAge is when a prepared transaction is settled although its owner seems
	// to live: it must have been decided, or can never be.
	orphanAge = 2 * prepareMax
	// keepRolledBack is how long a decision against a transaction stays. It has to
	// stay longer than anybody may try to decide the opposite, see decideMax.
	keepRolledBack = 2 * decideMax
	// cleanEvery is how often records are cleaned up by some member.
	cleanEvery = 30 * time.Second
	// cleanGap is how long records stay at least after their transaction was seen
	// to have ended everywhere: readers need them for snapshotsMax.
	cleanGap = 2 * snapshotsMax
	// atOnce bounds the shards that are looked at at the same time.
	atOnce = 8
)

// Connect opens a conversation with a shard; release gives it back, broken says
// that it has to be closed.
type Connect func(ctx context.Context, shard string) (conn engine.Conn, release func(broken bool), err error)

// Recovery looks for transactions that were left prepared, and settles them.
type Recovery struct {
	Directory shardmap.Directory
	Connect   Connect
	// DryRun only looks.
	DryRun bool
	// Age is when a transaction is settled although its owner seems to live; 0 is
	// two minutes.
	Age time.Duration
	// own says of the process's own transactions whether they are at work.
	own func(id txid) (mine, active bool)
	// changes, if there is one, is told the schema changes of which something is prepared.
	changes func(ids []txid)
	members []shardmap.MemberState
}

// InDoubt is a transaction over several shards of which something is prepared.
type InDoubt struct {
	ID      string
	Router  string // its owner's address or host, "" if that is gone
	Decider string // the shard that holds the decision
	Shards  []string
	Age     time.Duration
	// State is "active" (its owner is at work on it), "in doubt", or what became of
	// it: "committed", "rolled back".
	State string
	// Err is why it could not be settled yet.
	Err error
}

type leftover struct {
	InDoubt
	id    txid
	parts []leftoverPart
}

type leftoverPart struct {
	shard, gid, owner string
}

// look lists what is prepared on shards; changes are schema changes, which package schema settles. unreached are those that could not
// be asked, with the reasons.
func (r *Recovery) look(ctx context.Context, cluster string, shards []shardmap.Shard) (found []*leftover, changes []txid, unreached map[string]error) {
	type one struct {
		rows [][]engine.Text
		err  error
	}
	got := make([]one, len(shards))
	shardmap.Each(shards, atOnce, func(i int, s *shardmap.Shard) {
		res, err := r.exec(ctx, s.Name, txnrecord.Of(s.Engine).Prepared())
		if err != nil {
			got[i].err = err
			return
		}
		got[i].rows = res.Rows
	})
	byID := map[txid]*leftover{}
	unreached = map[string]error{}
	for i, s := range shards {
		if got[i].err != nil {
			unreached[s.Name] = got[i].err
		}
		for _, row := range got[i].rows {
			g, ok := parseGID(row[0].String, cluster)
			if !ok {
				if id, ok := gidID(row[0].String); ok {
					changes = append(changes, id)
				}
				continue
			}
			l := byID[g.id]
			if l == nil {
				l = &leftover{id: g.id, InDoubt: InDoubt{ID: g.id.String(), Decider: g.coordinating, State: "in doubt"}}
				byID[g.id] = l
				found = append(found, l)
			}
			if micros, err := strconv.ParseInt(row[1].String, 10, 64); err == nil {
				l.Age = max(l.Age, time.Duration(micros)*time.Microsecond)
			}
			l.Shards = append(l.Shards, s.Name)
			l.parts = append(l.parts, leftoverPart{s.Name, row[0].String, row[2].String})
		}
	}
	return found, changes, unreached
}

// exec runs one message on a conversation of its own.
func (r *Recovery) exec(ctx context.Context, shard, sql string) (*engine.Result, error) {
	conn, release, err := r.Connect(ctx, shard)
	if err != nil {
		return nil, onShard(err, shard)
	}
	res, err := engine.ExecContext(ctx, conn, sql)
	release(err != nil && !isAnswer(err))
	if err != nil {
		return res, onShard(err, shard)
	}
	return res, nil
}

// isAnswer reports whether an error is what a shard answered.
func isAnswer(err error) bool {
	var se *sqlstate.Error
	return errors.As(err, &se) && engine.Lost(err) == nil
}

// orphan reports whether a transaction is to be settled: its owner is gone, or
// has given it up, or it is too old to be decided any more.
func (r *Recovery) orphan(l *leftover) bool {
	age := r.Age
	if age == 0 {
		age = orphanAge
	}
	if r.own != nil {
		if mine, active := r.own(l.id); mine {
			return !active || l.Age > age
		}
	}
	owner := l.id.owner()
	for _, m := range r.members {
		if ownerOf(m.ID) == owner {
			l.Router = m.Address
			if l.Router == "" {
				l.Router = m.Host
			}
			return l.Age > age
		}
	}
	return true
}

// Settle looks for transactions that are prepared and settles those whose owner
// does not. It returns them all, and the shards that it could not ask. It may
// run at any time, on several members at once.
//
// Errors: only when the map or the members cannot be read.
func (r Recovery) Settle(ctx context.Context) (found []InDoubt, unreached map[string]error, err error) {
	snap, err := r.Directory.Load(ctx)
	if err != nil {
		return nil, nil, sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the shard map cannot be read")
	}
	left, changes, unreached := r.look(ctx, snap.State().Cluster, snap.Shards())
	if r.changes != nil {
		r.changes(changes)
	}
	if len(left) > 0 {
		// After the look: who has left since is gone, and who has joined since owns
		// none of them.
		if r.members, err = r.Directory.Members(ctx); err != nil {
			return nil, nil, sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the members of the cluster cannot be read")
		}
	}
	var wait sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, l := range left {
		if !r.orphan(l) {
			l.State = "active"
			continue
		}
		if r.DryRun {
			continue
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			r.settle(ctx, snap, l)
		})
	}
	wait.Wait()
	for _, l := range left {
		found = append(found, l.InDoubt)
	}
	return found, unreached, nil
}

// SettleOutside ends what is prepared in a database of the cluster that is no shard of the map, also when its owner lives. The
// owner had an older map when it prepared, and what it has not decided, it cannot decide any more. Connect must know the database
// by its name. SettleOutside returns the transactions that it found, with an Err for those that are prepared still.
//
// Errors: 57P03 when the database cannot be asked.
func (r Recovery) SettleOutside(ctx context.Context, snap *shardmap.Snapshot, s shardmap.Shard) (found []InDoubt, err error) {
	left, _, unreached := r.look(ctx, snap.State().Cluster, []shardmap.Shard{s})
	if err := unreached[s.Name]; err != nil {
		return nil, err
	}
	for _, l := range left {
		r.settle(ctx, snap, l)
		found = append(found, l.InDoubt)
	}
	return found, nil
}

// settle finds the decision, or decides against the transaction, and carries it out.
func (r *Recovery) settle(ctx context.Context, snap *shardmap.Snapshot, l *leftover) {
	if !slices.ContainsFunc(snap.Shards(), func(s shardmap.Shard) bool { return s.Name == l.Decider }) {
		l.Err = sqlstate.New(sqlstate.ObjectNotInState, "transaction %s was decided on shard %s, which is not in the map any more", l.ID, l.Decider).
			WithHint("look on that database whether cleave_internal.transaction has its id, then COMMIT PREPARED or ROLLBACK PREPARED on %s", strings.Join(l.Shards, ", "))
		return
	}
	committed, err := r.resolve(ctx, snap, l.id, l.Decider)
	if err != nil {
		l.Err = err
		return
	}
	verb, state := "ROLLBACK PREPARED ", "rolled back"
	if committed {
		verb, state = "COMMIT PREPARED ", "committed"
	}
	for _, p := range l.parts {
		if err := r.end(ctx, p, verb); err != nil {
			l.Err = err
			return
		}
	}
	l.State = state
}

// end carries the decision out on one shard.
func (r *Recovery) end(ctx context.Context, p leftoverPart, verb string) error {
	sql := verb + executor.QuoteLiteral(p.gid)
	_, err := r.exec(ctx, p.shard, sql)
	if sqlstate.CodeOf(err) == sqlstate.InsufficientPrivilege && p.owner != "" {
		// Only the role that prepared it may: the session had taken another one.
		_, err = r.execAs(ctx, p.shard, p.owner, sql)
	}
	if err == nil || sqlstate.CodeOf(err) == sqlstate.UndefinedObject { // somebody else was faster, and read the same decision
		return nil
	}
	return err
}

func (r *Recovery) execAs(ctx context.Context, shard, role, sql string) (*engine.Result, error) {
	conn, release, err := r.Connect(ctx, shard)
	if err != nil {
		return nil, onShard(err, shard)
	}
	defer release(true) // with another role it is nobody else's
	if _, err := engine.ExecContext(ctx, conn, `SET ROLE "`+strings.ReplaceAll(role, `"`, `""`)+`"`); err != nil {
		return nil, onShard(err, shard)
	}
	res, err := engine.ExecContext(ctx, conn, sql)
	if err != nil {
		return res, onShard(err, shard)
	}
	return res, nil
}

// resolve returns whether a transaction was committed, and if it was not decided,
// makes sure that it never will be: its id is in the coordinating shard's table then, and
// the coordinator's own INSERT fails. If the coordinator's INSERT is under way, this
// one waits for its end.
func (r *Recovery) resolve(ctx context.Context, snap *shardmap.Snapshot, id txid, coordinating string) (committed bool, err error) {
	records := recordsOn(snap, coordinating)
	conn, release, err := r.Connect(ctx, coordinating)
	if err != nil {
		return false, onShard(err, coordinating)
	}
	broken := true
	defer func() { release(broken) }()
	if read := records.Read(id.String()); read != "" {
		// A write has to wait for the transaction that writes to the file, which may
		// itself wait for this one. What is decided is read at once.
		if res, err := engine.ExecContext(ctx, conn, read); err == nil && len(res.Rows) == 1 {
			broken = false
			return res.Rows[0][0].String == "t", nil
		}
	}
	res, err := engine.ExecContext(ctx, conn, records.Resolve(id.String()))
	if sqlstate.CodeOf(err) == sqlstate.UndefinedTable || sqlstate.CodeOf(err) == sqlstate.InvalidSchemaName {
		// Lost with a failover, or restored without it. It must be there before
		// anything is decided against.
		if err = makeTable(ctx, conn, records); err == nil {
			res, err = engine.ExecContext(ctx, conn, records.Resolve(id.String()))
		}
	}
	if err != nil {
		broken = !isAnswer(err)
		return false, onShard(err, coordinating)
	}
	broken = false
	if len(res.Rows) != 1 || res.Rows[0][0].Null {
		return false, sqlstate.New(sqlstate.DataCorrupted, "shard %s has no decision on transaction %s where one was just written", coordinating, id).OnShard(coordinating)
	}
	return res.Rows[0][0].String == "t", nil
}

// recovery is that of this process.
func (t *Transactions) recovery() *Recovery {
	return &Recovery{Directory: t.ex.Directory(), Connect: t.connect, own: func(id txid) (mine, active bool) {
		if id.owner() != t.owner {
			return false, false
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		_, active = t.active[id]
		return true, active
	}}
}

// List returns the transactions over several shards that are being committed by
// this process, and all of which something is prepared on a shard that answers.
// Nothing is settled.
//
// Errors: only when the map or the members cannot be read.
func (t *Transactions) List(ctx context.Context) ([]InDoubt, error) {
	r := t.recovery()
	r.DryRun = true
	found, _, err := r.Settle(ctx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, x := range t.active {
		if !slices.ContainsFunc(found, func(d InDoubt) bool { return d.ID == id.String() }) {
			found = append(found, InDoubt{ID: id.String(), Decider: x.coordinating.Shard, Age: time.Since(x.began), State: "active"})
		}
	}
	return found, nil
}

// connect opens a conversation outside of the shard's pool.
func (t *Transactions) connect(ctx context.Context, shard string) (engine.Conn, func(bool), error) {
	handle, err := t.ex.Shard(shard)
	if err != nil {
		return nil, nil, err
	}
	conn, err := handle.Connect(ctx, housekeeping)
	if err != nil {
		return nil, nil, err
	}
	return conn, func(bool) { _ = conn.Close() }, nil // nothing is lost with it
}

func (t *Transactions) resolve(ctx context.Context, id txid, coordinating string) (bool, error) {
	return t.recovery().resolve(ctx, t.ex.Snapshot(), id, coordinating)
}

// Wake makes Run look at once.
func (t *Transactions) Wake() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Run settles what this process and others leave, and cleans up, until ctx ends.
func (t *Transactions) Run(ctx context.Context) {
	members := 1
	lastClean := time.Now()
	var cleaned *cleaning
	timer := time.NewTimer(sweepEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-t.wake:
		}
		pause := time.Duration(members) * sweepEvery
		limit, stop := context.WithTimeout(ctx, 30*time.Second)
		again := t.sweep(limit)
		if again {
			pause = sweepAgain
		}
		if time.Since(lastClean) > time.Duration(members)*cleanEvery {
			lastClean = time.Now()
			var err error
			if cleaned, err = t.recovery().clean(limit, cleaned, cleanGap); err != nil && ctx.Err() == nil {
				t.log.Warn("records of transactions were not cleaned up", telemetry.KeyError, err)
			}
			if list, err := t.ex.Directory().Members(limit); err == nil {
				members = max(1, len(list))
				if err := t.forgetWaits(limit, list); err != nil && ctx.Err() == nil {
					t.log.Warn("records of transactions that waited were not cleaned up", telemetry.KeyError, err)
				}
			}
		}
		stop()
		timer.Reset(pause)
	}
}

// sweep is one look. again: something is left that can be tried again soon.
func (t *Transactions) sweep(ctx context.Context) (again bool) {
	r := t.recovery()
	r.changes = func(ids []txid) {
		if t.schemaLeft != nil && slices.ContainsFunc(ids, func(id txid) bool { return slices.Contains(t.changes, id) }) {
			t.schemaLeft()
		}
		t.changes = ids
	}
	found, _, err := r.Settle(ctx)
	if err != nil {
		return false // the directory is not there; it says so elsewhere
	}
	doubt := 0
	for _, d := range found {
		switch {
		case d.Err != nil:
			doubt++
			t.log.Warn("a transaction over several shards is in doubt", "transaction", d.ID, "decided on", d.Decider, "prepared on", strings.Join(d.Shards, ", "),
				"age", d.Age.Round(time.Millisecond), telemetry.KeyError, d.Err)
			again = true
		case d.State == "committed" || d.State == "rolled back":
			end := telemetry.Committed
			if d.State == "rolled back" {
				end = telemetry.RolledBack
			}
			t.metrics.Settled(end)
			t.log.Info("a transaction over several shards was left prepared: "+d.State, "transaction", d.ID, "decided on", d.Decider, "prepared on", strings.Join(d.Shards, ", "),
				"age", d.Age.Round(time.Millisecond))
		}
	}
	t.metrics.InDoubt(doubt)
	return again
}

// cleaning is what one round of the clean-up leaves for the next: what was
// finished everywhere then may go now.
type cleaning struct {
	at     time.Time
	before map[string]string // by shard: its clock before the look
	ids    []string          // prepared somewhere
	known  []string          // shards that were asked
}

// clean removes records that nobody needs any more from all shards: those of which
// no part was prepared anywhere in the last round, gap ago at least. A record that
// names a shard which could not be asked then stays: something may be prepared there. One that names
// a shard which is not in the map any more stays for a day. It returns the state for the next round.
func (r *Recovery) clean(ctx context.Context, last *cleaning, gap time.Duration) (*cleaning, error) {
	snap, err := r.Directory.Load(ctx)
	if err != nil {
		return nil, err
	}
	var errs []error
	if last != nil && time.Since(last.at) < gap {
		return last, nil
	}
	if last != nil {
		var unsure []string
		for _, s := range snap.Shards() {
			if !slices.Contains(last.known, s.Name) {
				unsure = append(unsure, s.Name)
			}
		}
		var mu sync.Mutex
		shardmap.Each(snap.Shards(), atOnce, func(_ int, s *shardmap.Shard) {
			before := last.before[s.Name]
			if before == "" {
				return
			}
			err := txnrecord.Of(s.Engine).Clean(func(sql string) (*engine.Result, error) { return r.exec(ctx, s.Name, sql) },
				txnrecord.Cleaning{Before: before, IDs: last.ids, Known: last.known, Unsure: unsure, Decided: prepareMax, Against: keepRolledBack})
			if err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	// In this order: what was written a minute before the clock was read was
	// prepared everywhere before the look; so it is finished, or the look sees it.
	next := &cleaning{before: map[string]string{}}
	var mu sync.Mutex
	shardmap.Each(snap.Shards(), atOnce, func(_ int, s *shardmap.Shard) {
		res, err := r.exec(ctx, s.Name, txnrecord.Of(s.Engine).Clock())
		if err == nil && len(res.Rows) == 1 {
			mu.Lock()
			next.before[s.Name] = res.Rows[0][0].String
			mu.Unlock()
		}
	})
	left, changes, unreached := r.look(ctx, snap.State().Cluster, snap.Shards())
	next.at = time.Now()
	for _, id := range changes {
		next.ids = append(next.ids, id.String())
	}
	for _, l := range left {
		next.ids = append(next.ids, l.ID)
	}
	for _, s := range snap.Shards() {
		if unreached[s.Name] == nil {
			next.known = append(next.known, s.Name)
		}
	}
	return next, errors.Join(errs...)
}
