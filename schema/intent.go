package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// IntentPrefix begins the keys of the records of intents.
const IntentPrefix = "intent/"

// intent is what the directory keeps of a statement that no transaction can hold (CREATE INDEX CONCURRENTLY), from before it
// begins until it has ended everywhere: when its process dies, somebody else takes it away again, or finishes it.
//
//	begun ──each shard──▶ done on all ──the map's history──▶ forgotten
//	  │ dead or given up       │ the same
//	  ▼                        ▼
//	taken over: an index that is being made goes again; one that is on all shards is written into the history;
//	            a DROP INDEX is carried out on all; what REINDEX leaves goes
//
// The process that takes it over writes the record, or the history under the change's id, by compare-and-set first. A process
// that is only slow finds that before its next shard, and cannot write the history any more.
type intent struct {
	ID   string `json:"id"` // of the change
	Op   string `json:"op"`
	Text string `json:"text"`
	// Elsewhere is what shards other than the default shard receive, "" if the same.
	Elsewhere string `json:"elsewhere,omitempty"`
	AllShards bool   `json:"all_shards,omitempty"`
	// Schema and Index are those of the index that is made, Had the shards that have a relation of that name already.
	Schema string   `json:"schema,omitempty"`
	Index  string   `json:"index,omitempty"`
	Had    []string `json:"had,omitempty"`
	// Member is the id of the process, Given says that it does nothing more about it. Without a member it is given
	// up when it is old.
	Member string    `json:"member,omitempty"`
	Given  bool      `json:"given,omitempty"`
	Began  time.Time `json:"began"`
	// Taken is when it was last taken over: who did it is at work on it for a while.
	Taken time.Time `json:"taken,omitzero"`
	// What the history will say; Ledger is "" for what it says nothing of.
	Actor  string   `json:"actor"`
	Why    string   `json:"why"`
	Tables []string `json:"tables,omitempty"`
	Ledger string   `json:"ledger,omitempty"`

	revision uint64
}

func (i *intent) key() string { return IntentPrefix + i.ID }

// what names it for people.
func (i *intent) what() string { return "change " + i.ID + " (" + clip(i.Text) + ")" }

// application is the name under which a shard lists the conversation that runs the statement.
func (i *intent) application() string { return "cleave_ddl_" + i.ID }

// text is what a shard receives.
func (i *intent) text(def bool) string {
	if !def && i.Elsewhere != "" {
		return i.Elsewhere
	}
	return i.Text
}

func (i *intent) put(ctx context.Context, dir shardmap.Directory) error {
	value, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("schema: intent: %w", err)
	}
	revision, err := dir.PutRecord(ctx, i.key(), value, i.revision)
	if err == nil {
		i.revision = revision
	}
	return err
}

func (i *intent) forget(ctx context.Context, dir shardmap.Directory) error {
	err := dir.DeleteRecord(ctx, i.key(), i.revision)
	if errors.Is(err, shardmap.ErrConflict) {
		return nil // somebody else does it
	}
	return err
}

// intend writes down what the statement is about to do on the shards; nil for one that leaves nothing behind.
func (t *Tx) intend(ctx context.Context, st *plan.Statement, names []string) (*intent, error) {
	d := st.DDL
	i := &intent{ID: t.id, Op: d.Op, Text: st.Text, Elsewhere: d.Elsewhere, AllShards: d.AllShards, Member: t.opts.Member, Began: time.Now().UTC()}
	switch {
	case d.Op == "create index" && d.Index != nil && d.Index.Schema != "":
		i.Schema, i.Index = d.Index.Schema, d.Index.Name
		for _, name := range names {
			is, err := i.look(ctx, t.opts.Connect, name)
			if err != nil {
				return nil, onShard(err, name)
			}
			if is == indexThere {
				i.Had = append(i.Had, name)
			}
		}
	case d.Op == "drop index" || d.Op == "reindex":
	default:
		return nil, nil
	}
	if err := i.only(ctx, t.opts.Directory); err != nil {
		return nil, err
	}
	c, err := t.entry(t.id, t.opts.Actor, t.opts.Why, 0)
	if err != nil {
		return nil, err
	}
	i.Actor, i.Why, i.Tables, i.Ledger = c.By, c.Why, c.Tables, c.Statement
	if err := i.put(ctx, t.opts.Directory); err != nil {
		return nil, directoryError(err)
	}
	return i, nil
}

