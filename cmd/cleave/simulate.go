package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cleavedb/cleave/internal/keysource"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement/simulate"
	"github.com/cleavedb/cleave/sqlstate"
)

// simulateFlags are the flags of `cleave simulate`.
type simulateFlags struct {
	from, table, format string
	columns, types      []string
	weights             []string
	spec                simulate.Spec
	top                 int
	svg, png, title     string
	advise              bool
}

func simulateCommand(a *app) *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Simulate a shard key: how even the shards would be, and what would move",
		Long: `Reads shard keys and says what each strategy would do with them: rows per shard,
skew (rows of the fullest shard over the mean: 1 is even), and what moves when
shards are added or removed. Then it gives advice on the key. Nothing is changed.

The keys come from
  FILE                 CSV or TSV with a header, JSON lines, or one key a line; .gz too
  -                    standard input, likewise
  table:NAME           a table of the cluster that --admin names, read on its shards
  postgres://...       any PostgreSQL database, with --table
  zipf:EXPONENT:ROWS[:KEYS[:SEED]], uniform:ROWS:KEYS[:SEED], serial:ROWS
                       keys made by a rule, the same ones each time

Keys are hashed as the router hashes them, and rows are counted one by one: the
rows per shard are what you would get. The strategies are balanced (equal ranges
of the hash, which is what Cleave makes), ring, jump, rendezvous, modulo (to
compare), and range (ranges of the key itself, cut where the data says).

--advise compares the columns of a table or file, and says which can be the key.
On a terminal, Ctrl-C ends it with what was counted by then (exit code 1).`,
		Example: `  cleave simulate --from orders.csv --column tenant_id --shards 8 --add 1 --remove 1
  cleave simulate --from postgres://app@db1/app --table orders --advise
  cleave simulate --from table:public.orders --weights 1,1,2,2 --shards 4 --svg orders.svg
  cut -f 3 access.log | cleave simulate --from - --format lines --json
  cleave simulate --from zipf:1.1:1000000 --strategies ring,jump,modulo --png zipf.png`,
		Args: args(0, 0),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.from, "from", "", "where the keys are: a file, -, table:NAME, postgres://... or a generator (required)")
	fl.StringVar(&f.table, "table", "", "table of the database that --from names")
	fl.StringSliceVar(&f.columns, "column", nil, "column of the key; several with commas between them; of a sharded table its shard key")
	fl.StringSliceVar(&f.types, "type", nil, "type of each column, as in CREATE TABLE; of a file it is guessed")
	fl.StringVar(&f.format, "format", "", "format of the file: csv, tsv, jsonl or lines; guessed by name and content")
	fl.StringSliceVar(&f.spec.Strategies, "strategies", simulate.Strategies(), "strategies to compare")
	fl.IntVar(&f.spec.Shards, "shards", 8, "number of shards; with table:NAME those of the cluster")
	fl.IntVar(&f.spec.Add, "add", 1, "number of shards to add")
	fl.IntVar(&f.spec.Remove, "remove", 0, "number of shards to remove, the last ones")
	fl.StringSliceVar(&f.weights, "weights", nil, "weight of each shard, then of those added; 1 if not given")
	fl.IntVar(&f.spec.VirtualNodes, "virtual-nodes", 0, "points of a shard on the ring; 0 is the default")
	fl.IntVar(&f.top, "top", 5, "number of heaviest keys to show, up to 100")
	fl.StringVar(&f.svg, "svg", "", "write a picture to this file, as SVG")
	fl.StringVar(&f.png, "png", "", "write a picture to this file, as PNG")
	fl.StringVar(&f.title, "title", "", "title of the picture")
	fl.BoolVar(&f.advise, "advise", false, "compare the columns as keys, instead of the strategies")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return &usageError{err, cmd}
		}
		return a.simulate(cmd, &f)
	}
	return cmd
}

// check looks at what can be wrong without looking at the keys.
func (f *simulateFlags) check() error {
	for _, w := range f.weights {
		x, err := strconv.ParseFloat(strings.TrimSpace(w), 64)
		if err != nil || !(x >= 0) || math.IsInf(x, 0) {
			return fmt.Errorf("--weights %s is not a number from 0", w)
		}
		f.spec.Weights = append(f.spec.Weights, x)
	}
	switch isTable := strings.HasPrefix(f.from, "table:") || isDatabase(f.from); {
	case f.from == "":
		return errMissing("--from", "a file, - for standard input, table:NAME, postgres://... or a generator such as zipf:1.1:1000000")
	case isDatabase(f.from) && f.table == "":
		return errMissing("--table", "the table of the database to read")
	case !isDatabase(f.from) && f.table != "":
		return errors.New("--table is for --from postgres://...; for a table of the cluster write --from table:" + f.table)
	case isTable && f.format != "":
		return errors.New("--format is for files")
	case isTable && len(f.types) > 0:
		return errors.New("--type is for files: a table knows its types")
	case len(f.types) > 0 && f.advise:
		return errors.New("--type is for one key, and --advise looks at many columns")
	case len(f.types) > 0 && len(f.types) != max(len(f.columns), 1):
		return fmt.Errorf("%d types are given for %d columns", len(f.types), max(len(f.columns), 1))
	case f.top < 0 || f.top > 100:
		return errors.New("--top is not from 0 to 100")
	case f.advise && (f.svg != "" || f.png != ""):
		return errors.New("--advise draws no picture; name the column to draw with --column")
	}
	return nil
}

