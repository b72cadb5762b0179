package gateway_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
)

var (
	besideSeed  = flag.Uint64("beside-seed", 14, "TestSessionsBesidePostgres: the seed, 0 for one of the clock")
	besideSteps = flag.Int("beside-steps", 0, "TestSessionsBesidePostgres: how many messages; 0: 1500, in a short run 400")
	besidePool  = flag.Int("beside-pool", 3, "TestSessionsBesidePostgres: how many connections each shard's pool has")
)

// twin is one client: a session of the router, and the same of one PostgreSQL.
type twin struct {
	conns [2]*pgconn.PgConn
	urls  [2]string
	// shard is the URL of the default shard, which has the session's locks.
	shard string
	rnd   *rand.Rand
	names *strings.Replacer
	said  []string
	// keeps: it has done what makes the router keep a connection for it.
	keeps   bool
	notices [2][]string // since the last message, their codes
}

// busy reports whether the client may have a connection of the router's pools.
func (b *twin) busy() bool {
	return b.keeps || b.conns[0].TxStatus() != 'I'
}

func (b *twin) connect(ctx context.Context) error {
	return b.connectWith(ctx, starts[b.rnd.IntN(len(starts))], b.rnd.IntN(2) == 0)
}

func (b *twin) connectWith(ctx context.Context, start map[string]string, hard bool) error {
	b.said = []string{fmt.Sprintf("-- connect with %v", start)}
	for i, url := range b.urls {
		if c := b.conns[i]; c != nil {
			if hard {
				_ = c.Conn().Close()
			}
			_ = c.Close(ctx)
		}
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			return err
		}
		if b.keeps {
			if err := b.unlocked(ctx, []string{b.shard, url}[i]); err != nil {
				return err
			}
		}
		cfg.RuntimeParams = map[string]string{"application_name": "x"}
		for k, v := range start {
			cfg.RuntimeParams[k] = v
		}
		cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { b.notices[i] = append(b.notices[i], n.Code) }
		if b.conns[i], err = pgconn.ConnectConfig(ctx, &cfg.Config); err != nil {
			return err
		}
	}
	b.keeps = false
	return nil
}

// unlocked waits until the locks of a session that ended are gone: a server notices that by and by.
func (b *twin) unlocked(ctx context.Context, url string) error {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	sql := b.names.Replace("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND objid IN ($client, 1$client)")
	for n := 1; n > 0; {
		if err := c.QueryRow(ctx, sql).Scan(&n); err != nil {
			return err
		}
	}
	return nil
}

// again connects anew after a refusal, and takes back what PostgreSQL did instead.
func (b *twin) again(ctx context.Context) error {
	if err := b.connect(ctx); err != nil {
		return err
	}
	for _, c := range b.conns {
		sql := b.names.Replace("BEGIN READ WRITE, ISOLATION LEVEL READ COMMITTED; DELETE FROM public.orders WHERE tenant_id = $own; DELETE FROM public.orders WHERE tenant_id = $far; DELETE FROM public.whole WHERE a = $client; COMMIT")
		if _, err := c.Exec(ctx, sql).ReadAll(); err != nil {
			return err
		}
	}
	return nil
}

// observed is what a client sees of an answer.
type observed struct {
	text    string
	refused bool
	message string   // of the error, which is not compared
	parts   []string // each of the results
}

// how says in which messages statements go.
type how int

const (
	simple   how = iota
	extended     // one statement, of the extended protocol
	batched      // several, before one Sync
)

