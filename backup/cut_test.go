package backup

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/engine/sqlite"
	"github.com/cleavedb/cleave/internal/clustertest"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/shardmap/sqlitedir"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var drivers = []engine.Driver{postgres.Driver{}, sqlite.Driver{}}

// accounts and money are what a bank begins with: each account has the same.
const accounts, money = 24, 100

// bank is a cluster with accounts on all shards, between which clients move money.
type bank struct {
	t      *testing.T
	dir    shardmap.Directory
	file   string // of the directory
	router string // its URL
}

func newBank(t *testing.T, file string) *bank {
	t.Helper()
	dir, err := sqlitedir.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
	b := &bank{t, dir, file, clustertest.URL(clustertest.Router(t, file))}
	c := b.connect()
	defer c.Close(context.Background())
	for _, sql := range []string{
		"SELECT cleave.create_keyspace('accounts', 'hash', 'bigint', ranges => 12)",
		"CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL) WITH (cleave.shard_key = 'id', cleave.keyspace = 'accounts')",
		fmt.Sprintf("INSERT INTO account SELECT i, %d FROM generate_series(1, %d) AS i", money, accounts),
	} {
		if _, err := c.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return b
}

func (b *bank) connect() *pgx.Conn {
	b.t.Helper()
	c, err := pgx.Connect(context.Background(), b.router)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// transfers lets clients move money until stop is called, which returns how many transfers were acknowledged.
func (b *bank) transfers(clients int) (done *atomic.Int64, stop func() int64) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done = &atomic.Int64{}
	var wait sync.WaitGroup
	for range clients {
		c := b.connect()
		wait.Go(func() {
			defer c.Close(context.Background())
			for ctx.Err() == nil {
				from, to := 1+rand.N(accounts), 1+rand.N(accounts)
				if from == to || transfer(c, from, to) != nil {
					continue
				}
				done.Add(1)
			}
		})
	}
	return done, sync.OnceValue(func() int64 {
		cancel()
		wait.Wait()
		return done.Load()
	})
}

func transfer(c *pgx.Conn, from, to int) error {
	ctx := context.Background()
	return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE account SET balance = balance - 1 WHERE id = $1", from); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE account SET balance = balance + 1 WHERE id = $1", to)
		return err
	})
}

func (b *bank) cutter() *Cutter {
	b.t.Helper()
	c, err := NewCutter(context.Background(), b.dir, drivers)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return c
}

// sumOf makes a cluster of copies of all files as of the last cut, settles it, and returns its sum.
func sumOf(t *testing.T, c *Cutter) (sum int64) {
	t.Helper()
	ctx := context.Background()
	folder := t.TempDir()
	st := c.snap.State().Clone()
	for i, p := range c.places {
		path := filepath.Join(folder, p.shard.Name+".db")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.marker.(engine.Copier).Copy(ctx, f, nil); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		st.Shards[i].URL = "file:" + path
	}
	dir := memory.New()
	defer dir.Close()
	if _, err := dir.Update(ctx, shardmap.Change{By: "test", Op: "test"}, st); err != nil {
		t.Fatal(err)
	}
	copies, err := NewCutter(ctx, dir, drivers)
	if err != nil {
		t.Fatal(err)
	}
	defer copies.Close()
	if err := settle(ctx, dir, drivers); err != nil {
		t.Fatal(err)
	}
	for _, p := range copies.places {
		rows, err := p.exec(ctx, "SELECT coalesce(sum(balance), 0)::bigint FROM account")
		if err != nil {
			t.Fatal(err)
		}
		var n int64
		fmt.Sscan(rows[0][0].String, &n)
		sum += n
	}
	return sum
}

// TestCutOfFiles takes cuts of three SQLite files while money moves between them.
func TestCutOfFiles(t *testing.T) {
	b := newBank(t, clustertest.Files(t))
	done, stop := b.transfers(3)
	defer stop()
	c := b.cutter()
	ctx := context.Background()
	tries := 0
	const cuts = 25
	for i := range cuts {
		at := done.Load()
		waitfor.True(t, "transfers", func() bool { return done.Load() > at })
		cut, err := c.Take(ctx, fmt.Sprint("cut-", i))
		if err != nil {
			t.Fatal(err)
		}
		tries += cut.Tries
		if sum := sumOf(t, c); sum != accounts*money {
			t.Fatalf("cut %d (%d tries) has %d, not %d", i, cut.Tries, sum, accounts*money)
		}
	}
	t.Logf("%d cuts, %d tries, %d transfers", cuts, tries, stop())
}

// TestCutWithoutProofIsTorn shows that the proof is what makes cuts whole.
func TestCutWithoutProofIsTorn(t *testing.T) {
	b := newBank(t, clustertest.Files(t))
	_, stop := b.transfers(3)
	defer stop()
	c := b.cutter()
	c.trust = true
	c.slow = 10 * time.Millisecond
	waitfor.True(t, "a torn cut", func() bool {
		if _, err := c.Take(context.Background(), "torn"); err != nil {
			t.Fatal(err)
		}
		return sumOf(t, c) != accounts*money
	})
}

// TestCutOfServers takes cuts of three PostgreSQL servers while money moves between them, and reads in the servers' logs on which
// side of each place each step of each transfer is.
func TestCutOfServers(t *testing.T) {
	file, urls := clustertest.Directory(t)
	b := newBank(t, file)
	for _, url := range urls {
		grant(t, url)
	}
	done, stop := b.transfers(4)
	defer stop()
	c := b.cutter()
	ctx := context.Background()
	from := pgtest.Ask(t, pgtest.Super(urls[0]), "SELECT pg_current_wal_flush_lsn()")
	var cuts []*Cut
	tries, took := 0, time.Duration(0)
	for i := range 40 {
		at := done.Load()
		waitfor.True(t, "transfers", func() bool { return done.Load() > at })
		began := time.Now()
		cut, err := c.Take(ctx, fmt.Sprint("cut-", i))
		if err != nil {
			t.Fatal(err)
		}
		took += time.Since(began)
		cuts, tries = append(cuts, cut), tries+cut.Tries
	}
	n := stop()
	logs := readLog(t, urls, from)
	if len(logs) == 0 {
		t.Fatal("no transfer is in the logs")
	}
	for _, cut := range cuts {
		if torn := logs.torn(t, cut); torn != "" {
			t.Errorf("cut %s: %s", cut.Name, torn)
		}
	}
	t.Logf("%d cuts, %d tries, %v each, %d transfers, %d over several shards", len(cuts), tries, took/time.Duration(len(cuts)), n, len(logs))
}

// TestCutOfServersWithoutProofIsTorn shows that the look into the logs finds torn cuts.
func TestCutOfServersWithoutProofIsTorn(t *testing.T) {
	file, urls := clustertest.Directory(t)
	b := newBank(t, file)
	for _, url := range urls {
		grant(t, url)
	}
	_, stop := b.transfers(4)
	defer stop()
	c := b.cutter()
	c.trust, c.slow = true, 5*time.Millisecond
	from := pgtest.Ask(t, pgtest.Super(urls[0]), "SELECT pg_current_wal_flush_lsn()")
	waitfor.True(t, "a torn cut", func() bool {
		cut, err := c.Take(context.Background(), "torn")
		if err != nil {
			t.Fatal(err)
		}
		return readLog(t, urls, from).torn(t, cut) != ""
	})
}

// grant lets a shard's role make restore points.
func grant(t *testing.T, url string) {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Ask(t, pgtest.Super(url), `GRANT EXECUTE ON FUNCTION pg_catalog.pg_create_restore_point(text) TO "`+cfg.User+`"`)
}
