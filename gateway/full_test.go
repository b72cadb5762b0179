package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// TestReadsWhereServersAreFull: a router that has no snapshots to compare with, and gets no further connection to a shard, reads over
// several shards on those that it has: alone, in a block, one table and two, beside transfers through another router.
func TestReadsWhereServersAreFull(t *testing.T) {
	t.Parallel()
	a := newAccounts(t, config{shards: 2})
	a.transfer(a.conn, 0, 1) // the records' tables are there
	second := start(t, config{dir: a.dir, urls: a.shards})
	conn := second.connect(t)
	a.balance(conn, 0)
	a.balance(conn, 1) // one connection to each shard
	a.transfer(a.conn, 0, 1)
	a.full()
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

// full lets nobody have a connection more.
func (a *accounts) full() {
	for i := range 2 {
		db := a.direct(a.t, i, "SELECT current_database()")
		pgtest.Ask(a.t, pgtest.Server(a.t).SuperuserURL("postgres"), fmt.Sprintf(`ALTER DATABASE "%s" CONNECTION LIMIT 0`, db))
	}
}

// TestMessageWhereServersAreFull: a read that cannot ask in its own conversations, since they have a snapshot already, is read with it by
// default. A session that insists gets the server's error.
func TestMessageWhereServersAreFull(t *testing.T) {
	t.Parallel()
	a := newAccounts(t, config{shards: 2})
	a.transfer(a.conn, 0, 1) // the records' tables are there
	exec(t, a.conn, fmt.Sprintf("INSERT INTO seen VALUES (%d, 100), (%d, 100)", a.keys[0], a.keys[1]))
	conn := start(t, config{dir: a.dir, urls: a.shards}).connect(t)
	a.balance(conn, 0)
	a.balance(conn, 1) // one connection to each shard
	a.full()
	const joined = "SELECT sum(balance + total)::bigint FROM account a JOIN seen b ON a.tenant_id + 0 = b.tenant_id"
	twice := func() ([]*pgconn.Result, error) {
		var b pgconn.Batch
		for range 2 {
			b.ExecParams(joined, nil, nil, nil, nil)
		}
		return conn.PgConn().ExecBatch(t.Context(), &b).ReadAll()
	}
	said, err := twice()
	if err != nil || len(said) != 2 || string(said[0].Rows[0][0]) != "400" || string(said[1].Rows[0][0]) != "400" {
		t.Error(said, err)
	}
	exec(t, conn, "SET cleave.read_consistency = 'atomic'")
	said, err = twice()
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "53300" && e.Code != "57P03" {
		t.Error(said, err)
	}
}

// TestReadBesideCommitsWhereServersAreFull: a read waits for what was prepared when it began, and not for what follows.
func TestReadBesideCommitsWhereServersAreFull(t *testing.T) {
	t.Parallel()
	a := newAccounts(t, config{shards: 2})
	a.transfer(a.conn, 0, 1) // the records' tables are there
	conn := start(t, config{dir: a.dir, urls: a.shards}).connect(t)
	a.balance(conn, 0)
	a.balance(conn, 1) // one connection to each shard
	holds, err := pgx.Connect(t.Context(), pgtest.Super(a.shards[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer holds.Close(context.Background())
	a.full()
	prepare := func(i int) { exec(t, holds, fmt.Sprintf("BEGIN; PREPARE TRANSACTION 'cleave_other_%d'", i)) }
	prepare(0)
	read := make(chan error)
	go func() {
		var n int64
		read <- conn.QueryRow(context.Background(), sumOf).Scan(&n)
	}()
	for i := 1; ; i++ {
		prepare(i)
		exec(t, holds, fmt.Sprintf("COMMIT PREPARED 'cleave_other_%d'", i-1))
		select {
		case err := <-read:
			if err != nil {
				t.Error(err)
			}
			exec(t, holds, fmt.Sprintf("COMMIT PREPARED 'cleave_other_%d'", i))
			return
		default:
		}
	}
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
