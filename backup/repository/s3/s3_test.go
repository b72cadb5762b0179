package s3_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/backup/repository"
	_ "github.com/cleavedb/cleave/backup/repository/s3"
	"github.com/cleavedb/cleave/internal/s3test"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/sqlstate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(tb testing.TB, url string, o repository.Options) *repository.Repository {
	tb.Helper()
	r, err := repository.Open(waitfor.Context(tb), url, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = r.Close() })
	return r
}

func put(tb testing.TB, r *repository.Repository, name string, content []byte) {
	tb.Helper()
	if _, err := r.Put(waitfor.Context(tb), name, bytes.NewReader(content)); err != nil {
		tb.Fatal(err)
	}
}

func get(tb testing.TB, r *repository.Repository, name string) ([]byte, error) {
	tb.Helper()
	g, err := r.Get(waitfor.Context(tb), name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(g)
	return b, errors.Join(err, g.Close())
}

func wantContent(tb testing.TB, r *repository.Repository, name string, want []byte) {
	tb.Helper()
	if got, err := get(tb, r, name); err != nil || !bytes.Equal(got, want) {
		tb.Fatalf("%s: %d bytes that differ from the %d of it, %v", name, len(got), len(want), err)
	}
}

func wantCode(tb testing.TB, err error, want sqlstate.Code) {
	tb.Helper()
	var e *sqlstate.Error
	if !errors.As(err, &e) || e.Code != want {
		tb.Fatalf("want %s: %v", want, err)
	}
}

// noise is n bytes that cannot be compressed.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint64(n) + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	s := s3test.New(t)
	ctx := waitfor.Context(t)
	url := s.URL()
	_, err := repository.Open(ctx, url, repository.Options{})
	wantCode(t, err, sqlstate.UndefinedFile)
	r := open(t, url, repository.Options{Create: true})
	small, large := []byte("small"), noise(70<<20)
	put(t, r, "a/small", small)
	put(t, r, "a", small)
	put(t, r, "large", large)
	again := open(t, url, repository.Options{})
	wantContent(t, again, "a/small", small)
	wantContent(t, again, "large", large)
	for _, name := range []string{"a", "large"} {
		_, err = again.Put(ctx, name, bytes.NewReader([]byte("other")))
		wantCode(t, err, sqlstate.DuplicateObject)
		stat, err := again.Stat(ctx, name)
		whole, err2 := again.Verify(ctx, name)
		if err != nil || err2 != nil || stat != whole {
			t.Errorf("%+v, %v; %+v, %v", stat, err, whole, err2)
		}
	}
	list, err := again.List(ctx, "a")
	if err != nil || len(list) != 2 || list[0].Name != "a" || list[1].Name != "a/small" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := errors.Join(again.Delete(ctx, "a"), again.Delete(ctx, "a")); err != nil {
		t.Error(err)
	}
	_, err = again.Get(ctx, "a")
	wantCode(t, err, sqlstate.UndefinedFile)
	l, err := r.Lock(ctx, repository.Shared, "a test")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Check(ctx), l.Unlock(ctx)); err != nil {
		t.Error(err)
	}
}
