package gateway

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// What PREPARE and EXECUTE compute: the words for the time in a statement, and the arguments.

// ask runs a query for the session: in its transaction, so that now() is its time, or on the default shard.
func (x *prepared) ask(sql string) (*engine.Result, error) {
	if x.shards.nowait {
		return nil, errWait
	}
	if x.tx.state == txOpen && x.tx.schema == nil {
		if err := x.drain(); err != nil {
			return nil, err
		}
		shard := x.srv.ex.Any()
		if x.tx.conn != nil {
			shard = x.tx.conn.Shard()
		}
		if err := x.reach(shard, use{readOnly: true}); err != nil { // its time is the transaction's from now on
			return nil, err
		}
		res, err := x.shards.exec(x.tx.conn, sql)
		if err != nil {
			return nil, x.shards.shardSaid(x.tx.conn, err)
		}
		return res, nil
	}
	c, err := x.shards.acquire(x.srv.ex.Snapshot().State().DefaultShard, x.gucs.settings)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	res, err := x.shards.exec(c, sql)
	if err != nil {
		return nil, x.shards.shardSaid(c, err)
	}
	return res, nil
}

// prepareWords puts the time into the text of a statement that is prepared, in place of the words for it: PostgreSQL reads
// them now, and not when it is executed. Words inside of arrays, ranges and domains too.
func (x *prepared) prepareWords(s *statement) error {
	snap, _ := x.snapshot()
	words := x.srv.ex.PreparedWords(s.text, x.gucs.settings, snap)
	if len(words) == 0 {
		return nil
	}
	sql, _ := question(words, plainDefault(x.srv.ex))
	res, err := x.ask(sql)
	if err != nil {
		return err
	}
	if len(res.Rows) != 1 || len(res.Rows[0]) != len(words) {
		return sqlstate.New(sqlstate.InternalError, "the shard gave no time")
	}
	values := make([]string, len(words))
	for i, v := range res.Rows[0] {
		if v.Null {
			return sqlstate.Refusal("CLV-1102", "the text %s, which is read when the statement is prepared, has a word for the time inside", s.text[words[i].From:words[i].To]).
				WithHint("write the time itself, or an expression with now()")
		}
		values[i] = v.String
	}
	s.reads(planner.With(s.text, words, values))
	return nil
}

// paramTypes are the types of a statement's parameters, as they were when it was prepared.
func (x *prepared) paramTypes(s *statement) ([]uint32, error) {
	n := max(s.plan.Params, len(s.oids))
	if s.params != nil {
		return s.params, nil
	}
	if len(s.oids) < n || slices.Contains(s.oids, 0) {
		if x.shards.nowait {
			return nil, errWait
		}
		if err := x.drain(); err != nil {
			return nil, err
		}
		if err := x.reachFor(s.plan, s.oids); err != nil {
			return nil, err
		}
		on, err := x.prepare(s, false)
		if err != nil {
			return nil, err
		}
		x.pipe.CheckColumns(on, s)
		if _, err := x.converse(executor.Flush); err != nil {
			return nil, err
		}
		s.params = slices.Clone(s.types)
		return s.params, nil
	}
	return s.oids, nil
}

