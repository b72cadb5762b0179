// Package systemrows makes the rows of the relations of pg_catalog and information_schema from a file's definitions.
package systemrows
