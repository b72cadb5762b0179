package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/function"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

func isInterrupt(err error) bool {
	var e *sqlstate.Error
	return !errors.As(err, &e) && sqlite.ErrCode(err).ToPrimary() == sqlite.ResultInterrupt
}

// ofTheFile names the shard in an error that its file gives, whatever is done there.
func (c *transaction) ofTheFile(e *sqlstate.Error) error {
	if c.shard == nil {
		return e
	}
	return e.OnShard(c.shard.cfg.Name)
}

// mapError turns SQLite's errors into PostgreSQL's.
func (c *transaction) mapError(err error) error {
	if c.env.Err != nil {
		err, c.env.Err = c.env.Err, nil
	}
	var e *sqlstate.Error
	if errors.As(err, &e) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if e := c.ofCode(err); e != nil {
		return e
	}
	return ofText(err)
}

// ofCode is PostgreSQL's error for SQLite's code, nil if the code says nothing more.
func (c *transaction) ofCode(err error) error {
	code := sqlite.ErrCode(err)
	switch code.ToPrimary() {
	case sqlite.ResultInterrupt:
		return sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to user request")
	case sqlite.ResultBusy, sqlite.ResultLocked:
		if code == sqlite.ResultBusySnapshot {
			return serializationFailure()
		}
		return c.lockExpired(lockTimeout())
	case sqlite.ResultFull:
		return c.ofTheFile(sqlstate.Wrap(err, sqlstate.DiskFull, "the disk of the shard is full").WithHint("Free some space; nothing of the statement was stored."))
	case sqlite.ResultCorrupt, sqlite.ResultNotADB:
		e := sqlstate.Wrap(err, sqlstate.DataCorrupted, "the SQLite file is damaged")
		if c.shard != nil {
			e.Hint = "Check it with: sqlite3 " + c.shard.path + " 'PRAGMA integrity_check'."
		}
		return c.ofTheFile(e)
	case sqlite.ResultIOErr, sqlite.ResultCantOpen, sqlite.ResultReadOnly:
		return c.ofTheFile(sqlstate.Wrap(err, sqlstate.IOError, "the SQLite file cannot be read or written").WithHint("Check the disk and the file's permissions."))
	case sqlite.ResultNoMem:
		return sqlstate.New(sqlstate.OutOfMemory, "out of memory")
	case sqlite.ResultTooBig:
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "a value or statement is too large for SQLite")
	}
	return nil
}

// ofText is PostgreSQL's error for SQLite's message.
func ofText(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "integer overflow"):
		return value.OutOfRange(pgoid.Int8)
	case strings.Contains(text, "too many") || strings.Contains(text, "Expression tree is too large") || strings.Contains(text, "parser stack overflow"):
		return sqlstate.New(sqlstate.StatementTooComplex, "the statement is too complex for SQLite").WithDetail("%s", text)
	}
	if strings.Contains(text, "no such column") {
		// The names were resolved: SQLite has no such columns in a subquery of FROM.
		return sqlstate.Refusal("CLV-2017", "a column of a query around a subquery in FROM is not supported here on a SQLite shard").
			WithHint("Move the condition out of the subquery.")
	}
	if strings.Contains(text, "HAVING clause on a non-aggregate query") {
		// It leaves out aggregates that the queries around do not look at.
		return sqlstate.Refusal("CLV-2018", "HAVING without GROUP BY is not supported in a part of a larger query on a SQLite shard").
			WithHint("Add GROUP BY, or put the condition into a query around it.")
	}
	return sqlstate.Wrap(err, sqlstate.InternalError, "SQLite refused the translated statement").
		WithHint("Please report it with the statement: https://github.com/cleavedb/cleave/issues.")
}

// violation is the breaking of a constraint whose error is being made.
type violation struct {
	*transaction
	brokenKey string // of a foreign key
}

// explained is the error of a portal's statement as PostgreSQL gives it.
func (c *transaction) explained(p *portal, err error) error {
	return (&violation{transaction: c}).explain(p, err)
}

