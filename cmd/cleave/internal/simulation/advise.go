package simulation

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
	"github.com/cleavedb/cleave/internal/keysource"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement/simulate"
	"github.com/cleavedb/cleave/sqlstate"
)

// advisedMax bounds the columns that are compared: each takes up to 1 MiB.
const advisedMax = 100

// Comparison is the JSON of `cleave simulate --advise --json`.
type Comparison struct {
	Source      string               `json:"source"`
	Rows        uint64               `json:"rows"`
	Shards      int                  `json:"shards"`
	Interrupted bool                 `json:"interrupted"`
	Candidates  []simulate.Candidate `json:"candidates"` // the best first
}

// candidate is a column while it is read.
type candidate struct {
	fact    simulate.Column
	profile *simulate.Profile // nil if it cannot be a key
	key     keyspace.Key
}

// Advise reads all columns once and ranks them as keys.
func (s *Run) Advise(ctx context.Context) error {
	if len(s.Columns) > advisedMax {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "%d columns are more than %d", len(s.Columns), advisedMax).
			WithHint("name those to compare with --column")
	}
	s.progress = newProgress(s.Source, s.Stderr)
	have := s.Source.Columns()
	list := make([]*candidate, len(s.Columns))
	var read []int // of the source: those that can be keys
	var of []*candidate
	for i, c := range s.Columns {
		list[i] = &candidate{fact: simulate.Column{Name: have[c], Updates: -1}, key: make(keyspace.Key, 1)}
		if s.Facts != nil {
			list[i].fact = s.Facts[i]
		}
		if list[i].fact.Refused == "" {
			read, of = append(read, c), append(of, list[i])
		}
	}
	total := uint64(0)
	var held [][][]byte
	size := 0
	row := func(fields [][]byte) error {
		total++
		s.progress.row()
		for i, f := range fields {
			of[i].add(f, s.Facts != nil)
		}
		return nil
	}
	settle := func() error {
		for i, c := range of {
			t := keysource.Guess(func(yield func([]byte) bool) {
				for _, r := range held {
					if !yield(r[i]) {
						return
					}
				}
			})
			if s.Facts != nil {
				var err error
				if t, err = keyspace.ParseType(c.fact.Type); err != nil {
					return err
				}
			}
			c.fact.Type = t.String()
			c.profile = simulate.NewColumnProfile(t)
		}
		rows := held
		held, size = nil, -1
		for _, r := range rows {
			if err := row(r); err != nil {
				return err
			}
		}
		return nil
	}
	err := s.Source.Rows(ctx, read, func(fields [][]byte) error {
		if size < 0 {
			return row(fields)
		}
		copied := make([][]byte, len(fields))
		for i, f := range fields {
			if f != nil {
				copied[i] = append([]byte{}, f...)
			}
			size += len(f) + 24
		}
		if held = append(held, copied); s.Facts == nil && len(held) < 10_000 && size < 8<<20 {
			return nil
		}
		return settle()
	})
	if size >= 0 {
		if settled := settle(); err == nil {
			err = settled
		}
	}
	s.progress.end()
	interrupted := ctx.Err() != nil
	if err != nil && !interrupted {
		return err
	}
	if total == 0 && !interrupted {
		return s.noKeys()
	}
	out := Comparison{Source: s.Name, Rows: total, Shards: s.Spec.Shards, Interrupted: interrupted, Candidates: []simulate.Candidate{}}
	for _, c := range list {
		out.Candidates = append(out.Candidates, simulate.NewCandidate(c.fact, s.Facts != nil, c.profile, s.Spec.Shards))
	}
	simulate.Rank(out.Candidates)
	if s.JSON {
		err = terminal.JSON(s.Stdout, out)
	} else {
		err = out.print(s.Stdout)
	}
	return s.ended(err, interrupted)
}

// add counts a value. A value that is not of the type that was guessed takes the
// column out.
func (c *candidate) add(f []byte, emptyIsKey bool) {
	switch {
	case c.profile == nil:
		return
	case f == nil:
		c.profile.AddNull()
		return
	case len(f) == 0:
		c.profile.AddEmpty()
		if !emptyIsKey {
			return
		}
	}
	v, err := keyspace.ParseText(c.profile.Types()[0], f)
	if err != nil {
		c.fact.Refused = fmt.Sprintf("its values are of several types: %v", sqlstate.As(err).Message)
		c.profile = nil
		return
	}
	c.key[0] = v
	c.profile.Add(c.key, c.profile.Locate(c.key))
}

func (c *Comparison) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s rows, as keys for %d shards\n\n", terminal.Printable(c.Source), simulate.Thousands(c.Rows), c.Shards)
	var rows [][]string
	for i := range c.Candidates {
		x := &c.Candidates[i]
		line := []string{x.Column, x.Type, string(x.Verdict), "-", "-", "-", ""}
		if x.Key.Rows > 0 {
			line[3], line[5] = distinctText(&x.Key), fmt.Sprintf("%.2f", x.BestSkew)
			if len(x.Key.Top) > 0 {
				line[4] = share(x.Key.Top[0].Share)
			}
		}
		if len(x.Reasons) > 0 {
			line[6] = terminal.Clipped(x.Reasons[0])
		}
		rows = append(rows, line)
	}
	if err := terminal.Table(&b, []string{"COLUMN", "TYPE", "VERDICT", "KEYS", "HEAVIEST", "BEST SKEW", "BECAUSE"}, rows); err != nil {
		return err
	}
	b.WriteByte('\n')
	if best := &c.Candidates[0]; best.Verdict == simulate.Poor {
		fmt.Fprintf(&b, "no column is a good key by itself; two together may be: cleave simulate --column A,B\n")
	} else {
		fmt.Fprintf(&b, "%s is the best by what can be measured. A key also has to be in nearly every WHERE clause; that only you know.\n", terminal.Printable(best.Column))
		for _, reason := range best.Reasons {
			fmt.Fprintf(&b, "  %s\n", terminal.Printable(reason))
		}
		fmt.Fprintf(&b, "next: cleave simulate --from ... --column %s\n", terminal.Printable(best.Column))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
