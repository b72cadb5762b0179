package engine

import "github.com/cleavedb/cleave/internal/lane"

// Async is implemented by Conns that a loop can watch: conversations go on
// without a goroutine that waits.
type Async interface {
	// Lane is the socket, nil if no loop watches it.
	Lane() *lane.Conn
	// SendNow is Send of as much as can be sent without waiting; it returns how
	// many bytes that was.
	SendNow(frames []byte) (int, error)
	// ReceiveNow is Receive of what has arrived: nil if that is no whole frame.
	ReceiveNow() ([]byte, error)
}
