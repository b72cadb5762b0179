// Package pipe is a connection in memory: what net.Pipe is, but with a buffer in
// each direction, so that a write does not wait for its reader, and one message
// costs one wake-up.
//
// Invariants:
//
//   - A direction holds at most [Buffer] bytes; a write waits for room.
//   - Bytes written before Close are still read by the other end, then io.EOF.
//   - A deadline wakes what waits, at once if it has passed.
//   - No goroutine is started; what waits is woken by write, read, close or deadline.
package pipe
