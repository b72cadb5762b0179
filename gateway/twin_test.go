package gateway_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
)

var (
	besideSeed  = flag.Uint64("beside-seed", 14, "TestSessionsBesidePostgres: the seed, 0 for one of the clock")
	besideSteps = flag.Int("beside-steps", 1500, "TestSessionsBesidePostgres: how many messages")
)

// told are the parameters that a client hears of.
var told = []string{"DateStyle", "TimeZone", "IntervalStyle", "application_name", "standard_conforming_strings", "default_transaction_read_only", "in_hot_standby"}

// starts are startup options as drivers send them: none, pgjdbc's, npgsql's and libpq's.
var starts = []map[string]string{
	nil,
	{"DateStyle": "ISO", "TimeZone": "Europe/Paris", "extra_float_digits": "2"},
	{"options": "-c datestyle=SQL,dmy -c default_transaction_isolation=repeatable\\ read"},
	{"application_name": "beside", "options": "-c default_transaction_read_only=on", "IntervalStyle": "iso_8601"},
	{"datestyle": "dmy", "search_path": "other, public"},
}

// acts are what the sessions do. One known difference is left out: set_config() in a block that has no shard yet is not told of.
// What begins with a backslash goes by the protocol: \parse prepares a statement, \run binds and executes it, and \close closes it.
//
// $own and $far are rows of the client alone, on two shards; $n is a number.
var acts = []string{
	"BEGIN", "BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN READ ONLY", "START TRANSACTION READ WRITE", "BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY", "COMMIT", "END", "ROLLBACK", "ABORT",
	"COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "COMMIT AND NO CHAIN", "SAVEPOINT s", "SAVEPOINT s2", "ROLLBACK TO s", "ROLLBACK TO SAVEPOINT s2", "RELEASE s",
	"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET TRANSACTION READ ONLY", "SET TRANSACTION READ WRITE", "SET transaction_read_only = on", "SET LOCAL transaction_read_only = off",
	"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE, ISOLATION LEVEL REPEATABLE READ", "SET default_transaction_read_only = on", "SET default_transaction_read_only = off",
	"SET default_transaction_isolation = 'read committed'", "RESET default_transaction_isolation",
	"SHOW transaction_isolation", "SHOW transaction_read_only", "SHOW datestyle", "SHOW timezone", "SHOW search_path", "SHOW work_mem", "SHOW role", "SHOW extra_float_digits", "SHOW bytea_output",
	"SET datestyle = 'ISO'", "SET datestyle = dmy", "SET datestyle = 'German'", "SET datestyle TO 'SQL', 'MDY'", "SET LOCAL datestyle = 'Postgres'", "RESET datestyle", "SET datestyle TO DEFAULT",
	"SET timezone = 'Asia/Tokyo'", "SET TIME ZONE 5", "SET TIME ZONE INTERVAL '-08:00' HOUR TO MINUTE", "SET LOCAL TIME ZONE 'UTC'", "RESET timezone", "SET TIME ZONE LOCAL",
	"SET intervalstyle = 'iso_8601'", "SET LOCAL intervalstyle = 'postgres_verbose'", "RESET intervalstyle", "SET extra_float_digits = 0", "RESET extra_float_digits", "SET bytea_output = 'escape'", "RESET bytea_output",
	"SET search_path = other, public", "SET LOCAL search_path = public", "RESET search_path", "SET work_mem = '1MB'", "SET LOCAL work_mem = '2MB'", "RESET work_mem", "SET work_mem = 'x'", "SET nothing = 1", "SET application_name = 'a$n'",
	"SET ROLE pg_monitor", "SET LOCAL ROLE pg_signal_backend", "RESET ROLE", "SET ROLE NONE", "RESET ALL", "RESET SESSION AUTHORIZATION", "DISCARD ALL", "SET a.b = '$n'", "RESET a.b",
	"SELECT set_config('work_mem', '3MB', false)", "SELECT set_config('extra_float_digits', '0', true)", "SELECT current_setting('work_mem'), current_setting('datestyle'), current_setting('timezone')",
	"SELECT '03/04/2005'::date, '1 day 2 hours'::interval, '2005-03-04 05:06+00'::timestamptz, 1.1::float4 / 3, '\\x01ff'::bytea",
	"INSERT INTO orders VALUES ($own, $n, '03/04/2005'::date::text)", "INSERT INTO orders VALUES ($far, $n, '1.5'::float8 / 7)", "INSERT INTO whole VALUES ($client, $n, '03/04/2005')",
	"SELECT id, note FROM orders WHERE tenant_id = $own ORDER BY id", "SELECT count(*), max(id) FROM orders WHERE tenant_id IN ($own, $far)", "SELECT b, c FROM whole WHERE a = $client ORDER BY b",
	"UPDATE orders SET note = note || '.' WHERE tenant_id = $own", "UPDATE orders SET note = now()::date::text || $n WHERE tenant_id IN ($own, $far) AND false", "DELETE FROM orders WHERE tenant_id = $far", "DELETE FROM whole WHERE a = $client",
	"SELECT 1/0", "SELECT nothing", "SELEC", "SELECT * FROM nowhere", "SELECT 1/(tenant_id - $own) FROM orders WHERE tenant_id = $own", "SELECT 1", "VALUES (1), (2)", "",
	"PREPARE p AS SELECT 1", "PREPARE q (bigint) AS SELECT count(*) FROM orders WHERE tenant_id = $1", "EXECUTE p", "EXECUTE q ($own)", "DEALLOCATE p", "DEALLOCATE ALL",
	"PREPARE d AS SELECT '03/04/2005'::date, '1 2:03:04'::interval, '-1 +2'::interval, '2005-03-04 05:06'::timestamptz, '2005-03-04 EST'::timestamptz, '03/04/2005'::text::date", "EXECUTE d", "EXECUTE d", "DEALLOCATE d",
	"PREPARE e (text) AS INSERT INTO orders VALUES ($own, $n, '04/05/2006'::date::text || $1)", "EXECUTE e ('03/04/2005'::date::text)", "EXPLAIN (COSTS OFF) EXECUTE d", "DEALLOCATE e",
	`\parse dates SELECT '03/04/2005'::date, '2005-03-04 05:06'::timestamptz, '{03/04/2005,NULL}'::date[], 'a'`, `\parse dates SELECT '04/05/2006'::date`, `\run dates`, `\run dates`, `\close dates`,
	`\parse rows SELECT c, c < '03/04/2005' FROM whole WHERE a = $client ORDER BY b`, `\run rows`, `\close rows`, `\parse own SELECT id, note, '03/04/2005'::date FROM orders WHERE tenant_id = $own ORDER BY id`, `\run own`, `\close own`,
	`\parse both SELECT tenant_id, id, '03/04/2005'::date FROM orders WHERE tenant_id IN ($own, $far) ORDER BY 1, 2`, `\run both`, `\close both`,
	"SELECT pg_try_advisory_xact_lock($client)", "SELECT pg_advisory_unlock_all()", "SELECT current_schemas(false)",
}

