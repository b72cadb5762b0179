package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/internal/sqlguard"
	"github.com/cleavedb/cleave/planner/bail"
	"github.com/cleavedb/cleave/planner/clustercatalog"
	"github.com/cleavedb/cleave/planner/complexity"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/utility"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Limits bound the statements that are read. Zero fields take the defaults.
type Limits struct {
	Bytes  int // length of one message's SQL, 8 MiB
	Tokens int // words and signs, 500,000
	Depth  int // nested brackets, 250
	Chain  int // height of the syntax tree in tokens, 2,000
	Keys   int // shard keys that one statement may name, 50,000
}

// Planner analyses statements. It has no state of its own besides the limits;
// methods are safe for concurrent use.
type Planner struct {
	limits  Limits
	stopped func() error    // nil: never
	texts   *keyTexts       // nil, but in KeyTexts
	inputs  plan.InputTypes // of the literals of one statement, see With
}

// Until returns a Planner that looks, before each text that it reads or writes, whether stopped has an error, and ends then.
// Who made stopped say one has no use for what the methods return.
func (p *Planner) Until(stopped func() error) *Planner {
	return &Planner{limits: p.limits, stopped: stopped}
}

// New returns a Planner.
func New(limits Limits) *Planner {
	if limits.Keys <= 0 {
		limits.Keys = 50_000
	}
	return &Planner{limits: limits}
}

// parser reads texts within the limits.
func (p *Planner) parser() sqltext.Parser {
	l := p.limits
	return sqltext.Parser{Limits: sqlguard.Limits{Bytes: l.Bytes, Tokens: l.Tokens, Depth: l.Depth, Chain: l.Chain}, Stopped: p.stopped}
}

// parse guards and parses a text. Errors are the parser's own, with position.
func (p *Planner) parse(sql string) (*pg.ParseResult, error) { return p.parser().Parse(sql) }

// Split returns the statements of one simple-query message, each with its exact
// text and without the semicolon. A message of nothing but comments and white
// space gives no statement. As PostgreSQL does, it reads the whole message
// first: a syntax error anywhere (42601, with PostgreSQL's message and position)
// means that nothing runs.
func (p *Planner) Split(sql string) ([]string, error) {
	tree, err := p.parse(sql)
	if err != nil {
		return nil, err
	}
	if len(tree.Stmts) == 1 && !strings.Contains(sql, ";") {
		return []string{sql}, nil
	}
	texts := make([]string, 0, len(tree.Stmts))
	for _, s := range tree.Stmts {
		texts = append(texts, statementText(sql, s))
	}
	return texts, nil
}

func statementText(sql string, s *pg.RawStmt) string {
	from := int(s.StmtLocation)
	to := len(sql)
	if s.StmtLen > 0 {
		to = min(to, from+int(s.StmtLen))
	}
	return strings.TrimSpace(sql[min(from, to):to])
}

// bailout carries an error out of the analysis.
type bailout = bail.Out

func fail(err error) { bail.With(err) }

// Analyze reads one statement. searchPath are the schemas of the session's
// search_path in order, pg_catalog left out unless the session names it.
//
// Errors: the guard's (54000, 54001, 22021), 42601 for a syntax error or several
// statements, 0A000 for a statement that cannot be proved to be exact in any way, 42P01
// for a table that does not exist beside sharded ones, 22xxx for a shard key
// literal that its type cannot hold, 42501 for writes to the schema cleave.
//
// Views over sharded or reference tables are planned as if their queries stood in
// the statement: Text then is the statement with them written out.
func (p *Planner) Analyze(sql string, snap *shardmap.Snapshot, searchPath []string) (*plan.Statement, error) {
	return p.analyze(sql, snap, searchPath, 0)
}

// analyze is Analyze of a text in which views were written out depth times.
func (p *Planner) analyze(sql string, snap *shardmap.Snapshot, searchPath []string, depth int) (st *plan.Statement, err error) {
	tree, err := p.parse(sql)
	if err != nil {
		return nil, err
	}
	if len(tree.Stmts) == 0 {
		return &plan.Statement{Kind: plan.Empty, Text: sql, ReadOnly: true}, nil
	}
	if len(tree.Stmts) > 1 {
		return nil, sqlstate.New(sqlstate.SyntaxError, "cannot insert multiple commands into a prepared statement")
	}
	if p.tooHeavy(sql, tree) {
		return nil, complexity.ErrTooManyTables()
	}
	if depth == 0 {
		types := typesOf(tree.Stmts[0].Stmt) // before the analysis changes the tree
		defer func() {
			if st != nil {
				st.Types = types
			}
		}()
	}
	a := p.analyzer(sql, snap, searchPath)
	if own := a.ReadsSequence(tree); own != "" {
		return p.analyze(own, snap, searchPath, depth)
	}
	if clustercatalog.SaysDatabase(sql) {
		if own := a.catalogRewrite().OwnDatabase(tree); own != "" {
			return p.analyze(own, snap, searchPath, depth)
		}
	}
	st, err = a.run(tree)
	if len(a.ViewRefs) > 0 && (err != nil || a.OneShard.Several || !keepsViews(&a.Touched, st)) {
		if !takesQuery(tree) {
			return namesViews(&a.Touched, tree, st, err)
		}
		return a.expanded(depth)
	}
	if err == nil && st.Kind == plan.DDLKind {
		if err = ownNames(sql); err != nil {
			return nil, err
		}
	}
	return a.OneShard.Judged(st, err)
}

