package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// MoveDefaultRequest makes another shard the default shard.
type MoveDefaultRequest struct {
	Meta
	To string `json:"to"`
}

// wholeRowsMax bounds the rows of a whole table that is carried to another shard: they are in memory.
const wholeRowsMax = 1_000_000

// MoveDefault makes another shard the default shard, and carries the whole tables there. To a PostgreSQL database rows are copied
// while statements go on; then, and to a file from the beginning, those that write to whole tables wait, cleave.hold_timeout
// at most, until what has changed since is there too and both are compared. Run again after a failure, it goes on or begins anew.
//
// Errors: 42704 for an unknown shard, 54000 for a table of more than a million rows, 0A000 for tables that cannot be made
// there, XX001 when the copies differ, 55P03 and 40001 when others were in the way, with nothing changed.
func (o *Ops) MoveDefault(ctx context.Context, req MoveDefaultRequest) (*Result, error) {
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	if _, ok := cur.Shard(req.To); !ok {
		return nil, noShard(req.To)
	}
	n := 0
	for _, t := range cur.State().Tables {
		if t.Kind == shardmap.Whole {
			n++
		}
	}
	res := &Result{Version: cur.Version(), Plan: []string{
		fmt.Sprintf("%d whole tables are copied to %s, and take no writes on %s for a while", n, req.To, cur.State().DefaultShard),
		"what has changed meanwhile is copied too, and both are compared",
		req.To + " is the default shard, and takes writes when every router knows it",
	}}
	if cur.State().DefaultShard == req.To {
		res.Plan = []string{req.To + " is the default shard already: its whole tables take writes"}
	}
	opts := o.schemaOptions(req.Meta)
	if req.DryRun {
		if cur.State().DefaultShard != req.To {
			if err := schema.Rehearse(ctx, opts, req.To); err != nil {
				return nil, err
			}
		}
		return res, nil
	}
	err = schema.Rehome(ctx, opts, req.To, carryRows, o.awaitMembers)
	if err != nil {
		return nil, err
	}
	if cur, err = o.load(ctx); err != nil {
		return nil, err
	}
	res.Version, res.Done = cur.Version(), true
	return res, nil
}

// carryRows is a schema.CopyRows. It leaves alone what is there already.
func carryRows(ctx context.Context, from, to engine.Conn, t *shardmap.Table, ahead bool) error {
	count, err := engine.Exec(from, "SELECT count(*) FROM (SELECT 1 FROM "+quotedTable(t)+fmt.Sprintf(" LIMIT %d) AS n", wholeRowsMax+1))
	if err != nil {
		return err
	}
	if count.Rows[0][0].String == fmt.Sprint(wholeRowsMax+1) {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "table %s has more than %d rows, which are carried in memory", t.QualifiedName(), wholeRowsMax).
			WithHint("shard it first: cleave table distribute %s --shard-key ...", t.Name)
	}
	key, err := copyKey(ctx, to, t)
	if err != nil {
		return err
	}
	want, err := readCopy(from, t, key)
	if err != nil {
		return err
	}
	have, err := readCopy(to, t, key)
	if err != nil {
		return err
	}
	if missing, extra := have.differs(want); missing+extra == 0 {
		return nil
	}
	desc, err := to.DescribeTable(ctx, t.Schema, t.Name)
	if err != nil {
		return err
	}
	if ahead || desc.Guard != nil || len(have.rows) > 0 {
		// Only a PostgreSQL shard has something there. Nothing fires, the guard that keeps others away neither, and foreign keys are
		// not looked at: they hold where the rows come from, as of one moment in the end.
		if _, err := engine.Exec(to, "SET LOCAL session_replication_role = replica"); err != nil {
			return err
		}
	}
	if err := replaceRows(to, t, key, want, have); err != nil || ahead {
		return err
	}
	if have, err = readCopy(to, t, key); err != nil {
		return err
	}
	if missing, extra := have.differs(want); missing+extra > 0 {
		return sqlstate.New(sqlstate.DataCorrupted, "the copies of table %s differ in %d rows", t.QualifiedName(), max(missing, extra)).
			WithHint("nothing was changed: look for values that the engines print differently")
	}
	return nil
}

// replaceRows makes the rows of a carried table, which nobody else sees, those of the other. What differs is deleted first: so no
// unique key is in the way of another row's new values.
func replaceRows(to engine.Conn, t *shardmap.Table, key []int, want, have *copyRows) error {
	columns, list := copied(t)
	name := quotedTable(t)
	var rows [][]engine.Text
	for text, r := range want.rows {
		n := want.times[text]
		if key != nil {
			n -= have.times[text]
		}
		for range n {
			rows = append(rows, r)
		}
	}
	switch {
	case len(have.rows) == 0:
	case key == nil: // no row can be told from an equal one
		if _, err := engine.Exec(to, "DELETE FROM "+name); err != nil {
			return err
		}
	default:
		var names []string
		for _, at := range key {
			names = append(names, quoted(columns[at].Name))
		}
		var gone []string
		for text, r := range have.rows {
			if want.times[text] > 0 {
				continue
			}
			values := make([]string, len(key))
			for i, at := range key {
				values[i] = textLiteral(r[at])
			}
			gone = append(gone, "("+strings.Join(values, ", ")+")")
		}
		for some := range slices.Chunk(gone, carryBatch) {
			if _, err := engine.Exec(to, "DELETE FROM "+name+" WHERE ("+strings.Join(names, ", ")+") IN ("+strings.Join(some, ", ")+")"); err != nil {
				return err
			}
		}
	}
	for some := range slices.Chunk(rows, carryBatch) {
		if _, err := engine.Exec(to, "INSERT INTO "+name+" ("+list+") OVERRIDING SYSTEM VALUE VALUES "+rowLists(some)); err != nil {
			return err
		}
	}
	return nil
}

// carryBatch is how many rows a statement writes.
const carryBatch = 500

// rowLists are rows as the lists of a VALUES.
func rowLists(rows [][]engine.Text) string {
	lists := make([]string, len(rows))
	for i, r := range rows {
		values := make([]string, len(r))
		for j := range r {
			values[j] = textLiteral(r[j])
		}
		lists[i] = "(" + strings.Join(values, ", ") + ")"
	}
	return strings.Join(lists, ", ")
}
