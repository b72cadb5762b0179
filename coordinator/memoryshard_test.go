package coordinator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// memoryShard is a shard in memory, with one table t (k bigint PRIMARY KEY, v text), whose shard key is k. It keeps what engine.Mover promises,
// so that what the coordinator makes of it is tried in milliseconds: each stop, each error, each order. That the real shards keep it too is
// engine/enginetest's.
type memoryShard struct {
	name string
	// fail, if it is set, is asked before each method of a mover, and before a client's write ("add").
	fail func(method string) error

	mu       sync.Mutex
	changed  chan struct{} // closed with the next change, and made anew
	rows     map[int64]string
	log      []logged // the position of a change is how many there are with it
	guard    *engine.Guard
	token    uint64
	applied  map[string]engine.Position
	loaded   map[string][]engine.LoadedTable
	captures map[string]*captured
	appliers map[string]*memoryApplier
}

// logged is a change; nil is no row.
type logged struct {
	k        int64
	old, new *string
}

type captured struct {
	from  int
	ended chan struct{}
}

func newMemoryShard(name string) *memoryShard {
	return &memoryShard{name: name, changed: make(chan struct{}), rows: map[int64]string{}, applied: map[string]engine.Position{},
		loaded: map[string][]engine.LoadedTable{}, captures: map[string]*captured{}, appliers: map[string]*memoryApplier{}}
}

func (s *memoryShard) Name() string                                 { return s.name }
func (s *memoryShard) Engine() string                               { return "memory" }
func (s *memoryShard) Check(context.Context) (engine.Report, error) { return engine.Report{}, nil }
func (s *memoryShard) Install(context.Context) error                { return nil }
func (s *memoryShard) Close() error                                 { return nil }
func (s *memoryShard) Mover(token uint64) engine.Mover              { return &memoryMover{s, token} }
func (s *memoryShard) Connect(context.Context, map[string]string) (engine.Conn, error) {
	return &memoryConn{s: s}, nil
}

// memoryConn knows of guards only.
type memoryConn struct {
	engine.Conn
	s *memoryShard
}

func (c *memoryConn) Close() error { return nil }

func (c *memoryConn) Guard(context.Context, string, string) (*engine.GuardState, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.guard == nil {
		return nil, nil
	}
	return &engine.GuardState{Keyspace: c.s.guard.Owned.Keyspace, Epoch: c.s.guard.Owned.Epoch, Owns: c.s.guard.Owned.Encode()}, nil
}

func key(k int64) keyspace.Key { return keyspace.Key{keyspace.Int(keyspace.Int8, k)} }

func at(n int) engine.Position { return engine.Position(strconv.Itoa(n)) }

func number(p engine.Position) int {
	n, _ := strconv.Atoi(string(p)) // "" is before everything
	return n
}

func (s *memoryShard) ask(method string) error {
	if s.fail == nil {
		return nil
	}
	return s.fail(method)
}

// put writes a row, or deletes it; mu is held.
func (s *memoryShard) put(k int64, v *string) {
	var old *string
	if was, ok := s.rows[k]; ok {
		old = &was
	}
	if v == nil {
		delete(s.rows, k)
	} else {
		s.rows[k] = *v
	}
	s.log = append(s.log, logged{k, old, v})
	close(s.changed)
	s.changed = make(chan struct{})
}

// add is a client's write, which the guard lets through or not: the row counts one more.
func (s *memoryShard) add(k int64) error {
	if err := s.ask("add"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guard != nil && !s.guard.Owned.Owns(key(k)) {
		return sqlstate.New(sqlstate.NotOwner, "key %d is not of shard %s", k, s.name)
	}
	n, _ := strconv.Atoi(s.rows[k]) // 0, if there is none
	v := strconv.Itoa(n + 1)
	s.put(k, &v)
	return nil
}

func (s *memoryShard) all() map[int64]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[int64]string{}
	for k, v := range s.rows {
		out[k] = v
	}
	return out
}

