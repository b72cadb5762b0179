package crash

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/workflow"
)

var (
	seed     = flag.Uint64("seed", 0, "of what is chosen at random; 0: the time")
	whole    = flag.Bool("whole", false, "run the whole matrix, not a sample")
	only     = flag.String("only", "", "run the combinations whose names fit this regular expression")
	engines  = flag.String("engines", "postgres,sqlite", "the engines of the shards")
	atRandom = flag.Int("combinations", 1, "how many combinations of the sample are chosen at random, on each engine")
	lanes    = flag.Int("lanes", 0, "clusters at a time on each engine; 0: one, or with -whole one for four cores")
	from     = flag.Int("from", 0, "leave the first combinations of each engine out: another run with this seed had them")
	within   = flag.Duration("for", 0, "begin no combination after this time; 0: all are run")
)

func TestMain(m *testing.M) {
	flag.Parse()
	pgtest.Main(m)
}

// combination is one cell of the matrix.
type combination struct {
	scenario *scenario
	stage    stage
	choice
}

func (c combination) String() string {
	back := ""
	if c.stage.back {
		back = "back-"
	}
	var names []string
	for _, v := range c.victims {
		names = append(names, string(v))
	}
	return fmt.Sprintf("%s/%s%s/%s-%s", c.scenario.name, back, strings.ReplaceAll(string(c.stage.step), " ", "-"), strings.Join(names, "+"), c.fault)
}

// matrix is all combinations on an engine.
func matrix(engine string) (all []combination) {
	for i := range scenarios {
		for _, st := range scenarios[i].stages {
			for _, ch := range choices(engine) {
				all = append(all, combination{&scenarios[i], st, ch})
			}
		}
	}
	return all
}

// TestMatrix: each step that a workflow can be at is in the matrix, of each kind.
func TestMatrix(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../workflow/state.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	kinds, stages := map[workflow.Kind]bool{workflow.Move: true}, map[workflow.StepName]bool{}
	for i := range scenarios {
		kinds[scenarios[i].kind] = true
		for _, s := range scenarios[i].stages {
			stages[s.step] = true
		}
	}
	seen := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		typ, _ := spec.Type.(*ast.Ident)
		value, ok := spec.Values[0].(*ast.BasicLit)
		if typ == nil || !ok {
			return true
		}
		text, _ := strconv.Unquote(value.Value)
		switch typ.Name {
		case "StepName":
			if seen++; !workflow.StepName(text).Ended() && !stages[workflow.StepName(text)] {
				t.Errorf("the matrix has no step %q: add it to a scenario", text)
			}
		case "Kind":
			if seen++; !kinds[workflow.Kind(text)] {
				t.Errorf("the matrix has no workflow of the kind %q: add a scenario", text)
			}
		}
		return true
	})
	if seen < 20 {
		t.Errorf("only %d steps and kinds were found", seen)
	}
	for _, engine := range []string{"postgres", "sqlite"} {
		t.Logf("%d combinations on %s", len(matrix(engine)), engine)
	}
}

// always are run in each sample: each victim, each fault, and the steps of a cutover.
var always = map[string][]string{
	"postgres": {
		"move/closing/coordinator-paused",
		"rollback/back-opening/source+target-killed",
		"cancel/cancelling/router-cut",
		"keep/opened/coordinator+directory-killed",
	},
	"sqlite": {
		"move/opening/coordinator+router-killed",
		"rollback/back-closing/router-paused",
		"late/reopening/coordinator-killed",
		"merge/editing/directory-cut",
	},
}

// chosen are the combinations of this run.
func chosen(t *testing.T, engine string, r *rand.Rand) (list []combination) {
	all := matrix(engine)
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if *only != "" || *whole {
		fits, err := regexp.Compile(*only)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			if fits.MatchString(c.String()) {
				list = append(list, c)
			}
		}
		return list[min(*from, len(list)):]
	}
	for i, name := range always[engine] {
		if !testrun.Wants(i < 2) {
			continue // one combination takes a dozen seconds
		}
		found := false
		for _, c := range all {
			if c.String() == name {
				list, found = append(list, c), true
			}
		}
		if !found {
			t.Fatalf("the matrix has no %s", name)
		}
	}
	if testrun.InShort() {
		return list
	}
	return append(list, all[:*atRandom]...)
}

