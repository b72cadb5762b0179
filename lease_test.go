package cleave

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/cleavedb/cleave/internal/wire"
)

// TestTerm: what a program found in the map, or read on a shard, before it lost
// its lease is not used although another lease is live by then.
func TestTerm(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	folder := filepath.Join(t.TempDir(), "data")
	c, err := Open(ctx, "file:"+folder+"?shards=2")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := c.DB().Exec(`CREATE TABLE orders (tenant_id bigint, id bigint, PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')`); err != nil {
		t.Fatal(err)
	}
	o, err := c.ForKey(ctx, "hash_bigint", 1)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := o.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)

	// A read that goes on until the program has joined anew.
	lease := c.rooms.Executor.Lease()
	term := lease.Term()
	read := make(chan error, 1)
	reading, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	go func() {
		_, err := conn.Exec(reading, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000000) SELECT max(i) FROM n`)
		read <- err
	}()
	time.Sleep(300 * time.Millisecond) // the read is under way then, however busy the machine
	file, err := sqlite.OpenConn(filepath.Join(folder, "directory.db"), sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	file.SetBlockOnBusy()
	if err := sqlitex.Execute(file, "DELETE FROM member", nil); err != nil {
		t.Fatal(err)
	}
	for lease.Term() == term || !lease.Live() {
		if reading.Err() != nil {
			t.Fatal("the program does not join anew")
		}
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-read:
		t.Fatalf("the read was too fast for this test: %v", err)
	default:
	}
	var pg *pgconn.PgError
	if err := <-read; !errors.As(err, &pg) || pg.Code != "08007" {
		t.Errorf("a read over two leases: %v", err)
	}
	if e := c.lost(term); e == nil || e.Code != "57P03" {
		t.Errorf("found under the former lease: %v", e)
	}
	if _, err := c.ForKey(ctx, "hash_bigint", 1); err != nil || !o.Valid() {
		t.Errorf("under the new lease: %v, valid %v", err, o.Valid())
	}
}

// TestDirectReads: a write that found no row says something about rows that the
// shard may have lost; its guard was not asked.
func TestDirectReads(t *testing.T) {
	for tag, want := range map[string]bool{
		"SELECT 0": true, "SELECT 3": true, "FETCH 1": true, "MOVE 1": true, "COPY 5": true, "UPDATE 0": true, "DELETE 0": true, "INSERT 0 0": true, "MERGE 0": true,
		"UPDATE 1": false, "UPDATE 10": false, "INSERT 0 1": false, "DELETE 20": false, "COMMIT": false, "BEGIN": false, "CREATE TABLE": false,
	} {
		d := &direct{expect: []byte{wire.Execute}}
		if read, err := d.note(wire.AppendCommandComplete(nil, tag)); err != nil || read != want {
			t.Errorf("%s: %v, %v", tag, read, err)
		}
	}
}
