package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/backup/repository"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/s3test"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/sqlstate"
)

// once is true for the first n calls with a key.
type once struct {
	mu   sync.Mutex
	seen map[string]int
	n    int
	hits atomic.Int32
}

func (o *once) first(r *http.Request) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil {
		o.seen = map[string]int{}
	}
	key := r.Method + " " + r.URL.Path + "?" + r.URL.Query().Get("uploadId") + r.URL.Query().Get("partNumber") + " " + r.Header.Get("Range")
	o.seen[key]++
	if o.seen[key] > o.n {
		return false
	}
	o.hits.Add(1)
	return true
}

func fail(w http.ResponseWriter, status int, code string) bool {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>a test says so</Message></Error>`, code)
	return true
}

// useAll does everything that a repository can do, with a small and a large object.
func useAll(t *testing.T, r *repository.Repository) {
	t.Helper()
	ctx := waitfor.Context(t)
	large := noise(40 << 20)
	put(t, r, "large", large)
	put(t, r, "small", []byte("small"))
	wantContent(t, r, "large", large)
	wantContent(t, r, "small", []byte("small"))
	if list, err := r.List(ctx, ""); err != nil || len(list) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	l, err := r.Lock(ctx, repository.Exclusive, "a test")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Check(ctx), r.Delete(ctx, "small"), l.Unlock(ctx)); err != nil {
		t.Fatal(err)
	}
	if list, err := r.List(ctx, ""); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestTransient: requests that fail twice, answers that are lost, and connections that break are made good.
func TestTransient(t *testing.T) {
	s := s3test.New(t)
	t.Run("503", func(t *testing.T) {
		twice := &once{n: 2}
		way := &s3test.Way{Before: func(w http.ResponseWriter, r *http.Request) bool {
			return twice.first(r) && fail(w, http.StatusServiceUnavailable, "SlowDown")
		}}
		s.Proxy(t, way)
		useAll(t, open(t, s.URLAt(way.Addr, "busy"), repository.Options{Create: true}))
		if twice.hits.Load() == 0 {
			t.Error("nothing has failed")
		}
	})
	t.Run("lost answers", func(t *testing.T) {
		lost := &once{n: 1}
		way := &s3test.Way{After: func(r *http.Request, _ int) int64 {
			if (r.Method == http.MethodPut || r.Method == http.MethodPost || r.Method == http.MethodDelete) && lost.first(r) {
				return 0
			}
			return -1
		}}
		s.Proxy(t, way)
		// The URL's first value is written twice to see whether the server minds: a lost answer must not look like that.
		useAll(t, open(t, s.URLAt(way.Addr, "lossy"), repository.Options{Create: true}))
	})
	t.Run("broken downloads", func(t *testing.T) {
		broken := &once{n: 1}
		way := &s3test.Way{After: func(r *http.Request, status int) int64 {
			if r.Method == http.MethodGet && (status == http.StatusOK || status == http.StatusPartialContent) &&
				strings.HasSuffix(r.URL.Path, "large.obj") && broken.first(r) {
				return 7 << 20
			}
			return -1
		}}
		s.Proxy(t, way)
		useAll(t, open(t, s.URLAt(way.Addr, "broken"), repository.Options{Create: true}))
		if n := broken.hits.Load(); n < 3 {
			t.Errorf("%d downloads were broken", n)
		}
	})
}

// TestRefusals: what a server says becomes an error that says what to do.
func TestRefusals(t *testing.T) {
	s := s3test.New(t)
	var status atomic.Int32
	var text atomic.Value
	way := &s3test.Way{Before: func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method != http.MethodGet && r.Method != http.MethodHead && status.Load() > 0 && fail(w, int(status.Load()), text.Load().(string))
	}}
	s.Proxy(t, way)
	r := open(t, s.URLAt(way.Addr, "refusing"), repository.Options{Create: true})
	for _, c := range []struct {
		status int32
		code   string
		want   sqlstate.Code
	}{
		{403, "AccessDenied", sqlstate.InsufficientPrivilege}, {400, "ExpiredToken", sqlstate.InsufficientPrivilege},
		{400, "QuotaExceeded", sqlstate.DiskFull}, {507, "XMinioStorageFull", sqlstate.DiskFull}, {507, "Whatever", sqlstate.DiskFull},
		{500, "InternalError", sqlstate.IOError}, {404, "NoSuchBucket", sqlstate.IOError}, {418, "Teapot", sqlstate.IOError},
	} {
		status.Store(c.status)
		text.Store(c.code)
		for _, n := range []int{10, 40 << 20} {
			_, err := r.Put(waitfor.Context(t), "a", bytes.NewReader(noise(n)))
			wantCode(t, err, c.want)
			if !strings.Contains(err.Error(), `"a"`) {
				t.Errorf("it does not name the object: %v", err)
			}
		}
	}
}

// TestUnfit: servers and keys that a repository cannot use.
func TestUnfit(t *testing.T) {
	s := s3test.New(t)
	ctx := waitfor.Context(t)
	way := &s3test.Way{}
	var writes atomic.Int32
	way.Before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/cleave-repository") || writes.Add(1) == 1 {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"written over"`)
		return true
	}
	way.Before = answered(way.Before)
	s.Proxy(t, way)
	_, err := repository.Open(ctx, s.URLAt(way.Addr, "careless"), repository.Options{Create: true})
	wantCode(t, err, sqlstate.FeatureNotSupported)

	_, err = repository.Open(ctx, strings.Replace(s.URL(), s3test.Bucket, "no-such-bucket", 1), repository.Options{Create: true})
	wantCode(t, err, sqlstate.IOError)
	for _, url := range []string{"s3://", "s3://b/p?x=y", "s3://key:secret@b/p", "s3://b/p?path-style=maybe", "s3://b/a b", "s3://b/../c", "s3://b?endpoint=host", "s3://b?region=a&region=b"} {
		_, err = repository.Open(ctx, url, repository.Options{Create: true})
		wantCode(t, err, sqlstate.InvalidParameterValue)
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("an error repeats a secret: %v", err)
		}
	}
	good := s.URL()
	open(t, good, repository.Options{Create: true})
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another secret")
	_, err = repository.Open(ctx, good, repository.Options{})
	wantCode(t, err, sqlstate.InsufficientPrivilege)
	if strings.Contains(err.Error(), "another secret") {
		t.Errorf("an error repeats a secret: %v", err)
	}
	// The files of Amazon's tools.
	file := filepath.Join(t.TempDir(), "credentials")
	text := "[default]\naws_access_key_id = no\naws_secret_access_key = no\n[backup]\naws_access_key_id = test-access\naws_secret_access_key = test-secret-key\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SHARED_CREDENTIALS_FILE": file, "AWS_PROFILE": "backup"} {
		t.Setenv(name, value)
	}
	open(t, good, repository.Options{})
}

