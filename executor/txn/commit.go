package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// commitment is a transaction that is being committed on several shards; the package has its states.
type commitment struct {
	id           txid
	cluster      string
	began        time.Time
	names        []string // of the shards that write
	coordinating *voter
	others       []*voter // that wrote, to be prepared
	readers      []*voter
	left         bool // something is, or may be, still prepared
	// frames are the notices of all shards and what the first reported.
	frames []byte
	aside  func(frame []byte)
}

// voter is a participant while the transaction is committed.
type voter struct {
	*Participant

	gid      string // of what is prepared
	prepared bool   // or it may be
	asked    bool   // an answer is outstanding
	err      error  // the last answer's
}

// errCrash is what a test's step returns to stop everything where it is.
var errCrash = errors.New("several: stopped here")

// Commit ends a transaction on all its parts: all commit, or none. Afterwards each
// Conn is outside of a transaction or broken; releasing it is the caller's.
// frames are notices and reported parameters for the client, whole frames.
//
// committed is false without an error if the shards answered COMMIT with ROLLBACK.
// An error with code 08007 means that it is committed everywhere or nowhere, but
// not known yet which; after any other error nothing is committed anywhere. The
// end of ctx stops it only until it is decided.
func (t *Transactions) Commit(ctx context.Context, parts []*Participant) (committed bool, frames []byte, err error) {
	x := &commitment{began: time.Now()}
	for _, p := range parts {
		s := &voter{Participant: p}
		switch {
		case !p.Wrote:
			x.readers = append(x.readers, s)
		case x.coordinating == nil:
			x.coordinating = s
		default:
			x.others = append(x.others, s)
		}
	}
	x.collect(parts)
	if len(x.others) == 0 {
		committed, err = t.commitOne(ctx, x)
		return committed, x.frames, err
	}
	for _, s := range append([]*voter{x.coordinating}, x.others...) {
		x.names = append(x.names, s.Shard)
	}
	x.id = t.newID()
	x.cluster = t.ex.Snapshot().State().Cluster
	committed, err = t.commitRegistered(ctx, x)
	switch {
	case committed:
		t.metrics.Transaction(telemetry.Committed)
	case sqlstate.CodeOf(err) == sqlstate.TransactionUnknown:
		t.metrics.Transaction(telemetry.Unknown)
	default:
		t.metrics.Transaction(telemetry.RolledBack)
	}
	return committed, x.frames, err
}

// commitRegistered is commitAll of a transaction that recovery leaves alone meanwhile. After a fault of the
// router's own recovery settles it at once: what is prepared holds locks.
func (t *Transactions) commitRegistered(ctx context.Context, x *commitment) (committed bool, err error) {
	t.mu.Lock()
	t.active[x.id] = x
	t.mu.Unlock()
	returned := false
	defer func() {
		t.mu.Lock()
		delete(t.active, x.id)
		t.mu.Unlock()
		if x.left || !returned {
			t.Wake()
		}
	}()
	committed, err = t.commitAll(ctx, x)
	returned = true
	return committed, err
}

// collect gathers what the client is to hear: notices of each shard, and the
// parameters that the first reports (all report the same).
func (x *commitment) collect(parts []*Participant) {
	x.aside = func(frame []byte) {
		if len(x.frames)+len(frame) > asideMax {
			return
		}
		x.frames = append(x.frames, frame...)
	}
}

// asideMax bounds what one COMMIT tells the client aside, bytes.
const asideMax = 1 << 20

// notices keeps the notices alone.
func (x *commitment) notices(frame []byte) {
	if wire.Frame(frame).Type() == wire.NoticeResponse {
		x.aside(frame)
	}
}

// commitOne commits where at most one part wrote: nothing is added to it. Those that only read follow it: what a session set on them
// is rolled back where the writer is.
func (t *Transactions) commitOne(ctx context.Context, x *commitment) (committed bool, err error) {
	if x.coordinating == nil {
		committed, _ = t.end(ctx, x, x.readers)
		return committed, nil
	}
	if committed, err = t.end(ctx, x, []*voter{x.coordinating}); !committed || err != nil {
		t.abort(x)
		return false, err
	}
	_, _ = t.end(ctx, x, x.readers)
	return true, nil
}

