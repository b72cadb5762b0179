package moment

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

const (
	// askMax is how long a member may take to answer while others are hushed.
	askMax = 100 * time.Millisecond
	// callMax is how long it may take while nobody is.
	callMax = time.Second
	// callPause is between two tries to reach members.
	callPause = 100 * time.Millisecond
	// listAge is how old a list of members may be when a meeting begins. Its age counts as time that the moment takes.
	listAge = 100 * time.Millisecond
	// failedFor is how long others are told at once that members could not be reached.
	failedFor = time.Second
)

// Peers are the other routers of the cluster, which are asked directly.
type Peers struct {
	dir  shardmap.Directory
	self string
	key  *Key
	end  chan struct{} // closed by Close

	mu     sync.Mutex       // held from Meet to Lift
	lines  map[string]*line // by id
	list   []shardmap.MemberState
	listed time.Time // from before list was read; zero: there is none
	failed error     // of the last meeting, until forgotten
	forget time.Time
}

// NewPeers makes the Peers of a member.
func NewPeers(dir shardmap.Directory, self string, key *Key) *Peers {
	return &Peers{dir: dir, self: self, key: key, end: make(chan struct{}), lines: map[string]*line{}}
}

// Close ends the conversations, for good. It is called once.
func (p *Peers) Close() {
	close(p.end)
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.lines {
		p.drop(id)
	}
}

// members are those that there were a moment ago. since is from before the directory was asked.
func (p *Peers) members(ctx context.Context) (list []shardmap.MemberState, since time.Time, err error) {
	if time.Since(p.listed) > listAge {
		began := time.Now()
		p.listed = time.Time{}
		if p.list, err = p.dir.Members(ctx); err != nil {
			return nil, began, err
		}
		p.listed = began
	}
	return p.list, p.listed, nil
}

func (p *Peers) drop(id string) {
	if l := p.lines[id]; l != nil {
		_ = l.nc.Close() // it is given up
		delete(p.lines, id)
	}
}

// Meet finds out who is there, and reaches all of them. A member that does not answer is waited for until it is none any more.
// Nobody is hushed meanwhile. Errors: 57P03 when ctx ends before, for a second after that, or after Close.
func (p *Peers) Meet(ctx context.Context) (Meeting, error) {
	p.mu.Lock()
	m, err := (*meeting)(nil), p.failed
	if err == nil || time.Now().After(p.forget) {
		m, err = p.meet(ctx)
		p.failed, p.forget = err, time.Now().Add(failedFor)
	}
	if err != nil {
		p.mu.Unlock()
		return nil, err
	}
	return m, nil
}

func (p *Peers) meet(ctx context.Context) (*meeting, error) {
	for {
		members, since, err := p.members(ctx)
		var missing string
		if err == nil {
			var m *meeting
			if m, missing, err = p.reach(ctx, members); err == nil {
				m.began = since
				return m, nil
			}
		}
		p.listed = time.Time{}
		select {
		case <-time.After(callPause):
			continue
		case <-p.end:
		case <-ctx.Done():
		}
		e := sqlstate.Wrap(err, sqlstate.CannotConnectNow, "no moment could be agreed on with the other routers")
		if missing != "" {
			e = sqlstate.Wrap(err, sqlstate.CannotConnectNow, "no moment could be agreed on: the router at %s does not answer this one", missing)
		}
		return nil, e.WithHint("nothing was done: cleave router list shows which routers there are; each has to be reached from the others")
	}
}

// reach has a conversation with each other router. missing is the address of one that cannot be reached.
func (p *Peers) reach(ctx context.Context, members []shardmap.MemberState) (m *meeting, missing string, err error) {
	there := map[string]string{}
	for _, s := range members {
		if s.ID != p.self && s.Role == "router" && s.Address != "" {
			there[s.ID] = s.Address
		}
	}
	for id := range p.lines {
		if _, ok := there[id]; !ok {
			p.drop(id)
		}
	}
	key, err := p.key.Get(ctx)
	if err != nil {
		return nil, "", err
	}
	m = &meeting{peers: p, hushed: map[string]bool{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	for id, address := range there {
		if p.lines[id] != nil {
			continue
		}
		all.Go(func() {
			l, failed := dial(ctx, address, key, id)
			mu.Lock()
			defer mu.Unlock()
			if failed != nil {
				missing, err = address, failed
				return
			}
			m.fresh = append(m.fresh, named{id, l})
		})
	}
	all.Wait()
	for _, n := range m.fresh {
		p.lines[n.id] = n.line
	}
	if err != nil {
		_, _ = p.key.Renew(ctx) // for the next try: the directory may have been put back
	}
	return m, missing, err
}

type named struct {
	id   string
	line *line
}

func dial(ctx context.Context, address string, key []byte, id string) (*line, error) {
	d := net.Dialer{Timeout: callMax}
	nc, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	l, err := call(nc, key, id, callMax)
	if err != nil {
		_ = nc.Close() // the first error is the one to report
		return nil, err
	}
	return l, nil
}

// meeting is a Meeting of Peers.
type meeting struct {
	peers  *Peers
	began  time.Time
	fresh  []named
	hushed map[string]bool
}

// each asks all members at the same time. One that does not answer in time has to be reached anew.
func (m *meeting) each(word byte, answered func(id string, ok bool)) {
	var mu sync.Mutex
	var all sync.WaitGroup
	var failed []string
	for id, l := range m.peers.lines {
		all.Go(func() {
			ok, err := l.ask(word, askMax)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, id)
			}
			answered(id, err == nil && ok)
		})
	}
	all.Wait()
	for _, id := range failed {
		m.peers.drop(id)
	}
}

// Hush asks all to be hushed, and reports whether all are.
func (m *meeting) Hush() bool {
	all := true
	m.each(hush, func(id string, ok bool) { m.hushed[id], all = ok, all && ok })
	return all
}

// Lift ends that. whole: each was hushed until it was asked to lift, and it took no longer than it may.
func (m *meeting) Lift() (whole bool) {
	defer m.peers.mu.Unlock()
	whole = true
	m.each(lift, func(id string, ok bool) { delete(m.hushed, id); whole = whole && ok })
	if whole = whole && len(m.hushed) == 0 && time.Since(m.began) < Margin/2; !whole {
		m.peers.listed = time.Time{}
	}
	return whole
}
