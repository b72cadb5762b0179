package gateway_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// TestReadsWhereServersAreFull: a router that has no snapshots to compare with, and gets no further connection to a shard, reads over
// several shards on those that it has: alone, in a block, one table and two, beside transfers through another router.
func TestReadsWhereServersAreFull(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	a := newAccounts(t, config{shards: 2})
	a.transfer(a.conn, 0, 1) // the records' tables are there
	second := start(t, config{dir: a.dir, urls: a.shards})
	conn := second.connect(t)
	a.balance(conn, 0)
	a.balance(conn, 1) // one connection to each shard
	a.transfer(a.conn, 0, 1)
	for i := range 2 {
		db := a.direct(t, i, "SELECT current_database()")
		pgtest.Ask(t, server.SuperuserURL("postgres"), fmt.Sprintf(`ALTER DATABASE "%s" CONNECTION LIMIT 0`, db))
	}
	var transfers sync.WaitGroup
	stop := make(chan struct{})
	transfers.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				a.transfer(a.conn, i%2, 1-i%2)
			}
		}
	})
	for i := range 20 {
		if block := i%2 == 1; block {
			exec(t, conn, "BEGIN")
		}
		a.sums(conn, 200, "the sum")
		if got := one[int64](t, conn, "SELECT sum(a.balance + b.balance)::bigint FROM account a JOIN account b ON a.tenant_id + 0 = b.tenant_id + 0"); got != 400 {
			t.Errorf("a join gave %d", got)
		}
		exec(t, conn, "COMMIT")
	}
	close(stop)
	transfers.Wait()
}

// TestReadWhoseShardDoesNotAnswer: the session's statement_timeout bounds what a read over several shards asks beside its statement,
// and 'shard' does not ask.
func TestReadWhoseShardDoesNotAnswer(t *testing.T) {
	t.Parallel()
	a := newAccounts(t, config{shards: 2})
	a.transfer(a.conn, 0, 1)
	conn := start(t, config{dir: a.dir, urls: a.shards}).connect(t)
	holds, err := pgx.Connect(t.Context(), pgtest.Super(a.shards[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer holds.Close(context.Background())
	exec(t, holds, "BEGIN")
	exec(t, holds, "LOCK TABLE cleave_internal.transaction")
	exec(t, conn, "SET statement_timeout = '300ms'")
	wantCode(t, conn, "57014", sumOf)
	exec(t, conn, "SET cleave.read_consistency = 'shard'")
	exec(t, conn, "RESET statement_timeout")
	a.sums(conn, 200, "'shard'")
	exec(t, conn, "RESET cleave.read_consistency")
	exec(t, holds, "ROLLBACK")
	waitfor.True(t, "the router tries to compare snapshots again", func() bool {
		var n int64
		return conn.QueryRow(t.Context(), sumOf).Scan(&n) == nil && n == 200
	})
}
