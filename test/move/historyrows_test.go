package move

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// batches are rows that clients insert and delete, and what they were told of it. The rows of a
// batch come together or not at all.
type batches struct {
	mu      sync.Mutex
	size    map[int64]int  // of batches that were acknowledged
	unknown map[int64]int  // of those that may be there
	jobs    map[int64]bool // pushed; false: it may be there
	popped  map[int64]bool
	// maybePopped counts deletions that were not answered.
	maybePopped int
	uids        map[string]bool
}

func newBatches() *batches {
	return &batches{size: map[int64]int{}, unknown: map[int64]int{}, jobs: map[int64]bool{}, popped: map[int64]bool{}, uids: map[string]bool{}}
}

// insert adds rows of one or several tenants: one by one, in one statement, or by COPY.
func (c *client) insert(ctx context.Context) (string, error) {
	r, h := c.r, c.h
	batch, n := h.ids.Add(1), 1+r.IntN(20)
	what := "insert"
	if r.IntN(3) == 0 {
		n = 1
	}
	home := r.Int64N(historyTenants)
	row := func(i int) (tenant, id int64) {
		if n > 1 && r.IntN(3) > 0 {
			home = r.Int64N(historyTenants)
		}
		return home, batch*100 + int64(i)
	}
	var out output
	var err error
	var b strings.Builder
	switch r.IntN(3) {
	case 0:
		what = "copy"
		for i := range n {
			tenant, id := row(i)
			fmt.Fprintf(&b, "%d\t%d\t%d\n", tenant, id, batch)
		}
		tag, copied := c.conn.CopyFrom(ctx, strings.NewReader(b.String()), "COPY entry (tenant, id, batch) FROM STDIN")
		out.Hit, err = tag.RowsAffected(), copied
	default:
		a := act{}
		b.WriteString("INSERT INTO entry (tenant, id, batch) VALUES ")
		for i := range n {
			if i > 0 {
				b.WriteString(", ")
			}
			tenant, id := row(i)
			fmt.Fprintf(&b, "($%d, $%d, $%d)", 3*i+1, 3*i+2, 3*i+3)
			a.args = append(a.args, tenant, id, batch)
		}
		if r.IntN(2) == 0 {
			b.WriteString(" RETURNING uid")
		}
		a.sql = b.String()
		m := mode(r.IntN(int(prepared)))
		out, err = c.send(ctx, a, m)
	}
	h.rows.mu.Lock()
	defer h.rows.mu.Unlock()
	switch {
	case err == nil && out.Hit != int64(n):
		return what, h.wrong("%s of %d rows answered %d", what, n, out.Hit)
	case err == nil:
		h.rows.size[batch] = n
		for _, row := range out.Rows {
			if h.rows.uids[row[0]] {
				return what, h.wrong("the id %s was given out twice", row[0])
			}
			h.rows.uids[row[0]] = true
		}
	case open(err):
		h.rows.unknown[batch] = n
	}
	return what, err
}

// job pushes a row, or takes the first one away.
func (c *client) job(ctx context.Context) (string, error) {
	r, h := c.r, c.h
	tenant := r.Int64N(4)
	m := mode(r.IntN(int(modes)))
	if r.IntN(2) == 0 {
		id := h.ids.Add(1)
		_, err := c.send(ctx, act{sql: "INSERT INTO job (tenant, id) VALUES ($1, $2)", args: []any{tenant, id}}, m)
		h.rows.mu.Lock()
		defer h.rows.mu.Unlock()
		if err == nil || open(err) {
			h.rows.jobs[id] = err == nil
		}
		return "push", err
	}
	out, err := c.send(ctx, act{sql: "DELETE FROM job WHERE tenant = $1 AND id = (SELECT min(id) FROM job WHERE tenant = $1) RETURNING id", args: []any{tenant}}, m)
	h.rows.mu.Lock()
	defer h.rows.mu.Unlock()
	switch {
	case err == nil && len(out.Rows) > 1:
		return "pop", h.wrong("one row was to be deleted: %v", out)
	case err == nil && len(out.Rows) == 1:
		id, _ := strconv.ParseInt(out.one(), 10, 64)
		if _, ok := h.rows.jobs[id]; !ok {
			// It may have been pushed by somebody who has not been answered yet: looked at in the end.
			h.rows.jobs[id] = false
		}
		if h.rows.popped[id] {
			return "pop", h.wrong("job %d was deleted twice", id)
		}
		h.rows.popped[id] = true
	case err != nil && open(err):
		h.rows.maybePopped++
	}
	return "pop", err
}

// found compares the rows that are there with what clients were told.
func (b *batches) found(entries, jobs [][]string) (wrong []string) {
	say := func(format string, args ...any) {
		if len(wrong) < 20 {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	count := map[int64]int{}
	ids, uids := map[string]bool{}, map[string]bool{}
	for _, row := range entries { // id, batch, uid
		n, _ := strconv.ParseInt(row[1], 10, 64)
		count[n]++
		if ids[row[0]] || uids[row[2]] {
			say("entry %v is there twice, or its uid", row)
		}
		ids[row[0]], uids[row[2]] = true, true
	}
	for batch, n := range b.size {
		if count[batch] != n {
			say("of %d acknowledged rows of batch %d %d are there", n, batch, count[batch])
		}
	}
	for batch, n := range count {
		if _, ok := b.size[batch]; ok {
			continue
		}
		if all, ok := b.unknown[batch]; !ok || n != all {
			say("%d rows of batch %d are there, which was not acknowledged (may be there: %v, of %d)", n, batch, ok, all)
		}
	}
	there := map[int64]bool{}
	for _, row := range jobs {
		id, _ := strconv.ParseInt(row[0], 10, 64)
		_, known := b.jobs[id]
		if there[id] || b.popped[id] || !known {
			say("job %d is there; twice: %v; deleted: %v; pushed: %v", id, there[id], b.popped[id], known)
		}
		there[id] = true
	}
	lost := 0
	for id, sure := range b.jobs {
		if sure && !there[id] && !b.popped[id] {
			lost++
		}
	}
	if lost > b.maybePopped {
		say("%d jobs are lost; %d deletions were not answered", lost, b.maybePopped)
	}
	return wrong
}
