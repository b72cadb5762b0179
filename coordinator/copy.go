package coordinator

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// partBytes is about how large a part of a table is that one stream copies and the target notes.
const partBytes = 64 << 20

// purgeBatch is how many rows are deleted at a time.
const purgeBatch = 2000

// copy is workflow.Copy.
func (j *job) copy(ctx context.Context, s *workflow.State, e workflow.Effect, r *workflow.Result) error {
	p, err := j.copySession(ctx, s, e)
	if err != nil {
		return err
	}
	if err := j.gate(ctx); err != nil {
		return err
	}
	k, err := p.kept(ctx, e.Stream)
	if err != nil {
		return err
	}
	had, bytes := k.size()
	before := j.prog.interrupted(ctx, s)
	j.prog.copiedSoFar(had, bytes)
	r.Rows, r.Note = had, k.told()
	if len(k.rest.Tables) == 0 && len(k.whole) > 0 {
		return nil
	}
	// Of a set without tables the copy only tells the target where the changes go on.
	lost := max(before-had, 0)
	if lost > 0 {
		r.Note += orEmpty(r.Note, ", ") + again(lost)
	}
	if lost > 0 || len(k.partly) > 0 {
		j.prog.copiesAgain(k.doing(lost))
	}
	rows, work, err := k.source(ctx, p, e.Stream, j.t.c.opts.PartBytes)
	if err != nil {
		return err
	}
	// Before the first part is noted: each is noted as of this position.
	if err = p.to.SetApplied(ctx, e.Stream, rows.Position()); err == nil {
		var n int64
		n, err = j.loadAll(ctx, s, e.Stream, k, work, rows, p)
		r.Rows += n
	}
	return errors.Join(err, rows.Close())
}

// orEmpty is what follows a text, if there is one.
func orEmpty(text, then string) string {
	if text == "" {
		return ""
	}
	return then
}

