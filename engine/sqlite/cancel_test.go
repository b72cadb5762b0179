package sqlite_test

import (
	"context"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestCancelAtTheEnd: a cancel that comes when a statement has just ended does nothing, as PostgreSQL ignores one that
// reaches an idle session. The next statement runs.
func TestCancelAtTheEnd(t *testing.T) {
	c := open(t, harness().Open(t))
	mustExec(t, c, "CREATE TABLE t (a integer)")
	stopped := 0
	for range 3000 {
		over, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-over:
					return
				default:
					if err := c.Cancel(context.Background()); err != nil {
						t.Error(err)
						return
					}
				}
			}
		}()
		_, err := engine.Exec(c, "SELECT 1")
		close(over)
		<-done
		switch {
		case sqlstate.CodeOf(err) == sqlstate.QueryCanceled:
			stopped++
		case err != nil:
			t.Fatal(err)
		}
		if _, err := engine.Exec(c, "INSERT INTO t VALUES (1)"); err != nil {
			t.Fatalf("no cancel was asked since it began: %v", err)
		}
	}
	t.Logf("%d statements were cancelled", stopped)
}
