package move

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/testrun"
)

var (
	seed   = flag.Uint64("seed", 0, "of the histories; 0: of the clock")
	soak   = flag.Duration("soak", soakDefault(), "how long each history goes on; more than a minute: processes are killed and stopped in every second round")
	tested = flag.String("program", "", "the program to test; empty: it is built")
	calm   = flag.Bool("calm", false, "no process is killed or stopped in a soak")
	round  = flag.Duration("round", 0, "how long one round of a history is; 0: six seconds, in a soak fifteen")
)

// soakDefault is what `make soak` says, which is also for tests of other packages.
func soakDefault() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("CLEAVE_SOAK")); err == nil {
		return d
	}
	return 12 * time.Second
}

const (
	historyShards    = 3
	historyClients   = 6
	historyTenants   = 24
	historyAccounts  = 3 // of a tenant
	historyRegisters = 24
	historyLists     = 10
	historyTokens    = 12
	historyLease     = 5 * time.Second
	historyMoney     = historyTenants * historyAccounts * balance
)

// histories are clients whose every operation is recorded, on a cluster whose data moves.
type histories struct {
	*target
	kind     string
	seed     uint64
	routers  []*router // in a soak the last one is never killed
	curve    *curve    // of that one
	freshly  string    // what a new connection has
	rec      atomic.Pointer[recorder]
	rows     *batches
	moved    *moved
	ids      atomic.Int64
	guess    sync.Map // where tokens were seen last
	pauseMax time.Duration
	havoc    atomic.Bool // processes are killed in this round

	mu      sync.Mutex
	codes   map[string]int // errors, by what was done, and code
	did     map[string]int
	faults  []string
	slowest time.Duration
	slow    string // which it was
	heldMax int64
}

// wrong notes what must not be.
func (h *histories) wrong(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.faults) < 50 {
		h.faults = append(h.faults, time.Now().Format("15:04:05.000 ")+text)
	}
	return &fault{text}
}

// fault was noted already.
type fault struct{ text string }

func (f *fault) Error() string { return f.text }

func (h *histories) held(ms int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heldMax = max(h.heldMax, ms)
}

// TestHistories: clients work through two routers on three shards, in all ways to send statements,
// while ranges and keys move, split, merge and come back all the time. What each object
// answered is what one object could have answered; money, rows and ids are as they were
// told; no statement fails but for a reason that is documented.
func TestHistories(t *testing.T) {
	testrun.Long(t, "each history goes on for a dozen seconds; TestMoveUnderLoad checks what was acknowledged")
	bin := *tested
	if bin == "" {
		bin = program(t)
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h := newHistories(t, bin, kind)
			h.run()
		})
	}
}

func newHistories(t *testing.T, bin, kind string) *histories {
	engines := make([]string, historyShards)
	for i := range engines {
		engines[i] = kind
	}
	h := &histories{target: startAs(t, "", engines...), kind: kind, seed: *seed, codes: map[string]int{}, did: map[string]int{}, rows: newBatches(), moved: &moved{count: map[string]int{}}}
	if h.seed == 0 {
		h.seed = uint64(time.Now().UnixNano())
	}
	h.pauseMax = 1500 * time.Millisecond
	if kind == "sqlite" {
		h.pauseMax = 150 * time.Millisecond // all writers of the file wait
	}
	n := 2
	if *soak > time.Minute {
		n = 3
	}
	for range n {
		h.routers = append(h.routers, h.startRouter(bin))
	}
	h.fill()
	return h
}

