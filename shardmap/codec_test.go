package shardmap_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := fullState(t)
		s.PutKeyspace(genKeyspace("k").Draw(rt, "keyspace"))
		snap := first(t, s)
		packed, err := shardmap.Pack(snap)
		if err != nil {
			rt.Fatal(err)
		}
		again, err := shardmap.Unpack(packed)
		if err != nil {
			rt.Fatalf("what Pack wrote cannot be read: %v", err)
		}
		if !reflect.DeepEqual(again, snap) {
			rt.Fatalf("read again, the map is\n%+v\nwant\n%+v", again.State(), snap.State())
		}
	})
}

func gzipped(raw []byte) []byte {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	if _, err := z.Write(raw); err != nil {
		panic(err)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

func TestDecodeRefuses(t *testing.T) {
	snap := first(t, fullState(t))
	raw, err := shardmap.EncodeState(snap.State())
	if err != nil {
		t.Fatal(err)
	}
	replace := func(old, new string) []byte {
		if !bytes.Contains(raw, []byte(old)) {
			t.Fatalf("the map does not contain %s: %s", old, raw)
		}
		return bytes.Replace(raw, []byte(old), []byte(new), 1)
	}
	for name, c := range map[string]struct {
		raw  []byte
		code sqlstate.Code
		says string
	}{
		"nothing":        {nil, sqlstate.DataCorrupted, "cannot be read"},
		"no JSON":        {[]byte("hello"), sqlstate.DataCorrupted, "cannot be read"},
		"a list":         {[]byte("[]"), sqlstate.DataCorrupted, "cannot be read"},
		"null":           {[]byte("null"), sqlstate.ObjectNotInState, "format 0"},
		"half":           {raw[:len(raw)/2], sqlstate.DataCorrupted, "cannot be read"},
		"more":           {append(bytes.Clone(raw), " {}"...), sqlstate.DataCorrupted, "cannot be read"},
		"newer":          {replace(`"format":1`, `"format":2,"news":true`), sqlstate.ObjectNotInState, "newer release"},
		"unknown field":  {replace(`"format":1`, `"format":1,"news":true`), sqlstate.DataCorrupted, `unknown field "news"`},
		"unknown type":   {replace(`"bigint"`, `"money"`), "", ""},
		"no version":     {replace(`"version":1,"schema_version":1`, `"version":0,"schema_version":0`), "", ""},
		"no epoch":       {replace(`"epoch":1`, `"epoch":0`), sqlstate.InvalidObjectDefinition, "no epoch"},
		"epoch to come":  {replace(`"epoch":1`, `"epoch":2`), sqlstate.InvalidObjectDefinition, "epoch 2"},
		"negative epoch": {replace(`"epoch":1`, `"epoch":-1`), sqlstate.DataCorrupted, "cannot be read"},
	} {
		_, err := shardmap.Unpack(gzipped(c.raw))
		if err == nil || c.code != "" && sqlstate.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got error %v, want %s with %q", name, err, c.code, c.says)
		}
	}
	packed, err := shardmap.Pack(snap)
	if err != nil {
		t.Fatal(err)
	}
	for i := range packed {
		flipped := bytes.Clone(packed)
		flipped[i] ^= 0x10
		// The header of gzip has bytes that say nothing about the content.
		if again, err := shardmap.Unpack(flipped); err == nil && !reflect.DeepEqual(again.State(), snap.State()) {
			t.Fatalf("with byte %d flipped another map is read", i)
		}
		if _, err := shardmap.Unpack(packed[:i]); err == nil {
			t.Fatalf("cut to %d of %d bytes the map is read", i, len(packed))
		}
	}
	// A small input that unpacks to more than a map may take.
	bomb := gzipped(bytes.Repeat([]byte(" "), shardmap.MaxStateBytes+10))
	if _, err := shardmap.Unpack(bomb); sqlstate.CodeOf(err) != sqlstate.ProgramLimitExceeded {
		t.Errorf("%d bytes that unpack to more than the bound: %v", len(bomb), err)
	}
}

func FuzzDecode(f *testing.F) {
	snap := first(f, fullState(f))
	raw, err := shardmap.EncodeState(snap.State())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"format":1,"cluster":"c","version":1,"schema_version":1,"default_shard":"a","shards":[{"name":"a","engine":"sqlite","url":"","weight":1}],` +
		`"keyspaces":[{"name":"k","strategy":"range","types":["text","uuid"],"seed":0,"ranges":[{"low":null,"high":["a"],"shard":"a","epoch":1},{"low":["a"],"high":null,"shard":"a","epoch":1}]}],"tables":null}`))
	f.Add([]byte(`{"format":1,"keyspaces":[{"types":"AQI="}]}`))
	f.Add([]byte(`{"format":1,"shards":[{"weight":1e999}]}`))
	f.Add([]byte(strings.Repeat("[", 20000)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 1<<20 {
			return
		}
		snap, err := shardmap.DecodeSnapshot(raw)
		if err != nil {
			if snap != nil || sqlstate.CodeOf(err) == sqlstate.InternalError {
				t.Fatalf("a map and the error %v", err)
			}
			return
		}
		// What is accepted is valid, and stays what it is.
		if _, err := shardmap.NewSnapshot(*snap.State()); err != nil {
			t.Fatalf("the decoded map is invalid: %v", err)
		}
		packed, err := shardmap.Pack(snap)
		if err != nil {
			t.Fatal(err)
		}
		again, err := shardmap.Unpack(packed)
		if err != nil {
			t.Fatalf("written again, the map cannot be read: %v", err)
		}
		if !reflect.DeepEqual(again.State(), snap.State()) {
			t.Fatalf("written again, the map is\n%+v\nbefore it was\n%+v", again.State(), snap.State())
		}
		if ds := shardmap.Diff(snap, again); len(ds) > 0 {
			t.Fatalf("written again, the map differs: %v", ds)
		}
		// And all that looks at it is total.
		for i := range snap.State().Keyspaces {
			name := snap.State().Keyspaces[i].Name
			ix, _ := snap.Keyspace(name)
			for j := range ix.Def().Ranges {
				ix.RangeText(j)
			}
			for _, s := range snap.Shards() {
				snap.Ownership(name, s.Name)
			}
		}
		shardmap.Diff(nil, snap)
		shardmap.Diff(snap, nil)
	})
}

func TestFeed(t *testing.T) {
	snap := first(t, fullState(t))
	versions := []*shardmap.Snapshot{snap}
	for range 50 {
		snap = step(t, snap, func(*shardmap.State) {})
		versions = append(versions, snap)
	}
	var f shardmap.Feed
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 8 {
		ch, err := f.Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			last := uint64(0)
			for s := range ch {
				if s.Version() <= last {
					t.Errorf("version %d after %d", s.Version(), last)
				}
				last = s.Version()
				if i%2 == 0 {
					time.Sleep(time.Duration(i) * time.Millisecond)
				}
				if last == uint64(len(versions)) {
					return
				}
			}
			t.Errorf("a watch ended at version %d", last)
		})
	}
	// Two publishers, of which each is behind the other at times.
	for p := range 2 {
		wg.Go(func() {
			for _, s := range versions[p:] {
				f.Publish(s)
			}
		})
	}
	wg.Wait()
	cancel()
	for f.Watching() {
		time.Sleep(time.Millisecond)
	}
	ch, err := f.Watch(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	f.Close()
	if s, ok := <-ch; ok {
		t.Fatalf("a closed feed still sends version %d", s.Version())
	}
	f.Publish(snap)
	if _, err := f.Watch(context.Background()); !errors.Is(err, shardmap.ErrClosed) {
		t.Fatalf("Watch of a closed feed: %v", err)
	}
}
