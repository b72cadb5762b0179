package planner

import (
	"math"

	pg "github.com/pganalyze/pg_query_go/v6"
)

// Cursor is DECLARE, FETCH, MOVE or CLOSE.
type Cursor struct {
	// Op is "declare", "fetch", "move" or "close".
	Op   string
	Name string // "" with close: ALL
	// Query is the text of DECLARE's query. Scroll: it is declared SCROLL; Binary:
	// its rows come in the binary format.
	Query          string
	Scroll, Binary bool
	// Direction and Count say what FETCH and MOVE want; [All] is every row.
	Direction Direction
	Count     int64
}

// All is a Cursor's Count for ALL.
const All = math.MaxInt64

// Direction is where FETCH and MOVE go.
type Direction uint8

// The directions.
const (
	Forward Direction = iota
	Backward
	Absolute
	Relative
)

// Explain is a plain EXPLAIN.
type Explain struct {
	// Prefix is the text up to the explained statement: "EXPLAIN (COSTS OFF) ".
	Prefix string
	// Analyze: the statement is run. Plain: the answer is lines of text.
	Analyze, Plain bool
}

func (a *analyzer) declare(d *pg.DeclareCursorStmt) {
	const ( // CURSOR_OPT_... of parsenodes.h
		binary   = 0x0001
		scroll   = 0x0002
		withHold = 0x0020
	)
	if d.Options&withHold != 0 {
		refuse("DECLARE ... WITH HOLD keeps a cursor on a shard after the transaction", "declare it without HOLD and read it inside the transaction")
	}
	a.query(d.Query)
	a.finish()
	if a.st.Kind == Virtual || a.st.Kind == DDLKind {
		refuse("a cursor over this statement is not supported", "run it without DECLARE")
	}
	a.st.Tag, a.st.ReturnsRows = "DECLARE CURSOR", false
	a.st.Cursor = &Cursor{Op: "declare", Name: d.Portalname, Scroll: d.Options&scroll != 0, Binary: d.Options&binary != 0}
	ts, depth := a.top()
	for i, t := range ts {
		if i >= 3 && depth[i] == 0 && t.Is(a.sql, "for") {
			a.st.Cursor.Query = a.after(ts, i+1)
			return
		}
	}
}

func (a *analyzer) fetch(f *pg.FetchStmt) {
	st := a.st
	st.Kind, st.Tag, st.ReadOnly, st.ReturnsRows = AnyShard, "FETCH", true, !f.Ismove
	st.Cursor = &Cursor{Op: "fetch", Name: f.Portalname, Count: f.HowMany}
	if f.Ismove {
		st.Tag, st.Cursor.Op = "MOVE", "move"
	}
	switch f.Direction {
	case pg.FetchDirection_FETCH_BACKWARD:
		st.Cursor.Direction = Backward
	case pg.FetchDirection_FETCH_ABSOLUTE:
		st.Cursor.Direction = Absolute
	case pg.FetchDirection_FETCH_RELATIVE:
		st.Cursor.Direction = Relative
	}
}
