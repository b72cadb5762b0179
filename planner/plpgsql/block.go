package plpgsql

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"github.com/pganalyze/pg_query_go/v6/parser"

	"github.com/cleavedb/cleave/internal/sqlguard"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/sqlstate"
)

// Block is BEGIN ... END in such code.
type Block struct {
	Steps    []Step
	Handlers []Handler // of its EXCEPTION clause
}

// StepOp is what a step of a block does.
type StepOp uint8

// The steps.
const (
	StepSQL     StepOp = iota // Text is a statement that changes the schema or rows
	StepPerform               // Text is a SELECT, whose rows nobody gets
	StepExecute               // Text is an expression, whose value is a text of such statements
	StepIf
	StepRaise
	StepBlock
	StepReturn
)

// Step is one statement of PL/pgSQL.
type Step struct {
	Op    StepOp
	Line  int // of the code, from 1
	Text  string
	Arms  []Arm // IF and each ELSIF
	Else  []Step
	Raise *Raise
	Block *Block
}

// Arm is a condition, an expression, and what is done where it is true.
type Arm struct {
	Condition string
	Steps     []Step
}

// Handler is WHEN ... THEN. States are the SQLSTATEs that it is for, "" for OTHERS.
type Handler struct {
	States []string
	Steps  []Step
}

// Catches reports whether the handler is for an error.
func (h *Handler) Catches(code sqlstate.Code) bool {
	return slices.ContainsFunc(h.States, func(s string) bool {
		switch {
		case s == "":
			return code != sqlstate.QueryCanceled && code != "P0004" // ASSERT
		case strings.HasSuffix(s, "000"): // a class of errors
			return len(code) == 5 && string(code[:2]) == s[:2]
		}
		return string(code) == s
	})
}

// blockDepth bounds how deep the steps of a block stand in each other.
const blockDepth = 50

// Unread says what of a block's code the router does not carry out.
type Unread struct {
	Line int
	What string
}

// Error is for the detail of a refusal.
func (u *Unread) Error() string { return fmt.Sprintf("line %d of the code: %s", u.Line, u.What) }

// reader makes steps of what PL/pgSQL's parser gives.
type reader struct {
	p     sqltext.Parser
	line  int // that was read last
	depth int
}