func isDatabase(from string) bool {
	return strings.HasPrefix(from, "postgres://") || strings.HasPrefix(from, "postgresql://")
}

// simulate reads the keys and prints what they say.
func (a *app) simulate(cmd *cobra.Command, f *simulateFlags) error {
	parent := cmd.Context()
	ctx, stop := a.interruptible(parent)
	defer stop()
	cmd.SetContext(ctx)
	var source keysource.Source
	var facts []simulate.Column
	name := f.from
	if table, ok := strings.CutPrefix(f.from, "table:"); ok || isDatabase(f.from) {
		open := func() (*liveTable, error) { return a.openTable(cmd, table) }
		if !ok {
			open = func() (*liveTable, error) { return openDatabase(ctx, f.from, f.table) }
		}
		t, err := open()
		if err != nil {
			return err
		}
		source, facts, name = t, t.columns, "table "+t.schema+"."+t.name
		if len(f.columns) == 0 && !f.advise {
			f.columns = t.shardKey
		}
		if t.shards > 0 && !cmd.Flags().Changed("shards") {
			f.spec.Shards = t.shards
		}
	} else {
		s, err := a.openFile(f)
		if err != nil {
			return err
		}
		source = s
		if name == "-" {
			name = "standard input"
		}
	}
	defer source.Close()
	if err := f.spec.Check(); err != nil {
		return &usageError{err, cmd}
	}
	pick := f.columns
	if f.advise && len(pick) == 0 {
		pick = source.Columns()
	}
	columns, err := keysource.Pick(source, name, pick)
	if err != nil {
		return err
	}
	var known []simulate.Column
	if facts != nil {
		for _, c := range columns {
			known = append(known, facts[c])
		}
	}
	run := &simulation{app: a, f: f, source: source, name: name, columns: columns, facts: known, progress: a.newProgress(source)}
	if f.advise {
		return run.adviseColumns(ctx)
	}
	return run.key(ctx)
}

func (a *app) openFile(f *simulateFlags) (keysource.Source, error) {
	if s, ok, err := keysource.Generator(f.from); ok {
		return s, err
	}
	twice := !f.advise && slices.Contains(f.spec.Strategies, simulate.Range)
	return keysource.Open(f.from, f.format, a.stdin, twice)
}

// interruptible ends with the first signal; the second one kills the process as usual.
func (a *app) interruptible(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := a.signals
	release := func() {}
	if signals == nil {
		own := make(chan os.Signal, 1)
		signal.Notify(own, syscall.SIGINT, syscall.SIGTERM)
		signals, release = own, func() { signal.Stop(own) }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-signals:
			release()
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-done; release() }
}

// simulation is one run over a source.
type simulation struct {
	app      *app
	f        *simulateFlags
	source   keysource.Source
	name     string
	columns  []int
	facts    []simulate.Column // of the key's columns, for a live table
	progress *progress

	guessed bool
	profile *simulate.Profile
	tallies []*simulate.Tally
	failed  error
}

// types returns those that are known before reading.
func (s *simulation) types() ([]keyspace.Type, error) {
	var names []string
	for _, c := range s.facts {
		if c.Refused != "" {
			return nil, sqlstate.Refusal("CLV-1413", "column %s of type %s cannot be a shard key: %s", c.Name, c.Type, c.Refused).
				WithHint("--advise compares the columns that can")
		}
		names = append(names, c.Type)
	}
	if s.facts == nil {
		names = s.f.types
	}
	var types []keyspace.Type
	for _, n := range names {
		t, err := keyspace.ParseType(n)
		if err != nil {
			return nil, err
		}
		types = append(types, t)
	}
	return types, nil
}

// refused says why a type cannot be a shard key, "" if it can.
func refused(name string) string {
	if _, err := keyspace.ParseType(name); err != nil {
		message := sqlstate.As(err).Message
		if _, why, ok := strings.Cut(message, "cannot be a shard key: "); ok {
			return why
		}
		return message
	}
	return ""
}

