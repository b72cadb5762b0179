package orm

import (
	"context"
	"maps"
	"testing"
)

// TestGoose migrates up, down and up again; goose keeps its versions in a table
// of its own.
func TestGoose(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c target) {
		ctx := context.Background()
		p := migrate(t, c)
		want := map[string]string{"goose_db_version": "whole", "currencies": "whole", "customers": "sharded", "orders": "sharded", "lines": "sharded"}
		if got := tables(t, c); !maps.Equal(got, want) {
			t.Errorf("tables %v, want %v", got, want)
		}
		if v, err := p.GetDBVersion(ctx); err != nil || v != 2 {
			t.Errorf("version %d, %v", v, err)
		}
		if pending, err := p.HasPending(ctx); err != nil || pending {
			t.Errorf("pending %v, %v", pending, err)
		}
		if _, err := p.Down(ctx); err != nil {
			t.Fatal(err)
		}
		delete(want, "lines")
		if got := tables(t, c); !maps.Equal(got, want) {
			t.Errorf("after one step down: %v", got)
		}
		if _, err := p.DownTo(ctx, 0); err != nil {
			t.Fatal(err)
		}
		if got := tables(t, c); len(got) != 1 {
			t.Errorf("after all steps down: %v", got)
		}
		if _, err := p.Up(ctx); err != nil {
			t.Fatal(err)
		}
		status, err := p.Status(ctx)
		if err != nil || len(status) != 2 || status[0].State != "applied" || status[1].State != "applied" {
			t.Errorf("status %v, %v", status, err)
		}
	})
}
