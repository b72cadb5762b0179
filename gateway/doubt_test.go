package gateway

import (
	"testing"

	"github.com/cleavedb/cleave/executor/leaseuse"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestDoubtIsTold: a COMMIT of which nobody knows the outcome says so, although a move has asked for the end of its transaction meanwhile: that
// nothing is committed would not be true.
func TestDoubtIsTold(t *testing.T) {
	for code, want := range map[sqlstate.Code]sqlstate.Code{
		sqlstate.TransactionUnknown: sqlstate.TransactionUnknown,
		sqlstate.QueryCanceled:      sqlstate.SerializationFailure,
	} {
		x := &session{}
		x.interrupts.ending.Store(&leaseuse.Hold{Transit: &shardmap.Transit{ID: "m1"}, Owner: "a"})
		if got := sqlstate.CodeOf(x.insteadOf(sqlstate.New(code, "an error"))); got != want {
			t.Errorf("the client gets %s instead of %s, not %s", got, code, want)
		}
	}
}
