package gateway_test

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// BenchmarkSelect sends one statement by key at a time, from one client. The
// allocations are those of the router: the client makes none.
func BenchmarkSelect(b *testing.B) {
	cl, conn, keys := orders(b, config{})
	for _, ks := range keys {
		exec(b, conn, "INSERT INTO orders VALUES ($1, 1, 'note')", ks[0])
	}
	encode := func(ms ...pgproto3.FrontendMessage) []byte {
		var out []byte
		for _, m := range ms {
			var err error
			if out, err = m.Encode(out); err != nil {
				b.Fatal(err)
			}
		}
		return out
	}
	sel := "SELECT note FROM orders WHERE tenant_id = $1 AND id = 1"
	for _, bm := range []struct {
		name  string
		frame func(k int64) []byte
	}{
		{"prepared", func(k int64) []byte {
			return encode(bind("", "s", fmt.Sprint(k)), describe('P', ""), do("", 0), syncMsg)
		}},
		{"extended", func(k int64) []byte {
			return encode(parse("", sel), bind("", "", fmt.Sprint(k)), describe('P', ""), do("", 0), syncMsg)
		}},
		{"simple", func(k int64) []byte {
			return encode(&pgproto3.Query{String: fmt.Sprintf("SELECT note FROM orders WHERE tenant_id = %d AND id = 1", k)})
		}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			c := cl.raw(b)
			c.send(parse("s", sel), syncMsg)
			c.want("1", "Z I")
			_ = c.nc.(*net.TCPConn).SetDeadline(time.Time{})
			var sent [][]byte
			for _, ks := range keys {
				sent = append(sent, bm.frame(ks[0]))
			}
			buf := make([]byte, 4096)
			end := []byte{'Z', 0, 0, 0, 5, 'I'}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if _, err := c.nc.Write(sent[i%len(sent)]); err != nil {
					b.Fatal(err)
				}
				n := 0
				for n < 6 || !bytes.Equal(buf[n-6:n], end) {
					m, err := c.nc.Read(buf[n:])
					if err != nil {
						b.Fatal(err)
					}
					n += m
				}
				if !bytes.Contains(buf[:n], []byte("note")) {
					b.Fatalf("answer %q", buf[:n])
				}
			}
		})
	}
}
