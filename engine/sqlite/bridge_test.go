package sqlite_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
)

// serve lets real clients converse with a shard over TCP: what the gateway does,
// without routing. It returns the address.
func serve(t testing.TB, s engine.Shard) (host, port string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[nc] = true
			mu.Unlock()
			wg.Go(func() {
				defer nc.Close()
				if err := relay(t, s, nc); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
					t.Logf("bridge: %v", err)
				}
			})
		}
	})
	host, port, err = net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

func relay(t testing.TB, s engine.Shard, nc net.Conn) error {
	var params map[string]string
	for params == nil {
		var head [8]byte
		if _, err := io.ReadFull(nc, head[:]); err != nil {
			return err
		}
		size, code := binary.BigEndian.Uint32(head[:]), binary.BigEndian.Uint32(head[4:])
		switch code {
		case 80877103, 80877104: // SSL, GSSAPI
			if _, err := nc.Write([]byte{'N'}); err != nil {
				return err
			}
			continue
		case 80877102: // cancel
			return nil
		}
		body := make([]byte, size-8)
		if _, err := io.ReadFull(nc, body); err != nil {
			return err
		}
		params = map[string]string{}
		for len(body) > 1 {
			k, rest, _ := wire.CutString(body)
			v, rest, _ := wire.CutString(rest)
			params[k], body = v, rest
		}
	}
	c, err := s.Connect(t.Context(), params)
	if err != nil {
		return err
	}
	defer c.Close()
	out, m := wire.Begin(nil, wire.Authentication)
	out = wire.End(wire.AppendInt32(out, 0), m)
	for k, v := range c.Parameters() {
		out = wire.AppendParameterStatus(out, k, v)
	}
	out, m = wire.Begin(out, wire.BackendKeyData)
	out = wire.End(wire.AppendInt32(wire.AppendInt32(out, 1), 1), m)
	if _, err := nc.Write(wire.AppendReadyForQuery(out, 'I')); err != nil {
		return err
	}
	rd := wire.NewReader(nc, 1<<16, 1<<30)
	for {
		b, err := rd.Batch()
		if err != nil {
			return err
		}
		if b[0] == wire.TerminateFE {
			return nil
		}
		if err := c.Send(b); err != nil {
			return err
		}
		// An answer is due if the batch ends an exchange.
		due := false
		for rest := b; len(rest) > 0; {
			f, r, _, _ := wire.Cut(rest)
			due = due || f.Type() == wire.Query || f.Type() == wire.Sync || f.Type() == wire.Flush
			rest = r
		}
		for due {
			out, err := c.Receive()
			if err != nil {
				return err
			}
			if _, err := nc.Write(out); err != nil {
				return err
			}
			for rest := out; len(rest) > 0; {
				f, r, _, _ := wire.Cut(rest)
				if f.Type() == wire.ReadyForQuery {
					due = false
				}
				rest = r
			}
		}
	}
}