// loadAll copies parts of tables, several at a time, and notes each table that is whole.
func (j *job) loadAll(ctx context.Context, s *workflow.State, stream string, k *kept, work []part, rows engine.RowSource, between *copySession) (int64, error) {
	tables := make([]loading, len(k.rest.Tables))
	for i := range tables {
		had := k.partOf(&k.rest.Tables[i])
		tables[i].rows.Store(had.Rows)
		tables[i].bytes.Store(had.Bytes)
	}
	for _, w := range work {
		tables[w.table].parts.Add(1)
	}
	after := ctx // also when a stream has failed
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	win, err := j.windows(s)
	if err != nil {
		return 0, err
	}
	p, end := j.pace(ctx, s, leastBytes, s.Source(), s.Target())
	defer end()
	limit := &throttle{how: &j.how, win: win, pace: p}
	var next atomic.Int64
	var total atomic.Int64
	var wait sync.WaitGroup
	streams := min(j.t.c.opts.Streams, len(work))
	for range streams {
		wait.Go(func() {
			turn := p.turn()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(work) {
					return
				}
				w := work[i]
				t, l := &k.rest.Tables[w.table], &tables[w.table]
				n, err := j.loadPart(ctx, stream, t, l, w, rows, between.to, limit, turn)
				total.Add(n)
				l.rows.Add(n)
				if k.partOf(t).Parts != nil && sqlstate.CodeOf(err) == sqlstate.UniqueViolation {
					l.stale.Store(true) // the source could not tell what was changed, or the notes are not all of it
					err = classed(workflow.Again, err)
				}
				if err == nil && l.parts.Add(-1) == 0 {
					err = between.to.SetLoaded(ctx, stream, engine.LoadedTable{Schema: t.Schema, Name: t.Name, Rows: l.rows.Load(), Bytes: l.bytes.Load()})
					atPoint(ctx, s, afterTable)
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	wait.Wait()
	err = context.Cause(ctx)
	for i := range tables { // all streams have ended: none notes a part after this
		if tables[i].stale.Load() {
			err = errors.Join(err, between.anew(after, stream, &k.rest.Tables[i]))
		}
	}
	if err != nil {
		return 0, err
	}
	return total.Load(), nil
}

// loading is what of a table has been loaded, and how many parts are missing; stale: its notes do not say which rows the target has.
type loading struct {
	parts, rows, bytes atomic.Int64
	stale              atomic.Bool
}

func (j *job) loadPart(ctx context.Context, stream string, t *engine.MoveTable, l *loading, w part, rows engine.RowSource, to engine.Mover, limit *throttle, turn *turn) (int64, error) {
	r, in := io.Pipe()
	read := make(chan error, 1)
	go func() { // ends when the pipe is closed, at the latest
		err := rows.Rows(ctx, w.table, w.Part, turn.next, &counted{w: in, j: j, ctx: ctx, limit: limit, l: l, turn: turn})
		if err == io.EOF {
			err = io.ErrUnexpectedEOF // else the target would note a part of which rows are missing
		}
		in.CloseWithError(err) // nil is the end
		read <- err
	}()
	n, err := to.Load(ctx, stream, t, w.Part, r)
	r.CloseWithError(context.Canceled)
	if from := <-read; from != nil && !errors.Is(from, context.Canceled) {
		err = from // the other end only saw that it broke off
	}
	return n, err
}

// counted counts rows and bytes that pass, and holds them up where there is a bound.
type counted struct {
	w     io.Writer
	j     *job
	ctx   context.Context
	limit *throttle
	l     *loading
	turn  *turn
}

// Write lets pieces through that the bounds allow in throttleStep, so that what was copied is seen, and a pause begins, while
// there is a bound.
func (c *counted) Write(b []byte) (n int, err error) {
	for err == nil && n < len(b) {
		piece := c.limit.piece(b[n:])
		began := time.Now()
		if err := c.j.gate(c.ctx); err != nil {
			return n, err
		}
		rows := int64(bytes.Count(piece, []byte{'\n'}))
		if err := c.limit.wait(c.ctx, rows, int64(len(piece))); err != nil {
			return n, err
		}
		c.turn.waited(time.Since(began))
		c.j.prog.copied(rows, int64(len(piece)))
		c.l.bytes.Add(int64(len(piece)))
		var wrote int
		wrote, err = c.w.Write(piece)
		n += wrote
	}
	return n, err
}

const (
	// throttleStep is about how long what passes at once takes at the bound.
	throttleStep = 250 * time.Millisecond
	// throttleCredit is how much of the time in which nothing passed may be made up for.
	throttleCredit = 500 * time.Millisecond
)

// throttle bounds rows and bytes per second, as the move's options say at the moment.
type throttle struct {
	how     *atomic.Pointer[workflow.Options] // they may be changed meanwhile
	noBytes bool
	win     *opening
	pace    *pacer // of bytes

	mu   sync.Mutex
	free time.Time // when what was let through is paid for
}

// bounds returns those of rows and bytes a second; 0: none.
func (t *throttle) bounds() (rows, bytes int64) {
	o := t.how.Load()
	if t.noBytes {
		return o.RowsPerSecond, 0
	}
	return o.RowsPerSecond, o.BytesPerSecond
}

// piece is as much of b as takes throttleStep.
func (t *throttle) piece(b []byte) []byte {
	rowBound, byteBound := t.bounds()
	if byteBound > 0 {
		b = b[:min(int64(len(b)), max(byteBound*int64(throttleStep)/int64(time.Second), 1))]
	}
	if rowBound <= 0 {
		return b
	}
	at := 0
	for range max(rowBound*int64(throttleStep)/int64(time.Second), 1) {
		line := bytes.IndexByte(b[at:], '\n')
		if line < 0 {
			return b
		}
		at += line + 1
	}
	return b[:at]
}

// wait returns when so much more is allowed. The time of a pause, or of a window that is shut, gives no credit. Errors: that of ctx.
func (t *throttle) wait(ctx context.Context, rows, bytes int64) error {
	if err := t.win.wait(ctx); err != nil {
		return err
	}
	if t.pace != nil {
		if err := t.pace.wait(ctx, bytes); err != nil {
			return err
		}
	}
	if need := t.take(time.Now(), rows, bytes); need > 0 {
		pause(ctx, need)
	}
	return ctx.Err()
}

// take notes what passes at a time, and returns how long that has to wait.
func (t *throttle) take(now time.Time, rows, bytes int64) time.Duration {
	var cost time.Duration
	rowBound, byteBound := t.bounds()
	if rowBound > 0 {
		cost = max(cost, time.Duration(float64(rows)/float64(rowBound)*float64(time.Second)))
	}
	if byteBound > 0 {
		cost = max(cost, time.Duration(float64(bytes)/float64(byteBound)*float64(time.Second)))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if least := now.Add(-throttleCredit); t.free.IsZero() {
		t.free = now
	} else if t.free.Before(least) {
		t.free = least
	}
	t.free = t.free.Add(cost)
	return t.free.Sub(now)
}

// purge is workflow.Purge. It never deletes rows of a shard that owns them, by the map or by its own guards, nor rows that are
// not this move's (see spare). Before a copy it leaves
// the tables alone of which an interrupted one has brought noted parts, or all.
func (j *job) purge(ctx context.Context, s *workflow.State, e workflow.Effect, r *workflow.Result) error {
	snap, err := j.t.c.opts.Directory.Load(ctx)
	if err != nil {
		return err
	}
	if _, t := snap.Transit(j.id); t == nil {
		return nil // the target's rows of the part are not this workflow's
	}
	owner, err := snap.OwnerOf(s.Spec.Keyspace, s.Spec.Part)
	if err != nil {
		return err
	}
	if owner == e.Target {
		return refuse("shard %s owns the part: its rows are not deleted", owner)
	}
	set, m, err := j.onTarget(ctx, s, e)
	if err != nil {
		return err
	}
	if ours, err := j.notes().spare(ctx, s, e, set, m, r); err != nil || !ours {
		return err
	}
	which := set.set
	if s.Step == workflow.Copying {
		j.prog.interrupted(ctx, s)
		k, err := (&copySession{set: set.set, to: m}).kept(ctx, e.Stream)
		if err != nil {
			return err
		}
		which = k.unnoted
	}
	j.bounds(&s.Spec.Options)
	limit := &throttle{how: &j.how, noBytes: true}
	if s.Step != workflow.Cancelling { // nobody waits for a window to get rid of a move
		if limit.win, err = j.windows(s); err != nil {
			return err
		}
	}
	p, end := j.pace(ctx, s, leastRows, e.Target)
	defer end()
	turn := p.turn()
	for {
		if err := j.gate(ctx); err != nil {
			return err
		}
		if err := limit.wait(ctx, 0, 0); err != nil { // for its window
			return err
		}
		batch := p.some(purgeBatch)
		n, err := m.Purge(ctx, which, batch)
		if err != nil {
			return err
		}
		if s.Step == workflow.Copying { // these are none that were copied
			if n > 0 {
				j.prog.say("deletes what an earlier copy has left on shard " + e.Target)
				defer j.prog.say("")
			}
		} else {
			j.prog.copied(int64(n), 0)
		}
		if n < batch {
			return nil
		}
		if _, err := turn.next(ctx, int64(n)); err != nil {
			return err
		}
		if err := limit.wait(ctx, int64(n), 0); err != nil {
			return err
		}
		turn.began = time.Now()
	}
}
