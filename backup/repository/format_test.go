package repository

import (
	"bytes"
	"strings"
	"testing"
)

const testID = "0123456789abcdef0123456789abcdef"

// FuzzFormat: what is taken for a head, a foot, a seal or a lock is written the same again.
func FuzzFormat(f *testing.F) {
	sum := make([]byte, 32)
	f.Add(head{testID, encodingPlain, "a/b"}.line())
	f.Add(head{testID, encodingSealed, "a"}.line())
	f.Add(foot(7, sum))
	f.Add(seal(7, sum, testID, "a/b"))
	f.Add([]byte(lockKey{Shared, "ID", 7}.String()))
	f.Add([]byte(keyOf("a/b")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHead(b); err == nil && !bytes.Equal(h.line(), b) {
			t.Errorf("head %q becomes %q", b, h.line())
		}
		if n, sum, ok := parseFoot(b); ok && !bytes.Equal(foot(n, sum), b) {
			t.Errorf("foot %q becomes %q", b, foot(n, sum))
		}
		if n, sum, ok := parseSeal(b, testID, "a/b"); ok && !bytes.Equal(seal(n, sum, testID, "a/b"), b) {
			t.Errorf("seal %q is taken", b)
		}
		if k, ok := parseLockKey(string(b)); ok && k.String() != string(b) {
			t.Errorf("lock %q becomes %q", b, k)
		}
		if name, ok := nameOf(string(b)); ok && (keyOf(name) != string(b) || strings.Contains(name, "..")) {
			t.Errorf("key %q is that of %q", b, name)
		}
	})
}