// explain turns a constraint's violation into PostgreSQL's error with
// its fields. SQLite does not give the offending row: the statement runs once more
// inside a savepoint, with a trigger that notes each row, and fails at the same one.
func (c *violation) explain(p *portal, err error) error {
	var se *sqlstate.Error
	if errors.As(err, &se) || p == nil || p.plan == nil || p.plan.Table == nil || c.db == nil {
		return err
	}
	if sqlite.ErrCode(err).ToPrimary() != sqlite.ResultConstraint {
		return err
	}
	d := p.plan.Table
	code, what := violated(err)
	var row []value.Datum
	if !c.db.AutocommitEnabled() {
		row = c.captureRow(p)
	}
	e := &sqlstate.Error{Schema: d.Schema, Table: d.Name}
	failed := &failedRow{table: d, values: row, loc: c.env.Loc}
	notNull := func(col string) error {
		e.Code, e.Column = sqlstate.NotNullViolation, col
		e.Message = fmt.Sprintf("null value in column \"%s\" of relation \"%s\" violates not-null constraint", col, d.Name)
		e.Detail = failed.detail()
		return e
	}
	switch code {
	case sqlite.ResultConstraintUnique, sqlite.ResultConstraintPrimaryKey, sqlite.ResultConstraintRowID:
		name, nums := d.UniqueByColumns(what)
		e.Code, e.Constraint = sqlstate.UniqueViolation, name
		e.Message = fmt.Sprintf("duplicate key value violates unique constraint \"%s\"", name)
		if k, ok := failed.key(nums); ok {
			e.Detail = "Key " + k + " already exists."
		}
		return e
	case sqlite.ResultConstraintNotNull:
		_, col, _ := strings.Cut(what, d.SQLName()+".")
		return notNull(col)
	case sqlite.ResultConstraintCheck:
		if num, ok := strings.CutPrefix(what, "cleave_not_null_"); ok {
			n, _ := strconv.Atoi(num)
			if col := d.ByNum(int16(n)); col != nil {
				return notNull(col.Name)
			}
		}
		e.Code, e.Constraint = sqlstate.CheckViolation, what
		e.Message = fmt.Sprintf("new row for relation \"%s\" violates check constraint \"%s\"", d.Name, what)
		e.Detail = failed.detail()
		return e
	case sqlite.ResultConstraintForeignKey:
		return c.explainForeignKey(p, d, e)
	}
	return err
}

// violated is the kind of the constraint that SQLite names, and what it says of it: nothing for a foreign key.
func violated(err error) (code sqlite.ResultCode, what string) {
	code = sqlite.ErrCode(err)
	text := err.Error()
	if code == sqlite.ResultConstraintTrigger && strings.HasSuffix(text, "FOREIGN KEY constraint failed") {
		code = sqlite.ResultConstraintForeignKey // RESTRICT is a trigger to SQLite
	}
	if i := strings.LastIndex(text, "constraint failed: "); i >= 0 {
		what = text[i+len("constraint failed: "):]
	}
	return code, what
}

// failedRow is the row at which a statement failed, without values if they are not known.
type failedRow struct {
	table  *catalog.Table
	values []value.Datum
	loc    *time.Location
}

// cell is a column's value as an error shows it.
func (r *failedRow) cell(num int16) (string, bool) {
	for i, col := range r.table.Live() {
		if col.Num == num && i < len(r.values) {
			if r.values[i].Kind == 0 {
				return "null", true
			}
			b, err := value.Append(nil, col.Type, r.values[i], r.loc)
			return string(b), err == nil
		}
	}
	return "", false
}

// key is "(columns)=(values)".
func (r *failedRow) key(nums []int16) (string, bool) {
	parts := make([]string, len(nums))
	for i, n := range nums {
		v, ok := r.cell(n)
		if !ok {
			return "", false
		}
		parts[i] = v
	}
	return "(" + strings.Join(r.table.Names(nums), ", ") + ")=(" + strings.Join(parts, ", ") + ")", len(nums) > 0
}

// detail shows the row, if all of it is known.
func (r *failedRow) detail() string {
	var parts []string
	for i, col := range r.table.Live() {
		if i >= len(r.values) {
			return ""
		}
		v, _ := r.cell(col.Num)
		if len([]rune(v)) > 64 {
			v = value.Prefix(v, 64) + "..."
		}
		parts = append(parts, v)
	}
	if len(parts) == 0 {
		return ""
	}
	return "Failing row contains (" + strings.Join(parts, ", ") + ")."
}

