package cleave_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleavedb/cleave"
	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/sqlstate"
)

type tenant int32

// TestForKeyFindsWhatTheRouterFinds for every key type, strategy and Go type.
func TestForKeyFindsWhatTheRouterFinds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c, _ := fresh(t, "3")
	id := uuid.MustParse("0190b6a1-7c3e-7b52-9d0a-5f3e2c1b0a99")
	at := time.Date(1969, 7, 20, 22, 17, 40, 123456000, time.FixedZone("", 7200))
	for i, k := range []struct {
		types []string
		key   []any
		texts []string
	}{
		{[]string{"bigint"}, []any{int64(-5)}, []string{"-5"}},
		{[]string{"bigint"}, []any{uint64(math.MaxInt64)}, []string{"9223372036854775807"}},
		{[]string{"bigint"}, []any{"42"}, []string{"42"}},
		{[]string{"bigint"}, []any{tenant(42)}, []string{"42"}},
		{[]string{"integer"}, []any{7}, []string{"7"}},
		{[]string{"smallint"}, []any{int8(7)}, []string{"7"}},
		{[]string{"text"}, []any{"größe"}, []string{"größe"}},
		{[]string{"varchar"}, []any{""}, []string{""}},
		{[]string{"uuid"}, []any{id}, []string{id.String()}},
		{[]string{"uuid"}, []any{[16]byte(id)}, []string{id.String()}},
		{[]string{"uuid"}, []any{pgtype.UUID{Bytes: id, Valid: true}}, []string{id.String()}},
		{[]string{"uuid"}, []any{id.String()}, []string{id.String()}},
		{[]string{"bytea"}, []any{[]byte{0, 255}}, []string{`\x00ff`}},
		{[]string{"boolean"}, []any{true}, []string{"t"}},
		{[]string{"date"}, []any{at}, []string{"1969-07-20"}},
		{[]string{"timestamp"}, []any{at}, []string{"1969-07-20 22:17:40.123456"}},
		{[]string{"timestamptz"}, []any{at}, []string{"1969-07-20 20:17:40.123456+00"}},
		{[]string{"text", "bigint"}, []any{"eu", 7}, []string{"eu", "7"}},
		{[]string{"bigint", "bigint", "bigint", "bigint", "bigint"}, []any{1, 2, 3, 4, 5}, []string{"1", "2", "3", "4", "5"}},
	} {
		name := fmt.Sprintf("k%d", i)
		for _, strategy := range []string{"hash", "range"} {
			req := admin.CreateKeyspaceRequest{Name: name + strategy, Strategy: strategy, KeyTypes: k.types}
			if strategy == "range" {
				req.Bounds = [][]string{k.texts} // the key begins the second range
			}
			if _, err := c.Admin().CreateKeyspace(ctx, req); err != nil {
				t.Fatal(err)
			}
			want, err := c.Admin().ShardOf(ctx, admin.ShardOfRequest{Keyspace: req.Name, Key: k.texts})
			if err != nil {
				t.Fatal(err)
			}
			var o *cleave.Owner
			waitfor.True(t, "the router has its lease", func() bool {
				o, err = c.ForKey(ctx, req.Name, k.key...)
				return sqlstate.CodeOf(err) != sqlstate.CannotConnectNow
			})
			if err != nil {
				t.Errorf("%s %v %T: %v", strategy, k.types, k.key[0], err)
				continue
			}
			if o.Shard() != want.Shard || o.Keyspace() != req.Name || o.Epoch() < want.Epoch || !o.Valid() {
				t.Errorf("%s %v %v: %s at epoch %d, the router finds %+v", strategy, k.types, k.key, o.Shard(), o.Epoch(), want)
			}
			if again, _ := c.ForKey(ctx, req.Name, k.key...); again != o {
				t.Error("another Owner for the same key")
			}
		}
	}
}

