// Command bench compares a routed statement with a direct connection and with
// pgbouncer, in one run on one machine.
//
//	make bench                         # builds bin/cleave first
//	go run ./bench -seconds 5 -rounds 3
//
// The figure to trust is CPU time per statement, of the proxy and of the
// PostgreSQL servers behind it, least of the interleaved rounds: wall-clock
// figures of small or shared machines drift. Everything runs on this machine:
// one PostgreSQL server started by `cleave up --engine postgres`, the same
// server behind pgbouncer (transaction pooling) and for the direct connection.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

type options struct {
	binary  string
	seconds int
	rounds  int
	clients int
	rows    int
	scripts string
	targets string
	parts   string
	texts   int
	shards  int
	spread  int
	sort    int
}

func main() {
	var o options
	flag.StringVar(&o.binary, "cleave", "bin/cleave", "the binary under test")
	flag.IntVar(&o.seconds, "seconds", 3, "seconds of each measurement")
	flag.IntVar(&o.rounds, "rounds", 3, "interleaved rounds")
	flag.IntVar(&o.clients, "clients", 8, "pgbench clients")
	flag.IntVar(&o.rows, "rows", 20000, "rows in the table")
	flag.StringVar(&o.scripts, "scripts", "", "comma-separated part names of scripts to run (default all)")
	flag.StringVar(&o.targets, "targets", "direct,pgbouncer,cleave", "what to measure")
	flag.StringVar(&o.parts, "parts", "statements,clients,texts,spread,transactions,moves,sqlite", "what to run; moments and sort run only if they are named")
	flag.IntVar(&o.texts, "texts", 1_000_000, "distinct texts of the part texts")
	flag.IntVar(&o.spread, "spread", 1_000_000, "rows of the parts spread and moves")
	flag.IntVar(&o.sort, "sort", 10_000_000, "rows of the part sort, which runs only if it is named")
	flag.IntVar(&o.shards, "shards", 4, "PostgreSQL shards of the router")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, o)
	if err == nil && strings.Contains(o.parts, filePart) {
		err = sqliteCommits(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type target struct {
	name string
	url  string
	pid  int // of the proxy; 0 for a direct connection
}

type script struct {
	name, mode, sql string
	clients         int
}

type figures struct {
	tps, latencyMS, proxyUS, serverUS float64
}

// filePart is the part that needs no PostgreSQL.
const filePart = "sqlite"

func run(ctx context.Context, o options) error {
	if o.parts == filePart {
		return nil
	}
	dir, err := os.MkdirTemp("", "cleave-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// PostgreSQL and pgbouncer do not run as root: what they read must be
	// readable by the user that they drop to.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	pgbench, err := need("pgbench", "postgresql")
	if err != nil {
		return err
	}

	listen, admin := freeAddress(), freeAddress()
	var upLog bytes.Buffer
	cleaveURL := "postgres://" + listen + "/cleave?sslmode=disable"
	start := func() (*exec.Cmd, error) {
		up := exec.Command(o.binary, "up", "--engine", "postgres", "--data", filepath.Join(dir, "data"), "--listen", listen, "--admin", admin, "--max-connections", "1100", "--shards", strconv.Itoa(o.shards))
		up.Stdout, up.Stderr = &upLog, &upLog
		if err := up.Start(); err != nil {
			return nil, fmt.Errorf("%w; run make build first", err)
		}
		if err := waitFor(ctx, cleaveURL); err != nil {
			stopped(up)
			return nil, fmt.Errorf("%w\n%s", err, upLog.Bytes())
		}
		return up, nil
	}
	up, err := start()
	if err != nil {
		return err
	}
	defer func() { stopped(up) }()
	shard, err := firstShard(ctx, o.binary, admin)
	if err != nil {
		return err
	}
	if err := load(ctx, cleaveURL, shard, o.rows); err != nil {
		return err
	}
	postmaster, err := postmasterOf(ctx, shard)
	if err != nil {
		return err
	}
	direct, err := plainURL(shard)
	if err != nil {
		return err
	}
	targets := []target{{name: "direct", url: direct}}
	if strings.Contains(o.targets, "pgbouncer") {
		bouncer, stopBouncer, err := startPgbouncer(ctx, dir, shard)
		if err != nil {
			return err
		}
		defer stopBouncer()
		targets = append(targets, bouncer)
	}
	targets = append(targets, target{name: "cleave", url: cleaveURL, pid: up.Process.Pid})
	targets = slices.DeleteFunc(targets, func(t target) bool { return !strings.Contains(o.targets, t.name) })

	const pointSelect = `\set aid random(1, :rows)
SELECT abalance FROM bench_accounts WHERE aid = :aid;
`
	const pointUpdate = `\set aid random(1, :rows)
\set delta random(-5000, 5000)
UPDATE bench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
`
	const thousandRows = `\set k random(1, 8)
SELECT * FROM bench_big WHERE k = :k;
`
	var scripts []script
	for _, mode := range []string{"simple", "extended", "prepared"} {
		scripts = append(scripts, script{"select " + mode, mode, pointSelect, o.clients})
	}
	scripts = append(scripts,
		script{"update simple", "simple", pointUpdate, o.clients},
		script{"update extended", "extended", pointUpdate, o.clients},
		script{"update prepared", "prepared", pointUpdate, o.clients},
		script{"1000 rows prepared", "prepared", thousandRows, o.clients},
		script{"select prepared, one client", "prepared", pointSelect, 1},
	)
	if o.scripts != "" {
		scripts = slices.DeleteFunc(scripts, func(s script) bool {
			return !slices.ContainsFunc(strings.Split(o.scripts, ","), func(p string) bool { return strings.Contains(s.name, p) })
		})
	}

	if !strings.Contains(o.parts, "statements") {
		scripts = nil
	}
	fmt.Printf("%s, %d cores, %s, pgbench -c %d, %d rounds of %d s, %s\n\n", time.Now().Format(time.DateOnly),
		runtime.NumCPU(), runtime.Version(), o.clients, o.rounds, o.seconds, serverVersion(ctx, shard))
	if strings.Contains(o.parts, "clients") {
		if err := idleClients(ctx, cleaveURL, up.Process.Pid, o.rows); err != nil {
			return err
		}
	}
	if len(scripts) > 0 {
		fmt.Println("CPU microseconds per statement, least of the rounds; in brackets the ratio to pgbouncer.")
		fmt.Println()
		fmt.Println("| script | target | proxy CPU | servers' CPU | latency ms | statements/s (best) |")
		fmt.Println("|---|---|---|---|---|---|")
	}
	for _, s := range scripts {
		best := map[string]figures{}
		for range o.rounds {
			for _, t := range targets {
				f, err := measure(ctx, pgbench, dir, s, t, postmaster, o)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", s.name, t.name, err)
				}
				b, seen := best[t.name]
				if !seen {
					best[t.name] = f
					continue
				}
				best[t.name] = figures{max(b.tps, f.tps), min(b.latencyMS, f.latencyMS), min(b.proxyUS, f.proxyUS), min(b.serverUS, f.serverUS)}
			}
		}
		for _, t := range targets {
			f, peer := best[t.name], best["pgbouncer"]
			fmt.Printf("| %s | %s | %s | %.1f | %.3f%s | %.0f |\n", s.name, t.name, proxyCell(t, f, peer), f.serverUS,
				f.latencyMS, ratio(f.latencyMS, peer.latencyMS, t.name == "cleave"), f.tps)
		}
	}
	fmt.Println()
	if strings.Contains(o.parts, "spread") {
		if err := spread(ctx, o, cleaveURL, admin); err != nil {
			return err
		}
	}
	if strings.Contains(o.parts, "sort") {
		again := func() (int, error) {
			stopped(up)
			fresh, err := start()
			if err != nil {
				return 0, err
			}
			up = fresh
			return up.Process.Pid, nil
		}
		if err := sorted(ctx, o, cleaveURL, up.Process.Pid, again); err != nil {
			return err
		}
	}
	if strings.Contains(o.parts, "transactions") {
		if err := transactions(ctx, o, cleaveURL, up.Process.Pid); err != nil {
			return err
		}
	}
	if strings.Contains(o.parts, "moves") {
		if err := moves(ctx, o, cleaveURL, up.Process.Pid); err != nil {
			return err
		}
	}
	if strings.Contains(o.parts, "moments") {
		if err := moments(ctx, o, dir); err != nil {
			return err
		}
	}
	if strings.Contains(o.parts, "texts") {
		if err := distinctTexts(ctx, cleaveURL, up.Process.Pid, o); err != nil {
			return err
		}
	}
	return nil
}

// stopped ends a process and waits for it.
func stopped(up *exec.Cmd) {
	_ = up.Process.Signal(syscall.SIGTERM)
	_ = up.Wait()
}

func proxyCell(t target, f, peer figures) string {
	if t.pid == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f%s", f.proxyUS, ratio(f.proxyUS, peer.proxyUS, t.name == "cleave"))
}

func ratio(is, peer float64, show bool) string {
	if !show || peer == 0 {
		return ""
	}
	return fmt.Sprintf(" (%.2fx)", is/peer)
}

var (
	tpsLine     = regexp.MustCompile(`tps = ([0-9.]+)`)
	latencyLine = regexp.MustCompile(`latency average = ([0-9.]+) ms`)
	countLine   = regexp.MustCompile(`number of transactions actually processed: (\d+)`)
	failedLine  = regexp.MustCompile(`number of failed transactions: (\d+)`)
)

// measure runs pgbench once. pgbench's own preparation is outside of the CPU
// figures' noise: it is a handful of statements.
func measure(ctx context.Context, pgbench, dir string, s script, t target, postmaster int, o options) (figures, error) {
	path := filepath.Join(dir, "script.sql")
	if err := os.WriteFile(path, []byte(s.sql), 0o644); err != nil {
		return figures{}, err
	}
	proxyBefore, err := cpu(t.pid, false)
	if err != nil {
		return figures{}, err
	}
	serverBefore, err := cpu(postmaster, true)
	if err != nil {
		return figures{}, err
	}
	cmd := exec.CommandContext(ctx, pgbench, "-n", "-M", s.mode, "-c", strconv.Itoa(s.clients), "-j", "2",
		"-T", strconv.Itoa(o.seconds), "-D", "rows="+strconv.Itoa(o.rows), "-f", path, t.url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return figures{}, fmt.Errorf("%w\n%s", err, out)
	}
	proxyAfter, err := cpu(t.pid, false)
	if err != nil {
		return figures{}, err
	}
	serverAfter, err := cpu(postmaster, true)
	if err != nil {
		return figures{}, err
	}
	if m := failedLine.FindSubmatch(out); m != nil && string(m[1]) != "0" {
		return figures{}, fmt.Errorf("%s failed statements\n%s", m[1], out)
	}
	count, tps, latency := number(countLine, out), number(tpsLine, out), number(latencyLine, out)
	if count == 0 {
		return figures{}, fmt.Errorf("no statement was run\n%s", out)
	}
	return figures{
		tps: tps, latencyMS: latency,
		proxyUS:  (proxyAfter - proxyBefore) * 1e6 / count,
		serverUS: (serverAfter - serverBefore) * 1e6 / count,
	}, nil
}

func number(re *regexp.Regexp, out []byte) float64 {
	m := re.FindSubmatch(out)
	if m == nil {
		return 0
	}
	f, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return 0
	}
	return f
}

// cpu returns the seconds of processor time that a process has used; with
// children, also that of its live and reaped children (proc(5), fields 14 to 17
// of /proc/PID/stat).
func cpu(pid int, children bool) (float64, error) {
	if pid == 0 {
		return 0, nil
	}
	ticks, err := statTicks(pid, children)
	if err != nil {
		return 0, err
	}
	if children {
		tasks, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			return 0, err
		}
		for _, f := range strings.Fields(string(tasks)) {
			child, _ := strconv.Atoi(f)
			// A child may be gone by now; then its time is with its parent's.
			if t, err := statTicks(child, false); err == nil {
				ticks += t
			}
		}
	}
	return ticks / 100, nil // USER_HZ is 100 on every Linux platform Go supports
}

