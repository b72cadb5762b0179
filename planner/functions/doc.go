// Package functions reads what the functions of users do, from their bodies as a shard's catalogue has them: which read no
// table, which are volatile, which act on their session, and which may read special date/time inputs out of their arguments.
package functions
