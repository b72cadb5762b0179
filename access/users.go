package access

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Role is what a user may do.
type Role string

const (
	// Admin may do everything, the operations on the cluster too.
	Admin Role = "admin"
	// Ordinary may run statements, schema changes too, but none of Cleave's
	// functions that change the cluster.
	Ordinary Role = "user"
	// Writer may run statements that read and change rows, but none that changes
	// the schema.
	Writer Role = "writer"
)

// ParseRole returns the role of that name. Fails with 22023.
func ParseRole(name string) (Role, error) {
	switch r := Role(name); r {
	case Admin, Ordinary, Writer:
		return r, nil
	}
	return "", sqlstate.New(sqlstate.InvalidParameterValue, "there is no role %q", clip(name)).WithHint("there are %s, %s and %s", Admin, Ordinary, Writer)
}

// User is one user of the cluster.
type User struct {
	Name     string
	Role     Role
	Verifier Verifier
}

// nameMax is PostgreSQL's bound of a role's name, bytes.
const nameMax = 63

// CheckName fails with 22023 for what cannot be a user's name.
func CheckName(name string) error {
	if name == "" || len(name) > nameMax || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return sqlstate.New(sqlstate.InvalidParameterValue, "a user's name is 1 to %d bytes of UTF-8 without control characters", nameMax)
	}
	return nil
}

// Users are the users in a directory. Methods are safe for concurrent use.
type Users struct {
	records shardmap.Records

	mu     sync.Mutex
	secret []byte // of mock verifiers, once it is known
}

// NewUsers returns the users that the records hold.
func NewUsers(r shardmap.Records) *Users { return &Users{records: r} }

const (
	userPrefix = "access/user/"
	secretKey  = "access/mock"
)

// stored is the JSON form of a User.
type stored struct {
	Role     Role   `json:"role"`
	Verifier string `json:"verifier"`
}

// unreadable is the error of a record that is not what it should be. It does not
// repeat the value.
func unreadable(name string) error {
	return sqlstate.New(sqlstate.BadFileFormat, "the directory's record of user %q cannot be read", name).
		WithHint("set a new password: cleave user password %s", name)
}

func decode(name string, value []byte) (User, error) {
	var s stored
	dec := json.NewDecoder(bytes.NewReader(value))
	if dec.Decode(&s) != nil {
		return User{}, unreadable(name)
	}
	v, err := ParseVerifier(s.Verifier)
	if err != nil {
		return User{}, unreadable(name)
	}
	if _, err := ParseRole(string(s.Role)); err != nil {
		return User{}, unreadable(name)
	}
	return User{Name: name, Role: s.Role, Verifier: v}, nil
}

func noUser(name string) error {
	return sqlstate.New(sqlstate.UndefinedObject, "user %q does not exist", name).WithHint("see: cleave user list")
}

// Find returns the user to authenticate a client as. known is false if there is
// none of that name: then the user has a verifier that looks like any other and
// that no password matches. Errors: the directory's.
func (u *Users) Find(ctx context.Context, name string) (user User, known bool, err error) {
	secret, err := u.mockSecret(ctx)
	if err != nil {
		return User{}, false, err
	}
	none := User{Name: name, Verifier: mock(secret, name)}
	if CheckName(name) != nil {
		return none, false, nil
	}
	rec, err := u.records.Record(ctx, userPrefix+name)
	if errors.Is(err, shardmap.ErrNotFound) {
		return none, false, nil
	}
	if err != nil {
		return User{}, false, err
	}
	user, err = decode(name, rec.Value)
	return user, err == nil, err
}

// mockSecret is the cluster's own, made by the first router that needs it, so
// that an unknown user looks the same at every router, every time.
func (u *Users) mockSecret(ctx context.Context) ([]byte, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.secret != nil {
		return u.secret, nil
	}
	for range 3 {
		rec, err := u.records.Record(ctx, secretKey)
		if err == nil {
			u.secret = rec.Value
			return u.secret, nil
		}
		if !errors.Is(err, shardmap.ErrNotFound) {
			return nil, err
		}
		secret := make([]byte, 32)
		_, _ = rand.Read(secret) // never fails (crypto/rand)
		if _, err := u.records.PutRecord(ctx, secretKey, secret, 0); err != nil && !errors.Is(err, shardmap.ErrConflict) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("access: record %s comes and goes", secretKey)
}

// Add adds a user. Errors: 22023, 42710 if there is one of that name.
func (u *Users) Add(ctx context.Context, user User) error {
	value, err := encode(user)
	if err != nil {
		return err
	}
	_, err = u.records.PutRecord(ctx, userPrefix+user.Name, value, 0)
	if errors.Is(err, shardmap.ErrConflict) {
		return sqlstate.New(sqlstate.DuplicateObject, "user %q already exists", user.Name).
			WithHint("a new password: cleave user password %s; another role: cleave user role %s ROLE", user.Name, user.Name)
	}
	return err
}

func encode(user User) ([]byte, error) {
	if err := CheckName(user.Name); err != nil {
		return nil, err
	}
	if _, err := ParseRole(string(user.Role)); err != nil {
		return nil, err
	}
	return json.Marshal(stored{Role: user.Role, Verifier: user.Verifier.Text()})
}

// changeTries bounds how often a change begins anew because somebody was faster.
const changeTries = 8

// Change replaces what edit changes of a user. Errors: 42704 if there is none,
// 40001 if it is changed by others all the time.
func (u *Users) Change(ctx context.Context, name string, edit func(*User)) error {
	for range changeTries {
		rec, err := u.records.Record(ctx, userPrefix+name)
		if errors.Is(err, shardmap.ErrNotFound) {
			return noUser(name)
		}
		if err != nil {
			return err
		}
		user, err := decode(name, rec.Value)
		if err != nil {
			user = User{Name: name, Role: Ordinary}
		}
		edit(&user)
		value, err := encode(user)
		if err != nil {
			return err
		}
		_, err = u.records.PutRecord(ctx, userPrefix+name, value, rec.Revision)
		if !errors.Is(err, shardmap.ErrConflict) {
			return err
		}
	}
	return sqlstate.New(sqlstate.SerializationFailure, "user %q is changed by others all the time", name).WithHint("nothing was changed: run it again")
}

// Remove removes a user. Sessions that it has go on. Errors: 42704 if there is none.
func (u *Users) Remove(ctx context.Context, name string) error {
	for range changeTries {
		rec, err := u.records.Record(ctx, userPrefix+name)
		if err == nil {
			err = u.records.DeleteRecord(ctx, rec.Key, rec.Revision)
		}
		if errors.Is(err, shardmap.ErrNotFound) {
			return noUser(name)
		}
		if !errors.Is(err, shardmap.ErrConflict) {
			return err
		}
	}
	return sqlstate.New(sqlstate.SerializationFailure, "user %q is changed by others all the time", name).WithHint("nothing was changed: run it again")
}

// listMax bounds what List returns.
const listMax = 10_000

// List returns the users in order of name, at most 10,000, without their
// verifiers.
func (u *Users) List(ctx context.Context) ([]User, error) {
	var users []User
	after := ""
	for len(users) < listMax {
		page, err := u.records.Records(ctx, userPrefix, after, 500)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		for _, rec := range page {
			after = rec.Key
			name := strings.TrimPrefix(rec.Key, userPrefix)
			user, err := decode(name, rec.Value)
			if err != nil {
				return nil, err
			}
			users = append(users, User{Name: name, Role: user.Role})
		}
	}
	return users, nil
}