// end sends COMMIT to participants at once. committed: all of them answered that. The error is the coordinating's; one that only read has
// nothing to take back.
func (t *Transactions) end(ctx context.Context, x *commitment, all []*voter) (committed bool, err error) {
	defer interruptible(ctx, all)()
	for _, s := range all {
		s.ask("COMMIT")
	}
	committed = true
	for i, s := range all {
		aside := x.notices
		if i == 0 && (s == x.coordinating || x.coordinating == nil) {
			aside = x.aside
		}
		res := s.answer(aside)
		switch {
		case s.err == nil:
			committed = committed && res.Tag == "COMMIT"
		case s == x.coordinating:
			committed, err = false, s.failed(true)
		case engine.Lost(s.err) == nil:
			t.log.Warn("a part that only read was not ended cleanly", "shard", s.Shard, "error", s.err)
		}
		s.clean()
	}
	return committed, err
}

func (t *Transactions) commitAll(ctx context.Context, x *commitment) (committed bool, err error) {
	if err := t.prepare(ctx, x); err != nil {
		if errors.Is(err, errCrash) {
			return false, x.crash()
		}
		t.abort(x)
		return false, err
	}
	if err := t.at("decide", x.coordinating.Shard); err != nil {
		return false, x.crash()
	}
	t.gate.enter()
	defer t.gate.leave()
	committed, err = t.decide(ctx, x)
	if errors.Is(err, errCrash) {
		return false, x.crash()
	}
	if err != nil || !committed {
		if sqlstate.CodeOf(err) == sqlstate.TransactionUnknown {
			x.left = true
			x.clean()
			return false, err
		}
		t.abort(x)
		return false, err
	}
	if err := t.finish(x); err != nil {
		return false, x.crash()
	}
	return true, nil
}

func (t *Transactions) at(step, shard string) error {
	if t.step == nil {
		return nil
	}
	if err := t.step(step, shard); err != nil {
		return errors.Join(errCrash, err)
	}
	return nil
}

// crash leaves everything as it is: open transactions end with their
// conversations, prepared ones stay.
func (x *commitment) crash() error {
	for _, s := range x.all() {
		s.Conn.Break()
	}
	return errCrash
}

func (x *commitment) all() []*voter {
	all := []*voter{x.coordinating}
	return append(append(all, x.others...), x.readers...)
}

// prepare prepares all writing parts but the one that decides.
func (t *Transactions) prepare(ctx context.Context, x *commitment) error {
	defer interruptible(ctx, x.others)()
	for i, s := range x.others {
		if err := t.at("prepare", s.Shard); err != nil {
			return err
		}
		s.gid = gid{cluster: x.cluster, id: x.id, n: i + 1, coordinating: x.coordinating.Shard}.String()
		s.ask(t.records(s.Shard).Record(x.id.String(), x.names) + ";PREPARE TRANSACTION " + executor.QuoteLiteral(s.gid))
		if t.step != nil {
			s.prepareAnswer(x) // one after the other, so that the steps are what they say
		}
	}
	var first error
	for _, s := range x.others {
		s.prepareAnswer(x)
		if s.err != nil && first == nil {
			first = s.failed(false)
			if sqlstate.CodeOf(s.err) == sqlstate.UndefinedTable {
				t.forget(s.Shard)
			}
			if s.Conn.Broken() {
				first = lostUndecided(s.Shard, s.err)
			}
		}
	}
	return first
}

func (s *voter) prepareAnswer(x *commitment) {
	if !s.asked {
		return
	}
	res := s.answer(x.notices)
	switch {
	case s.err == nil && res.Tag != "PREPARE TRANSACTION":
		s.err = sqlstate.New(sqlstate.InFailedTransaction, "the transaction had failed on shard %s: it was rolled back", s.Shard).OnShard(s.Shard)
	case s.err == nil:
		s.prepared = true
	case s.Conn.Broken():
		s.prepared, x.left = true, true // perhaps
	}
}

// lostUndecided is the error of a transaction that cannot be committed any more,
// because nobody but this process could have decided so.
func lostUndecided(shard string, cause error) error {
	e := sqlstate.Wrap(cause, sqlstate.SerializationFailure, "the connection to shard %s broke while the transaction was being committed: it was rolled back on all shards", shard).OnShard(shard)
	e.Retry = sqlstate.RetryTransaction
	return e.WithHint("nothing was committed: run the transaction again")
}

