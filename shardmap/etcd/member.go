package etcd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func (d *directory) memberKey(id string) string { return d.root + "member/" + id }
func (d *directory) nodeKey(n uint16) string    { return fmt.Sprintf("%snode/%04d", d.root, n) }

func (d *directory) Join(ctx context.Context, m shardmap.Member) (*shardmap.Lease, func(context.Context) error, error) {
	if err := m.Validate(); err != nil {
		return nil, nil, err
	}
	return shardmap.Keep(ctx, d.life, d.opts.LeaseTTL, &seat{d: d, m: m})
}

// leaseTimeout bounds what is asked about leases: they have to be renewed within
// a part of their time.
func (d *directory) leaseTimeout() time.Duration { return min(d.timeout, d.opts.LeaseTTL/2) }

// grant makes a lease that lasts the TTL at least.
func (d *directory) grant(ctx context.Context) (id clientv3.LeaseID, err error) {
	seconds := int64((d.opts.LeaseTTL + time.Second - 1) / time.Second)
	// An attempt whose answer was lost leaves a lease behind that runs out.
	err = d.tryFor(ctx, d.leaseTimeout(), "write", func(ctx context.Context) error {
		res, err := d.client.Grant(ctx, seconds)
		if err == nil {
			id = res.ID
		}
		return err
	})
	return id, err
}

// renew lets a lease run anew, in one try of its own: the client's KeepAliveOnce
// tries without a pause while no server can be reached.
func (d *directory) renew(ctx context.Context, id clientv3.LeaseID) error {
	return d.tryFor(ctx, d.leaseTimeout(), "write", func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the stream
		stream, err := clientv3.RetryLeaseClient(d.client).LeaseKeepAlive(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
			return err
		}
		res, err := stream.Recv()
		if err == nil && res.TTL <= 0 {
			err = shardmap.ErrLeaseLost
		}
		return err
	})
}

