package semantics

import (
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// OfDefault refuses calls that only the default shard answers in a statement that runs elsewhere.
func (fx *Effects) OfDefault() {
	to := fx.touched
	elsewhere := to.Sharded != "" || to.Virtual != ""
	spread := elsewhere || to.Reference != "" && fx.Changes
	if fx.Number != "" && (to.Sharded != "" || to.Reference != "" && fx.Changes) {
		fx.one.refuseBoth(sqlstate.Refusal("CLV-0220", "%s in a statement on the table %s%s: the OIDs of tables and types differ between shards", fx.Number, to.Sharded, to.Reference).
			WithHint("Name the object: tableoid::regclass, 'orders'::regclass; or take its OID in a statement of its own."))
	}
	if fx.advisory != "" && elsewhere {
		fx.one.refuseBoth(sqlstate.Refusal("CLV-1023", "%s() in a statement on the table %s%s would run on its shards: all advisory locks and notifications are the default shard's", fx.advisory, to.Sharded, to.Virtual).
			WithHint("Call it in a statement of its own."))
	}
	if fx.largeObject != "" && spread {
		fx.one.refuseBoth(sqlstate.Refusal("CLV-0221", "%s() in a statement on the table %s%s%s: large objects are on the default shard", fx.largeObject, to.Sharded, to.Virtual, to.Reference).
			WithHint("Call it in a statement of its own, with the OID of the object."))
	}
	if fx.temporaryCall != "" && spread {
		fx.one.refuseBoth(sqlstate.Refusal("CLV-0815", "%s() in a statement on the table %s%s%s: functions in pg_temp are in a session of the default shard", fx.temporaryCall, to.Sharded, to.Virtual, to.Reference).
			WithHint("Call it in a statement of its own."))
	}
}

// OfRouter is for a statement about tables of the schema cleave.
func (fx *Effects) OfRouter() {
	to := fx.touched
	for _, other := range []string{to.Sharded, to.Whole, to.Catalog, to.Unknown, to.Reference} {
		if other != "" {
			fail(sqlstate.Refusal("CLV-0222", "table %s is answered by the router and cannot be joined with %s", to.Virtual, other).
				WithHint("Read it in a statement of its own."))
		}
	}
	if fx.Changes || fx.Locks {
		fail(virtualWrite(to.Virtual))
	}
	fx.st.Kind = plan.Virtual
}

// OfShards is for a statement about sharded tables.
func (fx *Effects) OfShards() {
	to := fx.touched
	if to.Unknown != "" {
		fail(UndefinedTable(to.Unknown, fx.src.Position(to.UnknownAt)))
	}
	for _, other := range []string{to.Whole, to.Catalog} {
		if other != "" {
			fx.one.RefuseOne(sqlstate.Refusal("CLV-0223", "table %s is sharded and %s is on the default shard only", to.Sharded, other).
				WithHint("Use them in two statements, or declare %s as a reference table.", other))
		}
	}
	if fx.Sequence != "" {
		fx.one.refuseBoth(sqlstate.Refusal("CLV-0224", "%s() in a statement on the sharded table %s would count on each shard by itself", fx.Sequence, to.Sharded).
			WithHint("Get the value in a statement of its own: SELECT %s(...).", fx.Sequence))
	}
	fx.st.Kind = plan.OneShard
	if fx.one.Several {
		fx.st.Kind = plan.Several
	}
}

// OfNone is for a statement about no sharded table.
func (fx *Effects) OfNone() {
	to := fx.touched
	switch {
	case to.Whole != "" || to.Catalog != "" || to.Unknown != "" || fx.Sequence != "" || fx.PreferDefault || fx.Locks && to.Reference != "":
		// Who locks rows of a reference table FOR SHARE meets all others on any copy, and need not go where they are not.
		fx.st.Kind = plan.DefaultShard
	case fx.MayType && len(fx.st.Tables) == 0:
		fx.st.Kind = plan.DefaultShard
	default:
		fx.st.Kind = plan.AnyShard
	}
}
