package move

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5/pgconn"
)

// act is one statement about one object.
type act struct {
	object string
	in     input
	sql    string
	args   []any // int64 or string
}

func (a act) writes() bool { return a.in.Do != "read" }

// pick draws a statement about an object.
func (h *histories) pick(r *rand.Rand) act {
	switch n := r.IntN(100); {
	case n < 25:
		k := r.Int64N(historyTenants)
		a := act{object: fmt.Sprintf("counter/%d", k), args: []any{k}}
		if r.IntN(3) == 0 {
			a.in, a.sql = input{Do: "read"}, "SELECT n FROM counter WHERE tenant = $1"
			return a
		}
		by := 1 + r.Int64N(9)
		a.in, a.sql, a.args = input{Do: "add", A: by}, "UPDATE counter SET n = n + $2 WHERE tenant = $1 RETURNING n", []any{k, by}
		return a
	case n < 65:
		k := r.Int64N(historyRegisters)
		a := act{object: fmt.Sprintf("register/%d", k)}
		// Few values, so that swaps find what they look for.
		v, w := r.Int64N(4), r.Int64N(4)
		switch r.IntN(8) {
		case 0, 1, 2:
			a.in, a.sql, a.args = input{Do: "read"}, "SELECT v FROM register WHERE k = $1", []any{k}
		case 3, 4:
			a.in, a.sql, a.args = input{Do: "swap", A: v, B: w}, "UPDATE register SET v = $3 WHERE k = $1 AND v = $2", []any{k, v, w}
		case 5:
			a.in, a.sql, a.args = input{Do: "write", A: v}, "UPDATE register SET v = $2 WHERE k = $1", []any{k, v}
		case 6:
			a.in, a.sql, a.args = input{Do: "put", A: v}, "INSERT INTO register (k, v) VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = excluded.v", []any{k, v}
		default:
			a.in, a.sql, a.args = input{Do: "delete"}, "DELETE FROM register WHERE k = $1", []any{k}
		}
		return a
	case n < 90:
		k := r.Int64N(historyLists)
		a := act{object: fmt.Sprintf("list/%d", k), args: []any{2 * k}}
		if r.IntN(3) == 0 {
			a.in, a.sql = input{Do: "read"}, "SELECT body FROM list WHERE k = $1"
			return a
		}
		text := fmt.Sprintf("%d.", h.ids.Add(1))
		a.in, a.sql, a.args = input{Do: "append", Text: text}, "UPDATE list SET body = body || $2 WHERE k = $1 RETURNING length(body)", []any{2 * k, text}
		return a
	default:
		id, from := r.Int64N(historyTokens), r.Int64N(historyTenants)
		if at, ok := h.guess.Load(id); ok && r.IntN(4) > 0 {
			from = at.(int64)
		}
		to := (from + 1 + r.Int64N(historyTenants-1)) % historyTenants
		return act{object: fmt.Sprintf("token/%d", id), in: input{Do: "go", A: from, B: to}, sql: "UPDATE token SET tenant = $3 WHERE tenant = $1 AND id = $2", args: []any{from, id, to}}
	}
}

// mode is how a statement is sent.
type mode int

const (
	simple mode = iota
	texts
	binaries
	prepared
	modes
)

// client is one connection.
type client struct {
	h        *histories
	id       int
	r        *rand.Rand
	conn     *pgconn.PgConn
	prepared map[string]string
}

// params are the arguments as texts or in binary.
func params(a act, m mode) (values [][]byte, formats []int16) {
	for _, v := range a.args {
		n, number := v.(int64)
		if number && m == binaries {
			values, formats = append(values, binary.BigEndian.AppendUint64(nil, uint64(n))), append(formats, 1)
			continue
		}
		values, formats = append(values, fmt.Append(nil, v)), append(formats, 0)
	}
	return values, formats
}

// inline is the statement with its arguments in it.
func inline(a act) string {
	sql := a.sql
	for i := len(a.args) - 1; i >= 0; i-- {
		text := fmt.Sprint(a.args[i])
		if s, ok := a.args[i].(string); ok {
			text = "'" + strings.ReplaceAll(s, "'", "''") + "'"
		} else if strings.HasPrefix(text, "-") {
			text = "(" + text + ")"
		}
		sql = strings.ReplaceAll(sql, "$"+strconv.Itoa(i+1), text)
	}
	return sql
}

func answer(res *pgconn.Result) output {
	out := output{Hit: res.CommandTag.RowsAffected()}
	for _, row := range res.Rows {
		texts := make([]string, len(row))
		for i, v := range row {
			if texts[i] = string(v); v == nil {
				texts[i] = `\N`
			}
		}
		out.Rows = append(out.Rows, texts)
	}
	return out
}

