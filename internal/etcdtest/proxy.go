package etcdtest

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
)

// Network is the way of one client to a cluster: a proxy before each member,
// which can be cut so that nothing passes and nobody is told.
type Network struct {
	proxies []*proxy
	path    string
}

// Network returns a way of its own to the cluster.
func (c *Cluster) Network(tb testing.TB) *Network {
	tb.Helper()
	n := &Network{path: fmt.Sprintf("/test/%d", prefixes.Add(1))}
	for _, m := range c.members {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatalf("etcdtest: %v", err)
		}
		p := &proxy{listener: l, member: m.client, conns: map[net.Conn]bool{}}
		p.work.Go(p.accept)
		tb.Cleanup(p.stop)
		n.proxies = append(n.proxies, p)
	}
	return n
}

// URL returns a directory's URL that goes this way; path is that of another URL.
func (n *Network) URL(other string) string {
	var hosts []string
	for _, p := range n.proxies {
		hosts = append(hosts, p.listener.Addr().String())
	}
	path := n.path
	if rest, ok := strings.CutPrefix(other, "etcd://"); ok {
		_, path, _ = strings.Cut(rest, "/")
		path = "/" + path
	}
	return "etcd://" + strings.Join(hosts, ",") + path
}

// Cut lets nothing pass any more, in either direction; connections stay open.
func (n *Network) Cut() {
	for _, p := range n.proxies {
		p.mu.Lock()
		p.cut = true
		p.mu.Unlock()
	}
}

// Heal lets everything pass again; connections that were cut are closed.
func (n *Network) Heal() {
	for _, p := range n.proxies {
		p.mu.Lock()
		if p.cut {
			p.cut = false
			p.closeAll()
		}
		p.mu.Unlock()
	}
}

// proxy passes what it gets on to a member, and back.
type proxy struct {
	listener net.Listener
	member   string
	work     sync.WaitGroup

	mu      sync.Mutex
	cut     bool
	stopped bool
	conns   map[net.Conn]bool // both ends of all
}

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.pass(near) })
	}
}

// keep makes a connection one of those that are closed with the proxy.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) pass(near net.Conn) {
	if !p.keep(near) {
		return
	}
	far, err := net.Dial("tcp", p.member)
	if err != nil || !p.keep(far) {
		p.end(near)
		return
	}
	p.work.Go(func() { p.pump(near, far) })
	p.pump(far, near)
}

// pump passes what comes from one end on to the other. While the way is cut it goes nowhere, and neither does the news that an end has closed.
func (p *proxy) pump(to, from net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		cut := p.cut
		p.mu.Unlock()
		if n > 0 && !cut {
			if _, werr := to.Write(b[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			if !cut {
				p.end(to)
			}
			p.end(from)
			return
		}
	}
}

func (p *proxy) end(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close()
}

// closeAll is called with the lock held.
func (p *proxy) closeAll() {
	for c := range p.conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

func (p *proxy) stop() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.stopped = true
	p.closeAll()
	p.mu.Unlock()
	p.work.Wait()
}