// answered makes an answer that a handler began a whole one.
func answered(f func(http.ResponseWriter, *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !f(w, r) {
			return false
		}
		w.WriteHeader(http.StatusOK)
		return true
	}
}

// readerFunc is a reader.
type readerFunc func(b []byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestKilledServer: the server is killed while an object is written, and while one is read.
func TestKilledServer(t *testing.T) {
	s := s3test.New(t)
	ctx := waitfor.Context(t)
	r := open(t, s.URL(), repository.Options{Create: true, Stall: 6 * time.Second})
	large := noise(60 << 20)
	put(t, r, "whole", large)
	from, n := bytes.NewReader(large), 0
	_, err := r.Put(ctx, "half", readerFunc(func(b []byte) (int, error) {
		if n++; n == 40 {
			s.Kill()
		}
		return from.Read(b)
	}))
	wantCode(t, err, sqlstate.IOError)
	s.Start()
	if list, err := r.List(ctx, ""); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if n, err := r.Sweep(ctx); err != nil || n != 1 {
		t.Errorf("%d uploads were removed, %v", n, err)
	}
	put(t, r, "half", large)
	g, err := r.Get(ctx, "whole")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, g, 1<<20); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	_, err = io.Copy(io.Discard, g)
	wantCode(t, err, sqlstate.IOError)
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	s.Start()
	wantContent(t, r, "whole", large)
}

