package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// What PostgreSQL says of sessions is about the router's sessions, not about the shards' connections, which clients share: the
// number of one's own, the list of all, and what ends them. The router makes these values (Fill), and a shard computes with
// them, so that every expression, join and condition around them is PostgreSQL's own. docs/design/gateway.md, "Sessions in SQL".

// sessionView is a relation of PostgreSQL's about sessions; Columns are what a shard reads of the router's JSON.
type sessionView struct {
	columns string
	// own: it is about the session that asks; else a shard's own may be meant, see OfProcesses.
	own bool
}

// The sources of their rows are their names.
var sessionViews = map[string]sessionView{
	"pg_stat_activity": {columns: "datid oid, datname name, pid integer, leader_pid integer, usesysid oid, usename name, application_name text, client_addr inet, client_hostname text, " +
		"client_port integer, backend_start timestamptz, xact_start timestamptz, query_start timestamptz, state_change timestamptz, wait_event_type text, wait_event text, state text, " +
		"backend_xid xid, backend_xmin xid, query_id bigint, query text, backend_type text"},
	"pg_stat_ssl":    {columns: "pid integer, ssl boolean, version text, cipher text, bits integer, client_dn text, client_serial numeric, issuer_dn text"},
	"pg_stat_gssapi": {columns: "pid integer, gss_authenticated boolean, principal text, encrypted boolean"},
	"pg_prepared_statements": {own: true, columns: "name text, statement text, prepare_time timestamptz, parameter_types regtype[], from_sql boolean, " +
		"generic_plans bigint, custom_plans bigint"},
}

// sessionCalls puts the router's values in place of the calls about sessions.
func (mv *madeValues) sessionCalls(n *pg.Node) {
	text := strings.ToLower(mv.SQL)
	if s := n.GetSelectStmt(); s != nil && (strings.Contains(text, plan.SourceCancel) || strings.Contains(text, plan.SourceTerminate)) {
		mv.signalCalls(s)
	}
	if s := n.GetSelectStmt(); s != nil && strings.Contains(text, plan.SourceExport) {
		mv.exportCalls(s)
	}
	if !mv.OfProcesses() && mv.namesOwn(text) {
		mv.ownCalls(n)
	}
}

// exportCalls replaces the calls of pg_export_snapshot() that stand by themselves in the list of a SELECT of one row.
func (mv *madeValues) exportCalls(s *pg.SelectStmt) {
	if proto.Size(s) != proto.Size(&pg.SelectStmt{TargetList: s.TargetList, LimitOption: s.LimitOption, Op: pg.SetOperation_SETOP_NONE}) {
		return // CheckCall refuses it
	}
	for _, t := range s.TargetList {
		r := t.GetResTarget()
		if f := r.GetVal().GetFuncCall(); sqltree.NativeCall(r.GetVal()) == plan.SourceExport && len(f.Args) == 0 {
			mv.Native(f)
			from, to := mv.CallSpan(f)
			node, text := mv.value(plan.FillValue{Source: plan.SourceExport})
			mv.replace(from, to, "(SELECT "+text+" AS "+plan.SourceExport+")")
			r.Val = node
			if r.Name == "" {
				r.Name = plan.SourceExport
			}
		}
	}
}

// namesOwn reports whether one of plan.SessionCalls may be in a text.
func (mv *madeValues) namesOwn(text string) bool {
	for name := range plan.SessionCalls {
		if strings.Contains(text, name) {
			return true
		}
	}
	return false
}

// ownCalls replaces those of plan.SessionCalls that are expressions.
func (mv *madeValues) ownCalls(n *pg.Node) {
	mv.OwnSession = true
	var visit func(m protoreflect.Message)
	visit = func(m protoreflect.Message) {
		switch v := m.Interface().(type) {
		case *pg.RangeFunction:
			return // not an expression: function() refuses it
		case *pg.ResTarget:
			if name := outputname.Of(v.Val); v.Name == "" && plan.SessionCalls[name] != "" {
				v.Name = name
			}
		case *pg.Node:
			name := sqltree.NativeCall(v)
			if plan.SessionCalls[name] == "" || len(v.GetFuncCall().Args) > 0 {
				break
			}
			f := v.GetFuncCall()
			mv.Native(f)
			from, to := mv.CallSpan(f)
			node, text := mv.value(plan.FillValue{Source: name})
			// A column of it is named like one of the call.
			mv.replace(from, to, "(SELECT "+text+" AS "+name+")")
			v.Node = node.Node
			return
		}
		sqltree.Below(m, visit)
	}
	visit(n.ProtoReflect())
}

// signal is a call of pg_cancel_backend() or pg_terminate_backend() in a SELECT's list: the changes of the text that
// make of it what the call gives, and those that make of it whom it names.
type signal struct {
	value        int // which of the Fill's
	gives, names []sqltext.Edit
}

