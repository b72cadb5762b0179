package engine

import (
	"context"
	"fmt"
)

// Login is a user of the databases themselves, with its password. Whatever prints
// it prints no password.
type Login struct {
	User, Password string
}

// Format prints the user alone, whatever the verb.
func (l Login) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte("user " + l.User)) }

// Users is implemented by the Shards of engines that have users with passwords.
type Users interface {
	// ConnectAs is Connect as a user of the database's own instead of the URL's. The
	// server itself checks the password; one that does not ask for it by
	// SCRAM-SHA-256 is refused, and sent no password. Errors: as of Connect; 28P01 for
	// a wrong password.
	ConnectAs(ctx context.Context, params map[string]string, login Login) (Conn, error)
	// ActsFor fails with 28000 if the URL's user cannot take the place of the one of a
	// conversation that ConnectAs made: so it ends what a dead router left prepared.
	ActsFor(ctx context.Context, conn Conn) error
}
