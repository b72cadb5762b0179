// Package clustercatalog has a shard answer for the cluster what clients ask of PostgreSQL's catalogue: without what the
// router keeps there for itself, with the cluster's database name, and with the schema cleave.
package clustercatalog
