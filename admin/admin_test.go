package admin

import (
	"context"
	"errors"
	"fmt"
	neturl "net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/sqlstate"
)

var errStop = errors.New("stopped by the test")

func TestCreateKeyspace(t *testing.T) {
	c := newCluster(t, 3)
	ctx := context.Background()
	make := func(req CreateKeyspaceRequest) (*Result, error) {
		req.Meta = meta
		return c.ops.CreateKeyspace(ctx, req)
	}
	for _, bad := range []struct {
		req  CreateKeyspaceRequest
		code string
	}{
		{CreateKeyspaceRequest{Name: "k", Strategy: "ring", KeyTypes: []string{"bigint"}}, "22023"},
		{CreateKeyspaceRequest{Name: "k", Strategy: "hash"}, "22023"},
		{CreateKeyspaceRequest{Name: "k", Strategy: "hash", KeyTypes: []string{"float8"}}, "0A000"},
		{CreateKeyspaceRequest{Name: "k", Strategy: "hash", KeyTypes: []string{"bigint"}, Ranges: -1}, "22023"},
		{CreateKeyspaceRequest{Name: "k", Strategy: "hash", KeyTypes: []string{"bigint"}, Bounds: [][]string{{"1"}}}, "22023"},
		{CreateKeyspaceRequest{Name: "k", Strategy: "hash", KeyTypes: []string{"bigint"}, Shards: []string{"nope"}}, "42704"},
		{CreateKeyspaceRequest{Name: "k", Strategy: "range", KeyTypes: []string{"bigint"}, Bounds: [][]string{{"x"}}}, "22P02"},
		{CreateKeyspaceRequest{Name: "k", Strategy: "list", KeyTypes: []string{"text"}}, "22023"},
		{CreateKeyspaceRequest{Name: "k", Strategy: "list", KeyTypes: []string{"text"}, Values: []ListedValue{{Key: []string{"a"}, Shard: "nope"}}}, "42704"},
	} {
		_, err := make(bad.req)
		if code := codeOf(err); code != bad.code {
			t.Errorf("%+v: %s, %v", bad.req, code, err)
		}
	}
	before := c.snap().Version()
	res, err := make(CreateKeyspaceRequest{Meta: meta, Name: "h", Strategy: "hash", KeyTypes: []string{"int8", "uuid"}, Ranges: 6})
	if err != nil || !res.Done || res.Version != before+1 || len(res.Plan) != 4 {
		t.Fatal(res, err)
	}
	_, err = make(CreateKeyspaceRequest{Name: "h", Strategy: "hash", KeyTypes: []string{"bigint"}})
	code(t, err, "42710")
	if _, err = make(CreateKeyspaceRequest{Name: "r", Strategy: "range", KeyTypes: []string{"text"}, Bounds: [][]string{{"g"}, {"p"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err = make(CreateKeyspaceRequest{Name: "l", Strategy: "list", KeyTypes: []string{"text"}, Values: []ListedValue{{Key: []string{"eu"}, Shard: "shard-2"}, {Key: []string{"us"}}}}); err != nil {
		t.Fatal(err)
	}
	where := func(ks string, key ...string) string {
		t.Helper()
		res, err := c.ops.ShardOf(ctx, ShardOfRequest{Keyspace: ks, Key: key})
		if err != nil {
			t.Fatal(err)
		}
		return res.Shard
	}
	if where("r", "a") != "shard-0" || where("r", "h") != "shard-1" || where("r", "z") != "shard-2" || where("l", "eu") != "shard-2" || where("l", "us") != "shard-1" {
		t.Fatal("keys are elsewhere")
	}
	_, err = c.ops.ShardOf(ctx, ShardOfRequest{Keyspace: "l", Key: []string{"mars"}})
	code(t, err, "23514")
	_, err = c.ops.ShardOf(ctx, ShardOfRequest{Keyspace: "h", Key: []string{"1"}})
	code(t, err, "22023")
	v := c.snap().Version()
	dry := CreateKeyspaceRequest{Name: "dry", Strategy: "hash", KeyTypes: []string{"bigint"}}
	dry.DryRun = true
	if res, err := c.ops.CreateKeyspace(ctx, dry); err != nil || res.Done || c.snap().Version() != v {
		t.Fatal(res, err)
	}
	last, err := c.ops.History(ctx, HistoryRequest{Limit: 1, Last: true})
	if err != nil || len(last) != 1 || last[0].By != "alice" || last[0].Why != "a test" || last[0].Op != "create_keyspace" {
		t.Fatal(last, err)
	}
	diff, err := c.ops.Diff(ctx, 0, 0)
	if err != nil || len(diff) == 0 {
		t.Fatal(diff, err)
	}
}

func codeOf(err error) string {
	if err == nil {
		return ""
	}
	return string(asState(err).Code)
}

// TestPinsOfMovingKeys: while a key moves by itself, its pin is that move's. The map would refuse some of the changes as
// invalid, and would take others.
func TestPinsOfMovingKeys(t *testing.T) {
	c := newCluster(t, 3)
	ctx := context.Background()
	c.ddl(createOrders)
	st := c.snap().State().Clone()
	from := c.owner("42")
	to := []string{"shard-0", "shard-1", "shard-2"}
	to = slices.DeleteFunc(to, func(s string) bool { return s == from })
	// Pinned to a shard that its range is not on, and on its way to a third one.
	if err := st.PutPin("hash_bigint", []string{"42"}, to[0]); err != nil {
		t.Fatal(err)
	}
	st.PutTransit("hash_bigint", shardmap.Transit{ID: "m", Part: shardmap.Part{Key: []string{"42"}}, From: to[0], To: to[1]})
	if _, err := c.dir.Update(ctx, shardmap.Change{Expect: st.Version, By: "test", Op: "test", Why: "test"}, st); err != nil {
		t.Fatal(err)
	}
	_, err := c.ops.Unpin(ctx, UnpinRequest{Meta: meta, Keyspace: "hash_bigint", Key: []string{"42"}})
	code(t, err, "55000")
	if !strings.Contains(err.Error(), "(move m)") {
		t.Error(err)
	}
	for _, shard := range []string{from, to[1]} {
		_, err := c.ops.Pin(ctx, PinRequest{Meta: meta, Keyspace: "hash_bigint", Key: []string{"42"}, Shard: shard})
		code(t, err, "55000")
	}
}

func TestPin(t *testing.T) {
	c := newCluster(t, 3)
	ctx := context.Background()
	c.ddl(createOrders)
	c.ddl("CREATE TABLE items (tenant bigint NOT NULL, n int) WITH (cleave.shard_key = 'tenant')")
	from := c.owner("42")
	to := "shard-0"
	if from == to {
		to = "shard-1"
	}
	req := PinRequest{Meta: meta, Keyspace: "hash_bigint", Key: []string{"42"}, Shard: to}
	// A key with rows is moved, by a coordinator; there is none here.
	c.query(from, "INSERT INTO items VALUES (42, 1)")
	c.moves(func() (*Result, error) { return c.ops.Pin(ctx, req) })
	if c.owner("42") != from {
		t.Fatal("the key is elsewhere than its rows")
	}
	c.healthy()
	c.query(from, "DELETE FROM items")
	dry := req
	dry.DryRun = true
	if res, err := c.ops.Pin(ctx, dry); err != nil || res.Done || len(res.Plan) != 3 || c.owner("42") != from {
		t.Fatal(res, err)
	}
	res, err := c.ops.Pin(ctx, req)
	if err != nil || !res.Done || len(res.Warnings) > 0 {
		t.Fatal(res, err)
	}
	if got := c.owner("42"); got != to {
		t.Fatalf("%s takes it", got)
	}
	c.healthy()
	if res, err := c.ops.Pin(ctx, req); err != nil || !strings.Contains(res.Plan[0], "nothing to do") {
		t.Fatal(res, err)
	}
	pins, err := c.ops.Pins(ctx, "hash_bigint")
	if err != nil || len(pins) != 1 || pins[0].Shard != to {
		t.Fatal(pins, err)
	}
	if of, err := c.ops.ShardOf(ctx, ShardOfRequest{Keyspace: "hash_bigint", Key: []string{"42"}}); err != nil || !of.Pinned || of.Shard != to {
		t.Fatal(of, err)
	}
	// From there to a third shard and back: the guards of the one with its range say the epoch of the pin too.
	for _, shard := range []string{"shard-0", "shard-1", "shard-2", to} {
		if shard == from {
			continue
		}
		if _, err := c.ops.Pin(ctx, PinRequest{Meta: meta, Keyspace: "hash_bigint", Key: []string{"42"}, Shard: shard}); err != nil {
			t.Fatal(err)
		}
		c.healthy()
	}
	// A new table of the keyspace is guarded in the same way.
	c.ddl("CREATE TABLE later (t bigint PRIMARY KEY) WITH (cleave.shard_key = 't')")
	c.query(to, "INSERT INTO later VALUES (42)")
	c.moves(func() (*Result, error) {
		return c.ops.Unpin(ctx, UnpinRequest{Meta: meta, Keyspace: "hash_bigint", Key: []string{"42"}})
	})
	c.query(to, "DELETE FROM later")
	if res, err := c.ops.Unpin(ctx, UnpinRequest{Meta: meta, Keyspace: "hash_bigint", Key: []string{"42"}}); err != nil || !res.Done ||
		!strings.Contains(strings.Join(res.Plan, "\n"), "the pin of key (42) of hash_bigint goes, and its keyspace places it on "+from) {
		t.Fatal(res, err)
	}
	if got := c.owner("42"); got != from {
		t.Fatalf("%s takes it after unpin", got)
	}
	c.healthy()
	_, err = c.ops.Unpin(ctx, UnpinRequest{Meta: meta, Keyspace: "hash_bigint", Key: []string{"42"}})
	code(t, err, "42704")
	// A key may be pinned, rows and all, to where it is.
	c.query(from, "INSERT INTO items VALUES (42, 1)")
	if res, err := c.ops.Pin(ctx, PinRequest{Meta: meta, Keyspace: "hash_bigint", Key: []string{"42"}, Shard: from}); err != nil || !res.Done {
		t.Fatal(res, err)
	}
	c.healthy()
	for _, bad := range []struct {
		req  PinRequest
		code string
	}{
		{PinRequest{Keyspace: "nope", Key: []string{"1"}, Shard: to}, "42704"},
		{PinRequest{Keyspace: "hash_bigint", Key: []string{"1"}, Shard: "nope"}, "42704"},
		{PinRequest{Keyspace: "hash_bigint", Key: []string{"x"}, Shard: to}, "22P02"},
		{PinRequest{Keyspace: "hash_bigint", Key: []string{"1", "2"}, Shard: to}, "22023"},
		{PinRequest{Keyspace: "hash_bigint", Key: nil, Shard: to}, "22023"},
	} {
		_, err := c.ops.Pin(ctx, bad.req)
		if code := codeOf(err); code != bad.code {
			t.Errorf("%+v: %s, %v", bad.req, code, err)
		}
	}
}

// TestPinCrash stops at each step: never do two shards take the key, and doctor
// brings guards and map together again.
func TestPinCrash(t *testing.T) {
	c := newCluster(t, 3)
	ctx := context.Background()
	c.ddl(createOrders)
	for i, unpin := range []bool{false, true} {
		for n := 1; ; n++ {
			key := fmt.Sprint(1000*(i+1) + n)
			home := c.owner(key)
			to := "shard-0"
			if home == to {
				to = "shard-2"
			}
			pin := PinRequest{Meta: meta, Keyspace: "hash_bigint", Key: []string{key}, Shard: to}
			if unpin {
				if _, err := c.ops.Pin(ctx, pin); err != nil {
					t.Fatal(err)
				}
			}
			steps, at := 0, ""
			c.ops.opts.step = func(step, shard string) error {
				if steps++; steps == n {
					at = step
					return errStop
				}
				return nil
			}
			var err error
			if unpin {
				_, err = c.ops.Unpin(ctx, UnpinRequest{Meta: meta, Keyspace: "hash_bigint", Key: []string{key}})
			} else {
				_, err = c.ops.Pin(ctx, pin)
			}
			c.ops.opts.step = nil
			if at == "" {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			taken := c.owner(key) // fails the test if two shards take it
			of, err := c.ops.ShardOf(ctx, ShardOfRequest{Keyspace: "hash_bigint", Key: []string{key}})
			if err != nil {
				t.Fatal(err)
			}
			if taken != "" && taken != of.Shard {
				t.Fatalf("stopped at %s: %s takes the key, the map says %s", at, taken, of.Shard)
			}
			if _, err := c.ops.Doctor(ctx, DoctorRequest{Meta: meta, Repair: true}); err != nil {
				t.Fatal(err)
			}
			c.healthy()
			if got := c.owner(key); got != of.Shard {
				t.Fatalf("stopped at %s: after the repair %s takes the key, the map says %s", at, got, of.Shard)
			}
		}
	}
}

// TestPinRace: a row that slips in while the old owner's guard was set wider by
// somebody else is seen, and the pin is taken back.
func TestPinRace(t *testing.T) {
	c := newCluster(t, 2)
	ctx := context.Background()
	c.ddl(createOrders)
	home := c.owner("7")
	to := "shard-0"
	if home == to {
		to = "shard-1"
	}
	c.ops.opts.step = func(step, shard string) error {
		if step == "old" {
			c.ops.opts.step = nil
			// As another operation would have left it.
			c.query(home, "ALTER TABLE orders DISABLE TRIGGER USER; INSERT INTO orders VALUES (7, 1); ALTER TABLE orders ENABLE TRIGGER USER")
		}
		return nil
	}
	_, err := c.ops.Pin(ctx, PinRequest{Meta: meta, Keyspace: "hash_bigint", Key: []string{"7"}, Shard: to})
	code(t, err, "55000")
	if pins, _ := c.ops.Pins(ctx, ""); len(pins) != 0 {
		t.Fatal("the pin is still there")
	}
	c.query(home, "DELETE FROM orders")
	if got := c.owner("7"); got != home {
		t.Fatalf("%q takes it", got)
	}
	c.healthy()
}

// TestPinWaitsForMoves: a part of the keyspace changes its owner on the key's new shard at the moment when that is to take the
// key. Its guards are set when that is over.
func TestPinWaitsForMoves(t *testing.T) {
	c := newCluster(t, 2)
	ctx := context.Background()
	c.ddl(createOrders)
	home, to := c.owner("7"), "shard-0"
	if home == to {
		to = "shard-1"
	}
	part := shardmap.Part{Key: []string{"8"}}
	edit := func(change func(*shardmap.State)) {
		t.Helper()
		snap := c.snap()
		next := snap.State().Clone()
		change(&next)
		if _, err := c.dir.Update(ctx, shardmap.Change{Expect: snap.Version(), By: "test", Op: "test", Why: "test", Transit: "m"}, next); err != nil {
			t.Fatal(err)
		}
	}
	again := 0
	c.ops.opts.step = func(step, _ string) error {
		switch step {
		case "old":
			from, other := c.owner("8"), "shard-0"
			if from == other {
				other = "shard-1"
			}
			edit(func(s *shardmap.State) {
				s.PutTransit("hash_bigint", shardmap.Transit{ID: "m", Part: part, From: from, To: other, Hold: shardmap.HoldNew})
			})
		case "again":
			if again++; again == 2 {
				edit(func(s *shardmap.State) { s.DropTransit("hash_bigint", "m") })
			}
		}
		return nil
	}
	res, err := c.ops.Pin(ctx, PinRequest{Meta: meta, Keyspace: "hash_bigint", Key: []string{"7"}, Shard: to})
	if err != nil || len(res.Warnings) > 0 || again < 2 {
		t.Fatalf("%+v, %v, tried %d times again", res, err, again)
	}
	c.ops.opts.step = nil
	c.query(to, "INSERT INTO orders VALUES (7, 1)")
	c.healthy()
}

func TestPinWaitsForWriters(t *testing.T) {
	c := newCluster(t, 2)
	ctx := context.Background()
	c.ddl(createOrders)
	home := c.owner("9")
	to := "shard-0"
	if home == to {
		to = "shard-1"
	}
	conn, release, err := c.ops.connect(ctx, home)
	if err != nil {
		t.Fatal(err)
	}
	defer release(true)
	for _, sql := range []string{"BEGIN", "INSERT INTO orders VALUES (9, 1)"} {
		if _, err := execute(conn, sql); err != nil {
			t.Fatal(err)
		}
	}
	c.ops.opts.LockTimeout = 100 * time.Millisecond
	_, err = c.ops.Pin(ctx, PinRequest{Meta: meta, Keyspace: "hash_bigint", Key: []string{"9"}, Shard: to})
	code(t, err, "55P03")
	if _, err := execute(conn, "COMMIT"); err != nil {
		t.Fatal(err)
	}
	c.moves(func() (*Result, error) {
		return c.ops.Pin(ctx, PinRequest{Meta: meta, Keyspace: "hash_bigint", Key: []string{"9"}, Shard: to})
	})
	c.healthy()
}

// moves fails unless a change begins a workflow, which it cancels.
func (c *cluster) moves(change func() (*Result, error)) {
	c.t.Helper()
	ctx := context.Background()
	before, err := c.ops.Moves(ctx, "")
	if err != nil {
		c.t.Fatal(err)
	}
	res, err := change()
	if err != nil || !res.Done || len(res.Plan) != 2 {
		c.t.Fatal(res, err)
	}
	after, err := c.ops.Moves(ctx, "")
	if err != nil || len(after) != len(before)+1 || after[0].Step != "planned" || !strings.Contains(res.Plan[1], after[0].ID) {
		c.t.Fatal(after, err)
	}
	if w, err := c.ops.Cancel(ctx, WorkflowRequest{Meta: meta, ID: after[0].ID}); err != nil || !w.Ended {
		c.t.Fatal(w, err)
	}
}

func TestDistribute(t *testing.T) {
	c := newCluster(t, 3)
	ctx := context.Background()
	c.ddl("CREATE TABLE old (tenant bigint, v int)")
	c.ddl("ALTER TABLE old ADD COLUMN w text DEFAULT 'x'")
	c.ddl("ALTER TABLE old RENAME TO events")
	c.ddl("CREATE INDEX events_v ON events (v)")
	c.ddl("CREATE TABLE other (id bigint PRIMARY KEY)")
	req := DistributeRequest{Meta: meta, Table: "events", ShardKey: []string{"tenant"}}
	for _, bad := range []struct {
		req  DistributeRequest
		code string
	}{
		{DistributeRequest{Table: "nope", ShardKey: []string{"a"}}, "42P01"},
		{DistributeRequest{Table: "events"}, "22023"},
		{DistributeRequest{Table: `a.b.c`, ShardKey: []string{"a"}}, "22023"},
		{DistributeRequest{Table: `"open`, ShardKey: []string{"a"}}, "22023"},
		{DistributeRequest{Table: "events", ShardKey: []string{"nope"}}, "42703"},
		{DistributeRequest{Table: "events", ShardKey: []string{"tenant"}, Keyspace: "nope"}, "42704"},
	} {
		_, err := c.ops.Distribute(ctx, bad.req)
		if code := codeOf(err); code != bad.code || code == "42703" && !strings.Contains(sqlstate.As(err).Hint, "tenant, v, w") {
			t.Errorf("%+v: %s, %v", bad.req, code, err)
		}
	}
	c.query("shard-0", "INSERT INTO events VALUES (1, 2)")
	_, err := c.ops.Distribute(ctx, req)
	code(t, err, "55000")
	c.query("shard-0", "DELETE FROM events")
	dry := req
	dry.DryRun = true
	if res, err := c.ops.Distribute(ctx, dry); err != nil || res.Done || len(res.Plan) != 3 {
		t.Fatal(res, err)
	}
	res, err := c.ops.Distribute(ctx, req)
	if err != nil || !res.Done {
		t.Fatal(res, err)
	}
	c.healthy()
	if c.query("shard-2", "SELECT to_regclass('events_v') IS NOT NULL") != "t" {
		t.Fatal("the index is not on shard-2")
	}
	_, err = c.ops.Distribute(ctx, req)
	code(t, err, "42809")
	// And it goes on as a sharded table, on new shards too.
	c.ddl("ALTER TABLE events ADD COLUMN z int")
	c.urls["shard-3"] = pgtest.Database(t)
	if _, err := c.ops.AddShard(ctx, AddShardRequest{Meta: meta, Name: "shard-3", URL: c.urls["shard-3"]}); err != nil {
		t.Fatal(err)
	}
	c.healthy()
	if c.query("shard-3", "SELECT count(*) FROM pg_attribute WHERE attrelid = 'events'::regclass AND attnum > 0 AND NOT attisdropped") != "4" {
		t.Fatal("shard-3 has another events")
	}
}

func TestAddAndRemoveShard(t *testing.T) {
	c := newCluster(t, 2)
	ctx := context.Background()
	c.ddl(createOrders)
	c.ddl("CREATE TYPE mood AS ENUM ('a', 'b')")
	c.ddl("CREATE TABLE moods (k text PRIMARY KEY, m mood) WITH (cleave.shard_key = 'k')")
	c.ddl("CREATE TABLE plain (a int)")
	c.ddl("ALTER TABLE orders RENAME COLUMN tenant_id TO tenant")
	c.ddl("DROP TABLE plain")
	url := pgtest.Database(t)
	c.urls["extra"] = url
	req := AddShardRequest{Meta: meta, Name: "extra", URL: url, Labels: map[string]string{"region": "eu"}, Weight: 2}
	for _, bad := range []struct {
		req  AddShardRequest
		code string
	}{
		{AddShardRequest{Name: "shard-1", URL: url}, "42710"},
		{AddShardRequest{Name: "again", URL: c.urls["shard-1"]}, "42710"},
		{AddShardRequest{Name: "x", URL: "mysql://host/db"}, "22023"},
		{AddShardRequest{Name: "bad name", URL: url}, "22023"},
		{AddShardRequest{Name: "x", URL: url, Weight: -1}, "22023"},
		{AddShardRequest{Name: "x", URL: "postgres://nobody:secret@127.0.0.1:1/db"}, "57P03"},
	} {
		_, err := c.ops.AddShard(ctx, bad.req)
		if code := codeOf(err); code != bad.code {
			t.Errorf("%s %s: %s, %v", bad.req.Name, bad.req.URL, code, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is in the error: %v", err)
		}
	}
	dry := req
	dry.DryRun = true
	if res, err := c.ops.AddShard(ctx, dry); err != nil || res.Done || len(res.Findings) == 0 || res.ServerVersion == "" {
		t.Fatal(res, err)
	}
	// A crash between the steps, a schema change in between, and again.
	for _, stop := range []string{"installed", "replayed"} {
		c.ops.opts.step = func(step, _ string) error {
			if step == stop {
				return errStop
			}
			return nil
		}
		if _, err := c.ops.AddShard(ctx, req); !errors.Is(err, errStop) {
			t.Fatal(err)
		}
		c.ops.opts.step = nil
		c.ddl("ALTER TABLE orders ADD COLUMN after_" + stop + " int")
	}
	once := false
	c.ops.opts.step = func(step, _ string) error {
		if step == "replayed" && !once {
			once = true
			c.ddl("CREATE TABLE meanwhile (k uuid PRIMARY KEY) WITH (cleave.shard_key = 'k')")
		}
		return nil
	}
	res, err := c.ops.AddShard(ctx, req)
	c.ops.opts.step = nil
	if err != nil || !res.Done {
		t.Fatal(res, err)
	}
	c.healthy()
	if c.query("extra", "SELECT to_regclass('meanwhile') IS NOT NULL") != "t" {
		t.Fatal("the table that was made meanwhile is missing")
	}
	if _, err := c.try("extra", "INSERT INTO orders (tenant, id) VALUES (1, 1)"); codeOf(err) != "ZC001" {
		t.Fatalf("a new shard takes rows: %v", err)
	}
	shards, err := c.ops.Shards(ctx)
	if err != nil || len(shards) != 3 || shards[2].Weight != 2 || shards[2].Labels["region"] != "eu" || shards[2].Health != Up || shards[2].Ranges != 0 || !shards[0].Default {
		t.Fatalf("%+v %v", shards, err)
	}
	_, err = c.ops.RemoveShard(ctx, RemoveShardRequest{Meta: meta, Name: "shard-0"})
	code(t, err, "55006")
	_, err = c.ops.RemoveShard(ctx, RemoveShardRequest{Meta: meta, Name: "shard-1"})
	if e := code(t, err, "55006"); e.Hint == "" {
		t.Fatal(e)
	}
	if _, err := c.ops.Pin(ctx, PinRequest{Meta: meta, Keyspace: "hash_text", Key: []string{"p"}, Shard: "extra"}); err != nil {
		t.Fatal(err)
	}
	_, err = c.ops.RemoveShard(ctx, RemoveShardRequest{Meta: meta, Name: "extra"})
	code(t, err, "55006")
	if _, err := c.ops.Unpin(ctx, UnpinRequest{Meta: meta, Keyspace: "hash_text", Key: []string{"p"}}); err != nil {
		t.Fatal(err)
	}
	if res, err := c.ops.RemoveShard(ctx, RemoveShardRequest{Meta: meta, Name: "extra"}); err != nil || !res.Done {
		t.Fatal(res, err)
	}
	_, err = c.ops.RemoveShard(ctx, RemoveShardRequest{Meta: meta, Name: "extra"})
	code(t, err, "42704")
	c.healthy()
}

// TestAddShardNeedsPrivileges: the error names what an ordinary role lacks and the
// statement that grants it, and the command goes on where it stopped.
func TestAddShardNeedsPrivileges(t *testing.T) {
	c := newCluster(t, 1)
	c.ddl(createOrders)
	url := pgtest.Database(t)
	owner := func(sql string) {
		t.Helper()
		conn, err := pgconn.Connect(context.Background(), pgtest.Super(url))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), sql).ReadAll(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	owner("CREATE ROLE limited LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	t.Cleanup(func() { owner("DROP OWNED BY limited, limited_mover; DROP ROLE limited_mover, limited") })
	as, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	as.User = neturl.User("limited")
	req := AddShardRequest{Meta: meta, Name: "extra", URL: as.String()}
	_, err = c.ops.AddShard(context.Background(), req)
	e := code(t, err, sqlstate.ObjectNotInState)
	grant := regexp.MustCompile(`GRANT CREATE ON DATABASE \S+ TO limited`).FindString(e.Hint)
	if grant == "" {
		t.Fatalf("no statement in the hint %q", e.Hint)
	}
	owner(grant)
	_, err = c.ops.AddShard(context.Background(), req)
	if e := code(t, err, sqlstate.InsufficientPrivilege); !strings.Contains(e.Hint, "GRANT CREATE ON SCHEMA public") {
		t.Fatalf("no statement in the hint %q", e.Hint)
	}
	owner("GRANT CREATE ON SCHEMA public TO limited")
	// What moves need is a warning, with the statements that help.
	dry := req
	dry.DryRun = true
	plan, err := c.ops.AddShard(context.Background(), dry)
	if err != nil || !strings.Contains(strings.Join(plan.Warnings, "\n"), "(CREATE ROLE limited_mover LOGIN REPLICATION") {
		t.Fatalf("%+v, %v", plan, err)
	}
	owner(`CREATE ROLE limited_mover LOGIN REPLICATION BYPASSRLS; GRANT limited, pg_read_all_stats TO limited_mover; DO $$ BEGIN
		IF current_setting('server_version_num')::int >= 150000 THEN EXECUTE 'GRANT SET ON PARAMETER session_replication_role, deadlock_timeout TO limited_mover'; ELSE ALTER ROLE limited_mover SUPERUSER; END IF; END $$`)
	if res, err := c.ops.AddShard(context.Background(), req); err != nil || !res.Done {
		t.Fatal(res, err)
	}
	c.healthy()
}

func TestBootstrap(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 2)
	req := BootstrapRequest{Meta: meta, Shards: []BootstrapShard{{Name: "shard-0", URL: c.urls["shard-0"]}, {Name: "shard-1", URL: c.urls["shard-1"]}}}
	res, err := c.ops.Bootstrap(ctx, req)
	if err != nil || res.Created || res.Version != c.snap().Version() {
		t.Fatal(res, err)
	}
	// Another cluster does not get these databases, and nothing is stored.
	other := New(Options{Directory: memory.New(), Drivers: c.ops.opts.Drivers})
	defer other.Close()
	_, err = other.Bootstrap(ctx, req)
	code(t, err, "55000")
	if _, err := other.opts.Directory.Load(ctx); !errors.Is(err, shardmap.ErrNotFound) {
		t.Fatalf("a map was stored: %v", err)
	}
	_, err = c.ops.Bootstrap(ctx, BootstrapRequest{Meta: meta, Shards: []BootstrapShard{{Name: "shard-9", URL: c.urls["shard-0"]}}})
	code(t, err, "55000")
	_, err = c.ops.Bootstrap(ctx, BootstrapRequest{Meta: meta})
	code(t, err, "22023")

	// Cut off after each step, the next start finishes it.
	for stop := range 3 {
		fresh := New(Options{Directory: memory.New(), Drivers: c.ops.opts.Drivers})
		urls := []string{pgtest.Database(t), pgtest.Database(t)}
		req := BootstrapRequest{Meta: meta, Shards: []BootstrapShard{{Name: "a", URL: urls[0]}, {Name: "b", URL: urls[1]}}}
		n := 0
		fresh.opts.step = func(string, string) error {
			if n++; n == stop+1 {
				return errStop
			}
			return nil
		}
		if _, err := fresh.Bootstrap(ctx, req); !errors.Is(err, errStop) {
			t.Fatal(err)
		}
		fresh.opts.step = nil
		if _, err := fresh.Bootstrap(ctx, req); err != nil {
			t.Fatal(err)
		}
		found, err := fresh.Doctor(ctx, DoctorRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if f.Level != LevelOK && !ofTheServer(f) {
				t.Errorf("%+v", f)
			}
		}
		_ = fresh.Close()
		_ = fresh.opts.Directory.Close()
	}
}

func TestDoctor(t *testing.T) {
	c := newCluster(t, 3)
	ctx := context.Background()
	c.ddl(createOrders)
	c.healthy()
	c.query("shard-1", `DROP TRIGGER "~cleave_guard" ON orders`)
	c.query("shard-0", "CREATE TABLE stranger (a int)")
	c.query("shard-2", "DROP TABLE orders")
	// A shard that nobody answers for.
	st := c.snap().State().Clone()
	st.PutShard(shardmap.Shard{Name: "gone", Engine: "postgres", URL: "postgres://u:secret@127.0.0.1:1/x", Weight: 1})
	if _, err := c.dir.Update(ctx, shardmap.Change{Expect: st.Version, By: "test", Op: "test", Why: "test"}, st); err != nil {
		t.Fatal(err)
	}
	look := func(repair bool) string {
		found, err := c.ops.Doctor(ctx, DoctorRequest{Meta: meta, Repair: repair})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, f := range found {
			fmt.Fprintf(&b, "%s|%s|%s|%s|done %s|next %s\n", f.Level, f.Shard, f.Table, f.What, f.Done, f.Next)
			if f.Level != LevelOK && f.Next == "" && f.Done == "" {
				t.Errorf("no next command: %+v", f)
			}
		}
		return b.String()
	}
	text := look(false)
	for _, want := range []string{"the guard of public.orders on shard-1 is missing", "public.stranger on shard-0 is not in the map", "in the map, but not on shard-2", "error|gone|"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "secret") {
		t.Errorf("the password is printed:\n%s", text)
	}
	if n := strings.Count(text, "error|gone|"); n != 1 {
		t.Errorf("a shard that does not answer is reported %d times:\n%s", n, text)
	}
	text = look(true)
	for _, want := range []string{"done set as the map says", "done taken in as an unsharded table"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if text = look(false); strings.Contains(text, "guard of public.orders on shard-1") || strings.Contains(text, "stranger") {
		t.Errorf("not repaired:\n%s", text)
	}
	shards, err := c.ops.Shards(ctx)
	if err != nil || shards[3].Health != Down || shards[3].Reason == "" || strings.Contains(shards[3].URL, "secret") || shards[0].Health != Up {
		t.Fatalf("%+v %v", shards, err)
	}
	m, err := c.ops.Map(ctx, 0)
	if err != nil || strings.Contains(m.Shards[3].URL, "secret") {
		t.Fatal(m, err)
	}
}