// TestStoppedServer: a server that accepts and does not answer costs a stall bound.
func TestStoppedServer(t *testing.T) {
	s := s3test.New(t)
	r := open(t, s.URL(), repository.Options{Create: true, Stall: 3 * time.Second})
	put(t, r, "a", []byte("content"))
	s.Stop()
	_, err := get(t, r, "a")
	wantCode(t, err, sqlstate.IOError)
	if !strings.Contains(err.Error(), "nothing has moved for 1s, in 3 tries") {
		t.Errorf("%v", err)
	}
	_, err = r.Put(waitfor.Context(t), "b", bytes.NewReader(noise(20<<20)))
	wantCode(t, err, sqlstate.IOError)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = r.Get(ctx, "a")
	wantCode(t, err, sqlstate.QueryCanceled)
	s.Continue()
	wantContent(t, r, "a", []byte("content"))
}

// TestFullServer: the server's disk is full.
func TestFullServer(t *testing.T) {
	s := s3test.NewIn(t, pgtest.SmallDisk(t, 30<<20, t.TempDir()))
	r := open(t, s.URL(), repository.Options{Create: true})
	_, err := r.Put(waitfor.Context(t), "large", bytes.NewReader(noise(70<<20)))
	wantCode(t, err, sqlstate.DiskFull)
	if list, err := r.List(waitfor.Context(t), ""); err != nil || len(list) > 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := r.Sweep(waitfor.Context(t)); err != nil {
		t.Error(err)
	}
	put(t, r, "large", noise(1<<20))
	wantContent(t, r, "large", noise(1<<20))
}

// TestAtOnce: of writers of one name one succeeds, small or in parts.
func TestAtOnce(t *testing.T) {
	s := s3test.New(t)
	url := s.URL()
	open(t, url, repository.Options{Create: true})
	for _, size := range []int{100, 20 << 20} {
		name := fmt.Sprint("size-", size)
		var won atomic.Int32
		var winner atomic.Value
		var work sync.WaitGroup
		for i := range 4 {
			r := open(t, url, repository.Options{})
			work.Go(func() {
				mine := noise(size + i)
				_, err := r.Put(context.Background(), name, bytes.NewReader(mine))
				var e *sqlstate.Error
				switch {
				case err == nil:
					won.Add(1)
					winner.Store(mine)
				case errors.As(err, &e) && e.Code == sqlstate.DuplicateObject:
				default:
					t.Error(err)
				}
			})
		}
		work.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d have won", won.Load())
		}
		wantContent(t, open(t, url, repository.Options{}), name, winner.Load().([]byte))
	}
}

// TestCopied: a folder that was copied into a bucket is the same repository, and a bit that flips there is found.
func TestCopied(t *testing.T) {
	s := s3test.New(t)
	dir := t.TempDir()
	put(t, open(t, dir, repository.Options{Create: true}), "a/b", []byte("content"))
	if err := os.CopyFS(filepath.Join(s.Folder(), "copied"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	r := open(t, s.URLAt(s.Addr(), "copied"), repository.Options{})
	wantContent(t, r, "a/b", []byte("content"))
	file := filepath.Join(s.Folder(), "copied", "objects", "a", "b.obj")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(whole); i += 11 {
		b := bytes.Clone(whole)
		b[i] ^= 16
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := get(t, r, "a/b")
		wantCode(t, err, sqlstate.DataCorrupted)
	}
}
