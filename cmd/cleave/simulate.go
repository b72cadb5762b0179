package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/cmd/cleave/internal/simulation"
	"github.com/cleavedb/cleave/internal/keysource"
	"github.com/cleavedb/cleave/placement/simulate"
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
	run := &simulation.Run{Top: f.top, SVG: f.svg, PNG: f.png, Title: f.title, JSON: a.json, Stdout: a.stdout, Stderr: a.stderr, Name: f.from, KeyTypes: f.types}
	var facts []simulate.Column
	if table, ok := strings.CutPrefix(f.from, "table:"); ok || isDatabase(f.from) {
		open := func() (*simulation.Table, error) { return a.openTable(cmd, table) }
		if !ok {
			open = func() (*simulation.Table, error) { return simulation.OpenDatabase(ctx, f.from, f.table) }
		}
		t, err := open()
		if err != nil {
			return err
		}
		run.Source, run.Table, facts, run.Name = t, true, t.Described, "table "+t.Schema+"."+t.Name
		if len(f.columns) == 0 && !f.advise {
			f.columns = t.ShardKey
		}
		if t.Shards > 0 && !cmd.Flags().Changed("shards") {
			f.spec.Shards = t.Shards
		}
	} else {
		s, err := a.openFile(f)
		if err != nil {
			return err
		}
		run.Source = s
		if f.from == "-" {
			run.Name = "standard input"
		}
	}
	defer run.Source.Close()
	if err := f.spec.Check(); err != nil {
		return &usageError{err, cmd}
	}
	run.Spec, run.Given = f.spec, f.columns
	pick := f.columns
	if f.advise && len(pick) == 0 {
		pick = run.Source.Columns()
	}
	var err error
	if run.Columns, err = keysource.Pick(run.Source, run.Name, pick); err != nil {
		return err
	}
	if facts != nil {
		for _, c := range run.Columns {
			run.Facts = append(run.Facts, facts[c])
		}
	}
	of := run.Simulate
	if f.advise {
		of = run.Advise
	}
	if err = of(ctx); errors.Is(err, simulation.ErrInterrupted) {
		return reportedError{}
	}
	return err
}

// openTable opens a table of the cluster that --admin names.
func (a *app) openTable(cmd *cobra.Command, name string) (*simulation.Table, error) {
	c, err := a.client(cmd)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	state, err := c.Map(cmd.Context(), 0)
	if err != nil {
		return nil, err
	}
	return simulation.OpenTable(cmd.Context(), state, name)
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
