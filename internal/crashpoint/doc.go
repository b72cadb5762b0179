// Package crashpoint is where programs that are built for test/crash, with the tag crashpoint, stop when they are asked to, so that a
// test can kill them there. Other programs have nothing of it.
package crashpoint
