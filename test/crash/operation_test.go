package crash

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/sqlstate"
)

// operation is a change of the cluster that is no workflow: one process does it, from its beginning to its end.
type operation struct {
	name string
	// steps is about how many steps it has, for the sample; without those after which something stays prepared for a minute.
	steps map[string]int
	// slow are the first and the last of steps in the midst of which that is so.
	slow [2]int
	// before makes what it needs. do asks for it, as often as it is called; ended says that it is done already.
	before func(o *operating)
	do     func(ctx context.Context, o *operating, a admin.API) error
	ended  func(o *operating) bool
	// look says what is wrong afterwards; after takes away what before has made.
	look  func(o *operating) []string
	after func(o *operating)
	// made: after takes away all that there is of it.
	made bool
	// others: what is left of it is ended by a router that was there all the time.
	others bool
	// place is where it stops, with the number of the step; "" is at the steps of the actor in the router that is asked.
	place string
	// server: that of a shard is killed, and the router goes on. Not with SQLite.
	server bool
	// always: it is in each sample.
	always bool
}

// actor is who does operations: their steps are counted.
const actor = "crash"

var asActor = admin.Meta{By: actor}

// operating is an operation that is under way.
type operating struct {
	*lane
	n int // of the try
	// router is the one that is asked.
	router *router
	// alone is the only one that is there.
	alone *router
	// command is what asks for it, if that is a program of its own.
	command atomic.Pointer[exec.Cmd]
	// home and away are the shards at the beginning, and those that everything goes to.
	home, away []admin.BootstrapShard
	from       string
	notes      *notes
	// acked and refused: what the client of a migration was told. looks counts the looks at it.
	acked, refused atomic.Bool
	looks          int
}

func (o *operating) table() string { return fmt.Sprintf("paper%d", o.n) }

