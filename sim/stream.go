package sim

import (
	"context"
	"errors"
	"strconv"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

// capture keeps changes from a position on.
type capture struct {
	from  int
	ended chan struct{}
}

func newCapture(from int) *capture { return &capture{from, make(chan struct{})} }

// release ends a capture, and what is under way under its id.
func (s *shard) release(id string) {
	if c := s.captures[id]; c != nil {
		close(c.ended)
		delete(s.captures, id)
	}
	delete(s.appliers, id)
	s.loads[id]++
}

// Changes sends what is in the log, each change as a transaction of its own.
func (m *mover) Changes(ctx context.Context, id string, set engine.Set, after, until engine.Position, to engine.ChangeSink) error {
	var life int
	var c *capture
	if err := m.look(func() { life, c = m.s.lives, m.s.captures[id] }); err != nil {
		return err
	}
	// Where only some of the tables are brought to a position, a copy goes on.
	blind := m.s.w.o.Break == NoCatchUp && len(set.Tables) < len(keys)
	for n := number(after); ; n++ {
		var e entry
		var is *capture
		var more, down, changed = false, (chan struct{})(nil), (chan struct{})(nil)
		if err := m.look(func() {
			is, down, changed = m.s.captures[id], m.s.down, m.s.changed
			if m.s.lives != life {
				is = nil
			}
			for more = false; n < len(m.s.log) && (until == "" || n < number(until)); n++ {
				if _, more = has(&set, m.s.log[n].key); more && !blind {
					e = m.s.log[n]
					return
				}
				more = false
			}
		}); err != nil {
			return err
		}
		if is == nil || is != c || number(after) < c.from && n == number(after) {
			return sqlstate.New(sqlstate.ObjectNotInState, "the changes after %s are not kept", after)
		}
		if more {
			if err := to.Change(ctx, changeOf(&set, e)); err != nil {
				return err
			}
			if err := to.Commit(ctx, at(n+1)); err != nil {
				return err
			}
			continue
		}
		if until != "" {
			return ctx.Err()
		}
		if err := to.Commit(ctx, at(n)); err != nil { // nothing new
			return err
		}
		n--
		select {
		case <-changed:
		case <-down:
			return &engine.LostError{Shard: m.s.name, Sent: true, Err: errors.New("the shard went away")}
		case <-c.ended:
			return errors.New("the capture was released")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func changeOf(set *engine.Set, e entry) *engine.Change {
	c := &engine.Change{Op: engine.ChangeUpdate, Same: []bool{false, false}}
	c.Table, _ = has(set, e.key)
	row := func(ids []int) []engine.Text {
		return []engine.Text{{String: strconv.Itoa(e.key)}, {String: idsText(ids)}}
	}
	if e.before != nil {
		c.Old = row(e.before)
	}
	if e.after != nil {
		c.New = row(e.after)
	}
	switch {
	case e.before == nil:
		c.Op = engine.ChangeInsert
	case e.after == nil:
		c.Op = engine.ChangeDelete
	}
	return c
}

// applier commits each transaction with its position.
type applier struct {
	m       *mover
	id      string
	life    int
	pending []*engine.Change
	at      engine.Position // everything before it has been given, and is committed
}

func (m *mover) Apply(ctx context.Context, id string, _ engine.Set) (engine.Applier, error) {
	after, err := m.enter(ctx, "applies "+id, nil)
	if err != nil {
		return nil, err
	}
	a := &applier{m: m, id: id, life: m.s.lives}
	m.s.appliers[id] = a
	if err := after(nil); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *applier) Change(_ context.Context, c *engine.Change) error {
	a.pending = append(a.pending, c)
	return nil
}

// Commit waits for the locks of the rows. A change that does not find its row as it was is a violation: no order of what
// happens makes it one.
func (a *applier) Commit(ctx context.Context, to engine.Position) error {
	if len(a.pending) == 0 {
		a.at = to
		return nil
	}
	s := a.m.s
	return a.write(ctx, "commits", to, func() bool {
		for _, c := range a.pending {
			if !s.free(nil, changed(c)) {
				return false
			}
		}
		return true
	})
}

// write commits what is pending with a position, when ready.
func (a *applier) write(ctx context.Context, what string, to engine.Position, ready func() bool) error {
	s := a.m.s
	after, err := a.m.enter(ctx, what+" "+a.id, ready)
	if err != nil {
		return err
	}
	switch {
	case s.lives != a.life:
		return after(&engine.LostError{Shard: s.name, Sent: true, Err: errors.New("the shard went away")})
	case s.appliers[a.id] != a:
		return after(sqlstate.New(sqlstate.AdminShutdown, "another one applies"))
	}
	for _, c := range a.pending {
		k := changed(c)
		old, have := "", idsText(s.rows[k])
		if c.Old != nil {
			old = c.Old[1].String
		}
		if have != old {
			s.w.fail("stream %s does not fit at %s: key %d was %q, and is %q on %s", a.id, to, k, old, have, s.name)
		}
		if c.New == nil {
			s.put(k, nil)
		} else {
			s.put(k, idsOf(c.New[1].String))
		}
	}
	s.applied[a.id] = to
	a.pending, a.at = nil, to
	return after(nil)
}

// Flush stores the position: everything else is committed already.
func (a *applier) Flush(ctx context.Context) (engine.Position, error) {
	is, err := a.m.Applied(ctx, a.id)
	if err != nil || a.at == "" || is == a.at {
		return is, err
	}
	return a.at, a.write(ctx, "flushes", a.at, a.m.s.mine)
}

// changed is the key of a change.
func changed(c *engine.Change) int {
	list := c.New
	if list == nil {
		list = c.Old
	}
	k, err := strconv.Atoi(list[0].String)
	if err != nil {
		panic(err)
	}
	return k
}

func (a *applier) Close() error { return nil }
