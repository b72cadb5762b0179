package repository_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cleavedb/cleave/backup/repository"
)

const benchSize = 64 << 20

// BenchmarkPut and BenchmarkGet stand beside BenchmarkCopy, which writes a file, syncs it and sums it.
func BenchmarkCopy(b *testing.B) {
	from := content(1, benchSize)
	dir := b.TempDir()
	b.SetBytes(benchSize)
	for i := 0; b.Loop(); i++ {
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(i%4)))
		if err != nil {
			b.Fatal(err)
		}
		sum := sha256.New()
		if _, err := io.Copy(io.MultiWriter(f, sum), onlyReader{bytes.NewReader(from)}); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		_ = f.Close()
	}
}

type onlyReader struct{ io.Reader }

func benchRepository(b *testing.B, encrypted bool) *repository.Repository {
	o := repository.Options{Create: true}
	if encrypted {
		recipient, identity := keys(b)
		o.Recipients, o.IdentityFile = []string{recipient}, identity
	}
	return open(b, b.TempDir(), o)
}

func eachKind(b *testing.B, bench func(b *testing.B, r *repository.Repository)) {
	for name, encrypted := range map[string]bool{"clear": false, "encrypted": true} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(benchSize)
			bench(b, benchRepository(b, encrypted))
		})
	}
}

func BenchmarkPut(b *testing.B) {
	from := content(1, benchSize)
	eachKind(b, func(b *testing.B, r *repository.Repository) {
		for b.Loop() {
			put(b, r, "a", from)
			if err := r.Delete(context.Background(), "a"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkGet(b *testing.B) {
	eachKind(b, func(b *testing.B, r *repository.Repository) {
		put(b, r, "a", content(1, benchSize))
		for b.Loop() {
			if _, err := r.Verify(context.Background(), "a"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
