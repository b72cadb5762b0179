package etcd

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// last is the request for the newest version's key, without its value.
func (d *directory) last() clientv3.Op {
	return clientv3.OpGet(d.root+"map/state/", append(clientv3.WithLastKey(), clientv3.WithKeysOnly())...)
}

// versionOf reads the version out of the key of a state or an entry.
func versionOf(key []byte) (uint64, error) {
	text := string(key[strings.LastIndexByte(string(key), '/')+1:])
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil || v == 0 {
		return 0, sqlstate.New(sqlstate.DataCorrupted, "etcd holds a key %q among the versions of the shard map", key)
	}
	return v, nil
}

// version returns the newest version, 0 if there is none.
func (d *directory) version(ctx context.Context) (v uint64, err error) {
	var res clientv3.OpResponse
	err = d.ask(ctx, "read", func(ctx context.Context) (err error) {
		res, err = d.client.Do(ctx, d.last())
		return err
	})
	if err != nil || len(res.Get().Kvs) == 0 {
		return 0, err
	}
	return versionOf(res.Get().Kvs[0].Key)
}

// current returns the newest snapshot, nil if there is none, from memory while
// nothing has changed.
func (d *directory) current(ctx context.Context) (*shardmap.Snapshot, error) {
	version, err := d.version(ctx)
	if err != nil || version == 0 {
		return nil, err
	}
	if s := d.newest.Load(); s != nil && s.Version() == version {
		return s, nil
	}
	snap, err := d.at(ctx, version)
	if err != nil {
		return nil, err
	}
	d.keep(snap)
	return snap, nil
}

// at returns a version that exists.
func (d *directory) at(ctx context.Context, version uint64) (*shardmap.Snapshot, error) {
	var res *clientv3.GetResponse
	err := d.ask(ctx, "read", func(ctx context.Context) (err error) {
		res, err = d.client.Get(ctx, d.stateKey(version))
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(res.Kvs) == 0 {
		return nil, sqlstate.New(sqlstate.DataCorrupted, "version %d of the shard map is missing in etcd", version)
	}
	return d.snapshot(ctx, version, res.Kvs[0].Value)
}

// keep remembers a snapshot unless a newer one is known.
func (d *directory) keep(snap *shardmap.Snapshot) {
	for {
		old := d.newest.Load()
		if old != nil && old.Version() >= snap.Version() || d.newest.CompareAndSwap(old, snap) {
			return
		}
	}
}

func (d *directory) Load(ctx context.Context) (*shardmap.Snapshot, error) {
	snap, err := d.current(ctx)
	if err == nil && snap == nil {
		err = shardmap.NoMap()
	}
	return snap, err
}

func (d *directory) At(ctx context.Context, version uint64) (*shardmap.Snapshot, error) {
	newest, err := d.version(ctx)
	if err != nil {
		return nil, err
	}
	if version == 0 || version > newest {
		return nil, shardmap.NotFound("version %d of the shard map does not exist; the current one is %d", version, newest)
	}
	return d.at(ctx, version)
}

func (d *directory) Update(ctx context.Context, change shardmap.Change, next shardmap.State) (*shardmap.Snapshot, error) {
	prev, err := d.current(ctx)
	if err != nil {
		return nil, err
	}
	snap, err := shardmap.Advance(prev, change, next)
	if err != nil {
		return nil, err
	}
	packed, err := shardmap.Pack(snap)
	if err != nil {
		return nil, err
	}
	g := guards{token: change.Token, unmoved: true}
	if err := d.store(ctx, change.Entry(snap.Version(), d.opts.Now()), packed, g); err != nil {
		return nil, err
	}
	d.keep(snap)
	d.feed.Publish(snap)
	return snap, nil
}

// guards are conditions of a write beside its own.
type guards struct {
	token   uint64 // a leadership goes on; 0 is none
	unmoved bool   // the cluster is here
	copying string // the value of the key moved: a copy goes on
}

// compare returns the guards as conditions of a transaction.
func (d *directory) compare(ctx context.Context, g guards) ([]clientv3.Cmp, error) {
	var ifs []clientv3.Cmp
	if g.unmoved {
		ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(d.root+"moved"), "=", 0))
	}
	if g.copying != "" {
		ifs = append(ifs, clientv3.Compare(clientv3.Value(d.root+"moved"), "=", g.copying))
	}
	if g.token != 0 {
		key, err := d.election(ctx, g.token)
		if err != nil {
			return nil, err
		}
		ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(key), "=", int64(g.token)))
	}
	return ifs, nil
}

// refused finds which guard has refused a write, nil if none has.
func (d *directory) refused(ctx context.Context, g guards) error {
	if g.unmoved {
		m, err := d.Moved(ctx)
		if err != nil {
			return err
		}
		if m != nil {
			return shardmap.Moved(*m)
		}
	}
	if g.token != 0 {
		d.forget(g.token)
		if _, err := d.election(ctx, g.token); err != nil {
			return err
		}
	}
	return nil
}

