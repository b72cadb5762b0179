package gateway

import (
	"iter"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/sqlstate"
)

// A CREATE TABLE AS with rows of several shards: they are read first, like those of any
// query, and held in text; then the schema change makes the table, and its transaction
// inserts them.

const (
	createRowsMax = 64 << 20 // bytes of rows that the router holds
	insertChunk   = 1 << 20  // bytes of one INSERT
)

// readRows are the rows of a query, with a bound.
type readRows struct {
	capture
	lost bool
}

// Frames implements the sink of a conversation.
func (r *readRows) Frames(b []byte) error {
	r.lost = r.lost || len(r.buf)+len(b) > r.max
	return r.capture.Frames(b)
}

// createSource reads the rows of a CREATE TABLE AS, in the open transaction if there is one.
func (x *commands) createSource(source string) ([][][]byte, error) {
	if x.tx.state == txNone && x.pipe.Conn != nil && x.pipe.wrote {
		return nil, sqlstate.Refusal("CLV-1203", "CREATE TABLE AS with rows of sharded tables after a write before the same Sync is not supported").
			WithHint("Sync before it.")
	}
	if x.pipe.Conn != nil {
		if err := x.leave(); err != nil {
			return nil, err
		}
	}
	st, err := x.plan([]byte(source))
	if err != nil {
		return nil, err
	}
	x.args = plan.Args{}
	if err := x.admit(st, &x.args); err != nil {
		return nil, err
	}
	shard, err := x.choose(st, &x.args)
	if err != nil {
		return nil, err
	}
	if err := x.reach(shard, useOf(st)); err != nil {
		return nil, err
	}
	c := x.pipe.Conn
	x.pipe.Query(st.Text)
	out := readRows{capture: capture{max: createRowsMax, par: x.w.onParameter}}
	x.shards.setRunning(c)
	o, err := x.pipe.Run(executor.None, &out)
	x.shards.setRunning(nil)
	if err != nil {
		return nil, x.lost(err, nil, executor.None, anchored)
	}
	said := &shardError{said: o.Err, frame: append([]byte(nil), x.pipe.ErrorFrame()...)}
	if x.pipe.outside() {
		x.pipe.release()
	}
	switch {
	case o.Err != nil && o.Err.Code == sqlstate.NotOwner:
		return nil, x.notOwner(o.Err)
	case o.Err != nil:
		return nil, said
	}
	if out.lost {
		return nil, sqlstate.New(sqlstate.ConfigurationLimit, "CREATE TABLE AS would have to hold more than %d MB of rows in the router", createRowsMax>>20).
			WithHint("create the table, and INSERT ... SELECT into it in several statements")
	}
	var rows [][][]byte
	frames(out.buf, func(typ byte, body []byte) {
		if typ == wire.RowDescription && err == nil {
			err = several.Faithful(x.gucs.Settings, body)
		}
		if typ != wire.DataRow || err != nil {
			return
		}
		var row [][]byte
		if row, err = wire.SplitRow(body, nil); err == nil {
			rows = append(rows, row)
		}
	})
	return rows, err
}

func named(t plan.TableName) string {
	return `"` + strings.ReplaceAll(t.Schema, `"`, `""`) + `"."` + strings.ReplaceAll(t.Name, `"`, `""`) + `"`
}

// createRows inserts the rows into the table that the open schema change has made.
func (x *commands) createRows(t plan.TableName, rows [][][]byte) error {
	if len(rows) == 0 {
		return nil
	}
	if err := x.reach(x.srv.ex.Snapshot().State().DefaultShard, use{}); err != nil {
		return err
	}
	c := x.pipe.Conn
	for text := range inserts(named(t), rows) {
		if _, err := x.shards.exec(c, text); err != nil {
			return x.shards.shardSaid(c, err)
		}
	}
	return nil
}