func (b *twin) run(ctx context.Context, i int, message []string, way how) observed {
	var o observed
	c, sql := b.conns[i], strings.Join(message, "; ")
	b.notices[i] = nil
	note := func(r *pgconn.Result) {
		p := r.CommandTag.String()
		for _, row := range r.Rows {
			p += fmt.Sprintf(" %q", row)
		}
		o.parts = append(o.parts, p)
	}
	var err error
	verb, rest, _ := strings.Cut(sql, " ")
	name, text, _ := strings.Cut(rest, " ")
	switch {
	case verb == `\parse`:
		var d *pgconn.StatementDescription
		if d, err = c.Prepare(ctx, name, text, nil); err == nil {
			o.parts = append(o.parts, fmt.Sprint(len(d.Fields), d.ParamOIDs))
		}
	case verb == `\run`:
		r := c.ExecPrepared(ctx, name, nil, nil, nil).Read()
		if err = r.Err; err == nil {
			note(r)
		}
	case verb == `\close`:
		err = c.Deallocate(ctx, name)
	case verb == `\copy`:
		var data strings.Builder
		if _, err = c.CopyTo(ctx, &data, rest); err == nil {
			o.parts = append(o.parts, data.String())
		}
	case verb == `\cancel`:
		err = cancelled(ctx, c, rest, note)
	case way == batched:
		all := &pgconn.Batch{}
		for _, m := range message {
			all.ExecParams(m, nil, nil, nil, nil)
		}
		var results []*pgconn.Result
		results, err = c.ExecBatch(ctx, all).ReadAll()
		for _, r := range results {
			if r.Err == nil {
				note(r)
			}
		}
	case way == extended:
		r := c.ExecParams(ctx, sql, nil, nil, nil, nil).Read()
		if err = r.Err; err == nil {
			note(r)
		}
	default:
		var all []*pgconn.Result
		all, err = c.Exec(ctx, sql).ReadAll()
		for _, r := range all {
			if r.Err == nil {
				note(r)
			}
		}
	}
	var said *pgconn.PgError
	if errors.As(err, &said) {
		err, o.message = said, said.Message // without the words of pgx
	}
	code := codeOf(err)
	o.refused = code == "0A000" || code == "53300"
	o.text = strings.Join(o.parts, " | ") + " error " + code + " status " + string(rune(c.TxStatus()))
	for _, name := range told {
		o.text += " " + name + "=" + c.ParameterStatus(name)
	}
	if way != batched { // whether SET LOCAL warns there depends on PostgreSQL's version
		o.text += fmt.Sprint(" notices ", b.notices[i])
	}
	return o
}

// cancelled runs a statement that is cancelled while it runs.
func cancelled(ctx context.Context, c *pgconn.PgConn, sql string, note func(*pgconn.Result)) error {
	type answer struct {
		results []*pgconn.Result
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		results, err := c.Exec(ctx, sql).ReadAll()
		done <- answer{results, err}
	}()
	for {
		select {
		case a := <-done:
			for _, r := range a.results {
				if r.Err == nil {
					note(r)
				}
			}
			return a.err
		case <-time.After(20 * time.Millisecond): // one that comes before the statement is ignored
			if err := c.CancelRequest(ctx); err != nil {
				return err
			}
		}
	}
}

// readAnew reports whether one side (0: the router, 1: PostgreSQL) gave what a statement that was parsed before gives if it is parsed
// now, and parses it anew on both. A session that is late with its server's invalidations forgets what it has parsed
// (SIInsertDataEntries in sinvaladt.c), so that the settings of that moment count: that depends on other sessions and on the
// machine's load. The router's sessions on the shards are such sessions too.
func (b *twin) readAnew(ctx context.Context, sql string, side int, gave observed) bool {
	name, ok := strings.CutPrefix(sql, `\run `)
	if !ok || len(gave.parts) != 1 || b.conns[side].TxStatus() == 'E' {
		return false
	}
	text := ""
	for _, said := range slices.Backward(b.said) { // a later one may have failed, as the name was taken
		if rest, ok := strings.CutPrefix(said, `\parse `+name+" "); ok {
			parsed, _, _ := strings.Cut(rest, "; -- ")
			r := b.conns[side].ExecParams(ctx, parsed, nil, nil, nil, nil).Read()
			if r.Err == nil && len(r.Rows) == 1 && gave.parts[0] == fmt.Sprintf("%s %q", r.CommandTag, r.Rows[0]) {
				text = parsed
				break
			}
			if b.conns[side].TxStatus() == 'E' {
				return false
			}
		}
	}
	if text == "" {
		return false
	}
	for _, c := range b.conns {
		if c.Deallocate(ctx, name) != nil {
			return false
		}
		if _, err := c.Prepare(ctx, name, text, nil); err != nil {
			return false
		}
	}
	return true
}