// signalCalls replaces those calls that stand by themselves in the list of a SELECT. A shard first says whom they name
// (FillValue.Asks): the same statement with the sessions' numbers in place of the calls. The router acts, and the
// statement then finds each number among those that were reached. So its rows must be the same both times.
func (mv *madeValues) signalCalls(s *pg.SelectStmt) {
	if s.Op != pg.SetOperation_SETOP_NONE || s.IntoClause != nil || len(s.ValuesLists) > 0 || s.GroupClause != nil || s.DistinctClause != nil || s.HavingClause != nil || s.LockingClause != nil {
		return // function() refuses it
	}
	for i, t := range s.TargetList {
		r := t.GetResTarget()
		if c := r.GetVal().GetColumnRef(); c != nil && len(sqltree.Strings(c.Fields)) < len(c.Fields) {
			return // columns of an unknown number are before it
		}
		name, f := sqltree.NativeCall(r.GetVal()), r.GetVal().GetFuncCall()
		if name != plan.SourceCancel && name != plan.SourceTerminate || len(f.Args) == 0 || len(f.Args) > 2 || len(f.Args) == 2 && name == plan.SourceCancel {
			continue
		}
		mv.Native(f)
		node, mark := mv.value(plan.FillValue{Source: name, Column: i})
		from, to := mv.CallSpan(f)
		open := mv.TokenAt(f.Location)
		for ; !mv.Punct(open, '('); open++ {
		}
		ts := mv.Tokens()
		// The functions take and give a number of the one type, as the calls do.
		pid, timeout, shut := "pg_catalog.int4up(", "pg_catalog.int8up(", ")"
		if mv.Lonely() {
			pid, timeout, shut = "CAST(", "CAST(", " AS bigint)"
		}
		var middle []sqltext.Edit
		if len(f.Args) == 2 {
			comma := mv.Comma(open)
			middle = []sqltext.Edit{{From: ts[comma].Start, To: ts[comma].End, Text: shut + " AS text) || ' ' || CAST(" + timeout}}
		}
		key, end := "'|' || CAST("+pid, shut+" AS text) || '|'"
		mv.signals = append(mv.signals, signal{
			value: len(mv.fill.values) - 1,
			gives: append([]sqltext.Edit{{From: from, To: ts[open].End, Text: "(SELECT position((" + key}, {From: to - 1, To: to, Text: end + ") in " + mark + ") > 0 AS " + name + ")"}}, middle...),
			names: append([]sqltext.Edit{{From: from, To: ts[open].End, Text: "(" + key}, {From: to - 1, To: to, Text: end + ")"}}, middle...),
		})
		r.Val = &pg.Node{Node: &pg.Node_CoalesceExpr{CoalesceExpr: &pg.CoalesceExpr{Args: append([]*pg.Node{node}, f.Args...), Location: -1}}}
	}
}

// finishSignals makes the text that says whom the calls name.
func (mv *madeValues) finishSignals() {
	if len(mv.signals) == 0 {
		return
	}
	st, f := mv.Statement, mv.fill
	if len(st.Tables) > 0 || mv.Unknown != "" || mv.Volatile || mv.Changes || mv.Locks || mv.Sequence != "" || st.Kind != plan.DefaultShard && st.Kind != plan.AnyShard {
		fail(sqlstate.Refusal("CLV-1240", "%s() of rows of a table, or beside a volatile function, is not supported", f.values[mv.signals[0].value].Source).
			WithHint("Read the numbers first, and give them: SELECT pg_terminate_backend(n) FROM unnest(ARRAY[...]) AS n."))
	}
	edits := slices.Clone(f.edits)
	for _, s := range mv.signals {
		edits = append(edits, s.names...)
		f.edits = append(f.edits, s.gives...)
	}
	_, _, asks := f.marked(sqltext.Splice(mv.SQL, edits), func(n int) int {
		before := 0
		for _, s := range mv.signals {
			if s.value < n {
				before++
			}
		}
		return n - before
	})
	for _, s := range mv.signals {
		f.values[s.value].Asks, f.values[s.value].OfDefault = asks, st.Kind == plan.DefaultShard
	}
}

// sessionRelation is what stands in place of a relation about sessions; ok is false if the shard's own is meant.
func (mv *madeValues) sessionRelation(name string) (text string, ok bool) {
	short := strings.TrimPrefix(name, "pg_catalog.")
	v, known := sessionViews[short]
	if !known || !v.own && mv.OfProcesses() || mv.Lonely() {
		return "", false
	}
	_, mark := mv.value(plan.FillValue{Source: short, JSON: true})
	return "(SELECT * FROM pg_catalog.json_to_recordset(" + mark + ") AS cleave_s(" + v.columns + "))", true
}

// ownSessions refuses a relation about one's own session where the rows of a shard's conversation would be shown.
func ownSessions(ns *semantics.Namespace, name string) {
	if short := strings.TrimPrefix(name, "pg_catalog."); sessionViews[short].own {
		if ns.Lonely() {
			fail(sqlstate.Refusal("CLV-1241", "%s is not there where the default shard is a SQLite file", short))
		}
		fail(sqlstate.Refusal("CLV-1242", "%s cannot be read in this statement: the router has its rows", short).
			WithHint("Read it in a SELECT of its own."))
	}
}
