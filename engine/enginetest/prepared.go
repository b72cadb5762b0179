package enginetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

// runPrepared is about PREPARE TRANSACTION and what ends one.
func runPrepared(t *testing.T, h Harness) {
	s := h.Open(t)
	c, other := connect(t, s), connect(t, s)
	if two, ok := c.Conn.(engine.TwoPhase); !ok || !two.CanPrepare() {
		t.Fatal("the shard cannot prepare transactions")
	}
	other.do(`SET lock_timeout TO '150ms'`)
	run := fmt.Sprintf("%x", time.Now().UnixNano()) // a server's databases share the space of these names
	gid := func(s string) string { return "'" + run + s + "'" }
	c.do(`CREATE TABLE holder (id bigint PRIMARY KEY, name text UNIQUE)`,
		`CREATE TABLE owned (id bigint PRIMARY KEY, holder_id bigint REFERENCES holder ON DELETE CASCADE ON UPDATE CASCADE, amount numeric(12,2), at timestamptz, data bytea, f double precision, ok boolean)`,
		`INSERT INTO holder VALUES (1, 'one'), (2, 'two'), (3, 'three')`,
		`INSERT INTO owned VALUES (1, 1, 1.50, '2020-01-01 00:00:00+00', '\x00ff', 0.1, true), (2, 1, NULL, NULL, '', NULL, NULL), (3, 2, 3, NULL, NULL, 1e300, false)`)
	holders := func(c *talk) string { return strings.Join(c.do(`SELECT id, name FROM holder ORDER BY id`).rows(), " ") }
	owned := func(c *talk) string {
		return strings.Join(c.do(`SELECT id, holder_id, amount, at, data, f, ok FROM owned ORDER BY id`).rows(), " ")
	}
	names := func() []string {
		return c.do(`SELECT substr(gid, ` + itoa(int64(len(run)+1)) + `) FROM pg_prepared_xacts WHERE gid LIKE '` + run + `%' ORDER BY 1`).rows()
	}
	before, beforeOwned := holders(c), owned(c)
	// write swaps two unique names, deletes with a cascade, moves a key, and undoes a part.
	write := func() {
		c.do(`BEGIN`, `UPDATE holder SET name = 'x' WHERE id = 1`, `UPDATE holder SET name = 'one' WHERE id = 2`, `UPDATE holder SET name = 'two' WHERE id = 1`,
			`SAVEPOINT a`, `DELETE FROM owned`, `INSERT INTO holder VALUES (99, 'gone')`, `ROLLBACK TO SAVEPOINT a`,
			`UPDATE holder SET id = 20 WHERE id = 2`, `INSERT INTO holder VALUES (4, 'four'), (5, NULL)`, `DELETE FROM holder WHERE id = 1`,
			`INSERT INTO owned VALUES (7, 4, 123456789.01, '2024-02-29 12:00:00.123456+00', '\xdeadbeef', -0.5, false)`)
	}

	t.Run("rollback prepared", func(t *testing.T) {
		write()
		r := c.do(`PREPARE TRANSACTION ` + gid("r"))
		same(t, "tag", r.tags(), []string{"PREPARE TRANSACTION"})
		same(t, "status", string(r.status), "I")
		same(t, "listed", names(), []string{"r"})
		same(t, "not seen", holders(other), before)
		r = other.do(`ROLLBACK PREPARED ` + gid("r"))
		same(t, "tag", r.tags(), []string{"ROLLBACK PREPARED"})
		same(t, "holders", holders(c), before)
		same(t, "owned", owned(c), beforeOwned)
		same(t, "gone", c.query(`COMMIT PREPARED `+gid("r")).code(), sqlstate.UndefinedObject)
		same(t, "listed", names(), []string(nil))
	})
	t.Run("commit prepared", func(t *testing.T) {
		write()
		want, wantOwned := holders(c), owned(c)
		c.do(`PREPARE TRANSACTION ` + gid("c"))
		same(t, "not seen", holders(c), before)
		same(t, "not seen", owned(c), beforeOwned)
		for _, sql := range []string{`UPDATE holder SET name = 'other' WHERE id = 1`, `DELETE FROM holder WHERE id = 2`} {
			same(t, "locked: "+sql, other.query(sql).code(), sqlstate.LockNotAvailable)
		}
		e := c.query(`COMMIT PREPARED ` + gid("no such")).err()
		same(t, "unknown", e.Code, sqlstate.UndefinedObject)
		same(t, "unknown", e.Message, `prepared transaction with identifier "`+run+`no such" does not exist`)
		r := other.do(`COMMIT PREPARED ` + gid("c"))
		same(t, "tag", r.tags(), []string{"COMMIT PREPARED"})
		same(t, "holders", holders(c), want)
		same(t, "owned", owned(c), wantOwned)
		other.do(`UPDATE holder SET name = 'free' WHERE id = 5`)
		same(t, "keys hold", other.query(`INSERT INTO holder VALUES (9, 'four')`).code(), sqlstate.UniqueViolation)
	})
	t.Run("a writer waits", func(t *testing.T) {
		c.do(`BEGIN`, `UPDATE holder SET name = 'w' WHERE id = 5`, `PREPARE TRANSACTION `+gid("w"))
		waits := connect(t, s)
		done := make(chan reply, 1)
		go func() { done <- waits.query(`UPDATE holder SET name = name || '!' WHERE id = 5`) }()
		select {
		case r := <-done:
			t.Fatalf("it did not wait: %v", r.err())
		case <-time.After(200 * time.Millisecond):
		}
		c.do(`COMMIT PREPARED ` + gid("w"))
		if r := <-done; r.err() != nil {
			t.Fatal(r.err())
		}
		same(t, "after it", c.do(`SELECT name FROM holder WHERE id = 5`).rows(), []string{"w!"})
	})
	t.Run("a lost conversation", func(t *testing.T) {
		d := connect(t, s)
		d.do(`BEGIN`, `UPDATE holder SET name = 'kept' WHERE id = 5`, `PREPARE TRANSACTION `+gid("l"))
		if err := d.Conn.Close(); err != nil {
			t.Fatal(err)
		}
		same(t, "locked", other.query(`UPDATE holder SET name = 'other' WHERE id = 5`).code(), sqlstate.LockNotAvailable)
		c.do(`COMMIT PREPARED ` + gid("l"))
		same(t, "there", c.do(`SELECT name FROM holder WHERE id = 5`).rows(), []string{"kept"})
	})
	t.Run("locks only", func(t *testing.T) {
		c.do(`BEGIN`, `SELECT * FROM holder WHERE id = 5 FOR UPDATE`, `PREPARE TRANSACTION `+gid("f"))
		same(t, "locked", other.query(`UPDATE holder SET name = 'other' WHERE id = 5`).code(), sqlstate.LockNotAvailable)
		c.do(`COMMIT PREPARED ` + gid("f"))
		other.do(`UPDATE holder SET name = 'other' WHERE id = 5`)
	})
	t.Run("reads only", func(t *testing.T) {
		c.do(`BEGIN`, `SELECT * FROM holder`, `PREPARE TRANSACTION `+gid("n"))
		other.do(`UPDATE holder SET name = 'free' WHERE id = 5`)
		same(t, "listed", names(), []string{"n"})
		c.do(`COMMIT PREPARED ` + gid("n"))
	})
	t.Run("settings", func(t *testing.T) {
		c.do(`BEGIN`, `SET LOCAL statement_timeout TO '71s'`, `SET idle_session_timeout TO '72s'`, `UPDATE holder SET name = name`, `PREPARE TRANSACTION `+gid("s"))
		same(t, "local", c.do(`SHOW statement_timeout`).rows(), []string{"0"})
		same(t, "set", c.do(`SHOW idle_session_timeout`).rows(), []string{"72s"})
		c.do(`ROLLBACK PREPARED `+gid("s"), `RESET idle_session_timeout`)
	})
	t.Run("errors", func(t *testing.T) {
		r := c.query(`PREPARE TRANSACTION ` + gid("o"))
		same(t, "outside of a block", r.tags(), []string{"ROLLBACK"})
		c.do(`BEGIN`)
		c.query(`SELECT 1 / 0`)
		r = c.query(`PREPARE TRANSACTION ` + gid("o"))
		same(t, "in a failed block", r.tags(), []string{"ROLLBACK"})
		same(t, "status", string(r.status), "I")
		c.do(`BEGIN`)
		same(t, "in a block", c.query(`COMMIT PREPARED `+gid("o")).code(), sqlstate.ActiveTransaction)
		c.do(`ROLLBACK`, `BEGIN`, `UPDATE holder SET name = name`)
		r = c.query(`PREPARE TRANSACTION '` + strings.Repeat("x", 200) + `'`)
		same(t, "too long", r.code(), sqlstate.InvalidParameterValue)
		same(t, "status", string(r.status), "I")
		c.do(`BEGIN`, `SELECT * FROM holder`, `PREPARE TRANSACTION `+gid("d"), `BEGIN`, `SELECT * FROM holder`)
		r = c.query(`PREPARE TRANSACTION ` + gid("d"))
		same(t, "twice", r.code(), sqlstate.DuplicateObject)
		same(t, "status", string(r.status), "I")
		c.do(`ROLLBACK PREPARED ` + gid("d"))
		same(t, "a broken constraint", c.query(`UPDATE owned SET holder_id = 77`).code(), sqlstate.ForeignKeyViolation)
	})
	t.Run("repeatable read", func(t *testing.T) {
		c.do(`BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT * FROM holder`, `SAVEPOINT a`, `INSERT INTO holder VALUES (50, 'fifty')`, `RELEASE a`, `PREPARE TRANSACTION `+gid("i"))
		other.do(`BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT * FROM holder`)
		c.do(`COMMIT PREPARED ` + gid("i"))
		same(t, "its snapshot", other.do(`SELECT count(*) FROM holder WHERE id = 50`).rows(), []string{"0"})
		other.do(`COMMIT`)
		same(t, "afterwards", other.do(`SELECT count(*) FROM holder WHERE id = 50`).rows(), []string{"1"})
	})
	t.Run("many rows", func(t *testing.T) {
		c.do(`CREATE TABLE big (id bigint PRIMARY KEY, note text)`, `INSERT INTO big SELECT i, repeat('x', 1000) || i::text FROM generate_series(1, 3000) AS s(i)`,
			`BEGIN`, `UPDATE big SET note = note || '+' WHERE id % 2 = 0`, `DELETE FROM big WHERE id % 3 = 0`, `INSERT INTO big SELECT i, repeat('y', 1000) FROM generate_series(3001, 5000) AS s(i)`)
		sum := `SELECT count(*), sum(id), sum(length(note)), min(note), max(note) FROM big`
		want := c.do(sum).rows()
		c.do(`PREPARE TRANSACTION `+gid("b"), `COMMIT PREPARED `+gid("b"))
		same(t, "rows", c.do(sum).rows(), want)
		c.do(`BEGIN`, `DELETE FROM big`, `PREPARE TRANSACTION `+gid("b"), `COMMIT PREPARED `+gid("b"))
		same(t, "none", c.do(`SELECT count(*) FROM big`).rows(), []string{"0"})
	})
}
