package several

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// startInsert splits the rows of an INSERT by their shard keys.
func (c *runner) startInsert(ctx context.Context, e *execution) (job, error) {
	p := e.st.Plan.Insert
	i := &inserting{c: c, e: e, p: p, left: c.shared.defaults.Allowance(c.host.Settings()), byShard: map[string][]int{}}
	i.base = e.parameters()
	i.base.results = e.results
	if p.Matched {
		i.hidden = len(p.Types)
		i.base.carry(len(e.desc.fields), e.results, columnOIDs(nil, p.Types))
	}
	split := i.values
	if p.Source != nil {
		split = i.selected
	}
	if err := split(ctx); err != nil {
		return nil, err
	}
	return i.finish()
}

// inserting is an INSERT on several shards.
type inserting struct {
	c      *runner
	e      *execution
	p      *plan.InsertPlan
	left   *limits.Allowance
	base   request
	hidden int

	keys    []keyspace.Key   // of the rows, where they are needed
	byShard map[string][]int // rows of each shard, in order
	shards  []string
	streams []*stream
	copied  int64 // rows that were inserted by COPY
}

// values splits the rows of VALUES.
func (i *inserting) values(ctx context.Context) error {
	c, p := i.c, i.p
	var computed [][]byte
	var types []string
	for _, st := range p.Computed {
		set, err := c.collect(ctx, i.e, st, i.left)
		if err != nil {
			return err
		}
		if len(set.rows) != 1 {
			return sqlstate.Refusal("CLV-0304", "an expression for a shard key gives several rows").WithHint("Use INSERT ... SELECT.")
		}
		computed = append(computed, set.rows[0]...)
		types = append(types, set.types...)
	}
	snap := c.host.Snapshot()
	owners, units, err := p.Owners(snap, i.e.args, computed)
	if err != nil {
		return err
	}
	for r, s := range owners {
		i.byShard[s] = append(i.byShard[s], r)
	}
	c.Ex.CountSeveral(snap, units, len(i.byShard))
	value := func(kind plan.MarkKind, n int) string {
		if kind == plan.MarkComputed {
			return literalOf(computed[n], types[n])
		}
		return "$" + strconv.Itoa(i.e.st.Params+1+n)
	}
	if i.hidden > 0 {
		if err := i.keysOf(computed); err != nil {
			return err
		}
	}
	parts, err := i.order(ctx)
	if err != nil {
		return err
	}
	for _, part := range parts {
		var b strings.Builder
		b.WriteString(p.Head)
		for n, r := range i.byShard[part.Shard] {
			if n > 0 {
				b.WriteString(", ")
			}
			b.WriteString(p.Rows[r].Text)
		}
		b.WriteString(p.Tail)
		q := i.base.clone()
		q.text = plan.Expand(b.String(), value)
		q.only(q.text)
		if err := i.send(part, q); err != nil {
			return err
		}
	}
	return nil
}

// keysOf keeps the keys of all rows, to find which rows a shard answered.
func (i *inserting) keysOf(computed [][]byte) error {
	for r := range i.p.Rows {
		key, err := i.p.Key(r, i.e.args, computed)
		if err != nil {
			return err
		}
		i.keys = append(i.keys, key)
	}
	return nil
}

// order makes parts of the shards that own rows, in the map's order.
func (i *inserting) order(ctx context.Context) ([]*txn.Participant, error) {
	for _, s := range i.c.host.Snapshot().Shards() {
		if len(i.byShard[s.Name]) > 0 {
			i.shards = append(i.shards, s.Name)
		}
	}
	return i.c.partsOf(ctx, i.shards, true)
}

func (i *inserting) send(p *txn.Participant, q request) error {
	s, err := i.c.send(p, q)
	if err == nil {
		i.streams = append(i.streams, s)
	}
	return err
}