// leave sends a statement and is gone while it runs, then connects anew.
func (b *twin) leave(ctx context.Context, sql string) error {
	for _, c := range b.conns {
		c.Frontend().SendQuery(&pgproto3.Query{String: sql})
		if err := c.Frontend().Flush(); err != nil {
			return err
		}
		_ = c.Conn().Close()
	}
	return b.connect(ctx)
}

// twinNames puts a client's keys, on two shards, and its number into statements.
func twinNames(keys [][]int64, i int) *strings.Replacer {
	return strings.NewReplacer("$own", fmt.Sprint(keys[0][i]), "$far", fmt.Sprint(keys[1][i]), "$client", fmt.Sprint(i))
}

// twinTables makes the tables of both sides, and ends the two connections.
func twinTables(t *testing.T, router, plain *pgx.Conn) {
	t.Helper()
	exec(t, plain, "CREATE TABLE orders (tenant_id bigint, id bigint, note text, PRIMARY KEY (tenant_id, id))")
	for _, c := range []*pgx.Conn{router, plain} {
		exec(t, c, "CREATE TABLE whole (a int, b int, c date)")
		exec(t, c, "CREATE SCHEMA other")
		exec(t, c, "ALTER TABLE whole SET (autovacuum_enabled = off)") // which makes prepared statements be read anew
		exec(t, c, "GRANT ALL ON orders, whole TO pg_monitor, pg_signal_backend")
		_ = c.Close(context.Background())
	}
}

// temporarySchemas makes the schemas that temporary tables are in, of all sessions that there may be: the first table of one makes every
// session of the database read its prepared statements anew, with the settings of that moment, which says nothing of the session
// that is looked at.
func temporarySchemas(t *testing.T, url string) {
	t.Helper()
	directly(t, pgtest.Super(url), `DO $$ BEGIN
		SET LOCAL allow_system_table_mods = on;
		FOR n IN 0..250 LOOP
			EXECUTE format('CREATE SCHEMA IF NOT EXISTS pg_temp_%s', n);
			EXECUTE format('CREATE SCHEMA IF NOT EXISTS pg_toast_temp_%s', n);
		END LOOP;
	END $$`)
}