// send runs one statement.
func (c *client) send(ctx context.Context, a act, m mode) (output, error) {
	var res *pgconn.Result
	switch m {
	case simple:
		all, err := c.conn.Exec(ctx, inline(a)).ReadAll()
		if err != nil {
			return output{}, err
		}
		if len(all) != 1 {
			return output{}, fmt.Errorf("%d results of one statement", len(all))
		}
		res = all[0]
	case prepared:
		name, ok := c.prepared[a.sql]
		if !ok {
			name = fmt.Sprintf("h%d", len(c.prepared))
			if _, err := c.conn.Prepare(ctx, name, a.sql, nil); err != nil {
				return output{}, &nothing{err}
			}
			c.prepared[a.sql] = name
		}
		values, formats := params(a, m)
		res = c.conn.ExecPrepared(ctx, name, values, formats, nil).Read()
	default:
		values, formats := params(a, m)
		res = c.conn.ExecParams(ctx, a.sql, values, nil, formats, nil).Read()
	}
	if res.Err != nil {
		return output{}, res.Err
	}
	return answer(res), nil
}

func (c *client) text(ctx context.Context, sql string) (output, error) {
	return c.send(ctx, act{sql: sql}, simple)
}

// nothing is an error before anything that changes something was sent.
type nothing struct{ error }

func (n *nothing) Unwrap() error { return n.error }

func codeOf(err error) string {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return pg.Code
	}
	return "lost"
}

// open reports whether it is not known what became of what an error was the answer to.
func open(err error) bool {
	if n := (*nothing)(nil); errors.As(err, &n) {
		return false
	}
	code := codeOf(err)
	return code == "lost" || code == "08007"
}

// note records what one statement did, if anything is known of it.
func (c *client) note(a act, call, ret int64, out output, err error, what string) {
	switch {
	case err == nil:
		if to := a.in; kindOf(a.object) == "token" && to.Do == "go" && out.Hit == 1 {
			id, _ := strconv.ParseInt(strings.TrimPrefix(a.object, "token/"), 10, 64)
			c.h.guess.Store(id, to.B)
		}
	case a.writes() && open(err):
		out = output{Unknown: true}
	default:
		return
	}
	c.h.rec.Load().add(a.object, porcupine.Operation{ClientId: c.id, Input: a.in, Output: out, Call: call, Return: ret, Metadata: what})
}

// alone runs a statement outside of a transaction.
func (c *client) alone(ctx context.Context) (string, error) {
	a, m := c.h.pick(c.r), mode(c.r.IntN(int(modes)))
	rec := c.h.rec.Load()
	call := rec.now()
	out, err := c.send(ctx, a, m)
	c.note(a, call, rec.now(), out, err, "alone")
	return "alone", err
}

// several draws statements about different objects, in one order everywhere, so that nobody
// waits for somebody who waits for him.
func (c *client) several(n int) []act {
	byObject := map[string]act{}
	for range n {
		a := c.h.pick(c.r)
		byObject[a.object] = a
	}
	list := make([]act, 0, len(byObject))
	for _, a := range byObject {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b act) int { return strings.Compare(a.object, b.object) })
	return list
}

// batch sends statements before one Sync: they are one transaction.
func (c *client) batch(ctx context.Context) (string, error) {
	list := c.several(2 + c.r.IntN(3))
	// With BEGIN and COMMIT in it. Files cannot be in one transaction that was not begun so.
	block := c.r.IntN(3) == 0 || c.h.kind == "sqlite"
	b, what := &pgconn.Batch{}, "batch"
	if block {
		what = "batch block"
		b.ExecParams("BEGIN", nil, nil, nil, nil)
	}
	for _, a := range list {
		values, formats := params(a, binaries)
		b.ExecParams(a.sql, values, nil, formats, nil)
	}
	if block {
		b.ExecParams("COMMIT", nil, nil, nil, nil)
	}
	rec := c.h.rec.Load()
	call := rec.now()
	results, err := c.conn.ExecBatch(ctx, b).ReadAll()
	now := rec.now()
	if block {
		if err == nil && results[len(results)-1].CommandTag.String() != "COMMIT" {
			return what, c.h.wrong("COMMIT of a batch answered %q", results[len(results)-1].CommandTag)
		}
		results = results[min(1, len(results)):]
		if err != nil && !c.conn.IsClosed() {
			_, _ = c.text(ctx, "ROLLBACK")
		}
	}
	for i, a := range list {
		var out output
		if err == nil {
			out = answer(results[i])
		}
		c.note(a, call, now, out, err, what)
	}
	return what, err
}

