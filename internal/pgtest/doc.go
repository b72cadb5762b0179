// Package pgtest gives tests real PostgreSQL servers: one shared by a test
// binary, servers of one's own, every major version that can be had, and the
// client programs. What is missing is installed or fetched; if that fails, the
// test fails. It never skips.
//
// A test package that uses it has
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// Servers end with the test binary, however it ends: a small shell process
// waits for the binary's end of a pipe to close, stops the server and removes
// its folder.
package pgtest
