package clients

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/cleavedb/cleave/internal/waitfor"
)

const itemsTable = `CREATE TABLE items (tenant_id bigint, id bigint, note text, amount numeric(12,2), tags text[],
	PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')`

func items(t *testing.T) (target, *sql.DB) {
	t.Helper()
	c := router(t)
	db := open(t, c.url)
	execute(t, db, itemsTable)
	return c, db
}

func execute(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// texts compares the only column of a query.
func texts(t *testing.T, db *sql.DB, want []string, query string, args ...any) {
	t.Helper()
	rows, err := db.Query(query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		got = append(got, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %q, want %q", query, got, want)
	}
}

func TestPqPrepared(t *testing.T) {
	t.Parallel()
	c, db := items(t)
	for _, url := range []string{c.url, c.url + "&binary_parameters=yes"} {
		db := open(t, url)
		insert, err := db.Prepare("INSERT INTO items VALUES ($1, $2, $3, $4, $5)")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			if _, err := insert.Exec(i, 1, "note", "12.50", pq.Array([]string{"a", "b,c"})); err != nil {
				t.Fatal(err)
			}
		}
		one, err := db.Prepare("SELECT amount, tags FROM items WHERE tenant_id = $1 AND id = $2")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			var amount string
			var tags []string
			if err := one.QueryRow(i, 1).Scan(&amount, pq.Array(&tags)); err != nil {
				t.Fatal(err)
			}
			if amount != "12.50" || !reflect.DeepEqual(tags, []string{"a", "b,c"}) {
				t.Errorf("tenant %d: %s %q", i, amount, tags)
			}
		}
		if err := one.QueryRow(99, 1).Scan(new(string), new(string)); err != sql.ErrNoRows {
			t.Errorf("no row: %v", err)
		}
		c.spread(t, "items", 30)
		texts(t, db, []string{"30 375.00"}, "SELECT count(*) || ' ' || sum(amount) FROM items WHERE note = $1", "note")
		texts(t, db, []string{"29", "28", "5"}, "SELECT tenant_id FROM items WHERE tenant_id = ANY($1) ORDER BY tenant_id DESC", pq.Array([]int64{5, 28, 29}))
		var pe *pq.Error
		if _, err := insert.Exec(3, 1, nil, nil, nil); !errors.As(err, &pe) || pe.Code != "23505" || pe.Table != "items" || pe.Constraint != "items_pkey" {
			t.Errorf("a key that is there: %v", err)
		}
		res, err := db.Exec("UPDATE items SET amount = amount + $1 WHERE tenant_id >= $2", "0.25", 10)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := res.RowsAffected(); n != 20 {
			t.Errorf("UPDATE of several shards: %d rows, want 20", n)
		}
		execute(t, db, "DELETE FROM items")
	}
	texts(t, db, []string{"0"}, "SELECT count(*) FROM items")
}