// memoryMover is the mover of a leader.
type memoryMover struct {
	s     *memoryShard
	token uint64
}

// enter locks the shard for a method that changes something.
func (m *memoryMover) enter(method string) error {
	if err := m.s.ask(method); err != nil {
		return err
	}
	m.s.mu.Lock()
	if m.token < m.s.token {
		m.s.mu.Unlock()
		return sqlstate.New(sqlstate.ObjectNotInState, "the leadership has ended")
	}
	return nil
}

func (m *memoryMover) Seize(context.Context) error {
	if err := m.s.ask("Seize"); err != nil {
		return err
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.token = max(m.s.token, m.token)
	return nil
}

func (m *memoryMover) Describe(_ context.Context, tables []engine.MoveTable) ([]engine.MoveTable, error) {
	if err := m.s.ask("Describe"); err != nil {
		return nil, err
	}
	out := slices.Clone(tables)
	for i := range out {
		out[i].Columns, out[i].Types, out[i].Identity = []string{"k", "v"}, []string{"bigint", "text"}, []string{"k"}
	}
	return out, nil
}

func (m *memoryMover) CheckMove(context.Context, []engine.MoveTable) ([]engine.Finding, error) {
	return nil, m.s.ask("CheckMove")
}

// has reports whether a set has a row. One without tables has none.
func has(set *engine.Set, k int64) bool {
	return len(set.Tables) > 0 && set.Keys.Owns(key(k)) != set.Except
}

func (m *memoryMover) view(set engine.Set) *memoryView {
	v := &memoryView{position: at(len(m.s.log)), rows: map[int64]string{}, tables: len(set.Tables), log: m.s.log}
	for k, row := range m.s.rows {
		if has(&set, k) {
			v.rows[k] = row
		}
	}
	return v
}

func (m *memoryMover) Capture(_ context.Context, id string, set engine.Set) (engine.RowSource, error) {
	if err := m.enter("Capture"); err != nil {
		return nil, err
	}
	defer m.s.mu.Unlock()
	m.release(id)
	m.s.captures[id] = &captured{from: len(m.s.log), ended: make(chan struct{})}
	return m.view(set), nil
}

func (m *memoryMover) CaptureChanges(_ context.Context, id string, _ engine.Set) (engine.Position, error) {
	if err := m.enter("CaptureChanges"); err != nil {
		return "", err
	}
	defer m.s.mu.Unlock()
	c := m.s.captures[id]
	if c == nil {
		c = &captured{from: len(m.s.log), ended: make(chan struct{})}
		m.s.captures[id] = c
	}
	return at(c.from), nil
}

func (m *memoryMover) CaptureRows(_ context.Context, id string, set engine.Set) (engine.RowSource, error) {
	if err := m.enter("CaptureRows"); err != nil {
		return nil, err
	}
	defer m.s.mu.Unlock()
	if m.s.captures[id] == nil {
		return nil, sqlstate.New(sqlstate.ObjectNotInState, "nothing is captured")
	}
	return m.view(set), nil
}

func (m *memoryMover) Changes(ctx context.Context, id string, set engine.Set, after, until engine.Position, to engine.ChangeSink) error {
	if err := m.s.ask("Changes"); err != nil {
		return err
	}
	for n := number(after); ; n++ {
		m.s.mu.Lock()
		c, changed, end := m.s.captures[id], m.s.changed, len(m.s.log)
		var l logged
		if n < end {
			l = m.s.log[n]
		}
		m.s.mu.Unlock()
		if c == nil || number(after) < c.from {
			return sqlstate.New(sqlstate.ObjectNotInState, "the changes after %s are not kept", after)
		}
		if until != "" && n >= number(until) {
			return ctx.Err()
		}
		if n >= end {
			if err := to.Commit(ctx, at(n)); err != nil { // nothing new
				return err
			}
			select {
			case <-changed:
				n--
				continue
			case <-c.ended:
				return errors.New("the capture was released")
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if has(&set, l.k) {
			if err := to.Change(ctx, change(l)); err != nil {
				return err
			}
		}
		if err := to.Commit(ctx, at(n+1)); err != nil {
			return err
		}
	}
}

func change(l logged) *engine.Change {
	c := &engine.Change{Op: engine.ChangeUpdate, Same: []bool{false, false}}
	k := engine.Text{String: strconv.FormatInt(l.k, 10)}
	if l.old != nil {
		c.Old = []engine.Text{k}
	}
	if l.new != nil {
		c.New = []engine.Text{k, {String: *l.new}}
	}
	switch {
	case l.old == nil:
		c.Op = engine.ChangeInsert
	case l.new == nil:
		c.Op = engine.ChangeDelete
	}
	return c
}

func (m *memoryMover) Forget(context.Context, string, engine.Position) error {
	return m.s.ask("Forget")
}

func (m *memoryMover) Here(context.Context) (engine.Position, error) {
	if err := m.s.ask("Here"); err != nil {
		return "", err
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return at(len(m.s.log)), nil
}

func (m *memoryMover) Reached(at, goal engine.Position) bool { return number(at) >= number(goal) }

func (m *memoryMover) Lag(context.Context, string, engine.Position) (int64, error) { return 0, nil }

func (m *memoryMover) Release(_ context.Context, id string) error {
	if err := m.enter("Release"); err != nil {
		return err
	}
	defer m.s.mu.Unlock()
	m.release(id)
	delete(m.s.applied, id)
	delete(m.s.loaded, id)
	return nil
}

func (m *memoryMover) release(id string) {
	if c := m.s.captures[id]; c != nil {
		close(c.ended)
		delete(m.s.captures, id)
	}
	m.supersede(id)
}

// supersede ends an applier that is under way; mu is held.
func (m *memoryMover) supersede(id string) {
	if a := m.s.appliers[id]; a != nil {
		a.over = true
		delete(m.s.appliers, id)
	}
}

func (m *memoryMover) Captures(context.Context) (ids []string, err error) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	for id := range m.s.captures {
		ids = append(ids, id)
	}
	for id := range m.s.applied {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Load adds the rows one by one, or all at once with the note that they are there.
func (m *memoryMover) Load(_ context.Context, id string, table *engine.MoveTable, part engine.Part, rows io.Reader) (n int64, err error) {
	if err := m.s.ask("Load"); err != nil {
		return 0, err
	}
	read := map[int64]string{}
	in := bufio.NewScanner(rows)
	for in.Scan() {
		k, v, _ := strings.Cut(in.Text(), "\t")
		key, err := strconv.ParseInt(k, 10, 64)
		if err != nil {
			return n, err
		}
		if read[key] = v; part.Since == "" {
			if err := m.add(read, nil); err != nil {
				return n, err
			}
			n++
			clear(read)
		}
	}
	if err := in.Err(); err != nil || part.Since == "" {
		return n, err
	}
	return int64(len(read)), m.add(read, func() { m.note(id, table, part, int64(len(read))) })
}

// add adds rows, and calls with in the same transaction.
func (m *memoryMover) add(rows map[int64]string, with func()) error {
	if err := m.enter("a row"); err != nil {
		return err
	}
	defer m.s.mu.Unlock()
	for id := range rows {
		if _, there := m.s.rows[id]; there {
			return sqlstate.New(sqlstate.UniqueViolation, "row %d is there", id)
		}
	}
	for id, v := range rows {
		m.s.put(id, &v)
	}
	if with != nil {
		with()
	}
	return nil
}

// note notes a part that is loaded; mu is held.
func (m *memoryMover) note(id string, table *engine.MoveTable, part engine.Part, rows int64) {
	list := m.s.loaded[id]
	i := slices.IndexFunc(list, func(t engine.LoadedTable) bool { return t.Name == table.Name })
	if i < 0 {
		i, list = len(list), append(list, engine.LoadedTable{Schema: table.Schema, Name: table.Name})
	}
	list[i].Rows += rows
	note := engine.Part{Place: part.Place, Since: part.Since}
	if at := slices.IndexFunc(list[i].Parts, func(p engine.Part) bool { return p.Place == part.Place }); at >= 0 {
		list[i].Parts[at] = note
	} else {
		list[i].Parts = append(list[i].Parts, note)
	}
	m.s.loaded[id] = list
}

func (m *memoryMover) ForgetParts(_ context.Context, id string, table *engine.MoveTable) error {
	if err := m.enter("ForgetParts"); err != nil {
		return err
	}
	defer m.s.mu.Unlock()
	m.s.loaded[id] = slices.DeleteFunc(m.s.loaded[id], func(t engine.LoadedTable) bool { return t.Name == table.Name && t.Parts != nil })
	return nil
}

func (m *memoryMover) SetLoaded(_ context.Context, id string, table engine.LoadedTable) error {
	if err := m.enter("SetLoaded"); err != nil {
		return err
	}
	defer m.s.mu.Unlock()
	m.s.loaded[id] = append(slices.DeleteFunc(m.s.loaded[id], func(t engine.LoadedTable) bool { return t.Name == table.Name }), table)
	return nil
}

func (m *memoryMover) Loaded(_ context.Context, id string) ([]engine.LoadedTable, error) {
	if err := m.enter("Loaded"); err != nil {
		return nil, err
	}
	defer m.s.mu.Unlock()
	list := slices.Clone(m.s.loaded[id])
	for i := range list {
		list[i].Parts = slices.Clone(list[i].Parts)
	}
	return list, nil
}

func (m *memoryMover) Applied(_ context.Context, id string) (engine.Position, error) {
	if err := m.s.ask("Applied"); err != nil {
		return "", err
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.s.applied[id], nil
}

func (m *memoryMover) SetApplied(_ context.Context, id string, at engine.Position) error {
	if err := m.enter("SetApplied"); err != nil {
		return err
	}
	defer m.s.mu.Unlock()
	m.supersede(id)
	m.s.applied[id] = at
	return nil
}

func (m *memoryMover) Fence(_ context.Context, guards []engine.Guard) (engine.Position, error) {
	if err := m.enter("Fence"); err != nil {
		return "", err
	}
	defer m.s.mu.Unlock()
	for i := range guards {
		m.s.guard = &guards[i]
	}
	return at(len(m.s.log)), nil
}

func (m *memoryMover) View(_ context.Context, set engine.Set) (engine.View, error) {
	if err := m.s.ask("View"); err != nil {
		return nil, err
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.view(set), nil
}

func (m *memoryMover) Sums(ctx context.Context, set engine.Set, pace engine.Pace) ([]engine.Sum, error) {
	if err := m.s.ask("Sums"); err != nil {
		return nil, err
	}
	m.s.mu.Lock()
	v := m.view(set)
	m.s.mu.Unlock()
	return v.Sums(ctx, pace)
}

func (m *memoryMover) Purge(_ context.Context, set engine.Set, limit int) (n int, err error) {
	if err := m.enter("Purge"); err != nil {
		return 0, err
	}
	defer m.s.mu.Unlock()
	for k := range m.s.rows {
		if n < limit && has(&set, k) {
			m.s.put(k, nil)
			n++
		}
	}
	return n, nil
}

func (m *memoryMover) Sizes(_ context.Context, set engine.Set) (rows, bytes int64, err error) {
	if err := m.s.ask("Sizes"); err != nil {
		return 0, 0, err
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	n := int64(len(m.view(set).rows))
	return n, 10 * n, nil
}

// memoryView is both a RowSource and a View.
type memoryView struct {
	position engine.Position
	rows     map[int64]string
	tables   int
	log      []logged // up to the view
}

func (v *memoryView) Position() engine.Position { return v.position }

func (v *memoryView) Close() error { return nil }

// memoryParts are the parts of a table that is divided; a row's is that of its key.
const memoryParts = 8

func (v *memoryView) Parts(_ context.Context, _ int, bytes int64, there []engine.Part) (list []engine.Part, err error) {
	if 10*int64(len(v.rows)) <= bytes && there == nil {
		return []engine.Part{{}}, nil
	}
	for part := range memoryParts {
		p := engine.Part{Place: strconv.Itoa(part), Since: string(v.position)}
		for _, t := range there {
			if t.Place == p.Place {
				p.Changed = t.Since
			}
		}
		list = append(list, p)
	}
	return list, nil
}

func (v *memoryView) Rows(_ context.Context, _ int, part engine.Part, _ engine.Pace, to io.Writer) error {
	changed := map[int64]bool{}
	if part.Changed != "" {
		for _, l := range v.log[number(engine.Position(part.Changed)):] {
			changed[l.k] = true
		}
	}
	for k, row := range v.rows {
		if part.Place != "" && strconv.FormatInt(k%memoryParts, 10) != part.Place || part.Changed != "" && !changed[k] {
			continue
		}
		if _, err := fmt.Fprintf(to, "%d\t%s\n", k, row); err != nil {
			return err
		}
	}
	return nil
}

func (v *memoryView) Sums(context.Context, engine.Pace) ([]engine.Sum, error) {
	out := make([]engine.Sum, v.tables)
	for k, row := range v.rows {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d:%s", k, row)
		out[0].Rows++
		out[0].Checksum += h.Sum64()
	}
	return out, nil
}

// memoryApplier commits each transaction with its position.
type memoryApplier struct {
	m       *memoryMover
	id      string
	over    bool // another one has begun; the shard's mu
	pending []engine.Change
}

func (m *memoryMover) Apply(_ context.Context, id string, _ engine.Set) (engine.Applier, error) {
	if err := m.enter("Apply"); err != nil {
		return nil, err
	}
	defer m.s.mu.Unlock()
	m.supersede(id)
	a := &memoryApplier{m: m, id: id}
	m.s.appliers[id] = a
	return a, nil
}

func (a *memoryApplier) Change(_ context.Context, c *engine.Change) error {
	a.pending = append(a.pending, engine.Change{Op: c.Op, Old: slices.Clone(c.Old), New: slices.Clone(c.New)})
	return nil
}

func (a *memoryApplier) Commit(_ context.Context, at engine.Position) error {
	if err := a.m.enter("Commit"); err != nil {
		return err
	}
	defer a.m.s.mu.Unlock()
	if a.over {
		return sqlstate.New(sqlstate.AdminShutdown, "another one applies")
	}
	for _, c := range a.pending {
		list := c.New
		if c.Op == engine.ChangeDelete || c.Op == engine.ChangeLeave {
			list = c.Old
		}
		k, err := strconv.ParseInt(list[0].String, 10, 64)
		if err != nil {
			return err
		}
		_, there := a.m.s.rows[k]
		if c.Op == engine.ChangeLeave {
			if there {
				a.m.s.put(k, nil)
			}
			continue
		}
		if there != (c.Op != engine.ChangeInsert) {
			return sqlstate.New(sqlstate.DataCorrupted, "row %d is there: %v", k, there)
		}
		if c.Op == engine.ChangeDelete {
			a.m.s.put(k, nil)
		} else {
			a.m.s.put(k, &list[1].String)
		}
	}
	a.pending = nil
	a.m.s.applied[a.id] = at
	return nil
}

func (a *memoryApplier) Flush(context.Context) (engine.Position, error) {
	a.m.s.mu.Lock()
	defer a.m.s.mu.Unlock()
	return a.m.s.applied[a.id], nil
}

func (a *memoryApplier) Close() error { return nil }
