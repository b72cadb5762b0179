package sqlguard

import (
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/sqlstate"
)

// Limits bound what Check lets through. Zero fields take the defaults.
type Limits struct {
	Bytes int // length of the text
	Depth int // open brackets and CASEs
	// Chain bounds the height of the syntax tree, counted in tokens: a + b + c
	// is 5 high, and each bracket adds bracketWeight to what it holds.
	Chain int
	// Tokens bounds the memory that the syntax tree takes, about 300 bytes a token.
	Tokens int
	// Ors bounds the alternatives of a statement's conditions: a shard plans and
	// compiles each of them, and does not hear a cancel meanwhile.
	Ors int
}

// The defaults, and the weights that the measurements behind them use: the
// deepest statement that passes takes under 1 MiB of the parser's stack, which
// is at least 2 MiB and usually 8 (guard_test.go measures it).
const (
	DefaultBytes = 8 << 20
	DefaultDepth = 250
	DefaultChain = 2000
	// DefaultTokens lets an INSERT of 25,000 rows of ten columns through.
	DefaultTokens = 500_000
	DefaultOrs    = 10_000

	bracketWeight = 2

	// rereadMax bounds Lexer.Reread. The scanner reads 150 million bytes a second
	// (TestTimeGrowsWithLength), and hears no cancel while it does.
	rereadMax = 16 << 20
)

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = DefaultBytes
	}
	if l.Depth <= 0 {
		l.Depth = DefaultDepth
	}
	if l.Chain <= 0 {
		l.Chain = DefaultChain
	}
	if l.Tokens <= 0 {
		l.Tokens = DefaultTokens
	}
	if l.Ors <= 0 {
		l.Ors = DefaultOrs
	}
	return l
}

// level is one open bracket, or the statement itself.
type level struct {
	closer byte // ')' ']' or 'E' for CASE ... END
	// hard counts set operations and joins, which nest across the cuts.
	hard int
	// run counts the tokens since the last cut, child is the height of the
	// highest bracket among them.
	run, child int
	high       int // the highest finished run
	between    int // BETWEENs whose AND has not come
}

func (v *level) cut() {
	v.high = max(v.high, v.run+v.child)
	v.run, v.child = 0, 0
}

func (v *level) height() int { return v.hard + max(v.high, v.run+v.child) }

// Check returns nil if the text can be parsed without danger for the process.
// Errors: 54000 for a text over Limits.Bytes or Tokens; 54001 for one that nests deeper
// than Depth, whose tree could be higher than Chain, that has more than Ors, or whose comments and
// operators would be read too often; 22021 for a zero byte or
// invalid UTF-8.
func Check(sql string, limits Limits) error {
	limits = limits.withDefaults()
	if len(sql) > limits.Bytes {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "the statement is %d bytes long, the limit is %d", len(sql), limits.Bytes).
			WithHint("send it in several statements, or raise the limit in the configuration of the router")
	}
	if strings.IndexByte(sql, 0) >= 0 {
		return sqlstate.New(sqlstate.CharacterNotInRepertoire, `invalid byte sequence for encoding "UTF8": 0x00`)
	}
	if !utf8.ValidString(sql) {
		return sqlstate.New(sqlstate.CharacterNotInRepertoire, `invalid byte sequence for encoding "UTF8"`).
			WithHint("the router reads statements as UTF-8: set client_encoding to UTF8")
	}
	if len(sql) <= 2*limits.Depth && len(sql) <= limits.Chain/4 {
		// Too short to be dangerous: a byte adds at most 1 + bracketWeight.
		return nil
	}
	stack := make([]level, 1, 16)
	top := &stack[0]
	lex := Lexer{Text: sql}
	count, ors := 0, 0
	name := false // the token names something: after AS or a dot
	for {
		t := lex.Next()
		if lex.Reread > rereadMax {
			return sqlstate.New(sqlstate.StatementTooComplex, "the statement has too many comments or operators that follow each other without a space").
				At(utf8.RuneCountInString(sql[:t.Start]) + 1).
				WithHint("put white space around the openings of its comments")
		}
		if t.Kind == EOF {
			break
		}
		if count++; count > limits.Tokens {
			return sqlstate.New(sqlstate.ProgramLimitExceeded, "the statement has over %d words and signs", limits.Tokens).
				WithHint("send it in several statements, or raise the limit in the configuration of the router")
		}
		wasName := name
		name = false
		switch t.Kind {
		case Punct:
			switch c := sql[t.Start]; c {
			case '(', '[':
				if len(stack) > limits.Depth {
					return tooDeep(limits, sql, t.Start)
				}
				closer := byte(')')
				if c == '[' {
					closer = ']'
				}
				stack = append(stack, level{closer: closer})
				top = &stack[len(stack)-1]
			case ')', ']':
				// A CASE without END inside the bracket ends with it.
				for len(stack) > 1 {
					h := top.height() + bracketWeight
					was := top.closer
					if h > limits.Chain {
						return tooHigh(limits, sql, t.Start)
					}
					stack = stack[:len(stack)-1]
					top = &stack[len(stack)-1]
					top.child = max(top.child, h)
					top.run++
					if was != 'E' {
						break
					}
				}
			case ',':
				top.cut()
				continue
			case ';':
				top.cut()
				top.high = max(top.high, top.height())
				if len(stack) == 1 {
					*top = level{}
				}
				continue
			case '.':
				name = true
				top.run++
			default:
				top.run++
			}
		case Operator:
			top.run += t.End - t.Start // each character can be an operator of its own
		case Ident:
			top.run++
			if wasName {
				break
			}
			switch word(sql[t.Start:t.End]) {
			case wOr:
				if ors++; ors > limits.Ors {
					return tooManyOrs(limits, sql, t.Start)
				}
				top.cut()
			case wCut:
				top.cut()
			case wAnd:
				if top.between > 0 {
					top.between--
				} else {
					top.cut()
				}
			case wBetween:
				top.between++
			case wHard:
				top.cut()
				top.hard++
			case wAs:
				name = true
			case wCase:
				if len(stack) > limits.Depth {
					return tooDeep(limits, sql, t.Start)
				}
				stack = append(stack, level{closer: 'E'})
				top = &stack[len(stack)-1]
			case wEnd:
				if len(stack) > 1 && top.closer == 'E' {
					h := top.height() + bracketWeight
					stack = stack[:len(stack)-1]
					top = &stack[len(stack)-1]
					top.child = max(top.child, h)
				}
			}
		default:
			top.run++
		}
		if top.height() > limits.Chain {
			return tooHigh(limits, sql, t.Start)
		}
	}
	for len(stack) > 1 {
		h := top.height() + bracketWeight
		stack = stack[:len(stack)-1]
		top = &stack[len(stack)-1]
		top.child = max(top.child, h)
	}
	if top.height() > limits.Chain {
		return tooHigh(limits, sql, len(sql))
	}
	return nil
}

