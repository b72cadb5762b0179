package etcd

import (
	"context"
	"encoding/json"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Moved returns the mark of a directory that the cluster has left, nil if it is here.
func (d *directory) Moved(ctx context.Context) (m *shardmap.Move, err error) {
	err = d.ask(ctx, "read", func(ctx context.Context) (err error) {
		m, err = d.movedFor(ctx)
		return err
	})
	return m, err
}

func (d *directory) movedFor(ctx context.Context) (*shardmap.Move, error) {
	res, err := d.client.Get(ctx, d.root+"moved")
	if err != nil || len(res.Kvs) == 0 {
		return nil, err
	}
	return moved(res.Kvs[0].Value)
}

// moved reads the mark.
func moved(value []byte) (*shardmap.Move, error) {
	m := &shardmap.Move{}
	if err := json.Unmarshal(value, m); err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.DataCorrupted, "the mark of a moved cluster cannot be read")
	}
	return m, nil
}

// markValue is the mark as it is stored.
func markValue(m *shardmap.Move) (string, error) {
	b, err := json.Marshal(m)
	return string(b), err
}

func (d *directory) SetMoved(ctx context.Context, expect, next *shardmap.Move, version uint64) error {
	if err := d.over(ctx); err != nil {
		return err
	}
	key := d.root + "moved"
	was, err := markValue(expect)
	if err != nil {
		return err
	}
	value, err := markValue(next)
	if err != nil {
		return err
	}
	ifs := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(d.stateKey(version+1)), "=", 0)}
	if version > 0 {
		ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(d.stateKey(version)), ">", 0))
	}
	if expect == nil {
		ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
	} else {
		ifs = append(ifs, clientv3.Compare(clientv3.Value(key), "=", was))
	}
	then := clientv3.OpPut(key, value)
	if next == nil {
		then = clientv3.OpDelete(key)
	}
	return d.commit(ctx, "the mark of a moved cluster",
		func(t clientv3.Txn) clientv3.Txn { return t.If(ifs...).Then(then).Else(clientv3.OpGet(key), d.last()) },
		func(res *clientv3.TxnResponse) error {
			if res.Succeeded {
				return nil
			}
			now := "null"
			if kvs := res.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
				now = string(kvs[0].Value)
			}
			if now == value {
				return nil // an attempt before this one
			}
			current := uint64(0)
			if kvs := res.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
				if current, err = versionOf(kvs[0].Key); err != nil {
					return err
				}
			}
			return shardmap.Conflict(version, current)
		})
}

// copying returns the guard of a write that is a part of a copy.
func (d *directory) copying(ctx context.Context) (guards, error) {
	m, err := d.Moved(ctx)
	if err != nil {
		return guards{}, err
	}
	if m == nil || m.From == "" {
		return guards{}, shardmap.NotCopying()
	}
	value, err := markValue(m)
	return guards{copying: value}, err
}

func (d *directory) Restore(ctx context.Context, e shardmap.Entry, snap *shardmap.Snapshot) error {
	g, err := d.copying(ctx)
	if err != nil {
		return err
	}
	packed, err := shardmap.Pack(snap)
	if err != nil {
		return err
	}
	return d.store(ctx, e, packed, g)
}

func (d *directory) RestoreRecord(ctx context.Context, key string, value []byte) error {
	g, err := d.copying(ctx)
	if err != nil {
		return err
	}
	r, err := d.Record(ctx, key)
	switch {
	case err == nil && value == nil:
		return d.drop(ctx, g, key, r.Revision)
	case err == nil || errors.Is(err, shardmap.ErrNotFound) && value != nil:
		_, err = d.put(ctx, g, key, value, r.Revision)
		return err
	case errors.Is(err, shardmap.ErrNotFound):
		return nil
	}
	return err
}

var _ shardmap.Mover = (*directory)(nil)
