//go:build linux

package lane_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/lane"
	"github.com/cleavedb/cleave/internal/waitfor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, n int) *lane.Group {
	t.Helper()
	g, err := lane.Start(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// pair returns an adopted connection and its other end.
func pair(t *testing.T, g *lane.Group, network string) (*lane.Conn, net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = t.TempDir() + "/s"
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c, ok := g.Adopt(nc).(*lane.Conn)
	if !ok {
		t.Fatal("it was not adopted")
	}
	t.Cleanup(func() { _ = c.Close(); _ = other.Close() })
	return c, other
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A Conn is a net.Conn: large transfers in both directions, with waits on both sides.
func TestTransfer(t *testing.T) {
	g := start(t, 2)
	for _, network := range []string{"tcp", "unix"} {
		c, other := pair(t, g, network)
		data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
		var wg sync.WaitGroup
		var back bytes.Buffer
		wg.Go(func() {
			if n, err := c.Write(data); n != len(data) || err != nil {
				t.Errorf("wrote %d, %v", n, err)
			}
		})
		wg.Go(func() {
			if _, err := io.Copy(other, io.TeeReader(io.LimitReader(other, int64(len(data))), io.Discard)); err != nil {
				t.Errorf("echo: %v", err)
			}
		})
		if _, err := io.CopyN(&back, c, int64(len(data))); err != nil || !bytes.Equal(back.Bytes(), data) {
			t.Fatalf("%s: %v, %d bytes", network, err, back.Len())
		}
		wg.Wait()
		if c.RemoteAddr().Network() != network || c.LocalAddr() == nil {
			t.Error("addresses")
		}
	}
}

func TestDeadlinesAndClose(t *testing.T) {
	c, other := pair(t, start(t, 1), "tcp")
	one := make([]byte, 1)
	for _, d := range []time.Duration{-time.Second, 20 * time.Millisecond} {
		if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
			t.Fatal(err)
		}
		_, err := c.Read(one)
		var timeout net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("got %v", err)
		}
	}
	// A deadline set from elsewhere ends a wait that goes on, and a later one revives it.
	if err := c.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	read := func() { _, err := c.Read(one); failed <- err }
	go read()
	_ = c.SetReadDeadline(time.Unix(1, 0))
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	_ = c.SetReadDeadline(time.Time{})
	go read()
	if _, err := other.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil || one[0] != 'x' {
		t.Fatalf("got %v, %q", err, one)
	}
	go read()
	_ = c.Close()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Fatalf("got %v", err)
	}
	if _, err := c.Write(one); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("got %v", err)
	}
	if err := c.Close(); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("got %v", err)
	}
	if n, err := other.Read(one); n != 0 || err != io.EOF {
		t.Fatalf("the other end got %d, %v", n, err)
	}
}

// echo is a handler that sends back what it reads.
type echo struct {
	closed chan struct{}
	due    chan struct{}
}

func (e echo) Ready(c *lane.Conn) {
	buf := c.Loop().Buffer()
	for {
		n, err := c.ReadNow(buf)
		if n > 0 {
			_, _ = c.WriteNow(buf[:n])
			continue
		}
		switch {
		case err == lane.ErrAgain && c.Due():
			c.Leave()
			close(e.due)
		case err != lane.ErrAgain:
			c.Leave()
			close(e.closed)
		}
		return
	}
}

func TestHandler(t *testing.T) {
	g := start(t, 1)
	before := descriptors(t)
	for range 20 {
		c, other := pair(t, g, "unix")
		e := echo{make(chan struct{}), make(chan struct{})}
		got := make([]byte, 5)
		// What came before the watch counts.
		if _, err := other.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		c.Watch(e)
		for range 10 {
			if _, err := io.ReadFull(other, got); err != nil || string(got) != "hello" {
				t.Fatalf("got %q, %v", got, err)
			}
			if _, err := other.Write(got); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.ReadFull(other, got); err != nil {
			t.Fatal(err)
		}
		// Read deadline, and back to goroutines that wait.
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		<-e.due
		_ = c.SetReadDeadline(time.Time{})
		if _, err := other.Write(got); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, got); err != nil {
			t.Fatal(err)
		}
		c.Watch(e)
		_ = other.Close()
		<-e.closed
		_ = c.Close()
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// once reads once and ends the watch.
type once chan error

func (o once) Ready(c *lane.Conn) {
	n, err := c.ReadNow(c.Loop().Buffer())
	if err == nil {
		err = fmt.Errorf("%d bytes", n)
	}
	c.Leave()
	o <- err
}

// One event tells of bytes and of the end after them: a later watch is told of the end.
func TestBytesAndEnd(t *testing.T) {
	g := start(t, 1)
	for _, network := range []string{"tcp", "unix"} {
		c, other := pair(t, g, network)
		if _, err := other.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err := other.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(waitfor.Max); !c.HungUp(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the end is not noticed")
			}
		}
		o := make(once, 1)
		c.Watch(o)
		if err := <-o; err.Error() != "5 bytes" {
			t.Fatal(err)
		}
		c.Watch(o)
		select {
		case err := <-o:
			if err != io.EOF {
				t.Fatal(err)
			}
		case <-time.After(waitfor.Max):
			t.Fatalf("%s: the end is forgotten", network)
		}
	}
}

// A handler that stops before the end says so, and is called again.
func TestAgain(t *testing.T) {
	c, other := pair(t, start(t, 1), "tcp")
	o := make(once, 2)
	c.Watch(o)
	if _, err := other.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := <-o; err.Error() != "5 bytes" {
		t.Fatal(err)
	}
	c.Again()
	c.Watch(o)
	select {
	case err := <-o:
		if err != lane.ErrAgain {
			t.Fatal(err)
		}
	case <-time.After(waitfor.Max):
		t.Fatal("it is not called again")
	}
}

// A closed Conn tells its handler, and a moved one is served by its new loop.
func TestCloseAndMove(t *testing.T) {
	g := start(t, 2)
	c, other := pair(t, g, "tcp")
	d, _ := pair(t, g, "tcp")
	if c.Loop() == d.Loop() {
		t.Fatal("two connections went to one loop of two")
	}
	if err := c.Move(d.Loop()); err != nil || c.Loop() != d.Loop() {
		t.Fatal(err)
	}
	e := echo{make(chan struct{}), make(chan struct{})}
	c.Watch(e)
	got := make([]byte, 1)
	if _, err := other.Write(got); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(other, got); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	<-e.closed
	if err := c.Move(d.Loop()); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("got %v", err)
	}
}

// The end of the group closes what is left.
func TestGroupClose(t *testing.T) {
	before := descriptors(t)
	g, err := lane.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := pair(t, g, "tcp")
	failed := make(chan error)
	go func() { _, err := c.Read(make([]byte, 1)); failed <- err }()
	g.Close()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Fatalf("got %v", err)
	}
	if after := descriptors(t); after > before+1 { // the other end
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	var none *lane.Group
	none.Close()
	if one, two := net.Pipe(); none.Adopt(one) != one || g.Adopt(two) != two {
		t.Error("a pipe was adopted")
	}
}
