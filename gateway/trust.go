package gateway

import (
	"context"
	"net"
	"net/netip"

	"github.com/cleavedb/cleave/sqlstate"
)

// Trust lets in everybody on the same machine, as [TrustLoopback] does, and
// everybody with an address of the networks. Nobody is asked for a password: the
// networks have to be private.
func Trust(networks []netip.Prefix) Authenticate {
	return func(ctx context.Context, s Startup, ask func(uint32, []byte, bool) ([]byte, error)) error {
		if a, ok := s.Remote.(*net.TCPAddr); ok {
			addr := a.AddrPort().Addr().Unmap()
			for _, n := range networks {
				if n.Contains(addr) {
					return nil
				}
			}
		}
		err := TrustLoopback(ctx, s, ask)
		if err != nil && len(networks) > 0 {
			return sqlstate.New(sqlstate.InvalidAuthorization, "clients from %s may not connect", s.Remote).
				WithHint("the setting trust of the router lists the networks whose clients may")
		}
		return err
	}
}
