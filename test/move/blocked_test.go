package move

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// direct opens a transaction past Cleave, and returns its session's process and what ends it.
func (c *target) direct(url, sql string) (pid string, end func()) {
	c.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close(ctx) })
	if _, err := conn.Exec(ctx, "BEGIN; "+sql); err != nil {
		c.t.Fatal(err)
	}
	return fmt.Sprint(conn.PgConn().PID()), func() {
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
			c.t.Fatal(err)
		}
	}
}

// TestMoveNamesSessionsOnTheServer: a move that waits for a transaction of another database of the server says which
// session it is and how it is ended, and so does one that waits for it while the copies are compared.
func TestMoveNamesSessionsOnTheServer(t *testing.T) {
	testrun.Long(t, "the move is slow, so that the note is seen; TestCutoverNamesSessions has one")
	c := start(t, "postgres", "postgres")
	c.bank(4000)
	other := pgtest.Database(t)
	pid, end := c.direct(other, `SELECT txid_current()`)
	said := "waits on shard s0 for session " + pid + " of user "
	c.move(admin.MoveRequest{ID: "m", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{BytesPerSecond: 40_000}})
	w := c.noted("m", "copying", said)
	if !strings.Contains(w.Note, "to end it, run there: SELECT pg_terminate_backend("+pid+")") || !strings.Contains(w.Note, ", with a transaction since 20") {
		t.Errorf("%q", w.Note)
	}
	end()
	c.eventually("rows are copied", func() bool {
		w = c.await("m", "copying", "catching up")
		return w.Rows > 0
	})
	pid, end = c.direct(other, `SELECT txid_current()`)
	c.eventually("the note names the session that the move waits for", func() bool {
		w = c.await("m", "copying", "catching up", "verifying")
		return strings.Contains(w.Note, "session "+pid)
	})
	end()
	if w = c.await("m", "opened"); strings.Contains(w.Note, "session") {
		t.Errorf("%q", w.Note)
	}
}

