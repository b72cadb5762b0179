package access

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/xdg-go/stringprep"

	"github.com/cleavedb/cleave/sqlstate"
)

// DefaultIterations is PostgreSQL's scram_iterations.
const DefaultIterations = 4096

const (
	// PasswordBytes bounds a password.
	PasswordBytes = 1024
	saltBytes     = 16
	saltMax       = 64
	iterationsMin = 4096 // RFC 7677
	iterationsMax = 10_000_000
)

// Verifier proves a password without holding it (RFC 5802). What it holds is
// enough to guess weak passwords, so it is a secret too: it has no String.
type Verifier struct {
	iterations           int
	salt                 []byte
	storedKey, serverKey []byte
}

// PasswordMin is the length that a new password needs, in characters, as in PostgreSQL's module passwordcheck.
const PasswordMin = 8

// CheckPassword refuses a new password that is too short to be one (22023). It is asked where a password is set; what is
// known by a verifier alone cannot be asked.
func CheckPassword(password string) error {
	if utf8.RuneCountInString(password) < PasswordMin {
		return sqlstate.New(sqlstate.InvalidParameterValue, "password is too short").WithDetail("A password has at least %d characters.", PasswordMin).
			WithHint("choose a longer one, such as several words")
	}
	return nil
}

// NewVerifier makes the verifier of a password, with a salt of its own. Fails
// for an empty password, one over PasswordBytes, and one with a zero byte.
func NewVerifier(password string) (Verifier, error) {
	switch {
	case password == "":
		return Verifier{}, errors.New("the password is empty")
	case len(password) > PasswordBytes:
		return Verifier{}, fmt.Errorf("the password is longer than %d bytes", PasswordBytes)
	case strings.IndexByte(password, 0) >= 0:
		return Verifier{}, errors.New("the password holds a zero byte")
	}
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails (crypto/rand)
	return derive(password, salt, DefaultIterations)
}

func derive(password string, salt []byte, iterations int) (Verifier, error) {
	salted, err := pbkdf2.Key(sha256.New, prepare(password), salt, iterations, sha256.Size)
	if err != nil {
		return Verifier{}, err
	}
	stored := sha256.Sum256(mac(salted, []byte("Client Key")))
	return Verifier{iterations: iterations, salt: salt, storedKey: stored[:], serverKey: mac(salted, []byte("Server Key"))}, nil
}

// prepare is SASLprep; what it refuses is taken as it is, as PostgreSQL does.
func prepare(password string) string {
	if p, err := stringprep.SASLprep.Prepare(password); err == nil && p != "" {
		return p
	}
	return password
}

func mac(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

const verifierPrefix = "SCRAM-SHA-256$"

// errVerifier says nothing of what was given: it may be a password.
var errVerifier = errors.New("is no SCRAM-SHA-256 verifier as in PostgreSQL's pg_authid.rolpassword: SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY")

// ParseVerifier reads the form that PostgreSQL keeps in pg_authid.rolpassword,
// so that users can be brought over without their passwords. The error does not
// repeat the text.
func ParseVerifier(text string) (Verifier, error) {
	rest, ok := strings.CutPrefix(text, verifierPrefix)
	head, keys, ok2 := strings.Cut(rest, "$")
	count, salt, ok3 := strings.Cut(head, ":")
	stored, server, ok4 := strings.Cut(keys, ":")
	if !ok || !ok2 || !ok3 || !ok4 || len(text) > 1024 {
		return Verifier{}, errVerifier
	}
	var v Verifier
	var err [4]error
	v.iterations, err[0] = strconv.Atoi(count)
	v.salt, err[1] = base64.StdEncoding.DecodeString(salt)
	v.storedKey, err[2] = base64.StdEncoding.DecodeString(stored)
	v.serverKey, err[3] = base64.StdEncoding.DecodeString(server)
	if errors.Join(err[:]...) != nil || v.iterations < 1 || v.iterations > iterationsMax || len(v.salt) == 0 || len(v.salt) > saltMax ||
		len(v.storedKey) != sha256.Size || len(v.serverKey) != sha256.Size {
		return Verifier{}, errVerifier
	}
	if v.iterations < iterationsMin {
		return Verifier{}, fmt.Errorf("has %d iterations; at least %d are needed", v.iterations, iterationsMin)
	}
	return v, nil
}

// Text is the form that ParseVerifier reads. Keep it as carefully as a password.
func (v Verifier) Text() string {
	e := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("%s%d:%s$%s:%s", verifierPrefix, v.iterations, e(v.salt), e(v.storedKey), e(v.serverKey))
}

// GoString and Format keep what it holds out of logs that print whole structs.
func (v Verifier) GoString() string { return "access.Verifier{}" }

// Format prints nothing of it, whatever the verb.
func (v Verifier) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte("(verifier)")) }

// Matches reports whether it is the password's.
func (v Verifier) Matches(password string) bool {
	d, err := derive(password, v.salt, v.iterations)
	return err == nil && subtle.ConstantTimeCompare(d.storedKey, v.storedKey) == 1
}

// mock is what an unknown user seems to have: always the same for one name, as
// with a user that exists. No password matches.
func mock(secret []byte, user string) Verifier {
	salt := mac(secret, []byte("salt"), []byte(user))[:saltBytes]
	keys := make([]byte, 2*sha256.Size)
	_, _ = rand.Read(keys) // never fails (crypto/rand)
	return Verifier{iterations: DefaultIterations, salt: salt, storedKey: keys[:sha256.Size], serverKey: keys[sha256.Size:]}
}