// twin is one client: a session of the router, and the same of one PostgreSQL.
type twin struct {
	conns [2]*pgconn.PgConn
	urls  [2]string
	rnd   *rand.Rand
	names *strings.Replacer
	said  []string
}

func (b *twin) connect(ctx context.Context) error {
	start := starts[b.rnd.IntN(len(starts))]
	b.said = []string{fmt.Sprintf("-- connect with %v", start)}
	for i, url := range b.urls {
		if c := b.conns[i]; c != nil {
			if b.rnd.IntN(2) == 0 {
				_ = c.Conn().Close()
			}
			_ = c.Close(ctx)
		}
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			return err
		}
		cfg.RuntimeParams = map[string]string{"application_name": "x"}
		for k, v := range start {
			cfg.RuntimeParams[k] = v
		}
		if b.conns[i], err = pgconn.ConnectConfig(ctx, &cfg.Config); err != nil {
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
		sql := b.names.Replace("BEGIN READ WRITE; DELETE FROM orders WHERE tenant_id = $own; DELETE FROM orders WHERE tenant_id = $far; DELETE FROM whole WHERE a = $client; COMMIT")
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
	parts   []string // each of the results
}

func (b *twin) run(ctx context.Context, c *pgconn.PgConn, sql string, extended bool) observed {
	var o observed
	note := func(r *pgconn.Result) {
		p := r.CommandTag.String()
		for _, row := range r.Rows {
			p += fmt.Sprintf(" %q", row)
		}
		o.parts = append(o.parts, p)
	}
	var err error
	how, rest, _ := strings.Cut(sql, " ")
	name, text, _ := strings.Cut(rest, " ")
	switch {
	case how == `\parse`:
		var d *pgconn.StatementDescription
		if d, err = c.Prepare(ctx, name, text, nil); err == nil {
			o.parts = append(o.parts, fmt.Sprint(len(d.Fields), d.ParamOIDs))
		}
	case how == `\run`:
		r := c.ExecPrepared(ctx, name, nil, nil, nil).Read()
		if err = r.Err; err == nil {
			note(r)
		}
	case how == `\close`:
		err = c.Deallocate(ctx, name)
	case extended:
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
		err = said // without the words of pgx
	}
	code := codeOf(err)
	o.refused = code == "0A000"
	o.text = strings.Join(o.parts, " | ") + " error " + code + " status " + string(rune(c.TxStatus()))
	for _, name := range told {
		o.text += " " + name + "=" + c.ParameterStatus(name)
	}
	return o
}

// TestSessionsBesidePostgres has some clients share small pools and do whatever they like with their sessions; each
// has a session of one PostgreSQL beside it, which does the same. Answers, errors, the state of the transaction and what is
// told of settings are the same; a refusal ends the session on both sides.
func TestSessionsBesidePostgres(t *testing.T) {
	cl, conn, keys := orders(t, config{shards: 2, executor: limitsOf(5)})
	cl.monitors(t)
	single := pgtest.Database(t)
	plain, err := pgx.Connect(context.Background(), single)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, plain, "CREATE TABLE orders (tenant_id bigint, id bigint, note text, PRIMARY KEY (tenant_id, id))")
	for _, c := range []*pgx.Conn{conn, plain} {
		exec(t, c, "CREATE TABLE whole (a int, b int, c date)")
		exec(t, c, "CREATE SCHEMA other")
		exec(t, c, "ALTER TABLE whole SET (autovacuum_enabled = off)") // which makes prepared statements be read anew
		exec(t, c, "GRANT ALL ON orders, whole TO pg_monitor, pg_signal_backend")
		_ = c.Close(context.Background())
	}
	seed := *besideSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-beside-seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	ctx, stop := context.WithTimeout(context.Background(), time.Minute+time.Duration(*besideSteps)*50*time.Millisecond)
	defer stop()
	var clients []*twin
	for i := range 3 {
		b := &twin{urls: [2]string{cl.url(""), single}, rnd: rnd}
		b.names = strings.NewReplacer("$own", fmt.Sprint(keys[0][i]), "$far", fmt.Sprint(keys[1][i]), "$client", fmt.Sprint(i))
		if err := b.connect(ctx); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, b)
	}
	refused := map[string]int{}
	for step := range *besideSteps {
		b := clients[rnd.IntN(len(clients))]
		if rnd.IntN(40) == 0 {
			if err := b.connect(ctx); err != nil {
				t.Fatal(err)
			}
		}
		var message []string
		for range 1 + rnd.IntN(4)*rnd.IntN(2) {
			message = append(message, strings.ReplaceAll(b.names.Replace(acts[rnd.IntN(len(acts))]), "$n", fmt.Sprint(step)))
		}
		for _, m := range message {
			if m[:min(1, len(m))] == `\` {
				message = []string{m}
				break
			}
		}
		sql := strings.Join(message, "; ")
		extended := len(message) == 1 && rnd.IntN(3) == 0
		b.said = append(b.said, fmt.Sprintf("%s; -- extended: %v", sql, extended))
		got, want := b.run(ctx, b.conns[0], sql, extended), b.run(ctx, b.conns[1], sql, extended)
		switch {
		case got.refused && !want.refused:
			refused[sql[:min(len(sql), 40)]]++
			if err := b.again(ctx); err != nil {
				t.Fatal(err)
			}
		case got.text != want.text:
			t.Fatalf("step %d of -beside-seed %d: router\n  %s\nPostgreSQL\n  %s\nafter\n%s", step, seed, got.text, want.text, strings.Join(b.said, "\n"))
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
	t.Logf("%d messages, %d refused", *besideSteps, total)
	if total*5 > *besideSteps {
		t.Errorf("%d of %d messages are refused: %v", total, *besideSteps, refused)
	}
	if left := cl.remains(ctx, t); left != "" {
		t.Errorf("-beside-seed %d: %s", seed, left)
	}
}
