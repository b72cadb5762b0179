// Package catalog has the definitions of a file's tables, views, sequences and captures with PostgreSQL's types, as they
// are rows of cleave_object, and the list of the relations of pg_catalog. The file itself knows SQLite's schema only.
//
// A Catalog is what one transaction sees: it is read again when the file's generation is another. Definitions in it are
// not changed but replaced. Nothing here knows a connection.
package catalog
