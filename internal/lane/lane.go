package lane

import (
	"errors"
	"runtime"
)

// ErrAgain says that nothing can be read or written now.
var ErrAgain = errors.New("lane: not now")

// BufferSize is the size of the buffer that each loop lends to its handlers.
const BufferSize = 64 << 10

// Handler is called by the loop of a Conn that it watches: when bytes arrived,
// the other side hung up, the read deadline passed or the Conn was closed. It
// may be called without any of it, and must not wait for anything.
type Handler interface {
	Ready(c *Conn)
}

// Default is the number of loops that suits the machine: one for every four
// processors that Go may use. One loop relays what about ten sessions on other
// processors can ask for.
func Default() int { return max(1, (runtime.GOMAXPROCS(0)+3)/4) }
