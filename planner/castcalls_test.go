package planner

import (
	"testing"

	"github.com/cleavedb/cleave/shardmap"
)

// TestPreparedCastCalls: a call that is a cast is read when it is prepared, as the cast is.
func TestPreparedCastCalls(t *testing.T) {
	for sql, want := range map[string]int{"SELECT timestamptz('now'), 'now'::timestamptz, date('today'), upper('now')": 3, "SELECT timestamptz('2026-01-01')": 0, "SELECT tstzrange('[today,now]'), pg_catalog.timestamptz('now')": 2} {
		if got := New(Limits{}).PreparedWords(sql, &shardmap.Snapshot{}, nil, nil, nil); len(got) != want {
			t.Errorf("%s: %v", sql, got)
		}
	}
}
