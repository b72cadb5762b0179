package moment

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Code is the request code with which a member begins to ask another one, at the port for clients: see PostgreSQL's
// protocol-message-formats, of which it takes a number that is free.
const Code = 1234<<16 | 5766

// What members say to each other. Each word is a byte with a proof that its sender has the cluster's key, and that it is the
// next one of this conversation.
//
//	asker ──Code, nonce──▶   ◀──nonce──   ──ping──▶   ◀──yes──   ──hush──▶   ◀──yes──   ──lift──▶   ◀──yes── ...
const (
	ping = 'p'
	hush = 'h'
	lift = 'l'
	yes  = 'y' // of lift: the hush was whole
	no   = 'n'
)

const nonceBytes = 16

// line is a conversation of two members.
type line struct {
	nc    net.Conn
	key   []byte // of this conversation
	own   byte   // 'a' asks, 'b' is asked
	said  uint64
	heard uint64
	buf   [1 + sha256.Size]byte
}

var errProof = errors.New("moment: what another member says has no proof of the cluster's key")

// newLine makes the line of both nonces. asked is the id of the member that is asked.
func newLine(nc net.Conn, key []byte, own byte, asker, answerer []byte, asked string) *line {
	m := hmac.New(sha256.New, key)
	_, _ = m.Write(asker)         // never fails
	_, _ = m.Write(answerer)      // never fails
	_, _ = m.Write([]byte(asked)) // never fails
	return &line{nc: nc, key: m.Sum(nil), own: own}
}

func (l *line) proof(from byte, number uint64, word byte) []byte {
	m := hmac.New(sha256.New, l.key)
	_, _ = m.Write(append(binary.BigEndian.AppendUint64([]byte{from}, number), word)) // never fails
	return m.Sum(nil)
}

func (l *line) say(word byte) error {
	l.said++
	_, err := l.nc.Write(append([]byte{word}, l.proof(l.own, l.said, word)...))
	return err
}

func (l *line) hear() (word byte, err error) {
	if _, err := io.ReadFull(l.nc, l.buf[:]); err != nil {
		return 0, err
	}
	l.heard++
	if !hmac.Equal(l.buf[1:], l.proof('a'^'b'^l.own, l.heard, l.buf[0])) {
		return 0, errProof
	}
	return l.buf[0], nil
}

// ask says a word and hears the answer, in time.
func (l *line) ask(word byte, limit time.Duration) (bool, error) {
	if err := l.nc.SetDeadline(time.Now().Add(limit)); err != nil {
		return false, err
	}
	if err := l.say(word); err != nil {
		return false, err
	}
	answer, err := l.hear()
	return answer == yes, err
}

// call begins a conversation on a connection. asked is the member that is meant.
func call(nc net.Conn, key []byte, asked string, limit time.Duration) (*line, error) {
	if err := nc.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	own, other := nonce(), make([]byte, nonceBytes)
	hello := binary.BigEndian.AppendUint32(nil, 8+nonceBytes)
	if _, err := nc.Write(append(binary.BigEndian.AppendUint32(hello, Code), own...)); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(nc, other); err != nil {
		return nil, err
	}
	l := newLine(nc, key, 'a', own, other, asked)
	if ok, err := l.ask(ping, limit); err != nil || !ok {
		return nil, errors.Join(err, errProof)
	}
	return l, nil
}

func nonce() []byte {
	b := make([]byte, nonceBytes)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return b
}

// Answerer answers the other members for a process.
type Answerer struct {
	Gate *Gate
	// Member is the process's id as a member.
	Member string
	Key    *Key
	// Quiet is that of New.
	Quiet func() (loud func())
}

// keyMax bounds the reading of the key.
const keyMax = 5 * time.Second

// Serve answers on a connection that began with Code and this body, until it ends: a hush ends with it. The caller closes
// it, and bounds the time until proved is called: when the other end has proved that it is a member. From then on the
// connection's deadline is Serve's.
func (a *Answerer) Serve(nc net.Conn, body []byte, proved func()) error {
	if len(body) != nonceBytes {
		return fmt.Errorf("moment: a nonce of %d bytes", len(body))
	}
	ctx, stop := context.WithTimeout(context.Background(), keyMax)
	defer stop()
	key, err := a.Key.Get(ctx)
	if err != nil {
		return err
	}
	own := nonce()
	if _, err := nc.Write(own); err != nil {
		return err
	}
	l := newLine(nc, key, 'b', body, own, a.Member)
	end := func() bool { return false }
	defer func() { end() }()
	for {
		word, err := l.hear()
		if err != nil {
			if proved != nil && errors.Is(err, errProof) {
				_, _ = a.Key.Renew(ctx) // for the next one: the directory may have been put back
			}
			return err
		}
		if proved != nil {
			proved()
			proved = nil
		}
		answer, most := true, time.Time{}
		switch word {
		case hush:
			end()
			if end, answer = a.hush(); answer {
				most = time.Now().Add(2 * Bound) // who asked may have been stopped: commits do not wait for it longer
			}
		case lift:
			answer = end()
			end = func() bool { return false }
		}
		if err := nc.SetDeadline(most); err != nil {
			return err
		}
		said := byte(no)
		if answer {
			said = yes
		}
		if err := l.say(said); err != nil {
			return err
		}
	}
}

func (a *Answerer) hush() (end func() (whole bool), ok bool) {
	loud := a.Quiet()
	h := a.Gate.Hush(Bound)
	if h == nil {
		loud()
		return func() bool { return false }, false
	}
	return func() bool {
		defer loud()
		return h.Lift()
	}, true
}