func tooDeep(l Limits, sql string, at int) error {
	return sqlstate.New(sqlstate.StatementTooComplex, "the statement nests deeper than %d brackets", l.Depth).
		At(utf8.RuneCountInString(sql[:at]) + 1).
		WithHint("write it with fewer nested brackets, CASE expressions or subqueries")
}

func tooManyOrs(l Limits, sql string, at int) error {
	return sqlstate.New(sqlstate.StatementTooComplex, "the statement has over %d ORs", l.Ors).
		At(utf8.RuneCountInString(sql[:at]) + 1).
		WithHint("use a list (IN, = ANY), a join with VALUES, or several statements")
}

func tooHigh(l Limits, sql string, at int) error {
	return sqlstate.New(sqlstate.StatementTooComplex, "the statement is too complex: an expression, UNION or JOIN of it has over %d chained parts", l.Chain).
		At(utf8.RuneCountInString(sql[:min(at, len(sql))]) + 1).
		WithHint("use a list (IN, VALUES, = ANY) in place of a chain of operators, or several statements")
}

type wordClass uint8

const (
	wPlain   wordClass = iota
	wOr                // as wCut
	wCut               // what stands left and right of it are siblings in the tree
	wAnd               // likewise, unless it belongs to BETWEEN
	wBetween           //
	wHard              // joins and set operations
	wAs
	wCase
	wEnd
)

func word(s string) wordClass {
	switch len(s) {
	case 2:
		switch {
		case equalLower(s, "or"):
			return wOr
		case equalLower(s, "on"):
			return wCut
		case equalLower(s, "as"):
			return wAs
		}
	case 3:
		switch {
		case equalLower(s, "and"):
			return wAnd
		case equalLower(s, "end"):
			return wEnd
		}
	case 4:
		switch {
		case equalLower(s, "when"), equalLower(s, "then"), equalLower(s, "else"):
			return wCut
		case equalLower(s, "case"):
			return wCase
		case equalLower(s, "join"):
			return wHard
		}
	case 5:
		switch {
		case equalLower(s, "where"):
			return wCut
		case equalLower(s, "union"):
			return wHard
		}
	case 6:
		switch {
		case equalLower(s, "having"):
			return wCut
		case equalLower(s, "except"):
			return wHard
		}
	case 7:
		if equalLower(s, "between") {
			return wBetween
		}
	case 9:
		if equalLower(s, "intersect") {
			return wHard
		}
	}
	return wPlain
}