var operations = []operation{
	{
		// The tables that are not sharded go to the other shard, while clients write to them.
		name: "default", always: true, others: true, steps: map[string]int{"postgres": 11, "sqlite": 11},
		before: func(o *operating) { o.from = o.snapshot().State().DefaultShard; o.notes.begin() },
		do: func(ctx context.Context, o *operating, a admin.API) error {
			to := "s0"
			if o.from == to {
				to = "s1"
			}
			_, err := a.MoveDefault(ctx, admin.MoveDefaultRequest{Meta: asActor, To: to})
			return err
		},
		ended: func(o *operating) bool { return false }, // done once more it opens what is closed
		look:  func(o *operating) []string { return o.notes.look(o) },
		after: func(o *operating) { o.notes.end() },
	},
	{
		// A table with rows becomes sharded, where it is.
		name: "distribute", made: true, others: true, steps: map[string]int{"postgres": 8, "sqlite": 12},
		before: func(o *operating) {
			def := o.snapshot().State().DefaultShard
			o.must(`CREATE TABLE `+o.table()+` (id bigint PRIMARY KEY, n int NOT NULL)`, `INSERT INTO `+o.table()+` SELECT n, n FROM generate_series(1, 300) AS n`,
				`SELECT cleave.create_keyspace('`+o.table()+`', 'hash', 'bigint', ranges => 2, shards => ARRAY['`+def+`'])`)
		},
		do: func(ctx context.Context, o *operating, a admin.API) error {
			_, err := a.Distribute(ctx, admin.DistributeRequest{Meta: asActor, Table: o.table(), ShardKey: []string{"id"}, Keyspace: o.table()})
			return err
		},
		ended: func(o *operating) bool {
			t, ok := o.snapshot().Table("public", o.table())
			return ok && t.Keyspace != ""
		},
		look: func(o *operating) []string {
			o.must(`INSERT INTO ` + o.table() + fmt.Sprintf(` VALUES (%d, 0)`, time.Now().UnixNano()))
			var bad []string
			for sql, want := range map[string]string{
				`SELECT count(*) || ' ' || sum(n) FROM ` + o.table() + ` WHERE n > 0`:             "300 45150",
				`SELECT count(*) FROM ` + o.table() + ` AS a JOIN ` + o.table() + ` b USING (id)`: o.ask(`SELECT count(*) FROM ` + o.table()),
			} {
				if got := o.ask(sql); got != want {
					bad = append(bad, sql+": "+got+", not "+want)
				}
			}
			return bad
		},
		after: func(o *operating) {
			o.must(`DROP TABLE `+o.table(), `SELECT cleave.drop_keyspace('`+o.table()+`')`)
		},
	},
	{
		// A shard comes, with the rows of reference tables, and goes.
		name: "add", made: true, others: true, steps: map[string]int{"postgres": 7, "sqlite": 7},
		before: func(o *operating) {
			o.must(`CREATE TABLE `+o.table()+` (id bigint PRIMARY KEY, n int) WITH (cleave.reference)`, `INSERT INTO `+o.table()+` SELECT n, n FROM generate_series(1, 300) AS n`)
		},
		do: func(ctx context.Context, o *operating, a admin.API) error {
			for _, f := range []func() error{
				func() error {
					_, err := a.AddShard(ctx, admin.AddShardRequest{Meta: asActor, Name: o.table(), URL: o.database()})
					return err
				},
				func() error {
					_, err := a.RemoveShard(ctx, admin.RemoveShardRequest{Meta: asActor, Name: o.table()})
					return err
				},
			} {
				// It may have been done before.
				if err := f(); err != nil && sqlstate.CodeOf(err) != sqlstate.DuplicateObject && sqlstate.CodeOf(err) != sqlstate.UndefinedObject {
					return err
				}
			}
			return nil
		},
		ended: func(o *operating) bool { return false },
		look: func(o *operating) []string {
			o.must(`INSERT INTO ` + o.table() + fmt.Sprintf(` VALUES (%d, 0)`, time.Now().UnixNano()))
			var bad []string
			want := o.ask(`SELECT count(*) FROM ` + o.table())
			for _, s := range o.snapshot().Shards() {
				if got, err := o.onShard(&s, `SELECT count(*) FROM `+o.table()); err != nil || got != want {
					bad = append(bad, fmt.Sprintf("%s has %s rows of the reference table, not %s (%v)", s.Name, got, want, err))
				}
			}
			return bad
		},
		after: func(o *operating) { o.must(`DROP TABLE ` + o.table()) },
	},
	{
		// An index that no transaction can hold comes, and goes.
		name: "index", made: true, steps: map[string]int{"postgres": 10, "sqlite": 10},
		before: func(o *operating) {
			o.must(`CREATE TABLE `+o.table()+` (id bigint PRIMARY KEY, n int) WITH (cleave.reference)`, `INSERT INTO `+o.table()+` SELECT n, n FROM generate_series(1, 300) AS n`)
		},
		do: func(ctx context.Context, o *operating, _ admin.API) error {
			conn, err := dial(ctx, strings.Replace(o.router.url, "//app@", "//"+actor+"@", 1))
			if err != nil {
				return err
			}
			defer conn.Close(context.Background())
			for _, sql := range []string{`CREATE INDEX CONCURRENTLY IF NOT EXISTS of_paper ON ` + o.table() + ` (n)`, `DROP INDEX CONCURRENTLY IF EXISTS of_paper`} {
				if _, err := conn.Exec(ctx, sql); err != nil {
					return err
				}
			}
			return nil
		},
		ended: func(o *operating) bool { return false },
		look: func(o *operating) []string {
			// Another router ends it when the lease of the dead one is over.
			o.eventually("the index is on all shards, or on none", func() error {
				sql := `SELECT count(*) || ' of ' || count(*) FILTER (WHERE indisvalid) FROM pg_index WHERE indexrelid = to_regclass('of_paper')`
				if o.engine == "sqlite" {
					sql = `SELECT count(*) FROM pg_class WHERE relname = 'of_paper'`
				}
				found := map[string]bool{}
				for _, s := range o.snapshot().Shards() {
					is, err := o.onShard(&s, sql)
					if err != nil {
						return err
					}
					found[is] = true
				}
				if len(found) > 1 || found["1 of 0"] {
					return fmt.Errorf("the shards have %v", slices.Sorted(maps.Keys(found)))
				}
				return nil
			})
			return nil
		},
		after: func(o *operating) { o.must(`DROP TABLE ` + o.table()) },
	},
	{
		// A column comes and is filled in the rows of all shards, in one transaction.
		name: "migrate", always: true, made: true, others: true, steps: map[string]int{"postgres": 13, "sqlite": 6}, slow: [2]int{8, 10},
		before: beforeMigrate, do: migrate, ended: isMigrated, look: lookMigrated, after: afterMigrate,
	},
	{
		// The same, and a shard's server is killed.
		name: "migrating", made: true, server: true, steps: map[string]int{"postgres": 13}, slow: [2]int{8, 10},
		before: beforeMigrate, do: migrate, ended: isMigrated, look: lookMigrated, after: afterMigrate,
	},
	{
		// Everything goes to other servers, and who asked for it is killed.
		name: "grow", place: "grow", steps: map[string]int{"postgres": 12, "sqlite": 12},
		before: (*operating).others,
		do:     func(ctx context.Context, o *operating, a admin.API) error { return o.grow(ctx, a, o.away, true) },
		ended:  func(o *operating) bool { return false },
		look:   func(o *operating) []string { return o.notes.look(o) },
		after:  (*operating).back,
	},
	{
		// The same, and the router that was asked is killed.
		name: "growing", steps: map[string]int{"postgres": 25, "sqlite": 25},
		before: (*operating).others,
		do:     func(ctx context.Context, o *operating, a admin.API) error { return o.grow(ctx, a, o.away, false) },
		ended:  func(o *operating) bool { return false },
		look:   func(o *operating) []string { return o.notes.look(o) },
		after:  (*operating).back,
	},
}

