package shardmaptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func testRecords(t *testing.T, d shardmap.Directory) {
	ctx := t.Context()
	_, err := d.Record(ctx, "a/b")
	wantErr(t, "Record that is not there", err, shardmap.ErrNotFound)
	value := []byte("one\x00\xff")
	first, err := d.PutRecord(ctx, "a/b", value, 0)
	if err != nil || first == 0 {
		t.Fatalf("PutRecord: %d, %v", first, err)
	}
	value[0] = 'X'
	r, err := d.Record(ctx, "a/b")
	if want := (shardmap.Record{Key: "a/b", Value: []byte("one\x00\xff"), Revision: first}); err != nil || !reflect.DeepEqual(r, want) {
		t.Fatalf("Record gives %+v, %v; want %+v", r, err, want)
	}
	_, err = d.PutRecord(ctx, "a/b", []byte("x"), 0)
	wantErr(t, "a second creation", err, shardmap.ErrConflict)
	if code := sqlstate.CodeOf(err); code != sqlstate.SerializationFailure {
		t.Fatalf("a conflict has SQLSTATE %s, want 40001", code)
	}
	_, err = d.PutRecord(ctx, "a/b", []byte("x"), first+1000)
	wantErr(t, "a write from a revision to come", err, shardmap.ErrConflict)
	second, err := d.PutRecord(ctx, "a/b", nil, first)
	if err != nil || second == first {
		t.Fatalf("PutRecord: revision %d after %d, %v", second, first, err)
	}
	if r, err = d.Record(ctx, "a/b"); err != nil || len(r.Value) != 0 || r.Revision != second {
		t.Fatalf("Record gives %+v, %v", r, err)
	}
	_, err = d.PutRecord(ctx, "a/b", []byte("x"), first)
	wantErr(t, "a write from an old revision", err, shardmap.ErrConflict)
	wantErr(t, "a deletion from an old revision", d.DeleteRecord(ctx, "a/b", first), shardmap.ErrConflict)
	wantErr(t, "a deletion of what is not there", d.DeleteRecord(ctx, "a/c", 0), shardmap.ErrConflict)
	if err := d.DeleteRecord(ctx, "a/b", second); err != nil {
		t.Fatalf("DeleteRecord: %v", err)
	}
	_, err = d.Record(ctx, "a/b")
	wantErr(t, "Record after DeleteRecord", err, shardmap.ErrNotFound)
	wantErr(t, "a second deletion", d.DeleteRecord(ctx, "a/b", second), shardmap.ErrConflict)
	third, err := d.PutRecord(ctx, "a/b", []byte("again"), 0)
	if err != nil || third == first || third == second {
		t.Fatalf("written again the record has revision %d after %d and %d, %v", third, first, second, err)
	}
	for name, c := range map[string]struct {
		key   string
		value []byte
	}{
		"no key": {"", nil}, "a zero byte": {"a\x00", nil}, "bytes for text": {"\xff", nil},
		"a long key": {string(make([]byte, shardmap.MaxRecordKeyBytes+1)), nil}, "a long value": {"k", make([]byte, shardmap.MaxRecordValueBytes+1)},
	} {
		if _, err := d.PutRecord(ctx, c.key, c.value, 0); err == nil {
			t.Fatalf("a record with %s was written", name)
		}
	}
	long := bytes.Repeat([]byte{0xa5}, shardmap.MaxRecordValueBytes)
	if _, err := d.PutRecord(ctx, "long", long, 0); err != nil {
		t.Fatalf("PutRecord of the longest value: %v", err)
	}
	if r, err := d.Record(ctx, "long"); err != nil || !bytes.Equal(r.Value, long) {
		t.Fatalf("the longest value comes back with %d bytes, %v", len(r.Value), err)
	}
}

func testRecordLists(t *testing.T, d shardmap.Directory) {
	ctx := t.Context()
	keys := []string{"a", "a/", "a/1", "a/10", "a/2", "a/ä", "a/\U0010FFFF", "a0", "b/1"}
	for i := len(keys) - 1; i >= 0; i-- {
		if _, err := d.PutRecord(ctx, keys[i], []byte(keys[i]), 0); err != nil {
			t.Fatalf("PutRecord(%q): %v", keys[i], err)
		}
	}
	for _, c := range []struct {
		prefix, after string
		limit         int
		want          []string
	}{
		{"", "", 100, keys},
		{"a/", "", 100, keys[1:7]},
		{"a/", "a/1", 2, keys[3:5]},
		{"a/", "a/\U0010FFFF", 100, nil},
		{"a/", "b", 100, nil},
		{"b/", "a", 100, keys[8:]},
		{"c", "", 100, nil},
		{"a", "", 0, nil},
		{"a", "", -1, nil},
		{"", "a0", 100, keys[8:]},
	} {
		list, err := d.Records(ctx, c.prefix, c.after, c.limit)
		var got []string
		for _, r := range list {
			got = append(got, r.Key)
			if string(r.Value) != r.Key || r.Revision == 0 {
				t.Fatalf("Records gives %+v", r)
			}
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Fatalf("Records(%q, %q, %d) gives %q, %v; want %q", c.prefix, c.after, c.limit, got, err, c.want)
		}
	}
}

// testRecordRace has workers count in one record: nothing is lost.
func testRecordRace(t *testing.T, d shardmap.Directory) { raceRecords(t, d) }

func raceRecords(t *testing.T, handles ...shardmap.Directory) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const workers, each = 4, 12
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			d := handles[w%len(handles)]
			for n := 0; n < each; {
				r, err := d.Record(ctx, "count")
				if err != nil && !errors.Is(err, shardmap.ErrNotFound) {
					t.Errorf("Record: %v", err)
					return
				}
				now := 0
				if err == nil {
					now, _ = strconv.Atoi(string(r.Value))
				}
				_, err = d.PutRecord(ctx, "count", []byte(strconv.Itoa(now+1)), r.Revision)
				switch {
				case err == nil:
					n++
				case !errors.Is(err, shardmap.ErrConflict):
					t.Errorf("PutRecord: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if r, err := handles[0].Record(ctx, "count"); !t.Failed() && (err != nil || string(r.Value) != fmt.Sprint(workers*each)) {
		t.Fatalf("%d workers counted %d times each: the record says %q, %v", workers, each, r.Value, err)
	}
}

func testRecordsShared(t *testing.T, open Store) {
	a, b := open(), open()
	defer closing(t, a)
	defer closing(t, b)
	raceRecords(t, a, b)
}