// decide commits the coordinating shard together with the decision.
func (t *Transactions) decide(ctx context.Context, x *commitment) (committed bool, err error) {
	s := x.coordinating
	if time.Since(x.began) > prepareMax {
		return false, sqlstate.New(sqlstate.QueryCanceled, "preparing the transaction on %d shards took longer than %v: it was rolled back", len(x.names), prepareMax).
			WithHint("checks that are deferred to the end of the transaction may take long: SET CONSTRAINTS ALL IMMEDIATE before COMMIT")
	}
	end := interruptible(ctx, []*voter{s})
	// The time counts from the beginning: this process may be stopped right here for
	// longer than a decision against the transaction is kept.
	s.ask(t.records(s.Shard).Decide(x.id.String(), x.names, x.began.Add(decideMax)) + ";COMMIT")
	res := s.answer(x.aside)
	end()
	if err := t.at("decided", s.Shard); err != nil {
		return false, err
	}
	switch {
	case s.err == nil && res.Tag == "COMMIT":
		return true, nil
	case s.err == nil: // ROLLBACK: it had failed before
		return false, nil
	case !s.Conn.Broken():
		if sqlstate.CodeOf(s.err) == sqlstate.UndefinedTable {
			t.forget(s.Shard)
		}
		if e := sqlstate.As(s.err); e.Code == sqlstate.UniqueViolation && e.Constraint == "transaction_pkey" && e.Schema == "cleave_internal" {
			e := sqlstate.New(sqlstate.SerializationFailure, "the transaction took too long to commit: another router has rolled it back").OnShard(s.Shard)
			e.Retry = sqlstate.RetryTransaction
			return false, e.WithHint("nothing was committed: run the transaction again")
		}
		return false, s.failed(false)
	}
	// The answer is lost. What is not decided is decided now, against it.
	limit, stop := context.WithTimeout(context.WithoutCancel(ctx), resolveMax)
	defer stop()
	var last error
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		if committed, last = t.resolve(limit, x.id, s.Shard); last == nil {
			break
		}
		if !sleep(limit, pause) {
			break
		}
	}
	switch {
	case last == nil && committed:
		return true, nil
	case last == nil:
		return false, lostUndecided(s.Shard, s.err)
	}
	e := sqlstate.Wrap(s.err, sqlstate.TransactionUnknown, "shard %s was lost while it decided the transaction", s.Shard).OnShard(s.Shard).
		WithDetail("Transaction %s is committed on all of its shards (%s) or on none; which is not known yet. Rows that it wrote are locked until then.", x.id, strings.Join(x.names, ", ")).
		WithHint("as soon as shard %s is back it is finished by any router; look whether the rows are there before running it again", s.Shard)
	e.Retry = sqlstate.RetryUnknown
	return false, e
}

// finish commits what is prepared. The decision stands: what cannot be reached in
// time is left to Run.
func (t *Transactions) finish(x *commitment) error {
	deadline := time.Now().Add(finishMax)
	for _, s := range x.others {
		if err := t.at("commit", s.Shard); err != nil {
			return err
		}
		_ = s.Conn.SetDeadline(deadline) // a Conn that fails here fails below
		s.ask("COMMIT PREPARED " + executor.QuoteLiteral(s.gid))
		if t.step != nil {
			x.committedPart(s)
		}
	}
	for _, s := range x.readers {
		_ = s.Conn.SetDeadline(deadline)
		s.ask("COMMIT")
	}
	for _, s := range x.others {
		x.committedPart(s)
	}
	for _, s := range x.readers {
		s.answer(x.notices)
	}
	t.finishAnew(x, deadline)
	if err := t.at("finished", ""); err != nil {
		return err
	}
	x.clean()
	return nil
}

// finishAnew commits in other conversations what is still prepared where the transaction's own broke, until the deadline: a client that
// is told of its COMMIT is to see it on every shard that answers.
func (t *Transactions) finishAnew(x *commitment, deadline time.Time) {
	if !x.left {
		return
	}
	limit, stop := context.WithDeadline(context.Background(), deadline)
	defer stop()
	var all sync.WaitGroup
	for _, s := range x.others {
		if !s.prepared {
			continue
		}
		all.Go(func() {
			for pause := 10 * time.Millisecond; s.prepared; pause = min(2*pause, 500*time.Millisecond) {
				err := t.recovery().end(limit, leftoverPart{shard: s.Shard, gid: s.gid}, "COMMIT PREPARED ")
				s.prepared = err != nil
				if sqlstate.CodeOf(err) == sqlstate.InsufficientPrivilege || err != nil && !sleep(limit, pause) {
					return // another role has prepared it, whose name recovery finds
				}
			}
		})
	}
	all.Wait()
	x.left = slices.ContainsFunc(x.others, func(s *voter) bool { return s.prepared })
}

