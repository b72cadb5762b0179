package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/cleavedb/cleave/shardmap"
)

// member and leader hold until a moment of the process's monotonic clock.
type member struct {
	shardmap.MemberState
	until time.Time
}

type leader struct {
	token uint64
	until time.Time
}

// fence refuses a token whose leadership has ended; d.mu is held.
func (d *directory) fence(token uint64) error {
	if token == 0 {
		return nil
	}
	for _, l := range d.elections {
		if l.token == token && time.Now().Before(l.until) {
			return nil
		}
	}
	return shardmap.Deposed(token)
}

func (d *directory) Join(ctx context.Context, m shardmap.Member) (*shardmap.Lease, func(context.Context) error, error) {
	if err := m.Validate(); err != nil {
		return nil, nil, err
	}
	return shardmap.Keep(ctx, d.life, d.ttl, &seat{d, m})
}

// expire forgets the members whose leases have run out; d.mu is held.
func (d *directory) expire(now time.Time) {
	for id, m := range d.members {
		if !now.Before(m.until) {
			delete(d.members, id)
		}
	}
}

func (d *directory) Members(ctx context.Context) ([]shardmap.MemberState, error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	now := time.Now()
	d.expire(now)
	var list []shardmap.MemberState
	for _, m := range d.members {
		state := m.MemberState
		state.Left = m.until.Sub(now)
		list = append(list, state)
	}
	slices.SortFunc(list, func(a, b shardmap.MemberState) int { return cmp.Compare(a.Node, b.Node) })
	return list, nil
}

type seat struct {
	d *directory
	m shardmap.Member
}

func (s *seat) Take(ctx context.Context, prefer uint16, acknowledged uint64) (uint16, uint64, error) {
	d := s.d
	if err := d.enter(ctx); err != nil {
		return 0, 0, err
	}
	defer d.mu.Unlock()
	now := time.Now()
	d.expire(now)
	taken := map[uint16]bool{}
	for id, m := range d.members {
		taken[m.Node] = id != s.m.ID
	}
	node, err := shardmap.FreeNode(prefer, taken)
	if err != nil {
		return 0, 0, err
	}
	d.members[s.m.ID] = &member{shardmap.MemberState{
		Member: s.m, Node: node, Acknowledged: acknowledged, Joined: d.now().UTC().Truncate(time.Microsecond),
	}, now.Add(d.ttl)}
	return node, uint64(len(d.versions)), nil
}

func (s *seat) Renew(ctx context.Context, acknowledged uint64) error {
	d := s.d
	if err := d.enter(ctx); err != nil {
		return err
	}
	defer d.mu.Unlock()
	now := time.Now()
	d.expire(now)
	m, ok := d.members[s.m.ID]
	if !ok {
		return shardmap.ErrLeaseLost
	}
	m.until, m.Acknowledged = now.Add(d.ttl), acknowledged
	return nil
}

func (s *seat) Leave(ctx context.Context) error {
	d := s.d
	if err := d.enter(ctx); err != nil {
		return err
	}
	defer d.mu.Unlock()
	delete(d.members, s.m.ID)
	return nil
}

// campaignPause is between two looks at an election that another leads.
const campaignPause = 5 * time.Millisecond

func (d *directory) Campaign(ctx context.Context, election, candidate string) (*shardmap.Leadership, error) {
	if err := shardmap.CheckElection(election, candidate); err != nil {
		return nil, err
	}
	for {
		from := time.Now()
		token, err := d.elect(ctx, election)
		if err != nil {
			return nil, err
		}
		if token != 0 {
			return shardmap.Lead(d.life, d.ttl, from, token,
				func(ctx context.Context) error { return d.lead(ctx, election, token, d.ttl) },
				func(ctx context.Context) error { return d.lead(ctx, election, token, 0) }), nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-d.life.Done():
			return nil, shardmap.Closed()
		case <-time.After(campaignPause):
		}
	}
}

// elect returns the new leader's token, 0 if there is a leader already.
func (d *directory) elect(ctx context.Context, election string) (uint64, error) {
	if err := d.enter(ctx); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	now := time.Now()
	if l, ok := d.elections[election]; ok && now.Before(l.until) {
		return 0, nil
	}
	d.counter++
	d.elections[election] = &leader{d.counter, now.Add(d.ttl)}
	return d.counter, nil
}

// lead lets a leadership run for a time from now on; 0 ends it.
func (d *directory) lead(ctx context.Context, election string, token uint64, ttl time.Duration) error {
	if err := d.enter(ctx); err != nil {
		return err
	}
	defer d.mu.Unlock()
	now := time.Now()
	l, ok := d.elections[election]
	if !ok || l.token != token || !now.Before(l.until) {
		if ttl == 0 {
			return nil
		}
		return shardmap.ErrLeaseLost
	}
	l.until = now.Add(ttl)
	return nil
}
