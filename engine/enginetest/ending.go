package enginetest

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func runTransaction(t *testing.T, h Harness) {
	s := h.Open(t)
	c, other := connect(t, s), connect(t, s)
	c.do(`CREATE TABLE account (id bigint PRIMARY KEY, amount bigint NOT NULL)`, `INSERT INTO account VALUES (1, 100)`)
	amounts := func(c *talk) []string { return c.do(`SELECT amount FROM account ORDER BY id`).rows() }

	t.Run("commit", func(t *testing.T) {
		same(t, "begin", string(c.do(`BEGIN`).status), "T")
		c.do(`UPDATE account SET amount = 101 WHERE id = 1`)
		same(t, "not seen yet", amounts(other), []string{"100"})
		r := c.do(`COMMIT`)
		same(t, "status", string(r.status), "I")
		same(t, "tag", r.tags(), []string{"COMMIT"})
		same(t, "seen", amounts(other), []string{"101"})
	})
	t.Run("rollback", func(t *testing.T) {
		c.do(`BEGIN`, `UPDATE account SET amount = 0`, `INSERT INTO account VALUES (2, 2)`)
		same(t, "tag", c.do(`ROLLBACK`).tags(), []string{"ROLLBACK"})
		same(t, "undone", amounts(c), []string{"101"})
	})
	t.Run("failed", func(t *testing.T) {
		c.do(`BEGIN`, `UPDATE account SET amount = 0`)
		r := c.query(`INSERT INTO account VALUES (1, 1)`)
		same(t, "code", r.code(), sqlstate.UniqueViolation)
		same(t, "status", string(r.status), "E")
		same(t, "ignored", c.query(`SELECT 1`).code(), sqlstate.InFailedTransaction)
		same(t, "ignored", c.run(script(nil).parse("", `SELECT 1`).sync(), 1).code(), sqlstate.InFailedTransaction)
		r = c.do(`COMMIT`)
		same(t, "commit rolls back", r.tags(), []string{"ROLLBACK"})
		same(t, "status", string(r.status), "I")
		same(t, "undone", amounts(c), []string{"101"})
	})
	t.Run("savepoints", func(t *testing.T) {
		c.do(`BEGIN`, `INSERT INTO account VALUES (3, 3)`, `SAVEPOINT one`, `INSERT INTO account VALUES (4, 4)`, `SAVEPOINT two`)
		same(t, "status", string(c.query(`INSERT INTO account VALUES (1, 1)`).status), "E")
		same(t, "back", string(c.do(`ROLLBACK TO SAVEPOINT two`).status), "T")
		c.do(`RELEASE SAVEPOINT two`, `ROLLBACK TO SAVEPOINT one`, `INSERT INTO account VALUES (5, 5)`)
		same(t, "unknown", c.query(`ROLLBACK TO SAVEPOINT three`).code(), sqlstate.InvalidSavepoint)
		c.do(`ROLLBACK TO SAVEPOINT one`, `COMMIT`)
		same(t, "kept", amounts(c), []string{"101", "3"})
	})
	t.Run("closing rolls back", func(t *testing.T) {
		d := connect(t, s)
		d.do(`BEGIN`, `INSERT INTO account VALUES (9, 9)`)
		d.Close()
		// The shard notices when it notices.
		for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			r := c.query(`INSERT INTO account VALUES (9, 10) RETURNING amount`)
			if r.code() == "" {
				same(t, "rows", r.rows(), []string{"10"})
				break
			}
			if time.Since(start) > 20*time.Second {
				t.Fatal(r.err())
			}
		}
	})
}