// grow asks for everything to go to shards, by the command or of a router.
func (o *operating) grow(ctx context.Context, a admin.API, to []admin.BootstrapShard, command bool) error {
	if !command {
		return admin.Grow(ctx, a, admin.GrowRequest{Meta: asActor, To: to, Complete: true}, func(string, ...any) {})
	}
	bin, err := program()
	if err != nil {
		return err
	}
	args := []string{"grow", "--admin", o.router.admin, "--finish"}
	for _, s := range to {
		args = append(args, "--to", s.Name+"="+s.URL)
	}
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = append(os.Environ(), "CLEAVE_CRASH_POINT="+o.point())
	var said tail
	cmd.Stdout, cmd.Stderr = &said, &said
	hold, err := cmd.StdinPipe() // it ends when this does
	if err != nil {
		return err
	}
	defer hold.Close()
	if err := cmd.Start(); err != nil {
		return err
	}
	o.command.Store(cmd)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("cleave grow: %w\n%s", err, said.String())
	}
	return nil
}

// others are the shards of the map before, and two databases in their place.
func (o *operating) others() {
	for _, s := range o.snapshot().Shards() {
		o.home = append(o.home, admin.BootstrapShard{Name: s.Name, URL: s.URL, Weight: 1})
	}
	for i := range 2 {
		o.away = append(o.away, admin.BootstrapShard{Name: fmt.Sprintf("g%d_%d", o.n, i), URL: pgtest.Database(o.t), Weight: 1})
	}
	o.notes.begin()
}

// back ends what others has begun: everything is where it was.
func (o *operating) back() {
	a, err := api.NewClient(o.router.admin)
	if err != nil {
		o.t.Fatal(err)
	}
	defer a.Close()
	o.eventually("everything is back", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return o.grow(ctx, a, o.home, false)
	})
	o.notes.end()
}

// database is the URL of a database of the try's own.
func (o *operating) database() string {
	if o.engine == "sqlite" {
		return "file:" + filepath.Join(o.folder, o.table()+".db")
	}
	return strings.Replace(o.servers[0].URL("bank"), "/bank?", "/"+o.table()+"?", 1)
}

// urls are those of the routers that are there, first and last.
func (o *operating) urls() [2]string {
	if o.alone != nil {
		return [2]string{o.alone.url, o.alone.url}
	}
	return [2]string{o.routers[0].url, o.routers[1].url}
}

func (o *operating) must(sql ...string) {
	o.t.Helper()
	for _, s := range sql {
		o.eventually(s, func() error { return o.execAt(o.urls()[0], s) })
	}
}

func (o *operating) ask(sql string) (text string) {
	o.t.Helper()
	o.eventually(sql, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), callMax)
		defer cancel()
		conn, err := dial(ctx, o.urls()[1])
		if err != nil {
			return err
		}
		defer conn.Close(context.Background())
		return conn.QueryRow(ctx, `SELECT (`+sql+`)::text`).Scan(&text)
	})
	return text
}