func (p *Planner) analyzer(sql string, snap *shardmap.Snapshot, path []string) *analyzer {
	a := &analyzer{p: p, texts: &severalTexts{}}
	rd := semantics.Reader{Parser: p.parser(), Keys: p.limits.Keys}
	if p.texts != nil {
		rd.Unread = p.texts
	}
	a.inputWords = inputWords{Analysis: &a.Analysis, p: p, texts: a.texts}
	a.madeValues = madeValues{Analysis: &a.Analysis}
	a.Analysis.Begin(rd, sql, snap, path, &a.inputWords, &a.madeValues)
	return a
}

// run reads the one statement of a tree.
func (a *analyzer) run(tree *pg.ParseResult) (st *plan.Statement, err error) {
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bailout)
			if !ok {
				panic(r)
			}
			st, err = nil, a.Sooner(b.Err)
		}
	}()
	if mayHoldWord(a.SQL) {
		a.asks = asksOf(&a.Text, tree.Stmts[0].Stmt)
	}
	a.statement(tree.Stmts[0].Stmt)
	if len(a.CatalogRefs) > 0 {
		a.catalogRewrite().ShowCatalog(tree.Stmts[0].Stmt)
	}
	a.finishSignals()
	a.finishFill()
	a.finishInputs()
	utility.FinishSets(a.Statement, a.SQL, a.Into != nil, func(n int) int { return a.Param(n).Total })
	a.Statement.Secret = a.Privileged
	a.Statement.Traces = a.leaves(tree.Stmts[0].Stmt)
	if a.Statement.Shape == "" {
		a.Statement.Shape, _, _ = sqltext.Normalize(a.SQL)
	}
	return a.Statement, nil
}

// session reads statements about the session, and no table.
func (a *analyzer) session() *utility.Statement {
	return utility.New(&a.Text, a.Statement, forSession{a})
}

// forSession is what a statement about the session needs of its analysis.
type forSession struct{ a *analyzer }

func (f forSession) Hidden() bool { return f.a.Hidden() }

func (f forSession) Param(n int) { f.a.Param(n) }

func (f forSession) Uses(n int) { f.a.Param(n).Total++ }

func (f forSession) Called(m proto.Message) { f.a.CheckCalls(m) }

func (f forSession) Makes(name string) bool { return semantics.RouterFunctions[name] }

// Rewrite is for a statement about the catalogue.
func (a *analyzer) catalogRewrite() *clustercatalog.Rewrite {
	cr := clustercatalog.New(&a.Text, a.Snapshot, a.Statement, forCatalog{a})
	cr.Changes, cr.Locks, cr.Refs, cr.DefaultCalls = a.Changes, a.Locks, a.CatalogRefs, a.DefaultCalls
	return cr
}

// forCatalog is what a statement about the catalogue needs of its analysis.
type forCatalog struct{ a *analyzer }

func (f forCatalog) Lonely() bool { return f.a.Lonely() }

func (f forCatalog) HasFunction(name string) bool { return f.a.HasFunction(name) }

func (f forCatalog) SessionRelation(name string) (string, bool) { return f.a.sessionRelation(name) }

func (f forCatalog) OwnSessions(name string) { ownSessions(&f.a.Namespace, name) }

func (f forCatalog) Filled(edits []sqltext.Edit) bool {
	if f.a.fill == nil {
		return false
	}
	f.a.fill.edits = append(f.a.fill.edits, edits...)
	return true
}

// leaves reports whether the statement may leave something in the session of a shard that runs it.
func (a *analyzer) leaves(n *pg.Node) bool {
	switch a.Statement.Kind {
	case plan.OneShard, plan.DefaultShard, plan.AnyShard, plan.Several:
	default:
		return false // the router carries it out
	}
	switch n.GetNode().(type) {
	case *pg.Node_SelectStmt, *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt, *pg.Node_CopyStmt, *pg.Node_ExplainStmt,
		*pg.Node_DeclareCursorStmt, *pg.Node_FetchStmt, *pg.Node_ClosePortalStmt, *pg.Node_LockStmt, *pg.Node_NotifyStmt:
	default:
		return true
	}
	if a.Traces {
		return true
	}
	// Tables of the default shard alone may have triggers, rules and the like that the router did not make.
	state := a.Snapshot.State()
	return (state.Acting || state.FunctionsRead != semantics.FunctionRules) && (a.Unknown != "" || a.Whole != "" || a.MayType ||
		slices.ContainsFunc(a.Statement.Tables, func(t *shardmap.Table) bool { return t.Kind == shardmap.Whole }))
}
