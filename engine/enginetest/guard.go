package enginetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// setGuard sets a guard in a transaction of its own.
func setGuard(t testing.TB, c *talk, g engine.Guard) {
	t.Helper()
	c.do(`BEGIN`)
	if err := c.SetGuard(t.Context(), g); err != nil {
		t.Fatalf("set guard: %v", err)
	}
	c.do(`COMMIT`)
}

// randomValue returns a value of the type, often one of a few, so that keys
// meet bounds and share first columns.
func randomValue(r *rand.Rand, t keyspace.Type) keyspace.Value {
	few := r.IntN(3) > 0
	switch t {
	case keyspace.Int2, keyspace.Int4, keyspace.Int8:
		top := map[keyspace.Type]int64{keyspace.Int2: math.MaxInt16, keyspace.Int4: math.MaxInt32, keyspace.Int8: math.MaxInt64}[t]
		if few {
			return keyspace.Int(t, []int64{-top - 1, -2, -1, 0, 1, 2, 3, top}[r.IntN(8)])
		}
		return keyspace.Int(t, r.Int64N(top)-top/2)
	case keyspace.Text, keyspace.Varchar:
		letters := []string{"", "a", "B", "b", "Z", "aa", "a b", "'", `"`, `\`, "$1", "$body$", "{", "}", ",", "NULL", "é", "ß", "żółw", "🐢", "\u00a0", "\t", "\n", "%s", " = ", "~", "\U0010ffff"}
		s := letters[r.IntN(len(letters))]
		for !few && r.IntN(3) > 0 {
			s += letters[r.IntN(len(letters))]
		}
		return keyspace.Str(t, s)
	case keyspace.UUID:
		b := make([]byte, 16)
		if few {
			b[0], b[15] = byte(r.IntN(2))<<7, byte(r.IntN(3))
		} else {
			for i := range b {
				b[i] = byte(r.Uint32())
			}
		}
		return keyspace.Str(t, string(b))
	case keyspace.Date:
		if few {
			return keyspace.Int(t, int64(r.IntN(9))-4)
		}
		return keyspace.Int(t, r.Int64N(100000)-50000)
	case keyspace.Timestamp, keyspace.Timestamptz:
		if few {
			return keyspace.Int(t, int64(r.IntN(9))-4)
		}
		return keyspace.Int(t, r.Int64N(4e15)-2e15)
	case keyspace.Bytea:
		s := ""
		for r.IntN(3) > 0 {
			s += string([]byte{[]byte{0, 1, '\'', '\\', 0x7f, 0x80, 0xff}[r.IntN(7)]})
		}
		return keyspace.Str(t, s)
	case keyspace.Bool:
		return keyspace.Int(t, int64(r.IntN(2)))
	}
	panic("enginetest: no values of " + t.String())
}

func randomKey(r *rand.Rand, types []keyspace.Type) keyspace.Key {
	k := make(keyspace.Key, len(types))
	for i, t := range types {
		k[i] = randomValue(r, t)
	}
	return k
}

func ordered(k keyspace.Key) string { return string(keyspace.AppendOrdered(nil, k)) }

// distinct returns up to n different keys in order; with prefixes, some are shortened.
func distinct(r *rand.Rand, types []keyspace.Type, n int, prefixes bool) []keyspace.Key {
	byCode := map[string]keyspace.Key{}
	for range 4 * n {
		k := randomKey(r, types)
		if prefixes && len(k) > 1 && r.IntN(3) == 0 {
			k = k[:1+r.IntN(len(k)-1)]
		}
		byCode[ordered(k)] = k
		if len(byCode) == n {
			break
		}
	}
	keys := make([]keyspace.Key, 0, len(byCode))
	for _, k := range byCode {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b keyspace.Key) int { return strings.Compare(ordered(a), ordered(b)) })
	return keys
}

// randomOwnership returns what a shard could own in a keyspace, and keys worth trying.
func randomOwnership(r *rand.Rand, strategy keyspace.Strategy, types []keyspace.Type) (keyspace.Ownership, []keyspace.Key) {
	o := keyspace.Ownership{Keyspace: "ks", Strategy: strategy, Types: types, Epoch: 7}
	var try []keyspace.Key
	pieces := []int{0, 1, 2, 3, 8, 40, 120}[r.IntN(7)]
	switch strategy {
	case keyspace.Hash:
		o.Seed = []int64{0, 1, -5, math.MaxInt64}[r.IntN(4)]
		bounds := map[int64]bool{}
		for range 2 * pieces {
			bounds[int64(r.Uint64())] = true
		}
		sorted := make([]int64, 0, len(bounds))
		for b := range bounds {
			sorted = append(sorted, b)
		}
		if r.IntN(2) == 0 {
			sorted = append(sorted, math.MinInt64)
		}
		slices.Sort(sorted)
		for i := 0; i < len(sorted); i += 2 {
			if i+1 == len(sorted) {
				o.Intervals = append(o.Intervals, keyspace.Interval{Low: sorted[i], Last: true})
			} else {
				o.Intervals = append(o.Intervals, keyspace.Interval{Low: sorted[i], High: sorted[i+1]})
			}
		}
	case keyspace.Range:
		bounds := distinct(r, types, 2*pieces+1, true)
		for _, b := range bounds {
			if len(b) == len(types) {
				try = append(try, b)
			}
		}
		if r.IntN(2) == 0 {
			bounds = append([]keyspace.Key{nil}, bounds...)
		}
		for i := 0; i < len(bounds); i += 2 {
			v := keyspace.Interval{LowKey: ordered(bounds[i]), LowValues: bounds[i]}
			if i+1 == len(bounds) {
				v.Last = true
			} else {
				v.HighKey, v.HighValues = ordered(bounds[i+1]), bounds[i+1]
			}
			o.Intervals = append(o.Intervals, v)
		}
	case keyspace.List:
		listed := distinct(r, types, 2*pieces, false)
		for i, k := range listed {
			if i%2 == 0 {
				o.Listed = append(o.Listed, k)
			}
		}
		try = append(try, listed...)
		r.Shuffle(len(o.Listed), func(i, j int) { o.Listed[i], o.Listed[j] = o.Listed[j], o.Listed[i] })
	}
	if r.IntN(2) == 0 {
		pins := distinct(r, types, 6, false)
		r.Shuffle(len(pins), func(i, j int) { pins[i], pins[j] = pins[j], pins[i] })
		for i, k := range pins {
			switch i % 3 {
			case 0:
				o.Pinned = append(o.Pinned, k)
			case 1:
				o.PinnedElsewhere = append(o.PinnedElsewhere, k)
			}
		}
		try = append(try, pins...)
	}
	for range 25 {
		try = append(try, randomKey(r, types))
	}
	return o, try
}

// runOwnership compares guards with keyspace.Ownership.Owns for random keys of
// every strategy and type.
func runOwnership(t *testing.T, h Harness) {
	s := h.Open(t)
	c := connect(t, s)
	var kinds [][]keyspace.Type
	for _, typ := range keyspace.Types() {
		kinds = append(kinds, []keyspace.Type{typ})
	}
	kinds = append(kinds,
		[]keyspace.Type{keyspace.Int8, keyspace.Int8},
		[]keyspace.Type{keyspace.Text, keyspace.Int4},
		[]keyspace.Type{keyspace.Bool, keyspace.Text, keyspace.UUID},
		[]keyspace.Type{keyspace.Varchar, keyspace.Bytea, keyspace.Text},
		[]keyspace.Type{keyspace.Date, keyspace.Timestamptz},
		[]keyspace.Type{keyspace.Int2, keyspace.Bool, keyspace.Int4, keyspace.Timestamp},
	)
	const seed = 20250101
	r := rand.New(rand.NewPCG(seed, 0))
	for i, types := range kinds {
		table := fmt.Sprintf("owned%d", i)
		key := make([]string, len(types))
		columns := make([]string, len(types))
		params := make([]string, len(types))
		oids := make([]uint32, len(types))
		for j, typ := range types {
			key[j] = fmt.Sprintf("k%d", j)
			columns[j] = key[j] + " " + typ.String()
			params[j] = fmt.Sprintf("$%d", j+1)
			oids[j] = typ.OID()
		}
		c.do(`CREATE TABLE ` + table + ` (` + strings.Join(columns, ", ") + `)`)
		insert := `INSERT INTO ` + table + ` VALUES (` + strings.Join(params, ", ") + `)`
		for _, strategy := range []keyspace.Strategy{keyspace.Hash, keyspace.Range, keyspace.List} {
			owned, refused := 0, 0
			for round := range cmp.Or(h.Rounds, 4) {
				o, try := randomOwnership(r, strategy, types)
				setGuard(t, c, engine.Guard{Schema: "public", Table: table, ShardKey: key, Owned: o})
				checkCondition(t, c, table, key, oids, o, try)
				c.do(`BEGIN`, `SAVEPOINT one`)
				for _, k := range try {
					e := c.prepared(insert, oids, k.Texts()...).err()
					switch {
					case e == nil:
						owned++
					case e.Code == sqlstate.NotOwner:
						refused++
					default:
						t.Fatalf("%v %v key %v: %v", strategy, types, k, e)
					}
					if (e == nil) != o.Owns(k) {
						t.Fatalf("%v %v round %d, key %v: the guard says %v, Owns says %v; ownership %+v (seed %d)",
							strategy, types, round, k, e, o.Owns(k), o, seed)
					}
					if e != nil {
						c.do(`ROLLBACK TO SAVEPOINT one`)
					}
				}
				c.do(`ROLLBACK`)
			}
			if owned == 0 || refused == 0 {
				t.Logf("%v %v: %d owned, %d refused", strategy, types, owned, refused)
			}
		}
	}
}

// owns is an ownership of [low, high) in a range keyspace of bigint.
func owns(epoch uint64, low, high int64) keyspace.Ownership {
	l, u := keyspace.Key{keyspace.Int(keyspace.Int8, low)}, keyspace.Key{keyspace.Int(keyspace.Int8, high)}
	return keyspace.Ownership{
		Keyspace: "ks", Strategy: keyspace.Range, Types: []keyspace.Type{keyspace.Int8}, Epoch: epoch,
		Intervals: []keyspace.Interval{{LowKey: ordered(l), HighKey: ordered(u), LowValues: l, HighValues: u}},
	}
}

func runOperations(t *testing.T, h Harness) {
	url := h.URL(t)
	s := h.at(t, url, Cluster, Shard)
	if err := s.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := connect(t, s)
	c.do(`CREATE TABLE "Row s" ("the key" bigint, v bigint)`,
		`INSERT INTO "Row s" VALUES (5, 0), (50, 0)`) // 50 was here before the guard
	g := engine.Guard{Schema: "public", Table: "Row s", ShardKey: []string{"the key"}, Owned: owns(3, 0, 10)}
	setGuard(t, c, g)
	rows := func() []string { return c.do(`SELECT "the key", v FROM "Row s" ORDER BY "the key"`).rows() }

	t.Run("described", func(t *testing.T) {
		tab, err := c.DescribeTable(t.Context(), "public", "Row s")
		if err != nil {
			t.Fatal(err)
		}
		if tab.Guard == nil || *tab.Guard != (engine.GuardState{Keyspace: "ks", Epoch: 3, Owns: g.Owned.Encode()}) {
			t.Fatalf("guard %+v", tab.Guard)
		}
		is, err := c.Guard(t.Context(), "public", "Row s")
		if err != nil || is == nil || *is != *tab.Guard {
			t.Fatalf("guard %+v, described as %+v: %v", is, tab.Guard, err)
		}
		if is, err := c.Guard(t.Context(), "public", "no such table"); is != nil || err != nil {
			t.Fatalf("the guard of no table is %+v: %v", is, err)
		}
	})
	t.Run("insert", func(t *testing.T) {
		c.do(`INSERT INTO "Row s" VALUES (0, 1), (9, 1)`)
		e := c.refused(`INSERT INTO "Row s" VALUES (10, 1)`, sqlstate.NotOwner)
		same(t, "message", e.Message, engine.RefusalMessage)
		same(t, "hint", e.Hint, engine.RefusalHint)
		r, ok := engine.ParseRefusal(e)
		if !ok || r != (engine.Refusal{Keyspace: "ks", Epoch: 3, Position: "10"}) {
			t.Fatalf("refusal %+v from %q", r, e.Detail)
		}
		c.refused(`INSERT INTO "Row s" VALUES (-1, 1)`, sqlstate.NotOwner)
		c.refused(`INSERT INTO "Row s" VALUES (1, 1), (2, 1), (11, 1)`, sqlstate.NotOwner)
		c.refused(`INSERT INTO "Row s" (v) VALUES (1)`, sqlstate.NotNullViolation, sqlstate.NotOwner)
		same(t, "rows", rows(), []string{"0|1", "5|0", "9|1", "50|0"})
	})
	t.Run("update", func(t *testing.T) {
		c.do(`UPDATE "Row s" SET v = 2 WHERE "the key" = 5`, `UPDATE "Row s" SET "the key" = 6 WHERE "the key" = 5`)
		c.refused(`UPDATE "Row s" SET "the key" = 60 WHERE "the key" = 6`, sqlstate.NotOwner)
		c.refused(`UPDATE "Row s" SET "the key" = NULL WHERE "the key" = 6`, sqlstate.NotNullViolation, sqlstate.NotOwner)
		c.refused(`UPDATE "Row s" SET v = 3 WHERE "the key" = 50`, sqlstate.NotOwner)
		c.refused(`UPDATE "Row s" SET "the key" = 7 WHERE "the key" = 50`, sqlstate.NotOwner)
		c.refused(`UPDATE "Row s" SET v = v + 1`, sqlstate.NotOwner)
		same(t, "rows", rows(), []string{"0|1", "6|2", "9|1", "50|0"})
		same(t, "none", c.do(`UPDATE "Row s" SET v = 3 WHERE "the key" = 77`).tags(), []string{"UPDATE 0"})
	})
	t.Run("delete", func(t *testing.T) {
		c.do(`DELETE FROM "Row s" WHERE "the key" = 9`)
		c.refused(`DELETE FROM "Row s" WHERE "the key" = 50`, sqlstate.NotOwner)
		c.refused(`DELETE FROM "Row s"`, sqlstate.NotOwner)
		same(t, "rows", rows(), []string{"0|1", "6|2", "50|0"})
	})
	t.Run("truncate", func(t *testing.T) {
		e := c.refused(`TRUNCATE "Row s"`, sqlstate.NotOwner)
		same(t, "message", e.Message, engine.RefusalTruncate)
		c.do(`BEGIN`, `SET LOCAL cleave.guard_epoch = '2'`)
		c.refused(`TRUNCATE "Row s"`, sqlstate.NotOwner)
		c.do(`ROLLBACK`)
		// Of several keyspaces, each with its epoch: another one's is not this one's.
		for _, says := range []string{engine.SayEpochs([]engine.Saying{{Keyspace: "ks", Epoch: 2}, {Keyspace: "other", Epoch: 3}}), ";s:3;", "ks:3", ";ks:33;", ";KS:3;"} {
			c.do(`BEGIN`, `SET LOCAL cleave.guard_epoch = '`+says+`'`)
			c.refused(`TRUNCATE "Row s"`, sqlstate.NotOwner)
			c.do(`ROLLBACK`)
		}
		for _, says := range []string{"3", engine.SayEpochs([]engine.Saying{{Epoch: 1 << 62}, {Keyspace: "other", Epoch: 2}, {Keyspace: "ks", Epoch: 3}})} {
			c.do(`BEGIN`, `SET LOCAL cleave.guard_epoch = '`+says+`'`, `TRUNCATE "Row s"`)
			same(t, "gone", rows(), []string(nil))
			c.do(`ROLLBACK`)
		}
		c.refused(`TRUNCATE "Row s"`, sqlstate.NotOwner)
		same(t, "rows", rows(), []string{"0|1", "6|2", "50|0"})
	})
	t.Run("another handle", func(t *testing.T) {
		d := connect(t, h.at(t, url, Cluster, Shard))
		d.refused(`INSERT INTO "Row s" VALUES (10, 1)`, sqlstate.NotOwner)
		d.do(`INSERT INTO "Row s" VALUES (1, 1)`, `DELETE FROM "Row s" WHERE "the key" = 1`)
	})
	t.Run("rolled back", func(t *testing.T) {
		c.do(`BEGIN`)
		g.Owned = owns(4, 0, 100)
		if err := c.SetGuard(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		c.do(`UPDATE "Row s" SET v = 9 WHERE "the key" = 50`, `ROLLBACK`)
		c.refused(`UPDATE "Row s" SET v = 9 WHERE "the key" = 50`, sqlstate.NotOwner)
	})
	t.Run("nothing may change without the epoch", func(t *testing.T) {
		setGuard(t, c, engine.Guard{Schema: "public", Table: "Row s", Owned: keyspace.Ownership{Keyspace: "ks", Epoch: 5}})
		c.refused(`INSERT INTO "Row s" VALUES (1, 1)`, sqlstate.NotOwner)
		c.refused(`UPDATE "Row s" SET v = 1 WHERE "the key" = 6`, sqlstate.NotOwner)
		c.refused(`DELETE FROM "Row s" WHERE "the key" = 6`, sqlstate.NotOwner)
		c.do(`BEGIN`, `SET LOCAL cleave.guard_epoch = '4'`)
		c.refused(`TRUNCATE "Row s"`, sqlstate.NotOwner)
		c.do(`ROLLBACK`)
		before := rows()
		c.do(`BEGIN`, `SET LOCAL cleave.guard_epoch = '5'`, `UPDATE "Row s" SET v = 1`, `DELETE FROM "Row s"`, `INSERT INTO "Row s" VALUES (1, 1)`, `TRUNCATE "Row s"`, `ROLLBACK`)
		same(t, "rows", rows(), before)
		// Two are good, while one takes the place of the other.
		setGuard(t, c, engine.Guard{Schema: "public", Table: "Row s", Owned: keyspace.Ownership{Keyspace: "ks", Epoch: 6}, Also: 5})
		tab, err := c.DescribeTable(t.Context(), "public", "Row s")
		if err != nil {
			t.Fatal(err)
		}
		if tab.Guard == nil || *tab.Guard != (engine.GuardState{Keyspace: "ks", Epoch: 6, Also: 5}) {
			t.Fatalf("guard %+v", tab.Guard)
		}
		for epoch, good := range map[string]bool{"4": false, "5": true, "6": true, "0": false, ";ks:5;a:4;": true, ";a:4;ks:6;": true, ";ks:4;a:6;": false} {
			for _, sql := range []string{`UPDATE "Row s" SET v = 1 WHERE "the key" = 6`, `TRUNCATE "Row s"`} {
				c.do(`BEGIN`, `SET LOCAL cleave.guard_epoch = '`+epoch+`'`)
				if good {
					c.do(sql)
				} else {
					c.refused(sql, sqlstate.NotOwner)
				}
				c.do(`ROLLBACK`)
			}
		}
		same(t, "rows", rows(), before)
	})
	t.Run("nothing may change", func(t *testing.T) {
		setGuard(t, c, engine.Guard{Schema: "public", Table: "Row s", Owned: keyspace.Ownership{Keyspace: "ks"}})
		c.do(`BEGIN`, `SET LOCAL cleave.guard_epoch = '0'`)
		c.refused(`INSERT INTO "Row s" VALUES (1, 1)`, sqlstate.NotOwner)
		c.do(`ROLLBACK`, `BEGIN`, `SET LOCAL cleave.guard_epoch = '0'`)
		c.refused(`TRUNCATE "Row s"`, sqlstate.NotOwner)
		c.do(`ROLLBACK`)
	})
	t.Run("dropped", func(t *testing.T) {
		for range 2 {
			c.do(`BEGIN`)
			if err := c.DropGuard(t.Context(), "public", "Row s"); err != nil {
				t.Fatal(err)
			}
			c.do(`COMMIT`)
		}
		c.do(`INSERT INTO "Row s" VALUES (1000, 1)`, `DELETE FROM "Row s"`)
	})
	t.Run("mistakes", func(t *testing.T) {
		g.Owned = owns(6, 0, 10)
		for _, bad := range []struct {
			change func(g *engine.Guard)
			code   sqlstate.Code
		}{
			{func(g *engine.Guard) { g.Table = "row s" }, sqlstate.UndefinedTable},
			{func(g *engine.Guard) { g.ShardKey = []string{"The Key"} }, sqlstate.UndefinedColumn},
			{func(g *engine.Guard) { g.Owned.Types = []keyspace.Type{keyspace.Text}; g.Owned.Intervals = nil }, sqlstate.DatatypeMismatch},
		} {
			wrong := g
			bad.change(&wrong)
			c.do(`BEGIN`)
			if err := c.SetGuard(t.Context(), wrong); sqlstate.CodeOf(err) != bad.code {
				t.Fatalf("got %v, want %s", err, bad.code)
			}
			c.do(`ROLLBACK`)
		}
	})
}

func runReplacement(t *testing.T, h Harness) {
	guard := func(low, high int64) engine.Guard {
		return engine.Guard{Schema: "public", Table: "moving", ShardKey: []string{"k"}, Owned: owns(uint64(high), low, high)}
	}
	setup := func(t *testing.T) (s engine.Shard, writer, admin *talk) {
		s = h.Open(t)
		writer, admin = connect(t, s), connect(t, s)
		admin.do(`CREATE TABLE moving (k bigint NOT NULL, v bigint)`, `INSERT INTO moving VALUES (150, 0)`)
		setGuard(t, admin, guard(0, 200))
		return s, writer, admin
	}
	within := func(t *testing.T, d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		t.Cleanup(cancel)
		return ctx
	}

	t.Run("waits for a writer, for so long", func(t *testing.T) {
		_, writer, admin := setup(t)
		writer.do(`BEGIN`, `INSERT INTO moving VALUES (151, 0)`)
		admin.do(`BEGIN`)
		start := time.Now()
		err := admin.SetGuard(within(t, 400*time.Millisecond), guard(0, 100))
		if sqlstate.CodeOf(err) != sqlstate.LockNotAvailable {
			t.Fatalf("got %v", err)
		}
		if d := time.Since(start); d > 3*time.Second {
			t.Fatalf("it took %v", d)
		}
		admin.do(`ROLLBACK`)
		// The writer was not disturbed.
		writer.do(`INSERT INTO moving VALUES (152, 0)`, `COMMIT`)
		setGuard(t, admin, guard(0, 100))
		writer.refused(`INSERT INTO moving VALUES (153, 0)`, sqlstate.NotOwner)
		writer.refused(`UPDATE moving SET v = 1 WHERE k = 152`, sqlstate.NotOwner)
		writer.do(`INSERT INTO moving VALUES (53, 0)`)
	})
	t.Run("goes on when the writer ends", func(t *testing.T) {
		_, writer, admin := setup(t)
		// The writer's plans are cached.
		insert := script(nil).parse("w", `INSERT INTO moving VALUES ($1, 0)`, 20).sync()
		same(t, "prepare", writer.run(insert, 1).code(), "")
		put := func(k int64) sqlstate.Code {
			return writer.run(script(nil).bind("", "w", itoa(k)).execute("", 0).sync(), 1).code()
		}
		for k := range int64(10) {
			same(t, "insert", put(150+k), "")
		}
		writer.do(`BEGIN`)
		same(t, "insert", put(170), "")
		done := make(chan error, 1)
		admin.do(`BEGIN`)
		ctx := within(t, 20*time.Second)
		go func() { done <- admin.SetGuard(ctx, guard(0, 100)) }()
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(300 * time.Millisecond):
		}
		writer.do(`COMMIT`)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		admin.do(`COMMIT`)
		same(t, "cached plan", put(171), sqlstate.NotOwner)
		same(t, "cached plan", put(71), "")
		same(t, "count", len(admin.do(`SELECT k FROM moving WHERE k = 170 OR k = 171`).rows()), 1)
	})
	for _, mode := range h.Isolation {
		t.Run("transaction open before, "+mode, func(t *testing.T) {
			_, writer, admin := setup(t)
			writer.do(`BEGIN ISOLATION LEVEL `+mode, `SELECT * FROM moving`)
			setGuard(t, admin, guard(0, 100))
			// Not owned any more, or a snapshot too old to write: never a row.
			writer.refused(`INSERT INTO moving VALUES (160, 0)`, sqlstate.NotOwner, sqlstate.SerializationFailure)
			writer.do(`ROLLBACK`, `BEGIN ISOLATION LEVEL `+mode, `SELECT * FROM moving`)
			setGuard(t, admin, guard(0, 50))
			writer.refused(`UPDATE moving SET v = 5 WHERE k = 150`, sqlstate.NotOwner, sqlstate.SerializationFailure)
			writer.do(`ROLLBACK`)
			same(t, "rows", admin.do(`SELECT k, v FROM moving`).rows(), []string{"150|0"})
		})
	}
	t.Run("gives up with its context", func(t *testing.T) {
		_, writer, admin := setup(t)
		writer.do(`BEGIN`, `INSERT INTO moving VALUES (151, 0)`)
		admin.do(`BEGIN`)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(200*time.Millisecond, cancel)
		err := admin.SetGuard(ctx, guard(0, 100))
		if err == nil {
			t.Fatal("it did not wait")
		}
		var e *sqlstate.Error
		if !errors.As(err, &e) || e.Code != sqlstate.QueryCanceled && e.Code != sqlstate.LockNotAvailable {
			t.Fatalf("got %v", err)
		}
		admin.do(`ROLLBACK`)
		writer.do(`COMMIT`)
	})
}
