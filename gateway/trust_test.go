package gateway_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/cleavedb/cleave/gateway/arrival"
)

func TestTrust(t *testing.T) {
	networks := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []struct {
		from   string
		within []netip.Prefix
		want   bool
	}{
		{"127.0.0.1", nil, true}, {"::1", nil, true}, {"10.1.2.3", nil, false},
		{"127.0.0.1", networks, true}, {"10.1.2.3", networks, true}, {"::ffff:10.1.2.3", networks, true}, {"fd00::1", networks, true},
		{"10.2.0.1", networks, false}, {"192.0.2.1", networks, false}, {"2001:db8::1", networks, false},
	} {
		_, err := arrival.Trust(c.within)(context.Background(), arrival.Startup{Remote: &net.TCPAddr{IP: net.ParseIP(c.from), Port: 1}}, nil)
		if (err == nil) != c.want {
			t.Errorf("%s of %v: %v", c.from, c.within, err)
		}
	}
}
