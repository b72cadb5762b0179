package repository_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/cleavedb/cleave/backup/repository"
	"github.com/cleavedb/cleave/sqlstate"
)

// FuzzObject: bytes under the name of an object are that object, or damage that is named. The foot always fits, so that
// what lies behind it is reached.
func FuzzObject(f *testing.F) {
	recipient, identity := keys(f)
	dir := f.TempDir()
	r := open(f, dir, repository.Options{Create: true, Recipients: []string{recipient}, IdentityFile: identity})
	want := []byte("some content, some content, some content")
	put(f, r, "a", want)
	f.Add(readFile(f, fileOf(dir, "a")))
	if _, err := r.PutClear(f.Context(), "b", bytes.NewReader(want)); err != nil {
		f.Fatal(err)
	}
	clear := bytes.Replace(readFile(f, fileOf(dir, "b")), []byte(" b\n"), []byte(" a\n"), 1)
	f.Add(clear)
	f.Add([]byte("cleave object 1 " + r.ID() + " zstd a\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 100 {
			b = repository.WithFoot(b)
		}
		writeFile(t, fileOf(dir, "a"), b)
		got, _, err := get(context.Background(), r, "a")
		if err == nil && !bytes.Equal(got, want) || err != nil && code(err) != sqlstate.DataCorrupted {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := r.Stat(context.Background(), "a"); err != nil && code(err) != sqlstate.DataCorrupted {
			t.Error(err)
		}
	})
}