// only fails if there is another intent of the same index: it would take away, or write down, what this one makes.
func (i *intent) only(ctx context.Context, dir shardmap.Directory) error {
	others, err := dir.Records(ctx, IntentPrefix, "", historyPage)
	if err != nil {
		return directoryError(err)
	}
	for _, r := range others {
		o := intent{}
		if json.Unmarshal(r.Value, &o) == nil && i.Index != "" && o.Index == i.Index && o.Schema == i.Schema {
			return sqlstate.New(sqlstate.ObjectInUse, "index %s is being made, or taken away again, by %s", qualified(i.Schema, i.Index), o.what()).
				WithHint("wait a moment, and run it again; see: cleave doctor")
		}
	}
	return nil
}

// mine reports whether nobody has taken the statement over.
func (i *intent) mine(ctx context.Context, dir shardmap.Directory) error {
	if i == nil {
		return nil
	}
	r, err := dir.Record(ctx, i.key())
	if err == nil && r.Revision == i.revision {
		return nil
	}
	if err != nil && !errors.Is(err, shardmap.ErrNotFound) {
		return directoryError(err)
	}
	e := sqlstate.New(sqlstate.SerializationFailure, "the statement was taken over by another router, since this one had lost its lease").
		WithHint("look what has become of it, and run it again")
	e.Retry = sqlstate.RetryTransaction
	return e
}

// abandon leaves the rest to the process that looks for intents next. Errors are of no use: when the process ends it is seen to be dead.
func (i *intent) abandon(ctx context.Context, dir shardmap.Directory) {
	if i == nil || i.Given {
		return
	}
	i.Given = true
	_ = i.put(ctx, dir)
}

// The states of an index on a shard.
const (
	indexNone = iota
	indexInvalid
	indexThere // or another relation of that name
)

// look says what the shard has of the index.
func (i *intent) look(ctx context.Context, connect Connect, shard string) (int, error) {
	conn, release, err := connect(ctx, shard)
	if err != nil {
		return 0, err
	}
	where := " FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = " + quote(i.Schema) + " AND c.relname = " + quote(i.Index)
	res, _, err := run(ctx, conn, "SELECT NOT EXISTS (SELECT 1 FROM pg_catalog.pg_index AS i WHERE i.indexrelid = c.oid AND NOT i.indisvalid)"+where)
	if code := sqlstate.CodeOf(err); code == sqlstate.FeatureNotSupported || code == sqlstate.UndefinedTable || code == sqlstate.UndefinedColumn {
		res, _, err = run(ctx, conn, "SELECT true"+where) // an engine without indexes that are not valid
	}
	release(lost(err))
	switch {
	case err != nil:
		return 0, err
	case len(res.Rows) == 0:
		return indexNone, nil
	case res.Rows[0][0].String == "t":
		return indexThere, nil
	}
	return indexInvalid, nil
}

// takenMax is for how long nobody else takes a statement over that was just taken over.
const takenMax = 20 * time.Second

// FinishIntents takes away or finishes what statements outside of transactions have left whose process died or gave up. It
// may be run at any time, by several processes at once; what cannot be ended yet is a finding, and is left for the next time.
//
// Errors: only when the directory cannot be read.
func FinishIntents(ctx context.Context, o RecoverOptions) ([]Finding, error) {
	o = o.withDefaults()
	var out []Finding
	var members []shardmap.MemberState
	asked, after := false, ""
	for {
		page, err := o.Directory.Records(ctx, IntentPrefix, after, historyPage)
		if err != nil {
			return nil, directoryError(err)
		}
		for _, r := range page {
			after = r.Key
			i := &intent{}
			if err := json.Unmarshal(r.Value, i); err != nil {
				return nil, sqlstate.Wrap(err, sqlstate.DataCorrupted, "record %s of the directory cannot be read", r.Key)
			}
			i.revision = r.Revision
			if !asked {
				// After the record: who has left since is gone.
				if members, err = o.Directory.Members(ctx); err != nil {
					return nil, directoryError(err)
				}
				asked = true
			}
			if f, dead := o.intent(ctx, i, members); dead {
				out = append(out, f)
			}
		}
		if len(page) < historyPage {
			return out, nil
		}
	}
}