// key simulates one key.
func (s *simulation) key(ctx context.Context) error {
	types, err := s.types()
	if err != nil {
		return err
	}
	o := keysource.Options{Columns: s.columns, Types: types, EmptyIsKey: s.facts != nil}
	err = keysource.Keys(ctx, s.source, o, s)
	s.progress.end()
	interrupted := ctx.Err() != nil
	if err != nil && !interrupted {
		return err
	}
	if s.profile == nil || s.profile.Rows() == 0 && !interrupted {
		return s.noKeys()
	}
	ranges, err := s.profile.Ranges(&s.f.spec)
	if err != nil {
		return err
	}
	if ranges != nil && !interrupted {
		o.Types = s.profile.Types()
		s.progress.begin("ranges")
		err = keysource.Keys(ctx, s.source, o, &second{s, ranges})
		s.progress.end()
		if interrupted = ctx.Err() != nil; err != nil && !interrupted {
			return err
		}
		s.tallies = append(s.tallies, ranges)
	}
	r := simulate.NewReport(&s.f.spec, s.profile, s.tallies, s.f.top)
	r.Source, r.Guessed, r.Interrupted = s.name, s.guessed, interrupted
	have := s.source.Columns()
	for _, c := range s.columns {
		r.Columns = append(r.Columns, have[c])
	}
	if len(have) == 1 && len(s.f.columns) == 1 {
		r.Columns = s.f.columns
	}
	r.Advice = append(r.Advice, simulate.Advise(r, s.facts)...)
	if err := s.draw(r); err != nil {
		return err
	}
	if s.app.json {
		err = s.app.printJSON(r)
	} else {
		err = printReport(s.app.stdout, r)
	}
	return s.ended(err, interrupted)
}

func (s *simulation) ended(err error, interrupted bool) error {
	if err == nil && interrupted {
		fmt.Fprintln(s.app.stderr, "cleave: interrupted: the figures are of the rows that were read by then")
		return reportedError{}
	}
	return err
}

func (s *simulation) noKeys() error {
	if s.profile != nil {
		if k := s.profile.Key(0); k.Nulls+k.Empty > 0 {
			return sqlstate.New(sqlstate.NullNotAllowed, "none of the %s rows of %s has a key: all are NULL or empty", simulate.Thousands(k.Nulls+k.Empty), s.name).
				WithHint("choose another --column; --advise compares them")
		}
	}
	if s.f.table != "" || strings.HasPrefix(s.f.from, "table:") {
		return sqlstate.New(sqlstate.ObjectNotInState, "%s has no rows", s.name).WithHint("load rows first, or try a load made by a rule: --from zipf:1.1:1000000")
	}
	return sqlstate.New(sqlstate.BadFileFormat, "%s has no rows", s.name).WithHint("a file needs a row after its header; one key a line without a header is --format lines")
}

// Types begins the first pass.
func (s *simulation) Types(types []keyspace.Type, guessed bool) {
	s.guessed = guessed
	s.profile = simulate.NewProfile(types)
	s.tallies, s.failed = s.f.spec.Tallies()
}

// Key counts a row.
func (s *simulation) Key(key keyspace.Key) error {
	if s.failed != nil {
		return s.failed
	}
	p := s.profile.Locate(key)
	s.profile.Add(key, p)
	for _, t := range s.tallies {
		t.Add(p)
	}
	s.progress.row()
	return nil
}

// Null counts a row without a key.
func (s *simulation) Null() { s.profile.AddNull() }

// Empty counts a row with an empty key.
func (s *simulation) Empty() { s.profile.AddEmpty() }

// second is the pass in which the range strategy is counted.
type second struct {
	s *simulation
	t *simulate.Tally
}

func (p *second) Types([]keyspace.Type, bool) {}

func (p *second) Key(key keyspace.Key) error {
	p.t.Add(p.s.profile.Locate(key))
	p.s.progress.row()
	return nil
}

func (p *second) Null()  {}
func (p *second) Empty() {}

// progress shows on a terminal how far it is.
type progress struct {
	w      io.Writer // nil where nobody looks
	source keysource.Source
	what   string
	rows   int64
	began  time.Time
	shown  time.Time
}

func (a *app) newProgress(s keysource.Source) *progress {
	p := &progress{source: s}
	if f, ok := a.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.w = f
	}
	p.begin("keys")
	return p
}

func (p *progress) begin(what string) { p.what, p.rows, p.began = what, 0, time.Now() }

func (p *progress) row() {
	if p.rows++; p.w == nil || p.rows%4096 != 0 || time.Since(p.shown) < 200*time.Millisecond {
		return
	}
	p.shown = time.Now()
	fmt.Fprintf(p.w, "\r\x1b[K%s", p.text(p.shown))
}

func (p *progress) text(now time.Time) string {
	spent := now.Sub(p.began).Seconds()
	line := fmt.Sprintf("%s: %s rows, %s a second", p.what, simulate.Thousands(uint64(p.rows)), simulate.Thousands(uint64(float64(p.rows)/max(spent, 0.001))))
	if done, all := p.source.Progress(); all > 0 && done > 0 {
		part := min(float64(done)/float64(all), 1)
		line += fmt.Sprintf(", %.0f %%, %s left", 100*part, (time.Duration(spent*(1-part)/part) * time.Second).Round(time.Second))
	}
	return line
}

func (p *progress) end() {
	if p.w != nil && !p.shown.IsZero() {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
