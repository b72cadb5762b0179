// Package keyspace turns shard keys into positions: typed values, their
// parsing from PostgreSQL's text and binary formats, the hash that PostgreSQL
// itself computes, and an order-preserving encoding. Pure: no I/O, no clock.
//
// # Hash positions
//
// A hash keyspace places a key at a signed 64-bit number: PostgreSQL's own
// extended hash of the value, with the keyspace's recorded seed. The hash of
// one column is the seed of the next. [HashKey] computes it here, [KeyHashExpr]
// gives the SQL that computes it in PostgreSQL 14 or later with built-in
// functions alone. They agree on every value:
//
//	type         SQL                                              bytes hashed
//	-----------  -----------------------------------------------  ---------------------------------
//	smallint     hashint2extended(c, seed)                        the number as 32 bits
//	integer      hashint4extended(c, seed)                        the number as 32 bits
//	bigint       hashint8extended(c, seed)                        low half xor high half (its
//	                                                              complement below 0), 32 bits: equal
//	                                                              numbers hash alike in all three
//	text         hashtextextended(c COLLATE "C", seed)            the bytes in UTF-8
//	varchar      hashtextextended(c::text COLLATE "C", seed)      the bytes in UTF-8
//	uuid         uuid_hash_extended(c, seed)                      the 16 bytes
//	date         hash_record_extended(ROW(c), seed), which is     days since 2000-01-01, 32 bits
//	             hashint4extended of the days (18: hashdateextended)
//	timestamp    timestamp_hash_extended(c, seed)                 microseconds since 2000-01-01, as bigint
//	timestamptz  timestamp_hash_extended(c AT TIME ZONE 'UTC',    microseconds since 2000-01-01 UTC,
//	             seed)                                            as bigint
//	bytea        hash_record_extended(ROW(c), seed), which is     the bytes
//	             hashvarlenaextended (18: hashbyteaextended)
//	boolean      hashint4extended(c::integer, seed), which is     0 or 1, 32 bits
//	             hashcharextended
//
// The hash of a row of one column is the hash of that column by the hash
// operator class of its type (PostgreSQL sources, rowtypes.c), which is how SQL
// reaches hash functions whose arguments it cannot name. The function below
// them is Bob Jenkins' lookup3 (hashfn.c). It reads words in the machine's byte
// order, so shards on big-endian machines place texts elsewhere: those are not
// supported, and [Probe] finds them out.
//
// # Ordered positions
//
// A range keyspace places a key at itself. [AppendOrdered] encodes it so that
// the order of the encodings, as bytes, is the order of PostgreSQL's
// ORDER BY c1, c2, ... with text COLLATE "C", and so that the encoding of a
// prefix of a key is a prefix of the key's encoding.
//
// # Texts
//
// [ParseText] gives the value that PostgreSQL's input function gives, or an
// error. Spellings whose meaning depends on a session's settings or on the
// server's version are refused with 0A000, never guessed: see there.
package keyspace
