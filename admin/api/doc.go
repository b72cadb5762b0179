// Package api serves the operations of package admin over HTTP, and is the Go
// client for them.
//
//	GET  /healthz             200 when the process can serve, else 503; JSON
//	GET  /healthz/live        200 while the process runs
//	GET  /livez, /readyz      the same two, under the names that Kubernetes is used to
//	GET  /metrics             Prometheus text
//	GET  /api/v1/status       admin.Status
//	GET  /api/v1/shards       []admin.ShardInfo
//	GET  /api/v1/keyspaces    []admin.KeyspaceInfo
//	GET  /api/v1/tables       []admin.TableInfo
//	GET  /api/v1/routers      []admin.RouterInfo
//	GET  /api/v1/users        []admin.UserInfo
//	GET  /api/v1/sessions     admin.SessionsInfo     ?router=
//	GET  /api/v1/ranges       []admin.RangeInfo      ?keyspace=
//	GET  /api/v1/pins         []admin.PinInfo        ?keyspace=
//	GET  /api/v1/heat         admin.HeatInfo         ?keyspace=&limit=
//	GET  /api/v1/constraints  []admin.ConstraintInfo
//	GET  /api/v1/policy       admin.PolicyInfo
//	GET  /api/v1/plan_show    admin.PlanInfo         ?id=
//	GET  /api/v1/map          shardmap.State         ?version=
//	GET  /api/v1/history      []shardmap.Entry       ?after=&limit=&last=true
//	GET  /api/v1/diff         []shardmap.Difference  ?a=&b=
//	GET  /api/v1/shard_of     admin.ShardOfResult    ?keyspace=&key=&key=
//	GET  /api/v1/moves        []admin.WorkflowInfo   ?id=
//	POST /api/v1/create_keyspace, drop_keyspace, distribute, pin, unpin, shard_add, shard_remove, shard_default, shard_set, shard_drain,
//	     move, split, merge, spread, plan, plan_approve, policy_set, constraint_add, constraint_remove, pause, resume, cancel, reverse, complete, verify,
//	     user_add, user_change, user_remove, session_cancel, session_terminate, doctor, route: the request struct of package admin, JSON.
//	     rollback and finish are the names that reverse and complete had in earlier versions
//
// Errors are {"code": SQLSTATE, "message": ..., "detail": ..., "hint": ...}.
//
// With Options.Token every caller has to send it (health and metrics aside); without
// one only callers of the same machine and of Options.Trusted are obeyed.
//
// A web page open on the same machine must not be able to drive it: changes need
// POST with Content-Type application/json (which a browser sends across origins
// only after a preflight, and that is refused), an Origin or Sec-Fetch-Site header of
// another site is refused, and so is a Host header that is a foreign name (DNS
// rebinding).
package api
