package etcdtest

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestNetwork: a way passes what it gets; cut, it passes nothing and tells nobody; healed, it has closed what was cut and passes what is new.
func TestNetwork(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	echoes := make(chan net.Conn, 8)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			echoes <- c
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	n := (&Cluster{members: []*member{{client: l.Addr().String()}}}).Network(t)
	says := func(c net.Conn, wait time.Duration) error {
		t.Helper()
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(wait))
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", n.proxies[0].listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	before := dial()
	if err := says(before, patience); err != nil {
		t.Fatal(err)
	}
	n.Cut()
	if err := says(before, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("cut: %v", err)
	}
	_ = (<-echoes).Close()
	during := dial()
	for what, c := range map[string]net.Conn{"whose server has closed it": before, "made meanwhile": during} {
		if err := says(c, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("cut, a connection %s: %v", what, err)
		}
	}
	n.Heal()
	for _, c := range []net.Conn{before, during} {
		if err := says(c, patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("healed, a connection that was cut: %v", err)
		}
	}
	if err := says(dial(), patience); err != nil {
		t.Errorf("healed: %v", err)
	}
}
