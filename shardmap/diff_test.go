package shardmap_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
)

func lines(ds []shardmap.Difference) string {
	var b strings.Builder
	for _, d := range ds {
		b.WriteString(d.String() + "\n")
	}
	return b.String()
}

func TestDiff(t *testing.T) {
	a := first(t, fullState(t))
	if ds := shardmap.Diff(a, a); len(ds) != 0 {
		t.Fatalf("a map differs from itself:\n%s", lines(ds))
	}
	b := step(t, a, func(s *shardmap.State) {
		s.DefaultShard = "shard-1"
		s.Shards[0].URL = "postgres://u:sesame@h/db"
		s.Shards[1].Weight = 2.5
		s.PutShard(shardmap.Shard{Name: "shard-9", Engine: "postgres", URL: "postgres://u:sesame@h9/db", Weight: 1, Labels: map[string]string{"region": "us"}})
		h := s.Keyspaces[0].Ranges
		h[2].Shard, h[3].Shard, h[4].Shard = "shard-9", "shard-9", "shard-9"
		r := s.Keyspaces[1].Ranges
		s.Keyspaces[1].Ranges = slices.Concat([]shardmap.Range{
			{High: []string{"b"}, Shard: "shard-0"},
			{Low: []string{"b"}, High: []string{"m", "20"}, Shard: "shard-9"},
		}, r[3:])
		s.Keyspaces[2].Values = []shardmap.ListValue{{Key: []string{"eu"}, Shard: "shard-9"}, {Key: []string{"a b"}, Shard: "shard-0"}}
		s.Keyspaces[2].Pins = nil
		if err := s.PutPin("tenant", []string{"43"}, "shard-9"); err != nil {
			t.Fatal(err)
		}
		s.PutTable(shardmap.Table{Schema: "public", Name: "Items", Kind: shardmap.Whole})
		s.DropTable("public", "country")
		s.Tables[0].Columns[1].Type = "varchar"
	})
	want := `default shard changed: shard-0 -> shard-1
shard shard-0 changed: sqlite, file:/data/shard-0.db, weight 1 -> sqlite, postgres://u:xxxxx@h/db, weight 1
shard shard-1 changed: sqlite, file:/data/shard-1.db, weight 1, region=eu -> sqlite, file:/data/shard-1.db, weight 2.5, region=eu
shard shard-9 added: postgres, postgres://u:xxxxx@h9/db, weight 1, region=us
bound b of keyspace place added
bound d of keyspace place removed
bound (m,10) of keyspace place removed
range [b,d) of keyspace place changed: shard-0 -> shard-9 (epoch 2)
range [d,(m,20)) of keyspace place changed: shard-1 -> shard-9 (epoch 2)
value "a b" of keyspace region added: shard-0 (epoch 2)
value eu of keyspace region changed: shard-0 -> shard-9 (epoch 2)
value us of keyspace region removed: was shard-2
pin asia of keyspace region removed: was shard-1
range [-3074457345618258603,3074457345618258602) of keyspace tenant changed: shard-1 -> shard-9 (epoch 2)
range [3074457345618258602,6148914691236517205) of keyspace tenant changed: shard-2 -> shard-9 (epoch 2)
pin 43 of keyspace tenant added: shard-9 (epoch 2)
table public."Items" added: whole
table public.country removed: was reference
table public.orders changed: sharded by (tenant_id) in tenant (tenant_id bigint not null, note text) -> sharded by (tenant_id) in tenant (tenant_id bigint not null, note varchar)
`
	got := lines(shardmap.Diff(a, b))
	if got != want {
		t.Fatalf("the difference is\n%s\nwant\n%s", got, want)
	}
	if strings.Contains(got, "sesame") {
		t.Errorf("the difference shows a password:\n%s", got)
	}
	c := step(t, b, func(s *shardmap.State) { s.Shards[0].URL = "postgres://u:other@h/db" })
	if got := lines(shardmap.Diff(b, c)); got != "shard shard-0 changed: changed credentials\n" {
		t.Errorf("another password gives %q", got)
	}
	d := step(t, c, func(s *shardmap.State) { s.Keyspaces[2].Types[0] = keyspace.Varchar })
	if got := lines(shardmap.Diff(c, d)); !strings.HasPrefix(got, "keyspace region changed: list (text) -> list (character varying)\n") {
		t.Errorf("another type gives %q", got)
	}
	all := shardmap.Diff(nil, a)
	for _, d := range all {
		if d.Action != shardmap.Added {
			t.Errorf("against nothing: %s", d)
		}
	}
	if gone := shardmap.Diff(a, nil); len(gone) != 1+3+3+3 || len(all) <= len(gone) {
		t.Errorf("%d differences to nothing, %d from nothing:\n%s", len(gone), len(all), lines(gone))
	}
	if ds := shardmap.Diff(nil, nil); ds != nil {
		t.Errorf("nothing differs from nothing: %v", ds)
	}
}

