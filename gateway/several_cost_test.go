package gateway_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// TestReadCostsOneRoundTrip: a read over two shards that was run before is one
// message to each, and a part of a transaction takes its BEGIN along.
func TestReadCostsOneRoundTrip(t *testing.T) {
	t.Parallel()
	gates := []*gate{newGate(t, pgtest.Database(t)), newGate(t, pgtest.Database(t))}
	_, conn, keys := orders(t, config{shards: 2, urls: []string{gates[0].url, gates[1].url}})
	fill(t, conn, keys, 2)
	ctx := context.Background()
	for _, test := range []struct {
		begin, sql string
		want       int64
	}{
		{"", "SELECT id FROM orders ORDER BY id", 2},
		{"", "SELECT count(*) FROM orders", 3}, // the text that adds up runs on one of them
		{"", "SELECT note, count(*) FROM orders GROUP BY note", 3},
		{"", "SELECT random() FROM orders", 4}, // it needs a transaction, and so its end
		{"BEGIN", "SELECT count(*) FROM orders", 3},
	} {
		// Beside the statement, a connection's own conversation may be counted: the least is the statement's.
		least := int64(math.MaxInt64)
		for try := 0; try < 3 || try < 20 && least > test.want; try++ {
			if test.begin != "" {
				exec(t, conn, test.begin)
			}
			before := gates[0].sent.Load() + gates[1].sent.Load()
			rows, err := conn.Query(ctx, test.sql)
			if err != nil {
				t.Fatal(err)
			}
			rows.Close()
			if rows.Err() != nil {
				t.Fatal(rows.Err())
			}
			least = min(least, gates[0].sent.Load()+gates[1].sent.Load()-before)
			if test.begin != "" {
				exec(t, conn, "COMMIT")
			}
		}
		if least != test.want {
			t.Errorf("%s %s: %d messages to two shards, want %d", test.begin, test.sql, least, test.want)
		}
	}
}

// TestOneParticipantCosts: a transaction on one shard is the client's messages there, its BEGIN goes with the first of them,
// and nothing is sent to another shard. So it is after a weak statement elsewhere, but for what that cost.
func TestOneParticipantCosts(t *testing.T) {
	t.Parallel()
	gates := []*gate{newGate(t, pgtest.Database(t)), newGate(t, pgtest.Database(t))}
	_, conn, keys := orders(t, config{shards: 2, urls: []string{gates[0].url, gates[1].url}})
	update, read := "UPDATE orders SET note = 'x' WHERE tenant_id = $1", "SELECT note FROM orders WHERE tenant_id = $1"
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		// Beside the transaction, a connection's own conversation may be counted: the least is the transaction's.
		least := [2]int64{math.MaxInt64, math.MaxInt64}
		for try := 0; try < 3 || try < 20 && least != [2]int64{3, 0}; try++ {
			was := [2]int64{gates[0].sent.Load(), gates[1].sent.Load()}
			exec(t, conn, "BEGIN")
			exec(t, conn, update, keys[0][0])
			exec(t, conn, read, keys[0][0])
			exec(t, conn, end)
			for i := range gates {
				least[i] = min(least[i], gates[i].sent.Load()-was[i])
			}
		}
		if least != [2]int64{3, 0} {
			t.Errorf("%s: %d messages to the two shards, want 3 and 0", end, least)
		}
	}
}

// TestPoolsAreNotWaitedForInARing: many sessions whose statements need the only
// connections of all shards, in every mixture.
func TestPoolsAreNotWaitedForInARing(t *testing.T) {
	t.Parallel()
	limits := limitsOf(1)
	limits.PoolWait = 30 * time.Second
	cl, conn, keys := orders(t, config{executor: limits})
	total := fill(t, conn, keys, 2)
	var all sync.WaitGroup
	for s := range 8 {
		c := cl.connect(t)
		all.Go(func() {
			for i := range 15 {
				a, b := keys[(s+i)%3][0], keys[(s+i+1+i%2)%3][0]
				sql := "SELECT count(*) FROM orders"
				want := total
				if i%2 == 0 {
					sql = fmt.Sprintf("SELECT count(*) FROM orders WHERE tenant_id IN (%d, %d)", a, b)
					want = 4
				}
				var n int
				if err := c.QueryRow(context.Background(), sql).Scan(&n); err != nil || n != want {
					t.Errorf("%s: %d, %v", sql, n, err)
				}
			}
		})
	}
	began := time.Now()
	all.Wait()
	if took := time.Since(began); took > limits.PoolWait {
		t.Errorf("it took %v", took)
	}
}

// TestPartsAreAcquiredTogether: the first statement opens its connections at the
// same time.
func TestPartsAreAcquiredTogether(t *testing.T) {
	t.Parallel()
	gates := []*gate{newGate(t, pgtest.Database(t)), newGate(t, pgtest.Database(t))}
	cl, conn, keys := orders(t, config{shards: 2, urls: []string{gates[0].url, gates[1].url}, executor: limitsOf(3)})
	total := fill(t, conn, keys, 2)
	// All connections are in use, so that each statement needs another one.
	var held []func(bool)
	for range 2 {
		for i := range gates {
			_, release, err := cl.ex.Connect(context.Background(), fmt.Sprint("shard-", i))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
	}
	for _, g := range gates {
		g.hold("client_encoding") // of the startup message
	}
	got := make(chan int, 1)
	go func() {
		var n int
		if err := conn.QueryRow(context.Background(), "SELECT count(*) FROM orders").Scan(&n); err != nil {
			n = -1
		}
		got <- n
	}()
	for _, g := range gates {
		select {
		case <-g.held:
		case <-time.After(waitfor.Max):
			t.Error("the second shard is dialled after the first one")
		}
	}
	for _, g := range gates {
		g.open()
	}
	if n := <-got; n != total {
		t.Errorf("%d rows", n)
	}
	for _, release := range held {
		release(true)
	}
}

// TestProgress: cleave.sessions shows what a statement over several shards has read.
func TestProgress(t *testing.T) {
	t.Parallel()
	cl, conn, keys := orders(t, config{})
	total := fill(t, conn, keys, 5)
	const mine = "SELECT coalesce(rows_read, -1), coalesce(bytes_read, -1) FROM cleave.sessions WHERE application = 'reader'"
	reader := cl.connect(t, "&application_name=reader")
	progress := func() (rows, bytes int) {
		if err := conn.QueryRow(context.Background(), mine).Scan(&rows, &bytes); err != nil {
			t.Fatal(err)
		}
		return rows, bytes
	}
	done := make(chan string, 1)
	go func() {
		done <- code(reader, "SELECT count(*), (SELECT 1 FROM pg_sleep(60)) FROM orders a JOIN orders b ON a.id = b.id")
	}()
	waitfor.True(t, "the relations are there", func() bool {
		rows, bytes := progress()
		return rows >= total && rows <= 2*total && bytes > rows
	})
	if err := reader.PgConn().CancelRequest(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got != "57014" {
		t.Errorf("SQLSTATE %q", got)
	}
	waitfor.True(t, "a session that idles shows none", func() bool {
		rows, bytes := progress()
		return rows == -1 && bytes == -1
	})
}
