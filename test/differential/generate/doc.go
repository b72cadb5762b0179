// Package generate makes statements at random by a grammar, over small tables
// that are full of NULLs and equal values, and makes a statement that went wrong
// smaller.
//
// A statement's answer is the same at every run of one PostgreSQL: LIMIT only
// after an order of all columns, aggregates that depend on order only with one,
// no sums of floats, numerics of one scale, no division that could fail. Most
// statements are right in type.
package generate