func (d *directory) revoke(ctx context.Context, id clientv3.LeaseID) error {
	if id == clientv3.NoLease {
		return nil
	}
	err := d.tryFor(ctx, d.timeout, "write", func(ctx context.Context) error {
		_, err := d.client.Revoke(ctx, id)
		return err
	})
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// stored is a member as its key holds it.
type stored struct {
	shardmap.MemberState
	Lease int64 `json:"lease"`
}

func (d *directory) Members(ctx context.Context) ([]shardmap.MemberState, error) {
	var res *clientv3.GetResponse
	err := d.ask(ctx, "read", func(ctx context.Context) (err error) {
		res, err = d.client.Get(ctx, d.memberKey(""), clientv3.WithPrefix())
		return err
	})
	if err != nil {
		return nil, err
	}
	list := make([]shardmap.MemberState, len(res.Kvs))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i, kv := range res.Kvs {
		var s stored
		if err := json.Unmarshal(kv.Value, &s); err != nil {
			return nil, sqlstate.Wrap(err, sqlstate.DataCorrupted, "member %q cannot be read", kv.Key)
		}
		list[i] = s.MemberState
		g.Go(func() error {
			return d.ask(gctx, "read", func(ctx context.Context) error {
				ttl, err := d.client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
				if errors.Is(err, rpctypes.ErrLeaseNotFound) {
					return nil
				}
				if err == nil && ttl.TTL >= 0 {
					list[i].Left = time.Duration(ttl.TTL+1) * time.Second // etcd cuts fractions off
				}
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		if over := d.over(ctx); over != nil {
			return nil, over
		}
		return nil, err
	}
	slices.SortFunc(list, func(a, b shardmap.MemberState) int { return cmp.Compare(a.Node, b.Node) })
	return list, nil
}

// seat is a member's lease with its two keys.
type seat struct {
	d     *directory
	m     shardmap.Member
	lease clientv3.LeaseID
	state stored
}

func (s *seat) value(acknowledged uint64) (string, error) {
	s.state.Acknowledged = acknowledged
	b, err := json.Marshal(s.state)
	return string(b), err
}

func (s *seat) Take(ctx context.Context, prefer uint16, acknowledged uint64) (node uint16, version uint64, err error) {
	d := s.d
	known := d.published()
	lease, err := d.grant(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() {
		if err != nil {
			brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.leaseTimeout())
			defer cancel()
			_ = d.revoke(brief, lease) // else it runs out
		}
	}()
	s.state = stored{MemberState: shardmap.MemberState{Member: s.m, Joined: d.opts.Now().UTC().Truncate(time.Microsecond)}, Lease: int64(lease)}
	for {
		taken := map[uint16]bool{}
		var nodes *clientv3.GetResponse
		err := d.tryFor(ctx, d.leaseTimeout(), "read", func(ctx context.Context) (err error) {
			nodes, err = d.client.Get(ctx, d.root+"node/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			return err
		})
		if err != nil {
			return 0, 0, err
		}
		for _, kv := range nodes.Kvs {
			n, err := strconv.ParseUint(strings.TrimPrefix(string(kv.Key), d.root+"node/"), 10, 16)
			if err != nil {
				return 0, 0, sqlstate.New(sqlstate.DataCorrupted, "etcd holds a key %q among the node numbers", kv.Key)
			}
			taken[uint16(n)] = kv.Lease != int64(lease)
		}
		if node, err = shardmap.FreeNode(prefer, taken); err != nil {
			return 0, 0, err
		}
		s.state.Node = node
		value, err := s.value(acknowledged)
		if err != nil {
			return 0, 0, err
		}
		var res *clientv3.TxnResponse
		err = d.tryFor(ctx, d.leaseTimeout(), "write", func(ctx context.Context) (err error) {
			res, err = d.client.Txn(ctx).
				If(clientv3.Compare(clientv3.CreateRevision(d.nodeKey(node)), "=", 0), clientv3.Compare(clientv3.CreateRevision(d.root+"moved"), "=", 0)).
				Then(clientv3.OpPut(d.nodeKey(node), s.m.ID, clientv3.WithLease(lease)),
					clientv3.OpPut(d.memberKey(s.m.ID), value, clientv3.WithLease(lease)), d.last()).
				Else(clientv3.OpGet(d.nodeKey(node)), clientv3.OpGet(d.root+"moved"), d.last()).Commit()
			return err
		})
		if err != nil {
			return 0, 0, err
		}
		if !res.Succeeded {
			if len(res.Responses[1].GetResponseRange().Kvs) > 0 {
				return 0, 0, d.refused(ctx, guards{unmoved: true})
			}
			if kvs := res.Responses[0].GetResponseRange().Kvs; len(kvs) == 0 || kvs[0].Lease != int64(lease) {
				continue // somebody was faster
			}
			// An attempt before this one has taken it.
		}
		kvs := res.Responses[2].GetResponseRange().Kvs
		if err := d.notOlder(known, kvs); err != nil {
			return 0, 0, err
		}
		s.lease = lease
		if len(kvs) > 0 {
			if version, err = versionOf(kvs[0].Key); err != nil {
				return 0, 0, err
			}
		}
		return node, version, nil
	}
}

func (s *seat) Renew(ctx context.Context, acknowledged uint64) error {
	d := s.d
	if acknowledged != s.state.Acknowledged {
		before := s.state.Acknowledged
		value, err := s.value(acknowledged)
		if err != nil {
			return err
		}
		var res *clientv3.TxnResponse
		err = d.tryFor(ctx, d.leaseTimeout(), "write", func(ctx context.Context) (err error) {
			res, err = d.client.Txn(ctx).If(clientv3.Compare(clientv3.LeaseValue(d.memberKey(s.m.ID)), "=", int64(s.lease))).
				Then(clientv3.OpPut(d.memberKey(s.m.ID), value, clientv3.WithLease(s.lease))).Commit()
			return err
		})
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound), err == nil && !res.Succeeded:
			return shardmap.ErrLeaseLost
		case err != nil:
			s.state.Acknowledged = before
			return err
		}
	}
	if err := d.stillHere(ctx); err != nil {
		return err
	}
	return d.renew(ctx, s.lease)
}

// stillHere fails if the cluster has moved, or if etcd's newest map is older than
// one that this process has seen: etcd was restored from a snapshot, and what it
// will call by the same numbers is not what this process serves by.
func (d *directory) stillHere(ctx context.Context) error {
	known := d.published() // before etcd is asked
	var res *clientv3.TxnResponse
	err := d.tryFor(ctx, d.leaseTimeout(), "read", func(ctx context.Context) (err error) {
		res, err = d.client.Txn(ctx).Then(clientv3.OpGet(d.root+"moved"), d.last()).Commit()
		return err
	})
	if err != nil {
		return err
	}
	if kvs := res.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		m, err := moved(kvs[0].Value)
		if err != nil {
			return err
		}
		return shardmap.Moved(*m)
	}
	return d.notOlder(known, res.Responses[1].GetResponseRange().Kvs)
}

// notOlder fails if the newest version among kvs is older than the known one, or
// was so once.
func (d *directory) notOlder(known uint64, kvs []*mvccpb.KeyValue) error {
	version := uint64(0)
	if len(kvs) > 0 {
		var err error
		if version, err = versionOf(kvs[0].Key); err != nil {
			return err
		}
	}
	if version < known {
		d.back.Store(true) // for good: other maps get the same numbers now
	}
	if !d.back.Load() {
		return nil
	}
	return sqlstate.Wrap(shardmap.ErrTakenBack, sqlstate.CannotConnectNow, "etcd %s was taken back: it had no map of version %d, which this process has seen", d.where, known).
		WithHint("restart this process once etcd is restored, then run \"cleave doctor\"")
}

func (s *seat) Leave(ctx context.Context) error { return s.d.revoke(ctx, s.lease) }

// campaignPause bounds how long a candidate does not look whether the leader is gone.
const campaignPause = time.Second

func (d *directory) electionKey(name string) string { return d.root + "election/" + name }

func (d *directory) Campaign(ctx context.Context, election, candidate string) (*shardmap.Leadership, error) {
	if err := shardmap.CheckElection(election, candidate); err != nil {
		return nil, err
	}
	key := d.electionKey(election)
	for {
		var now *clientv3.GetResponse
		err := d.ask(ctx, "read", func(ctx context.Context) (err error) {
			now, err = d.client.Get(ctx, key)
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(now.Kvs) == 0 {
			l, err := d.elect(ctx, key, candidate)
			if l != nil || err != nil {
				return l, err
			}
			continue
		}
		d.awaitDeletion(ctx, key, now.Header.Revision+1)
		if err := d.over(ctx); err != nil {
			return nil, err
		}
	}
}

// awaitDeletion waits until a key may be gone.
func (d *directory) awaitDeletion(ctx context.Context, key string, from int64) {
	ctx, cancel := context.WithTimeout(ctx, campaignPause)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	w := clientv3.NewWatcher(d.client)
	defer w.Close()
	events := w.Watch(clientv3.WithRequireLeader(ctx), key, clientv3.WithRev(from))
	for res := range events {
		if res.Err() != nil {
			break
		}
		for _, e := range res.Events {
			if e.Type == clientv3.EventTypeDelete {
				return
			}
		}
	}
	<-ctx.Done() // a watch that fails at once is not asked again at once
}

// elect tries to become the leader; nil without an error: another has.
func (d *directory) elect(ctx context.Context, key, candidate string) (*shardmap.Leadership, error) {
	from := time.Now()
	lease, err := d.grant(ctx)
	if err != nil {
		return nil, err
	}
	var res *clientv3.TxnResponse
	err = d.tryFor(ctx, d.leaseTimeout(), "write", func(ctx context.Context) (err error) {
		res, err = d.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.Compare(clientv3.CreateRevision(d.root+"moved"), "=", 0)).
			Then(clientv3.OpPut(key, candidate, clientv3.WithLease(lease))).
			Else(clientv3.OpGet(key)).Commit()
		return err
	})
	token := uint64(0)
	if err == nil {
		if res.Succeeded {
			token = uint64(res.Header.Revision)
		} else if kvs := res.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 && kvs[0].Lease == int64(lease) {
			token = uint64(kvs[0].CreateRevision) // an attempt before this one
		} else {
			err = d.refused(ctx, guards{unmoved: true})
		}
	}
	if token == 0 {
		brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.leaseTimeout())
		defer cancel()
		_ = d.revoke(brief, lease) // else it runs out
		return nil, err
	}
	d.mu.Lock()
	d.tokens[token] = key
	d.mu.Unlock()
	return shardmap.Lead(d.life, d.opts.LeaseTTL, from, token,
		func(ctx context.Context) error { return d.renew(ctx, lease) },
		func(ctx context.Context) error { d.forget(token); return d.revoke(ctx, lease) }), nil
}

func (d *directory) forget(token uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.tokens, token)
}

// election returns the key of the election that a token is of. ErrDeposed: of
// none that goes on.
func (d *directory) election(ctx context.Context, token uint64) (string, error) {
	d.mu.Lock()
	key, ok := d.tokens[token]
	d.mu.Unlock()
	if ok {
		return key, nil
	}
	var res *clientv3.GetResponse
	err := d.ask(ctx, "read", func(ctx context.Context) (err error) {
		res, err = d.client.Get(ctx, d.electionKey(""), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		return err
	})
	if err != nil {
		return "", err
	}
	for _, kv := range res.Kvs {
		if uint64(kv.CreateRevision) == token {
			return string(kv.Key), nil
		}
	}
	return "", shardmap.Deposed(token)
}
