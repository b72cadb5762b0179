package utility

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/bail"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

const usersOnly = "The cluster's users have a name, a password and a role (cleave user --help)."

// role reads a statement about roles.
func (ss *Statement) role(n *pg.Node) {
	st := ss.st
	r := &plan.Role{}
	st.Kind, st.Role = plan.RoleKind, r
	switch v := n.GetNode().(type) {
	case *pg.Node_CreateRoleStmt:
		r.Op, st.Tag = "create", "CREATE ROLE"
		if v.CreateRoleStmt.StmtType == pg.RoleStmtType_ROLESTMT_GROUP {
			bail.With(sqlstate.Refusal("CLV-1224", "CREATE GROUP is not supported: a user of the cluster is in no group").WithHint(usersOnly))
		}
		r.Names = []string{v.CreateRoleStmt.Role}
		login := roleOptions(r, v.CreateRoleStmt.Options, v.CreateRoleStmt.StmtType == pg.RoleStmtType_ROLESTMT_USER)
		switch name := r.Names[0]; {
		case name == "public" || name == "none" || strings.HasPrefix(name, "pg_"):
			bail.With(sqlstate.New("42939", "role name %q is reserved", name))
		case !login:
			bail.With(sqlstate.Refusal("CLV-1225", "a role without LOGIN is not supported: the cluster has users only").
				WithHint("Run CREATE ROLE ... LOGIN PASSWORD '...', or CREATE USER."))
		case r.Password == nil:
			bail.With(sqlstate.Refusal("CLV-1226", "a user without a password is not supported").WithHint("Run CREATE USER ... PASSWORD '...'."))
		}
	case *pg.Node_AlterRoleStmt:
		r.Op, st.Tag = "alter", "ALTER ROLE"
		if v.AlterRoleStmt.Action != 1 {
			bail.With(sqlstate.Refusal("CLV-1227", "ALTER GROUP is not supported: a user of the cluster is in no group").WithHint(usersOnly))
		}
		r.Names = []string{roleName(v.AlterRoleStmt.Role)}
		if !roleOptions(r, v.AlterRoleStmt.Options, true) {
			bail.With(sqlstate.Refusal("CLV-1228", "NOLOGIN is not supported: the cluster has users only").
				WithHint("Run DROP USER, or give another PASSWORD."))
		}
	case *pg.Node_DropRoleStmt:
		r.Op, r.IfExists, st.Tag = "drop", v.DropRoleStmt.MissingOk, "DROP ROLE"
		for _, n := range v.DropRoleStmt.Roles {
			spec := n.GetRoleSpec()
			if spec.GetRoletype() != pg.RoleSpecType_ROLESPEC_CSTRING {
				bail.With(sqlstate.New(sqlstate.InvalidParameterValue, "cannot use special role specifier in DROP ROLE"))
			}
			r.Names = append(r.Names, spec.Rolename)
		}
	case *pg.Node_GrantRoleStmt:
		bail.With(sqlstate.Refusal("CLV-1229", "granting roles is not supported: a user of the cluster is in no group").
			WithHint("Run cleave user role NAME admin|user|writer; with auth passthrough, on each shard directly."))
	default:
		bail.With(sqlstate.Refusal("CLV-1230", "settings of a role are not supported").
			WithHint("Set them at the beginning of the session, or in the client's options."))
	}
	st.Text = st.Tag
	st.Shape = st.Tag
}

// roleName is the role that a statement names, "" for the session's own.
func roleName(s *pg.RoleSpec) string {
	switch s.GetRoletype() {
	case pg.RoleSpecType_ROLESPEC_CSTRING:
		return s.Rolename
	case pg.RoleSpecType_ROLESPEC_PUBLIC:
		bail.With(sqlstate.New(sqlstate.UndefinedObject, "role \"public\" does not exist"))
	}
	return ""
}

// roleOptions reads the options, and returns whether the role can log in.
func roleOptions(r *plan.Role, options []*pg.Node, login bool) bool {
	seen := map[string]bool{}
	for _, n := range options {
		d := n.GetDefElem()
		on := d.GetArg().GetBoolean().GetBoolval()
		if seen[d.Defname] {
			bail.With(sqlstate.New(sqlstate.SyntaxError, "conflicting or redundant options"))
		}
		seen[d.Defname] = true
		what := ""
		switch d.Defname {
		case "password":
			s := d.Arg.GetString_()
			if s == nil {
				bail.With(sqlstate.Refusal("CLV-1231", "PASSWORD NULL is not supported").WithHint("Run DROP USER, or give another PASSWORD."))
			}
			r.Password = &s.Sval
		case "superuser":
			r.Admin = &on
		case "canlogin":
			login = on
		case "createrole", "createdb", "isreplication", "bypassrls":
			if on {
				what = map[string]string{"createrole": "CREATEROLE", "createdb": "CREATEDB", "isreplication": "REPLICATION", "bypassrls": "BYPASSRLS"}[d.Defname]
			}
		case "inherit":
			if !on {
				what = "NOINHERIT"
			}
		case "connectionlimit":
			if d.Arg.GetInteger().GetIval() != -1 {
				what = "CONNECTION LIMIT"
			}
		case "validUntil":
			if !strings.EqualFold(d.Arg.GetString_().GetSval(), "infinity") {
				what = "VALID UNTIL"
			}
		default:
			what = map[string]string{"addroleto": "IN ROLE", "rolemembers": "ROLE", "adminmembers": "ADMIN", "sysid": "SYSID"}[d.Defname]
			if what == "" {
				what = "the option " + d.Defname
			}
		}
		if what != "" {
			bail.With(sqlstate.Refusal("CLV-1232", "%s is not supported for users of the cluster", what).WithHint(usersOnly))
		}
	}
	return login
}
