package postgres

import (
	"io"
	"net"
	"testing"
)

// TestReadsThatHaveEndedAreLeft: who wrote and who receives may both end the read that was under way. The second one finds it ended, and
// does not disturb the Receive that has begun meanwhile.
func TestReadsThatHaveEndedAreLeft(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ended := make(chan struct{})
	close(ended)
	c, received := &conn{net: client}, make(chan error, 1)
	go func() {
		var b [1]byte
		for range 1000 {
			if _, err := io.ReadFull(client, b[:]); err != nil {
				received <- err
				return
			}
		}
		received <- nil
	}()
	for {
		interrupt(c, ended)
		if _, err := server.Write([]byte{'x'}); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-received:
			if err != nil {
				t.Fatalf("the other's read got: %v", err)
			}
			return
		default:
		}
	}
}
