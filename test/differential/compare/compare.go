package compare

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Order is how far the order of rows counts.
type Order struct {
	// Any: it does not. Else rows have to come in the same order, if Columns is
	// empty, or with the same sequence in these columns (0-based), for an ORDER BY
	// that leaves ties.
	Any     bool
	Columns []int
}

// Options loosen the comparison where PostgreSQL itself leaves things open.
type Options struct {
	Order Order
	// Loose: numbers of type double precision and real may differ in their last
	// digits: sums depend on the order of rows.
	Loose bool
	// Messages: errors have to be equal in their words and position too, and the notices of what succeeds.
	Messages bool
	// Shape: only columns, tag and number of rows count: values are random or
	// made of sequences.
	Shape bool
	// Modifiers: a column may lack its type's modifier (numeric for numeric(10,2)) on one
	// of the sides: constants are folded sooner or later.
	Modifiers bool
	// Mistakes: of a statement that is not accepted any error of class 42, 22 or 23 will
	// do: it may have several mistakes.
	Mistakes bool
	// AnyError: where rows make a statement fail in several ways, any of the errors of
	// classes 22 and 23 will do: which row is met first is left open.
	AnyError bool
}

// Difference returns "" if got is what want is, else what differs.
func Difference(want, got *Outcome, o Options) string {
	switch {
	case want.Lost != nil:
		return fmt.Sprintf("the one database: %v", want.Lost)
	case got.Lost != nil:
		return fmt.Sprintf("the connection: %v", got.Lost)
	case want.Err != nil && got.Err == nil:
		return fmt.Sprintf("no error, want %s %s\n%s", want.Err.Code, want.Err.Message, got)
	case want.Err == nil && got.Err != nil:
		return fmt.Sprintf("error %s %s (detail %q, hint %q), want\n%s", got.Err.Code, got.Err.Message, got.Err.Detail, got.Err.Hint, want)
	case want.Err != nil:
		if o.AnyError && ofRows(want.Err.Code) && ofRows(got.Err.Code) {
			return ""
		}
		if o.Mistakes && strings.HasPrefix(want.Err.Code, "42") && (strings.HasPrefix(got.Err.Code, "42") || ofRows(got.Err.Code)) {
			return ""
		}
		if want.Err.Code != got.Err.Code {
			return fmt.Sprintf("error %s %s, want %s %s", got.Err.Code, got.Err.Message, want.Err.Code, want.Err.Message)
		}
		if o.Messages && !want.Refused() && (want.Err.Message != got.Err.Message || want.Err.Position != got.Err.Position) {
			return fmt.Sprintf("error %q at %d, want %q at %d", got.Err.Message, got.Err.Position, want.Err.Message, want.Err.Position)
		}
		return ""
	case o.Messages && !slices.Equal(want.Notices, got.Notices):
		return fmt.Sprintf("notices %q, want %q", got.Notices, want.Notices)
	case len(want.Results) != len(got.Results):
		return fmt.Sprintf("%d results, want %d", len(got.Results), len(want.Results))
	}
	for i := range want.Results {
		if d := difference(want.Results[i], got.Results[i], o); d != "" {
			return d
		}
	}
	return ""
}

// A statement with two mistakes (42883 is about types) tells one of them.
func ofRows(code string) bool {
	return strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23") || code == "42883"
}

