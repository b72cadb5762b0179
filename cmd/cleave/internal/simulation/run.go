// Package simulation reads the keys of `cleave simulate` and prints what package placement/simulate says of them.
package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
	"github.com/cleavedb/cleave/internal/keysource"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement/simulate"
	"github.com/cleavedb/cleave/sqlstate"
)

// ErrInterrupted is of a run that a signal has ended; its report, and a line about that, are printed.
var ErrInterrupted = errors.New("interrupted")

// Run is one run over a source.
type Run struct {
	Spec simulate.Spec
	Top  int // of the heaviest keys, how many are shown
	// SVG and PNG are the files of pictures, Title their title; "": none, and one that is made.
	SVG, PNG, Title string
	JSON            bool
	Stdout, Stderr  io.Writer

	Source   keysource.Source
	Name     string
	Table    bool // the source is a table, not a file
	Columns  []int
	Given    []string          // the columns' names as they were asked for
	KeyTypes []string          // of a file, if they were
	Facts    []simulate.Column // of the key's columns, for a live table

	progress *progress
	guessed  bool
	profile  *simulate.Profile
	tallies  []*simulate.Tally
	failed   error
}

// keyTypes returns those that are known before reading.
func (s *Run) keyTypes() ([]keyspace.Type, error) {
	var names []string
	for _, c := range s.Facts {
		if c.Refused != "" {
			return nil, sqlstate.Refusal("CLV-1413", "column %s of type %s cannot be a shard key: %s", c.Name, c.Type, c.Refused).
				WithHint("--advise compares the columns that can.")
		}
		names = append(names, c.Type)
	}
	if s.Facts == nil {
		names = s.KeyTypes
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

// Simulate simulates one key.
func (s *Run) Simulate(ctx context.Context) error {
	s.progress = newProgress(s.Source, s.Stderr)
	types, err := s.keyTypes()
	if err != nil {
		return err
	}
	o := keysource.Options{Columns: s.Columns, Types: types, EmptyIsKey: s.Facts != nil}
	err = keysource.Keys(ctx, s.Source, o, s)
	s.progress.end()
	interrupted := ctx.Err() != nil
	if err != nil && !interrupted {
		return err
	}
	if s.profile == nil || s.profile.Rows() == 0 && !interrupted {
		return s.noKeys()
	}
	ranges, err := s.profile.Ranges(&s.Spec)
	if err != nil {
		return err
	}
	if ranges != nil && !interrupted {
		o.Types = s.profile.Types()
		s.progress.begin("ranges")
		err = keysource.Keys(ctx, s.Source, o, &second{s, ranges})
		s.progress.end()
		if interrupted = ctx.Err() != nil; err != nil && !interrupted {
			return err
		}
		s.tallies = append(s.tallies, ranges)
	}
	r := simulate.NewReport(&s.Spec, s.profile, s.tallies, s.Top)
	r.Source, r.Guessed, r.Interrupted = s.Name, s.guessed, interrupted
	have := s.Source.Columns()
	for _, c := range s.Columns {
		r.Columns = append(r.Columns, have[c])
	}
	if len(have) == 1 && len(s.Given) == 1 {
		r.Columns = s.Given
	}
	r.Advice = append(r.Advice, simulate.Advise(r, s.Facts)...)
	if err := s.draw(r); err != nil {
		return err
	}
	if s.JSON {
		err = terminal.JSON(s.Stdout, r)
	} else {
		err = printReport(s.Stdout, r)
	}
	return s.ended(err, interrupted)
}

func (s *Run) ended(err error, interrupted bool) error {
	if err == nil && interrupted {
		fmt.Fprintln(s.Stderr, "cleave: interrupted: the figures are of the rows that were read by then")
		return ErrInterrupted
	}
	return err
}

func (s *Run) noKeys() error {
	if s.profile != nil {
		if k := s.profile.Key(0); k.Nulls+k.Empty > 0 {
			return sqlstate.New(sqlstate.NullNotAllowed, "none of the %s rows of %s has a key: all are NULL or empty", simulate.Thousands(k.Nulls+k.Empty), s.Name).
				WithHint("choose another --column; --advise compares them")
		}
	}
	if s.Table {
		return sqlstate.New(sqlstate.ObjectNotInState, "%s has no rows", s.Name).WithHint("load rows first, or try a load made by a rule: --from zipf:1.1:1000000")
	}
	return sqlstate.New(sqlstate.BadFileFormat, "%s has no rows", s.Name).WithHint("a file needs a row after its header; one key a line without a header is --format lines")
}

// Types begins the first pass.
func (s *Run) Types(types []keyspace.Type, guessed bool) {
	s.guessed = guessed
	s.profile = simulate.NewProfile(types)
	s.tallies, s.failed = s.Spec.Tallies()
}

// Key counts a row.
func (s *Run) Key(key keyspace.Key) error {
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
func (s *Run) Null() { s.profile.AddNull() }

// Empty counts a row with an empty key.
func (s *Run) Empty() { s.profile.AddEmpty() }

// second is the pass in which the range strategy is counted.
type second struct {
	s *Run
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

func newProgress(s keysource.Source, stderr io.Writer) *progress {
	p := &progress{source: s}
	if f, ok := stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
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