// TestACopyThatStands: a server's process that copies is stopped: the move says that no row passes, and where to look,
// and goes on when it does.
func TestACopyThatStands(t *testing.T) {
	testrun.Long(t, "a copy has to stand for ten seconds before the move says so")
	c := start(t, "postgres", "postgres")
	c.bank(4000)
	c.move(admin.MoveRequest{ID: "m", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0", BytesPerSecond: 20_000}})
	pids := c.copiers("m", "s1")
	c.signal(pids, syscall.SIGSTOP)
	goesOn := false
	defer func() {
		if !goesOn {
			c.signal(pids, syscall.SIGCONT)
		}
	}()
	c.noted("m", "copying", "no row has passed for more than 10s: look at the servers of shards s0 and s1")
	c.signal(pids, syscall.SIGCONT)
	goesOn = true
	if w := c.await("m", "done"); w.Note != "" {
		t.Errorf("%q", w.Note)
	}
}

// TestCutoverNamesSessions: a session on the old owner that keeps a table locked keeps the cutover from happening, and
// is named with the command that ends it.
func TestCutoverNamesSessions(t *testing.T) {
	testrun.Short(t)
	c := start(t, "postgres", "postgres")
	c.bank(100)
	if _, err := c.rooms.Ops.Split(context.Background(), admin.SplitRequest{ID: "cut", Keyspace: "bank", At: []string{"0"}}); err != nil {
		t.Fatal(err)
	}
	c.await("cut", "done") // else the move would wait for the lock before it copies
	shard, _ := c.rooms.Executor.Snapshot().Shard("s0")
	pid, end := c.direct(shard.URL, `LOCK TABLE bulk IN ROW EXCLUSIVE MODE`)
	c.moveAs("m", workflow.Options{HoldMS: 1000, Polite: 1})
	var text string
	c.eventually("the error names the session in the way", func() bool {
		text = told(c.await("m", "planned", "preparing", "copying", "catching up", "verifying", "closing", "reopening", "waiting"))
		return strings.Contains(text, "did not end in time")
	})
	for _, want := range []string{"shard s0: statements or transactions", "In the way: session " + pid + " of user ", "run on the server of shard s0: SELECT pg_terminate_backend(" + pid + ")"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	end()
	c.await("m", "opened")
}

// TestMovesDoNotHoldEachOther: one move waits for a table's lock, to set guards, while others of another keyspace change owners
// on the same shard. These hold statements: none of them may wait for the first one's lock.
func TestMovesDoNotHoldEachOther(t *testing.T) {
	testrun.Long(t, "five moves, one of which waits for a lock, as in TestCutoverNamesSessions")
	c := start(t, "postgres", "postgres")
	ctx := context.Background()
	c.bank(100)
	c.exec(`SELECT cleave.create_keyspace('shelf', 'hash', 'bigint', ranges => 1, shards => ARRAY['s0'])`,
		`CREATE TABLE book (id bigint PRIMARY KEY, n int NOT NULL) WITH (cleave.shard_key = 'id', cleave.keyspace = 'shelf')`,
		`INSERT INTO book SELECT g, 0 FROM generate_series(1, 20) AS g`)
	shard, _ := c.rooms.Executor.Snapshot().Shard("s0")
	pid, end := c.direct(shard.URL, `LOCK TABLE bulk IN ROW EXCLUSIVE MODE`)
	c.move(admin.MoveRequest{ID: "waits", Keyspace: "bank", Range: "0:", To: "s1"}) // cuts a range: the guards of s0 are set anew
	c.eventually("somebody waits for the lock", func() bool {
		return pgtest.Ask(t, pgtest.Super(shard.URL), `SELECT count(*) > 0 FROM pg_stat_activity WHERE `+pid+` = ANY (pg_blocking_pids(pid))`) == "t"
	})
	left := make(chan struct{})
	wrote := make(chan error, 1)
	go func() {
		conn, err := pgx.Connect(ctx, c.url)
		if err != nil {
			wrote <- err
			return
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, `SET cleave.hold_timeout = '5s'`)
		for err == nil {
			select {
			case <-left:
				wrote <- nil
				return
			default:
				_, err = conn.Exec(ctx, `UPDATE book SET n = n + 1 WHERE id BETWEEN 1 AND 4`)
			}
		}
		wrote <- err
	}()
	for key := range 4 {
		id := fmt.Sprintf("book-%d", key+1)
		c.move(admin.MoveRequest{ID: id, Keyspace: "shelf", Key: []string{strconv.Itoa(key + 1)}, To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}})
		c.await(id, "done")
	}
	close(left)
	if err := <-wrote; err != nil {
		t.Errorf("a write beside the moves: %v", err)
	}
	c.await("waits", "planned", "preparing")
	end()
	c.await("waits", "opened")
}

// TestMovesDoNotFenceForEachOther: a transaction that used a part before it was held may go on in it, and does when another move
// sets the shard's guards in between.
func TestMovesDoNotFenceForEachOther(t *testing.T) {
	testrun.Long(t, "one move has to hold statements for as long as another one begins; TestMoveUnderLoad has one alone")
	c := start(t, "postgres", "postgres")
	ctx := context.Background()
	c.bank(100)
	conn, err := pgx.Connect(ctx, c.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	do := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	snap, err := c.dir.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ix, _ := snap.Keyspace("bank")
	n := int64(0)
	for keyspace.HashKey(ix.Def().Seed, keyspace.Key{keyspace.Int(keyspace.Int8, n)}) < 0 {
		n++
	}
	tenant := strconv.FormatInt(n, 10)
	do(`BEGIN`)
	do(`SELECT count(*) FROM bulk WHERE tenant = ` + tenant)
	c.moveAs("held", workflow.Options{HoldMS: 60_000, Polite: 10})
	c.eventually("the part is held", func() bool {
		snap, err := c.dir.Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, transit := snap.Transit("held")
		return transit != nil && transit.Hold != shardmap.NoHold
	})
	c.move(admin.MoveRequest{ID: "cuts", Keyspace: "bank", Range: ":-4611686018427387904", To: "s1"}) // its range gets another epoch, which the guards have to say
	c.noted("cuts", "preparing", "which has a statement under way by an older map")                   // its guards are set: it waits for the transaction now
	do(`UPDATE bulk SET body = body || 'x' WHERE tenant = ` + tenant)
	do(`COMMIT`)
	c.await("held", "opened")
	c.await("cuts", "opened")
}
