// Package sqltree goes through PostgreSQL's syntax trees, reads names in them, builds parts of them and prints them.
//
// The texts that shards get are made by changing copies of the statement's tree and printing them. A text counts only if
// reading it again gives the same tree, so that nothing rests on the printer.
package sqltree
