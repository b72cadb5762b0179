// Package keysource reads shard keys for `cleave simulate`: from CSV, TSV, JSON
// lines or plain lines, compressed with gzip or not, from standard input, or
// from a generator. A [Source] can be read more than once, row by row, in bounded memory: a
// record has at most 16 MiB. [Keys] makes keys of the rows, guessing their types if need be.
//
// Standard input is copied to a file without a name while it is read, if it
// has to be read twice.
package keysource
