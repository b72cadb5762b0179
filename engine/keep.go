package engine

import "context"

// Tables that routers keep on a PostgreSQL shard, in schema cleave_internal. They stand here since three rooms make them: the engine with a shard's
// installation, and the rooms that write them on shards of before.
const (
	// TransactionTable has a record of each transaction over several shards. xid and at are the shard's word: nobody writes them.
	TransactionTable = `CREATE TABLE IF NOT EXISTS cleave_internal.transaction (
	id uuid PRIMARY KEY,
	decided boolean,
	shards text[] NOT NULL DEFAULT '{}',
	xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
	at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX IF NOT EXISTS transaction_xid ON cleave_internal.transaction (xid);
COMMENT ON TABLE cleave_internal.transaction IS 'Cleave: transactions over several shards, for some minutes; see docs/design/transactions.md';
GRANT SELECT, INSERT (id, shards, decided) ON cleave_internal.transaction TO PUBLIC`
	// SchemaChangeTable has the ids of the schema changes that the shard has.
	SchemaChangeTable = "CREATE TABLE IF NOT EXISTS cleave_internal.schema_change (id text PRIMARY KEY)"
)

// Keeper is implemented by Shards whose internal tables can belong to a role that no client's statement runs as.
type Keeper interface {
	// Keep gives the internal tables to that role, and the others what the router's own statements need; the leader calls it again and again. It
	// changes nothing where that is so, or where there is no such role. It waits for a fraction of a second for those who write to the tables, and fails with 55P03 then;
	// with 42501 if the tables are of a role that it may not act for.
	Keep(ctx context.Context) error
}
