package gateway

import (
	"context"
	"errors"
	"strconv"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/sqlstate"
)

// This file is the session's part in the router's lease on the directory
// (docs/design/leases.md). A unit begins a turn; no statement goes to a shard,
// and nothing of a shard's answer goes to the client, unless the lease was held
// since. One answer is exempt: that of a write of rows of one key outside of a
// transaction. The shard's guard has accepted them, so the shard owned the key,
// and the write has landed. That no row was found is not exempt: guards are
// asked about rows, and the key's may be elsewhere by now.

// leased refuses a statement before it goes to a shard.
func (x *unitRun) leased() error {
	if x.turn.Holds() {
		return nil
	}
	e := x.srv.ex.NotServing()
	e.Retry = sqlstate.RetrySafe
	return e
}

// leaseLost deals with an answer that errLease has stopped, and says what is
// known about the outcome; nil if cause is something else.
func (x *unitRun) leaseLost(cause error, end byte) error {
	if !errors.Is(cause, errLease) {
		return nil
	}
	c := x.pipe.Conn
	c.Break()
	wrote, inTx := x.pipe.wrote, x.tx.state != txNone && !x.pipe.outside()
	e := x.srv.ex.NotServing().OnShard(c.Shard())
	if inTx {
		x.loseTx()
		e.Hint = "the transaction was rolled back: run it again, here or on another router"
		e.Retry = sqlstate.RetryTransaction
		return e
	}
	x.pipe.release()
	if wrote && end != executor.Flush {
		e.Code, e.Retry = sqlstate.TransactionUnknown, sqlstate.RetryUnknown
		e.Hint = "some of the statements before Sync were writes: look whether they landed before you run them again"
		return e
	}
	e.Retry = sqlstate.RetryTransaction
	return e
}

// routerRows are the rows of cleave.routers.
func (s *Server) routerRows(ctx context.Context, version uint64) ([][]engine.Text, error) {
	members, err := s.ex.Directory().Members(ctx)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the members of the cluster cannot be read")
	}
	var rows [][]engine.Text
	for _, m := range members {
		lag := uint64(0)
		if version > m.Acknowledged {
			lag = version - m.Acknowledged
		}
		rows = append(rows, []engine.Text{text(m.ID), text(m.Role), orNull(m.Address), text(m.Host), text(m.Software), number(uint64(m.Node)),
			number(m.Acknowledged), number(lag), moment(m.Joined), text(strconv.FormatFloat(m.Left.Seconds(), 'f', 3, 64))})
	}
	return rows, nil
}