// captureRow runs the failed statement again and returns the row it fails at.
func (c *violation) captureRow(p *portal) []value.Datum {
	d := p.plan.Table
	p.end()
	c.failedRow = nil
	if c.cachedExec("SAVEPOINT cleave_capture") != nil {
		return nil
	}
	defer func() {
		if !c.db.AutocommitEnabled() {
			c.cachedExec("ROLLBACK TO cleave_capture")
			c.cachedExec("RELEASE cleave_capture")
		}
	}()
	var cols []string
	for _, col := range d.Live() {
		cols = append(cols, "NEW."+quote.Ident(col.Name))
	}
	if len(cols) > 100 {
		return nil
	}
	for _, op := range []string{"INSERT", "UPDATE"} {
		if c.exec("CREATE TEMP TRIGGER cleave_capture_"+op+" BEFORE "+op+" ON main."+quote.Ident(d.SQLName())+
			" BEGIN SELECT cleave_capture("+strings.Join(cols, ", ")+"); END") != nil {
			return nil
		}
	}
	if err := c.replay(p); err == nil || sqlite.ErrCode(err).ToPrimary() != sqlite.ResultConstraint {
		c.failedRow = nil // without the same failure its values are not known
	}
	c.env.Err = nil
	return c.failedRow
}

// captureFunction notes the row at which a statement fails.
func captureFunction(c *Conn) function.Def {
	return function.Volatile("cleave_capture", -1, func(_ *function.Env, a []function.Arg) (value.Datum, error) {
		c.failedRow = c.failedRow[:0]
		for _, x := range a {
			c.failedRow = append(c.failedRow, x.Datum())
		}
		return value.Datum{}, nil
	})
}

// explainForeignKey finds out which reference was broken: SQLite says only that
// one was, at the statement's end.
func (c *violation) explainForeignKey(p *portal, d *catalog.Table, e *sqlstate.Error) error {
	e.Code = sqlstate.ForeignKeyViolation
	e.Message = fmt.Sprintf("insert or update on table \"%s\" violates a foreign key constraint", d.Name)
	inserting := p.plan.Tag != "DELETE"
	var names []string // the foreign keys that are checked at the statement's end
	if inserting {
		for i := range d.Constraints {
			if k := &d.Constraints[i]; k.Type == "f" && !k.Deferrable {
				names = append(names, k.Name)
				if c.brokenReference(p, d, k) {
					return c.missingParent(e, d, k)
				}
			}
		}
	}
	if t, k := c.brokenChild(p, d); k != nil {
		e.Constraint, e.Schema, e.Table = k.Name, t.Schema, t.Name
		e.Message = fmt.Sprintf("update or delete on table \"%s\" violates foreign key constraint \"%s\" on table \"%s\"", d.Name, k.Name, t.Name)
		if c.brokenKey != "" {
			e.Detail = "Key " + c.brokenKey + " is still referenced from table \"" + t.Name + "\"."
		}
		return e
	}
	if len(names) == 1 {
		e.Constraint = names[0]
		e.Message = fmt.Sprintf("insert or update on table \"%s\" violates foreign key constraint \"%s\"", d.Name, names[0])
	}
	return e
}

// brokenChild finds a foreign key to d whose rows lost the row of d that they refer to, because it went or changed.
func (c *violation) brokenChild(p *portal, d *catalog.Table) (*catalog.Table, *catalog.Constraint) {
	for _, t := range c.names.Catalog.ByOID {
		for i := range t.Constraints {
			k := &t.Constraints[i]
			if k.Type != "f" || k.RefTable != d.OID || k.Deferrable && k.OnDelete != "r" && k.OnUpdate != "r" {
				continue
			}
			if c.brokenParent(p, d, t, k) {
				return t, k
			}
		}
	}
	return nil, nil
}

