package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/shardmap"
)

// fenced is the directory's records under a leadership's token.
type fenced struct {
	*directory
	token uint64
}

func (d *directory) Fenced(token uint64) shardmap.Records { return fenced{d, token} }

func (f fenced) PutRecord(ctx context.Context, key string, value []byte, expect uint64) (uint64, error) {
	return f.put(ctx, f.token, key, value, expect)
}

func (f fenced) DeleteRecord(ctx context.Context, key string, expect uint64) error {
	return f.drop(ctx, f.token, key, expect)
}

func (d *directory) Record(ctx context.Context, key string) (shardmap.Record, error) {
	if err := d.enter(ctx); err != nil {
		return shardmap.Record{}, err
	}
	defer d.mu.Unlock()
	r, ok := d.records[key]
	if !ok {
		return shardmap.Record{}, shardmap.NoRecord(key)
	}
	r.Value = bytes.Clone(r.Value)
	return r, nil
}

func (d *directory) PutRecord(ctx context.Context, key string, value []byte, expect uint64) (uint64, error) {
	return d.put(ctx, 0, key, value, expect)
}

func (d *directory) put(ctx context.Context, token uint64, key string, value []byte, expect uint64) (uint64, error) {
	if err := shardmap.CheckRecord(key, value); err != nil {
		return 0, err
	}
	if err := d.enter(ctx); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	if err := d.fence(token); err != nil {
		return 0, err
	}
	if d.records[key].Revision != expect {
		return 0, shardmap.RecordConflict(key, expect)
	}
	d.counter++
	d.records[key] = shardmap.Record{Key: key, Value: append([]byte{}, value...), Revision: d.counter}
	return d.counter, nil
}

func (d *directory) DeleteRecord(ctx context.Context, key string, expect uint64) error {
	return d.drop(ctx, 0, key, expect)
}

func (d *directory) drop(ctx context.Context, token uint64, key string, expect uint64) error {
	if err := d.enter(ctx); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if err := d.fence(token); err != nil {
		return err
	}
	if expect == 0 || d.records[key].Revision != expect {
		return shardmap.RecordConflict(key, expect)
	}
	delete(d.records, key)
	return nil
}

func (d *directory) Records(ctx context.Context, prefix, after string, limit int) ([]shardmap.Record, error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	var list []shardmap.Record
	for key, r := range d.records {
		if strings.HasPrefix(key, prefix) && (after == "" || key > after) {
			r.Value = bytes.Clone(r.Value)
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b shardmap.Record) int { return cmp.Compare(a.Key, b.Key) })
	return list[:min(len(list), max(limit, 0))], nil
}
