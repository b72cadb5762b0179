package repository_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/backup/repository"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/sqlstate"
)

// code is the SQLSTATE of an error.
func code(err error) sqlstate.Code {
	var e *sqlstate.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// wantCode wants an error of the code, whose text has all of these.
func wantCode(tb testing.TB, err error, want sqlstate.Code, text ...string) {
	tb.Helper()
	if code(err) != want {
		tb.Fatalf("want %s: %v", want, err)
	}
	for _, s := range text {
		if !strings.Contains(err.Error(), s) {
			tb.Errorf("%q is not in: %v", s, err)
		}
	}
}

func open(tb testing.TB, url string, o repository.Options) *repository.Repository {
	tb.Helper()
	r, err := repository.Open(waitfor.Context(tb), url, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = r.Close() })
	return r
}

func create(tb testing.TB, url string) *repository.Repository {
	tb.Helper()
	return open(tb, url, repository.Options{Create: true})
}

func put(tb testing.TB, r *repository.Repository, name string, content []byte) repository.Object {
	tb.Helper()
	o, err := r.Put(waitfor.Context(tb), name, bytes.NewReader(content))
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

func get(ctx context.Context, r *repository.Repository, name string) ([]byte, repository.Object, error) {
	g, err := r.Get(ctx, name)
	if err != nil {
		return nil, repository.Object{}, err
	}
	b, err := io.ReadAll(g)
	return b, g.Object(), errors.Join(err, g.Close())
}

// wantContent reads an object and compares it.
func wantContent(tb testing.TB, r *repository.Repository, name string, want []byte) repository.Object {
	tb.Helper()
	got, o, err := get(waitfor.Context(tb), r, name)
	if err != nil {
		tb.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		tb.Fatalf("%s has %d other bytes than the %d that were put", name, len(got), len(want))
	}
	return o
}

func names(tb testing.TB, r *repository.Repository, prefix string) (list []string) {
	tb.Helper()
	found, err := r.List(waitfor.Context(tb), prefix)
	if err != nil {
		tb.Fatal(err)
	}
	for _, o := range found {
		list = append(list, o.Name)
	}
	return list
}

// content is n bytes, half of which can be compressed.
func content(seed uint64, n int) []byte {
	b := make([]byte, n)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for i := 0; i < n; i += 64 {
		word := rnd.Uint64()
		for j := i; j < min(i+64, n); j++ {
			b[j] = byte(word >> (j % 8 * 8))
			if j%64 > 31 {
				b[j] = byte(rnd.Uint32())
			}
		}
	}
	return b
}

// keys returns a recipient, and a file with its identity.
func keys(tb testing.TB) (recipient, identityFile string) {
	tb.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join(tb.TempDir(), "key.txt")
	if err := os.WriteFile(file, []byte("# a comment\n"+id.String()+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	return id.Recipient().String(), file
}

func TestRoundTrip(t *testing.T) {
	recipient, identity := keys(t)
	for name, o := range map[string]repository.Options{"clear": {}, "encrypted": {Recipients: []string{recipient}, IdentityFile: identity}} {
		t.Run(name, func(t *testing.T) {
			o.Create = true
			r := open(t, t.TempDir(), o)
			ctx := waitfor.Context(t)
			for _, size := range []int{0, 1, 100, 64 << 10, 1<<20 + 1, 9 << 20} {
				want := content(uint64(size), size)
				wrote := put(t, r, "a/b-1", want)
				if read := wantContent(t, r, "a/b-1", want); read != wrote {
					t.Errorf("read  %+v\nwrote %+v", read, wrote)
				}
				if o, err := r.Verify(ctx, "a/b-1"); err != nil || o != wrote {
					t.Errorf("Verify: %+v, %v", o, err)
				}
				stat, err := r.Stat(ctx, "a/b-1")
				if stat.Encrypted {
					stat.Size, stat.SHA256 = wrote.Size, wrote.SHA256
				}
				if err != nil || stat != wrote {
					t.Errorf("Stat: %+v, %v", stat, err)
				}
				_, err = r.Put(ctx, "a/b-1", strings.NewReader("other"))
				wantCode(t, err, sqlstate.DuplicateObject, `"a/b-1"`)
				wantContent(t, r, "a/b-1", want)
				if err := errors.Join(r.Delete(ctx, "a/b-1"), r.Delete(ctx, "a/b-1")); err != nil {
					t.Fatal(err)
				}
				_, err = r.Get(ctx, "a/b-1")
				wantCode(t, err, sqlstate.UndefinedFile, `"a/b-1"`)
			}
		})
	}
}

func TestList(t *testing.T) {
	r := create(t, t.TempDir())
	for _, name := range []string{"b", "a/b", "a", "a-c", "a/bc/d"} {
		put(t, r, name, []byte(name))
	}
	for prefix, want := range map[string]string{"": "a a-c a/b a/bc/d b", "a": "a a-c a/b a/bc/d", "a/": "a/b a/bc/d", "a/b": "a/b a/bc/d", "x/y": "", "a/bc/": "a/bc/d"} {
		if got := strings.Join(names(t, r, prefix), " "); got != want {
			t.Errorf("%q: %s, want %s", prefix, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	r := create(t, t.TempDir())
	for _, name := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.b", "a\\b", "a b", "a\x00", "a\n", "ä", "a:b", "C:", "~", "a.obj", "a.obj/b", "$HOME",
		strings.Repeat("a", 201), strings.Repeat("a/", 300) + "b",
	} {
		_, err := r.Put(t.Context(), name, strings.NewReader("x"))
		wantCode(t, err, sqlstate.InvalidParameterValue)
		_, err = r.Get(t.Context(), name)
		wantCode(t, err, sqlstate.InvalidParameterValue)
		wantCode(t, r.Delete(t.Context(), name), sqlstate.InvalidParameterValue)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-zA-Z0-9._/=@+-]{1,20}`)).Draw(t, "name")
		if repository.CheckName(name) != nil {
			return
		}
		if clean := filepath.Clean(name); clean != name || !filepath.IsLocal(name) {
			t.Fatalf("%q is allowed, and its path is %q", name, clean)
		}
	})
}

// TestNoRepository: what is no repository is told apart from one without the object.
func TestNoRepository(t *testing.T) {
	ctx := waitfor.Context(t)
	_, err := repository.Open(ctx, t.TempDir(), repository.Options{})
	wantCode(t, err, sqlstate.UndefinedFile, "there is no repository at")
	_, err = repository.Open(ctx, filepath.Join(t.TempDir(), "no"), repository.Options{})
	wantCode(t, err, sqlstate.UndefinedFile)
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "letter"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = repository.Open(ctx, full, repository.Options{Create: true})
	wantCode(t, err, sqlstate.ObjectNotInState, "not empty")
	for _, url := range []string{"file://host/x", "file:x?y", "ftp://x/y", "://"} {
		_, err = repository.Open(ctx, url, repository.Options{Create: true})
		wantCode(t, err, sqlstate.InvalidParameterValue)
	}
}