// inserts are statements that insert rows, which are texts, into a table.
func inserts(table string, rows [][][]byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		if len(rows) > 0 && len(rows[0]) == 0 {
			yield("INSERT INTO " + table + " SELECT FROM pg_catalog.generate_series(1, " + strconv.Itoa(len(rows)) + ")")
			return
		}
		for len(rows) > 0 {
			var b strings.Builder
			b.WriteString("INSERT INTO " + table + " VALUES ")
			n := 0
			for n < len(rows) && b.Len() < insertChunk {
				if n > 0 {
					b.WriteString(", ")
				}
				for i, v := range rows[n] {
					b.WriteByte("(,"[min(i, 1)])
					if v == nil {
						b.WriteString("NULL")
					} else {
						b.WriteString(executor.QuoteLiteral(string(v)))
					}
				}
				b.WriteByte(')')
				n++
			}
			if !yield(b.String()) {
				return
			}
			rows = rows[n:]
		}
	}
}

// temporaryRows runs a CREATE TEMP TABLE AS of rows of several shards: the kept conversation
// makes the table and inserts the rows, in one message, so all of it or nothing.
func (x *commands) temporaryRows(st *plan.Statement) error {
	if err := x.drain(); err != nil {
		return err
	}
	x.unit.effects = true
	if x.tx.state != txNone {
		return sqlstate.Refusal("CLV-1204", "CREATE TEMP TABLE AS with rows of sharded tables inside a transaction is not supported").
			WithHint("Run it before BEGIN, or make a table that lasts, and drop it.")
	}
	var rows [][][]byte
	if st.DDL.Source != "" {
		var err error
		if rows, err = x.createSource(st.DDL.Source); err != nil {
			return err
		}
	}
	if err := x.reach(x.srv.ex.Snapshot().State().DefaultShard, use{pin: true, temp: st.Temp}); err != nil {
		return err
	}
	text := []string{st.Text}
	for sql := range inserts(named(plan.TableName{Schema: "pg_temp", Name: st.Temp}), rows) {
		text = append(text, sql)
	}
	c := x.pipe.Conn
	_, err := x.shards.exec(c, strings.Join(text, ";"))
	if err != nil {
		err = x.shards.shardSaid(c, err)
	}
	if x.pipe.outside() {
		x.pipe.release()
	}
	if err != nil {
		return err
	}
	tag := "SELECT " + strconv.Itoa(len(rows))
	if st.DDL.Source == "" {
		tag = "CREATE TABLE AS"
	}
	x.w.complete(tag)
	return nil
}

// inText gives an error that was said of the text sent its place in the client's.
func inText(err error, sent, client string) error {
	if _, ok := err.(*shardError); ok {
		return placed(err, sent, client)
	}
	return moved(err, func(at int) int { return sqltext.Place(sent, at, client) })
}

// createAs makes the CREATE TABLE of text, a CREATE TABLE AS of a sharded or reference table.
func (x *commands) createAs(as *plan.CreateAs, text string) (*plan.Statement, error) {
	if as.Query != "" {
		st, err := x.plan([]byte(as.Query))
		switch {
		case err != nil:
			return nil, inText(err, as.Query, text)
		case st.Params > 0:
			return nil, sqlstate.New(sqlstate.UndefinedParameter, "there is no parameter $%d", st.Params)
		case !routed(st) || st.Pins:
			return nil, sqlstate.Refusal("CLV-1205", "a sharded or reference table cannot be made from this query").
				WithHint("Create the table, then INSERT ... SELECT.")
		}
	}
	ctx, done := x.interrupts.waiting()
	columns, err := x.tx.schema.Columns(ctx, as)
	done()
	if err != nil {
		return nil, inText(schemaError(err), as.Probe, text)
	}
	st, err := x.plan([]byte(as.Head + columns + as.Tail))
	if err != nil {
		// Nothing in it was written by the client.
		e := *sqlstate.As(err)
		e.Position = 0
		return nil, &e
	}
	return st, nil
}

// insertAs inserts the rows of a CREATE TABLE AS into the table that was made, and returns the tag.
func (x *commands) insertAs(as *plan.CreateAs, text string) (string, error) {
	if as.Insert == "" {
		return "CREATE TABLE AS", nil
	}
	st, err := x.plan([]byte(as.Insert))
	if err != nil {
		return "", inText(err, as.Insert, text)
	}
	out, err := x.within(st, false)
	if err != nil {
		return "", inText(err, st.Text, text)
	}
	tag := ""
	frames(out, func(typ byte, body []byte) {
		if typ == wire.CommandComplete {
			tag, _, _ = wire.CutString(body)
		}
	})
	return "SELECT" + strings.TrimPrefix(tag, "INSERT 0"), nil
}
