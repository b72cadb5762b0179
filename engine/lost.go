package engine

import (
	"errors"
	"fmt"

	"github.com/cleavedb/cleave/sqlstate"
)

// LostError is returned by Send and Receive when the conversation is over: the
// shard went away, the bytes were not frames, or a deadline passed. It is not a
// [sqlstate.Error], because the same failure is harmless before a statement and
// an unknown outcome during one; the caller, who knows what was in flight,
// chooses (see [LostError.State]).
type LostError struct {
	Shard string
	// Sent is false only if no byte of the Send that failed reached the
	// network. After a Send that returned nil it is always true.
	Sent bool
	Err  error
}

// Error names the shard and the cause.
func (e *LostError) Error() string {
	return fmt.Sprintf("connection to shard %s lost: %v", e.Shard, e.Err)
}

// Unwrap returns the cause (an io, net or context error).
func (e *LostError) Unwrap() error { return e.Err }

// State turns the loss into the error for a client. inFlight says that a
// statement which may write, or a COMMIT, had been handed over and was not
// answered: then the outcome is unknown (08007). Otherwise nothing was done
// (57P03, safe to run again).
func (e *LostError) State(inFlight bool) *sqlstate.Error {
	if inFlight && e.Sent {
		return &sqlstate.Error{
			Code: sqlstate.TransactionUnknown, Shard: e.Shard, Err: e, Retry: sqlstate.RetryUnknown,
			Message: fmt.Sprintf("the connection to shard %s broke while a write was in flight: it may or may not have landed", e.Shard),
			Hint:    "look whether the rows are there before running the statement again",
		}
	}
	return &sqlstate.Error{
		Code: sqlstate.CannotConnectNow, Shard: e.Shard, Err: e, Retry: sqlstate.RetrySafe,
		Message: fmt.Sprintf("shard %s is not available", e.Shard),
		Hint:    "nothing was done: run the statement again; `cleave doctor` says which shards answer",
	}
}

// Lost returns the LostError in err's chain, nil if there is none.
func Lost(err error) *LostError {
	var e *LostError
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// Prober is implemented by Conns that can tell, without blocking and without a
// round trip, whether an idle conversation is still good.
type Prober interface {
	// Probe returns nil if nothing has arrived since the last ReadyForQuery.
	// Bytes or an end of file on an idle conversation mean that the shard ended
	// it (or said something that nobody asked for): a pool discards it then.
	Probe() error
}

// Overhearer is implemented by Conns that can tell what a shard says while it takes a COPY's data.
type Overhearer interface {
	// Failed reports, hardly waiting, whether an ErrorResponse, or the end of the conversation, has
	// arrived that was not received yet. What Receive has returned before is not valid any more.
	Failed() bool
}

// Makeshift is implemented by Conns that may have begun in a lesser way than a new one would.
type Makeshift interface {
	// Replaceable reports whether a new one may be better now: a pool discards an idle
	// conversation then.
	Replaceable() bool
}

// Severer is implemented by Conns whose connection can be cut by any goroutine. A
// goroutine that waits on it, in whatever way, wakes up: Send and Receive fail at once.
type Severer interface {
	// Sever cuts the connection. Close has to follow.
	Sever()
}
