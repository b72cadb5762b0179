package gateway

import (
	"context"
	"net"
	"net/netip"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/sqlstate"
)

// Trust lets in everybody on the same machine, as [TrustLoopback] does, and
// everybody with an address of the networks. Nobody is asked for a password: the
// networks have to be private.
func Trust(networks []netip.Prefix) Authenticate {
	return func(ctx context.Context, s Startup, ask func(uint32, []byte, bool) ([]byte, error)) (Identity, error) {
		if a, ok := s.Remote.(*net.TCPAddr); ok {
			addr := a.AddrPort().Addr().Unmap()
			for _, n := range networks {
				if n.Contains(addr) {
					return Identity{Role: access.Admin}, nil
				}
			}
		}
		id, err := TrustLoopback(ctx, s, ask)
		if err != nil && len(networks) > 0 {
			return Identity{}, sqlstate.New(sqlstate.InvalidAuthorization, "clients from %s may not connect", s.Remote).
				WithHint("the setting trust of the router lists the networks whose clients may")
		}
		return id, err
	}
}

// TrustNetworks lets in everybody with an address of the networks, and nobody
// else, not even clients of the same machine.
func TrustNetworks(networks []netip.Prefix) Authenticate {
	return func(_ context.Context, s Startup, _ func(uint32, []byte, bool) ([]byte, error)) (Identity, error) {
		if a, ok := s.Remote.(*net.TCPAddr); ok {
			addr := a.AddrPort().Addr().Unmap()
			for _, n := range networks {
				if n.Contains(addr) {
					return Identity{Role: access.Admin}, nil
				}
			}
		}
		return Identity{}, sqlstate.New(sqlstate.InvalidAuthorization, "clients from %s are not trusted", s.Remote)
	}
}

// plainAllowed reports whether a client at the address may go without TLS.
func (s *Server) plainAllowed(a net.Addr) bool {
	if !s.tlsRequired {
		return true
	}
	if _, unix := a.(*net.UnixAddr); unix {
		return true
	}
	return inProcess(a)
}
