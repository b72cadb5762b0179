// Package clients runs the ordinary life of clients in use everywhere on sharded
// tables: lib/pq, and under node node-postgres, postgres.js and Drizzle. They talk
// to a router over three PostgreSQL databases and know nothing of Cleave.
package clients
