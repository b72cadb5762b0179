package sim

import (
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/shardmap"
)

// router answers clients by its map while its lease is live.
type router struct {
	w     *world
	n     int
	known uint64
	live  bool
	term  int
	need  uint64 // joined anew: the version that it has to have
	ses   []*session
}

// phase is where a session is.
type phase int

const (
	idle    phase = iota
	sending       // the statement is routed, and not yet on the shard
	answered
	between // in a transaction, between statements
	committing
)

// kind is what a statement does.
type kind int

const (
	readKey kind = iota
	writeKey
	scanAll
	inTxn    // a transaction: read a key FOR UPDATE, then write what was read and one more
	twoReads // a transaction that reads a key twice, without locks
	across   // a transaction that writes two keys, perhaps on two shards
)

// session is a client's.
type session struct {
	r     *router
	phase phase
	kind  kind
	key   int
	under uint64 // the version that the unit began with, 0: nothing is under way
	term  int
	begun uint64 // the version with which the transaction first used its shard
	wrote uint64 // the version with which it first locked something there
	shard string
	t     *txn
	also  *second // of across
	step  int     // of the transaction, or shards scanned
	got   []int
	seen  map[int][]int  // scan: what was read
	from  map[int]string // scan: where
	want  map[int][]int  // acknowledged before it began
	id    int
}

// second is what a transaction across has on its other shard, and its second write.
type second struct {
	shard string
	t     *txn
	key   int
	id    int
}

func newRouter(w *world, n int) *router {
	r := &router{w: w, n: n, known: 1, live: true}
	for range 2 {
		r.ses = append(r.ses, &session{r: r})
	}
	return r
}

// used reports whether the session's transaction blocks the acknowledgement of a map: it used
// the owner of a part that is held in it, before it was held.
func (s *session) blocks(v *view) bool {
	if s.phase == idle || s.kind != inTxn && s.kind != twoReads && s.kind != across {
		return false
	}
	for i := range v.transits {
		if t := &v.transits[i]; t.Hold != shardmap.NoHold && s.before(t) {
			return true
		}
	}
	return false
}

// before reports whether the transaction is from before a hold: it passes, and is waited for.
// On files, those that wrote on the other one too.
func (s *session) before(t *transit) bool {
	if s.t == nil {
		return false
	}
	if t.owner == s.shard && s.begun < t.Epoch {
		return true
	}
	return s.r.w.files && t.concerns(s.shard) && s.wrote != 0 && s.wrote < t.Epoch
}

// crowded reports whether a write on a shard has to wait: a cutover needs the file.
func (s *session) crowded(v *view, shard string) bool {
	for i := range v.transits {
		if t := &v.transits[i]; s.r.w.files && t.Hold != shardmap.NoHold && t.concerns(shard) && !s.before(t) {
			return true
		}
	}
	return false
}

// step does one of the things that the router could do next.
func (r *router) step() {
	w := r.w
	switch {
	case w.chance(w.moods.learn[r.n]):
		r.learn()
	case w.chance(w.moods.acknowledge):
		r.acknowledge()
	case !w.stopped && r.live && w.rand.IntN(w.moods.lease) == 0:
		r.live = false
		r.term++
		w.trace("router %d: its lease has run out", r.n)
	case !r.live && r.need == 0 && w.members[r.n].listed && w.chance(30):
		w.members[r.n].listed = false
		w.trace("router %d: the directory has given its lease up", r.n)
	case !r.live && r.need == 0 && !w.members[r.n].listed && w.chance(60):
		w.members[r.n] = member{listed: true}
		r.need = w.snap.Version()
		w.trace("router %d: joins anew at map %d", r.n, r.need)
	case r.need != 0 && r.known >= r.need:
		r.live, r.need = true, 0
	case !w.stopped && w.rand.IntN(2*w.moods.crash) == 0:
		r.crash()
	default:
		r.ses[w.rand.IntN(len(r.ses))].next()
	}
}

func (r *router) learn() {
	if r.known < r.w.snap.Version() {
		// Watchers get the newest one, or one before it.
		r.known += 1 + uint64(r.w.rand.IntN(int(r.w.snap.Version()-r.known)))
		r.w.trace("router %d: map %d", r.n, r.known)
	}
}

func (r *router) acknowledge() {
	w := r.w
	if !w.members[r.n].listed || w.members[r.n].acked >= r.known {
		return
	}
	v := w.view(r.known)
	for _, s := range r.ses {
		if s.under != 0 && s.under < r.known && (s.kind == scanAll || w.concerned(s.shard, s.under, r.known)) {
			return
		}
		if w.o.Break != NoTransaction && s.blocks(v) {
			if s.phase != between && s.phase != committing {
				return
			}
			for i := range v.transits {
				if v.transits[i].Hold == shardmap.HoldAll && s.phase == between {
					s.rollback("ended for a cutover")
					return
				}
			}
			return
		}
	}
	w.members[r.n].acked = r.known
	w.trace("router %d: acknowledges %d", r.n, r.known)
}