func TestPqTransaction(t *testing.T) {
	t.Parallel()
	c, db := items(t)
	ctx := context.Background()
	fill := func(id int) *sql.Tx {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if _, err := tx.Exec("INSERT INTO items (tenant_id, id, amount) VALUES ($1, $2, 1)", i, id); err != nil {
				t.Fatal(err)
			}
		}
		return tx
	}
	if err := fill(1).Commit(); err != nil {
		t.Fatal(err)
	}
	c.spread(t, "items", 20)
	tx := fill(2)
	var n int
	if err := tx.QueryRow("SELECT count(*) FROM items").Scan(&n); err != nil || n != 40 {
		t.Errorf("inside the transaction: %d, %v", n, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	c.spread(t, "items", 20)
	// An error fails the transaction on every shard.
	tx = fill(3)
	if _, err := tx.Exec("INSERT INTO items (tenant_id, id) VALUES ($1, $2)", 7, 1); err == nil {
		t.Error("a key that is there was inserted")
	}
	if err := tx.Commit(); err == nil {
		t.Error("a failed transaction was committed")
	}
	c.spread(t, "items", 20)
	// A savepoint saves it.
	tx = fill(4)
	for _, s := range []string{"SAVEPOINT s", "DELETE FROM items WHERE id = 1", "ROLLBACK TO SAVEPOINT s", "RELEASE SAVEPOINT s"} {
		if _, err := tx.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	c.spread(t, "items", 40)
	if left := c.onShards(t, "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"); !reflect.DeepEqual(left, []int{0, 0, 0}) {
		t.Errorf("prepared transactions left on the shards: %v", left)
	}
}

func TestPqCopy(t *testing.T) {
	t.Parallel()
	c, db := items(t)
	load := func(rows, id int) (*sql.Tx, error) {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		st, err := tx.Prepare("COPY items (tenant_id, id, note, amount) FROM STDIN")
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			if _, err := st.Exec(i%100, id+i, "tab\there \\ and\nline", "0.01"); err != nil {
				return tx, err
			}
		}
		res, err := st.Exec()
		if err != nil {
			return tx, err
		}
		if n, err := res.RowsAffected(); err != nil || n != int64(rows) {
			t.Errorf("COPY says %d rows, %v, want %d", n, err, rows)
		}
		return tx, st.Close()
	}
	tx, err := load(2000, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	c.spread(t, "items", 2000)
	texts(t, db, []string{"tab\there \\ and\nline"}, "SELECT DISTINCT note FROM items")
	tx, err = load(2000, 1000) // half of the keys are there
	var pe *pq.Error
	if !errors.As(err, &pe) || pe.Code != "23505" {
		t.Errorf("COPY of keys that are there: %v", err)
	}
	_ = tx.Rollback()
	c.spread(t, "items", 2000)
}

func TestPqCancel(t *testing.T) {
	t.Parallel()
	c, db := items(t)
	execute(t, db, "INSERT INTO items (tenant_id, id) SELECT g, 1 FROM generate_series(1, 30) g")
	const endless = "SELECT sum(g * tenant_id) FROM items, generate_series(1, 100000000000) g"
	running := func(least int) func() bool {
		return func() bool {
			busy := 0
			for _, n := range c.onShards(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()") {
				busy += n
			}
			return busy >= least
		}
	}
	// At once, and when it has begun on all shards.
	for _, least := range []int{1, 3} {
		ctx, cancel := context.WithCancel(context.Background())
		failed := make(chan error, 1)
		go func() {
			_, err := db.ExecContext(ctx, fmt.Sprintf("%s /* %d */", endless, least))
			failed <- err
		}()
		waitfor.True(t, fmt.Sprintf("the statement to run on %d shards", least), running(least))
		cancel()
		var pe *pq.Error
		select {
		case err := <-failed:
			if !(errors.As(err, &pe) && pe.Code == "57014") && !errors.Is(err, context.Canceled) {
				t.Errorf("the cancelled statement: %v", err)
			}
		case <-time.After(patience):
			t.Fatal("the statement was not cancelled")
		}
		waitfor.True(t, "the shards to be idle", func() bool { return !running(1)() })
	}
	texts(t, db, []string{"30"}, "SELECT count(*) FROM items")
}

func TestPqListen(t *testing.T) {
	t.Parallel()
	c, db := items(t)
	l := pq.NewListener(c.url, 100*time.Millisecond, time.Second, func(_ pq.ListenerEventType, err error) {
		if err != nil {
			t.Errorf("listener: %v", err)
		}
	})
	defer l.Close()
	if err := l.Listen("news"); err != nil {
		t.Fatal(err)
	}
	next := func(want string) {
		t.Helper()
		select {
		case n := <-l.Notify:
			if n == nil || n.Channel != "news" || n.Extra != want {
				t.Errorf("notification %+v, want %q", n, want)
			}
		case <-time.After(patience):
			t.Fatalf("no notification %q", want)
		}
	}
	execute(t, db, "SELECT pg_notify('news', $1)", "one")
	next("one")
	execute(t, db, "NOTIFY others, 'not for us'")
	// In a transaction with a shard's rows it comes with the commit.
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("NOTIFY news, 'two'"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	next("two")
	if err := l.Ping(); err != nil {
		t.Error(err)
	}
	if err := l.Unlisten("news"); err != nil {
		t.Error(err)
	}
}
