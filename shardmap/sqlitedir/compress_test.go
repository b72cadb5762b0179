package sqlitedir_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"testing"
)

// compress makes the stored form of what Pack would not write.
func compress(t *testing.T, raw []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, err := z.Write(raw)
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
