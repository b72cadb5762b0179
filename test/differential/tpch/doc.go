// Package tpch makes the tables and the 22 queries of TPC-H at a small scale, the
// same bytes at every run: for tests that compare a router with one database.
//
// The tables have the benchmark's columns and relations. Values are drawn from
// shorter lists than the benchmark's, and four of the queries' constants are
// lower, so that every query finds rows among few.
package tpch
