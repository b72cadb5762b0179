package semantics

import (
	"strings"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// OneShard says whether one shard may run the statement.
type OneShard struct {
	st *plan.Statement

	// Several: one shard is not enough, or several are asked for; first says why, nil if they are asked for.
	Several bool
	first   *sqlstate.Error
	Final   bool // what is refused now is the reason to tell
}

// Judged is what an analysis says, after the reason why one shard is not enough.
func (one *OneShard) Judged(st *plan.Statement, err error) (*plan.Statement, error) {
	switch {
	case !one.Several:
		return st, err
	case err != nil && sqlstate.CodeOf(err) == sqlstate.UndefinedTable:
		return nil, err // PostgreSQL says so too, unless it is a temporary table: see the session
	case err != nil && one.first != nil && !one.Final && !strings.HasPrefix(string(sqlstate.CodeOf(err)), "22"):
		return nil, one.first
	case err != nil:
		return nil, err
	case st.Kind == plan.Several && st.Plan == nil || st.Kind == plan.OneShard:
		return nil, one.Reason()
	}
	return st, nil
}

// Reason is why one shard is not enough, for a statement that is not carried out otherwise.
func (one *OneShard) Reason() error {
	if one.first != nil {
		return one.first
	}
	return sqlstate.Refusal("CLV-0228", "the statement needs rows of several shards, in a way that the router does not know how to carry out").
		WithHint("Send one statement for each shard key.")
}

// Sooner is an error, or that of a bound: bounds are read later than what stands behind them.
func (co *restrictions) Sooner(err error) (out error) {
	if !co.one.Several && sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bailout)
			if !ok {
				panic(r)
			}
			out = b.Err
		}
	}()
	co.SettleBounds()
	return err
}

// RefuseOne notes that one shard cannot do it. The first reason is the one to tell.
func (one *OneShard) RefuseOne(e *sqlstate.Error) {
	if one.Several {
		return
	}
	one.Several, one.first = true, e
	one.st.Keys, one.st.TimeKeys, one.st.ArrayKeys = nil, nil, false
}

// refuseBoth refuses what no number of shards can do: the reason to tell, also where one shard was refused for another.
func (one *OneShard) refuseBoth(e *sqlstate.Error) {
	one.Final = true
	fail(e)
}

// onOne does what only one shard needs. What it refuses is refused for one shard.
func (one *OneShard) onOne(do func()) {
	if one.Several {
		return
	}
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bailout)
			if !ok || sqlstate.CodeOf(b.Err) != sqlstate.FeatureNotSupported {
				panic(r)
			}
			one.RefuseOne(sqlstate.As(b.Err))
		}
	}()
	do()
}

// RefuseLocks refuses in a way that tells more than why one shard is not enough. Unsure: PostgreSQL may not take
// the statement either.
func (one *OneShard) RefuseLocks(e *sqlstate.Error) {
	one.Final = true
	e.Unsure = true
	fail(e)
}
