package simulation

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
	"github.com/cleavedb/cleave/internal/chart"
	"github.com/cleavedb/cleave/placement/simulate"
	"github.com/cleavedb/cleave/sqlstate"
)

// shardsShown is up to how many shards the rows of each are printed.
const shardsShown = 32

// printReport writes a report for people.
func printReport(w io.Writer, r *simulate.Report) error {
	var b strings.Builder
	guessed := ""
	if r.Guessed {
		guessed = ", guessed"
	}
	k := &r.Key
	fmt.Fprintf(&b, "%s: %s (%s%s)\n", terminal.Printable(r.Source), terminal.Printable(strings.Join(r.Columns, ", ")), strings.Join(r.Types, ", "), guessed)
	fmt.Fprintf(&b, "%s rows, %s distinct keys, on %d shards", simulate.Thousands(k.Rows), distinctText(k), r.Shards)
	if slices.ContainsFunc(r.Weights, func(x float64) bool { return x != r.Weights[0] }) {
		fmt.Fprintf(&b, " with weights %s", strings.Trim(fmt.Sprint(r.Weights), "[]"))
	}
	b.WriteByte('\n')
	if k.Nulls+k.Empty > 0 {
		fmt.Fprintf(&b, "without a key: %s NULL, %s empty\n", simulate.Thousands(k.Nulls), simulate.Thousands(k.Empty))
	}

	b.WriteByte('\n')
	var rows [][]string
	for _, p := range r.Strategies {
		write := "-"
		if p.WriteSkew > 0 {
			write = fmt.Sprintf("%.2f", p.WriteSkew)
		}
		rows = append(rows, []string{p.Strategy, fmt.Sprintf("%.2f", p.Skew), share(p.Deviation), write,
			fmt.Sprintf("shard-%d", p.Fullest), share(p.FullestShare)})
	}
	if err := terminal.Table(&b, []string{"STRATEGY", "SKEW", "DEVIATION", "WRITE SKEW", "FULLEST", "ITS SHARE"}, rows); err != nil {
		return err
	}
	if r.Shards <= shardsShown {
		if err := printShards(&b, r); err != nil {
			return err
		}
	}
	if err := printMoves(&b, r); err != nil {
		return err
	}
	if len(k.Top) > 0 {
		b.WriteByte('\n')
		rows = rows[:0]
		for _, t := range k.Top {
			n := simulate.Thousands(t.Rows)
			if t.Error > 0 {
				n = fmt.Sprintf("%s to %s", simulate.Thousands(t.Rows-t.Error), n)
			}
			rows = append(rows, []string{n, share(t.Share), terminal.Clipped(strings.Join(t.Key, ", "))})
		}
		if err := terminal.Table(&b, []string{"ROWS", "SHARE", "HEAVIEST KEYS"}, rows); err != nil {
			return err
		}
	}
	printAdvice(&b, r.Advice)
	_, err := io.WriteString(w, b.String())
	return err
}

func printShards(b *strings.Builder, r *simulate.Report) error {
	head := []string{"SHARD", "EVEN"}
	weight, rows := 0.0, uint64(0)
	for _, w := range r.Weights {
		weight += w
	}
	for _, p := range r.Strategies {
		head = append(head, strings.ToUpper(p.Strategy))
		rows = max(rows, p.Rows)
	}
	var table [][]string
	for i := range r.Shards {
		line := []string{fmt.Sprintf("shard-%d", i), simulate.Thousands(uint64(math.Round(float64(rows) * r.Weights[i] / weight)))}
		for _, p := range r.Strategies {
			line = append(line, simulate.Thousands(p.PerShard[i]))
		}
		table = append(table, line)
	}
	b.WriteByte('\n')
	return terminal.Table(b, head, table)
}

