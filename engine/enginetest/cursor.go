package enginetest

import (
	"testing"

	"github.com/cleavedb/cleave/sqlstate"
)

// runCursor is about cursors, and portals that are read in portions.
func runCursor(t *testing.T, h Harness) {
	s := h.Open(t)
	c, other := connect(t, s), connect(t, s)
	c.do(`CREATE TABLE n (i integer PRIMARY KEY, t text)`, `INSERT INTO n SELECT i, 't' || i::text FROM generate_series(1, 10) AS s(i)`)
	fetch := func(sql string) []string { return c.do(sql).rows() }

	t.Run("forward", func(t *testing.T) {
		c.do(`BEGIN`)
		r := c.do(`DECLARE k CURSOR FOR SELECT i, t FROM n ORDER BY i`)
		same(t, "tag", r.tags(), []string{"DECLARE CURSOR"})
		r = c.do(`FETCH 2 FROM k`)
		same(t, "rows", r.rows(), []string{"1|t1", "2|t2"})
		same(t, "tag", r.tags(), []string{"FETCH 2"})
		same(t, "order", r.order(), "TDDCZ")
		same(t, "next", fetch(`FETCH k`), []string{"3|t3"})
		same(t, "next", fetch(`FETCH NEXT FROM k`), []string{"4|t4"})
		same(t, "move", c.do(`MOVE 2 IN k`).tags(), []string{"MOVE 2"})
		same(t, "relative", fetch(`FETCH RELATIVE 2 FROM k`), []string{"8|t8"})
		same(t, "absolute", fetch(`FETCH ABSOLUTE 9 FROM k`), []string{"9|t9"})
		r = c.do(`FETCH ALL FROM k`)
		same(t, "all", r.rows(), []string{"10|t10"})
		same(t, "tag", r.tags(), []string{"FETCH 1"})
		r = c.do(`FETCH FORWARD 5 FROM k`)
		same(t, "none", r.tags(), []string{"FETCH 0"})
		same(t, "order", r.order(), "TCZ")
		same(t, "close", c.do(`CLOSE k`).tags(), []string{"CLOSE CURSOR"})
		e := c.query(`FETCH 1 FROM k`).err()
		same(t, "closed", e.Message, `cursor "k" does not exist`)
		same(t, "closed", e.Code, sqlstate.InvalidCursorName)
		c.do(`ROLLBACK`)
	})
	t.Run("scroll", func(t *testing.T) {
		c.do(`BEGIN`, `DECLARE k SCROLL CURSOR FOR SELECT i FROM n ORDER BY i`)
		for _, step := range []struct {
			sql  string
			tag  string
			want []string
		}{
			{`FETCH LAST FROM k`, "FETCH 1", []string{"10"}},
			{`FETCH NEXT FROM k`, "FETCH 0", nil},
			{`FETCH PRIOR FROM k`, "FETCH 1", []string{"10"}},
			{`FETCH BACKWARD 2 FROM k`, "FETCH 2", []string{"9", "8"}},
			{`FETCH 0 FROM k`, "FETCH 1", []string{"8"}},
			{`FETCH ABSOLUTE 3 FROM k`, "FETCH 1", []string{"3"}},
			{`FETCH RELATIVE -1 FROM k`, "FETCH 1", []string{"2"}},
			{`FETCH ABSOLUTE -2 FROM k`, "FETCH 1", []string{"9"}},
			{`FETCH -3 FROM k`, "FETCH 3", []string{"8", "7", "6"}},
			{`MOVE ABSOLUTE 0 IN k`, "MOVE 0", nil},
			{`FETCH 0 FROM k`, "FETCH 0", nil},
			{`FETCH FIRST FROM k`, "FETCH 1", []string{"1"}},
			{`FETCH PRIOR FROM k`, "FETCH 0", nil},
			{`FETCH 3 FROM k`, "FETCH 3", []string{"1", "2", "3"}},
			{`MOVE FORWARD ALL IN k`, "MOVE 7", nil},
			{`FETCH BACKWARD ALL FROM k`, "FETCH 10", []string{"10", "9", "8", "7", "6", "5", "4", "3", "2", "1"}},
			{`FETCH ABSOLUTE 11 FROM k`, "FETCH 0", nil},
			{`FETCH RELATIVE -1 FROM k`, "FETCH 1", []string{"10"}},
		} {
			r := c.do(step.sql)
			same(t, step.sql, r.rows(), step.want)
			same(t, step.sql, r.tags(), []string{step.tag})
		}
		c.do(`COMMIT`)
		same(t, "over", c.query(`FETCH 1 FROM k`).code(), sqlstate.InvalidCursorName)
	})
	t.Run("what it sees", func(t *testing.T) {
		c.do(`BEGIN`, `DECLARE k CURSOR FOR SELECT i, t FROM n ORDER BY i`, `FETCH 1 FROM k`, `UPDATE n SET t = 'new' WHERE i < 5`, `DELETE FROM n WHERE i > 5`)
		same(t, "rows", fetch(`FETCH 2 FROM k`), []string{"2|t2", "3|t3"})
		same(t, "rows", c.do(`FETCH ALL FROM k`).tags(), []string{"FETCH 7"})
		c.do(`ROLLBACK`)
		other.do(`BEGIN`, `DECLARE k CURSOR FOR SELECT i FROM n ORDER BY i`)
		c.do(`INSERT INTO n VALUES (11, 'x')`)
		other.do(`UPDATE n SET t = t WHERE i = 1`) // after another's commit
		same(t, "rows", other.do(`FETCH ALL FROM k`).tags(), []string{"FETCH 10"})
		other.do(`COMMIT`)
		c.do(`DELETE FROM n WHERE i = 11`)
	})
	t.Run("savepoints", func(t *testing.T) {
		c.do(`BEGIN`, `DECLARE a CURSOR FOR SELECT i FROM n ORDER BY i`, `FETCH 1 FROM a`, `SAVEPOINT s`, `DECLARE b CURSOR FOR SELECT i FROM n`, `FETCH 1 FROM a`)
		c.query(`SELECT 1 / 0`)
		c.do(`ROLLBACK TO s`)
		same(t, "stays", fetch(`FETCH 1 FROM a`), []string{"3"})
		same(t, "goes", c.query(`FETCH 1 FROM b`).code(), sqlstate.InvalidCursorName)
		c.do(`ROLLBACK`)
	})
	t.Run("with hold", func(t *testing.T) {
		c.do(`DECLARE a CURSOR WITH HOLD FOR SELECT i FROM n ORDER BY i`)
		same(t, "after", fetch(`FETCH 2 FROM a`), []string{"1", "2"})
		c.do(`BEGIN`, `DECLARE b CURSOR WITH HOLD FOR SELECT i FROM n ORDER BY i`, `FETCH 3 FROM b`, `COMMIT`)
		same(t, "after commit", fetch(`FETCH 2 FROM b`), []string{"4", "5"})
		c.do(`BEGIN`, `DECLARE d CURSOR WITH HOLD FOR SELECT i FROM n`, `ROLLBACK`)
		same(t, "after rollback", c.query(`FETCH 1 FROM d`).code(), sqlstate.InvalidCursorName)
		same(t, "older", fetch(`FETCH 1 FROM a`), []string{"3"})
		c.do(`CLOSE ALL`)
		same(t, "closed", c.query(`FETCH 1 FROM a`).code(), sqlstate.InvalidCursorName)
	})
	t.Run("errors", func(t *testing.T) {
		same(t, "no block", c.query(`DECLARE k CURSOR FOR SELECT 1`).code(), sqlstate.NoActiveTransaction)
		c.do(`BEGIN`, `DECLARE k NO SCROLL CURSOR FOR SELECT i FROM n ORDER BY i`, `FETCH 2 FROM k`)
		same(t, "backward", c.query(`FETCH PRIOR FROM k`).code(), sqlstate.ObjectNotInState)
		c.do(`ROLLBACK`, `BEGIN`, `DECLARE k CURSOR FOR SELECT 1`)
		same(t, "twice", c.query(`DECLARE k CURSOR FOR SELECT 1`).code(), sqlstate.Code("42P03"))
		c.do(`ROLLBACK`)
	})
	t.Run("extended", func(t *testing.T) {
		c.do(`BEGIN`, `DECLARE k CURSOR FOR SELECT i, t FROM n ORDER BY i`)
		r := c.run(script(nil).parse("f", `FETCH 2 FROM k`).bind("", "f").describe('P', "").execute("", 0).sync(), 1)
		same(t, "rows", r.rows(), []string{"1|t1", "2|t2"})
		same(t, "order", r.order(), "12TDDCZ")
		c.do(`CLOSE k`, `DECLARE k CURSOR FOR SELECT t FROM n ORDER BY i`)
		r = c.run(script(nil).bind("", "f").describe('P', "").execute("", 0).sync(), 1)
		same(t, "other columns", r.rows(), []string{"t1", "t2"})
		c.do(`ROLLBACK`, `DEALLOCATE f`)
	})
	t.Run("portals", func(t *testing.T) {
		c.do(`BEGIN`)
		r := c.run(script(nil).parse("", `SELECT i FROM n ORDER BY i`).bind("p", "").execute("p", 3).sync(), 1)
		same(t, "first", r.rows(), []string{"1", "2", "3"})
		c.do(`DELETE FROM n`)
		r = c.run(script(nil).execute("p", 3).sync(), 1)
		same(t, "second", r.rows(), []string{"4", "5", "6"})
		same(t, "order", r.order(), "DDDsZ")
		r = c.run(script(nil).execute("p", 0).sync(), 1)
		same(t, "rest", r.rows(), []string{"7", "8", "9", "10"})
		c.do(`ROLLBACK`)
	})
}