// Read reads the code of a DO block. Errors: the guard's, PL/pgSQL's own for code that is none, Unread.
func Read(p sqltext.Parser, code string) (*Block, error) {
	if err := p.Check(code); err != nil {
		return nil, err
	}
	out, err := pg.ParsePlPgSqlToJSON("CREATE FUNCTION inline_code_block() RETURNS void LANGUAGE plpgsql AS " + sqltext.QuoteString(code))
	if err != nil {
		return nil, codeError(err)
	}
	var all []struct {
		Function struct {
			Datums []map[string]map[string]any `json:"datums"`
			Action map[string]map[string]any   `json:"action"`
		} `json:"PLpgSQL_function"`
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 {
		return nil, &Unread{1, "it nests too deep"}
	}
	r := &reader{p: p, line: 1}
	b, err := r.block(all[0].Function.Action["PLpgSQL_stmt_block"])
	if err != nil {
		return nil, err
	}
	for _, d := range all[0].Function.Datums {
		for _, v := range d {
			if name, _ := v["refname"].(string); !blockVariables[name] {
				return nil, &Unread{max(number(v["lineno"]), 1), "variables"}
			}
		}
	}
	return b, nil
}

// blockVariables are those that PL/pgSQL declares itself.
var blockVariables = map[string]bool{"found": true, "sqlstate": true, "sqlerrm": true}

var compiled = regexp.MustCompile(`near line (\d+)$`)

// codeError is PL/pgSQL's error of code that is none, where it is sure that PostgreSQL has it too.
func codeError(err error) error {
	var pe *parser.Error
	if !errors.As(err, &pe) {
		return &Unread{1, "it cannot be read"}
	}
	line := "1"
	if m := compiled.FindStringSubmatch(pe.Context); m != nil {
		line = m[1]
	}
	code := sqlstate.SyntaxError
	switch m := pe.Message; {
	case strings.Contains(m, "memory exhausted"):
		return sqlstate.New(sqlstate.StatementTooComplex, "%s", m)
	case strings.HasPrefix(m, "unrecognized exception condition "):
		code = sqlstate.UndefinedObject
	case strings.HasPrefix(m, "syntax error at "), strings.HasPrefix(m, "unterminated "), strings.HasPrefix(m, "unexpected end of function definition"),
		strings.HasPrefix(m, "too few parameters specified for RAISE"), strings.HasPrefix(m, "too many parameters specified for RAISE"):
	default:
		n, _ := strconv.Atoi(line) // digits
		return &Unread{n, m}
	}
	e := sqlstate.New(code, "%s", pe.Message)
	e.Where = `compilation of PL/pgSQL function "inline_code_block" near line ` + line
	return e
}

func number(v any) int {
	n, _ := v.(float64)
	return int(n)
}

func (r *reader) refuse(what string) error { return &Unread{r.line, what} }

// expr is the text of an expression or a query.
func expr(v any) string {
	m, _ := v.(map[string]any)
	m, _ = m["PLpgSQL_expr"].(map[string]any)
	s, _ := m["query"].(string)
	return s
}

func (r *reader) block(m map[string]any) (*Block, error) {
	if r.depth++; r.depth > blockDepth {
		return nil, r.refuse("it nests too deep")
	}
	defer func() { r.depth-- }()
	out := &Block{}
	var err error
	if out.Steps, err = r.steps(m["body"]); err != nil {
		return nil, err
	}
	e, _ := m["exceptions"].(map[string]any)
	e, _ = e["PLpgSQL_exception_block"].(map[string]any)
	list, _ := e["exc_list"].([]any)
	for _, x := range list {
		x, _ := x.(map[string]any)
		x, _ = x["PLpgSQL_exception"].(map[string]any)
		var h Handler
		names, _ := x["conditions"].([]any)
		for _, n := range names {
			n, _ := n.(map[string]any)
			n, _ = n["PLpgSQL_condition"].(map[string]any)
			name, _ := n["condname"].(string)
			switch states := conditions[name]; {
			case name == "others":
				h.States = append(h.States, "")
			case states != nil:
				h.States = append(h.States, states...)
			case isState(name):
				h.States = append(h.States, name)
			default:
				return nil, r.refuse("WHEN " + name)
			}
		}
		if h.Steps, err = r.steps(x["action"]); err != nil {
			return nil, err
		}
		out.Handlers = append(out.Handlers, h)
	}
	return out, nil
}

func isState(s string) bool {
	return len(s) == 5 && strings.Trim(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

func (r *reader) steps(v any) ([]Step, error) {
	list, _ := v.([]any)
	out := make([]Step, 0, len(list))
	for _, e := range list {
		m, _ := e.(map[string]any)
		for name, v := range m {
			body, _ := v.(map[string]any)
			if n := number(body["lineno"]); n > 0 {
				r.line = n
			}
			s, err := r.step(strings.TrimPrefix(name, "PLpgSQL_stmt_"), body)
			if err != nil {
				return nil, err
			}
			out = append(out, *s)
		}
	}
	return out, nil
}

// otherSteps are what PL/pgSQL's parser calls statements that the router does not carry out, as a person does.
var otherSteps = map[string]string{"assign": "an assignment", "case": "CASE", "loop": "LOOP", "while": "WHILE", "fori": "FOR", "fors": "FOR", "forc": "FOR", "dynfors": "FOR",
	"foreach_a": "FOREACH", "exit": "EXIT or CONTINUE", "assert": "ASSERT", "getdiag": "GET DIAGNOSTICS", "call": "CALL or DO", "commit": "COMMIT", "rollback": "ROLLBACK",
	"open": "a cursor", "fetch": "a cursor", "close": "a cursor", "return_next": "RETURN NEXT", "return_query": "RETURN QUERY"}

func (r *reader) step(name string, m map[string]any) (*Step, error) {
	s := &Step{Line: r.line}
	var err error
	switch name {
	case "execsql":
		s.Op, s.Text = StepSQL, expr(m["sqlstmt"])
		if m["into"] != nil {
			return nil, r.refuse("INTO")
		}
		err = r.statement(s.Text, false)
	case "perform":
		s.Op, s.Text = StepPerform, expr(m["expr"])
		err = r.selects(s.Text)
	case "dynexecute":
		s.Op, s.Text = StepExecute, expr(m["query"])
		if m["into"] != nil || m["params"] != nil {
			return nil, r.refuse("EXECUTE with INTO or USING")
		}
		err = r.execute(s.Text)
	case "if":
		s.Op = StepIf
		err = r.branches(s, m)
	case "raise":
		s.Op = StepRaise
		s.Raise, err = r.raise(m)
	case "block":
		s.Op = StepBlock
		s.Block, err = r.block(m)
	case "return":
		s.Op = StepReturn
	default:
		what := otherSteps[name]
		if what == "" {
			what = strings.ToUpper(name)
		}
		err = r.refuse(what)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (r *reader) branches(s *Step, m map[string]any) error {
	if r.depth++; r.depth > blockDepth {
		return r.refuse("it nests too deep")
	}
	defer func() { r.depth-- }()
	add := func(cond, body any) error {
		a := Arm{Condition: expr(cond)}
		err := r.expression(a.Condition)
		if err == nil {
			a.Steps, err = r.steps(body)
		}
		s.Arms = append(s.Arms, a)
		return err
	}
	if err := add(m["cond"], m["then_body"]); err != nil {
		return err
	}
	list, _ := m["elsif_list"].([]any)
	for _, e := range list {
		e, _ := e.(map[string]any)
		e, _ = e["PLpgSQL_if_elsif"].(map[string]any)
		if err := add(e["cond"], e["stmts"]); err != nil {
			return err
		}
	}
	var err error
	s.Else, err = r.steps(m["else_body"])
	return err
}

// expression lets an expression through that uses no variable.
func (r *reader) expression(text string) error { return r.selects("SELECT " + text) }

func (r *reader) selects(text string) error {
	tree, err := r.p.Parse(text)
	if err != nil || len(tree.Stmts) != 1 || tree.Stmts[0].Stmt.GetSelectStmt() == nil || tree.Stmts[0].Stmt.GetSelectStmt().IntoClause != nil {
		return r.refuse("an expression that is no part of a SELECT")
	}
	return r.variables(text)
}

// variables refuses what may mean a variable of PL/pgSQL's own.
func (r *reader) variables(text string) error {
	ts := sqlguard.Tokens(text)
	for i, t := range ts {
		name := strings.ToLower(strings.Trim(text[t.Start:t.End], `"`))
		if t.Kind != sqlguard.Ident && t.Kind != sqlguard.Quoted || !blockVariables[name] && name != "inline_code_block" || i > 0 && ts[i-1].IsPunct(text, '.') {
			continue
		}
		return r.refuse("the name " + name + ", which is a variable there")
	}
	return nil
}

// execute reads the expression of an EXECUTE, whose statements are read here if it is a constant.
func (r *reader) execute(text string) error {
	if err := r.expression(text); err != nil {
		return err
	}
	c := readConstant(r.p, text)
	if c == nil || c.GetSval() == nil {
		return nil
	}
	if _, err := r.p.Parse(c.GetSval().Sval); err != nil {
		return nil // an error when it is carried out
	}
	return r.statement(c.GetSval().Sval, true)
}

// readConstant is the literal that an expression is, nil if it is none.
func readConstant(p sqltext.Parser, text string) *pg.A_Const {
	tree, err := p.Parse("SELECT " + text)
	if err != nil || len(tree.Stmts) != 1 {
		return nil
	}
	s := tree.Stmts[0].Stmt.GetSelectStmt()
	plain := &pg.SelectStmt{TargetList: s.GetTargetList(), LimitOption: s.GetLimitOption(), Op: s.GetOp()}
	if len(s.GetTargetList()) != 1 || plain.String() != s.String() || s.TargetList[0].GetResTarget().GetName() != "" {
		return nil
	}
	return s.TargetList[0].GetResTarget().GetVal().GetAConst()
}

// statement lets statements through that change the schema or rows. many: there may be several, or
// none, and what they return is for nobody.
func (r *reader) statement(text string, many bool) error {
	tree, err := r.p.Parse(text)
	if err != nil {
		return err
	}
	if len(tree.Stmts) != 1 && !many {
		return r.refuse("several statements in one")
	}
	for _, s := range tree.Stmts {
		name, rows, returning := notSchema(s.Stmt)
		switch {
		case many && (rows || name == "SELECT" && s.Stmt.GetSelectStmt().IntoClause == nil):
		case name != "":
			return r.refuse(name)
		case many:
		case len(returning) > 0:
			return r.refuse("RETURNING")
		case rows || s.Stmt.GetCreateTableAsStmt() != nil:
			if err := r.variables(text); err != nil {
				return err
			}
		}
	}
	return nil
}

// notSchema names a statement that changes neither the schema nor rows, "" if it may. rows: it changes rows.
func notSchema(n *pg.Node) (name string, rows bool, returning []*pg.Node) {
	switch v := n.GetNode().(type) {
	case *pg.Node_InsertStmt:
		return "", true, v.InsertStmt.ReturningList
	case *pg.Node_UpdateStmt:
		return "", true, v.UpdateStmt.ReturningList
	case *pg.Node_DeleteStmt:
		return "", true, v.DeleteStmt.ReturningList
	case *pg.Node_MergeStmt:
		return "", true, v.MergeStmt.ReturningList
	}
	return otherStatement(n), false, nil
}

func otherStatement(n *pg.Node) string {
	switch n.GetNode().(type) {
	case *pg.Node_SelectStmt:
		return "SELECT"
	case *pg.Node_CopyStmt:
		return "COPY"
	case *pg.Node_LockStmt:
		return "LOCK"
	case *pg.Node_ExplainStmt:
		return "EXPLAIN"
	case *pg.Node_VariableSetStmt, *pg.Node_VariableShowStmt, *pg.Node_ConstraintsSetStmt, *pg.Node_DiscardStmt:
		return "SET, SHOW or DISCARD"
	case *pg.Node_TransactionStmt:
		return "transaction control"
	case *pg.Node_DeclareCursorStmt, *pg.Node_FetchStmt, *pg.Node_ClosePortalStmt:
		return "a cursor"
	case *pg.Node_ListenStmt, *pg.Node_UnlistenStmt, *pg.Node_NotifyStmt:
		return "LISTEN or NOTIFY"
	case *pg.Node_PrepareStmt, *pg.Node_ExecuteStmt, *pg.Node_DeallocateStmt:
		return "a prepared statement"
	case *pg.Node_CallStmt, *pg.Node_DoStmt:
		return "CALL or DO"
	}
	return ""
}