// crash is kill -9 and a new life: what was under way on shards is rolled back, or not, as they see it.
func (r *router) crash() {
	w := r.w
	w.report.Crashes++
	w.trace("router %d: crashes", r.n)
	for _, s := range r.ses {
		if s.t != nil && w.shards[s.shard].alive(s.t) {
			// The shard learns of it later; a COMMIT that had been sent is done.
			w.orphans = append(w.orphans, orphan{s.shard, s.t, s.also == nil && s.phase == committing && w.chance(50)})
		}
		if s.also != nil {
			w.orphans = append(w.orphans, orphan{s.also.shard, s.also.t, false})
		}
		*s = session{r: r}
	}
	// The old lease runs out by itself; the new process is another member. Here it takes
	// the same place, when the directory has given the old one up.
	r.live, r.need = false, 0
	r.term++
	r.known = w.snap.Version()
}

func (s *session) end() { *s = session{r: s.r} }

func (s *session) rollback(why string) {
	w := s.r.w
	if s.t != nil {
		w.shards[s.shard].end(s.t)
	}
	if s.also != nil {
		w.shards[s.also.shard].end(s.also.t)
	}
	w.trace("router %d: key %d rolled back: %s", s.r.n, s.key, why)
	s.end()
}

// holds: the lease was live without a gap since the unit began.
func (s *session) holds() bool {
	return s.r.live && s.term == s.r.term || s.r.w.o.Break == NoLease
}

// begin starts a unit by the router's map of now.
func (s *session) begin() bool {
	if !s.r.live && s.r.w.o.Break != NoLease {
		return false
	}
	if s.t != nil && s.term != s.r.term && s.r.w.o.Break != NoTerm {
		s.rollback("57P03") // the cutover did not wait for it
		return false
	}
	s.under, s.term = s.r.known, s.r.term
	return true
}

func (s *session) next() {
	w := s.r.w
	switch s.phase {
	case idle:
		if w.stopped {
			return
		}
		s.start()
	case sending:
		s.send()
	case answered:
		s.answer()
	case between:
		if w.stopped || w.chance(w.moods.talk) { // clients idle in transactions
			s.second()
		}
	case committing:
		s.commit()
	}
}

// start chooses a statement and routes it.
func (s *session) start() {
	w := s.r.w
	if !s.begin() {
		return
	}
	v := w.view(s.under)
	s.kind, s.key = w.moods.kinds[w.rand.IntN(len(w.moods.kinds))], w.key()
	if s.kind == scanAll && v.holding() || s.kind != scanAll && v.held(s.key) != nil ||
		(s.kind == inTxn || s.kind == across) && s.crowded(v, v.owners[s.key]) {
		s.end() // waits: here it is as if it came later
		return
	}
	s.want = map[int][]int{}
	for _, k := range keys {
		if k == s.key || s.kind == scanAll {
			s.want[k] = slices.Clone(w.acked[k])
		}
	}
	s.shard = v.owners[s.key]
	s.begun = s.under
	s.phase = sending
}

func (s *session) send() {
	w := s.r.w
	sh := w.shards[s.shard]
	switch s.kind {
	case readKey, inTxn, twoReads:
		if s.kind != readKey {
			if s.t == nil {
				s.t = sh.begin()
			}
			if !sh.alive(s.t) {
				s.rollback("the shard went away")
				return
			}
			if s.kind == inTxn {
				if !sh.free(s.t, s.key) {
					return // waits for the lock
				}
				s.t.locked[s.key], s.wrote = true, s.under
			}
		}
		s.got = slices.Clone(sh.read(s.t, s.key))
		s.phase = answered
	case writeKey, across:
		if s.t == nil {
			s.t = sh.begin()
		}
		if !sh.alive(s.t) {
			s.rollback("the shard went away")
			return
		}
		if !sh.free(s.t, s.key) {
			return
		}
		s.id = w.newID()
		if !sh.write(s.t, s.key, append(slices.Clone(sh.read(s.t, s.key)), s.id)) {
			s.rollback("refused")
			return
		}
		if s.kind == across {
			s.wrote, s.under, s.phase = s.under, 0, between
			return
		}
		s.phase = committing
	case scanAll:
		if s.seen == nil {
			s.seen, s.from = map[int][]int{}, map[int]string{}
		}
		name := w.names()[s.step]
		v := w.view(s.under)
		for k, ids := range w.shards[name].rows {
			if st := v.strangers[name]; st != nil && st.Owns(keyOf(k)) && w.o.Break != NoFilter {
				continue
			}
			if _, twice := s.from[k]; twice {
				s.seen[-k] = nil // judged when it is passed on
			}
			s.seen[k], s.from[k] = slices.Clone(ids), name
		}
		if s.step++; s.step == len(w.names()) {
			s.phase = answered
		}
	}
}

