package keysource

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// recordMax bounds one record of a file, bytes.
const recordMax = 16 << 20

// Rows gives the rows of a source.
type Rows interface {
	// Columns are the names of the columns there are.
	Columns() []string
	// Rows reads all rows from the beginning, and gives visit the values of these
	// columns: nil is NULL; valid until visit returns. It ends with the first
	// error, which is visit's or has an SQLSTATE; or with ctx's.
	Rows(ctx context.Context, columns []int, visit func(fields [][]byte) error) error
}

// Source is a file, standard input or a generator.
type Source interface {
	Rows
	// Progress returns how much was read in this pass and how much there is, in
	// bytes or rows; 0 if that is not known. Safe for concurrent use.
	Progress() (done, all int64)
	Close() error
}

// Pick finds columns by name. It fails with 42703, naming those there are, or
// with 22023 if none is named and there are several.
func Pick(r Rows, from string, names []string) ([]int, error) {
	have := r.Columns()
	if len(names) == 0 {
		if len(have) == 1 {
			return []int{0}, nil
		}
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "%s has %d columns, so --column has to say which are the key", from, len(have)).
			WithHint("--column with one of %s; several with commas between them; or --advise, to compare them all", List(have))
	}
	if f, ok := r.(*file); ok && f.format == "lines" && len(names) == 1 {
		return []int{0}, nil // a line has no name of its own
	}
	var out []int
	for _, n := range names {
		i := slices.Index(have, n)
		if i < 0 {
			i = slices.IndexFunc(have, func(h string) bool { return strings.EqualFold(strings.TrimSpace(h), strings.TrimSpace(n)) })
		}
		if i < 0 {
			return nil, sqlstate.New(sqlstate.UndefinedColumn, "%s has no column %q", from, n).WithHint("it has %s", List(have))
		}
		if slices.Contains(out, i) {
			return nil, sqlstate.New(sqlstate.InvalidParameterValue, "column %q is named twice", n).WithHint("name each column of the key once")
		}
		out = append(out, i)
	}
	return out, nil
}

// List writes names for a hint, not too many.
func List(names []string) string {
	const most = 30
	var b strings.Builder
	for i, n := range names {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(names)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		if r := []rune(n); len(r) > 60 {
			n = string(r[:60]) + "…"
		}
		b.WriteString(n)
	}
	return b.String()
}
