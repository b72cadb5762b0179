package gateway

import (
	"context"
	"strings"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/gateway/adminsql"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// commands are the statements that the router carries out itself, or with shards: transaction control, SET, schema changes,
// PREPARE and EXECUTE, EXPLAIN, DO, LISTEN, SET ROLE and Cleave's functions. Each is one method; the session calls it with a
// statement that was planned and is allowed.
type commands struct {
	prepared

	// message is the text of the simple query at hand, nil where there is none.
	message []byte
	// before is what stands before the statement in its message of several; a PREPARE keeps it.
	before string
	// coming are the client's frames at hand that come after the one that is handled.
	coming []byte
	// runLocally answers a statement that no shard runs.
	runLocally func(st *plan.Statement, args *plan.Args) error
}

// prepared are statements with parameters: where they go, the types and values of their parameters, those values that the router
// itself makes, and the one that was parsed and is not sent yet.
//
//	Parse ─▶ pending ──resolve (Flush, another statement)──▶ prepared on its shard
//	            └────────────── Bind says which shard ─────▶ prepared there, bound
type prepared struct {
	unitRun

	pending *statement       // parsed, not sent to a shard yet
	bound   wire.BindMessage // the last Bind, of whose parameters args were made
	args    plan.Args
	// virtualReads are the tables of the directory that the virtual database has.
	virtualReads adminsql.Reads
}

// listen runs LISTEN and UNLISTEN.
func (x *commands) listen(l *plan.Listen) error {
	inTx := x.tx.state != txNone
	switch {
	case !l.Off:
		ctx, done := x.interrupts.waiting()
		defer done()
		return userCancel(x.listener.Listen(ctx, l.Channel, inTx))
	case inTx:
		return x.listener.UnlistenAtCommit(l.Channel)
	}
	// PostgreSQL has told an idle session already what was notified before.
	if err := x.deliver(); err != nil {
		return err
	}
	x.listener.Unlisten(l.Channel)
	return nil
}

// deliver hands over the notifications that have arrived, outside of a transaction.
func (x *unitRun) deliver() error {
	if x.tx.state == txOpen || !x.listener.Listens() {
		return nil
	}
	return x.listener.Deliver(func(f wire.Frame) error { return x.w.put(f) })
}

// deliverIdle delivers while the client is idle. An error ends the session.
func (x *session) deliverIdle() error {
	if x.tx.state != txNone || x.unit.open {
		return nil
	}
	err := x.deliver()
	if err == nil && len(x.w.buf) > 0 {
		err = x.w.flush()
	}
	if err != nil {
		return x.broken(err)
	}
	return nil
}

// changeRole carries out CREATE, ALTER and DROP ROLE: operations on the cluster's users, which the directory has.
func (x *commands) changeRole(st *plan.Statement) error {
	if err := x.drain(); err != nil {
		return err
	}
	r := st.Role
	own := r.Op == "alter" && r.Admin == nil && (r.Names[0] == "" || r.Names[0] == x.start.User)
	switch {
	case x.id.Login != nil:
		return sqlstate.Refusal("CLV-1210", "%s is not supported with auth passthrough: the users are the shards' own", st.Tag).
			WithHint("Run it on each shard directly, with the same password.")
	case !own && x.id.Role != access.Admin:
		return sqlstate.New(sqlstate.InsufficientPrivilege, "permission denied to %s role", r.Op).
			WithHint("it takes a user with the role %s; users may change their own password: ALTER USER CURRENT_USER PASSWORD '...'", access.Admin)
	case x.srv.admin == nil:
		return sqlstate.Refusal("CLV-1211", "%s is not available in this router", st.Tag).WithHint("Run cleave user --help.")
	case x.tx.state != txNone:
		return sqlstate.New(sqlstate.ActiveTransaction, "%s cannot run inside a transaction block", st.Tag).
			WithHint("the directory has the users, and a ROLLBACK would not undo it; send it in a message of its own")
	}
	x.unit.effects = true
	ctx, stop := x.interrupts.waiting()
	defer stop()
	for _, name := range r.Names {
		if err := x.changeUser(ctx, r, name); err != nil {
			return userCancel(err)
		}
	}
	return nil
}

func (x *commands) changeUser(ctx context.Context, r *plan.Role, name string) error {
	if name == "" {
		name = x.start.User
	}
	req := admin.UserRequest{By: x.start.User, Name: name}
	if r.Admin != nil {
		req.Role = string(access.Ordinary)
		if *r.Admin {
			req.Role = string(access.Admin)
		}
	}
	if r.Password != nil {
		v, err := verifierOf(*r.Password)
		if err != nil {
			return err
		}
		req.Verifier = v.Text()
	}
	var err error
	switch r.Op {
	case "create":
		_, err = x.srv.admin.AddUser(ctx, req)
	case "alter":
		_, err = x.srv.admin.ChangeUser(ctx, req)
	default:
		if name == x.start.User {
			return sqlstate.New(sqlstate.ObjectInUse, "current user cannot be dropped")
		}
		_, err = x.srv.admin.RemoveUser(ctx, req)
	}
	// In PostgreSQL's words.
	switch sqlstate.CodeOf(err) {
	case sqlstate.DuplicateObject:
		return sqlstate.New(sqlstate.DuplicateObject, "role \"%s\" already exists", name)
	case sqlstate.UndefinedObject:
		if r.IfExists {
			x.w.notice(&sqlstate.Error{Severity: "NOTICE", Code: "00000", Message: "role \"" + name + "\" does not exist, skipping"})
			return nil
		}
		return sqlstate.New(sqlstate.UndefinedObject, "role \"%s\" does not exist", name)
	}
	return err
}

// verifierOf is what is kept of a password; one that is a verifier already stays as it is, as in PostgreSQL.
func verifierOf(password string) (access.Verifier, error) {
	if v, err := access.ParseVerifier(password); err == nil {
		return v, nil
	}
	if strings.HasPrefix(password, "md5") && len(password) == 35 {
		return access.Verifier{}, sqlstate.Refusal("CLV-1212", "a password as an MD5 hash is not supported").
			WithHint("Give the password, or a SCRAM-SHA-256 verifier.")
	}
	v, err := access.NewVerifier(password)
	if err != nil {
		return v, sqlstate.New(sqlstate.InvalidParameterValue, "%v", err)
	}
	return v, nil
}
