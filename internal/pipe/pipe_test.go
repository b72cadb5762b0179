package pipe

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/waitfor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStream sends both ways at once, in pieces of every size, many times the
// buffer, and finds every byte in its place.
func TestStream(t *testing.T) {
	t.Parallel()
	a, b := New()
	const total = 40 * Buffer
	var wg sync.WaitGroup
	for i, ends := range [][2]*Conn{{a, b}, {b, a}} {
		data := make([]byte, total)
		r := rand.New(rand.NewPCG(1, uint64(i)))
		for j := range data {
			data[j] = byte(r.Uint32())
		}
		wg.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(i)))
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 1+r.IntN(3*Buffer/2))
				m, err := ends[0].Write(rest[:n])
				if err != nil || m != n {
					t.Errorf("wrote %d of %d: %v", m, n, err)
					return
				}
				rest = rest[n:]
			}
		})
		wg.Go(func() {
			r := rand.New(rand.NewPCG(3, uint64(i)))
			got := make([]byte, 0, total)
			for len(got) < total {
				p := make([]byte, 1+r.IntN(Buffer/3))
				n, err := ends[1].Read(p)
				if err != nil {
					t.Error(err)
					return
				}
				got = append(got, p[:n]...)
			}
			if !bytes.Equal(got, data) {
				t.Error("bytes differ")
			}
		})
	}
	wg.Wait()
	if cap(a.in.buf) > keep || cap(b.in.buf) > keep {
		t.Errorf("idle buffers of %d and %d bytes", cap(a.in.buf), cap(b.in.buf))
	}
	_, _ = a.Close(), b.Close()
}

func TestWriteDoesNotWait(t *testing.T) {
	t.Parallel()
	a, b := New()
	defer b.Close()
	if n, err := a.Write(make([]byte, Buffer)); n != Buffer || err != nil {
		t.Fatal(n, err)
	}
	_ = a.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	if n, err := a.Write([]byte("xy")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a full pipe took %d bytes: %v", n, err)
	}
	_ = a.SetWriteDeadline(time.Time{})
	if _, err := io.ReadFull(b, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Write([]byte("x")); n != 1 || err != nil {
		t.Error(n, err)
	}
	_ = a.Close()
}

func TestClose(t *testing.T) {
	t.Parallel()
	a, b := New()
	_, _ = a.Write([]byte("last"))
	if b.Left() {
		t.Error("nobody has left")
	}
	_ = a.Close()
	_ = a.Close()
	if !b.Left() {
		t.Error("a has left")
	}
	got, err := io.ReadAll(b)
	if string(got) != "last" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := b.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write to a closed end: %v", err)
	}
	for _, f := range []func() error{
		func() error { _, err := a.Read(make([]byte, 1)); return err },
		func() error { _, err := a.Write([]byte("x")); return err },
		func() error { return a.SetDeadline(time.Time{}) },
		func() error { return a.SetWriteDeadline(time.Time{}) },
	} {
		if err := f(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("use of a closed end: %v", err)
		}
	}
	_ = b.Close()
}

// TestWake wakes what waits by every way there is.
func TestWake(t *testing.T) {
	t.Parallel()
	wait := func(what string, want error, wake func(a, b *Conn), op func(a *Conn) error) {
		t.Helper()
		a, b := New()
		began, done := make(chan struct{}), make(chan error, 1)
		go func() { close(began); done <- op(a) }()
		<-began
		wake(a, b)
		select {
		case err := <-done:
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		case <-time.After(waitfor.Max):
			t.Errorf("%s: still waiting", what)
		}
		_, _ = a.Close(), b.Close()
	}
	read := func(a *Conn) error { _, err := a.Read(make([]byte, 9)); return err }
	write := func(a *Conn) error { _, err := a.Write(make([]byte, 2*Buffer)); return err }
	wait("read, other end closes", io.EOF, func(_, b *Conn) { _ = b.Close() }, read)
	wait("read, own end closes", net.ErrClosed, func(a, _ *Conn) { _ = a.Close() }, read)
	wait("read, deadline", os.ErrDeadlineExceeded, func(a, _ *Conn) { _ = a.SetReadDeadline(time.Now().Add(5 * time.Millisecond)) }, read)
	wait("read, deadline in the past", os.ErrDeadlineExceeded, func(a, _ *Conn) { _ = a.SetReadDeadline(time.Unix(1, 0)) }, read)
	wait("read, bytes", nil, func(_, b *Conn) { _, _ = b.Write([]byte("x")) }, read)
	wait("write, other end closes", io.ErrClosedPipe, func(_, b *Conn) { _ = b.Close() }, write)
	wait("write, own end closes", net.ErrClosed, func(a, _ *Conn) { _ = a.Close() }, write)
	wait("write, deadline", os.ErrDeadlineExceeded, func(a, _ *Conn) { _ = a.SetDeadline(time.Now().Add(5 * time.Millisecond)) }, write)
	wait("write, room", nil, func(_, b *Conn) { _, _ = io.ReadFull(b, make([]byte, 2*Buffer)) }, write)
}

// BenchmarkRoundTrip is one message there and one back, as a statement has.
func BenchmarkRoundTrip(b *testing.B) {
	for name, ends := range map[string]func() (net.Conn, net.Conn){
		"pipe": func() (net.Conn, net.Conn) { x, y := New(); return x, y },
		"net":  net.Pipe,
	} {
		b.Run(name, func(b *testing.B) {
			x, y := ends()
			done := make(chan struct{})
			go func() {
				defer close(done)
				p := make([]byte, 512)
				for {
					n, err := y.Read(p)
					if err != nil {
						return
					}
					if _, err := y.Write(p[:n]); err != nil {
						return
					}
				}
			}()
			p, q := make([]byte, 200), make([]byte, 512)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := x.Write(p); err != nil {
					b.Fatal(err)
				}
				if _, err := x.Read(q); err != nil {
					b.Fatal(err)
				}
			}
			_ = x.Close()
			<-done
			_ = y.Close()
		})
	}
}