func statTicks(pid int, reaped bool) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 15 {
		return 0, fmt.Errorf("/proc/%d/stat is not understood", pid)
	}
	last := 12
	if reaped {
		last = 14
	}
	var sum float64
	for _, f := range fields[11 : last+1] {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// load makes the same tables sharded behind the router and plain in the first
// shard's own database under the names that the direct target uses.
func load(ctx context.Context, cleaveURL, shardURL string, rows int) error {
	router, err := pgx.Connect(ctx, cleaveURL)
	if err != nil {
		return err
	}
	defer router.Close(context.WithoutCancel(ctx))
	for _, sql := range []string{
		`CREATE TABLE bench_accounts (aid bigint PRIMARY KEY, bid int, abalance int, filler text) WITH (cleave.shard_key = 'aid')`,
		`CREATE TABLE bench_big (k bigint, id bigint, filler text, PRIMARY KEY (k, id)) WITH (cleave.shard_key = 'k')`,
		`SET synchronous_commit = off`,
	} {
		if _, err := router.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	filler := strings.Repeat("x", 84)
	for aid := 1; aid <= rows; aid++ {
		if _, err := router.Exec(ctx, `INSERT INTO bench_accounts VALUES ($1, 1, 0, $2)`, aid, filler); err != nil {
			return err
		}
	}
	for k := 1; k <= 8; k++ {
		var b strings.Builder
		b.WriteString("INSERT INTO bench_big VALUES ")
		for id := 1; id <= 1000; id++ {
			if id > 1 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "(%d, %d, '%s')", k, id, filler)
		}
		if _, err := router.Exec(ctx, b.String()); err != nil {
			return err
		}
	}
	// The direct connection and pgbouncer use a schema of their own in the first
	// shard's database, found by search_path.
	direct, err := pgx.Connect(ctx, shardURL)
	if err != nil {
		return err
	}
	defer direct.Close(context.WithoutCancel(ctx))
	for _, sql := range []string{
		`CREATE SCHEMA bench_plain`,
		`CREATE TABLE bench_plain.bench_accounts (aid bigint PRIMARY KEY, bid int, abalance int, filler text)`,
		`CREATE TABLE bench_plain.bench_big (k bigint, id bigint, filler text, PRIMARY KEY (k, id))`,
		fmt.Sprintf(`INSERT INTO bench_plain.bench_accounts SELECT g, 1, 0, '%s' FROM generate_series(1, %d) g`, filler, rows),
		fmt.Sprintf(`INSERT INTO bench_plain.bench_big SELECT k, id, '%s' FROM generate_series(1, 8) k, generate_series(1, 1000) id`, filler),
		`ANALYZE`,
	} {
		if _, err := direct.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// plainURL is the first shard's database with the search_path that finds the
// tables that are not sharded.
func plainURL(shardURL string) (string, error) {
	cfg, err := pgx.ParseConfig(shardURL)
	if err != nil {
		return "", err
	}
	q := url.Values{"host": {cfg.Host}, "port": {strconv.Itoa(int(cfg.Port))}, "user": {cfg.User}, "password": {cfg.Password}, "sslmode": {"disable"}, "options": {"-csearch_path=bench_plain"}}
	return "postgres:///" + cfg.Database + "?" + q.Encode(), nil
}

func startPgbouncer(ctx context.Context, dir, shardURL string) (target, func(), error) {
	path, err := need("pgbouncer", "pgbouncer")
	if err != nil {
		return target{}, nil, err
	}
	cfg, err := pgx.ParseConfig(shardURL)
	if err != nil {
		return target{}, nil, err
	}
	_, port, err := net.SplitHostPort(freeAddress())
	if err != nil {
		return target{}, nil, err
	}
	ini := fmt.Sprintf(`[databases]
bench = host=%s port=%d dbname=%s user=%s password=%s connect_query='SET search_path = bench_plain'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
max_prepared_statements = 100
ignore_startup_parameters = extra_float_digits
log_connections = 0
log_disconnections = 0
`, cfg.Host, cfg.Port, cfg.Database, cfg.User, cfg.Password, port)
	if old, _ := exec.CommandContext(ctx, path, "--version").Output(); strings.Contains(string(old), "PgBouncer 1.1") || strings.Contains(string(old), "PgBouncer 1.20") {
		// max_prepared_statements came with 1.21; before it, prepared statements
		// work through session pooling only.
		ini = strings.Replace(ini, "max_prepared_statements = 100\n", "", 1)
		ini = strings.Replace(ini, "pool_mode = transaction", "pool_mode = session", 1)
		fmt.Println("note: this pgbouncer has no prepared statements in transaction mode, so it runs in session mode, which is cheaper for it.")
	}
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(ini), 0o644); err != nil {
		return target{}, nil, err
	}
	args := []string{"-q", file}
	if os.Geteuid() == 0 {
		// The user that the server runs as: it can reach the server's socket.
		var st syscall.Stat_t
		if err := syscall.Stat(cfg.Host, &st); err != nil {
			return target{}, nil, err
		}
		owner, err := user.LookupId(strconv.Itoa(int(st.Uid)))
		if err != nil {
			return target{}, nil, err
		}
		args = append([]string{"-u", owner.Username}, args...)
	}
	cmd := exec.Command(path, args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return target{}, nil, err
	}
	stop := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	at := "postgres://bench@127.0.0.1:" + port + "/bench?sslmode=disable"
	if err := waitFor(ctx, at); err != nil {
		stop()
		return target{}, nil, fmt.Errorf("%w\n%s", err, log.Bytes())
	}
	return target{name: "pgbouncer", url: at, pid: cmd.Process.Pid}, stop, nil
}

// need finds a program, installing Debian's package for it when possible.
func need(program, debian string) (string, error) {
	find := func() string {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
		if path, err := exec.LookPath(program); err == nil {
			return path
		}
		if len(found) > 0 {
			return slices.Max(found)
		}
		return ""
	}
	if path := find(); path != "" {
		return path, nil
	}
	if os.Geteuid() == 0 {
		out, err := exec.Command("sh", "-c", "apt-get update && apt-get install -y --no-install-recommends "+debian).CombinedOutput()
		if path := find(); path != "" {
			return path, nil
		}
		return "", fmt.Errorf("%s is missing and could not be installed: %w\n%s", program, err, out)
	}
	return "", fmt.Errorf("%s is missing; install the package %s", program, debian)
}

func firstShard(ctx context.Context, binary, admin string) (string, error) {
	urls, err := shardURLs(ctx, binary, admin)
	if err != nil {
		return "", err
	}
	return urls[0], nil
}

func postmasterOf(ctx context.Context, url string) (int, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	// The parent of a session's process. The shard's role may not ask where the server's folder is.
	var parent int
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", conn.PgConn().PID()))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), ") ") // its name may have spaces
	if _, err := fmt.Sscanf(rest, "%s %d", new(string), &parent); err != nil {
		return 0, err
	}
	return parent, nil
}

func serverVersion(ctx context.Context, url string) string {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err.Error()
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return "PostgreSQL " + conn.PgConn().ParameterStatus("server_version")
}

func waitFor(ctx context.Context, url string) error {
	deadline := time.Now().Add(60 * time.Second)
	for wait := 10 * time.Millisecond; ; wait = time.Duration(math.Min(float64(2*wait), float64(time.Second))) {
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			return conn.Close(ctx)
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("%s does not answer: %w", url, err)
		}
		time.Sleep(wait)
	}
}

func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "127.0.0.1:0"
	}
	defer l.Close()
	return l.Addr().String()
}