// intent settles one whose process is at it no more.
func (o RecoverOptions) intent(ctx context.Context, i *intent, members []shardmap.MemberState) (f Finding, dead bool) {
	switch {
	case time.Since(i.Taken) < takenMax:
		return f, false
	case i.Given:
	case i.Member == "":
		if time.Since(i.Began) < o.Age {
			return f, false
		}
	case slices.ContainsFunc(members, func(m shardmap.MemberState) bool { return m.ID == i.Member }):
		return f, false
	}
	why := "its router is no member of the cluster any more"
	switch {
	case i.Given:
		why = "its router gave up"
	case i.Member == "":
		why = "it began " + time.Since(i.Began).Round(time.Second).String() + " ago"
	}
	f = Finding{Level: levelWarning, What: i.what() + " stopped half way: " + why, Next: repairCommand}
	if len(i.Tables) == 1 {
		f.Table = i.Tables[0]
	}
	if o.DryRun {
		return f, true
	}
	done, err := o.settleIntent(ctx, i)
	switch {
	case errors.Is(err, shardmap.ErrConflict):
		return f, false // somebody else is at it
	case err != nil:
		own := sqlstate.As(err)
		f.What += ", and cannot be ended: " + own.Message
		f.Shard = own.Shard
		// The next one need not wait.
		i.Taken = time.Time{}
		_ = i.put(ctx, o.Directory)
		return f, true
	}
	f.Done, f.Next = done, ""
	return f, true
}

// settleIntent takes a statement over, and ends it: what was done says done. Errors: ErrConflict when somebody else has; a
// shard's own, with what is left for the next time; 55006 while a shard is at work on it.
func (o RecoverOptions) settleIntent(ctx context.Context, i *intent) (done string, err error) {
	i.Given, i.Taken = true, time.Now().UTC()
	if err := i.put(ctx, o.Directory); err != nil {
		return "", err
	}
	snap, err := o.Directory.Load(ctx)
	if err != nil {
		return "", directoryError(err)
	}
	shards := []*shardmap.Shard{}
	for s := range snap.Shards() {
		if sh := &snap.Shards()[s]; i.AllShards || sh.Name == snap.State().DefaultShard {
			shards = append(shards, sh)
		}
	}
	// Its conversations first: what they still do would come after.
	busy := ""
	for _, sh := range shards {
		at, err := o.stopIntent(ctx, i, sh)
		if err != nil {
			return "", onShard(err, sh.Name)
		}
		if at {
			busy = sh.Name
		}
	}
	if busy != "" {
		return "", sqlstate.New(sqlstate.ObjectInUse, "shard %s is still at work on it", busy).OnShard(busy)
	}
	switch entry, err := o.Directory.Find(ctx, i.ID); {
	case err == nil && entry.Op != OpRolledBack:
		return "it is in the history: it was done", i.forget(ctx, o.Directory)
	case err != nil && !errors.Is(err, shardmap.ErrNotFound):
		return "", directoryError(err)
	case err == nil && i.Op == "create index":
		return o.takeAway(ctx, i, shards)
	}
	if i.Op == "create index" {
		for _, sh := range shards {
			is, err := i.look(ctx, o.Connect, sh.Name)
			if err != nil {
				return "", onShard(err, sh.Name)
			}
			if is != indexThere {
				return o.takeAway(ctx, i, shards)
			}
		}
	}
	for _, sh := range shards {
		if err := o.finishOn(ctx, i, sh, sh.Name == snap.State().DefaultShard); err != nil {
			return "", onShard(err, sh.Name)
		}
	}
	if i.Ledger != "" {
		if err := o.decideIntent(ctx, i, snap); err != nil {
			return "", err
		}
	}
	return map[string]string{"create index": "finished: every shard has the index", "drop index": "finished on every shard", "reindex": "what was left of it is dropped"}[i.Op], i.forget(ctx, o.Directory)
}