// store makes an entry's version, if it is the next one.
func (d *directory) store(ctx context.Context, e shardmap.Entry, packed []byte, g guards) error {
	nonce := uuid.New()
	what := fmt.Sprintf("version %d of the shard map", e.Version)
	line, err := packEntry(e)
	if err != nil {
		return err
	}
	state, err := d.place(ctx, e.Version, nonce, "state", packed)
	var entry string
	if err == nil {
		entry, err = d.place(ctx, e.Version, nonce, "entry", line)
	}
	if err != nil {
		d.discard(ctx, e.Version, nonce)
		return err
	}
	ifs, err := d.compare(ctx, g)
	if err != nil {
		return err
	}
	ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(d.stateKey(e.Version)), "=", 0))
	if e.Version > 1 {
		ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(d.stateKey(e.Version-1)), ">", 0))
	}
	thens := []clientv3.Op{clientv3.OpPut(d.stateKey(e.Version), state), clientv3.OpPut(d.entryKey(e.Version), entry)}
	elses := []clientv3.Op{d.last(), clientv3.OpGet(d.stateKey(e.Version))}
	if e.ID != "" {
		ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(d.idKey(e.ID)), "=", 0))
		thens = append(thens, clientv3.OpPut(d.idKey(e.ID), strconv.FormatUint(e.Version, 10)))
		elses = append(elses, clientv3.OpGet(d.idKey(e.ID)))
	}
	// The parts of others who wanted to make this version.
	parts, own := d.partsKey(e.Version, nonce, ""), d.partsKey(e.Version, nonce, "")+nonce.String()
	thens = append(thens,
		clientv3.OpDelete(parts, clientv3.WithRange(own)),
		clientv3.OpDelete(own+"0", clientv3.WithRange(clientv3.GetPrefixRangeEnd(parts))))
	err = d.commit(ctx, what,
		func(t clientv3.Txn) clientv3.Txn { return t.If(ifs...).Then(thens...).Else(elses...) },
		func(res *clientv3.TxnResponse) error {
			if res.Succeeded {
				return nil
			}
			return notStored(e, nonce, res.Responses, func() error { return d.refused(ctx, g) })
		})
	if err != nil && sqlstate.CodeOf(err) != sqlstate.TransactionUnknown {
		d.discard(ctx, e.Version, nonce)
	}
	return err
}

// notStored says why a version was not stored; nil if an attempt before this one has stored it. found are the newest version, what is
// stored as this one, and the version that has the entry's id. refused asks whether something else than the version was wrong.
func notStored(e shardmap.Entry, nonce uuid.UUID, found []*etcdserverpb.ResponseOp, refused func() error) error {
	if kvs := found[1].GetResponseRange().Kvs; len(kvs) > 0 {
		if by, _, _, err := unseal(kvs[0].Value); err == nil && by == nonce {
			return nil
		}
	}
	current := uint64(0)
	if kvs := found[0].GetResponseRange().Kvs; len(kvs) > 0 {
		if v, err := versionOf(kvs[0].Key); err == nil {
			current = v
		}
	}
	if e.ID != "" {
		if kvs := found[2].GetResponseRange().Kvs; len(kvs) > 0 {
			made, err := strconv.ParseUint(string(kvs[0].Value), 10, 64)
			if err == nil {
				return shardmap.DuplicateID(e.ID, made)
			}
		}
	}
	if current != e.Version-1 {
		return shardmap.Conflict(e.Version-1, current)
	}
	if err := refused(); err != nil {
		return err
	}
	return shardmap.Conflict(e.Version-1, current) // refused a moment ago, for a reason that is gone
}

// discard removes the parts of a change that came to nothing, as far as it can.
func (d *directory) discard(ctx context.Context, version uint64, nonce uuid.UUID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.timeout)
	defer cancel()
	key := d.partsKey(version, nonce, "") + nonce.String() + "/"
	_ = d.ask(ctx, "write", func(ctx context.Context) error {
		_, err := d.client.Delete(ctx, key, clientv3.WithPrefix())
		return err
	})
}

// historyPage is how many lines of history one request reads.
const historyPage = 200

func (d *directory) History(ctx context.Context, after uint64, limit int) ([]shardmap.Entry, error) {
	var list []shardmap.Entry
	if err := d.over(ctx); err != nil {
		return nil, err
	}
	for limit > len(list) && after < 1<<62 {
		var res *clientv3.GetResponse
		page := min(limit-len(list), historyPage)
		err := d.ask(ctx, "read", func(ctx context.Context) (err error) {
			res, err = d.client.Get(ctx, d.entryKey(after+1), clientv3.WithRange(d.entryKey(1<<62)), clientv3.WithLimit(int64(page)))
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, kv := range res.Kvs {
			version, err := versionOf(kv.Key)
			if err != nil {
				return nil, err
			}
			e, err := d.entry(ctx, version, kv.Value)
			if err != nil {
				return nil, err
			}
			list, after = append(list, e), version
		}
		if len(res.Kvs) < page {
			break
		}
	}
	return list, nil
}

func (d *directory) Find(ctx context.Context, id string) (shardmap.Entry, error) {
	var res *clientv3.GetResponse
	err := d.ask(ctx, "read", func(ctx context.Context) (err error) {
		res, err = d.client.Get(ctx, d.idKey(id))
		return err
	})
	if err != nil {
		return shardmap.Entry{}, err
	}
	if id == "" || len(res.Kvs) == 0 {
		return shardmap.Entry{}, shardmap.NotFound("no change of the shard map has the ID %q", id)
	}
	version, err := strconv.ParseUint(string(res.Kvs[0].Value), 10, 64)
	if err != nil {
		return shardmap.Entry{}, sqlstate.Wrap(err, sqlstate.DataCorrupted, "the version of change %q cannot be read", id)
	}
	list, err := d.History(ctx, version-1, 1)
	if err == nil && len(list) == 0 {
		err = sqlstate.New(sqlstate.DataCorrupted, "version %d of the shard map is missing in etcd", version)
	}
	if err != nil {
		return shardmap.Entry{}, err
	}
	return list[0], nil
}

func (d *directory) Watch(ctx context.Context) (<-chan *shardmap.Snapshot, error) {
	return d.feed.WatchAndFollow(ctx, d.Load, d.follow)
}