// notes are clients that write to tables that are not sharded, and what they were told.
type notes struct {
	l    *lane
	once sync.Once
	stop context.CancelFunc
	done sync.WaitGroup

	mu                       sync.Mutex
	next                     int
	acked, unknown, refused_ map[int]bool
}

func (n *notes) begin() {
	n.once.Do(func() {
		for _, sql := range []string{`CREATE TABLE author (id int PRIMARY KEY)`, `INSERT INTO author VALUES (0), (1)`,
			`CREATE TABLE note (id int PRIMARY KEY, author int NOT NULL REFERENCES author (id), number bigint DEFAULT 7, at timestamptz DEFAULT now())`,
			`CREATE INDEX note_author ON note (author)`, `CREATE VIEW written AS SELECT author, count(*) AS n FROM note GROUP BY author`} {
			n.l.eventually(sql, func() error { return n.l.exec(sql) })
		}
	})
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	for at, r := range n.l.routers {
		n.done.Go(func() { n.client(ctx, at, r.url) })
	}
}

func (n *notes) client(ctx context.Context, author int, url string) {
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(context.Background(), callMax)
		conn, err := dial(one, url)
		for err == nil && ctx.Err() == nil {
			n.mu.Lock()
			n.next++
			id := n.next
			n.mu.Unlock()
			_, err = conn.Exec(one, `INSERT INTO note (id, author) VALUES ($1, $2)`, id, author)
			n.mu.Lock()
			switch {
			case err == nil:
				n.acked[id] = true
			case code(err) == "" || code(err) == "08007":
				n.unknown[id] = true
			default:
				n.refused_[id] = true
			}
			n.mu.Unlock()
			time.Sleep(5 * time.Millisecond)
		}
		if conn != nil {
			_ = conn.Close(context.Background())
		}
		cancel()
		time.Sleep(20 * time.Millisecond)
	}
}

func (n *notes) end() {
	n.stop()
	n.done.Wait()
}

// look waits until every client is served again and says what is stored otherwise than they were told.
func (n *notes) look(o *operating) (bad []string) {
	n.mu.Lock()
	was := len(n.acked)
	n.mu.Unlock()
	n.l.eventually("the clients of the tables that are not sharded are served", func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.acked) < was+2*len(n.l.routers) {
			return fmt.Errorf("%d notes, after %d", len(n.acked), was)
		}
		return nil
	})
	n.mu.Lock()
	sure, max := len(n.acked), n.next
	told := make([]bool, max+1)
	for id := range n.acked {
		told[id] = true
	}
	n.mu.Unlock()
	found := map[int]bool{}
	for _, text := range strings.Split(o.ask(fmt.Sprintf(`SELECT string_agg(id::text, ' ' ORDER BY id) FROM note WHERE id <= %d`, max)), " ") {
		var id int
		if _, err := fmt.Sscan(text, &id); err != nil || found[id] {
			bad = append(bad, "note "+text+" is there twice, or is none")
		}
		found[id] = true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, ok := range told {
		if ok && !found[id] {
			bad = append(bad, fmt.Sprintf("of %d acknowledged notes %d is lost", sure, id))
		}
	}
	for id := range found {
		if n.refused_[id] {
			bad = append(bad, fmt.Sprintf("note %d was refused and is there", id))
		}
	}
	if sum := o.ask(`SELECT sum(n) FROM written`); sum == "" {
		bad = append(bad, "the view is empty")
	}
	return bad
}

