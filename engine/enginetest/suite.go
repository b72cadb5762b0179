// Package enginetest is the suite that every engine passes: conversations,
// table descriptions and guards. Its SQL is the dialect that all engines offer.
package enginetest

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/engine"
)

// Cluster and Shard are the names under which the suite installs shards.
const (
	Cluster = "11111111-2222-3333-4444-555555555555"
	Shard   = "shard-0"
)

// Harness is what the suite needs to know about an engine.
type Harness struct {
	Driver engine.Driver
	// URL makes an empty database and returns its URL. The database goes when
	// the test ends.
	URL func(t testing.TB) string
	// Slow is a SELECT that would run for half a minute or longer, and that a
	// Cancel ends.
	Slow string
	// Notice is a statement that succeeds and gives a notice; empty if the
	// engine gives none.
	Notice string
	// Isolation are the transaction modes in which a transaction can be open
	// while a guard is replaced ("REPEATABLE READ", ...).
	Isolation []string
	// Rounds are the random ownerships that are tried for each strategy and
	// type; 0 is 4.
	Rounds int
	// Ignore are goroutines that the leak check overlooks (those of a server
	// that the tests share).
	Ignore []goleak.Option
}

// Run runs the whole suite.
func Run(t *testing.T, h Harness) {
	ignore := append([]goleak.Option{goleak.IgnoreCurrent()}, h.Ignore...)
	t.Run("Conversation", func(t *testing.T) { runConversation(t, h) })
	t.Run("Transaction", func(t *testing.T) { runTransaction(t, h) })
	t.Run("Ending", func(t *testing.T) { runEnding(t, h) })
	t.Run("Prepared", func(t *testing.T) { runPrepared(t, h) })
	t.Run("Copy", func(t *testing.T) { runCopy(t, h) })
	t.Run("Messages", func(t *testing.T) { runMessages(t, h) })
	t.Run("Cursor", func(t *testing.T) { runCursor(t, h) })
	t.Run("View", func(t *testing.T) { runView(t, h) })
	t.Run("Install", func(t *testing.T) { runInstall(t, h) })
	t.Run("Describe", func(t *testing.T) { runDescribe(t, h) })
	t.Run("Capabilities", func(t *testing.T) { runCapabilities(t, h) })
	t.Run("Guard", func(t *testing.T) { RunGuards(t, h) })
	goleak.VerifyNone(t, ignore...)
}

// RunGuards runs the part of the suite about guards.
func RunGuards(t *testing.T, h Harness) {
	t.Run("Ownership", func(t *testing.T) { runOwnership(t, h) })
	t.Run("Operations", func(t *testing.T) { runOperations(t, h) })
	t.Run("Replacement", func(t *testing.T) { runReplacement(t, h) })
}

// Open returns a fresh shard, installed, closed when the test ends.
func (h Harness) Open(t testing.TB) engine.Shard {
	t.Helper()
	s := h.at(t, h.URL(t), Cluster, Shard)
	if err := s.Install(t.Context()); err != nil {
		t.Fatalf("install: %v", err)
	}
	return s
}

func (h Harness) at(t testing.TB, url, cluster, name string) engine.Shard {
	t.Helper()
	s, err := h.Driver.Open(engine.Config{Cluster: cluster, Name: name, URL: url, ConnectTimeout: 10 * time.Second})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close shard: %v", err)
		}
	})
	return s
}

// params are the startup parameters of the suite's conversations.
var params = map[string]string{
	"application_name": "enginetest", "client_encoding": "UTF8", "DateStyle": "ISO, MDY", "TimeZone": "UTC", "bytea_output": "hex",
}

// connect starts a conversation that is closed when the test ends. The shard
// under test never takes longer than a minute for one step.
func connect(t testing.TB, s engine.Shard) *talk {
	t.Helper()
	c, err := s.Connect(t.Context(), params)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &talk{t: t, Conn: c}
}
