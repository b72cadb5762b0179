// Package plpgsql reads the code of DO blocks.
//
// A DO block that changes the schema, or rows of tables that are not the default shard's alone, is
// not run by a shard: the router carries out its code, statement by statement. Only a closed part of
// PL/pgSQL is read for that, see docs/design/schema.md; the rest is refused with the line and what stands there.
package plpgsql