// answer passes on what was read, if the lease held.
func (s *session) answer() {
	w := s.r.w
	if !s.holds() {
		if s.t != nil {
			s.rollback("57P03")
			return
		}
		s.end()
		return
	}
	switch s.kind {
	case readKey:
		w.report.Reads++
		s.judge(s.key, s.got, fmt.Sprintf("a read on %s", s.shard))
		s.end()
	case scanAll:
		w.report.Scans++
		for _, k := range keys {
			if _, twice := s.seen[-k]; twice {
				w.fail("a scan by map %d counts key %d twice", s.under, k)
			}
			s.judge(k, s.seen[k], fmt.Sprintf("a scan by map %d, which found it on %q,", s.under, s.from[k]))
		}
		s.end()
	case inTxn, twoReads:
		s.judge(s.key, s.got, fmt.Sprintf("a read in a transaction on %s", s.shard))
		if s.step == 1 {
			w.shards[s.shard].end(s.t)
			s.end()
			return
		}
		s.under = 0
		s.phase = between
	}
}

func (s *session) judge(key int, got []int, what string) {
	for _, id := range s.want[key] {
		if !slices.Contains(got, id) {
			s.r.w.fail("%s of router %d misses write %d of key %d, acknowledged before it began: %v", what, s.r.n, id, key, got)
			return
		}
	}
}

// second is the transaction's second statement: a write of what it has read and one
// more, or another read.
func (s *session) second() {
	w := s.r.w
	if !s.begin() {
		return
	}
	v := w.view(s.under)
	if s.kind == across {
		s.other(v)
		return
	}
	owner := v.owners[s.key]
	if h := v.held(s.key); h != nil && (h.owner != s.shard || s.begun >= h.Epoch) {
		s.under = 0
		return // waits
	} else if h != nil && h.Hold == shardmap.HoldAll {
		s.rollback("ended for a cutover")
		return
	}
	if !w.shards[s.shard].alive(s.t) {
		s.rollback("the shard went away")
		return
	}
	if owner != s.shard {
		// READ COMMITTED goes on at the new owner; its lock is on the old one, which
		// the fence would have waited for.
		w.shards[s.shard].end(s.t)
		s.shard, s.t = owner, w.shards[owner].begin()
	}
	if s.kind == twoReads {
		s.want[s.key] = slices.Clone(w.acked[s.key])
		s.phase, s.step = sending, 1
		return
	}
	sh := w.shards[s.shard]
	if !sh.free(s.t, s.key) {
		s.under = 0
		return
	}
	s.id = w.newID()
	if !sh.write(s.t, s.key, append(slices.Clone(s.got), s.id)) {
		s.rollback("refused")
		return
	}
	s.phase = committing
}

// other is the second write of a transaction across.
func (s *session) other(v *view) {
	w := s.r.w
	key := keys[w.rand.IntN(len(keys))]
	owner := v.owners[key]
	switch h := v.held(key); {
	case key == s.key:
		s.under = 0
		return
	case h != nil && !s.before(h), h == nil && s.crowded(v, owner):
		s.under = 0
		return // waits
	case h != nil && h.Hold == shardmap.HoldAll:
		s.rollback("ended for a cutover")
		return
	case !w.shards[s.shard].alive(s.t):
		s.rollback("the shard went away")
		return
	}
	sh, t := w.shards[owner], s.t
	if owner != s.shard {
		t = sh.begin()
	}
	s.want[key] = slices.Clone(w.acked[key])
	s.judge(key, sh.read(t, key), fmt.Sprintf("a read in a transaction from %s, on %s", s.shard, owner))
	if !sh.free(t, key) {
		if t != s.t {
			sh.end(t)
		}
		if s.under = 0; w.chance(10) {
			s.rollback("deadlock, or tired of waiting")
		}
		return
	}
	id := w.newID()
	ok := sh.write(t, key, append(slices.Clone(sh.read(t, key)), id))
	s.also = &second{owner, t, key, id}
	if !ok {
		s.rollback("refused")
		return
	}
	s.phase = committing
}

// commit ends what was written; its answer is the shard's own.
func (s *session) commit() {
	w := s.r.w
	sh := w.shards[s.shard]
	if !sh.alive(s.t) || s.also != nil && !w.shards[s.also.shard].alive(s.also.t) {
		s.rollback("a shard went away") // not known to the client: the shard had rolled it back
		return
	}
	sh.commit(s.t)
	if a := s.also; a != nil {
		if a.t != s.t {
			w.shards[a.shard].commit(a.t)
		}
		w.acked[a.key] = append(w.acked[a.key], a.id)
		w.report.Writes++
	}
	w.acked[s.key] = append(w.acked[s.key], s.id)
	w.report.Writes++
	s.end()
}

func (w *world) newID() int {
	w.nextID++
	return w.nextID
}
