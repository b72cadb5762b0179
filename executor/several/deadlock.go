package several

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
	// waitsMax bounds the transactions that are compared.
	waitsMax    = 1000
	waitsPrefix = "waits/"
)

// waiting is the record of a transaction that waits.
type waiting struct {
	Owner    string    `json:"owner"` // of the transaction, see ownerOf
	Backends []backend `json:"backends"`
}

type backend struct {
	Shard string `json:"shard"`
	PID   uint32 `json:"pid"`
}

func (b backend) String() string { return b.Shard + "/" + strconv.FormatUint(uint64(b.PID), 10) }

// lockWatch looks at the locks of one statement for as long as it runs.
type lockWatch struct {
	timer *time.Timer
	mu    sync.Mutex
	over  bool
	stop  context.CancelFunc
}

// watchLocks begins to watch a statement that begins now; end has to follow. It is
// nil for a read outside of a block, which holds nothing that others wait for.
func (c *Conn) watchLocks(readOnly bool) *lockWatch {
	if readOnly && !c.block {
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &lockWatch{stop: stop}
	if c.waitID == "" {
		id := c.shared.transactions.newID()
		c.waitID = fmt.Sprintf("%016x-%s", time.Now().UnixNano(), id)
	}
	wait := c.shared.defaults.deadlockTimeout(c.host.Settings())
	w.timer = time.AfterFunc(wait, func() { c.shared.transactions.watch(ctx, c, w, wait, c.waitID) })
	return w
}

// end ends the watch; afterwards it interrupts nothing.
func (w *lockWatch) end() {
	if w == nil {
		return
	}
	w.timer.Stop()
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

// backends are the conversation's processes on the shards' servers.
func (c *Conn) backends() []backend {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []backend
	for conn := range c.live {
		if pid := conn.PID(); pid != 0 {
			all = append(all, backend{conn.Shard(), pid})
		}
	}
	slices.SortFunc(all, func(a, b backend) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// watch looks until ctx ends or the transaction has to give way, with a pause of
// wait between two looks.
func (t *Transactions) watch(ctx context.Context, c *Conn, w *lockWatch, wait time.Duration, id string) {
	var revision uint64
	var told []backend
	dir, key := t.ex.Directory(), waitsPrefix+id
	defer func() {
		if revision != 0 {
			limit, stop := context.WithTimeout(context.WithoutCancel(ctx), resolveMax)
			defer stop()
			if err := dir.DeleteRecord(limit, key, revision); err != nil && !errors.Is(err, shardmap.ErrNotFound) {
				t.log.Warn("the record of a waiting transaction was not deleted", telemetry.KeyError, err)
			}
		}
	}()
	for ; ctx.Err() == nil; sleep(ctx, wait) {
		now := c.backends()
		if len(now) < 2 {
			continue
		}
		if !slices.Equal(now, told) {
			value, err := json.Marshal(waiting{Owner: fmt.Sprintf("%x", t.owner), Backends: now})
			if err != nil {
				return
			}
			r, err := dir.PutRecord(ctx, key, value, revision)
			if err != nil {
				continue // it is there again at the next look, or the statement has ended
			}
			told, revision = now, r
		}
		ring, err := t.ring(ctx, id, nil)
		if err != nil || !ring.victim(id) {
			continue
		}
		if again, err := t.ring(ctx, id, ring.edges); err != nil || !again.victim(id) {
			continue
		}
		e := sqlstate.New(sqlstate.DeadlockDetected, "deadlock detected over several shards").
			WithDetail("Each of %d transactions waits for another one: %s.", len(ring.members), strings.Join(ring.said, "; ")).
			WithHint("nothing was committed: run the transaction again; transactions that lock rows in the same order of keys do not wait for each other in a ring")
		e.Retry = sqlstate.RetryTransaction
		w.mu.Lock()
		if !w.over {
			t.metrics.Deadlock()
			limit, stop := context.WithTimeout(context.WithoutCancel(ctx), stopMax)
			_ = c.interrupt(limit, e) // a shard that the word does not reach is lost by its deadline
			stop()
		}
		w.mu.Unlock()
		return
	}
}

// ring is a set of transactions that all wait for each other.
type ring struct {
	members []string // transactions over several shards in it, by id
	said    []string // for people
	edges   map[string]bool
}

// victim reports whether the transaction gives way: the youngest one.
func (r *ring) victim(id string) bool {
	return r != nil && len(r.members) > 1 && slices.Max(r.members) == id
}

const locksSQL = "SELECT l.pid, b.pid, l.waitstart::text FROM pg_catalog.pg_locks AS l, pg_catalog.unnest(pg_catalog.pg_blocking_pids(l.pid)) AS b(pid) WHERE NOT l.granted"

// ring returns the ring that a transaction is in, nil if there is none. known, if it
// is not nil, are the only waits that count.
func (t *Transactions) ring(ctx context.Context, id string, known map[string]bool) (*ring, error) {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	records, err := t.ex.Directory().Records(ctx, waitsPrefix, "", waitsMax)
	if err != nil {
		return nil, err
	}
	owner := map[string]string{} // process -> transaction
	on := map[string]bool{}
	for _, r := range records {
		var w waiting
		if json.Unmarshal(r.Value, &w) != nil {
			continue // of another version of this program
		}
		for _, b := range w.Backends {
			owner[b.String()] = strings.TrimPrefix(r.Key, waitsPrefix)
			on[b.Shard] = true
		}
	}
	var shards []shardmap.Shard
	for _, s := range t.ex.Snapshot().Shards() {
		if on[s.Name] && s.Engine == enginePostgres {
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
	edges := map[string]bool{}
	said := map[[2]string]string{}
	for i, s := range shards {
		for _, row := range rows[i] {
			key := s.Name + " " + row[0].String + " " + row[1].String + " " + row[2].String
			if row[1].String == "0" || known != nil && !known[key] {
				continue // prepared transactions are ended by their router or by recovery
			}
			edges[key] = true
			a, b := node(s.Name, row[0].String), node(s.Name, row[1].String)
			next[a] = append(next[a], b)
			said[[2]string{a, b}] = fmt.Sprintf("process %s waits for process %s on %s", row[0].String, row[1].String, s.Name)
		}
	}
	from, to := reach(next, id), reach(reverse(next), id)
	out := &ring{edges: edges}
	for n := range from {
		if to[n] && !strings.Contains(n, "/") {
			out.members = append(out.members, n)
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
