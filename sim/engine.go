package sim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// simulated is a shard as one life of a coordinator sees it. It keeps what [engine.Mover] promises, and nothing beyond that: an
// effect that needs more is found. Each key is the one row of a table of its own, t50 (k bigint, v text), whose identity are both
// columns, so that a change says what the row was.
//
// The methods that it does not have are called by nobody here.
type simulated struct {
	engine.Shard
	s *shard
	l *life
}

func (s *simulated) Name() string { return s.s.name }

func (s *simulated) Connect(context.Context, map[string]string) (engine.Conn, error) {
	return &conn{s: s}, nil
}

func (s *simulated) Mover(token uint64) engine.Mover {
	m := &mover{simulated: s, token: token}
	if s.s.w.files {
		return m
	}
	return &opener{m}
}

// conn knows of guards only.
type conn struct {
	engine.Conn
	s *simulated
}

func (c *conn) Close() error { return nil }

func (c *conn) Guard(context.Context, string, string) (*engine.GuardState, error) {
	if err := c.s.l.peek(); err != nil {
		return nil, err
	}
	defer c.s.s.w.mu.Unlock()
	own := c.s.s.owned
	return &engine.GuardState{Keyspace: own.Keyspace, Epoch: own.Epoch, Owns: own.Encode()}, nil
}

// mover is a shard's for one leader.
type mover struct {
	*simulated
	token uint64
}

func at(n int) engine.Position { return engine.Position(strconv.Itoa(n)) }

func number(p engine.Position) int {
	n, _ := strconv.Atoi(string(p)) // "" is before everything
	return n
}

func tableOf(k int) string { return "t" + strconv.Itoa(k) }

func keyIn(table string) int {
	k, err := strconv.Atoi(table[1:])
	if err != nil {
		panic(err)
	}
	return k
}

// has reports whether a set has a key, as the row of which of its tables.
func has(set *engine.Set, k int) (table int, ok bool) {
	table = slices.IndexFunc(set.Tables, func(t engine.MoveTable) bool { return t.Name == tableOf(k) })
	return table, table >= 0 && set.Keys.Owns(keyOf(k)) != set.Except
}

// idsText is a row's column v.
func idsText(ids []int) string {
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = strconv.Itoa(id)
	}
	return strings.Join(text, ",")
}

func idsOf(text string) (ids []int) {
	for id := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(id)
		if err != nil {
			panic(err)
		}
		ids = append(ids, n)
	}
	return ids
}

// enter waits for the turn of a method that changes something; ready, if there is one, is what it waits for on the shard.
func (m *mover) enter(ctx context.Context, what string, ready func() bool) (after func(error) error, err error) {
	after, err = m.l.pass(ctx, m.s.name, what+" on "+m.s.name, ready)
	if err == nil && !m.s.may(m.token) {
		return nil, after(sqlstate.New(sqlstate.ObjectNotInState, "the leadership has ended"))
	}
	return after, err
}

// look is for methods that change nothing and need no turn.
func (m *mover) look(f func()) error {
	if err := m.l.peek(); err != nil {
		return err
	}
	defer m.s.w.mu.Unlock()
	f()
	return nil
}

func (m *mover) Seize(context.Context) error {
	err := errors.New("the leadership has ended")
	return errors.Join(m.look(func() {
		if m.s.seize(m.token) || m.s.w.o.Break == NoToken {
			err = nil
		}
	}), err)
}

func (m *mover) Describe(_ context.Context, tables []engine.MoveTable) ([]engine.MoveTable, error) {
	out := slices.Clone(tables)
	for i := range out {
		out[i].Columns, out[i].Types, out[i].Identity = []string{"k", "v"}, []string{"bigint", "text"}, []string{"k", "v"}
	}
	return out, nil
}

func (m *mover) CheckMove(context.Context, []engine.MoveTable) ([]engine.Finding, error) {
	return nil, nil
}

func (m *mover) Sizes(context.Context, engine.Set) (rows, bytes int64, err error) {
	return int64(len(keys)), 10 * int64(len(keys)), nil
}

func (m *mover) view(set engine.Set) *snapshot {
	v := &snapshot{m: m, life: m.s.lives, position: at(len(m.s.log)), set: set, rows: map[int][]int{}}
	for k, ids := range m.s.rows {
		if _, ok := has(&set, k); ok {
			v.rows[k] = ids
		}
	}
	return v
}

func (m *mover) Capture(ctx context.Context, id string, set engine.Set) (engine.RowSource, error) {
	after, err := m.enter(ctx, "captures "+id, m.s.mine)
	if err != nil {
		return nil, err
	}
	m.s.release(id)
	m.s.captures[id] = newCapture(len(m.s.log))
	v := m.view(set)
	return v, after(nil)
}

