// Package drivers runs what other people wrote for PostgreSQL through a router beside one PostgreSQL: the test suites of
// pgx and lib/pq, and clients, ORMs and migrators of Python, Node, Perl, PHP, Ruby, Java and Go. A test that passes with PostgreSQL and not
// with the router stands, with its reason, in the folder known; such a list is a ceiling that only sinks. `make drivers` runs
// all; without -all it is lib/pq and the clients of Python.
package drivers
