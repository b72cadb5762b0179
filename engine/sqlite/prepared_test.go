package sqlite_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/enginetest"
	"github.com/cleavedb/cleave/engine/sqlite"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/sqlstate"
)

const preparedCrashVariable = "CLEAVE_SQLITE_PREPARED_CRASH_URL"

func openURL(t testing.TB, url string) engine.Shard {
	t.Helper()
	s, err := sqlite.Driver{}.Open(engine.Config{Cluster: enginetest.Cluster, Name: enginetest.Shard, URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestPreparedCrashChild is the process that TestPreparedCrash kills.
func TestPreparedCrashChild(t *testing.T) {
	url := os.Getenv(preparedCrashVariable)
	if url == "" {
		return // only TestPreparedCrash starts it
	}
	c := open(t, openURL(t, url))
	for {
		r := mustExec(t, c, "SELECT n FROM counter")
		var n int
		fmt.Sscan(r.Rows[0][0].String, &n)
		n++
		// The log is written by the transaction's statements; its rows have to be as many as the counter says.
		mustExec(t, c, fmt.Sprintf("BEGIN; UPDATE counter SET n = %d; INSERT INTO log SELECT %d * 100 + i, repeat('x', 300) FROM generate_series(1, 50) AS s(i); DELETE FROM log WHERE id %% 2 = 1", n, n))
		mustExec(t, c, fmt.Sprintf("PREPARE TRANSACTION 'g%d'", n))
		fmt.Printf("prepared %d\n", n)
		if n%2 == 0 {
			time.Sleep(3 * time.Millisecond) // so that some are killed here
		}
		mustExec(t, c, fmt.Sprintf("COMMIT PREPARED 'g%d'", n))
		fmt.Printf("committed %d\n", n)
	}
}

// TestPreparedCrash kills a process that prepares and ends transactions, again and
// again. What was acknowledged is there, a transaction that is left prepared is
// whole and keeps writers out, also those of another process, and can be ended
// either way.
func TestPreparedCrash(t *testing.T) {
	testrun.Long(t, "a process is killed a dozen times; TestCrash kills one, TestMoverPrepared has prepared transactions")
	url := harness().URL(t)
	s := openURL(t, url)
	if err := s.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := open(t, s)
	mustExec(t, c, "CREATE TABLE counter (n integer); INSERT INTO counter VALUES (0); CREATE TABLE log (id integer PRIMARY KEY, pad text)")
	left := 0
	for round := range 12 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestPreparedCrashChild$")
		cmd.Env = append(os.Environ(), preparedCrashVariable+"="+url)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		prepared, committed, said := 0, 0, 0
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			var n int
			if _, err := fmt.Sscanf(sc.Text(), "prepared %d", &n); err == nil {
				prepared = n
			} else if _, err := fmt.Sscanf(sc.Text(), "committed %d", &n); err == nil {
				committed = n
			} else {
				continue
			}
			if said++; said == 7+round {
				time.Sleep(time.Duration(round) * 300 * time.Microsecond)
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		cmd.Wait()
		n := func() (n int) {
			fmt.Sscan(mustExec(t, c, "SELECT n FROM counter").Rows[0][0].String, &n)
			return n
		}
		was := n()
		if was < committed {
			t.Fatalf("round %d: %d were committed, the file has %d", round, committed, was)
		}
		found := mustExec(t, c, "SELECT gid FROM pg_prepared_xacts").Rows
		switch {
		case len(found) > 1 || len(found) == 0 && was < prepared:
			t.Fatalf("round %d: %v are prepared, %d were, the file has %d", round, found, prepared, was)
		case len(found) == 1:
			left++
			gid := found[0][0].String
			if gid != fmt.Sprint("g", was+1) {
				t.Fatalf("round %d: %s is prepared after %d", round, gid, was)
			}
			mustExec(t, c, "SET lock_timeout TO '60ms'")
			if _, err := engine.Exec(c, "UPDATE counter SET n = 0"); sqlstate.CodeOf(err) != sqlstate.LockNotAvailable || !strings.Contains(err.Error(), gid) {
				t.Fatalf("round %d: %v", round, err)
			}
			mustExec(t, c, "RESET lock_timeout")
			if round%2 == 0 {
				mustExec(t, c, "COMMIT PREPARED '"+gid+"'")
				was++
			} else {
				mustExec(t, c, "ROLLBACK PREPARED '"+gid+"'")
			}
		}
		if got := n(); got != was {
			t.Fatalf("round %d: the counter is %d, not %d", round, got, was)
		}
		if r := mustExec(t, c, "SELECT count(*), coalesce(min(id), 0) FROM log").Rows[0]; r[0].String != fmt.Sprint(25*was) {
			t.Fatalf("round %d: %s rows after %d", round, r[0].String, was)
		}
	}
	if left == 0 {
		t.Error("no transaction was ever left prepared: the test shows nothing")
	}
	t.Logf("%d of 12 were killed while something was prepared", left)
}

// What triggers write during a transaction is there once after COMMIT PREPARED:
// the triggers do not run again.
func TestPreparedTriggersOnce(t *testing.T) {
	url := harness().URL(t)
	s := openURL(t, url)
	if err := s.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := open(t, s)
	mustExec(t, c, "CREATE TABLE t (a integer PRIMARY KEY); CREATE TABLE seen (a integer)")
	sqlite.Raw(t, c, "CREATE TRIGGER capture AFTER INSERT ON t BEGIN INSERT INTO seen VALUES (NEW.a); END")
	mustExec(t, c, "BEGIN; INSERT INTO t VALUES (1), (2), (3)")
	mustExec(t, c, "PREPARE TRANSACTION 'once'")
	if got := mustExec(t, c, "SELECT count(*) FROM seen").Rows[0][0].String; got != "0" {
		t.Fatalf("%s rows before the commit", got)
	}
	mustExec(t, c, "COMMIT PREPARED 'once'")
	if got := mustExec(t, c, "SELECT count(*) FROM seen").Rows[0][0].String; got != "3" {
		t.Fatalf("%s rows, not 3", got)
	}
	// A file that was written without Cleave while a transaction was prepared.
	mustExec(t, c, "BEGIN; INSERT INTO t VALUES (4)")
	mustExec(t, c, "PREPARE TRANSACTION 'damaged'")
	sqlite.Raw(t, c, "INSERT INTO t (rowid, a) VALUES (77, 4)")
	if _, err := engine.Exec(c, "COMMIT PREPARED 'damaged'"); sqlstate.CodeOf(err) != sqlstate.DataCorrupted {
		t.Fatal(err)
	}
	if r := mustExec(t, c, "SELECT gid FROM pg_prepared_xacts").Rows; len(r) != 1 {
		t.Fatalf("it is gone: %v", r)
	}
	mustExec(t, c, "ROLLBACK PREPARED 'damaged'")
	// Definitions are not prepared.
	mustExec(t, c, "BEGIN; CREATE TABLE other (a integer)")
	if _, err := engine.Exec(c, "PREPARE TRANSACTION 'ddl'"); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		t.Fatal(err)
	}
	if _, err := engine.Exec(c, "SELECT * FROM other"); sqlstate.CodeOf(err) != sqlstate.UndefinedTable {
		t.Fatal(err)
	}
}

// A writer of another handle on the file, as another process has it, waits too.
func TestPreparedLocksOtherHandles(t *testing.T) {
	url := harness().URL(t)
	first, second := openURL(t, url), openURL(t, url)
	if err := first.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, b := open(t, first), open(t, second)
	mustExec(t, a, "CREATE TABLE t (a integer PRIMARY KEY, n integer); INSERT INTO t VALUES (1, 0)")
	mustExec(t, a, "BEGIN; UPDATE t SET n = 1; PREPARE TRANSACTION 'p'")
	done := make(chan error, 1)
	go func() {
		_, err := engine.Exec(b, "UPDATE t SET n = n + 10")
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(150 * time.Millisecond):
	}
	mustExec(t, a, "COMMIT PREPARED 'p'")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := mustExec(t, a, "SELECT n FROM t").Rows[0][0].String; got != "11" {
		t.Fatalf("n is %s", got)
	}
	// REPEATABLE READ: what is prepared will have changed the file.
	mustExec(t, b, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM t")
	mustExec(t, a, "BEGIN; UPDATE t SET n = 5; PREPARE TRANSACTION 'q'")
	if _, err := engine.Exec(b, "UPDATE t SET n = 6"); sqlstate.CodeOf(err) != sqlstate.SerializationFailure {
		t.Fatal(err)
	}
	mustExec(t, b, "ROLLBACK")
	mustExec(t, b, "ROLLBACK PREPARED 'q'")
}

// PREPARE TRANSACTION is the last moment at which a deferred foreign key can be refused: what is prepared commits.
func TestPrepareChecksDeferredKeys(t *testing.T) {
	c := open(t, harness().Open(t))
	mustExec(t, c, "CREATE TABLE a (id integer PRIMARY KEY); CREATE TABLE b (a_id integer REFERENCES a DEFERRABLE INITIALLY DEFERRED)")
	mustExec(t, c, "BEGIN")
	mustExec(t, c, "INSERT INTO b VALUES (1)")
	if _, err := engine.Exec(c, "PREPARE TRANSACTION 'broken'"); sqlstate.CodeOf(err) != sqlstate.ForeignKeyViolation {
		t.Errorf("a broken key was prepared: %v", err)
	}
	mustExec(t, c, "BEGIN")
	mustExec(t, c, "INSERT INTO b VALUES (2)")
	mustExec(t, c, "INSERT INTO a VALUES (2)")
	mustExec(t, c, "PREPARE TRANSACTION 'whole'")
	if r := mustExec(t, c, "SELECT gid FROM pg_prepared_xacts"); len(r.Rows) != 1 || r.Rows[0][0].String != "whole" {
		t.Errorf("prepared: %v", r.Rows)
	}
	mustExec(t, c, "COMMIT PREPARED 'whole'")
	if r := mustExec(t, c, "SELECT a_id FROM b"); len(r.Rows) != 1 || r.Rows[0][0].String != "2" {
		t.Errorf("rows: %v", r.Rows)
	}
}