// pad is what rows carry along: long enough to be kept out of line.
func pad(r *rand.Rand) string {
	b := make([]byte, 5000)
	for i := range b {
		b[i] = byte('0' + r.IntN(75))
	}
	return strings.NewReplacer("'", "-", `\`, "-").Replace(string(b))
}

func (h *histories) fill() {
	r := rand.New(rand.NewPCG(h.seed, 0))
	h.exec(
		`SELECT cleave.create_keyspace('bank', 'hash', 'bigint', ranges => 4)`,
		`SELECT cleave.create_keyspace('shelf', 'range', 'bigint', bounds => ARRAY['8', '16'])`,
		`CREATE TABLE account (tenant bigint, id bigint, balance bigint NOT NULL, pad text, digest text, PRIMARY KEY (tenant, id)) WITH (cleave.shard_key = 'tenant', cleave.keyspace = 'bank')`,
		`CREATE TABLE counter (tenant bigint PRIMARY KEY, n bigint NOT NULL) WITH (cleave.shard_key = 'tenant', cleave.keyspace = 'bank')`,
		`CREATE TABLE token (tenant bigint, id bigint, pad text, PRIMARY KEY (tenant, id)) WITH (cleave.shard_key = 'tenant', cleave.keyspace = 'bank')`,
		`CREATE TABLE entry (tenant bigint, id bigint, batch bigint NOT NULL, uid bigint NOT NULL DEFAULT cleave.next_id(), PRIMARY KEY (tenant, id)) WITH (cleave.shard_key = 'tenant', cleave.keyspace = 'bank')`,
		`CREATE TABLE job (tenant bigint, id bigint, PRIMARY KEY (tenant, id)) WITH (cleave.shard_key = 'tenant', cleave.keyspace = 'bank')`,
		`CREATE TABLE register (k bigint PRIMARY KEY, v bigint NOT NULL) WITH (cleave.shard_key = 'k', cleave.keyspace = 'shelf')`,
		`CREATE TABLE list (k bigint PRIMARY KEY, body text NOT NULL) WITH (cleave.shard_key = 'k', cleave.keyspace = 'shelf')`,
	)
	if h.kind == "postgres" { // its rows enter and leave what moves by updates, with values out of line
		h.exec(`ALTER TABLE token REPLICA IDENTITY FULL`)
	}
	var sql []string
	for tenant := range historyTenants {
		for id := range historyAccounts {
			p := pad(r)
			sql = append(sql, fmt.Sprintf(`INSERT INTO account VALUES (%d, %d, %d, '%s', md5('%s'))`, tenant, id, balance, p, p))
		}
		sql = append(sql, fmt.Sprintf(`INSERT INTO counter VALUES (%d, 0)`, tenant))
	}
	for k := range historyLists {
		sql = append(sql, fmt.Sprintf(`INSERT INTO list VALUES (%d, '')`, 2*k))
	}
	for id := range historyTokens {
		sql = append(sql, fmt.Sprintf(`INSERT INTO token VALUES (%d, %d, '%s')`, id, id, pad(r)))
	}
	h.exec(sql...)
}

// readers look at everything at once, over all shards.
var constants = map[string]string{
	"SELECT count(*) FROM account":                                                                   fmt.Sprint(historyTenants * historyAccounts),
	"SELECT count(DISTINCT tenant) FROM counter":                                                     fmt.Sprint(historyTenants),
	"SELECT count(*) FROM account a JOIN counter c ON c.tenant = a.tenant":                           fmt.Sprint(historyTenants * historyAccounts),
	"SELECT count(*) FROM account WHERE md5(pad) = digest":                                           fmt.Sprint(historyTenants * historyAccounts),
	"SELECT count(*) FROM (SELECT tenant FROM account GROUP BY tenant HAVING count(*) = 3) q":        fmt.Sprint(historyTenants),
	"SELECT count(*) FROM list l JOIN counter c ON c.tenant = l.k":                                   fmt.Sprint(historyLists),
	"SELECT string_agg(tenant::text, ',' ORDER BY tenant) FROM counter WHERE tenant BETWEEN 3 AND 9": "3,4,5,6,7,8,9",
	"SELECT count(*) FROM counter WHERE tenant IN (1, 5, 9, 13, 17)":                                 "5",
}

// these see all of a transaction over several shards or nothing of it.
var atomics = map[string]string{
	"SELECT sum(balance)::bigint FROM account":                             fmt.Sprint(historyMoney),
	"SELECT count(*) FROM token":                                           fmt.Sprint(historyTokens),
	"SELECT count(DISTINCT id) FROM token":                                 fmt.Sprint(historyTokens),
	"SELECT string_agg(id::text, ',' ORDER BY id) FROM token WHERE id < 4": "0,1,2,3",
}

// look reads over all shards.
func (c *client) look(ctx context.Context) (what string, err error) {
	r, h := c.r, c.h
	m := mode(r.IntN(int(modes)))
	ask := func(list map[string]string) error {
		sql := slices.Sorted(maps.Keys(list))[r.IntN(len(list))]
		out, err := c.send(ctx, act{sql: sql}, m)
		if err != nil {
			return &nothing{err}
		}
		if out.one() != list[sql] {
			return h.wrong("%s (%v) gave %v, not %s", sql, m, out.Rows, list[sql])
		}
		return nil
	}
	kind := r.IntN(5)
	if kind < 2 {
		return "read", ask(constants)
	}
	switch kind {
	case 2:
		id := r.Int64N(historyTokens)
		rec := h.rec.Load()
		call := rec.now()
		a := act{object: fmt.Sprintf("token/%d", id), in: input{Do: "read"}, sql: "SELECT tenant FROM token WHERE id = $1", args: []any{id}}
		out, err := c.send(ctx, a, m)
		c.note(a, call, rec.now(), out, err, "atomic read")
		return "atomic read", err
	case 3:
		return "atomic read", ask(atomics)
	}
	what = "atomic block"
	if _, err := c.text(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ"); err != nil {
		return what, &nothing{err}
	}
	err = ask(atomics)
	for range r.IntN(3) {
		if err == nil {
			c.pause(r)
			err = ask([]map[string]string{constants, atomics}[r.IntN(2)])
		}
	}
	if !c.conn.IsClosed() {
		if _, end := c.text(ctx, "ROLLBACK"); err == nil && end != nil {
			err = &nothing{end}
		}
	}
	return what, err
}

// cursor reads a table a few rows at a time, in a transaction of its own.
func (c *client) cursor(ctx context.Context) (string, error) {
	const what = "cursor"
	for _, sql := range []string{"BEGIN", "DECLARE c CURSOR FOR SELECT tenant, id FROM account ORDER BY tenant, id"} {
		if _, err := c.text(ctx, sql); err != nil {
			if !c.conn.IsClosed() {
				_, _ = c.text(ctx, "ROLLBACK")
			}
			return what, &nothing{err}
		}
	}
	n := 0
	var failed error
	for {
		out, err := c.text(ctx, "FETCH 20 FROM c")
		if err != nil {
			failed = &nothing{err}
			break
		}
		for _, row := range out.Rows {
			if want := fmt.Sprintf("%d %d", n/historyAccounts, n%historyAccounts); want != strings.Join(row, " ") {
				failed = c.h.wrong("row %d of a cursor is %v", n, row)
			}
			n++
		}
		if len(out.Rows) == 0 || failed != nil {
			break
		}
		c.pause(c.r)
	}
	if failed == nil && n != historyTenants*historyAccounts {
		failed = c.h.wrong("a cursor gave %d rows", n)
	}
	if !c.conn.IsClosed() {
		if _, err := c.text(ctx, "ROLLBACK"); err != nil && failed == nil {
			failed = &nothing{err}
		}
	}
	return what, failed
}

// work is a client's life in one round: connections one after the other.
func (h *histories) work(ctx context.Context, id int, r *rand.Rand) {
	bg := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		at := r.IntN(len(h.routers))
		conn, err := h.dial(bg, h.routers[at].url())
		if err != nil {
			h.judge("connect", &nothing{err})
			time.Sleep(20 * time.Millisecond)
			continue
		}
		c := &client{h: h, id: id, r: r, conn: conn, prepared: map[string]string{}}
		c.arrive(bg)
		for n := 0; n < 300 && ctx.Err() == nil && !conn.IsClosed(); n++ {
			c.one(bg)
			time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond) // those who move the data need the machine too
		}
		_ = conn.Close(bg)
	}
}

// answerMax is how long an answer may take: longer than whatever a statement waits for.
const answerMax = time.Minute

func (c *client) one(ctx context.Context) {
	limit, stop := context.WithTimeout(ctx, answerMax)
	defer stop()
	f := c.alone
	switch n := c.r.IntN(100); {
	case n < 30:
	case n < 38:
		f = c.batch
	case n < 46:
		f = c.pipeline
	case n < 60:
		f = c.transaction
	case n < 78:
		f = c.transfer
	case n < 86:
		f = c.insert
	case n < 91:
		f = c.job
	case n < 96:
		f = c.look
	case n < 98:
		f = c.noise
	default:
		f = c.cursor
	}
	begun := time.Now()
	what, err := f(limit)
	took := time.Since(begun)
	c.h.mu.Lock()
	c.h.did[what]++
	if took > c.h.slowest {
		c.h.slowest, c.h.slow = took, fmt.Sprintf("%s at %s on %v: %v", what, begun.Format("15:04:05.000"), c.conn.Conn().RemoteAddr(), err)
	}
	c.h.mu.Unlock()
	if err != nil {
		c.h.judge(what, err)
	}
	if err != nil && !c.conn.IsClosed() && c.conn.TxStatus() != 'I' {
		_ = c.h.wrong("after %q of %s the session is still in a transaction (%c)", err, what, c.conn.TxStatus())
		_ = c.conn.Close(ctx)
	}
}

// judge counts an error, and says whether it may be.
func (h *histories) judge(what string, err error) {
	if f := (*fault)(nil); asFault(err, &f) {
		return
	}
	code := codeOf(err)
	h.mu.Lock()
	h.codes[what+" "+code]++
	if h.codes[what+" "+code] == 1 {
		h.moved.add("the first %s %s: %s", what, code, errorText(err))
	}
	h.mu.Unlock()
	if !h.may(what, code, err.Error()) {
		_ = h.wrong("%s: %v", what, errorText(err))
	}
}

// may says which errors are documented (docs/consistency.md, docs/moving.md).
func (h *histories) may(what, code, text string) bool {
	if (code == "57P03" || code == "08007" || code == "40001") && (strings.Contains(text, "lease") || strings.Contains(text, "the directory could not be asked")) {
		return true // the machine stood still for longer than a lease, or than a router waits for its directory
	}
	if h.havoc.Load() && slices.Contains([]string{"40001", "40P01", "55P03", "57P03", "57P01", "08006", "08007", "lost"}, code) {
		return true
	}
	inBlock := slices.Contains([]string{"block", "batch block", "repeatable read", "transfer block", "atomic block", "atomic read", "cursor"}, what)
	if code == "40001" && inBlock {
		return true
	}
	if code == "40P01" && (inBlock || what == "transfer" || what == "batch") {
		return true
	}
	if h.kind == "sqlite" { // one writer a file: docs/moving.md, "When something is in the way"
		return code == "55P03" || code == "57P03" || code == "40P01"
	}
	return false
}

func errorText(err error) string {
	if pg := (*pgconn.PgError)(nil); asPg(err, &pg) {
		return fmt.Sprintf("%s %s; %s; %s", pg.Code, pg.Message, pg.Detail, pg.Hint)
	}
	return err.Error()
}

// read reads everything, over all shards and by key.
func (h *histories) read(t testing.TB) (w world, entries, jobs [][]string) {
	t.Helper()
	ctx := context.Background()
	conn, err := h.dial(ctx, h.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	c := &client{h: h, conn: conn, prepared: map[string]string{}}
	ask := func(sql string, args ...any) [][]string {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			out, err := c.send(ctx, act{sql: sql, args: args}, texts)
			if err == nil {
				return out.Rows
			}
			if codeOf(err) == "lost" || time.Now().After(end) {
				t.Fatalf("%s: %v", sql, err)
			}
			h.judge("final read", err)
		}
	}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	w = world{objects: map[string]any{}}
	put := func(object string, state any) {
		if _, ok := w.objects[object]; ok {
			_ = h.wrong("%s is there twice", object)
		}
		w.objects[object] = state
	}
	for _, row := range ask("SELECT tenant, n FROM counter") {
		put("counter/"+row[0], number(row[1]))
	}
	for _, row := range ask("SELECT tenant, id, balance FROM account") {
		put("account/"+row[0]+"."+row[1], number(row[2]))
	}
	for _, row := range ask("SELECT id, tenant FROM token") {
		put("token/"+row[0], number(row[1]))
	}
	for _, row := range ask("SELECT k, body FROM list") {
		put("list/"+strconv.FormatInt(number(row[0])/2, 10), row[1])
	}
	for _, row := range ask("SELECT k, v FROM register") {
		put("register/"+row[0], register{true, number(row[1])})
	}
	for k := range historyRegisters {
		object := fmt.Sprintf("register/%d", k)
		if _, ok := w.objects[object]; !ok {
			w.objects[object] = register{}
		}
		// By its key it is what it is among all.
		rows := ask("SELECT v FROM register WHERE k = $1", int64(k))
		if got := fmt.Sprint(output{Rows: rows}.Rows); got != fmt.Sprint(final(w.objects[object]).Rows) {
			_ = h.wrong("%s is %v among all, and %s by its key", object, w.objects[object], got)
		}
	}
	if want := 2*historyTenants - historyTenants + historyTenants*historyAccounts + historyLists + historyTokens + historyRegisters; len(w.objects) != want {
		_ = h.wrong("%d objects, not %d", len(w.objects), want)
	}
	return w, ask("SELECT id, batch, uid FROM entry"), ask("SELECT id FROM job")
}

// settled waits until nothing is under way any more.
func (h *histories) settled(t testing.TB) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		conn, err := h.dial(context.Background(), h.url)
		if err == nil {
			c := &client{h: h, conn: conn}
			var out output
			out, err = c.text(context.Background(), "SELECT count(*) FROM cleave.transactions")
			_ = conn.Close(context.Background())
			if err == nil && out.one() == "0" {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("transactions are not settled: %v", err)
		}
	}
}

// run is all of a history: rounds, in which clients work, and between which all is
// compared, while the drivers never stop.
func (h *histories) run() {
	t := h.t
	length := *round
	if length == 0 {
		if length = 6 * time.Second; *soak > time.Minute {
			length = 15 * time.Second
		}
	}
	command := fmt.Sprintf("go test ./test/move -count=1 -v -run TestHistories/%s -seed %d -soak %v -round %v -timeout 0", h.kind, h.seed, *soak, length)
	t.Log(command)
	if h.kind == "sqlite" {
		h.ring()
	}
	driving, stopDriving := context.WithCancel(context.Background())
	var drivers sync.WaitGroup
	for i := range 3 {
		d := &driver{h: h, r: rand.New(rand.NewPCG(h.seed, 1000+uint64(i))), id: i}
		drivers.Go(func() { d.drive(driving) })
	}
	defer drivers.Wait()
	defer stopDriving()
	h.rec.Store(&recorder{begun: time.Now(), objects: map[string][]porcupine.Operation{}})
	before, _, _ := h.read(t)
	h.begin()
	total := 0
	for end, n := time.Now().Add(*soak), 0; ; n++ {
		rec := &recorder{begun: time.Now(), objects: map[string][]porcupine.Operation{}}
		h.rec.Store(rec)
		h.havoc.Store(n%2 == 1 && !*calm)
		working, stop := context.WithCancel(context.Background())
		var clients sync.WaitGroup
		for id := range historyClients {
			clients.Go(func() { h.work(working, id, rand.New(rand.NewPCG(h.seed, uint64(n*100+id)))) })
		}
		if h.havoc.Load() {
			h.kill(rand.New(rand.NewPCG(h.seed, uint64(n*100+99))), length)
		} else {
			time.Sleep(length)
		}
		last := time.Now().After(end)
		stop()
		clients.Wait()
		h.settled(t)
		after, entries, jobs := h.read(t)
		h.rows.mu.Lock()
		for _, w := range h.rows.found(entries, jobs) {
			_ = h.wrong("%s", w)
		}
		h.rows.mu.Unlock()
		wrong, unproven := rec.check(before, after)
		for _, object := range wrong {
			_ = h.wrong("%s: no single %s could have answered so", object, kindOf(object))
		}
		sum := int64(0)
		for object, state := range after.objects {
			if kindOf(object) == "account" {
				sum += state.(int64)
			}
		}
		if sum != historyMoney {
			_ = h.wrong("the sum of all accounts is %d, not %d", sum, historyMoney)
		}
		total += rec.count
		if h.curve != nil {
			h.curve.add(n, total)
		}
		if n%8 == 0 || last {
			t.Logf("round %d: %d operations recorded so far; %d histories of this round could not be decided\n%s", n, total, unproven, h.figures())
		}
		if unproven > len(before.objects)/10 {
			_ = h.wrong("%d of %d histories could not be decided", unproven, len(before.objects))
		}
		if h.failed(rec, command, wrong, before, after) {
			if h.curve != nil {
				h.curve.write(command)
			}
			return
		}
		before = after
		if last {
			break
		}
		before = h.afresh(after)
	}
	if total < 100 { // how much is done is the machine's business
		t.Errorf("only %d operations: nothing is shown by that", total)
	}
	// What moves now moves under nobody's hands: afterwards all is as it was, and nothing is left behind.
	stopDriving()
	drivers.Wait()
	now, _, _ := h.read(t)
	for object, state := range now.objects {
		if before.objects[object] != state {
			_ = h.wrong("%s was %v, and is %v although nobody has changed it", object, before.objects[object], state)
		}
	}
	h.atRest()
	if h.curve != nil {
		h.curve.flat()
		h.curve.left()
		h.curve.write(command)
	}
	h.nothingLeft()
	if h.failed(h.rec.Load(), command, nil, before, now) {
		return
	}
	h.clean()
}

// begin notes what a new connection has, and what the router that is never killed has in use.
func (h *histories) begin() {
	conn, err := h.dial(context.Background(), h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if h.freshly, err = (&client{h: h, conn: conn}).fresh(context.Background()); err != nil {
		h.t.Fatal(err)
	}
	if len(h.routers) < 3 {
		return
	}
	h.curve = &curve{h: h, of: h.routers[2]}
	if h.curve.first, err = h.curve.take(0, 0); err != nil {
		h.t.Fatal(err)
	}
}

// ring has two transactions on two routers wait for each other, each with the file that the other one wants: one
// of them is told so, and the other one goes on. The waits have no other end.
func (h *histories) ring() {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	var conns [2]*pgconn.PgConn
	for i := range conns {
		conn, err := h.dial(ctx, h.routers[i].url())
		if err != nil {
			h.t.Fatal(err)
		}
		defer conn.Close(context.Background())
		conns[i] = conn
	}
	do := func(i int, sql string) error { _, err := conns[i].Exec(ctx, sql).ReadAll(); return err }
	tenants := []string{h.onShard("s0", "SELECT min(tenant) FROM counter"), h.onShard("s1", "SELECT min(tenant) FROM counter")}
	add := func(tenant string) string { return "UPDATE counter SET n = n + 0 WHERE tenant = " + tenant }
	for i := range conns {
		for _, sql := range []string{"SET lock_timeout = '10min'", "BEGIN", add(tenants[i])} {
			if err := do(i, sql); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	ends := make(chan error, 2)
	began := time.Now()
	for i := range conns {
		go func() {
			err := do(i, add(tenants[1-i]))
			ends <- errors.Join(err, do(i, "ROLLBACK"))
		}()
	}
	errs := []error{<-ends, <-ends}
	if errs[0] == nil {
		errs[0], errs[1] = errs[1], errs[0]
	}
	h.t.Logf("a ring over two routers ended after %v", time.Since(began).Round(time.Millisecond))
	if errs[0] == nil || codeOf(errs[0]) != "40P01" || errs[1] != nil {
		h.t.Fatalf("two transactions that wait for each other on two routers get %v", errs)
	}
}

// failed reports whether anything must not have been, and writes everything down if so.
func (h *histories) failed(rec *recorder, command string, wrong []string, before, after world) bool {
	h.mu.Lock()
	faults := slices.Clone(h.faults)
	h.mu.Unlock()
	if len(faults) == 0 {
		return false
	}
	h.t.Errorf("%s\n\nagain: %s", strings.Join(faults, "\n"), command)
	h.moved.mu.Lock()
	head := command + "\n" + strings.Join(faults, "\n") + "\n\n" + strings.Join(h.moved.lines, "\n")
	h.moved.mu.Unlock()
	for _, r := range h.routers {
		head += "\n\n== log of " + r.listen + "\n" + r.text()
	}
	rec.write(h.t, head, wrong, before, after)
	return true
}

// figures are what was done so far.
func (h *histories) figures() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moved.mu.Lock()
	defer h.moved.mu.Unlock()
	var b strings.Builder
	for _, of := range []struct {
		name  string
		count map[string]int
	}{{"done", h.did}, {"errors", h.codes}, {"moves", h.moved.count}} {
		fmt.Fprintf(&b, "%s:", of.name)
		for i, k := range slices.Sorted(maps.Keys(of.count)) {
			if i > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, " %s %d", k, of.count[k])
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "the slowest took %v (%s); statements were held for %d ms at most", h.slowest.Round(time.Millisecond), h.slow, h.heldMax)
	return b.String()
}

// afresh empties what has grown, and returns the world after that.
func (h *histories) afresh(was world) world {
	ctx := context.Background()
	conn, err := h.dial(ctx, h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close(ctx)
	c := &client{h: h, conn: conn, prepared: map[string]string{}}
	do := func(sql string, hit int64) {
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			out, err := c.text(ctx, sql)
			if err == nil {
				if out.Hit != hit {
					_ = h.wrong("%s: %d rows, not %d", sql, out.Hit, hit)
				}
				return
			}
			if codeOf(err) == "lost" || codeOf(err) == "08007" || time.Now().After(end) {
				h.t.Fatalf("%s: %v", sql, err)
			}
			h.judge("between rounds", err)
		}
	}
	number := func(sql string) int64 {
		n, err := strconv.ParseInt(mustOne(h.t, c, sql), 10, 64)
		if err != nil {
			h.t.Fatal(err)
		}
		return n
	}
	do("DELETE FROM entry", number("SELECT count(*) FROM entry"))
	do("DELETE FROM job", number("SELECT count(*) FROM job"))
	h.rows = newBatches()
	do("UPDATE list SET body = ''", historyLists)
	next := world{objects: maps.Clone(was.objects)}
	for object := range next.objects {
		if kindOf(object) == "list" {
			next.objects[object] = ""
		}
	}
	return next
}

// atRest looks at everything when nothing moves and nobody works.
func (h *histories) atRest() {
	ctx := context.Background()
	list, err := h.rooms.Ops.Verify(ctx, admin.VerifyRequest{})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, v := range list {
		if v.Error != "" || v.Orphans != 0 || v.Strangers != 0 {
			_ = h.wrong("verify: %+v", v)
		}
	}
	conn, err := h.dial(ctx, h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close(ctx)
	c := &client{h: h, conn: conn, prepared: map[string]string{}}
	for _, all := range []map[string]string{constants, atomics} {
		for sql, want := range all {
			if got := mustOne(h.t, c, sql); got != want {
				_ = h.wrong("%s gave %s, not %s", sql, got, want)
			}
		}
	}
}

func mustOne(t testing.TB, c *client, sql string) string {
	t.Helper()
	out, err := c.text(context.Background(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return out.one()
}
