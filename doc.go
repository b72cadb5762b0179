// Package cleave is the Go client: a cluster opened inside a Go program.
//
//	cluster, err := cleave.Open(ctx, "file:./shop?shards=4")
//	...
//	defer cluster.Close()
//	db := cluster.DB() // a *sql.DB; cluster.Pool() is a *pgxpool.Pool
//
// The program runs the same planner, executor and gateway as `cleave router`, so
// that a statement goes from it to its shard without a network hop in between:
// [Cluster.DB], [Cluster.Pool] and [Cluster.Conn] are pgx, talking to a session
// of the gateway over a pipe in memory. Whatever works through a router works
// here, and is refused in the same words. Any number of programs and routers can
// have the same cluster open at the same time.
//
// [Cluster.ForKey] is for code that wants no planning at all: it gives the owner
// of a shard key, with connections to that shard itself.
//
// Errors of statements are *pgconn.PgError, with a SQLSTATE; those of Open and
// Admin are *sqlstate.Error.
//
// # What it guarantees
//
//   - Exact or refused, as everywhere; the shards' guards bind this program too.
//   - A killed program leaves nothing to clean up: locks are the kernel's, open
//     transactions are rolled back by their shards, and a schema change that was
//     cut off is finished by the next program or router that starts.
//   - Close ends every session, connection and goroutine that Open has begun.
package cleave
