package backup

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/clustertest"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// meddled is a directory in which something happens before history or all records are read for the first time.
type meddled struct {
	shardmap.Directory
	history, records func()
}

func (d *meddled) History(ctx context.Context, after uint64, limit int) ([]shardmap.Entry, error) {
	d.history()
	return d.Directory.History(ctx, after, limit)
}

func (d *meddled) Records(ctx context.Context, prefix, after string, limit int) ([]shardmap.Record, error) {
	if prefix == "" {
		d.records()
	}
	return d.Directory.Records(ctx, prefix, after, limit)
}

// invoices makes a table whose ids 1 to 50 a sequence gave.
func (b *bank) invoices() *pgx.Conn {
	b.t.Helper()
	c := b.connect()
	for _, sql := range []string{"CREATE TABLE invoice (id bigserial PRIMARY KEY, what text) WITH (cleave.shard_key = 'id', cleave.keyspace = 'accounts')",
		"INSERT INTO invoice (what) SELECT 'old' FROM generate_series(1, 50)"} {
		if _, err := c.Exec(context.Background(), sql); err != nil {
			b.t.Fatalf("%s: %v", sql, err)
		}
	}
	return c
}

// meddledBackup runs statements once while a backup is taken: before all records are read, and before history is.
func (b *bank) meddledBackup(c *pgx.Conn, records, history string) (m *Manifest, folder string) {
	b.t.Helper()
	ctx := context.Background()
	run := func(sql string) func() {
		return sync.OnceFunc(func() {
			if _, err := c.Exec(ctx, sql); err != nil {
				b.t.Errorf("%s: %v", sql, err)
			}
		})
	}
	repo, folder := newRepository(b.t), filepath.Join(b.t.TempDir(), "new")
	dir := &meddled{b.dir, run(history), run(records)}
	m, err := Create(ctx, CreateOptions{Directory: dir, Drivers: drivers, Repository: repo, Software: "test"})
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := restoring(repo, m, folder).Restore(ctx); err != nil {
		b.t.Fatal(err)
	}
	return m, folder
}

// TestSequenceThatEndsDuringABackup: RESTART and DROP delete the record of the sequence that the cut's map has.
func TestSequenceThatEndsDuringABackup(t *testing.T) {
	for name, sql := range map[string]string{"restart": "ALTER SEQUENCE invoice_id_seq RESTART WITH 7", "drop": "DROP TABLE invoice"} {
		t.Run(name, func(t *testing.T) {
			b := newBank(t, clustertest.Files(t))
			c := b.invoices()
			defer c.Close(context.Background())
			_, folder := b.meddledBackup(c, "", sql)
			var next int
			fmt.Sscan(ask(t, folder, "SELECT nextval('invoice_id_seq')::text"), &next)
			if next <= 50 {
				t.Errorf("%d is given, and 50 is there", next)
			}
		})
	}
}

// TestSetvalDuringABackup: after setval(), rows of the cut may have values that the sequence gives next. The cut is then taken anew,
// and has what was written after it.
func TestSetvalDuringABackup(t *testing.T) {
	b := newBank(t, clustertest.Files(t))
	c := b.invoices()
	defer c.Close(context.Background())
	m, folder := b.meddledBackup(c, "SELECT setval('invoice_id_seq', 7); INSERT INTO account VALUES (1000, 0)", "")
	next, after := ask(t, folder, "SELECT nextval('invoice_id_seq')::text"), ask(t, folder, "SELECT count(*)::text FROM account WHERE id = 1000")
	if m.Cut.Tries != 2 || next != "8" || after != "1" {
		t.Errorf("%d tries; the next value is %s, and %s rows are there that were written after setval()", m.Cut.Tries, next, after)
	}
}

// late is a directory that gives the map after its reader's time is over, once.
type late struct {
	shardmap.Directory
	loads, at int
}

func (d *late) Load(ctx context.Context) (*shardmap.Snapshot, error) {
	if d.loads++; d.loads == d.at {
		<-ctx.Done()
		ctx = context.WithoutCancel(ctx)
	}
	return d.Directory.Load(ctx)
}

// TestATryIsBounded: one that took too long is no cut, since records of transactions may have been deleted meanwhile.
func TestATryIsBounded(t *testing.T) {
	b := newBank(t, clustertest.Files(t))
	ctx := context.Background()
	c := b.cutter()
	c.limit = 2 * time.Second
	c.dir = &late{Directory: b.dir, at: 2} // the last step of the first try
	cut, err := c.Take(ctx, "late")
	if err != nil || cut.Tries != 2 {
		t.Errorf("%+v, %v", cut, err)
	}
	c.dir = &late{Directory: b.dir, at: 1} // the first step: the others have no time
	if cut, err = c.Take(ctx, "late"); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
		t.Errorf("%+v, %v", cut, err)
	}
}