func (m *mover) CaptureChanges(ctx context.Context, id string, _ engine.Set) (engine.Position, error) {
	after, err := m.enter(ctx, "captures changes "+id, m.s.mine)
	if err != nil {
		return "", err
	}
	if m.s.captures[id] == nil {
		m.s.captures[id] = newCapture(len(m.s.log))
		if move, _ := workflow.StreamOf(id); m.s.w.o.Break == NoMark {
			m.s.w.shards[m.s.w.flows[move].Spec.From].applied[id] = at(len(m.s.log))
		}
	}
	from := m.s.captures[id].from
	return at(from), after(nil)
}

func (m *mover) CaptureRows(ctx context.Context, id string, set engine.Set) (engine.RowSource, error) {
	after, err := m.enter(ctx, "captures rows "+id, m.s.mine)
	if err != nil {
		return nil, err
	}
	if m.s.captures[id] == nil {
		return nil, after(sqlstate.New(sqlstate.ObjectNotInState, "nothing is captured"))
	}
	v := m.view(set)
	return v, after(nil)
}

func (m *mover) Forget(_ context.Context, id string, upTo engine.Position) error {
	return m.look(func() {
		if c := m.s.captures[id]; c != nil {
			c.from = max(c.from, number(upTo))
		}
	})
}

func (m *mover) Here(context.Context) (here engine.Position, err error) {
	return here, m.look(func() { here = at(len(m.s.log)) })
}

func (m *mover) Reached(at, goal engine.Position) bool {
	return number(at) >= number(goal) || m.s.w.o.Break == NoDrain
}

func (m *mover) Lag(context.Context, string, engine.Position) (int64, error) { return 0, nil }

func (m *mover) Release(ctx context.Context, id string) error {
	after, err := m.enter(ctx, "releases "+id, m.s.mine)
	if err != nil {
		return err
	}
	m.s.release(id)
	delete(m.s.applied, id)
	delete(m.s.loaded, id)
	return after(nil)
}

func (m *mover) Captures(context.Context) (ids []string, err error) {
	return ids, m.look(func() {
		all := maps.Collect(maps.All(m.s.applied))
		for id := range m.s.captures {
			all[id] = ""
		}
		ids = slices.Sorted(maps.Keys(all))
	})
}

// Load adds a row. What is loaded and not noted is purged before the next try.
func (m *mover) Load(ctx context.Context, id string, table *engine.MoveTable, _ engine.Part, rows io.Reader) (n int64, err error) {
	number := 0
	if err := m.look(func() { number = m.s.loads[id] }); err != nil {
		return 0, err
	}
	life := m.s.lives
	for in := bufio.NewScanner(rows); in.Scan(); n++ {
		_, text, _ := strings.Cut(in.Text(), "\t")
		k := keyIn(table.Name)
		after, err := m.enter(ctx, "loads "+id+" "+table.Name, func() bool { return m.s.free(nil, k) })
		if err != nil {
			return n, err
		}
		_, there := m.s.rows[k]
		switch {
		case m.s.lives != life || m.s.loads[id] != number:
			err = &engine.LostError{Shard: m.s.name, Sent: true, Err: errors.New("the shard went away")}
		case there:
			err = sqlstate.New(sqlstate.UniqueViolation, "row %d is there", k)
		default:
			m.s.put(k, idsOf(text))
		}
		if err := after(err); err != nil {
			return n, err
		}
	}
	return n, nil
}

// ForgetParts has nothing to forget: a table of one row has one part.
func (m *mover) ForgetParts(context.Context, string, *engine.MoveTable) error { return nil }

func (m *mover) SetLoaded(ctx context.Context, id string, table engine.LoadedTable) error {
	after, err := m.enter(ctx, "notes as loaded "+id+" "+table.Name, m.s.mine)
	if err != nil {
		return err
	}
	m.s.loaded[id] = append(m.s.loaded[id], table)
	return after(nil)
}

func (m *mover) Loaded(_ context.Context, id string) (list []engine.LoadedTable, err error) {
	return list, m.look(func() {
		m.s.loads[id]++
		list = slices.Clone(m.s.loaded[id])
	})
}

func (m *mover) Applied(_ context.Context, id string) (at engine.Position, err error) {
	return at, m.look(func() { at = m.s.applied[id] })
}

func (m *mover) SetApplied(ctx context.Context, id string, at engine.Position) error {
	after, err := m.enter(ctx, "sets applied "+id, m.s.mine)
	if err != nil {
		return err
	}
	if move, _ := workflow.StreamOf(id); m.s.w.o.Break != NoMark || id != workflow.Back(move) {
		delete(m.s.appliers, id)
		m.s.applied[id] = at
	}
	return after(nil)
}

