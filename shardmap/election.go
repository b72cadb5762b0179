package shardmap

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/cleavedb/cleave/sqlstate"
)

// ErrDeposed is returned by writes that carry the token of a leadership that
// has ended. Nothing was written.
var ErrDeposed = errors.New("shardmap: the leadership has ended")

// Leadership is one candidate's time as the leader of an election. Others can
// lead as soon as it has ended, which the leader may learn late: so every write
// that only a leader may do carries the token, and the directory refuses it
// afterwards (see [Change.Token] and [Directory.Fenced]).
type Leadership struct {
	token  uint64
	lost   chan struct{}
	end    func() // stops what keeps it, and waits
	once   sync.Once
	resign func(ctx context.Context) error
	gone   sync.Once
}

// NewLeadership is for directories: end stops what keeps the leadership,
// resign gives it up in the store. depose closes Lost.
func NewLeadership(token uint64, end func(), resign func(ctx context.Context) error) (l *Leadership, depose func()) {
	l = &Leadership{token: token, lost: make(chan struct{}), end: end, resign: resign}
	return l, l.depose
}

func (l *Leadership) depose() { l.gone.Do(func() { close(l.lost) }) }

// Token is the fencing token: never 0, greater than that of every leader before
// it in the same election, and no other election's.
func (l *Leadership) Token() uint64 { return l.token }

// Lost is closed when the leadership has ended or may have: it was resigned, or
// could not be renewed in time.
func (l *Leadership) Lost() <-chan struct{} { return l.lost }

// Resign ends the leadership, so that another candidate leads at once. If the
// directory cannot be reached it ends by itself after the lease's time.
func (l *Leadership) Resign(ctx context.Context) (err error) {
	l.once.Do(func() {
		l.end()
		l.depose()
		err = l.resign(ctx)
	})
	return err
}

// Lead keeps a leadership that was won at the moment from by renewing it, until
// it is resigned, renew says ErrLeaseLost, it could not renew in time, or life
// ends. Directories without a keep-alive of their own make Campaign of it.
func Lead(life context.Context, ttl time.Duration, from time.Time, token uint64, renew, resign func(ctx context.Context) error) *Leadership {
	own, stop := context.WithCancel(life)
	done := make(chan struct{})
	l, depose := NewLeadership(token, func() { stop(); <-done }, resign)
	grant := ttl - ttl/marginsPerTTL
	held := NewLease(nil)
	held.Extend(from, grant)
	go func() {
		defer close(done)
		defer depose()
		t := time.NewTicker(ttl / (2 * renewsPerTTL))
		defer t.Stop()
		for held.Live() {
			select {
			case <-own.Done():
				return
			case <-t.C:
			}
			from := time.Now()
			ctx, cancel := context.WithTimeout(own, max(held.Left(), time.Millisecond))
			err := renew(ctx)
			cancel()
			if errors.Is(err, ErrLeaseLost) {
				return
			}
			if err == nil {
				held.Extend(from, grant)
			}
		}
	}()
	return l
}

// Deposed returns the error of a write with the token of a leadership that has
// ended, wrapping ErrDeposed.
func Deposed(token uint64) error {
	return sqlstate.Wrap(ErrDeposed, sqlstate.ObjectNotInState, "the leadership with token %d has ended: nothing was written", token).
		WithHint("another process goes on with the work; \"cleave map history\" shows what it does")
}

// CheckElection checks the words of a Campaign.
func CheckElection(election, candidate string) error {
	if election == "" || len(election) > MaxNameBytes || strings.ContainsAny(election, "/\x00") || !utf8.ValidString(election) ||
		len(candidate) > maxByBytes || !utf8.ValidString(candidate) || strings.IndexByte(candidate, 0) >= 0 {
		return sqlstate.New(sqlstate.InvalidParameterValue,
			"an election needs a name of at most %d bytes without slashes, a candidate one of at most %d bytes", MaxNameBytes, maxByBytes)
	}
	return nil
}