func runEnding(t *testing.T, h Harness) {
	s := h.Open(t)
	t.Run("cancel", func(t *testing.T) {
		c := connect(t, s)
		for _, begin := range []bool{false, true} {
			want := "I"
			if begin {
				c.do(`BEGIN`)
				want = "E"
			}
			failed := make(chan error, 1)
			go func() {
				time.Sleep(200 * time.Millisecond)
				failed <- c.Cancel(context.Background())
			}()
			start := time.Now()
			r := c.query(h.Slow)
			if err := <-failed; err != nil {
				t.Fatalf("cancel: %v", err)
			}
			same(t, "code", r.code(), sqlstate.QueryCanceled)
			same(t, "status", string(r.status), want)
			if d := time.Since(start); d > 10*time.Second {
				t.Fatalf("it took %v", d)
			}
			if begin {
				c.do(`ROLLBACK`)
			}
			same(t, "usable", c.do(`SELECT 1`).rows(), []string{"1"})
		}
		// Nothing runs: nothing happens.
		if err := c.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		same(t, "usable", c.do(`SELECT 1`).rows(), []string{"1"})
	})
	t.Run("deadline", func(t *testing.T) {
		c := connect(t, s)
		c.SetDeadline(time.Now().Add(200 * time.Millisecond))
		c.send(wire.AppendQuery(nil, h.Slow))
		start := time.Now()
		_, err := c.Receive()
		if lost := engine.Lost(err); lost == nil || !lost.Sent {
			t.Fatalf("got %v", err)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Fatalf("it took %v", d)
		}
		c.Close()
	})
	t.Run("close while running", func(t *testing.T) {
		c := connect(t, s)
		c.send(wire.AppendQuery(nil, h.Slow))
		ended := make(chan error, 1)
		go func() {
			_, err := c.Receive()
			ended <- err
		}()
		time.Sleep(100 * time.Millisecond)
		c.Close()
		select {
		case err := <-ended:
			if engine.Lost(err) == nil {
				t.Fatalf("got %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("Receive still waits")
		}
	})
	t.Run("use after close", func(t *testing.T) {
		c := connect(t, s)
		c.do(`SELECT 1`)
		c.Close()
		c.Close()
		err := c.Send(wire.AppendQuery(nil, `SELECT 1`))
		if lost := engine.Lost(err); lost == nil || lost.Sent {
			t.Fatalf("got %v", err)
		}
		same(t, "for a client", engine.Lost(err).State(true).Code, sqlstate.CannotConnectNow)
		if _, err = c.Receive(); engine.Lost(err) == nil {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Connect(ctx, params); err == nil || !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("closed shard", func(t *testing.T) {
		s := h.Open(t)
		s.Close()
		if _, err := s.Connect(t.Context(), params); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
			t.Fatalf("got %v", err)
		}
	})
}

func runInstall(t *testing.T, h Harness) {
	url := h.URL(t)
	s := h.at(t, url, Cluster, Shard)
	same(t, "names", s.Name()+" "+s.Engine(), Shard+" "+h.Driver.Name())
	if _, err := s.Connect(t.Context(), params); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
		t.Fatalf("a database that is no shard: got %v", err)
	}
	rep, err := s.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if rep.Version == "" || len(rep.Findings) == 0 {
		t.Fatalf("report %+v", rep)
	}
	for _, f := range rep.Findings {
		if f.Level == "error" || f.Level != "ok" && (f.Want == "" || f.Fix == "") {
			t.Errorf("finding %+v", f)
		}
	}
	// Several at once, and again.
	done := make(chan error, 4)
	for range cap(done) {
		go func() { done <- s.Install(context.Background()) }()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, "usable", connect(t, s).do(`SELECT 1`).rows(), []string{"1"})
	for _, id := range [][2]string{{"99999999-2222-3333-4444-555555555555", Shard}, {Cluster, "shard-1"}} {
		w := h.at(t, url, id[0], id[1])
		if _, err := w.Connect(t.Context(), params); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || sqlstate.As(err).Hint == "" {
			t.Fatalf("connect as %v: got %v", id, err)
		}
		if err := w.Install(t.Context()); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
			t.Fatalf("install as %v: got %v", id, err)
		}
		rep, err := w.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		bad := 0
		for _, f := range rep.Findings {
			if f.Level == "error" {
				bad++
			}
		}
		same(t, "errors found", bad, 1)
	}
	same(t, "still ours", connect(t, h.at(t, url, Cluster, Shard)).do(`SELECT 1`).rows(), []string{"1"})
}
