package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

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

// PreparedWords finds the literals of a statement that are read as times, as far as their types
// are certain.
func (p *Planner) PreparedWords(sql string, snap *shardmap.Snapshot, path []string) []PreparedWord {
	if !mayQuoteWord(sql) {
		return nil
	}
	tree, err := p.parse(sql)
	if err != nil || len(tree.Stmts) != 1 {
		return nil
	}
	n := tree.Stmts[0].Stmt
	p.readWords(n, sql, snap, path, false)
	a := p.analyzer(sql, snap, path)
	var out []PreparedWord
	inspect(n, func(m proto.Message) bool {
		c, ok := m.(*pg.TypeCast)
		if !ok || c.Arg.GetAConst() == nil {
			return true
		}
		word, typ := clockLiteral(c)
		i := a.tokenAt(c.Arg.GetAConst().Location)
		if word == "" || i < 0 {
			return true
		}
		t := a.tokens()[i]
		if strings.Trim(sql[t.Start:t.End], "'") == c.Arg.GetAConst().GetSval().Sval {
			out = append(out, PreparedWord{t.Start, t.End, quoteString(word) + "::pg_catalog." + typ})
		}
		return true
	})
	return out
}

// mayQuoteWord reports whether a text has a literal that begins with one of the words.
func mayQuoteWord(sql string) bool {
	for rest := sql; ; {
		_, after, ok := strings.Cut(rest, "'")
		if !ok {
			return false
		}
		rest = after
		if after = strings.TrimLeft(after, " \t\n\r"); len(after) < 4 {
			continue
		}
		switch strings.ToLower(after[:3]) {
		case "now", "tod", "tom", "yes":
			return true
		}
	}
}

// With is a text with values in the places of its words, as literals.
func With(sql string, words []PreparedWord, values []string) string {
	edits := make([]edit, len(words))
	for i, w := range words {
		edits[i] = edit{from: w.From, to: w.To, text: quoteString(values[i])}
	}
	return splice(sql, edits)
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
	inspect(n, func(m proto.Message) bool {
		f, ok := m.(*pg.FuncCall)
		if !ok {
			return err == nil
		}
		clock = clock || a.timedFunction(f) != nil
		switch name := callName(f); {
		case name == "random", name == "random_normal", name == "gen_random_uuid", name == "clock_timestamp", name == "timeofday", name == "timezone", strings.HasPrefix(name, "uuid_generate"):
		case fillOwn[name] || fillNative[name] || name == "cleave" || reachesFurther(name):
			err = sqlstate.Refuse("function "+name+"() in an argument of EXECUTE is not supported", "call it in a statement of its own, and pass what it gives")
		case strings.HasPrefix(a.kindOf(f), "v"):
			err = sqlstate.Refuse("the volatile function "+name+"() in an argument of EXECUTE is not supported", "call it in a statement of its own, and pass what it gives")
		}
		return err == nil
	})
	return clock || usesClock(n) || callsNamed(n, "statement_timestamp"), err
}

// UsesClock reports whether a statement depends on the time of its transaction, by its text or by the defaults of
// the tables that it writes.
func (p *Planner) UsesClock(st *Statement) bool {
	for _, t := range st.Tables {
		if len(clockColumns(t)) > 0 && !st.ReadOnly {
			return true
		}
	}
	tree, err := p.parse(st.Text)
	return err != nil || len(tree.Stmts) != 1 || usesClock(tree.Stmts[0].Stmt)
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
	a.second = &reading{}
	n := replace(a.clocked(tree.Stmts[0].Stmt), func(n *pg.Node) *pg.Node {
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