func printMoves(b *strings.Builder, r *simulate.Report) error {
	if len(r.Strategies) == 0 {
		return nil
	}
	for c, change := range r.Strategies[0].Changes {
		fmt.Fprintf(b, "\n%s: even shards need %s of the rows to move\n", changeText(change.Change), share(change.Minimum))
		var table [][]string
		for _, p := range r.Strategies {
			m := p.Changes[c]
			table = append(table, []string{p.Strategy, simulate.Thousands(m.Rows), share(m.RowShare), share(m.KeyShare),
				simulate.Thousands(m.Between), fmt.Sprintf("%.2f", m.Skew)})
		}
		if err := terminal.Table(b, []string{"STRATEGY", "ROWS MOVED", "OF ROWS", "OF KEYS", "FOR NOTHING", "SKEW AFTER"}, table); err != nil {
			return err
		}
	}
	return nil
}

// changeText writes "add 1" as "add 1 shard".
func changeText(change string) string {
	if strings.HasSuffix(change, " 1") {
		return change + " shard"
	}
	return change + " shards"
}

func printAdvice(b *strings.Builder, advice []simulate.Advice) {
	b.WriteByte('\n')
	if len(advice) == 0 {
		b.WriteString("advice: nothing speaks against this key\n")
		return
	}
	for _, a := range advice {
		fmt.Fprintf(b, "%-8s %s\n         why: %s\n         measured: %s\n         next: %s\n", a.Level, terminal.Printable(a.What), terminal.Printable(a.Why), terminal.Printable(a.Measured), terminal.Printable(a.Do))
	}
}

func distinctText(k *simulate.Key) string {
	if k.DistinctError == 0 {
		return simulate.Thousands(k.Distinct)
	}
	return "about " + simulate.Thousands(k.Distinct)
}

func share(s float64) string { return fmt.Sprintf("%.1f %%", 100*s) }

// draw writes the pictures that were asked for.
func (s *Run) draw(r *simulate.Report) error {
	for _, out := range []struct {
		path  string
		write func(*chart.Figure, io.Writer) error
	}{{s.SVG, (*chart.Figure).WriteSVG}, {s.PNG, (*chart.Figure).WritePNG}} {
		if out.path == "" {
			continue
		}
		if err := writeFile(out.path, func(w io.Writer) error { return out.write(figure(r, s.Title), w) }); err != nil {
			return sqlstate.Wrap(err, sqlstate.IOError, "the picture could not be written: %v", err).WithHint("name another file")
		}
	}
	return nil
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		_ = f.Close() // the first error is the one to report
		return err
	}
	return f.Close()
}

// figure makes a picture of a report.
func figure(r *simulate.Report, title string) *chart.Figure {
	if title == "" {
		title = "Rows per shard by " + strings.Join(r.Columns, ", ")
	}
	k := &r.Key
	f := &chart.Figure{Title: terminal.Printable(title)}
	f.Subtitle = fmt.Sprintf("%s rows, %s distinct keys, %d shards", simulate.Thousands(k.Rows), distinctText(k), r.Shards)
	if len(k.Top) > 0 {
		f.Subtitle += fmt.Sprintf("; the heaviest key has %s of the rows", share(k.Top[0].Share))
	}
	f.Foot = terminal.Printable(fmt.Sprintf("cleave simulate, key %s (%s) of %s", strings.Join(r.Columns, ", "), strings.Join(r.Types, ", "), r.Source))
	if r.Interrupted {
		f.Foot += "; interrupted"
	}
	weight := 0.0
	for _, w := range r.Weights {
		weight += w
	}
	for _, p := range r.Strategies {
		panel := chart.Panel{Name: p.Strategy, Note: fmt.Sprintf("skew %.2f, deviation %s", p.Skew, share(p.Deviation))}
		for i, n := range p.PerShard {
			panel.Rows = append(panel.Rows, float64(n))
			panel.Even = append(panel.Even, float64(p.Rows)*r.Weights[i]/weight)
		}
		f.Panels = append(f.Panels, panel)
		for c, m := range p.Changes {
			if len(f.Moves) <= c {
				f.Moves = append(f.Moves, chart.Move{Name: changeText(m.Change), Minimum: m.Minimum})
			}
			f.Moves[c].Shares = append(f.Moves[c].Shares, m.RowShare)
		}
	}
	return f
}