func difference(want, got Result, o Options) string {
	if !slices.EqualFunc(want.Columns, got.Columns, func(w, g Column) bool {
		if o.Modifiers && (g.Modifier == -1 || w.Modifier == -1) {
			w.Modifier, g.Modifier = -1, -1
		}
		if _, err := strconv.ParseUint(g.Type, 10, 32); err == nil && w.Type != g.Type {
			if _, err := strconv.ParseUint(w.Type, 10, 32); err != nil {
				w.Type = g.Type // a type that its transaction alone sees has no name yet
			}
		}
		return w == g
	}) {
		return fmt.Sprintf("columns %v, want %v", got.Columns, want.Columns)
	}
	if want.Tag != got.Tag {
		return fmt.Sprintf("tag %q, want %q\n got:\n%swant:\n%s", got.Tag, want.Tag, show(got.Rows), show(want.Rows))
	}
	if len(want.Rows) != len(got.Rows) {
		return fmt.Sprintf("%d rows, want %d\n got:\n%swant:\n%s", len(got.Rows), len(want.Rows), show(got.Rows), show(want.Rows))
	}
	if o.Shape {
		return ""
	}
	w, g := want.Rows, got.Rows
	switch {
	case o.Order.Any:
		w, g = sorted(w), sorted(g)
	case len(o.Order.Columns) > 0:
		if !equal(project(w, o.Order.Columns), project(g, o.Order.Columns), want.Columns, o) {
			return fmt.Sprintf("another order\n got:\n%swant:\n%s", show(g), show(w))
		}
		w, g = sorted(w), sorted(g)
	}
	if equal(w, g, want.Columns, o) {
		return ""
	}
	what := "other rows"
	if equal(sorted(w), sorted(g), want.Columns, o) {
		what = "another order"
	}
	return fmt.Sprintf("%s\n got:\n%swant:\n%s", what, show(g), show(w))
}

func equal(want, got [][]string, columns []Column, o Options) bool {
	for i := range want {
		for j := range want[i] {
			if want[i][j] == got[i][j] || o.Loose && j < len(columns) && nearly(want[i][j], got[i][j], columns[j]) {
				continue
			}
			return false
		}
	}
	return true
}

func nearly(a, b string, c Column) bool {
	if c.Type != "701" && c.Type != "700" {
		return false
	}
	x, okX := float(a, c)
	y, okY := float(b, c)
	return okX && okY && math.Abs(x-y) <= 1e-6*max(math.Abs(x), math.Abs(y), 1)
}

func float(s string, c Column) (float64, bool) {
	if c.Format == 0 {
		f, err := strconv.ParseFloat(s, 64)
		return f, err == nil
	}
	var bits uint64
	for i := range len(s) {
		bits = bits<<8 | uint64(s[i])
	}
	if len(s) == 4 {
		return float64(math.Float32frombits(uint32(bits))), true
	}
	return math.Float64frombits(bits), len(s) == 8
}

func sorted(rows [][]string) [][]string {
	out := slices.Clone(rows)
	slices.SortFunc(out, slices.Compare)
	return out
}

func project(rows [][]string, columns []int) [][]string {
	out := make([][]string, len(rows))
	for i, r := range rows {
		for _, c := range columns {
			if c < len(r) {
				out[i] = append(out[i], r[c])
			}
		}
	}
	return out
}

// shownMax bounds the rows of a message.
const shownMax = 40

func show(rows [][]string) string {
	var b strings.Builder
	for i, r := range rows {
		if i == shownMax {
			fmt.Fprintf(&b, "  ... %d more\n", len(rows)-i)
			break
		}
		cells := make([]string, len(r))
		for j, v := range r {
			cells[j] = v
			if v == Null {
				cells[j] = "NULL"
			} else if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0xfffd }) {
				cells[j] = fmt.Sprintf("%x", v)
			}
		}
		b.WriteString("  " + strings.Join(cells, " | ") + "\n")
	}
	return b.String()
}

// String is the outcome as a message shows it.
func (o *Outcome) String() string {
	var b strings.Builder
	for _, r := range o.Results {
		fmt.Fprintf(&b, " %s\n%s", r.Tag, show(r.Rows))
	}
	if o.Err != nil {
		fmt.Fprintf(&b, " error %s %s\n", o.Err.Code, o.Err.Message)
	}
	if o.Lost != nil {
		fmt.Fprintf(&b, " lost: %v\n", o.Lost)
	}
	return b.String()
}

// Ordered reports whether a text has an ORDER BY outside of all brackets: the
// order of its rows counts then.
func Ordered(sql string) bool {
	depth, upper := 0, strings.ToUpper(sql)
	for i := 0; i < len(upper); i++ {
		switch c := upper[i]; {
		case c == '\'' || c == '"':
			if end := strings.IndexByte(upper[i+1:], c); end >= 0 {
				i += end + 1
			}
		case c == '(':
			depth++
		case c == ')':
			depth--
		case depth == 0 && strings.HasPrefix(upper[i:], "ORDER BY"):
			return true
		}
	}
	return false
}
