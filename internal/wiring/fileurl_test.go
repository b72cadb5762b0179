package wiring

import "testing"

// TestShardsInAFolderWithEscapes: the driver takes escapes and options out of a URL.
func TestShardsInAFolderWithEscapes(t *testing.T) {
	if got := (&Layout{Shards: []string{"a"}}).SQLiteShards("/50%41?b#c")[0].URL; got != "file:/50%2541%3Fb%23c/a.db" {
		t.Error(got)
	}
}
