package planner

import (
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/internal/sqlguard"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// sourceText is the text of the statement: its tokens, and where in it stands what the tree has.
type sourceText struct {
	sql  string
	toks []sqlguard.Token // see tokens
	// counted is up to where position has counted the characters of sql.
	counted struct{ bytes, runes int }
}

// relationSpan is where a relation's name, with its schema, stands in the text; it begins at token i. ok is false where it cannot be told.
func (src *sourceText) relationSpan(i int, rel *pg.RangeVar) (from, to int, ok bool) {
	ts := src.tokens()
	if rel.Schemaname == "" {
		return ts[i].Start, ts[i].End, true
	}
	if !src.punct(i+1, '.') || i+2 >= len(ts) {
		return 0, 0, false
	}
	return ts[i].Start, ts[i+2].End, true
}

// cutOptions cuts the options that begin at the offsets out of WITH (...), and
// WITH () altogether if none is left.
func (src *sourceText) cutOptions(at []int32) []sqltext.Edit {
	if len(at) == 0 {
		return nil
	}
	ts, depth := src.top()
	mine := map[int]bool{}
	for _, o := range at {
		mine[int(o)] = true
	}
	// The bracket that the first option is in.
	open := -1
	for i, t := range ts {
		if t.IsPunct(src.sql, '(') && depth[i] == 0 {
			open = i
		}
		if mine[t.Start] {
			break
		}
	}
	if open < 1 || !ts[open-1].Is(src.sql, "with") {
		fail(sqlstate.New(sqlstate.InternalError, "the options of the table were not found in the text"))
	}
	type span struct{ from, to int }
	var kept []span
	start := open + 1
	i := open + 1
	for ; i < len(ts); i++ {
		last := depth[i] == 0 && ts[i].IsPunct(src.sql, ')')
		if last || depth[i] == 1 && ts[i].IsPunct(src.sql, ',') {
			if start < i && !mine[ts[start].Start] {
				kept = append(kept, span{ts[start].Start, ts[i-1].End})
			}
			start = i + 1
		}
		if last {
			break
		}
	}
	if i >= len(ts) {
		fail(sqlstate.New(sqlstate.InternalError, "the options of the table were not found in the text"))
	}
	if len(kept) == 0 {
		from := ts[open-1].Start
		for from > 0 && (src.sql[from-1] == ' ' || src.sql[from-1] == '\t') {
			from--
		}
		return []sqltext.Edit{{From: from, To: ts[i].End}}
	}
	parts := make([]string, len(kept))
	for j, k := range kept {
		parts[j] = src.sql[k.from:k.to]
	}
	return []sqltext.Edit{{From: ts[open].End, To: ts[i].Start, Text: strings.Join(parts, ", ")}}
}

// notNullEdit adds NOT NULL at the end of a column's definition.
func (src *sourceText) notNullEdit(c *pg.ColumnDef) sqltext.Edit {
	ts, depth := src.top()
	for i, t := range ts {
		if t.Start != int(c.Location) {
			continue
		}
		d := depth[i]
		for j := i + 1; j < len(ts); j++ {
			if depth[j] == d && ts[j].IsPunct(src.sql, ',') || depth[j] < d {
				return sqltext.Edit{From: ts[j-1].End, To: ts[j-1].End, Text: " NOT NULL"}
			}
		}
	}
	fail(sqlstate.New(sqlstate.InternalError, "column %q was not found in the text", c.Colname))
	return sqltext.Edit{}
}

// databaseSpan is where a databaseCall stands.
func (src *sourceText) databaseSpan(m proto.Message) (e sqltext.Edit, ok bool) {
	ts := src.tokens()
	if v, is := m.(*pg.SQLValueFunction); is {
		i := src.tokenAt(v.Location)
		if i < 0 {
			return e, false
		}
		return sqltext.Edit{From: ts[i].Start, To: ts[i].End}, true
	}
	i := src.tokenAt(m.(*pg.FuncCall).Location)
	for j := i; j >= 0 && j < min(i+4, len(ts)-1); j++ {
		if src.punct(j, '(') && src.punct(j+1, ')') {
			return sqltext.Edit{From: ts[i].Start, To: ts[j+1].End}, true
		}
	}
	return e, false
}

func (src *sourceText) tokens() []sqlguard.Token {
	if src.toks == nil {
		src.toks = sqlguard.Tokens(src.sql)
	}
	return src.toks
}

// tokenAt returns the index of the token that begins at a byte, -1 if there is none.
func (src *sourceText) tokenAt(offset int32) int {
	ts := src.tokens()
	i := sort.Search(len(ts), func(i int) bool { return ts[i].Start >= int(offset) })
	if i < len(ts) && ts[i].Start == int(offset) {
		return i
	}
	return -1
}

func (src *sourceText) punct(i int, c byte) bool {
	ts := src.tokens()
	return i >= 0 && i < len(ts) && ts[i].IsPunct(src.sql, c)
}

func (src *sourceText) word(i int, w string) bool {
	ts := src.tokens()
	return i >= 0 && i < len(ts) && ts[i].Is(src.sql, w)
}

// closing returns the index of the bracket that closes the one at i.
func (src *sourceText) closing(i int) int {
	ts := src.tokens()
	for d := 0; i < len(ts); i++ {
		if ts[i].Kind != sqlguard.Punct {
			continue
		}
		switch src.sql[ts[i].Start] {
		case '(', '[':
			d++
		case ')', ']':
			if d--; d == 0 {
				return i
			}
		}
	}
	return lostPlace()
}

// callSpan is where a call is in the text.
func (src *sourceText) callSpan(f *pg.FuncCall) (from, to int) {
	i := src.tokenAt(f.Location)
	if i < 0 {
		lostPlace()
	}
	ts := src.tokens()
	from = ts[i].Start
	for ; i < len(ts); i++ {
		if src.punct(i, '(') {
			return from, ts[src.closing(i)].End
		}
	}
	lostPlace()
	return 0, 0
}

// targetEnd is where the expression of a SELECT's output column ends.
func (src *sourceText) targetEnd(r *pg.ResTarget) int {
	i := src.tokenAt(r.Location)
	if i < 0 {
		lostPlace()
	}
	ts := src.tokens()
	for first := i; i < len(ts); i++ {
		switch {
		case src.punct(i, '(') || src.punct(i, '['):
			i = src.closing(i)
		case i > first && (src.punct(i, ',') || src.punct(i, ';') || src.punct(i, ')')):
			return ts[i-1].End
		}
	}
	return ts[len(ts)-1].End
}

// position turns a byte offset into a 1-based character position.
func (src *sourceText) position(offset int32) int {
	if offset < 0 || int(offset) > len(src.sql) {
		return 0
	}
	// Counted from the place before, so that a long statement is not counted whole for each of its literals.
	if int(offset) < src.counted.bytes {
		src.counted.bytes, src.counted.runes = 0, 0
	}
	src.counted.runes += utf8.RuneCountInString(src.sql[src.counted.bytes:offset])
	src.counted.bytes = int(offset)
	return src.counted.runes + 1
}

// columnEnd is where a column's definition ends in the text.
func (src *sourceText) columnEnd(c *pg.ColumnDef) int {
	i := src.tokenAt(c.Location)
	if i < 0 {
		lostPlace()
	}
	ts := src.tokens()
	for i++; i < len(ts); i++ {
		switch {
		case src.punct(i, '(') || src.punct(i, '['):
			i = src.closing(i)
		case src.punct(i, ',') || src.punct(i, ')') || src.punct(i, ';'):
			return ts[i-1].End
		}
	}
	return ts[len(ts)-1].End
}

// identitySpan is where GENERATED ... AS IDENTITY (...) is in the text.
func (src *sourceText) identitySpan(x *pg.Constraint) (from, to int) {
	i := src.tokenAt(x.Location)
	ts := src.tokens()
	if i < 0 {
		lostPlace()
	}
	for from = ts[i].Start; i < len(ts); i++ {
		if src.word(i, "identity") {
			if src.punct(i+1, '(') {
				i = src.closing(i + 1)
			}
			return from, ts[i].End
		}
	}
	lostPlace()
	return 0, 0
}

// depth is how many brackets a token is in.
func (src *sourceText) depth(at int) int {
	d := 0
	for i := range at {
		switch {
		case src.punct(i, '(') || src.punct(i, '['):
			d++
		case src.punct(i, ')') || src.punct(i, ']'):
			d--
		}
	}
	return d
}

// intervalFields returns what stands after the string of an interval literal.
func (src *sourceText) intervalFields() string {
	ts := sqlguard.Tokens(src.sql)
	for i := len(ts) - 1; i >= 0; i-- {
		if ts[i].Kind == sqlguard.String {
			var out []string
			for _, t := range ts[i+1:] {
				if t.Kind == sqlguard.Ident {
					out = append(out, strings.ToUpper(src.sql[t.Start:t.End]))
				}
			}
			if len(out) > 0 {
				return " " + strings.Join(out, " ")
			}
			break
		}
	}
	return ""
}

// top returns the tokens of the statement, and for each whether it is outside
// of all brackets.
func (src *sourceText) top() ([]sqlguard.Token, []int) {
	ts := sqlguard.Tokens(src.sql)
	depth := make([]int, len(ts))
	d := 0
	for i, t := range ts {
		if t.Kind == sqlguard.Punct {
			switch src.sql[t.Start] {
			case ')', ']':
				d--
			}
		}
		depth[i] = d
		if t.Kind == sqlguard.Punct {
			switch src.sql[t.Start] {
			case '(', '[':
				d++
			}
		}
	}
	return ts, depth
}

// after returns the text from token i on, without a semicolon at the end.
func (src *sourceText) after(ts []sqlguard.Token, i int) string {
	if i >= len(ts) {
		return ""
	}
	end := ts[len(ts)-1].End
	for n := len(ts) - 1; n > i && ts[n].IsPunct(src.sql, ';'); n-- {
		end = ts[n-1].End
	}
	return src.sql[ts[i].Start:end]
}

// afterExplain returns the text of the statement that EXPLAIN explains.
func (src *sourceText) afterExplain() string {
	ts, depth := src.top()
	i := 1
	if i < len(ts) && ts[i].IsPunct(src.sql, '(') {
		// (options), unless it is EXPLAIN (SELECT ...)
		if i+1 < len(ts) && !ts[i+1].Is(src.sql, "select") && !ts[i+1].Is(src.sql, "with") && !ts[i+1].Is(src.sql, "values") && !ts[i+1].IsPunct(src.sql, '(') {
			for i++; i < len(ts) && depth[i] > 0; i++ {
			}
			i++
		}
	} else {
		for i < len(ts) && (ts[i].Is(src.sql, "analyze") || ts[i].Is(src.sql, "analyse") || ts[i].Is(src.sql, "verbose")) {
			i++
		}
	}
	return src.after(ts, i)
}

// executeArgs returns the texts of EXECUTE name (a, b), and where each begins; a string,
// however it is written, as a plain one.
func (src *sourceText) executeArgs(params []*pg.Node) (args []string, at []int) {
	args, at = src.argTexts(len(params))
	for i, p := range params {
		if c, ok := p.GetAConst().GetVal().(*pg.A_Const_Sval); ok && i < len(args) {
			args[i] = "'" + strings.ReplaceAll(c.Sval.GetSval(), "'", "''") + "'"
		}
	}
	return args, at
}

func (src *sourceText) argTexts(n int) (args []string, at []int) {
	if n == 0 {
		return nil, nil
	}
	ts, depth := src.top()
	start := -1
	take := func(end int) {
		arg := src.sql[start:end]
		at = append(at, src.position(int32(start+len(arg)-len(strings.TrimLeft(arg, " \t\n\r\f\v")))))
		args = append(args, strings.TrimSpace(arg))
	}
	name := 1 // behind EXECUTE
	for name < len(ts) && !(depth[name-1] == 0 && ts[name-1].Is(src.sql, "execute")) {
		name++
	}
	for i, t := range ts {
		if i <= name {
			continue
		}
		switch {
		case start < 0 && t.IsPunct(src.sql, '('):
			start = t.End
		case start >= 0 && depth[i] == 1 && t.IsPunct(src.sql, ','):
			take(t.Start)
			start = t.End
		case start >= 0 && depth[i] == 0 && t.IsPunct(src.sql, ')'):
			take(t.Start)
			return args, at
		}
	}
	return args, at
}

// ofProcesses reports whether the statement is about the shard's processes.
func (src *sourceText) ofProcesses() bool {
	for _, t := range src.tokens() {
		if t.Kind == sqlguard.Ident {
			if w := strings.ToLower(src.sql[t.Start:t.End]); processViews[w] || strings.HasPrefix(w, "pg_stat_progress_") || strings.HasPrefix(w, "pg_stat_get_backend_") {
				return true
			}
		}
	}
	return false
}

// comma returns the index of the first comma in the brackets that open at a token.
func (src *sourceText) comma(open int) int {
	for i := open + 1; i < len(src.tokens()); i++ {
		switch {
		case src.punct(i, '(') || src.punct(i, '['):
			i = src.closing(i)
		case src.punct(i, ','):
			return i
		}
	}
	return lostPlace()
}

// setCall reads the arguments of set_config().
func (src *sourceText) setCall(f *pg.FuncCall) plan.SetCall {
	return plan.SetCall{Name: src.setArg(f.Args[0], "text"), Value: src.setArg(f.Args[1], "text"), Local: src.setArg(f.Args[2], "bool")}
}

func (src *sourceText) setArg(n *pg.Node, as string) plan.SetArg {
	for t := n.GetTypeCast(); t != nil; t = n.GetTypeCast() {
		name := ""
		if builtinType(t.TypeName) && len(t.TypeName.Typmods) == 0 {
			names := sqltree.Strings(t.TypeName.Names)
			name = names[len(names)-1]
		}
		if name != as && !(as == "text" && name == "varchar") {
			return plan.SetArg{Computed: true}
		}
		n = t.Arg
	}
	switch c := n.GetAConst(); {
	case n.GetParamRef() != nil:
		return plan.SetArg{Param: int(n.GetParamRef().Number)}
	case c == nil:
	case c.Isnull:
		from, to := src.literalSpan(c)
		return plan.SetArg{Null: true, From: from, To: to}
	case c.GetSval() != nil:
		from, to := src.literalSpan(c)
		return plan.SetArg{Text: c.GetSval().Sval, From: from, To: to}
	case as == "bool" && c.GetBoolval() != nil:
		from, to := src.literalSpan(c)
		return plan.SetArg{Text: map[bool]string{true: "true", false: "false"}[c.GetBoolval().Boolval], From: from, To: to}
	}
	return plan.SetArg{Computed: true}
}

// stringEnd is the last token of a string that begins at one: it may go on behind a line's end, and UESCAPE may follow one that
// begins with U&. Behind any other, uescape is a column's name.
func (src *sourceText) stringEnd(i int) int {
	ts := src.tokens()
	unicode := strings.HasPrefix(strings.ToUpper(src.sql[ts[i].Start:ts[i].End]), "U&")
	for (ts[i].Kind == sqlguard.String || ts[i].Kind == sqlguard.Escape) && i+1 < len(ts) && ts[i+1].Kind == sqlguard.String {
		i++
	}
	if unicode && src.word(i+1, "uescape") && i+2 < len(ts) {
		i += 2
	}
	return i
}

// literalSpan is where a literal stands that is one token, 0 and 0 for others.
func (src *sourceText) literalSpan(c *pg.A_Const) (from, to int) {
	i := src.tokenAt(c.Location)
	ts := src.tokens()
	if i < 0 || ts[i].Kind == sqlguard.String && i+1 < len(ts) && ts[i+1].Kind == sqlguard.String {
		return 0, 0 // a string goes on behind a line's end
	}
	if text := src.sql[ts[i].Start:ts[i].End]; strings.HasPrefix(strings.ToUpper(text), "U&") {
		return 0, 0 // UESCAPE may follow
	}
	return ts[i].Start, ts[i].End
}

// castObjects puts the numbers of the schema's objects in the place of their names in casts to regclass and its like.
func (src *sourceText) castObjects(n *pg.Node) (edits []sqltext.Edit) {
	sqltree.Inspect(n, func(m proto.Message) bool {
		if c, ok := m.(*pg.TypeCast); ok {
			if oid := virtualObject(c); oid != 0 {
				if i := src.tokenAt(c.Arg.GetAConst().Location); i >= 0 {
					edits = append(edits, sqltext.Edit{From: src.tokens()[i].Start, To: src.tokens()[i].End, Text: "'" + strconv.Itoa(oid) + "'"})
				}
			}
		}
		return true
	})
	return edits
}
