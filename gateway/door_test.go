package gateway_test

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// from dials with an address of this machine.
func from(t *testing.T, address, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 10 * time.Second}
	nc, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return nc
}

// hears begins a session as bob, without a password, and returns the first answer.
func hears(t *testing.T, nc net.Conn) string {
	t.Helper()
	_ = nc.SetDeadline(time.Now().Add(waitfor.Max))
	fe := pgproto3.NewFrontend(nc, nc)
	fe.Send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "bob", "database": "cleave"}})
	if err := fe.Flush(); err != nil {
		return err.Error()
	}
	m, err := fe.Receive()
	if err != nil {
		return err.Error()
	}
	if e, ok := m.(*pgproto3.ErrorResponse); ok {
		return e.Code
	}
	return fmt.Sprintf("%T", m)
}

// TestWhoSaysNothingKeepsNobodyOut fills the room for connections without a session with silent ones.
func TestWhoSaysNothingKeepsNobodyOut(t *testing.T) {
	cl := start(t, config{shards: 1, limits: gateway.Limits{SessionsMax: 10, StartupMax: time.Minute}})
	for range 300 {
		from(t, "127.0.0.2", cl.addr)
	}
	// Within the grace of the silent ones there is no room: the client gets an error.
	if got := hears(t, from(t, "127.0.0.1", cl.addr)); got != "53300" && got != "*pgproto3.AuthenticationOk" {
		t.Errorf("at once: %s", got)
	}
	waitfor.True(t, "another address gets in", func() bool { return hears(t, from(t, "127.0.0.1", cl.addr)) == "*pgproto3.AuthenticationOk" })
	waitfor.True(t, "who speaks at the same address gets in", func() bool { return hears(t, from(t, "127.0.0.2", cl.addr)) == "*pgproto3.AuthenticationOk" })
}

// TestWrongPasswordsAreSlow tries many passwords from one address: few are checked, and others' logins are not delayed.
func TestWrongPasswordsAreSlow(t *testing.T) {
	testrun.Long(t, "passwords are slow to check, that is what it shows; the other tests of the door check one each")
	cl := start(t, config{shards: 1, auth: passwords})
	addUser(t, cl, "bob", access.Ordinary)
	began := time.Now()
	if got := cl.try(t, "bob", "wrong", "sslmode=disable"); got != "28P01" || time.Since(began) < 400*time.Millisecond {
		t.Errorf("%s after %v", got, time.Since(began))
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	heard := map[string]int{}
	end := time.Now().Add(6 * time.Second)
	for range 64 {
		all.Go(func() {
			for time.Now().Before(end) {
				got := cl.try(t, "bob", "wrong", "sslmode=disable")
				mu.Lock()
				heard[got]++
				mu.Unlock()
			}
		})
	}
	for time.Now().Before(end) {
		began := time.Now()
		nc := from(t, "127.0.0.3", cl.addr)
		if got := hears(t, nc); got != "*pgproto3.AuthenticationSASL" || time.Since(began) > 3*time.Second {
			t.Errorf("another address hears %s after %v", got, time.Since(began))
		}
		_ = nc.Close()
		time.Sleep(50 * time.Millisecond)
	}
	all.Wait()
	// 64 at once before the first failure is known, then 16 in each delay.
	if heard["28P01"] > 64+16*12 || heard["28P01"] < 16 || heard["53300"] == 0 || len(heard) != 2 {
		t.Errorf("%v", heard)
	}
	t.Logf("%v", heard)
	if got := cl.samples(t, "cleave_logins_failed_total"); got < float64(heard["28P01"]) {
		t.Errorf("the metric is %v", got)
	}
	waitfor.True(t, "bob gets in", func() bool { return cl.try(t, "bob", "bobbob", "sslmode=disable") == "" })
}

// TestARefusalWaitsForNobodyElse: the right password is answered at once beside wrong ones of the same address.
func TestARefusalWaitsForNobodyElse(t *testing.T) {
	cl := start(t, config{shards: 1, auth: passwords})
	addUser(t, cl, "bob", access.Ordinary)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if got := cl.try(t, "bob", "wrong", "sslmode=disable"); got != "28P01" {
				t.Errorf("%s", got)
			}
		})
	}
	if got := cl.try(t, "bob", "bobbob", "sslmode=disable"); got != "" {
		t.Errorf("%s", got)
	}
	all.Wait()
}
