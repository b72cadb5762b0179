package change

import (
	"slices"
	"sync"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/function"
)

// Touched are the rows that a transaction has written, by table: SQLite's
// pre-update hook tells of each, those that triggers and foreign keys' actions
// write included. Rows of savepoints that were rolled back stay in it, which is
// harmless: what becomes of a row is looked up when the transaction is prepared.
type Touched struct {
	On     bool // a transaction that may be prepared is under way
	Tables map[string]*rowRuns
}

// rowRuns is a set of rowids as runs of neighbours, so that a load of new rows
// costs next to nothing.
type rowRuns struct {
	runs []rowRun
	next int // length at which the runs are put in order
}

type rowRun struct{ low, high int64 } // both inclusive

func (r *rowRuns) add(id int64) {
	if n := len(r.runs); n > 0 {
		last := &r.runs[n-1]
		switch {
		case id >= last.low && id <= last.high:
			return
		case id > last.high && id-1 == last.high:
			last.high = id
			return
		}
		if n >= max(r.next, 4096) {
			r.order()
			r.next = 2 * len(r.runs)
		}
	}
	r.runs = append(r.runs, rowRun{id, id})
}

// order sorts the runs and joins those that touch.
func (r *rowRuns) order() {
	slices.SortFunc(r.runs, func(a, b rowRun) int {
		switch {
		case a.low < b.low:
			return -1
		case a.low > b.low:
			return 1
		}
		return 0
	})
	out := r.runs[:0]
	for _, run := range r.runs {
		if n := len(out); n > 0 && (run.low <= out[n-1].high || run.low-1 == out[n-1].high) {
			out[n-1].high = max(out[n-1].high, run.high)
			continue
		}
		out = append(out, run)
	}
	r.runs = out
}

// Begin starts to note rows.
func (t *Touched) Begin() { t.On, t.Tables = true, nil }

// End forgets what was noted.
func (t *Touched) End() { t.On, t.Tables = false, nil }

// hooked are the connections whose writes are noted, by what SQLite hands back.
var hooked = struct {
	mu   sync.RWMutex
	next uintptr
	m    map[uintptr]*Touched
}{m: map[uintptr]*Touched{}}

// Watch has the connection's writes noted from now on. It has to come before
// any statement is prepared: SQLite deletes a whole table without telling of its
// rows otherwise. The returned function ends it.
func Watch(conn *sqlite.Conn, t *Touched) (stop func(), err error) {
	tls, db, err := function.Handle(conn)
	if err != nil {
		return nil, err
	}
	hooked.mu.Lock()
	hooked.next++
	id := hooked.next
	hooked.m[id] = t
	hooked.mu.Unlock()
	lib.Xsqlite3_preupdate_hook(tls, db, function.Pointer(rowChanges), id)
	return func() {
		hooked.mu.Lock()
		delete(hooked.m, id)
		hooked.mu.Unlock()
	}, nil
}

// rowChanges is the hook. The rowids of a table WITHOUT ROWID mean nothing; such
// a table is refused when the transaction is prepared.
func rowChanges(tls *libc.TLS, id, _ uintptr, op int32, schema, table uintptr, oldRow, newRow int64) {
	hooked.mu.RLock()
	t := hooked.m[id]
	hooked.mu.RUnlock()
	if t == nil || !t.On || string(cText(tls, schema)) != "main" {
		return
	}
	r := t.Tables[string(cText(tls, table))]
	if r == nil {
		if t.Tables == nil {
			t.Tables = map[string]*rowRuns{}
		}
		r = &rowRuns{}
		t.Tables[string(cText(tls, table))] = r
	}
	if op != lib.SQLITE_INSERT {
		r.add(oldRow)
	}
	if op != lib.SQLITE_DELETE && (op == lib.SQLITE_INSERT || newRow != oldRow) {
		r.add(newRow)
	}
}

// cText is a C string where it stands, valid while SQLite keeps it.
func cText(tls *libc.TLS, p uintptr) []byte { return libc.GoBytes(p, int(libc.Xstrlen(tls, p))) }
