package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/enginetest"
	"github.com/cleavedb/cleave/engine/sqlite"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

const moverVariable = "CLEAVE_SQLITE_MOVER_URLS"

// movedKeys are keys 0 to 49; the tables of the tests have keys up to 99.
func movedKeys(epoch uint64, high int64) keyspace.Ownership {
	low, end := keyspace.Key{keyspace.Int(keyspace.Int8, 0)}, keyspace.Key{keyspace.Int(keyspace.Int8, high)}
	return keyspace.Ownership{Keyspace: "k", Strategy: keyspace.Range, Types: []keyspace.Type{keyspace.Int8}, Epoch: epoch, Intervals: []keyspace.Interval{keyspace.NewKeyInterval(low, end)}}
}

func moverFiles(t testing.TB, urls []string) (shards []engine.Shard, m []engine.Mover) {
	t.Helper()
	for i, url := range urls {
		s, err := sqlite.Driver{}.Open(engine.Config{Cluster: enginetest.Cluster, Name: fmt.Sprintf("shard-%d", i), URL: url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		shards, m = append(shards, s), append(m, s.(engine.Movable).Mover(1))
	}
	return shards, m
}

func movedSet(t testing.TB, m engine.Mover) engine.Set {
	t.Helper()
	tables, err := m.Describe(t.Context(), []engine.MoveTable{{Schema: "public", Name: "t", ShardKey: []string{"k"}}})
	if err != nil {
		t.Fatal(err)
	}
	return engine.Set{Tables: tables, Keys: movedKeys(1, 50)}
}

// moveOn does what is left of a move: all from the beginning, if the copy was not
// finished, then the changes until ctx ends or until is reached.
func moveOn(ctx context.Context, m []engine.Mover, set engine.Set, until engine.Position) error {
	const id = "crash_f"
	at, err := m[1].Applied(ctx, id)
	if err != nil {
		return err
	}
	if at == "" {
		if err := m[1].Release(ctx, id); err != nil {
			return err
		}
		for n := 100; n == 100; {
			if n, err = m[1].Purge(ctx, set, 100); err != nil {
				return err
			}
		}
		view, err := m[0].Capture(ctx, id, set)
		if err != nil {
			return err
		}
		r, w := io.Pipe()
		go func() { w.CloseWithError(view.Rows(ctx, 0, engine.Part{}, nil, w)) }()
		_, err = m[1].Load(ctx, id, &set.Tables[0], engine.Part{}, r)
		r.CloseWithError(errors.New("the load has ended"))
		if err = errors.Join(err, view.Close()); err != nil {
			return err
		}
		if err := m[1].SetApplied(ctx, id, view.Position()); err != nil {
			return err
		}
	}
	a, err := m[1].Apply(ctx, id, set)
	if err != nil {
		return err
	}
	defer a.Close()
	if at, err = a.Flush(ctx); err != nil {
		return err
	}
	if err := m[0].Changes(ctx, id, set, at, until, forgetting{a, m[0], id}); err != nil {
		return err
	}
	_, err = a.Flush(ctx)
	return err
}

// forgetting lets the source drop what the target has.
type forgetting struct {
	engine.Applier
	source engine.Mover
	id     string
}

func (f forgetting) Commit(ctx context.Context, at engine.Position) error {
	if err := f.Applier.Commit(ctx, at); err != nil || rand.IntN(20) > 0 {
		return err
	}
	done, err := f.Flush(ctx)
	if err != nil {
		return err
	}
	return f.source.Forget(ctx, f.id, done)
}

// TestMoverChild is the processes that TestMoverCrash kills.
func TestMoverChild(t *testing.T) {
	what, urls, ok := strings.Cut(os.Getenv(moverVariable), " ")
	if !ok {
		return // only TestMoverCrash starts it
	}
	shards, m := moverFiles(t, strings.Split(urls, " "))
	if what == "move" {
		t.Fatal(moveOn(t.Context(), m, movedSet(t, m[0]), ""))
	}
	c := open(t, shards[0])
	for {
		// Counters: a key's row comes, counts, now and then goes and comes again
		// with its count kept in another row.
		k := rand.IntN(100)
		mustExec(t, c, "BEGIN")
		mustExec(t, c, fmt.Sprintf("INSERT INTO t VALUES (%d, 1, 1, repeat('x', %d)) ON CONFLICT (k, id) DO UPDATE SET n = t.n + 1, pad = excluded.pad", k, rand.IntN(300)))
		if rand.IntN(4) == 0 {
			mustExec(t, c, fmt.Sprintf("UPDATE t SET id = 3 - id WHERE k = %d", k))
			mustExec(t, c, fmt.Sprintf("DELETE FROM t WHERE k = %d AND id = 2", k))
			mustExec(t, c, fmt.Sprintf("INSERT INTO t SELECT %d, 1, n + 1, 'back' FROM total WHERE k = %d", k, k))
		}
		mustExec(t, c, fmt.Sprintf("INSERT INTO total VALUES (%d, 1) ON CONFLICT (k) DO UPDATE SET n = total.n + 1", k))
		mustExec(t, c, "COMMIT")
		fmt.Printf("acknowledged %d\n", k)
	}
}

// TestMoverCrash kills the process that moves and the one that writes, again and
// again. In the end every acknowledged write is on the target, once.
func TestMoverCrash(t *testing.T) {
	testrun.Long(t, "processes are killed again and again; TestMoverForget has what is left")
	h := harness()
	urls := []string{h.URL(t), h.URL(t)}
	shards, m := moverFiles(t, urls)
	for _, s := range shards {
		if err := s.Install(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := open(t, s)
		mustExec(t, c, "CREATE TABLE t (k bigint NOT NULL, id integer NOT NULL, n bigint NOT NULL, pad text, PRIMARY KEY (k, id))")
		mustExec(t, c, "CREATE TABLE total (k bigint PRIMARY KEY, n bigint NOT NULL)")
	}
	start := func(what string, each func(string)) (kill func()) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMoverChild$")
		cmd.Env = append(os.Environ(), moverVariable+"="+what+" "+strings.Join(urls, " "))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for sc := bufio.NewScanner(out); sc.Scan(); {
				each(sc.Text())
			}
		}()
		return func() {
			cmd.Process.Kill()
			<-done
			cmd.Wait()
		}
	}
	acknowledged, unexpected := map[int]int{}, []string{}
	count := func(line string) {
		var k int
		if _, err := fmt.Sscanf(line, "acknowledged %d", &k); err == nil {
			acknowledged[k]++
		} else {
			unexpected = append(unexpected, line)
		}
	}
	said := func(line string) { unexpected = append(unexpected, line) }
	var writers int
	enough := func() bool {
		n := 0
		for _, of := range acknowledged {
			n += of
		}
		return n >= 150
	}
	// A slow machine gets more rounds. Between them no child runs that counts.
	for round := 0; round < 8 || !enough() && round < 80; round++ {
		killWriter := start("write", count)
		writers++
		var killMover func()
		for range 2 {
			time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
			killMover = start("move", said)
			time.Sleep(time.Duration(100+rand.IntN(400)) * time.Millisecond)
			if round%2 == 0 {
				killWriter()
				killMover()
				killWriter = start("write", count)
				writers++
			} else {
				killMover()
			}
		}
		killWriter()
	}
	if len(unexpected) > 0 {
		t.Fatalf("the children say %.2000q", unexpected)
	}
	set := movedSet(t, m[0])
	fence, err := m[0].Fence(t.Context(), []engine.Guard{{Schema: "public", Table: "t", ShardKey: []string{"k"}, Owned: movedKeys(2, 0)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := moveOn(t.Context(), m, set, fence); err != nil {
		t.Fatal(err)
	}
	sums := make([][]engine.Sum, 2)
	for i := range m {
		if sums[i], err = m[i].Sums(t.Context(), set, nil); err != nil {
			t.Fatal(err)
		}
	}
	if sums[0][0] != sums[1][0] || sums[0][0].Rows < 20 {
		t.Fatalf("the source has %+v, the target %+v", sums[0], sums[1])
	}
	// Each writer may have had one write that nobody saw acknowledged.
	got, seen, all := map[int]int{}, 0, 0
	for _, row := range mustExec(t, open(t, shards[0]), "SELECT k, n FROM total").Rows {
		var k, n int
		fmt.Sscan(row[0].String, &k)
		fmt.Sscan(row[1].String, &n)
		got[k] = n
	}
	for k, n := range acknowledged {
		if got[k] < n {
			t.Errorf("key %d: %d writes were acknowledged, %d are there", k, n, got[k])
		}
		seen, all = seen+n, all+got[k]
	}
	if all > seen+writers || seen < 100 {
		t.Errorf("%d writes were acknowledged to %d writers, %d are there", seen, writers, all)
	}
	t.Logf("%d writes, %+v moved", seen, sums[0])
	for i := range m {
		if err := m[i].Release(t.Context(), "crash_f"); err != nil {
			t.Fatal(err)
		}
		ids, err := m[i].Captures(t.Context())
		if err != nil || len(ids) > 0 {
			t.Fatalf("%q are left, %v", ids, err)
		}
		for what, want := range map[string]string{
			"SELECT count(*) FROM cleave_log": "0", "SELECT count(*) FROM cleave_move": "0",
			"SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'cleave_capture%'": "0",
		} {
			if n := sqlite.PlainValue(t, strings.TrimPrefix(urls[i], "file:"), what); n != want {
				t.Errorf("%s: %s", what, n)
			}
		}
	}
	if _, err := engine.Exec(open(t, shards[0]), "INSERT INTO t VALUES (7, 9, 0, '')"); sqlstate.CodeOf(err) != sqlstate.NotOwner {
		t.Errorf("the source takes a write: %v", err)
	}
}
