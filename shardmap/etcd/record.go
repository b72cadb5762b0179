package etcd

import (
	"context"
	"strings"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// fenced is the directory's records under a leadership's token.
type fenced struct {
	*directory
	token uint64
}

func (d *directory) Fenced(token uint64) shardmap.Records { return fenced{d, token} }

func (f fenced) PutRecord(ctx context.Context, key string, value []byte, expect uint64) (uint64, error) {
	return f.put(ctx, guards{token: f.token, unmoved: true}, key, value, expect)
}

func (f fenced) DeleteRecord(ctx context.Context, key string, expect uint64) error {
	return f.drop(ctx, guards{token: f.token, unmoved: true}, key, expect)
}

func (d *directory) recordKey(key string) string { return d.root + "record/" + key }

func (d *directory) readRecord(key, value []byte, revision int64) (shardmap.Record, error) {
	_, _, content, err := unseal(value)
	return shardmap.Record{Key: strings.TrimPrefix(string(key), d.recordKey("")), Value: content, Revision: uint64(revision)}, err
}

func (d *directory) Record(ctx context.Context, key string) (shardmap.Record, error) {
	var res *clientv3.GetResponse
	err := d.ask(ctx, "read", func(ctx context.Context) (err error) {
		res, err = d.client.Get(ctx, d.recordKey(key))
		return err
	})
	if err != nil {
		return shardmap.Record{}, err
	}
	if len(res.Kvs) == 0 {
		return shardmap.Record{}, shardmap.NoRecord(key)
	}
	return d.readRecord(res.Kvs[0].Key, res.Kvs[0].Value, res.Kvs[0].ModRevision)
}

func (d *directory) PutRecord(ctx context.Context, key string, value []byte, expect uint64) (uint64, error) {
	return d.put(ctx, guards{unmoved: true}, key, value, expect)
}

func (d *directory) put(ctx context.Context, g guards, key string, value []byte, expect uint64) (revision uint64, err error) {
	if err := shardmap.CheckRecord(key, value); err != nil {
		return 0, err
	}
	if err := d.over(ctx); err != nil {
		return 0, err
	}
	ifs, err := d.compare(ctx, g)
	if err != nil {
		return 0, err
	}
	nonce := uuid.New()
	full := d.recordKey(key)
	ifs = append(ifs, clientv3.Compare(clientv3.ModRevision(full), "=", int64(expect)))
	err = d.commit(ctx, "record "+key,
		func(t clientv3.Txn) clientv3.Txn {
			return t.If(ifs...).Then(clientv3.OpPut(full, seal(nonce, 0, value))).Else(clientv3.OpGet(full))
		},
		func(res *clientv3.TxnResponse) error {
			if res.Succeeded {
				revision = uint64(res.Header.Revision)
				return nil
			}
			now := uint64(0)
			if kvs := res.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
				now = uint64(kvs[0].ModRevision)
				if by, _, _, err := unseal(kvs[0].Value); err == nil && by == nonce {
					revision = now // an attempt before this one
					return nil
				}
			}
			if err := d.refused(ctx, g); err != nil {
				return err
			}
			return shardmap.RecordConflict(key, expect)
		})
	return revision, err
}

func (d *directory) DeleteRecord(ctx context.Context, key string, expect uint64) error {
	return d.drop(ctx, guards{unmoved: true}, key, expect)
}

func (d *directory) drop(ctx context.Context, g guards, key string, expect uint64) error {
	if err := d.over(ctx); err != nil {
		return err
	}
	ifs, err := d.compare(ctx, g)
	if err != nil {
		return err
	}
	full := d.recordKey(key)
	ifs = append(ifs, clientv3.Compare(clientv3.ModRevision(full), "=", int64(expect)), clientv3.Compare(clientv3.CreateRevision(full), ">", 0))
	tries := 0
	return d.commit(ctx, "the deletion of record "+key,
		func(t clientv3.Txn) clientv3.Txn {
			tries++
			return t.If(ifs...).Then(clientv3.OpDelete(full)).Else(clientv3.OpGet(full))
		},
		func(res *clientv3.TxnResponse) error {
			if res.Succeeded {
				return nil
			}
			if err := d.refused(ctx, g); err != nil {
				return err
			}
			conflict := shardmap.RecordConflict(key, expect)
			if tries > 1 && len(res.Responses[0].GetResponseRange().Kvs) == 0 {
				// Gone, perhaps by an attempt that was not answered.
				return unknown(conflict, "the deletion of record "+key)
			}
			return conflict
		})
}

// recordPage is how many records one request reads: at most 16 MiB.
const recordPage = 256

func (d *directory) Records(ctx context.Context, prefix, after string, limit int) ([]shardmap.Record, error) {
	if err := d.over(ctx); err != nil {
		return nil, err
	}
	var list []shardmap.Record
	from, end := d.recordKey(prefix), clientv3.GetPrefixRangeEnd(d.recordKey(prefix))
	if after != "" {
		from = max(from, d.recordKey(after)+"\x00")
	}
	for limit > len(list) && from < end {
		var res *clientv3.GetResponse
		page := min(limit-len(list), recordPage)
		err := d.ask(ctx, "read", func(ctx context.Context) (err error) {
			res, err = d.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(int64(page)))
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, kv := range res.Kvs {
			r, err := d.readRecord(kv.Key, kv.Value, kv.ModRevision)
			if err != nil {
				return nil, sqlstate.Wrap(err, sqlstate.DataCorrupted, "record %q cannot be read", kv.Key)
			}
			list, from = append(list, r), string(kv.Key)+"\x00"
		}
		if len(res.Kvs) < page {
			break
		}
	}
	return list, nil
}
