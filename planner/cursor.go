package planner

import (
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// explainOf reads the options of EXPLAIN, as PostgreSQL does.
func explainOf(e *pg.ExplainStmt, prefix string) *plan.Explain {
	x := &plan.Explain{Prefix: prefix, Format: "text", Timing: true}
	options := "FORMAT json"
	summary := ""
	for _, n := range e.Options {
		d := n.GetDefElem()
		switch name := strings.ToLower(d.GetDefname()); name {
		case "format":
			switch f := strings.ToLower(sqltree.DefText(d.Arg)); f {
			case "json", "yaml", "xml":
				x.Format = f
			}
			continue // another one is a shard's to refuse
		case "analyze":
			x.Analyze = sqltree.OptionOn(d)
		case "timing":
			x.Timing = sqltree.OptionOn(d)
		case "summary":
			summary = "off"
			if sqltree.OptionOn(d) {
				summary = "on"
			}
		}
		options += ", " + sqltext.QuoteAlways(d.GetDefname()) // any text in quotes can be a name: the shard refuses those that it does not know
		if n := d.GetArg().GetInteger(); n != nil {
			options += " " + strconv.Itoa(int(n.Ival))
		} else if d.GetArg() != nil {
			options += " '" + strings.ReplaceAll(sqltree.DefText(d.Arg), "'", "''") + "'"
		}
	}
	x.Summary = summary == "on" || summary == "" && x.Analyze
	x.JSON = "EXPLAIN (" + options + ") "
	return x
}

func (a *analyzer) declare(d *pg.DeclareCursorStmt) {
	const ( // CURSOR_OPT_... of parsenodes.h
		binary      = 0x0001
		scroll      = 0x0002
		noScroll    = 0x0004
		insensitive = 0x0008
		asensitive  = 0x0010
		withHold    = 0x0020
	)
	has := func(o int32) bool { return d.Options&o != 0 }
	switch {
	case has(scroll) && has(noScroll):
		fail(sqlstate.New("42P11", "cannot specify both %s and %s", "SCROLL", "NO SCROLL"))
	case has(asensitive) && has(insensitive):
		fail(sqlstate.New("42P11", "cannot specify both %s and %s", "ASENSITIVE", "INSENSITIVE"))
	}
	s := d.Query.GetSelectStmt()
	if len(s.GetLockingClause()) > 0 {
		lock := map[pg.LockClauseStrength]string{pg.LockClauseStrength_LCS_FORUPDATE: "FOR UPDATE", pg.LockClauseStrength_LCS_FORNOKEYUPDATE: "FOR NO KEY UPDATE",
			pg.LockClauseStrength_LCS_FORSHARE: "FOR SHARE", pg.LockClauseStrength_LCS_FORKEYSHARE: "FOR KEY SHARE"}[s.LockingClause[0].GetLockingClause().GetStrength()]
		switch {
		case has(withHold):
			fail(sqlstate.New(sqlstate.FeatureNotSupported, "DECLARE CURSOR WITH HOLD ... %s is not supported", lock).WithDetail("Holdable cursors must be READ ONLY."))
		case has(scroll):
			fail(sqlstate.New(sqlstate.FeatureNotSupported, "DECLARE SCROLL CURSOR ... %s is not supported", lock).WithDetail("Scrollable cursors must be READ ONLY."))
		case has(insensitive):
			fail(sqlstate.New("42P11", "DECLARE INSENSITIVE CURSOR ... %s is not valid", lock).WithDetail("Insensitive cursors must be READ ONLY."))
		}
	}
	backward := readsBackward(s)
	a.query(d.Query)
	a.finish()
	if a.st.Kind == plan.Virtual || a.st.Kind == plan.DDLKind {
		fail(sqlstate.Refusal("CLV-1025", "a cursor over this statement is not supported").WithHint("Run it without DECLARE."))
	}
	a.st.Tag, a.st.ReturnsRows = "DECLARE CURSOR", false
	a.st.Cursor = &plan.Cursor{Op: "declare", Name: d.Portalname, Scroll: has(scroll), NoScroll: has(noScroll), Hold: has(withHold), Binary: has(binary),
		Backward: backward && len(a.viewRefs) == 0}
	ts, depth := a.Top()
	for i, t := range ts {
		if i >= 3 && depth[i] == 0 && t.Is(a.SQL, "for") {
			a.st.Cursor.Query = a.After(ts, i+1)
			return
		}
	}
}

// readsBackward reports whether a query's plan is a scan of one table, perhaps with a Sort and a Limit above it
// (ExecSupportsBackwardScan of PostgreSQL's execAmi.c).
func readsBackward(s *pg.SelectStmt) bool {
	if s == nil || s.Op != pg.SetOperation_SETOP_NONE || len(s.FromClause) != 1 || s.FromClause[0].GetRangeVar() == nil || s.WithClause != nil ||
		s.DistinctClause != nil || s.GroupClause != nil || s.HavingClause != nil || s.WindowClause != nil || len(s.LockingClause) > 0 {
		return false
	}
	calls := false
	sqltree.InspectAll(s.TargetList, func(m proto.Message) bool { // aggregates, functions that return sets
		_, call := m.(*pg.FuncCall)
		calls = calls || call
		return !calls
	})
	return !calls
}

func (ss *sessionStatement) fetch(f *pg.FetchStmt) {
	st := ss.st
	st.Kind, st.Tag, st.ReadOnly, st.ReturnsRows = plan.AnyShard, "FETCH", true, !f.Ismove
	st.Cursor = &plan.Cursor{Op: "fetch", Name: f.Portalname, Count: f.HowMany}
	if f.Ismove {
		st.Tag, st.Cursor.Op = "MOVE", "move"
	}
	switch f.Direction {
	case pg.FetchDirection_FETCH_BACKWARD:
		st.Cursor.Direction = plan.Backward
	case pg.FetchDirection_FETCH_ABSOLUTE:
		st.Cursor.Direction = plan.Absolute
	case pg.FetchDirection_FETCH_RELATIVE:
		st.Cursor.Direction = plan.Relative
	}
}
