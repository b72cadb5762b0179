package engine

import (
	"net/url"
	"strings"
	"testing"
)

func TestFileURL(t *testing.T) {
	for _, path := range []string{"/var/lib/cleave/shard-0.db", "/a%41?b#c d+e/%/x.db"} {
		got := FileURL(path)
		rest, _ := strings.CutPrefix(got, "file:")
		if back, err := url.PathUnescape(rest); err != nil || back != path || strings.ContainsAny(rest, "?#") {
			t.Errorf("%s becomes %s, and that %s: %v", path, got, back, err)
		}
	}
}