// pipeline sends statements with a Sync after each: each is a transaction of its own, and
// the next is sent before the answer to the one before.
func (c *client) pipeline(ctx context.Context) (string, error) {
	list := c.several(2 + c.r.IntN(4))
	rec := c.h.rec.Load()
	call := rec.now()
	p := c.conn.StartPipeline(ctx)
	for _, a := range list {
		values, formats := params(a, texts)
		p.SendQueryParams(a.sql, values, nil, formats, nil)
		p.SendPipelineSync()
	}
	if err := p.Flush(); err != nil {
		_ = p.Close()
		for _, a := range list {
			c.note(a, call, rec.now(), output{}, err, "pipeline")
		}
		return "pipeline", err
	}
	var first error
	for _, a := range list {
		var out output
		res, err := p.GetResults()
		if rr, ok := res.(*pgconn.ResultReader); ok && err == nil {
			got := rr.Read()
			if err = got.Err; err == nil {
				out = answer(got)
			}
		}
		if err == nil || codeOf(err) != "lost" {
			// It commits at the Sync, which may answer with an error.
			sync, failed := p.GetResults()
			if failed != nil {
				err = failed
				if codeOf(failed) != "lost" {
					sync, failed = p.GetResults()
				}
			}
			if _, ok := sync.(*pgconn.PipelineSync); failed == nil && !ok {
				return "pipeline", c.h.wrong("a Sync was answered by %T", sync)
			}
		}
		c.note(a, call, rec.now(), out, err, "pipeline")
		if err != nil && first == nil {
			first = err
		}
	}
	_ = p.Close()
	return "pipeline", first
}

// transaction is a block with several statements.
func (c *client) transaction(ctx context.Context) (string, error) {
	n := 1 + c.r.IntN(4)
	if c.h.kind == "sqlite" && c.r.IntN(4) > 0 {
		n = 1 // one that has several files can hold a cutover up for as long as it may
	}
	return c.block(ctx, c.several(n))
}

func (c *client) block(ctx context.Context, list []act) (string, error) {
	r := c.r
	rec := c.h.rec.Load()
	what, begin := "block", "BEGIN"
	if r.IntN(4) == 0 {
		what, begin = "repeatable read", "BEGIN ISOLATION LEVEL REPEATABLE READ"
	}
	began := rec.now()
	if _, err := c.text(ctx, begin); err != nil {
		return what, &nothing{err}
	}
	// ended is what follows an error: nothing of the block is done.
	ended := func(err error) (string, error) {
		if !c.conn.IsClosed() {
			_, _ = c.text(ctx, "ROLLBACK")
		}
		return what, &nothing{err}
	}
	type written struct {
		act
		call int64
		out  output
	}
	var writes []written
	for i, a := range list {
		call := rec.now()
		m := mode(r.IntN(int(modes)))
		undo := a.writes() && r.IntN(8) == 0
		if undo {
			if _, err := c.text(ctx, "SAVEPOINT s"); err != nil {
				return ended(err)
			}
		}
		locked := ""
		if kindOf(a.object) == "counter" && a.writes() && r.IntN(2) == 0 {
			// The row is still as SELECT FOR UPDATE has read it when it is replaced.
			out, err := c.send(ctx, act{sql: "SELECT n FROM counter WHERE tenant = $1 FOR UPDATE", args: a.args[:1]}, m)
			if err != nil {
				return ended(err)
			}
			locked = out.one()
			was, err := strconv.ParseInt(locked, 10, 64)
			if err != nil {
				return ended(c.h.wrong("%s FOR UPDATE gave %v", a.object, out))
			}
			a.in = input{Do: "replace", A: was, B: was + a.in.A}
			a.sql, a.args = "UPDATE counter SET n = $2 WHERE tenant = $1", []any{a.args[0], a.in.B}
			c.pause(r)
		}
		out, err := c.send(ctx, a, m)
		if err != nil {
			return ended(err)
		}
		switch {
		case undo:
			if _, err := c.text(ctx, "ROLLBACK TO SAVEPOINT s"); err != nil {
				return ended(err)
			}
		case a.writes():
			if what != "block" {
				call = began // what finds no row has looked at the transaction's snapshot
			}
			writes = append(writes, written{a, call, out})
		case what == "block":
			c.note(a, call, rec.now(), out, nil, what)
		default:
			c.note(a, began, rec.now(), out, nil, what) // as of the transaction's snapshot
			if r.IntN(3) == 0 {
				c.pause(r)
				again, err := c.send(ctx, a, m)
				if err != nil {
					return ended(err)
				}
				if fmt.Sprint(again.Rows) != fmt.Sprint(out.Rows) {
					return ended(c.h.wrong("%s changed within a snapshot: %v, then %v", a.object, out, again))
				}
			}
		}
		if kindOf(a.object) == "counter" && a.in.Do == "add" && !undo && r.IntN(3) == 0 {
			c.pause(r)
			own, err := c.send(ctx, act{sql: "SELECT n FROM counter WHERE tenant = $1", args: a.args[:1]}, m)
			if err != nil {
				return ended(err)
			}
			if own.one() != out.one() {
				return ended(c.h.wrong("%s is %v in the transaction that made it %v", a.object, own, out))
			}
		}
		if i < len(list)-1 {
			c.pause(r)
		}
	}
	if r.IntN(12) == 0 {
		if _, err := c.text(ctx, "ROLLBACK"); err != nil {
			return what, &nothing{err}
		}
		return what, nil
	}
	all, err := c.conn.Exec(ctx, "COMMIT").ReadAll()
	if err == nil && all[0].CommandTag.String() != "COMMIT" {
		return what, c.h.wrong("COMMIT answered %q", all[0].CommandTag)
	}
	now := rec.now()
	for _, w := range writes {
		c.note(w.act, w.call, now, w.out, err, what)
	}
	return what, err
}

