package planner

import (
	"cmp"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/datetime"
	"github.com/cleavedb/cleave/planner/functions"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// PostgreSQL reads a literal when a statement is prepared: the words for the time are that time
// whenever it is executed. A statement of the cluster's is prepared on many conversations, so that
// its text gets the time instead.

// PreparedWord is a literal of a prepared statement that is a word for the time.
type PreparedWord struct {
	From, To int    // its place in the text
	Expr     string // its value, in SQL
}

// MayPrepareWord reports whether a text may have a literal that is a word for the time.
func MayPrepareWord(sql string) bool { return mayQuoteWord(sql) }

// PreparedWords finds the literals of a statement that are read as times: by a cast, or by what a shard said of a statement that
// is the same but for views that are written out, and what the router makes.
func (p *Planner) PreparedWords(sql string, snap *shardmap.Snapshot, path []string, asked *plan.InputQuestion, types []plan.InputType) []PreparedWord {
	tree, err := p.parse(sql)
	if err != nil || len(tree.Stmts) != 1 {
		return nil
	}
	n := tree.Stmts[0].Stmt
	if !datetime.HasSpecialIn(n) {
		return nil
	}
	a := p.analyzer(sql, snap, path)
	out := a.typedWords(asksOf(&a.Text, n), asked, types)
	sqltree.Inspect(n, func(m proto.Message) bool {
		c := a.castOf(m)
		if c == nil || c.Arg.GetAConst().GetSval() == nil {
			return true
		}
		i := a.TokenAt(c.Arg.GetAConst().Location)
		if i < 0 {
			return true
		}
		t := a.Tokens()[i]
		if !strings.ContainsRune("'eEuU$", rune(sql[t.Start])) {
			return true
		}
		if w, ok := a.preparedWord(c, t.Start, a.Tokens()[a.StringEnd(i)].End); ok {
			out = append(out, w)
		}
		return true
	})
	return out
}

// castOf is the cast that a node is, nil for others: timestamptz('now') is one, and is not asked for (notAsked).
func (a *analyzer) castOf(m proto.Message) *pg.TypeCast {
	switch v := m.(type) {
	case *pg.TypeCast:
		return v
	case *pg.FuncCall:
		if timeCall(&a.Typer, v) != datetime.None {
			names := sqltree.Strings(v.Funcname)
			return &pg.TypeCast{Arg: v.Args[0], TypeName: functions.TypeNamed(names[len(names)-1])}
		}
	}
	return nil
}

// typedWords are the literals of a text that q asks for, with the types of those of another one; the two have the same literals.
func (a *analyzer) typedWords(q, asked *plan.InputQuestion, types []plan.InputType) (out []PreparedWord) {
	if q == nil || asked == nil {
		return nil
	}
	const none = "NULL::pg_catalog.text" // what it is read as is not known
	for i, l := range q.Asked {
		var t plan.InputType
		if len(q.Asked) == len(asked.Asked) {
			_, t = asked.At(asked.Asked[i].Location, types)
		}
		name := cmp.Or(t.Name, datetime.TypeNames[t.OID])
		switch {
		case t.OID == 0:
			out = append(out, PreparedWord{l.From, l.To, none})
			continue
		case name == "" || datetime.ReadingOf(t.OID) == datetime.AsText:
			continue
		}
		c := &pg.TypeCast{Arg: textConst(l.Text), TypeName: functions.TypeNamed(name)}
		if c.TypeName == nil {
			continue
		}
		if w, ok := a.preparedWord(c, l.From, l.To); ok {
			out = append(out, w)
		}
	}
	return out
}

// preparedWord is the value of a literal that is cast, with its place.
func (a *analyzer) preparedWord(c *pg.TypeCast, from, to int) (w PreparedWord, ok bool) {
	s := c.Arg.GetAConst().GetSval().GetSval()
	if word, typ := sqltree.ClockLiteral(c); word != "" {
		return PreparedWord{from, to, sqltext.QuoteString(word) + "::pg_catalog." + typ}, true
	}
	if datetime.HasSpecial(s) {
		expr := a.preparedValue(s, c.TypeName)
		return PreparedWord{from, to, expr}, expr != ""
	}
	return w, false
}

// preparedValue is, in SQL, a literal that a type reads now as it reads s, and later as well: NULL if there is none, "" if
// the type reads no times.
func (a *analyzer) preparedValue(s string, t *pg.TypeName) string {
	const none = "NULL::pg_catalog.text"
	literal := sqltext.QuoteString(s) + "::pg_catalog."
	names := sqltree.Strings(t.GetNames())
	switch datetime.CastReads(t, a.Typer.Hidden()) {
	case datetime.None:
		return ""
	case datetime.Alone: // beside a time of day, or a zone
		return literal + names[len(names)-1]
	case datetime.Inside:
		name := names[len(names)-1]
		switch {
		case strings.HasSuffix(name, "multirange") || strings.Contains(s, "]=") || strings.HasSuffix(name, "range") && len(t.ArrayBounds) > 0:
			return none
		case strings.HasSuffix(name, "range"):
			return "(SELECT CASE WHEN pg_catalog.isempty(r) THEN 'empty' ELSE pg_catalog.concat(CASE WHEN pg_catalog.lower_inc(r) THEN '[' ELSE '(' END, '\"' || (pg_catalog.to_json(pg_catalog.lower(r)) #>> '{}') || '\"', ',', " +
				"'\"' || (pg_catalog.to_json(pg_catalog.upper(r)) #>> '{}') || '\"', CASE WHEN pg_catalog.upper_inc(r) THEN ']' ELSE ')' END) END FROM (SELECT " + literal + name + " AS r) q)"
		}
		return "pg_catalog.translate(pg_catalog.to_json(" + literal + name + "[])::pg_catalog.text, '[]', '{}')"
	}
	cast := sqltree.SelectOf([]*pg.Node{{Node: &pg.Node_TypeCast{TypeCast: &pg.TypeCast{Arg: textConst(s), TypeName: t}}}}, nil, nil)
	text, err := a.text(cast)
	if err != nil {
		return none
	}
	text = "pg_catalog.to_jsonb(" + strings.TrimPrefix(text, "SELECT ") + ")" // of a domain it is a text, a row is none
	// A type that JSON does not know is printed as the session prints it: not where PostgreSQL would read it back otherwise.
	return "CASE WHEN pg_catalog.jsonb_typeof(" + text + ") = 'string' AND pg_catalog.current_setting('DateStyle') ~ '^ISO|DMY$|^(SQL|Postgres), MDY$' THEN " + text + " #>> '{}' END"
}

// mayQuoteWord reports whether a text may have a literal with one of the words: whole, or with escapes, or in pieces on several lines.
func mayQuoteWord(sql string) bool {
	if strings.Contains(sql, `\`) && strings.Contains(strings.ToLower(sql), "e'") || strings.Contains(sql, "&'") || inPieces(sql) || quotesWord(sql) {
		return true
	}
	// Arrays, rows and ranges take a backslash and quotes within a word: {n\ow}, (n"o"w).
	plain := unquoter.Replace(sql)
	return len(plain) < len(sql) && quotesWord(plain)
}

var unquoter = strings.NewReplacer(`\`, "", `"`, "")

// quotesWord reports whether one of the words stands between quotes, or between parameters.
func quotesWord(sql string) bool {
	from, to := strings.IndexAny(sql, "'$"), strings.LastIndexAny(sql, "'$")
	for i := from + 1; from >= 0 && i+3 <= to; i++ {
		switch sql[i] | 0x20 {
		case 'n', 't', 'y':
			end := i
			for end < to && datetime.Wordy(sql[end]) {
				end++
			}
			if !datetime.Wordy(sql[i-1]) && datetime.IsWord(sql[i:end]) {
				return true
			}
		}
	}
	return false
}

// inPieces reports whether a literal may go on behind a line's end, with comments between.
func inPieces(sql string) bool {
	for rest := sql; ; {
		_, behind, found := strings.Cut(rest, "'")
		if !found {
			return false
		}
		next := strings.TrimLeft(behind, " \t\n\r\f\v")
		if strings.HasPrefix(next, "--") || strings.HasPrefix(next, "'") && strings.ContainsAny(behind[:len(behind)-len(next)], "\n\r") {
			return true
		}
		rest = behind
	}
}

// With is a text with values in the places of its words, as literals.
func With(sql string, words []PreparedWord, values []string) string {
	edits := make([]sqltext.Edit, len(words))
	for i, w := range words {
		edits[i] = sqltext.Edit{From: w.From, To: w.To, Text: sqltext.QuoteString(values[i])}
	}
	return sqltext.Splice(sql, edits)
}

// ArgsUseClock reports whether the arguments of EXECUTE, as a list in SQL, depend on the time of the transaction.
//
// Errors: 0A000 for functions that do more than give a value.
func (p *Planner) ArgsUseClock(args string, snap *shardmap.Snapshot, path []string) (clock bool, err error) {
	tree, err := p.parse("SELECT " + args)
	if err != nil || len(tree.Stmts) != 1 {
		return false, err
	}
	n, a := tree.Stmts[0].Stmt, p.analyzer(args, snap, path)
	sqltree.Inspect(n, func(m proto.Message) bool {
		f, ok := m.(*pg.FuncCall)
		if !ok {
			return err == nil
		}
		clock = clock || timedFunction(&a.Namespace, f) != nil
		switch name := sqltree.CallName(f); {
		case name == "random", name == "random_normal", name == "gen_random_uuid", name == "clock_timestamp", name == "timeofday", name == "timezone", strings.HasPrefix(name, "uuid_generate"):
		case semantics.RouterFunctions[name] || semantics.RouterNative[name] || name == "cleave" || builtin.ReachesFurther(name):
			err = sqlstate.Refusal("CLV-1113", "function %s() in an argument of EXECUTE is not supported", name).
				WithHint("Call it in a statement of its own, and pass what it gives.")
		case strings.HasPrefix(a.KindOf(f), "v"):
			err = sqlstate.Refusal("CLV-1114", "the volatile function %s() in an argument of EXECUTE is not supported", name).
				WithHint("Call it in a statement of its own, and pass what it gives.")
		}
		return err == nil
	})
	return clock || sqltree.UsesClock(n) || sqltree.CallsNamed(n, "statement_timestamp"), err
}

// UsesClock reports whether a statement depends on the time of its transaction, by its text or by the defaults of
// the tables that it writes.
func (p *Planner) UsesClock(st *plan.Statement) bool {
	for _, t := range st.Tables {
		if len(clockColumns(t)) > 0 && !st.ReadOnly {
			return true
		}
	}
	tree, err := p.parse(st.Text)
	return err != nil || len(tree.Stmts) != 1 || sqltree.UsesClock(tree.Stmts[0].Stmt)
}

// ArgsAt puts a time in the place of now() and its like in the arguments of EXECUTE.
//
// Errors: 0A000 if they cannot be written down.
func (p *Planner) ArgsAt(args, now string, snap *shardmap.Snapshot, path []string) (text string, err error) {
	tree, err := p.parse("SELECT " + args)
	if err != nil || len(tree.Stmts) != 1 {
		return args, err
	}
	a := p.analyzer(args, snap, path)
	n := sqltree.Replace(a.clocked(tree.Stmts[0].Stmt), func(n *pg.Node) *pg.Node {
		if n.GetParamRef() != nil {
			return textConst(now)
		}
		return n
	})
	for _, t := range n.GetSelectStmt().GetTargetList() {
		t.GetResTarget().Name = ""
	}
	if text, err = a.text(n); err != nil {
		return "", err
	}
	return strings.TrimPrefix(text, "SELECT "), nil
}

// keyTexts collects the literals of one text that stand for shard keys and that the planner cannot read.
type keyTexts struct {
	sql   string
	words []PreparedWord
	seen  map[int]bool
}

// KeyTexts finds the literals of a statement that are compared with shard keys of a time type, or stored as such, and that the
// planner cannot read itself. [With] puts their values in their places.
func (p *Planner) KeyTexts(sql string, snap *shardmap.Snapshot, path []string) []PreparedWord {
	q := *p
	q.texts = &keyTexts{sql: sql, seen: map[int]bool{}}
	// The readings end in errors or not; what they have met counts.
	if st, err := q.Analyze(sql, snap, path); err == nil && st.Kind != plan.Several {
		_, _ = q.Several(sql, snap, path)
	}
	return q.texts.words
}

// Note keeps a literal of type t.
func (k *keyTexts) Note(src *sourcetext.Text, c *pg.A_Const, t keyspace.Type) {
	i, at := src.TokenAt(c.Location), k.place(src.SQL)
	if at < 0 || i < 0 {
		return
	}
	from, to := src.Tokens()[i].Start+at, src.Tokens()[src.StringEnd(i)].End+at
	if !k.seen[from] {
		k.seen[from] = true
		k.words = append(k.words, PreparedWord{from, to, plan.ReadBy(c.GetSval().GetSval(), t)})
	}
}

// place is where a text stands in the collector's: it is the whole, or what stands behind EXPLAIN; -1 for others, in which views
// were written out.
func (k *keyTexts) place(sql string) int {
	const blank = "; \t\r\n"
	sql = strings.TrimRight(sql, blank)
	whole := strings.TrimRight(k.sql, blank)
	if !strings.HasSuffix(whole, sql) {
		return -1
	}
	return len(whole) - len(sql)
}
