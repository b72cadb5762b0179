//go:build !linux

package lane

import (
	"net"
	"time"
)

// Group is nil on this system.
type Group struct{}

// Start returns nil: there is no epoll here.
func Start(int) (*Group, error) { return nil, nil }

// Adopt returns nc.
func (g *Group) Adopt(nc net.Conn) net.Conn { return nc }

// Close does nothing.
func (g *Group) Close() {}

// Loop does not exist on this system.
type Loop struct{}

// Buffer returns nil.
func (l *Loop) Buffer() []byte { return nil }

// Now returns the time.
func (l *Loop) Now() time.Time { return time.Now() }

// Woke does nothing.
func (l *Loop) Woke() {}

// Conn does not exist on this system.
type Conn struct{ net.Conn }

// Loop returns nil.
func (c *Conn) Loop() *Loop { return nil }

// Move does nothing.
func (c *Conn) Move(*Loop) error { return nil }

// Watch does nothing.
func (c *Conn) Watch(Handler) {}

// Take does nothing.
func (c *Conn) Take(Handler) bool { return false }

// Leave does nothing.
func (c *Conn) Leave() {}

// Again does nothing.
func (c *Conn) Again() {}

// HungUp reports false.
func (c *Conn) HungUp() bool { return false }

// Poke does nothing.
func (c *Conn) Poke() {}

// Due reports false.
func (c *Conn) Due() bool { return false }

// Quiet reports false.
func (c *Conn) Quiet() bool { return false }

// ReadNow fails.
func (c *Conn) ReadNow([]byte) (int, error) { return 0, net.ErrClosed }

// WriteNow fails.
func (c *Conn) WriteNow([]byte) (int, error) { return 0, net.ErrClosed }
