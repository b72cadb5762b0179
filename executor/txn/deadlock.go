package txn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// A deadlock over several shards is a ring of transactions of which each shard
// sees a part only. A transaction over several shards that waits for longer than
// cleave.deadlock_timeout tells the others, by a record in the directory, which processes on the
// shards' servers are its own. With that, who waits for whom is read off all
// shards that such transactions are on. A ring that stands in two looks, the second
// begun after the first ended, with each wait begun at the same moment as before,
// stood in between: locks are held until the end of a transaction. The youngest
// transaction in it gives way. What does not wait pays nothing.

const (
	// fileLook is how long a writer of one SQLite file waits for another before it looks, if cleave.deadlock_timeout is not
	// shorter: all who write to these files wait with it. fileLookMax bounds the pauses between its looks.
	fileLook    = 50 * time.Millisecond
	fileLookMax = 400 * time.Millisecond
	// waitsMax bounds the transactions that are compared.
	waitsMax    = 1000
	waitsPrefix = "waits/"
)

// waiting is the record of a transaction that waits.
type waiting struct {
	Owner    string     `json:"owner"` // of the transaction, see ownerOf
	Backends []backend  `json:"backends,omitempty"`
	Files    *fileWaits `json:"files,omitempty"`
	// Passive: it is a schema change, which does not look for rings itself and gives way to nobody.
	Passive bool `json:"passive,omitempty"`
}

// fileWaits say which write locks of SQLite shards a transaction has, and for which it waits.
type fileWaits struct {
	Has   []string `json:"has"`
	Waits []string `json:"waits"` // one, or those that the cutover needs for which it waits
	Since int64    `json:"since"` // of the wait, in Unix nanoseconds
	Said  int      `json:"said"`  // how often this was said
	// Passive: it waits for a cutover, and does not look for rings itself. It gives way to nobody: another one in the ring does.
	Passive bool `json:"passive,omitempty"`
}

// edge names the wait of a transaction for files.
func (f *fileWaits) edge(id string) string {
	return strings.Join(f.Waits, ",") + " " + id + " " + strconv.FormatInt(f.Since, 10)
}

type backend struct {
	Shard string `json:"shard"`
	PID   uint32 `json:"pid"`
}

func (b backend) String() string { return b.Shard + "/" + strconv.FormatUint(uint64(b.PID), 10) }

// Statement is one that is run on several shards, as a watch of its locks sees it. Its methods are called by the watch's goroutine.
type Statement interface {
	// EachConn calls f with the conversations that take part, while none of them is given back.
	EachConn(f func(c *executor.Conn))
	// Passed reports whether the client has got rows of it.
	Passed() bool
	// Interrupt stops it for the reason.
	Interrupt(ctx context.Context, reason *sqlstate.Error) error
}

// LockWatch looks at the locks of one statement for as long as it runs.
type LockWatch struct {
	t    *Transactions
	of   Statement
	id   string        // of the transaction, see WaitID
	wait time.Duration // cleave.deadlock_timeout

	timer *time.Timer
	mu    sync.Mutex
	over  bool
	stop  context.CancelFunc
}

// WaitID is a new name under which a transaction says what it waits for. The name of a younger one is greater.
func (t *Transactions) WaitID() string {
	return fmt.Sprintf("%016x-%s", time.Now().UnixNano(), t.newID())
}

// WatchLocks begins to watch a statement of transaction id that begins now; End has to follow. yields: it is a read that can be run again.
func (t *Transactions) WatchLocks(of Statement, id string, wait time.Duration, yields bool) *LockWatch {
	ctx, stop := context.WithCancel(context.Background())
	w := &LockWatch{t: t, of: of, id: id, wait: wait, stop: stop}
	if yields {
		w.timer = time.AfterFunc(min(wait, yieldLook), func() {
			if w.watchRead(ctx) {
				w.watch(ctx)
			}
		})
		return w
	}
	w.timer = time.AfterFunc(min(wait, fileLook), func() { w.watch(ctx) })
	return w
}

