// Command regress runs PostgreSQL's own regression scripts on a router and on one
// plain database, statement by statement, and prints the share of each topic that
// gives the same, is refused, or differs. The scripts are PostgreSQL's and are not
// part of this repository: they come with its source.
//
//	go run ./test/differential/regress -dir postgresql-15.18/src/test/regress
//
// Tables are sharded where one of their columns can be the key: the column of the
// primary key, else the first of a type that a key can have; it is made NOT NULL
// in both databases. Psql's own commands, statements that look into the catalogue,
// and those whose values change from run to run are left out.
package main