// stopIntent ends the conversation of a dead process on a shard, and reports whether it is still there. A DROP is let be.
func (o RecoverOptions) stopIntent(ctx context.Context, i *intent, sh *shardmap.Shard) (busy bool, err error) {
	if !sh.Can().ConcurrentIndexes {
		return false, nil // its statements ended with the process
	}
	conn, release, err := o.Connect(ctx, sh.Name)
	if err != nil {
		return false, err
	}
	defer func() { release(lost(err)) }()
	there := " FROM pg_catalog.pg_stat_activity WHERE datname = pg_catalog.current_database() AND pid <> pg_catalog.pg_backend_pid() AND application_name = " + quote(i.application())
	if i.Op != "drop index" {
		if _, _, err := run(ctx, conn, "SELECT pg_catalog.pg_terminate_backend(pid)"+there); err != nil && sqlstate.CodeOf(err) != sqlstate.InsufficientPrivilege {
			return false, err
		}
	}
	for try := 0; ; try++ {
		res, _, err := run(ctx, conn, "SELECT 1"+there)
		if err != nil || len(res.Rows) == 0 || try == finishTries {
			return err == nil && len(res.Rows) > 0, err
		}
		pause(ctx, finishPause)
	}
}

// takeAway drops an index where the statement has made it.
func (o RecoverOptions) takeAway(ctx context.Context, i *intent, shards []*shardmap.Shard) (string, error) {
	committed, err := resolve(ctx, o.Directory, i.ID, o.Actor)
	if err != nil {
		return "", err
	}
	if committed {
		return "it is in the history: it was done", i.forget(ctx, o.Directory)
	}
	name := ident(i.Schema) + "." + ident(i.Index)
	for _, sh := range shards {
		if slices.Contains(i.Had, sh.Name) {
			continue
		}
		err := o.alone(ctx, sh, func(conn engine.Conn) error {
			drop := "DROP INDEX IF EXISTS " + name
			if sh.Can().ConcurrentIndexes {
				drop = "DROP INDEX CONCURRENTLY IF EXISTS " + name
			}
			_, _, err := run(ctx, conn, drop)
			return err
		})
		if err != nil {
			return "", onShard(err, sh.Name)
		}
	}
	return "taken away again on every shard", i.forget(ctx, o.Directory)
}

// alone runs f with a conversation of its own whose waits for locks are bounded.
func (o RecoverOptions) alone(ctx context.Context, sh *shardmap.Shard, f func(conn engine.Conn) error) error {
	conn, release, err := o.Connect(ctx, sh.Name)
	if err != nil {
		return err
	}
	defer release(true) // its settings stay
	if sh.Can().Locks {
		if _, _, err := run(ctx, conn, fmt.Sprintf("SET lock_timeout = %d", o.LockTimeout.Milliseconds())); err != nil {
			return err
		}
	}
	return f(conn)
}

// leftSQL lists what CREATE INDEX, DROP INDEX and REINDEX CONCURRENTLY leave that do not come to their end. One that is at work
// holds a lock on the index or its table.
const leftSQL = "SELECT n.nspname, c.relname FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace " +
	"WHERE NOT i.indisvalid AND c.relkind = 'i' AND n.nspname !~ '^pg_' AND NOT EXISTS (SELECT FROM pg_catalog.pg_locks AS l " +
	"WHERE l.relation IN (i.indexrelid, i.indrelid) AND l.mode = 'ShareUpdateExclusiveLock' AND l.granted AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()))"

// rebuilt are the names of indexes that REINDEX CONCURRENTLY makes beside the one that it takes the place of.
const rebuilt = " AND c.relname ~ '_cc(new|old)[0-9]*$'"