// missingParent fills e for a row of d whose key k refers to a row that does not exist.
func (c *violation) missingParent(e *sqlstate.Error, d *catalog.Table, k *catalog.Constraint) error {
	e.Constraint = k.Name
	e.Message = fmt.Sprintf("insert or update on table \"%s\" violates foreign key constraint \"%s\"", d.Name, k.Name)
	if ref := c.names.Catalog.ByOID[k.RefTable]; ref != nil && c.brokenKey != "" {
		e.Detail = "Key " + c.brokenKey + " is not present in table \"" + ref.Name + "\"."
	}
	return e
}

// brokenReference runs the statement again with foreign keys deferred, inside a
// savepoint, and looks for a row of table t whose key k has no counterpart.
func (c *violation) brokenReference(p *portal, t *catalog.Table, k *catalog.Constraint) bool {
	return c.broken(p, t, k, t)
}

func (c *violation) brokenParent(p *portal, parent, t *catalog.Table, k *catalog.Constraint) bool {
	return c.broken(p, t, k, parent)
}

func (c *violation) broken(p *portal, t *catalog.Table, k *catalog.Constraint, changed *catalog.Table) bool {
	c.brokenKey = ""
	ref := c.names.Catalog.ByOID[k.RefTable]
	if ref == nil || c.db.AutocommitEnabled() {
		return false
	}
	p.end()
	if c.exec("PRAGMA defer_foreign_keys = ON") != nil || c.cachedExec("SAVEPOINT cleave_capture") != nil {
		return false
	}
	defer func() {
		if !c.db.AutocommitEnabled() {
			c.cachedExec("ROLLBACK TO cleave_capture")
			c.cachedExec("RELEASE cleave_capture")
			c.exec("PRAGMA defer_foreign_keys = OFF")
		}
		c.env.Err = nil
	}()
	if c.replay(p) != nil {
		return false
	}
	values, found, err := c.orphan(t, ref, k)
	if err != nil || !found {
		return false
	}
	shown := t.Names(k.Columns)
	if changed == ref && changed != t {
		shown = ref.Names(k.RefCols)
	}
	if len(values) > 0 {
		c.brokenKey = "(" + strings.Join(shown, ", ") + ")=(" + strings.Join(values, ", ") + ")"
	}
	return true
}

// replay runs a portal's statement once more, to its end or its error.
func (c *violation) replay(p *portal) error {
	stmt, _, err := c.db.PrepareTransient(p.plan.SQL)
	if err != nil {
		return err
	}
	defer stmt.Finalize()
	for i := range p.args {
		if i < stmt.BindParamCount() {
			p.args[i].Bind(stmt, i+1)
		}
	}
	for {
		if row, err := stmt.Step(); err != nil || !row {
			return err
		}
	}
}

// orphan looks for a row of table t whose key k has no counterpart in ref. It returns the key's values as
// PostgreSQL prints them, none if they cannot be read.
func (c *database) orphan(t, ref *catalog.Table, k *catalog.Constraint) (values []string, found bool, err error) {
	var on, cols, notNull []string
	local, remote := t.Names(k.Columns), ref.Names(k.RefCols)
	for i := range local {
		on = append(on, "p."+quote.Ident(remote[i])+" = c."+quote.Ident(local[i]))
		cols = append(cols, "c."+quote.Ident(local[i]))
		notNull = append(notNull, "c."+quote.Ident(local[i])+" IS NOT NULL")
	}
	q, _, err := c.db.PrepareTransient("SELECT " + strings.Join(cols, ", ") + " FROM main." + quote.Ident(t.SQLName()) + " AS c WHERE " + strings.Join(notNull, " AND ") +
		" AND NOT EXISTS (SELECT 1 FROM main." + quote.Ident(ref.SQLName()) + " AS p WHERE " + strings.Join(on, " AND ") + ") LIMIT 1")
	if err != nil {
		return nil, false, err
	}
	defer q.Finalize()
	row, err := q.Step()
	if err != nil || !row {
		return nil, false, err
	}
	for i, n := range k.Columns {
		col := t.ByNum(n)
		dt, _, err := value.OfColumn(q, i, value.ClassOf(col.Type), nil)
		if err != nil {
			return nil, true, nil
		}
		b, err := value.Append(nil, col.Type, dt, c.env.Loc)
		if err != nil {
			return nil, true, nil
		}
		values = append(values, string(b))
	}
	return values, true, nil
}
