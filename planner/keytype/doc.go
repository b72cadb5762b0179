// Package keytype says which values of a statement are values of a shard key's type: families of types that compare by
// value, conversions within them, and numbers as literals write them.
package keytype