// finishOn does on one shard what is left to do.
func (o RecoverOptions) finishOn(ctx context.Context, i *intent, sh *shardmap.Shard, def bool) error {
	return o.alone(ctx, sh, func(conn engine.Conn) error {
		switch {
		case i.Op == "drop index":
			_, _, err := run(ctx, conn, i.text(def))
			if err != nil && sqlstate.CodeOf(err) != sqlstate.UndefinedObject {
				return err
			}
		case i.Op == "reindex" && sh.Can().ConcurrentIndexes:
			res, _, err := run(ctx, conn, leftSQL+rebuilt)
			if err != nil {
				return err
			}
			for _, row := range res.Rows {
				if _, _, err := run(ctx, conn, "DROP INDEX CONCURRENTLY IF EXISTS "+ident(row[0].String)+"."+ident(row[1].String)); err != nil {
					return err
				}
			}
		}
		if i.Ledger == "" {
			return nil
		}
		return note(ctx, conn, i.ID)
	})
}

// decideIntent writes into the history what all shards have done.
func (o RecoverOptions) decideIntent(ctx context.Context, i *intent, snap *shardmap.Snapshot) error {
	for range decideTries {
		cur, err := o.Directory.Load(ctx)
		if err != nil {
			return directoryError(err)
		}
		if i.AllShards && !slices.Equal(shardSet(snap), shardSet(cur)) {
			return sqlstate.New(sqlstate.SerializationFailure, "the shards are others now")
		}
		_, err = o.Directory.Update(ctx, shardmap.Change{Expect: cur.Version(), By: i.Actor, Why: i.Why, Op: OpChange, ID: i.ID,
			Statement: i.Ledger, Tables: i.Tables, AllShards: i.AllShards}, cur.State().Clone())
		switch {
		case err == nil || errors.Is(err, shardmap.ErrDuplicateID):
			return nil
		case !errors.Is(err, shardmap.ErrConflict):
			return directoryError(err)
		}
	}
	return directoryError(fmt.Errorf("schema: %w", shardmap.ErrConflict))
}

// InvalidIndexes finds the indexes of a shard that are not valid although nobody is at work on them, and drops them.
func InvalidIndexes(ctx context.Context, o RecoverOptions, sh *shardmap.Shard) []Finding {
	if !sh.Can().ConcurrentIndexes {
		return nil
	}
	o = o.withDefaults()
	var out []Finding
	err := o.alone(ctx, sh, func(conn engine.Conn) error {
		res, _, err := run(ctx, conn, leftSQL)
		if err != nil {
			return err
		}
		for _, row := range res.Rows {
			name := ident(row[0].String) + "." + ident(row[1].String)
			f := Finding{Level: levelWarning, Shard: sh.Name, What: "index " + name + " on " + sh.Name + " is not valid: making it was interrupted", Next: repairCommand}
			if !o.DryRun {
				if _, _, err := run(ctx, conn, "DROP INDEX CONCURRENTLY IF EXISTS "+name); err != nil {
					f = trouble(sh.Name, err, f.What)
				} else {
					f.Done, f.Next = "dropped", ""
				}
			}
			out = append(out, f)
		}
		return nil
	})
	if err != nil {
		out = append(out, trouble(sh.Name, onShard(err, sh.Name), "indexes that are not valid"))
	}
	return out
}

// halfMade ends a statement that failed on one of the shards: an index that it has made goes again on all, what else it has
// done stays and is finished by itself. It completes the error.
func (i *intent) halfMade(ctx context.Context, o RecoverOptions, err error, names []string, at int) error {
	if errors.Is(err, errCrash) {
		return err
	}
	own := sqlstate.As(err)
	nothing := at == 0 && !lost(err) && !passing(own.Code)
	var end error
	if i != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishMax)
		defer cancel()
		if nothing && i.Op == "drop index" {
			_ = i.forget(ctx, o.Directory) // it is as it was
			return err
		}
		if _, end = o.withDefaults().settleIntent(ctx, i); end == nil && i.Op == "create index" {
			return err
		}
		if end != nil && !errors.Is(end, shardmap.ErrConflict) {
			own.Detail = strings.TrimSpace(own.Detail + " What it has done is taken away, or finished, by a router later: " + sqlstate.As(end).Message + ".")
			own.Hint = "wait until that is done; see: cleave doctor"
			return own
		}
	}
	if at > 0 {
		own.Detail = strings.TrimSpace(own.Detail + " Done on " + strings.Join(names[:at], ", ") + "; not done on " + strings.Join(names[at:], ", ") + ".")
		own.Hint = "run it again"
	}
	return own
}