func (x *commitment) committedPart(s *voter) {
	if !s.asked {
		x.left = x.left || s.prepared // it could not be asked
		return
	}
	s.answer(x.notices)
	if sqlstate.CodeOf(s.err) == sqlstate.QueryCanceled && !s.Conn.Broken() {
		// A cancel that came too late for the decision.
		s.ask("COMMIT PREPARED " + executor.QuoteLiteral(s.gid))
		s.answer(x.notices)
	}
	if s.err != nil && sqlstate.CodeOf(s.err) != sqlstate.UndefinedObject { // undefined: somebody else was faster
		x.left = true
		return
	}
	s.prepared = false
}

// abort rolls everything back: the coordinating shard first, after which nobody can
// commit the transaction.
func (t *Transactions) abort(x *commitment) {
	deadline := time.Now().Add(finishMax)
	for _, s := range x.all() {
		if s.Conn.Broken() {
			continue
		}
		_ = s.Conn.SetDeadline(deadline) // a Conn that fails here fails below
		switch {
		case s.prepared:
			s.ask("ROLLBACK PREPARED " + executor.QuoteLiteral(s.gid))
		case s.Conn.Status() != 'I':
			s.ask("ROLLBACK")
		}
	}
	for _, s := range x.all() {
		asked := s.asked
		if asked {
			s.answer(x.notices)
		}
		if s.prepared {
			if !asked || s.err != nil && sqlstate.CodeOf(s.err) != sqlstate.UndefinedObject {
				x.left = true
			}
		}
	}
	x.clean()
}

// clean breaks the conversations that are not outside of a transaction, and
// takes the deadlines off the others.
func (x *commitment) clean() {
	for _, s := range x.all() {
		s.clean()
	}
}

func (s *voter) clean() {
	if s.Conn.Broken() || s.Conn.Status() != 'I' || s.asked || s.Conn.SetDeadline(time.Time{}) != nil {
		s.Conn.Break()
	}
}

// RollBack ends what is open on conversations, at the same time. One that does not end it is broken: then its shard does.
func RollBack(conns []*executor.Conn) {
	var asked []*executor.Conn
	for _, c := range conns {
		if !c.Broken() && c.Status() != 'I' && c.Ask("ROLLBACK") == nil {
			asked = append(asked, c)
		}
	}
	for _, c := range asked {
		if _, err := c.Answer(nil); err != nil || c.Status() != 'I' {
			c.Break()
		}
	}
}

func (s *voter) ask(sql string) {
	if s.Conn.Broken() {
		s.err = fmt.Errorf("several: %w", &engine.LostError{Shard: s.Shard, Err: errors.New("the conversation was broken before")})
		return
	}
	if s.err = s.Conn.Ask(sql); s.err == nil {
		s.asked = true
	}
}

// answer reads the answer to what was asked, if that could be asked.
func (s *voter) answer(aside func(frame []byte)) *engine.Result {
	if !s.asked {
		return nil
	}
	s.asked = false
	var res *engine.Result
	res, s.err = s.Conn.Answer(aside)
	return res
}

// failed is the error of a part for the client; inFlight says that a COMMIT may
// have landed.
func (s *voter) failed(inFlight bool) error {
	if s.Conn.Broken() {
		return s.Conn.Lost(s.err, inFlight)
	}
	e := *sqlstate.As(s.err)
	e.Shard = s.Shard
	return &e
}

// interruptible asks the shards to stop when ctx ends, until the returned
// function is called. One that does not answer that loses the conversation.
func interruptible(ctx context.Context, voters []*voter) (end func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	finished := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(finished)
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelGrace)
		defer cancel()
		var all sync.WaitGroup
		for _, s := range voters {
			all.Go(func() {
				_ = s.Conn.SetDeadline(time.Now().Add(cancelGrace)) // a Conn that fails here is broken already
				_ = s.Conn.Cancel(limit)                            // the deadline ends it as well
			})
		}
		all.Wait()
	})
	return func() {
		if stop() {
			return
		}
		<-finished // a Cancel under way must not hit the next statement
		for _, s := range voters {
			if s.Conn.SetDeadline(time.Time{}) != nil {
				s.Conn.Break()
			}
		}
	}
}

// cancelGrace is how long a shard may take to answer after it was asked to stop.
const cancelGrace = 3 * time.Second

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
