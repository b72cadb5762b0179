package move

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestMigrationDuringMoves: transactions with a schema change and writes over all shards, while half of the rows goes
// to and fro: each is there wholly or not at all, and rows are changed once.
func TestMigrationDuringMoves(t *testing.T) {
	testrun.Long(t, "migrations go on beside several moves; the short run has either alone")
	c := start(t, "postgres", "postgres")
	ctx := context.Background()
	c.bank(300)
	c.exec(`SELECT cleave.create_keyspace('side', 'hash', 'bigint', ranges => 2)`)
	conn, err := pgx.Connect(ctx, c.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	was := c.number(`SELECT count(*) FROM account`)
	var committed, refused atomic.Int64
	// Each adds 1 to all accounts, and takes a row for it; a table comes and goes with it.
	migrate := func() {
		err := func() error {
			for _, sql := range []string{
				`BEGIN`,
				`CREATE TABLE passing (id bigint PRIMARY KEY, n bigint) WITH (cleave.shard_key = 'id', cleave.keyspace = 'side')`,
				`INSERT INTO passing SELECT tenant, count(*) FROM account GROUP BY tenant`,
				`UPDATE account SET balance = balance + 1`,
			} {
				if _, err := conn.Exec(ctx, sql); err != nil {
					return err
				}
			}
			var seen, passing int64
			if err := conn.QueryRow(ctx, `SELECT count(*) FROM account`).Scan(&seen); err != nil {
				return err
			}
			if err := conn.QueryRow(ctx, `SELECT sum(n)::bigint FROM passing`).Scan(&passing); err != nil {
				return err
			}
			if seen != was || passing != was {
				t.Errorf("%d and %d accounts in the transaction, not %d", seen, passing, was)
			}
			if _, err := conn.Exec(ctx, `DROP TABLE passing`); err != nil {
				return err
			}
			_, err := conn.Exec(ctx, `COMMIT`)
			return err
		}()
		if err == nil {
			committed.Add(1)
			return
		}
		_, _ = conn.Exec(ctx, `ROLLBACK`)
		var pg *pgconn.PgError
		switch {
		case errors.As(err, &pg) && slices.Contains([]sqlstate.Code{sqlstate.SerializationFailure, sqlstate.DeadlockDetected, sqlstate.LockNotAvailable}, sqlstate.Code(pg.Code)):
			refused.Add(1)
		default:
			t.Errorf("a migration failed: %v", err)
		}
	}
	if migrate(); committed.Load() != 1 {
		t.Fatal("a migration without moves was refused")
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				migrate()
			}
		}
	}()
	for _, to := range []string{"s1", "s0"} {
		c.await(c.move(admin.MoveRequest{Keyspace: "bank", Range: ":", To: to, MoveOptions: admin.MoveOptions{Keep: "0"}}), "done")
	}
	close(stop)
	<-done
	t.Logf("%d committed, %d refused", committed.Load(), refused.Load())
	low, high := c.number(`SELECT min(balance) FROM account`), c.number(`SELECT max(balance) FROM account`)
	if low != high || low != balance+committed.Load() {
		t.Errorf("balances are %d to %d after %d transactions on %d", low, high, committed.Load(), balance)
	}
	if committed.Load() < 2 {
		t.Error("no migration was committed while rows moved")
	}
	c.clean()
}