// Fence waits for writers; readers of the log see no write behind its position that the old guard let through.
func (m *mover) Fence(ctx context.Context, guards []engine.Guard) (engine.Position, error) {
	after, err := m.enter(ctx, "fences", m.s.fenceFree)
	if err != nil {
		if ctx.Err() != nil {
			err = sqlstate.New(sqlstate.LockNotAvailable, "writers are at work")
		}
		return "", err
	}
	here := at(len(m.s.log))
	m.s.guardBy(guards)
	return here, after(nil)
}

func (m *mover) View(ctx context.Context, set engine.Set) (engine.View, error) {
	after, err := m.enter(ctx, "views "+set.Keys.Describe(), nil)
	if err != nil {
		return nil, err
	}
	v := m.view(set)
	return &sums{v}, after(nil)
}

func (m *mover) Sums(ctx context.Context, set engine.Set, pace engine.Pace) (list []engine.Sum, err error) {
	var v *snapshot
	if err := m.look(func() { v = m.view(set) }); err != nil {
		return nil, err
	}
	return (&sums{v}).Sums(ctx, pace)
}

// Purge deletes row by row.
func (m *mover) Purge(ctx context.Context, set engine.Set, limit int) (n int, err error) {
	next := func() (int, bool) {
		for _, k := range keys {
			if _, there := m.s.rows[k]; there {
				if _, ok := has(&set, k); ok {
					return k, true
				}
			}
		}
		return 0, false
	}
	for n < limit {
		after, err := m.enter(ctx, "purges "+set.Keys.Describe(), func() bool {
			k, ok := next()
			return !ok || m.s.free(nil, k)
		})
		if err != nil {
			return n, err
		}
		k, ok := next()
		if ok {
			if m.s.guard.Owns(keyOf(k)) {
				m.s.w.fail("shard %s is purged of key %d, whose writes it takes", m.s.name, k)
			}
			m.s.put(k, nil)
			n++
		}
		if err := after(nil); err != nil || !ok {
			return n, err
		}
	}
	return n, nil
}

// opener is the mover of a shard on which guards are widened without a lock.
type opener struct{ *mover }

func (m *opener) Open(ctx context.Context, guards []engine.Guard) error {
	after, err := m.enter(ctx, "opens", nil)
	if err != nil {
		return err
	}
	m.s.guardBy(guards)
	return after(nil)
}

// guardBy sets the guards, which are the same for all tables.
func (s *shard) guardBy(guards []engine.Guard) {
	if s.w.o.Break == BlindBack && s.w.blind(s.name) {
		return
	}
	s.owned = guards[0].Owned
	s.setGuard(keyspace.NewOwner(s.owned))
}

// blind reports whether the opening of a shard is being taken back.
func (w *world) blind(shard string) bool {
	for _, f := range w.flows {
		if f.Step == workflow.Reopening && f.Target() == shard && f.MayBeOpen {
			return true
		}
	}
	return false
}

// snapshot is one consistent view of a set's rows.
type snapshot struct {
	m        *mover
	life     int
	position engine.Position
	set      engine.Set
	rows     map[int][]int
}

func (v *snapshot) Position() engine.Position { return v.position }

func (v *snapshot) Close() error { return nil }

// lost is the error of a view whose shard has crashed since.
func (v *snapshot) lost() (err error) {
	return errors.Join(v.m.look(func() {
		if v.m.s.lives != v.life {
			err = &engine.LostError{Shard: v.m.s.name, Sent: true, Err: errors.New("the shard went away")}
		}
	}), err)
}

func (v *snapshot) Parts(context.Context, int, int64, []engine.Part) ([]engine.Part, error) {
	return []engine.Part{{}}, nil
}

func (v *snapshot) Rows(_ context.Context, table int, _ engine.Part, _ engine.Pace, to io.Writer) error {
	if err := v.lost(); err != nil {
		return err
	}
	k := keyIn(v.set.Tables[table].Name)
	ids, ok := v.rows[k]
	if !ok {
		return nil
	}
	_, err := fmt.Fprintf(to, "%d\t%s\n", k, idsText(ids))
	return err
}

// sums is a view to compare by.
type sums struct{ *snapshot }

func (v *sums) Sums(context.Context, engine.Pace) ([]engine.Sum, error) {
	if err := v.lost(); err != nil {
		return nil, err
	}
	out := make([]engine.Sum, len(v.set.Tables))
	for k, ids := range v.rows {
		i, _ := has(&v.set, k)
		h := fnv.New64a()
		fmt.Fprintf(h, "%d:%v", k, ids)
		out[i] = engine.Sum{Rows: 1, Checksum: h.Sum64()}
	}
	return out, nil
}
