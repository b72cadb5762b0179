package gateway

import (
	"strings"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/gateway/adminsql"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// virtualName stands for the virtual database where a shard's name is expected.
const virtualName = "(router)"

// reachVirtual makes pipe.Conn a conversation with a fresh virtual database.
func (x *prepared) reachVirtual(st *plan.Statement) error {
	if x.srv.openVirtual == nil {
		return sqlstate.Refusal("CLV-1222", `the schema "cleave" is not available in this router`).
			WithHint("Ask the admin API, as `cleave map show` does; a program built with the tag cleave_nosqlite does not have it.")
	}
	reads := adminsql.Asks(st.Text)
	if x.pipe.virtual() && reads&^x.virtualReads == 0 {
		return nil // within one unit the tables stay as they were
	}
	if x.pipe.Conn != nil {
		if x.tx.state == txNone && x.pipe.wrote {
			return sqlstate.Refusal("CLV-1223", `reading the schema "cleave" after a write before the same Sync is not supported`).
				WithHint("Sync before it.")
		}
		if err := x.leave(); err != nil {
			return err
		}
	}
	ctx, done := x.interrupts.waiting()
	defer done()
	if x.id.Role != access.Admin {
		reads &^= adminsql.AsksUsers
	}
	tables, warnings, err := x.srv.views.Tables(ctx, reads)
	if err != nil {
		return userCancel(err)
	}
	for _, w := range warnings {
		x.w.warning("01000", w)
	}
	if x.id.Role != access.Admin {
		adminsql.HideURLs(tables)
	}
	c, err := x.srv.openVirtual("cleave", tables)
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.InternalError, "the schema \"cleave\" cannot be read")
	}
	x.pipe.Conn, x.virtualReads = executor.NewConn(virtualName, c), reads
	return nil
}

// call runs one of Cleave's functions.
func (x *commands) call(st *plan.Statement, args *plan.Args) (*localResult, error) {
	c := st.Call
	f, err := adminsql.Find(c.Function)
	if err != nil {
		return nil, err
	}
	if f.Changes {
		if err := x.id.MayAdminister("function cleave." + c.Function); err != nil {
			return nil, err
		}
	}
	if x.srv.admin == nil {
		return nil, sqlstate.Refusal("CLV-1201", "Cleave's functions are not available in this router").
			WithHint("Use the `cleave` command against the admin API.")
	}
	if f.Changes && x.tx.state != txNone && !f.Declares() {
		return nil, sqlstate.New(sqlstate.ActiveTransaction, "cleave.%s cannot run inside a transaction block", c.Function).
			WithHint("it changes the shard map, which a ROLLBACK would not undo")
	}
	call, err := f.Read(c, args)
	if err != nil {
		return nil, err
	}
	if f.Declares() && x.tx.state != txNone {
		out, err := x.declare(call.Declaration())
		if err != nil {
			return nil, schemaError(err)
		}
		return &localResult{columns: localColumns(st), values: [][][]byte{{textOf(out)}}, tag: "SELECT 1"}, nil
	}
	if f.Changes {
		x.unit.effects = true
		if x.pipe.Conn != nil {
			if x.pipe.wrote && !x.pipe.virtual() {
				return nil, sqlstate.Refusal("CLV-1202", "a change of the shard map after a write before the same Sync is not supported").
					WithHint("Sync before it.")
			}
			if err := x.leave(); err != nil {
				return nil, err
			}
		}
	}
	ctx, stop := x.interrupts.waiting()
	defer stop()
	if f.Awaits { // this session too is in its way
		x.turn.Pause()
	}
	out, err := call.Run(ctx, x.srv.admin, x.start.User)
	if f.Awaits {
		x.turn.Resume()
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, userCancel(ctx.Err())
		}
		return nil, err
	}
	if f.Changes {
		// The next statement of this session sees what it did.
		if _, err := x.srv.ex.Refresh(ctx); err != nil {
			return nil, userCancel(err)
		}
	}
	return &localResult{columns: localColumns(st), values: [][][]byte{{textOf(out)}}, tag: "SELECT 1"}, nil
}

// declare is cleave.declare in a transaction, which ends with it: a schema change.
func (x *commands) declare(req admin.DeclareRequest) (string, error) {
	plan, edit, err := admin.Declaring(req)
	if err != nil {
		return "", err
	}
	if err := x.joinSchema(false); err != nil {
		return "", err
	}
	ctx, done := x.interrupts.waiting()
	defer done()
	x.runs(&underLock)
	return plan, x.tx.schema.Declare(ctx, edit)
}

// localColumns are the result columns of the router's own statements, nil if
// they have none.
func localColumns(st *plan.Statement) []string {
	switch st.Kind {
	case plan.Call:
		if st.Call.Column != "" {
			return []string{st.Call.Column}
		}
		return []string{st.Call.Function}
	case plan.ExplainRoute:
		return []string{"QUERY PLAN"}
	case plan.SetKind:
		if settings.Own(st.Set) && st.Set.Op == "show" {
			return []string{strings.ToLower(st.Set.Name)}
		}
	}
	return nil
}
