package gateway

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/sqlstate"
)

// The planner refuses calls of functions that the map does not know. Whether there is
// such a function at all, with these arguments, a shard is asked then: a misspelt name
// is PostgreSQL's 42883. So with row locks: FOR UPDATE of groups is PostgreSQL's 0A000.

const (
	judgeBegin = "PREPARE cleave_judge AS "
	judgeEnd   = "\n; DEALLOCATE cleave_judge"
)

// unplanned is the error of a statement that has no plan. In a failed transaction, of which
// PostgreSQL reads no more than a statement's syntax, that is its first one.
func (x *session) unplanned(err error, sql []byte, private bool) error {
	if x.tx.state != txNone && x.tx.failed && sqlstate.CodeOf(err) != sqlstate.SyntaxError {
		return inFailed()
	}
	if x.tx.state != txNone && sqlstate.CodeOf(err) != sqlstate.SyntaxError {
		x.tx.snapped = true
	}
	return x.judged(err, sql, private)
}

// judged is the error of a statement that was not planned: that of the database if it
// would not take the statement either.
func (x *session) judged(err error, sql []byte, private bool) error {
	var refusal *sqlstate.Error
	if !errors.As(err, &refusal) || !refusal.Unsure || private || x.nowait {
		return err
	}
	snap := x.srv.ex.Snapshot()
	name := snap.State().DefaultShard
	begin, end := judgeBegin, judgeEnd
	if sh, ok := snap.Shard(name); ok && !sh.Can().Judges {
		begin, end = "EXPLAIN ", ""
	}
	c, connErr := x.acquire(name, x.settings)
	if connErr != nil {
		return err
	}
	defer c.Release()
	_, said := x.exec(c, begin+string(sql)+end)
	var e *sqlstate.Error
	if !errors.As(said, &e) {
		return err
	}
	switch e.Code {
	case sqlstate.FeatureNotSupported, sqlstate.UndefinedTable:
		// A sequence of the cluster, which no shard has, is such a relation as well.
		if !strings.HasPrefix(e.Message, "FOR ") && !strings.HasSuffix(e.Message, " clause not found in FROM clause") {
			return err
		}
	case sqlstate.UndefinedFunction, sqlstate.UndefinedColumn, sqlstate.AmbiguousColumn, sqlstate.InvalidSchemaName, sqlstate.DatatypeMismatch, sqlstate.CannotCoerce:
	default:
		return err // of what is put around the statement, perhaps
	}
	own := *e
	own.Shard = ""
	if own.Position > 0 {
		own.Position = max(own.Position-utf8.RuneCountInString(begin), 0)
	}
	return &own
}
