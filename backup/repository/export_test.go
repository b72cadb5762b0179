package repository

import (
	"crypto/sha256"
)

// WithFoot replaces the foot of an object by one that fits the rest.
func WithFoot(object []byte) []byte {
	rest := object[:len(object)-footLength]
	sum := sha256.Sum256(append(append([]byte(nil), rest...), footBefore(int64(len(rest)))...))
	return append(append([]byte(nil), rest...), foot(int64(len(rest)), sum[:])...)
}