// TestDiffModel checks that the differences say of each key whether it moved,
// and lead back when both maps change places.
func TestDiffModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k := genKeyspace("k").Filter(func(k shardmap.Keyspace) bool { return k.Strategy != keyspace.List }).Draw(rt, "before")
		k.Pins = nil
		l := genKeyspace("k").Filter(func(l shardmap.Keyspace) bool { return l.Strategy == k.Strategy }).Draw(rt, "after")
		if !slices.Equal(k.Types, l.Types) || k.Seed != l.Seed {
			// Bounds of other types: keep k's, with other owners and some merged.
			l = k.Clone()
			var ranges []shardmap.Range
			for _, r := range l.Ranges {
				r.Shard = rapid.SampledFrom(shardNames).Draw(rt, "owner")
				if len(ranges) > 0 && rapid.Bool().Draw(rt, "merge") {
					ranges[len(ranges)-1].High = r.High
					continue
				}
				ranges = append(ranges, r)
			}
			l.Ranges = ranges
		}
		l.Pins = nil
		a, errA := shardmap.NewSnapshot(baseState(k))
		b, errB := shardmap.NewSnapshot(baseState(l))
		if errA != nil || errB != nil {
			rt.Fatalf("%v, %v", errA, errB)
		}
		before, _ := a.Keyspace("k")
		after, _ := b.Keyspace("k")
		forth, back := shardmap.Diff(a, b), shardmap.Diff(b, a)
		// The moved pieces, as a keyspace's ranges, so that the model can look
		// them up: each key is in at most one.
		for _, key := range keysOf(rt, before.Def()) {
			x, errX := before.Locate(key)
			y, errY := after.Locate(key)
			if errX != nil || errY != nil {
				rt.Fatalf("%v, %v", errX, errY)
			}
			var moves []string
			for _, d := range forth {
				if d.Kind != shardmap.RangeDiffers {
					continue
				}
				piece := shardmap.Keyspace{Strategy: k.Strategy, Types: k.Types, Seed: k.Seed,
					Ranges: []shardmap.Range{{Low: d.Low, High: d.High, Shard: "x"}}}
				if _, in := locateSlowly(rt, &piece, key); in {
					moves = append(moves, d.From+" -> "+d.To)
				}
			}
			var want []string
			if x.Shard != y.Shard {
				want = []string{x.Shard + " -> " + y.Shard}
			}
			if !slices.Equal(moves, want) {
				rt.Fatalf("%v went from %s to %s, the difference says %v:\n%s", key, x.Shard, y.Shard, moves, lines(forth))
			}
		}
		if len(forth) != len(back) {
			rt.Fatalf("forth:\n%sback:\n%s", lines(forth), lines(back))
		}
		for i := range forth {
			d := forth[i]
			d.From, d.To = d.To, d.From
			d.Epoch = back[i].Epoch
			switch d.Action {
			case shardmap.Added:
				d.Action = shardmap.Removed
			case shardmap.Removed:
				d.Action = shardmap.Added
			}
			if !reflect.DeepEqual(d, back[i]) {
				rt.Fatalf("forth:\n%sback:\n%s", lines(forth), lines(back))
			}
		}
	})
}