// pause is what an application does between two statements.
func (c *client) pause(r *rand.Rand) {
	switch n := r.IntN(1000); {
	case n < 40:
		time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
	case n < 44:
		time.Sleep(time.Duration(r.Int64N(int64(c.h.pauseMax))))
	}
}

// transfer moves money between two accounts, in a block or in one statement.
func (c *client) transfer(ctx context.Context) (string, error) {
	r, h := c.r, c.h
	tenant, amount := r.Int64N(historyTenants), 1+r.Int64N(9)
	account := func(tenant, id, by int64) act {
		return act{object: fmt.Sprintf("account/%d.%d", tenant, id), in: input{Do: "add", A: by},
			sql: "UPDATE account SET balance = balance + $3 WHERE tenant = $1 AND id = $2 RETURNING balance", args: []any{tenant, id, by}}
	}
	other := (tenant + 1 + r.Int64N(historyTenants-1)) % historyTenants
	id := r.Int64N(historyAccounts)
	second := (id + 1 + r.Int64N(historyAccounts-1)) % historyAccounts
	var one act
	var both []act
	switch r.IntN(4) {
	case 0:
		both = []act{account(tenant, id, -amount), account(tenant, second, amount)}
		one = act{sql: "UPDATE account SET balance = balance + CASE WHEN id = $2 THEN $4::bigint ELSE $5::bigint END WHERE tenant = $1 AND id IN ($2, $3) RETURNING tenant, id, balance",
			args: []any{tenant, id, second, -amount, amount}}
	case 1:
		both = []act{account(tenant, id, -amount), account(other, id, amount)}
		one = act{sql: "UPDATE account SET balance = balance + CASE WHEN tenant = $1 THEN $4::bigint ELSE $5::bigint END WHERE tenant IN ($1, $2) AND id = $3 RETURNING tenant, id, balance",
			args: []any{tenant, other, id, -amount, amount}}
	case 2:
		both = []act{account(tenant, id, -amount), account(tenant, second, amount)}
	default:
		both = []act{account(tenant, id, -amount), account(other, second, amount)}
	}
	slices.SortFunc(both, func(a, b act) int { return strings.Compare(a.object, b.object) })
	if one.sql == "" {
		return c.transferBlock(ctx, both)
	}
	rec := h.rec.Load()
	call := rec.now()
	out, err := c.send(ctx, one, mode(r.IntN(int(modes))))
	now := rec.now()
	if err == nil && (len(out.Rows) != 2 || out.Hit != 2) {
		return "transfer", h.wrong("a transfer in one statement, %s, gave %v", inline(one), out)
	}
	for _, a := range both {
		got := output{}
		for _, row := range out.Rows {
			if a.object == fmt.Sprintf("account/%s.%s", row[0], row[1]) {
				got = output{Rows: [][]string{{row[2]}}, Hit: 1}
			}
		}
		c.note(a, call, now, got, err, "transfer")
	}
	return "transfer", err
}

func (c *client) transferBlock(ctx context.Context, both []act) (string, error) {
	const what = "transfer block"
	rec := c.h.rec.Load()
	call := rec.now()
	if _, err := c.text(ctx, "BEGIN"); err != nil {
		return what, &nothing{err}
	}
	m := mode(c.r.IntN(int(modes)))
	var outs []output
	for _, a := range both {
		out, err := c.send(ctx, a, m)
		if err != nil {
			if !c.conn.IsClosed() {
				_, _ = c.text(ctx, "ROLLBACK")
			}
			return what, &nothing{err}
		}
		outs = append(outs, out)
		c.pause(c.r)
	}
	all, err := c.conn.Exec(ctx, "COMMIT").ReadAll()
	if err == nil && all[0].CommandTag.String() != "COMMIT" {
		return what, c.h.wrong("COMMIT answered %q", all[0].CommandTag)
	}
	now := rec.now()
	for i, a := range both {
		c.note(a, call, now, outs[i], err, what)
	}
	return what, err
}