// End ends the watch; afterwards it interrupts nothing.
func (w *LockWatch) End() {
	if w == nil {
		return
	}
	w.timer.Stop()
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

// backends are the statement's processes on the shards' servers.
func (w *LockWatch) backends() []backend {
	var all []backend
	w.of.EachConn(func(c *executor.Conn) {
		if pid := c.PID(); pid != 0 && !c.OnReplica() {
			all = append(all, backend{c.Shard(), pid})
		}
	})
	slices.SortFunc(all, func(a, b backend) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// files is what the statement says of SQLite files while it waits for one and has another, else nil.
func (w *LockWatch) files() *fileWaits {
	f := &fileWaits{}
	w.of.EachConn(func(c *executor.Conn) {
		switch has, waits := c.WriteLock(); {
		case has:
			f.Has = append(f.Has, c.Shard())
		case !waits.IsZero():
			f.Waits, f.Since = []string{c.Shard()}, waits.UnixNano()
		}
	})
	if len(f.Has) == 0 || len(f.Waits) == 0 {
		return nil
	}
	slices.Sort(f.Has)
	return f
}

// teller keeps the record of a transaction that waits.
type teller struct {
	dir      shardmap.Directory
	key      string
	revision uint64
	record   waiting
	said     int
}

// tell says what is so now: of files each time, else if it is new.
func (t *teller) tell(ctx context.Context, now waiting) error {
	if now.Files != nil {
		f := *now.Files
		f.Said = t.said + 1
		now.Files = &f
	} else if t.revision != 0 && t.record.Files == nil && slices.Equal(now.Backends, t.record.Backends) {
		return nil
	}
	value, err := json.Marshal(now)
	if err != nil {
		return err
	}
	// It is not given up with the statement: what was written has to be known, to be deleted.
	limit, stop := context.WithTimeout(context.WithoutCancel(ctx), resolveMax)
	defer stop()
	revision, err := t.dir.PutRecord(limit, t.key, value, t.revision)
	if err != nil {
		return err
	}
	t.revision, t.record = revision, now
	if now.Files != nil {
		t.said = now.Files.Said
	}
	return nil
}

// watch looks until ctx ends or the transaction has to give way, with a pause of
// wait between two looks, or of less while it waits for a file.
func (w *LockWatch) watch(ctx context.Context) {
	t, wait, id := w.t, w.wait, w.id
	begun := time.Now().Add(-min(wait, fileLook))
	says := &teller{dir: t.ex.Directory(), key: waitsPrefix + id}
	defer t.untell(ctx, says)
	tell := func() bool {
		now := waiting{Owner: fmt.Sprintf("%x", t.owner), Backends: w.backends(), Files: w.files()}
		if now.Files == nil && says.revision == 0 && (len(now.Backends) < 2 || time.Since(begun) < wait) {
			return false
		}
		return says.tell(ctx, now) == nil // if not, it is there at the next look, or the statement has ended
	}
	for pause := min(wait, fileLook); ctx.Err() == nil; sleep(ctx, pause) {
		told := tell()
		if pause = min(2*pause, fileLookMax); says.revision != 0 && says.record.Files == nil {
			pause = wait
		} else if left := wait - time.Since(begun); left > 0 {
			pause = min(pause, left)
		}
		if !told {
			continue
		}
		if says.record.Files == nil && t.partFailed(ctx, says.record.Backends) {
			w.interrupt(ctx, ErrPartFailed)
			return
		}
		ring, err := t.ring(ctx, id, nil)
		if err == nil && ring != nil && ring.local {
			pause = fileLook // its victim, if it is this one, gives way on the other shards before these have looked
		}
		if err != nil || !ring.victim(id) {
			continue
		}
		again, err := t.ring(ctx, id, ring.edges)
		// The others in it say what they wait for at their next looks.
		for end := time.Now().Add(2 * max(wait, fileLookMax)); ring.files && err == nil && !again.victim(id) && ctx.Err() == nil && time.Now().Before(end); {
			sleep(ctx, fileLook/2)
			if tell() {
				again, err = t.ring(ctx, id, ring.edges)
			}
		}
		if err != nil || !again.victim(id) || ctx.Err() != nil {
			continue
		}
		e := sqlstate.New(sqlstate.DeadlockDetected, "deadlock detected over several shards").
			WithDetail("Each of %d transactions waits for another one: %s.", len(ring.members), strings.Join(ring.said, "; ")).
			WithHint("nothing was committed: run the transaction again; transactions that lock rows in the same order of keys do not wait for each other in a ring")
		e.Retry = sqlstate.RetryTransaction
		if w.interrupt(ctx, e) {
			t.metrics.Deadlock()
		}
		return
	}
}

// interrupt stops the statement for the reason, unless it is over.
func (w *LockWatch) interrupt(ctx context.Context, reason *sqlstate.Error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return false
	}
	limit, stop := context.WithTimeout(context.WithoutCancel(ctx), resolveMax)
	defer stop()
	_ = w.of.Interrupt(limit, reason) // a shard that the word does not reach is lost by its deadline
	return true
}

// ErrPartFailed stops a statement of which one shard's part has failed while another's waits, so that nobody waits for it in
// turn; what the client gets is the error of the part.
var ErrPartFailed = sqlstate.New(sqlstate.InternalError, "the statement has failed on another shard")

// partFailed reports whether one of a transaction's processes has failed.
func (t *Transactions) partFailed(ctx context.Context, backends []backend) bool {
	for at := 0; at < len(backends); {
		shard, pids := backends[at].Shard, ""
		for ; at < len(backends) && backends[at].Shard == shard; at++ {
			pids += "," + strconv.FormatUint(uint64(backends[at].PID), 10)
		}
		if !t.can(shard).Waits {
			continue
		}
		res, err := t.recovery().exec(ctx, shard, "SELECT 1 FROM pg_catalog.pg_stat_activity WHERE state = 'idle in transaction (aborted)' AND pid IN ("+pids[1:]+")")
		if err == nil && len(res.Rows) > 0 {
			return true
		}
	}
	return false
}

// AwaitsCutover tells the others, until ctx ends, that a transaction that has the write locks of some SQLite shards waits
// for a cutover, which in turn needs those of others. Who has one of these, and waits for one of the former, waits in a ring with it.
func (t *Transactions) AwaitsCutover(ctx context.Context, has, needs []string) {
	says := &teller{dir: t.ex.Directory(), key: waitsPrefix + t.WaitID()}
	defer t.untell(ctx, says)
	now := waiting{Owner: fmt.Sprintf("%x", t.owner), Files: &fileWaits{Has: has, Waits: needs, Since: time.Now().UnixNano(), Passive: true}}
	for pause := fileLook; sleep(ctx, pause); pause = min(2*pause, fileLookMax) {
		_ = says.tell(ctx, now) // if not now, at the next look
	}
}

// untell deletes the record.
func (t *Transactions) untell(ctx context.Context, says *teller) {
	if says.revision == 0 {
		return
	}
	limit, stop := context.WithTimeout(context.WithoutCancel(ctx), resolveMax)
	defer stop()
	if err := says.dir.DeleteRecord(limit, says.key, says.revision); err != nil && !errors.Is(err, shardmap.ErrNotFound) {
		t.log.Warn("the record of a waiting transaction was not deleted", telemetry.KeyError, err)
	}
}

// ring is a set of transactions that all wait for each other.
type ring struct {
	members []string       // transactions over several shards in it, by id
	active  []string       // of these, who may give way
	said    []string       // for people
	edges   map[string]int // the waits that were seen, and how often those for files were said
	files   bool           // some of the waits are for SQLite files
	local   bool           // some transactions wait for each other on one shard
}

// victim reports whether the transaction gives way: the youngest one.
func (r *ring) victim(id string) bool {
	return r != nil && len(r.members) > 1 && len(r.active) > 0 && slices.Max(r.active) == id
}

const locksSQL = "SELECT l.pid, b.pid, l.waitstart::text FROM pg_catalog.pg_locks AS l, pg_catalog.unnest(pg_catalog.pg_blocking_pids(l.pid)) AS b(pid) WHERE NOT l.granted"

// ring returns the ring that a transaction is in, nil if there is none. known, if it
// is not nil, are the only waits that count, those for files if they were said again.
func (t *Transactions) ring(ctx context.Context, id string, known map[string]int) (*ring, error) {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	records, err := t.ex.Directory().Records(ctx, waitsPrefix, "", waitsMax)
	if err != nil {
		return nil, err
	}
	owner := map[string]string{} // process -> transaction
	on := map[string]bool{}
	waits := map[string]*fileWaits{}
	passive := map[string]bool{}
	writer := map[string][]string{} // file -> transactions; more than one while a record is old
	for _, r := range records {
		var w waiting
		if json.Unmarshal(r.Value, &w) != nil {
			continue // of another version of this program
		}
		tx := strings.TrimPrefix(r.Key, waitsPrefix)
		for _, b := range w.Backends {
			owner[b.String()] = tx
			on[b.Shard] = true
		}
		passive[tx] = w.Passive || w.Files != nil && w.Files.Passive
		if w.Files != nil {
			waits[tx] = w.Files
			for _, f := range w.Files.Has {
				writer[f] = append(writer[f], tx)
			}
		}
	}
	var shards []shardmap.Shard
	for _, s := range t.ex.Snapshot().Shards() {
		if on[s.Name] && s.Can().Waits {
			shards = append(shards, s)
		}
	}
	rows := make([][][]engine.Text, len(shards))
	errs := make([]error, len(shards))
	r := t.recovery()
	shardmap.Each(shards, atOnce, func(i int, s *shardmap.Shard) {
		res, err := r.exec(ctx, s.Name, locksSQL)
		if errs[i] = err; err == nil {
			rows[i] = res.Rows
		}
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	node := func(shard, pid string) string {
		if tx, ok := owner[shard+"/"+pid]; ok {
			return tx
		}
		return shard + "/" + pid // a transaction on one shard
	}
	next := map[string][]string{}
	edges := map[string]int{}
	said := map[[2]string]string{}
	for i, s := range shards {
		local := map[string][]string{}
		for _, row := range rows[i] {
			local[row[0].String] = append(local[row[0].String], row[1].String)
		}
		for pid := range local {
			if reach(local, pid)[pid] {
				return &ring{local: true}, nil // the shard itself sees it, and ends one of its members: another look tells what is left
			}
		}
		for _, row := range rows[i] {
			key := s.Name + " " + row[0].String + " " + row[1].String + " " + row[2].String
			if _, ok := known[key]; row[1].String == "0" || known != nil && !ok {
				continue // prepared transactions are ended by their router or by recovery
			}
			edges[key] = 0
			a, b := node(s.Name, row[0].String), node(s.Name, row[1].String)
			next[a] = append(next[a], b)
			said[[2]string{a, b}] = fmt.Sprintf("process %s waits for process %s on %s", row[0].String, row[1].String, s.Name)
		}
	}
	for tx, f := range waits {
		key := f.edge(tx)
		if n, ok := known[key]; known != nil && (!ok || f.Said <= n) {
			continue
		}
		edges[key] = f.Said
		for _, shard := range f.Waits {
			for _, b := range writer[shard] {
				next[tx] = append(next[tx], b)
				said[[2]string{tx, b}] = "a writer of " + strings.Join(f.Has, ", ") + " waits for the file of " + shard
			}
		}
	}
	from, to := reach(next, id), reach(reverse(next), id)
	out := &ring{edges: edges}
	for n := range from {
		if to[n] && !strings.Contains(n, "/") {
			out.members = append(out.members, n)
			if !passive[n] {
				out.active = append(out.active, n)
			}
			out.files = out.files || waits[n] != nil
		}
	}
	if len(out.members) < 2 {
		return nil, nil
	}
	for pair, text := range said {
		if from[pair[0]] && to[pair[0]] && from[pair[1]] && to[pair[1]] {
			out.said = append(out.said, text)
		}
	}
	slices.Sort(out.said)
	return out, nil
}

// reach are the nodes that a walk of at least one step from a node can come to.
func reach(next map[string][]string, from string) map[string]bool {
	seen := map[string]bool{}
	todo := slices.Clone(next[from])
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !seen[n] {
			seen[n] = true
			todo = append(todo, next[n]...)
		}
	}
	return seen
}

// forgetWaits deletes the records of transactions whose process is gone.
func (t *Transactions) forgetWaits(ctx context.Context, members []shardmap.MemberState) error {
	records, err := t.ex.Directory().Records(ctx, waitsPrefix, "", waitsMax)
	if err != nil {
		return err
	}
	live := map[string]bool{fmt.Sprintf("%x", t.owner): true}
	for _, m := range members {
		live[fmt.Sprintf("%x", ownerOf(m.ID))] = true
	}
	var errs []error
	for _, r := range records {
		var w waiting
		if json.Unmarshal(r.Value, &w) == nil && live[w.Owner] {
			continue
		}
		if err := t.ex.Directory().DeleteRecord(ctx, r.Key, r.Revision); err != nil && !errors.Is(err, shardmap.ErrNotFound) && !errors.Is(err, shardmap.ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func reverse(next map[string][]string) map[string][]string {
	back := map[string][]string{}
	for a, list := range next {
		for _, b := range list {
			back[b] = append(back[b], a)
		}
	}
	return back
}
