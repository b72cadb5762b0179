package etcdtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

// Network is the way of one client to a cluster: a proxy before each member,
// which can be cut so that nothing passes and nobody is told.
type Network struct {
	proxies []*toxiproxy.Proxy
	path    string
}

// Network returns a way of its own to the cluster.
func (c *Cluster) Network(tb testing.TB) *Network {
	tb.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	n := &Network{path: fmt.Sprintf("/test/%d", prefixes.Add(1))}
	for i, m := range c.members {
		p := toxiproxy.NewProxy(server, fmt.Sprintf("%s-%d", m.name, i), "127.0.0.1:0", m.client)
		if err := p.Start(); err != nil {
			tb.Fatalf("etcdtest: %v", err)
		}
		tb.Cleanup(p.Stop)
		n.proxies = append(n.proxies, p)
	}
	return n
}

// URL returns a directory's URL that goes this way; path is that of another URL.
func (n *Network) URL(other string) string {
	var hosts []string
	for _, p := range n.proxies {
		hosts = append(hosts, p.Listen)
	}
	path := n.path
	if rest, ok := strings.CutPrefix(other, "etcd://"); ok {
		_, path, _ = strings.Cut(rest, "/")
		path = "/" + path
	}
	return "etcd://" + strings.Join(hosts, ",") + path
}

// Cut lets nothing pass any more, in either direction; connections stay open.
func (n *Network) Cut(tb testing.TB) {
	tb.Helper()
	for _, p := range n.proxies {
		for _, stream := range []string{"upstream", "downstream"} {
			toxic := fmt.Sprintf(`{"name": %q, "type": "timeout", "stream": %q, "attributes": {"timeout": 0}}`, stream, stream)
			if _, err := p.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
				tb.Fatalf("etcdtest: %v", err)
			}
		}
	}
}

// Heal lets everything pass again; connections that were cut are closed.
func (n *Network) Heal() {
	for _, p := range n.proxies {
		p.Toxics.ResetToxics(context.Background())
	}
}

// IgnoreNetwork makes goleak overlook what the proxy's library leaves behind of
// connections that were cut.
func IgnoreNetwork() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run")
}
