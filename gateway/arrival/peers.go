package arrival

import (
	"net"
	"sync"

	"github.com/cleavedb/cleave/telemetry"
)

// Peer answers another router until that ends. body is what it said first; proved is to be called when it is known to be one.
type Peer func(nc net.Conn, body []byte, proved func()) error

// peers are the connections of other routers, which ask this one. They stay while there are sessions.
type peers struct {
	mu   sync.Mutex
	all  map[net.Conn]struct{}
	over bool
}

// add notes a connection; false if there is nothing to be asked any more.
func (p *peers) add(nc net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	if p.all == nil {
		p.all = map[net.Conn]struct{}{}
	}
	p.all[nc] = struct{}{}
	return true
}

func (p *peers) remove(nc net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, nc)
}

// EndPeers ends the connections of other routers: there are no sessions any more.
func (e *Entrance) EndPeers() {
	p := &e.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for nc := range p.all {
		_ = nc.Close() // its goroutine sees it
	}
}

// answerPeer answers another router. body is what it said first.
func (e *Entrance) answerPeer(socket, nc net.Conn, body []byte) {
	if !e.peers.add(nc) {
		return
	}
	defer e.peers.remove(nc)
	err := e.o.Peer(nc, body, func() { e.Leave(socket) })
	e.o.Log.Debug("another router asks no more", telemetry.KeyClient, nc.RemoteAddr(), telemetry.KeyError, err)
}
