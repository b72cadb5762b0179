package ids

import (
	"github.com/google/uuid"

	"github.com/cleavedb/cleave/sqlstate"
)

// UUIDv7 returns a UUID of version 7 (RFC 9562) as text: ordered by time, and
// ascending within the process. Error: XX000 if the machine has no randomness.
func UUIDv7() (string, error) {
	u, err := uuid.NewV7()
	if err != nil {
		return "", sqlstate.Wrap(err, sqlstate.InternalError, "uuidv7() failed")
	}
	return u.String(), nil
}

// UUIDv4 returns a random UUID as text, as gen_random_uuid() does. Error: XX000.
func UUIDv4() (string, error) {
	u, err := uuid.NewRandom()
	if err != nil {
		return "", sqlstate.Wrap(err, sqlstate.InternalError, "gen_random_uuid() failed")
	}
	return u.String(), nil
}
