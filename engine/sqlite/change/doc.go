// Package change notes which rows a transaction touches, and carries its changes as a stream: what a prepared transaction
// keeps of itself while the file's lock is let go.
package change