// selected reads the rows of the SELECT and splits them.
func (i *inserting) selected(ctx context.Context) error {
	c, p := i.c, i.p
	set, source, err := c.read(ctx, i.e, p.Source)
	if err != nil {
		return err
	}
	own := len(p.Columns) - len(p.Made)
	if len(set.fields) != own {
		source.stop()
		return sqlstate.Refusal("CLV-0305", "the number of columns that the SELECT gives is not certain before it runs").
			WithHint("Name the columns of the INSERT.")
	}
	column := func(n int) (name, typ string) {
		if n < own {
			return p.Columns[n].Name, assigned(set.fields[n], set.types[n], p.Columns[n])
		}
		return p.Columns[n].Name, p.Columns[n].Type
	}
	sp := i.newSpool(column)
	defer sp.close()
	err = c.each(source, func(body []byte) error {
		if sp == nil || set.bytes < spoolAfter {
			return set.add(body, i.left)
		}
		for _, r := range set.rows {
			if err := sp.add(r); err != nil {
				return err
			}
		}
		set.rows = nil
		return sp.addBody(body)
	})
	if err != nil {
		return err
	}
	if sp != nil && sp.begun {
		return sp.copy(ctx)
	}
	if len(p.Made) > 0 {
		if err := c.make(set.rows, p.Made); err != nil {
			return err
		}
	}
	keys, err := c.storedKeys(ctx, set.rows, p.KeyAt, p, column)
	if err != nil {
		return err
	}
	if err := i.divide(keys); err != nil {
		return err
	}
	return i.insert(ctx, set.rows, column)
}

// divide gives each shard its rows.
func (i *inserting) divide(keys []keyspace.Key) error {
	if i.hidden > 0 {
		i.keys = keys
	}
	snap := i.c.host.Snapshot()
	for r, k := range keys {
		s, unit, err := plan.Owner(snap, i.p.Table, k)
		if err != nil {
			return err
		}
		i.c.Ex.CountRow(snap, unit)
		i.byShard[s] = append(i.byShard[s], r)
	}
	return nil
}

// insert sends the rows to their shards.
func (i *inserting) insert(ctx context.Context, rows [][][]byte, column func(n int) (name, typ string)) error {
	c, p := i.c, i.p
	parts, err := i.order(ctx)
	if len(rows) == 0 {
		// Triggers of the statement run nevertheless.
		owners, e := (&plan.Target{Keyspace: p.Table.Keyspace}).Shards(c.host.Snapshot(), nil)
		if e != nil {
			return e
		}
		i.shards = owners[:1]
		parts, err = c.partsOf(ctx, i.shards, true)
	}
	if err != nil {
		return err
	}
	for _, part := range parts {
		mine := make([][][]byte, 0, len(i.byShard[part.Shard]))
		for _, r := range i.byShard[part.Shard] {
			mine = append(mine, rows[r])
		}
		q := i.base.clone()
		q.text = p.Write.Join(func(int) string { return unnested(&q, mine, len(p.Columns), column) })
		q.only(q.text)
		if err := i.send(part, q); err != nil {
			return err
		}
	}
	return nil
}

// make adds the values that the router makes for each row.
func (c *runner) make(rows [][][]byte, made []plan.FillValue) error {
	list := make([]plan.FillValue, 0, len(rows)*len(made))
	for range rows {
		list = append(list, made...)
	}
	if len(list) == 0 {
		return nil
	}
	values, err := c.host.Values(list)
	if err != nil {
		return err
	}
	for r := range rows {
		rows[r] = append(rows[r], values[r*len(made):(r+1)*len(made)]...)
	}
	return nil
}

// storedKeys returns the shard keys of rows as the table will hold them. Values of
// other types are cast by a shard.
func (c *runner) storedKeys(ctx context.Context, rows [][][]byte, at []int, p *plan.InsertPlan, column func(int) (name, typ string)) ([]keyspace.Key, error) {
	keys := make([]keyspace.Key, len(rows))
	for r := range keys {
		keys[r] = make(keyspace.Key, len(at))
	}
	for k, n := range at {
		values := make([][]byte, len(rows))
		for r := range rows {
			values[r] = rows[r][n]
		}
		_, typ := column(n)
		if !sameText(typ, p.Types[k]) {
			var err error
			if values, err = c.cast(ctx, values, typ, p.Types[k]); err != nil {
				return nil, err
			}
		}
		for r := range rows {
			v, err := plan.StoredKey(p.Table, k, &p.Keys[k], values[r])
			if err != nil {
				return nil, err
			}
			keys[r][k] = v
		}
	}
	return keys, nil
}