// TestForKeyIsLoad: each call counts for the range of its key, and a key that is asked for often is hot.
func TestForKeyIsLoad(t *testing.T) {
	t.Parallel()
	ctx, folder := context.Background(), t.TempDir()
	file := filepath.Join(folder, "settings.yaml")
	if err := os.WriteFile(file, []byte("data: "+filepath.Join(folder, "data")+"\nshards: 2\nload-window: 1s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := open(t, file)
	if _, err := c.Admin().CreateKeyspace(ctx, admin.CreateKeyspaceRequest{Name: "k", Strategy: "hash", KeyTypes: []string{"bigint"}}); err != nil {
		t.Fatal(err)
	}
	want, err := c.Admin().ShardOf(ctx, admin.ShardOfRequest{Keyspace: "k", Key: []string{"7"}})
	if err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "the calls are counted as load", func() bool {
		for range 10_000 {
			if _, err := c.ForKey(ctx, "k", 7); err != nil {
				t.Fatal(err)
			}
		}
		h, err := c.Admin().Heat(ctx, admin.HeatRequest{Keyspace: "k"})
		if err != nil {
			t.Fatal(err)
		}
		return len(h.Ranges) == 1 && h.Ranges[0].Shard == want.Shard && h.Ranges[0].Statements > 100 && len(h.Keys) == 1 && h.Keys[0].Key[0] == "7" && h.Keys[0].Share > 0.9
	})
}

func TestForKeyErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c, _ := fresh(t, "1")
	for name, k := range map[string][]string{"ints": {"integer"}, "texts": {"text"}, "uuids": {"uuid"}, "dates": {"date"}} {
		if _, err := c.Admin().CreateKeyspace(ctx, admin.CreateKeyspaceRequest{Name: name, Strategy: "hash", KeyTypes: k}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Admin().CreateKeyspace(ctx, admin.CreateKeyspaceRequest{Name: "listed", Strategy: "list", KeyTypes: []string{"text"},
		Values: []admin.ListedValue{{Key: []string{"eu"}}}}); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.ForKey(over, "ints", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
	var none *int
	for _, k := range []struct {
		keyspace string
		key      []any
		code     sqlstate.Code
	}{
		{"nowhere", []any{1}, "42704"},
		{"ints", []any{}, "22023"},
		{"ints", []any{1, 2}, "22023"},
		{"ints", []any{nil}, "22004"},
		{"ints", []any{int64(1) << 40}, "22003"},
		{"ints", []any{uint64(math.MaxUint64)}, "42804"},
		{"ints", []any{"seven"}, "22P02"},
		{"ints", []any{7.5}, "42804"},
		{"ints", []any{none}, "42804"},
		{"texts", []any{7}, "42804"},
		{"texts", []any{"a\x00b"}, "22021"},
		{"texts", []any{"\xff"}, "22021"},
		{"uuids", []any{pgtype.UUID{}}, "22004"},
		{"uuids", []any{"no uuid"}, "22P02"},
		{"dates", []any{time.Date(1_000_000_000, 1, 1, 0, 0, 0, 0, time.UTC)}, "22008"},
		{"listed", []any{"mars"}, "23514"},
	} {
		_, err := c.ForKey(ctx, k.keyspace, k.key...)
		if sqlstate.CodeOf(err) != k.code {
			t.Errorf("%s %v: %v, want %s", k.keyspace, k.key, err, k.code)
		}
	}
	if o, err := c.ForKey(ctx, "listed", "eu"); err != nil || o.Shard() != "shard-0" {
		t.Errorf("%v, %v", o, err)
	}
}

func pin(t *testing.T, c *cleave.Cluster, key, shard string) {
	t.Helper()
	if _, err := c.Admin().Pin(context.Background(), admin.PinRequest{Keyspace: "hash_bigint", Key: []string{key}, Shard: shard}); err != nil {
		t.Fatal(err)
	}
}

// another returns a shard that is not the given one.
func another(c *cleave.Cluster, name string) string {
	for _, s := range c.Snapshot().Shards() {
		if s.Name != name {
			return s.Name
		}
	}
	panic("one shard only")
}

// TestOwnerChanges pins a key elsewhere while its owner is held: by the program
// itself and by another one.
func TestOwnerChanges(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, c, admin *cleave.Cluster) {
		ctx := context.Background()
		run(t, c.DB(), createOrders)
		waitfor.True(t, "the other client knows the keyspace", func() bool { _, ok := admin.Snapshot().Keyspace("hash_bigint"); return ok })
		was, err := c.ForKey(ctx, "hash_bigint", 7)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := was.Pool().Exec(ctx, "INSERT INTO orders VALUES (8, 1, 'not mine, or mine')"); err != nil && codeOf(err) != "ZC001" {
			t.Error(err)
		}
		// A transaction that is open when the owner changes, and a connection.
		tx, err := was.DB().Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		var one int
		if err := tx.QueryRow("SELECT 1").Scan(&one); err != nil {
			t.Fatal(err)
		}
		conn, err := was.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		select {
		case <-was.Changed():
			t.Error("nothing has changed yet")
		default:
		}
		pin(t, admin, "7", another(c, was.Shard()))
		<-was.Changed()
		if was.Valid() {
			t.Error("valid after the change")
		}
		for name, do := range map[string]func() error{
			"Pool":        func() error { _, err := was.Pool().Exec(ctx, "INSERT INTO orders VALUES (7, 1, 'x')"); return err },
			"Pool read":   func() error { return was.Pool().QueryRow(ctx, "SELECT 1 FROM orders").Scan(&one) },
			"DB":          func() error { _, err := was.DB().Exec("SELECT 1"); return err },
			"transaction": func() error { _, err := tx.Exec("INSERT INTO orders VALUES (7, 2, 'x')"); return err },
			"connection":  func() error { _, err := conn.Exec(ctx, "SELECT 1"); return err },
			"simple":      func() error { _, err := conn.Exec(ctx, "SELECT 1", pgx.QueryExecModeSimpleProtocol); return err },
			"Conn": func() error {
				n, err := was.Conn(ctx)
				if err == nil {
					_ = n.Close(ctx)
				}
				return err
			},
		} {
			if err := do(); codeOf(err) != "40001" {
				t.Errorf("%s: %v, want 40001", name, err)
			}
		}
		is, err := c.ForKey(ctx, "hash_bigint", 7)
		if err != nil || is.Shard() == was.Shard() || is.Epoch() <= was.Epoch() {
			t.Fatalf("%v, %v", is, err)
		}
		if _, err := is.Pool().Exec(ctx, "INSERT INTO orders VALUES (7, 1, 'x')"); err != nil {
			t.Error(err)
		}
		var n int
		if err := c.DB().QueryRow("SELECT count(*) FROM orders WHERE tenant_id = 7").Scan(&n); err != nil || n != 1 {
			t.Errorf("%d rows, %v", n, err)
		}
		// The shard that lost the key refuses writes to it on every connection.
		if o, err := c.ForKey(ctx, "hash_bigint", keyOf(t, c, was.Shard())); err != nil {
			t.Error(err)
		} else if _, err := o.DB().Exec("INSERT INTO orders VALUES (7, 9, 'x')"); codeOf(err) != "ZC001" {
			t.Errorf("a write to a key of another shard: %v", err)
		}
	}
	t.Run("one program", func(t *testing.T) {
		t.Parallel()
		eachEngine(t, func(t *testing.T, c *cleave.Cluster) { check(t, c, c) })
	})
	t.Run("another program", func(t *testing.T) {
		t.Parallel()
		c, url := fresh(t, "3")
		check(t, c, open(t, url))
	})
}

// keyOf returns a key that the shard owns.
func keyOf(t *testing.T, c *cleave.Cluster, shard string) int {
	t.Helper()
	for k := 100; ; k++ {
		o, err := c.ForKey(context.Background(), "hash_bigint", k)
		if err != nil {
			t.Fatal(err)
		}
		if o.Shard() == shard {
			return k
		}
	}
}

// TestOwnerChangesUnderLoad: writers that call ForKey again after 40001 lose no
// write and write none twice, while keys are pinned.
func TestOwnerChangesUnderLoad(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c, _ := fresh(t, "3")
	run(t, c.DB(), createOrders)
	var wg sync.WaitGroup
	var retried atomic.Int64
	stop := make(chan struct{})
	written := make([]int, 4)
	for w := range written {
		wg.Go(func() {
			o, err := c.ForKey(ctx, "hash_bigint", w)
			for i := 0; err == nil; i++ {
				select {
				case <-stop:
					return
				default:
				}
				for {
					_, err = o.Pool().Exec(ctx, "INSERT INTO orders VALUES ($1, $2, 'x')", w, i)
					if codeOf(err) != "40001" {
						break
					}
					retried.Add(1)
					if o, err = c.ForKey(ctx, "hash_bigint", w); err != nil {
						break
					}
				}
				if err == nil {
					written[w]++
				}
			}
			t.Errorf("writer %d: %v", w, err)
		})
	}
	for range 6 {
		o, err := c.ForKey(ctx, "hash_bigint", 0) // of one of the writers, wherever the hash has put it
		if err != nil {
			t.Fatal(err)
		}
		before := retried.Load()
		pin(t, c, fmt.Sprint(keyOf(t, c, o.Shard())), another(c, o.Shard()))
		waitfor.True(t, "a writer has to ask again", func() bool { return retried.Load() > before })
	}
	close(stop)
	wg.Wait()
	for w, want := range written {
		var n int
		if err := c.DB().QueryRow("SELECT count(*) FROM orders WHERE tenant_id = $1", w).Scan(&n); err != nil || n != want {
			t.Errorf("writer %d: %d rows of %d, %v", w, n, want, err)
		}
	}
}

// TestDirectConnections speaks what pgx can to a shard directly.
func TestDirectConnections(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, c *cleave.Cluster) {
		ctx := context.Background()
		run(t, c.DB(), createOrders)
		o, err := c.ForKey(ctx, "hash_bigint", 7)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := o.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		b := &pgx.Batch{}
		for i := range 3000 {
			b.Queue("INSERT INTO orders VALUES (7, $1, $2)", i, "a note that is long enough to fill buffers on the way, again and again")
		}
		if err := conn.SendBatch(ctx, b).Close(); err != nil {
			t.Fatal(err)
		}
		// What no router could plan: a statement without the key.
		var n int
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM orders").Scan(&n); err != nil || n != 3000 {
			t.Errorf("%d rows, %v", n, err)
		}
		rows, _ := conn.Query(ctx, "SELECT id, note FROM orders ORDER BY id")
		ids, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (id int, err error) {
			var note string
			return id, r.Scan(&id, &note)
		})
		if err != nil || len(ids) != 3000 || ids[2999] != 2999 {
			t.Errorf("%d ids, %v", len(ids), err)
		}
		// An error in the middle of a batch; the connection goes on.
		b = &pgx.Batch{}
		b.Queue("INSERT INTO orders VALUES (7, 9000, 'x')")
		b.Queue("INSERT INTO orders VALUES (7, 1, 'again')")
		b.Queue("INSERT INTO orders VALUES (7, 9001, 'x')")
		if err := conn.SendBatch(ctx, b).Close(); codeOf(err) != "23505" {
			t.Errorf("batch: %v", err)
		}
		// A pipeline without a Sync in between, far beyond what sockets buffer.
		pl := conn.PgConn().StartPipeline(ctx)
		for range 2000 {
			pl.SendQueryParams("SELECT note FROM orders WHERE tenant_id = 7 AND id < 20", nil, nil, nil, nil)
		}
		if err := pl.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := pl.Close(); err != nil {
			t.Errorf("pipeline: %v", err)
		}
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SELECT 1 / (SELECT count(*) FROM orders WHERE id = -1)"); codeOf(err) != "22012" {
				t.Errorf("division: %v", err)
			}
			_, err := tx.Exec(ctx, "SELECT 1")
			if codeOf(err) != "25P02" {
				t.Errorf("after an error: %v", err)
			}
			return err
		})
		if codeOf(err) != "25P02" {
			t.Error(err)
		}
		if c.Snapshot().Shards()[0].Engine == "postgres" {
			var rows [][]any
			for i := range 5000 {
				rows = append(rows, []any{7, 100_000 + i, "copied"})
			}
			if n, err := conn.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"tenant_id", "id", "note"}, pgx.CopyFromRows(rows)); err != nil || n != 5000 {
				t.Errorf("copied %d, %v", n, err)
			}
			if _, err := conn.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"tenant_id", "id", "note"}, pgx.CopyFromRows(rows)); codeOf(err) != "23505" {
				t.Errorf("copied again: %v", err)
			}
		}
		if err := conn.QueryRow(ctx, "SELECT 1").Scan(&n); err != nil {
			t.Error(err)
		}
	})
}
