// Package pgcatalog has what every PostgreSQL database has before anybody
// creates something in it: the built-in types, functions, operators, casts, and
// the relations of pg_catalog and information_schema. It says for each in which
// of the supported major versions it is there, and in which form.
//
// The rows are text in the folder data, made from real servers by
// TestMatchesServers and embedded. They are read on first use.
//
// On the rows works PostgreSQL's type resolution (chapter "Type Conversion" of
// its manual): which function a call means, which operator, what casts are
// possible, what polymorphic types stand for. TestResolver compares it with
// real servers.
//
// It is pure data: no server is asked. docs/design/catalogue.md tells more.
package pgcatalog