// TestSessionsBesidePostgres has some clients share small pools and do whatever they like with their sessions; each
// has a session of one PostgreSQL beside it, which does the same. Answers, errors, the state of the transaction and what is
// told of settings are the same; a refusal ends the session on both sides.
func TestSessionsBesidePostgres(t *testing.T) {
	steps := testrun.Count(*besideSteps, 400, 1500)
	// A transaction that was left prepared keeps its locks until a router settles it.
	cl, conn, keys := orders(t, config{shards: 2, recovers: true, executor: executor.Limits{PoolMax: *besidePool, PoolWait: 300 * time.Millisecond}})
	cl.monitors(t)
	single := pgtest.Database(t)
	plain, err := pgx.Connect(context.Background(), single)
	if err != nil {
		t.Fatal(err)
	}
	all := changeables(context.Background(), t, plain)
	twinTables(t, conn, plain)
	for _, url := range []string{single, cl.shards[0]} {
		temporarySchemas(t, url)
	}
	seed := *besideSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-beside-seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	ctx, stop := context.WithTimeout(context.Background(), time.Minute+time.Duration(steps)*50*time.Millisecond)
	defer stop()
	var clients []*twin
	for i := range 3 {
		b := &twin{urls: [2]string{cl.url(""), single}, shard: cl.shards[0], rnd: rnd}
		b.names = twinNames(keys, i)
		if err := b.connect(ctx); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, b)
	}
	t.Cleanup(func() { // also after a failure: the router's shutdown waits for open transactions
		for _, b := range clients {
			for _, c := range b.conns {
				_ = c.Close(context.Background())
			}
		}
	})
	refused, differ, anew := map[string]int{}, 0, 0
	for step := range steps {
		b := clients[rnd.IntN(len(clients))]
		if !b.busy() {
			// No more than the pools have connections for, of which those that listen share one.
			var busy []*twin
			for _, other := range clients {
				if other.busy() {
					busy = append(busy, other)
				}
			}
			if len(busy) >= *besidePool-1 {
				b = busy[rnd.IntN(len(busy))]
			}
		}
		if rnd.IntN(40) == 0 {
			if err := b.connect(ctx); err != nil {
				t.Fatal(err)
			}
		}
		var message []string
		for range 1 + rnd.IntN(4)*rnd.IntN(2) {
			message = append(message, strings.ReplaceAll(b.names.Replace(act(rnd, all)), "$n", fmt.Sprint(step)))
		}
		for _, m := range message {
			if m[:min(1, len(m))] == `\` {
				message = []string{m}
				break
			}
		}
		sql, way := strings.Join(message, "; "), simple
		if rnd.IntN(3) == 0 {
			if way = extended; len(message) > 1 {
				way = batched
			}
			if strings.Contains(sql, "LOCK TABLE") || strings.Contains(sql, "DECLARE ") {
				way = simple // whether they are in a block then depends on PostgreSQL's version; a cursor WITH HOLD outlives a refusal behind it
			}
		}
		b.keeps = b.keeps || strings.Contains(sql, "advisory_lock") || strings.Contains(sql, "TEMP TABLE")
		b.said = append(b.said, fmt.Sprintf("%s; -- %s", sql, [...]string{"simple", "extended", "before one Sync"}[way]))
		if rest, ok := strings.CutPrefix(sql, `\leave `); ok {
			if err := b.leave(ctx, rest); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, want := b.run(ctx, 0, message, way), b.run(ctx, 1, message, way)
		switch {
		case got.refused && !want.refused:
			// Also a pool that is full: others may listen, or keep connections.
			refused[sql[:min(len(sql), 40)]]++
			err := b.again(ctx)
			for end := time.Now().Add(waitfor.Max); codeOf(err) == "53300" && time.Now().Before(end); err = b.again(ctx) {
				// Others keep all connections: a pinned one and one of a transaction over several shards are two of one client.
				for _, other := range clients {
					if err := other.connect(ctx); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		case got.text != want.text && (b.readAnew(ctx, sql, 1, want) || b.readAnew(ctx, sql, 0, got)):
			anew++
		case got.text != want.text:
			t.Errorf("step %d of -beside-seed %d: router\n  %s (%s)\nPostgreSQL\n  %s (%s)\nafter\n%s", step, seed, got.text, got.message, want.text, want.message, strings.Join(b.said, "\n"))
			if differ++; differ == 5 {
				t.FailNow()
			}
			if err := b.again(ctx); err != nil {
				t.Fatal(err)
			}
		case b.conns[0].IsClosed():
			if err := b.connect(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, b := range clients {
		for _, c := range b.conns {
			_ = c.Close(ctx)
		}
	}
	total := 0
	for _, n := range refused {
		total += n
	}
	t.Logf("%d messages, %d refused; %d prepared statements were read anew by a server", steps, total, anew)
	if anew > 1+steps/5000 {
		t.Errorf("servers are to have read %d prepared statements anew in %d messages", anew, steps)
	}
	if total*5 > steps {
		t.Errorf("%d of %d messages are refused: %v", total, steps, refused)
	}
	if left := cl.remains(ctx, t); left != "" {
		t.Errorf("-beside-seed %d: %s", seed, left)
	}
}
