package access

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The mechanisms (RFC 5802, RFC 7677).
const (
	Plain = "SCRAM-SHA-256"
	Plus  = "SCRAM-SHA-256-PLUS" // bound to the TLS channel
)

// Exchange is the server's side of one SCRAM exchange: Begin, then End. It is
// used once, by one goroutine.
type Exchange struct {
	verifier Verifier
	plus     bool   // the client chose Plus
	offered  bool   // Plus was offered
	binding  []byte // the channel's tls-server-end-point
	header   string // the client's gs2-header
	bare     string // client-first-message-bare
	first    string // server-first-message
	nonce    string
}

// Errors of an exchange. ErrProof is a wrong password, or a user that does not
// exist; the others are what no honest client sends.
var (
	ErrProof   = errors.New("the password is wrong")
	ErrMessage = errors.New("malformed SCRAM message")
	ErrBinding = errors.New("SCRAM channel binding check failed")
)

// NewExchange begins an exchange with a client that chose the mechanism. binding
// is the hash of the server's certificate if the channel has one and Plus was
// offered, else nil.
func NewExchange(v Verifier, mechanism string, binding []byte) (*Exchange, error) {
	x := &Exchange{verifier: v, binding: binding, offered: binding != nil}
	switch {
	case mechanism == Plus && x.offered:
		x.plus = true
	case mechanism != Plain:
		return nil, fmt.Errorf("%w: the client selected an invalid SASL authentication mechanism", ErrMessage)
	}
	return x, nil
}

// Begin takes the client's first message and returns the answer. The user's name
// in it is not looked at: PostgreSQL's protocol has another.
func (x *Exchange) Begin(message []byte) ([]byte, error) {
	var random [18]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	return x.begin(message, base64.StdEncoding.EncodeToString(random[:]))
}

func (x *Exchange) begin(message []byte, random string) ([]byte, error) {
	text := string(message)
	flag, rest, ok := strings.Cut(text, ",")
	if !ok {
		return nil, ErrMessage
	}
	if err := x.checkBinding(flag); err != nil {
		return nil, err
	}
	identity, bare, ok := strings.Cut(rest, ",")
	if !ok {
		return nil, ErrMessage
	}
	if identity != "" {
		return nil, fmt.Errorf("%w: an authorization identity is not supported", ErrMessage)
	}
	x.header, x.bare = flag+",,", bare
	name, rest, ok := strings.Cut(bare, ",")
	if !ok || !strings.HasPrefix(name, "n=") { // "m=", a mandatory extension, too
		return nil, ErrMessage
	}
	nonce, _, _ := strings.Cut(rest, ",") // what follows are optional extensions
	nonce, ok = strings.CutPrefix(nonce, "r=")
	if !ok || nonce == "" || !printable(nonce) {
		return nil, ErrMessage
	}
	x.nonce = nonce + random
	x.first = "r=" + x.nonce + ",s=" + base64.StdEncoding.EncodeToString(x.verifier.salt) + ",i=" + strconv.Itoa(x.verifier.iterations)
	return []byte(x.first), nil
}

// checkBinding wants the flag of channel binding that suits the mechanism.
func (x *Exchange) checkBinding(flag string) error {
	switch {
	case flag == "n" && !x.plus:
	case flag == "y" && !x.plus:
		if x.offered {
			// The client could bind, and was made to believe that we cannot: somebody
			// in between took our offer away.
			return fmt.Errorf("%w: the client thinks that the server does not support it, but the server does", ErrBinding)
		}
	case flag == "p=tls-server-end-point" && x.plus:
	case strings.HasPrefix(flag, "p=") && x.plus:
		return fmt.Errorf("%w: unsupported channel binding type", ErrMessage)
	default:
		return fmt.Errorf("%w: channel binding flag %q does not suit the mechanism", ErrMessage, clip(flag))
	}
	return nil
}

// End takes the client's final message and returns the last answer. ErrProof: the
// client does not know the password.
func (x *Exchange) End(message []byte) ([]byte, error) {
	text := string(message)
	at := strings.LastIndex(text, ",p=")
	if at < 0 {
		return nil, ErrMessage
	}
	without := text[:at]
	proof, err := base64.StdEncoding.DecodeString(text[at+len(",p="):])
	if err != nil || len(proof) != sha256.Size {
		return nil, ErrMessage
	}
	channel, rest, ok := strings.Cut(without, ",")
	channel, ok2 := strings.CutPrefix(channel, "c=")
	nonce, _, _ := strings.Cut(rest, ",")
	nonce, ok3 := strings.CutPrefix(nonce, "r=")
	if !ok || !ok2 || !ok3 {
		return nil, ErrMessage
	}
	given, err := base64.StdEncoding.DecodeString(channel)
	if err != nil {
		return nil, ErrMessage
	}
	want := []byte(x.header)
	if x.plus {
		want = append(want, x.binding...)
	}
	if !bytes.Equal(given, want) {
		return nil, ErrBinding
	}
	if subtle.ConstantTimeCompare([]byte(nonce), []byte(x.nonce)) != 1 {
		return nil, fmt.Errorf("%w: the nonce does not match", ErrMessage)
	}
	message = []byte(x.bare + "," + x.first + "," + without)
	signature := mac(x.verifier.storedKey, message)
	key := make([]byte, sha256.Size)
	subtle.XORBytes(key, proof, signature)
	stored := sha256.Sum256(key)
	if subtle.ConstantTimeCompare(stored[:], x.verifier.storedKey) != 1 {
		return nil, ErrProof
	}
	return []byte("v=" + base64.StdEncoding.EncodeToString(mac(x.verifier.serverKey, message))), nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e || s[i] == ',' {
			return false
		}
	}
	return true
}

func clip(s string) string { return s[:min(len(s), 40)] }