// sameText reports whether a value of a type, in text, is written as one of a key type.
func sameText(typ string, key keyspace.Type) bool {
	switch typ {
	case key.String():
		return true
	case "text", "character varying":
		return key == keyspace.Text || key == keyspace.Varchar
	case "smallint":
		return key == keyspace.Int2 || key == keyspace.Int4 || key == keyspace.Int8
	case "integer":
		return key == keyspace.Int4 || key == keyspace.Int8
	}
	return false
}

// cast has a shard cast values, in text, from one type to another.
func (c *runner) cast(ctx context.Context, values [][]byte, from string, to keyspace.Type) ([][]byte, error) {
	if len(values) == 0 {
		return values, nil
	}
	p, err := c.Participant(ctx, c.describer(), false)
	if err != nil {
		return nil, err
	}
	rows := make([][][]byte, len(values))
	for i, v := range values {
		rows[i] = [][]byte{v}
	}
	q := request{text: "SELECT v::" + from + "::" + to.String() + " FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY AS u(v, n) ORDER BY n"}
	q.carry(0, nil, []uint32{to.OID()})
	q.add(pgoid.TextArray, 1, textArray(rows, 0))
	s, err := c.send(p, q)
	if err != nil {
		return nil, err
	}
	set := &rowset{}
	left := c.shared.defaults.Allowance(c.host.Settings())
	for {
		body, err := s.Next()
		if err != nil {
			return nil, err
		}
		if body == nil {
			break
		}
		if err := set.add(body, left); err != nil {
			s.stop()
			return nil, err
		}
	}
	out := make([][]byte, len(set.rows))
	for i, r := range set.rows {
		out[i] = r[0]
	}
	if len(out) != len(values) {
		return nil, sqlstate.New(sqlstate.InternalError, "a shard cast %d of %d values", len(out), len(values))
	}
	return out, nil
}

// finish reads what the shards answer. Rows of RETURNING come in the order of the
// rows as written.
func (i *inserting) finish() (job, error) {
	total := i.copied
	placed := map[int][]byte{} // by row
	var rest [][]byte
	for n, s := range i.streams {
		mine := i.byShard[i.shards[n]]
		got, err := s.all(i.left)
		if err != nil {
			return nil, err
		}
		total += counted(s.tag)
		at := 0
		for g, body := range got {
			row := -1
			switch {
			case len(got) == len(mine):
				row = mine[g]
			case i.hidden > 0:
				var err error
				if row, err = i.find(body, mine, &at); err != nil {
					return nil, err
				}
			}
			frame, err := dataRow(body, i.hidden)
			if err != nil {
				return nil, err
			}
			if row < 0 || placed[row] != nil {
				rest = append(rest, frame)
			} else {
				placed[row] = frame
			}
		}
	}
	j := &answer{tag: finished(i.e.st, total)}
	if len(placed) > 0 {
		at := make([]int, 0, len(placed))
		for r := range placed {
			at = append(at, r)
		}
		slices.Sort(at)
		for _, r := range at {
			j.rows = append(j.rows, placed[r])
		}
	}
	j.rows = append(j.rows, rest...)
	return j, nil
}

// find looks for the row that an answer is of: rows are left out, but keep their
// order, and have their key in the last columns.
func (i *inserting) find(body []byte, mine []int, at *int) (int, error) {
	vals, err := wire.SplitRow(body, nil)
	if err != nil {
		return -1, err
	}
	vals = vals[len(vals)-i.hidden:]
	for n := *at; n < len(mine); n++ {
		same := true
		for k := range vals {
			v, err := keyspace.ParseText(i.p.Types[k], vals[k])
			same = same && err == nil && v == i.keys[mine[n]][k]
		}
		if same {
			*at = n + 1
			return mine[n], nil
		}
	}
	return -1, nil
}