func TestRedacted(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://u:secret@h:5432/db?sslmode=require":    "postgres://u:xxxxx@h:5432/db?sslmode=require",
		"postgres://u@h/db":                                "postgres://u@h/db",
		"postgres://h:5432/db":                             "postgres://h:5432/db",
		"postgres:///db?host=/run/pg":                      "postgres:///db?host=/run/pg",
		"postgres://u:secret@h1:1,h2:2/db":                 "postgres://u:xxxxx@h1:1,h2:2/db",
		"postgres://u:@h/db":                               "postgres://u:xxxxx@h/db",
		"postgres://u:sec:ret@h/db":                        "postgres://u:xxxxx@h/db",
		"postgres://u:sec@ret@h/db":                        "postgres://u:xxxxx@h/db",
		"postgres://u:sec/ret@h/db":                        "postgres://xxxxx@h/db",
		"postgres://u:sec?ret@h/db":                        "postgres://xxxxx@h/db",
		"postgres://u:sec#ret@h/db":                        "postgres://xxxxx@h/db",
		"postgres://u:secret%40@[::1]:5432/db":             "postgres://u:xxxxx@[::1]:5432/db",
		"postgres://h/db?user=u&password=secret&sslmode=x": "postgres://h/db?user=u&password=xxxxx&sslmode=x",
		"postgres://h/db?PassWord=secret":                  "postgres://h/db?PassWord=xxxxx",
		"postgres://h/db?p%61ssword=secret":                "postgres://h/db?p%61ssword=xxxxx",
		"postgres://h/db?sslpassword=secret&passfile=/a":   "postgres://h/db?sslpassword=xxxxx&passfile=/a",
		"postgres://h/db?%zz=secret":                       "postgres://h/db?%zz=xxxxx",
		"postgres://h/db?user=a@b":                         "postgres://h/db?user=a@b",
		"file:/data/shard-0.db":                            "file:/data/shard-0.db",
		"file:/data/shard-0.db?key=secret":                 "file:/data/shard-0.db?key=xxxxx",
		"file:///data/shard-0.db?hexkey=secret&mode=rw":    "file:///data/shard-0.db?hexkey=xxxxx&mode=rw",
		"/data/shard-0.db":                                 "/data/shard-0.db",
		"":                                                 "",
		"host=h password=secret dbname=d":                  "host=h password=xxxxx dbname=d",
		"host = h password = 'sec ret' dbname=d":           "host=h password=xxxxx dbname=d",
		`host=h password='sec\'ret' dbname=d`:              "host=h password=xxxxx dbname=d",
		`host=h password=sec\ ret dbname=d`:                "host=h password=xxxxx dbname=d",
		"host=h password='secret":                          "host=h password=xxxxx",
		"host=h password=sec ret":                          "host=h password=xxxxx xxxxx",
		"host=h password=sec ret=x dbname=d":               "host=h password=xxxxx ret=x dbname=d",
		"dbname='postgres://u:secret@h/db' sslmode=x":      "dbname=xxxxx sslmode=x",
		"u:secret@h/db":                                    "u:xxxxx@h/db",
	} {
		if got := shardmap.Redacted(url); got != want {
			t.Errorf("Redacted(%q) = %q, want %q", url, got, want)
		}
	}
	s := shardmap.Shard{Name: "a", Engine: "postgres", URL: "postgres://u:secret@h/db", Weight: 1}
	if got := s.String(); got != "a (postgres postgres://u:xxxxx@h/db)" {
		t.Errorf("a shard prints as %s", got)
	}
	if got := s.LogValue().String(); strings.Contains(got, "secret") {
		t.Errorf("a shard is logged as %s", got)
	}
}

// TestRedactedHidesAnyPassword puts passwords of awkward characters, escaped or
// not, where passwords are.
func TestRedactedHidesAnyPassword(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// Every piece of the password is a Q, which is nowhere else.
		password := rapid.StringOfN(rapid.SampledFrom([]rune("Q/?#@:&=%[]")), 1, 12, -1).Draw(rt, "password")
		for _, url := range []string{
			"postgres://u:" + password + "@h/db",
			"postgres://u:" + password + "@h:5432/db?sslmode=require",
			"file:/data/a.db?key=" + strings.NewReplacer("&", "", "#", "").Replace(password),
			"host=h password=" + password + " dbname=d",
			"host=h password='" + password + " '",
			"host=h password='" + password,
		} {
			if got := shardmap.Redacted(url); strings.Contains(got, "Q") {
				rt.Fatalf("Redacted(%q) = %q", url, got)
			}
		}
	})
}
