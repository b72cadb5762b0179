package main

import (
	"errors"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/executor/moment"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestAttendants: a member whose server does not serve yet, or serves no more, is hushed as others are, and tells its clients why.
func TestAttendants(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := memory.New()
	defer dir.Close()
	if _, _, err := dir.Join(t.Context(), shardmap.Member{ID: "one", Role: "router", Address: l.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	others := newAttendants(l, true)
	defer others.close()
	peers := moment.NewPeers(dir, "self", moment.NewKey(dir))
	defer peers.Close()
	meets := func() moment.Meeting {
		t.Helper()
		m, err := peers.Meet(waitfor.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, why := range []string{"the router is starting up", "the router is shutting down"} {
		done := others.begin(why, starting(dir, "one"))
		if m := meets(); !m.Hush() || !m.Lift() {
			t.Errorf("%s: it is no moment", why)
		}
		_, err := pgconn.Connect(t.Context(), "postgres://app@"+l.Addr().String()+"/cleave?sslmode=disable")
		var said *pgconn.PgError
		if !errors.As(err, &said) || sqlstate.Code(said.Code) != sqlstate.CannotConnectNow || said.Message != why {
			t.Errorf("%s: a client hears %v", why, err)
		}
		m := meets()
		if !m.Hush() {
			t.Error("it is not hushed")
		}
		if done(); m.Lift() {
			t.Errorf("%s: it serves before the hush has ended, and the moment counts", why)
		}
		// The server has the port, and gives it back.
		lent := others.lent(l)
		accepted := make(chan error)
		go func() {
			_, err := lent.Accept()
			accepted <- err
		}()
		for range 2 {
			if err := lent.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-accepted; err == nil {
			t.Error("the port is not given back")
		}
	}
	_ = newAttendants(l, false).begin("", starting(dir, "one")) // nothing: nobody is to be asked
}