// operate kills the process that does an operation at its step number n, and looks whether the cluster is whole again, then has it
// done and looks once more. It reports whether the operation has so many steps.
func (l *lane) operate(t *testing.T, op *operation, n int, r *rand.Rand) bool {
	l.tried++
	if l.notes == nil {
		l.notes = &notes{l: l, acked: map[int]bool{}, unknown: map[int]bool{}, refused_: map[int]bool{}}
	}
	o := &operating{lane: l, n: l.tried, notes: l.notes}
	before := l.shardRelations()
	op.before(o)
	if op.name == "add" && l.engine == "postgres" {
		if err := l.servers[0].CreateDatabase(t.Context(), o.table()); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		for _, p := range l.processes {
			if text := p.log.String(); strings.Contains(text, "a fault of the router") || t.Failed() {
				t.Errorf("the log of %s:\n%s", p.name, text)
			}
		}
	}()
	by := r.IntN(len(l.routers))
	o.router = l.routers[by]
	a, err := api.NewClient(o.router.admin)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	place := op.place
	if place == "" {
		place = "steps of " + actor
	}
	l.armAt(fmt.Sprintf("%s|%d", place, n))
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		done <- op.do(ctx, o, a)
	}()
	var bad []string
	reached := 0
	for ended := false; reached == 0 && !ended; {
		select {
		case err := <-done:
			if ended = true; err != nil {
				t.Logf("it ended with %v", err)
			}
		case <-time.After(time.Millisecond):
			reached = l.at()
		}
	}
	if cmd := o.command.Load(); reached != 0 && cmd != nil && cmd.Process.Pid == reached {
		_ = cmd.Process.Kill()
		<-done
	} else if reached != 0 && op.server {
		heal := l.hitServer(l.servers[r.IntN(len(l.servers))], killed)
		l.disarm()
		// The router asks the dead server for some seconds, and gives it up.
		time.Sleep([]time.Duration{0, 4 * time.Second}[r.IntN(2)])
		heal()
		if err := <-done; err != nil {
			t.Logf("it ended with %v", err)
		}
	} else if reached != 0 {
		p := l.routers[by]
		p.kill()
		l.disarm()
		if op.others {
			o.alone = l.routers[1-by]
			bad = append(bad, op.look(o)...)
			o.alone = nil
		} else {
			time.Sleep([]time.Duration{0, 150 * time.Millisecond, 2 * leaseTTL}[r.IntN(3)])
		}
		if err := p.start(); err != nil {
			t.Fatal(err)
		}
		<-done
	}
	l.disarm()
	bad = append(bad, op.look(o)...)
	other, err := api.NewClient(l.routers[1-by].admin)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	o.router = l.routers[1-by]
	l.eventually(op.name+" is done", func() error {
		if op.ended(o) {
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return op.do(ctx, o, other)
	})
	bad = append(bad, op.look(o)...)
	if len(bad) > 0 {
		t.Errorf("killed at step %d (reached: %v):\n%s", n, reached != 0, lines(bad, 20))
	}
	for end := time.Now().Add(settleMax); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		var wrong []string
		for _, text := range l.doctor(ctx) {
			if !slices.Contains(l.usual, text) && !strings.Contains(text, "is not in the map") && !strings.Contains(text, "a crash of the machine can destroy") {
				wrong = append(wrong, text)
			}
		}
		cancel()
		if len(wrong) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("killed at step %d, this is left or wrong:\n%s", n, lines(wrong, 20))
		}
	}
	op.after(o)
	if now := l.shardRelations(); op.made && now != before {
		t.Errorf("killed at step %d, the shards had\n%s\nand have\n%s", n, before, now)
	}
	l.bank.progress(t)
	l.bank.check(t)
	return reached != 0
}

// operations kills who does operations at some of their steps: those of always and another one at one each, with -whole all at each.
func (l *lane) operations(t *testing.T) {
	fits := regexp.MustCompile(*only)
	r := rand.New(rand.NewPCG(*seed, 2))
	sampled := 1 + r.IntN(len(operations)-1)
	for i := range operations {
		op := &operations[i]
		if op.steps[l.engine] == 0 {
			continue
		}
		if sample := !*whole && *only == ""; sample && !op.always && i != sampled || !sample && !fits.MatchString("operation/"+op.name) {
			continue
		}
		t.Run("operation/"+op.name, func(t *testing.T) {
			l.t = t
			began := time.Now()
			if !*whole && *only == "" {
				n := 1 + r.IntN(op.steps[l.engine])
				for n >= op.slow[0] && n <= op.slow[1] {
					n = 1 + r.IntN(op.steps[l.engine])
				}
				l.operate(t, op, n, r)
				t.Log(time.Since(began).Round(time.Millisecond))
				return
			}
			more := true
			for n := 1; more && !t.Failed() && (*within == 0 || time.Since(began) < *within); n++ {
				t.Run(fmt.Sprint(n), func(t *testing.T) {
					l.t = t
					more = l.operate(t, op, n, r)
				})
			}
		})
	}
}