// computedArgs has a shard compute the arguments of an EXECUTE, and cast them to the types of the parameters as PostgreSQL
// does. The values are in text form, nil for NULL.
func (x *prepared) computedArgs(st *planner.Statement, s *statement, types []uint32) ([][]byte, error) {
	if x.shards.nowait {
		return nil, errWait
	}
	if plainDefault(x.srv.ex) {
		return nil, sqlstate.Refusal("CLV-1103", "an argument of EXECUTE is not a plain literal of the parameter's type").
			WithHint("give numbers, strings, true, false or NULL; compute expressions first")
	}
	snap, _ := x.snapshot()
	list := strings.Join(st.Prepared.Args, ", ")
	clock, err := x.srv.ex.ArgsUseClock(list, x.gucs.settings, snap)
	if err != nil {
		return nil, err
	}
	written := list
	switch {
	case clock && x.tx.state != txOpen && x.srv.ex.UsesClock(s.plan):
		return nil, sqlstate.Refusal("CLV-1104", "the time in an argument of EXECUTE would not be that of its statement, which depends on the time as well").
			WithHint("run it between BEGIN and COMMIT, or pass the time itself")
	case clock && x.tx.state == txOpen:
		res, err := x.ask("SELECT pg_catalog.to_json(pg_catalog.now()) #>> '{}'")
		if err != nil {
			return nil, err
		}
		if list, err = x.srv.ex.ArgsAt(list, res.Rows[0][0].String, x.gucs.settings, snap); err != nil {
			return nil, err
		}
	}
	c, err := x.shards.acquire(x.srv.ex.Snapshot().State().DefaultShard, x.gucs.settings)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if len(s.paramNames) != len(types) {
		names := make([]string, len(types))
		for i, oid := range types {
			names[i] = "pg_catalog.format_type(" + strconv.FormatUint(uint64(oid), 10) + ", NULL)"
		}
		res, err := x.shards.exec(c, "SELECT "+strings.Join(names, ", "))
		if err != nil {
			return nil, x.shards.shardSaid(c, err)
		}
		s.paramNames = nil
		for _, v := range res.Rows[0] {
			s.paramNames = append(s.paramNames, v.String)
		}
	}
	const name = "cleave_arguments"
	places := make([]string, len(types))
	for i := range places {
		places[i] = several.Printed(types[i], "$"+strconv.Itoa(i+1))
	}
	n, setting, want, err := several.Lossy(x.gucs.settings, types, func(sql string) (*engine.Result, error) { return x.shards.exec(c, sql) })
	switch {
	case err != nil:
		return nil, x.shards.shardSaid(c, err)
	case n >= 0:
		return nil, sqlstate.Refusal("CLV-1105", "argument %d of EXECUTE is computed by a shard, and the setting %s might change it on the way", n+1, setting).
			WithHint("SET %s = %s", setting, want)
	}
	before := "PREPARE " + name + " (" + strings.Join(s.paramNames, ", ") + ") AS SELECT " + strings.Join(places, ", ") + "; EXECUTE " + name + " ("
	res, err := x.shards.exec(c, before+list+")")
	if _, end := x.shards.exec(c, "DEALLOCATE "+name); end != nil && err == nil {
		return nil, x.shards.shardSaid(c, end)
	}
	if err != nil {
		err = x.shards.shardSaid(c, err)
		if list == written {
			at := utf8.RuneCountInString(before) + 1
			err = moved(err, func(pos int) int {
				for i, arg := range st.Prepared.Args {
					end := at + utf8.RuneCountInString(arg) + len(", ")
					if pos < end {
						return st.Prepared.At[i] + pos - at
					}
					at = end
				}
				return 0
			})
		}
		return nil, err
	}
	if len(res.Rows) != 1 || len(res.Rows[0]) != len(types) {
		return nil, sqlstate.New(sqlstate.InternalError, "the shard gave no arguments")
	}
	values := make([][]byte, len(types))
	for i, v := range res.Rows[0] {
		if v.Null {
			continue
		}
		if values[i], err = several.PrintedText(types[i], v.String); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// moved changes the position of an error.
func moved(err error, to func(int) int) error {
	var sh *shardError
	var se *sqlstate.Error
	switch {
	case errors.As(err, &sh) && sh.said.Position > 0:
		return &shardError{said: sh.said, frame: replaced(sh.frame, 'P', func(was string) string {
			n, _ := strconv.Atoi(was) // the shard's own
			if n = to(n); n == 0 {
				return ""
			}
			return strconv.Itoa(n)
		})}
	case errors.As(err, &se) && se.Position > 0 && sh == nil:
		e := *se
		e.Position = to(se.Position)
		return &e
	}
	return err
}