// TestCrash does a fault to processes of a cluster at a stored step of a workflow, while clients
// write: afterwards all that they were told is true, the workflow has ended by itself as it should,
// and nothing is left of it. A sample, of which the short run has a part; make crash runs the whole matrix.
func TestCrash(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d; the same again: go test ./test/crash -run TestCrash -seed %d", *seed, *seed)
	if _, err := program(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		path, _ := program()
		_ = os.RemoveAll(filepath.Dir(path))
	})
	n := *lanes
	if n == 0 {
		if n = 1; *whole {
			n = max(1, runtime.NumCPU()/4)
		}
	}
	began := time.Now()
	t.Run("engines", func(t *testing.T) {
		for _, engine := range strings.Split(*engines, ",") {
			list := chosen(t, engine, rand.New(rand.NewPCG(*seed, 1)))
			var mu sync.Mutex
			next, ran := 0, 0
			take := func() *combination {
				mu.Lock()
				defer mu.Unlock()
				if next == len(list) || *within > 0 && time.Since(began) > *within {
					return nil
				}
				next++
				return &list[next-1]
			}
			var operated atomic.Bool
			for range n {
				t.Run(engine, func(t *testing.T) {
					t.Parallel()
					c := take()
					for started := true; started && (c != nil || !operated.Load()); {
						started = false
						// A cluster in which something went wrong is not used again.
						t.Run("lane", func(t *testing.T) {
							l := newLane(t, engine)
							started = true
							good := true
							for ; good && c != nil; c = take() {
								from := time.Now()
								good = t.Run(c.String(), func(t *testing.T) { l.try(t, c) })
								mu.Lock()
								ran++
								t.Logf("%d of %d: %s in %v", ran, len(list), c, time.Since(from).Round(time.Millisecond))
								mu.Unlock()
							}
							if good && c == nil && operated.CompareAndSwap(false, true) {
								l.operations(t)
							}
							t.Logf("calls of clients: %d refused, %d acknowledged, %d unknown; problems: %v %q", l.bank.counts[refused], l.bank.counts[acknowledged], l.bank.counts[unknown], l.bank.problems, l.bank.said)
						})
					}
				})
			}
		}
	})
}

// try runs one combination.
func (l *lane) try(t *testing.T, c *combination) {
	l.t = t
	h := fnv.New64a()
	h.Write([]byte(c.String()))
	r := rand.New(rand.NewPCG(*seed, h.Sum64()))
	l.tried++
	w := &trial{lane: l, r: r, id: fmt.Sprintf("t%d", l.tried), waits: c.stage.step}
	defer func() {
		if t.Failed() {
			l.disarm()
			t.Logf("again: go test ./test/crash -run TestCrash -seed %d -only '^%s$'", *seed, regexp.QuoteMeta(c.String()))
			t.Log(l.history(w.id))
			for _, p := range l.processes {
				t.Logf("the log of %s:\n%s", p.name, p.log.String())
			}
		}
	}()
	defer w.unblock()
	w.tidy()
	list := c.stage.points(c.scenario.of(c.stage), c.scenario.keepMS)
	var at *point
	if len(list) > 0 {
		at = &list[r.IntN(len(list))]
	}
	begin := time.Now()
	c.scenario.begin(w, func() {
		if at != nil {
			l.arm(*at)
		}
	})
	leader := 0
	if at != nil {
		leader = l.reached(w.id)
	} else {
		l.await(w.id, c.stage.step)
	}
	// At the very point, or some moments into what comes after it.
	later := time.Duration(-1)
	if r.IntN(3) == 0 {
		later = time.Duration(r.IntN(30)) * time.Millisecond
		l.disarm()
		time.Sleep(later)
	}
	reached := time.Now()
	l.hit(c.choice, r, leader, w.source, w.target, l.disarm)
	healed := time.Now()
	w.unblock()
	if c.scenario.then != nil {
		c.scenario.then(w)
	}
	l.await(w.id, c.scenario.end)
	ended := time.Now()
	l.bank.progress(t)
	l.clean()
	l.bank.check(t)
	for _, p := range l.processes {
		if why := p.trouble(); why != "" {
			t.Error(why)
		}
	}
	if at == nil {
		at = &point{step: c.stage.step}
	}
	t.Logf("before %q (%d) of %q, %v later; there after %v, back after %v more, ended after %v, looked through after %v", at.op, at.n, at.step, later,
		reached.Sub(begin).Round(time.Millisecond), healed.Sub(reached).Round(time.Millisecond), ended.Sub(healed).Round(time.Millisecond), time.Since(ended).Round(time.Millisecond))
}

// of is the kind of workflow that a stage is one of: a parent's own, or one of its moves'.
func (s *scenario) of(st stage) workflow.Kind {
	switch st.step {
	case workflow.Planning, workflow.Working, workflow.Editing, workflow.Proposed, workflow.Choosing:
		return s.kind
	}
	return workflow.Move
}
