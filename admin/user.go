package admin

import (
	"context"
	"log/slog"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// UserRequest adds a user, or changes one. It never holds a password: who makes
// it computes the verifier, so that a password is nowhere on its way.
type UserRequest struct {
	By   string `json:"by,omitempty"` // who does it, for the log
	Name string `json:"name"`
	// Role is "admin", "user" or "writer"; "" leaves it as it is, and is "user" for a new user.
	Role string `json:"role,omitempty"`
	// Verifier is a SCRAM-SHA-256 verifier as in PostgreSQL's pg_authid.rolpassword;
	// "" leaves it as it is. Keep it as carefully as a password.
	Verifier string `json:"verifier,omitempty"`
}

// UserInfo is one user. Verifiers are shown to nobody.
type UserInfo struct {
	Name string `json:"name"`
	Role string `json:"role"`
}

// users are the operations on users.
type users struct {
	directory shardmap.Directory
	log       *slog.Logger
}

func (o *users) store() *access.Users { return access.NewUsers(o.directory) }

// verifier reads what a request brought. The error does not repeat it.
func (r *UserRequest) verifier() (access.Verifier, error) {
	v, err := access.ParseVerifier(r.Verifier)
	if err != nil {
		return v, sqlstate.New(sqlstate.InvalidParameterValue, "the verifier %v", err).
			WithHint("the command makes one of a password: cleave user add %s", r.Name)
	}
	return v, nil
}

// Users lists the users in order of name.
func (o *users) Users(ctx context.Context) ([]UserInfo, error) {
	list, err := o.store().List(ctx)
	if err != nil {
		return nil, directoryError(err)
	}
	out := make([]UserInfo, len(list))
	for i, u := range list {
		out[i] = UserInfo{Name: u.Name, Role: string(u.Role)}
	}
	return out, nil
}

// AddUser adds a user. Errors: 22023, 42710 if there is one of that name.
func (o *users) AddUser(ctx context.Context, req UserRequest) (*UserInfo, error) {
	if req.Role == "" {
		req.Role = string(access.Ordinary)
	}
	role, err := access.ParseRole(req.Role)
	if err != nil {
		return nil, err
	}
	v, err := req.verifier()
	if err != nil {
		return nil, err
	}
	if err := o.store().Add(ctx, access.User{Name: req.Name, Role: role, Verifier: v}); err != nil {
		return nil, directoryError(err)
	}
	o.log.Info("user added", "user", req.Name, "role", req.Role, "by", req.By)
	return &UserInfo{Name: req.Name, Role: req.Role}, nil
}

// ChangeUser gives a user another role, another verifier, or both. Sessions that
// run go on as they began. Errors: 22023, 42704 if there is no such user.
func (o *users) ChangeUser(ctx context.Context, req UserRequest) (*UserInfo, error) {
	var role access.Role
	var v access.Verifier
	var err error
	if req.Role != "" {
		if role, err = access.ParseRole(req.Role); err != nil {
			return nil, err
		}
	}
	if req.Verifier != "" {
		if v, err = req.verifier(); err != nil {
			return nil, err
		}
	}
	var is access.Role
	err = o.store().Change(ctx, req.Name, func(u *access.User) {
		if req.Role != "" {
			u.Role = role
		}
		if req.Verifier != "" {
			u.Verifier = v
		}
		is = u.Role
	})
	if err != nil {
		return nil, directoryError(err)
	}
	o.log.Info("user changed", "user", req.Name, "role", is, "new_password", req.Verifier != "", "by", req.By)
	return &UserInfo{Name: req.Name, Role: string(is)}, nil
}

// RemoveUser removes a user. Sessions that run go on. Errors: 42704 if there is none.
func (o *users) RemoveUser(ctx context.Context, req UserRequest) (*UserInfo, error) {
	if err := o.store().Remove(ctx, req.Name); err != nil {
		return nil, directoryError(err)
	}
	o.log.Info("user removed", "user", req.Name, "by", req.By)
	return &UserInfo{Name: req.Name}, nil
}
