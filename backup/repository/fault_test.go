package repository_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/backup/repository"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/sqlstate"
)

// fileOf is the file of an object.
func fileOf(dir, name string) string { return filepath.Join(dir, "objects", name+".obj") }

func readFile(tb testing.TB, path string) []byte {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func writeFile(tb testing.TB, path string, b []byte) {
	tb.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, b, 0o600)); err != nil {
		tb.Fatal(err)
	}
}

// wantDamage wants reading and verifying to fail, with the name of the object.
func wantDamage(tb testing.TB, r *repository.Repository, name, how string) {
	tb.Helper()
	ctx := context.Background()
	_, _, err := get(ctx, r, name)
	if code(err) != sqlstate.DataCorrupted || !strings.Contains(err.Error(), fmt.Sprintf("object %q of the repository is damaged", name)) {
		tb.Fatalf("%s: Get: %v", how, err)
	}
	if _, err := r.Verify(ctx, name); code(err) != sqlstate.DataCorrupted || !strings.Contains(err.Error(), name) {
		tb.Fatalf("%s: Verify: %v", how, err)
	}
}

// eachEncoding runs a test without and with encryption; blind has no identity.
func eachEncoding(t *testing.T, test func(t *testing.T, dir string, r, blind *repository.Repository)) {
	recipient, identity := keys(t)
	t.Run("clear", func(t *testing.T) {
		dir := t.TempDir()
		r := create(t, dir)
		test(t, dir, r, r)
	})
	t.Run("encrypted", func(t *testing.T) {
		dir := t.TempDir()
		r := open(t, dir, repository.Options{Create: true, Recipients: []string{recipient}, IdentityFile: identity})
		test(t, dir, r, open(t, dir, repository.Options{Recipients: []string{recipient}}))
	})
}

// TestEveryBit: each bit of a stored object counts: of head, age's header, zstd's frames, seal and foot.
func TestEveryBit(t *testing.T) {
	t.Parallel()
	eachEncoding(t, func(t *testing.T, dir string, r, blind *repository.Repository) {
		put(t, r, "small/object", []byte("some content, some content, some content"))
		file := fileOf(dir, "small/object")
		whole := readFile(t, file)
		for i := range len(whole) * 8 {
			b := bytes.Clone(whole)
			b[i/8] ^= 1 << (i % 8)
			writeFile(t, file, b)
			how := fmt.Sprintf("bit %d of byte %d of %d", i%8, i/8, len(b))
			wantDamage(t, r, "small/object", how)
			if _, err := blind.Verify(t.Context(), "small/object"); code(err) != sqlstate.DataCorrupted {
				t.Fatalf("%s, without an identity: %v", how, err)
			}
		}
		for n := range len(whole) {
			writeFile(t, file, whole[:n])
			wantDamage(t, r, "small/object", fmt.Sprintf("cut off after %d of %d bytes", n, len(whole)))
		}
		writeFile(t, file, whole)
		wantContent(t, r, "small/object", []byte("some content, some content, some content"))
	})
}

// TestDamage does to a larger object what media and people do to files.
func TestDamage(t *testing.T) {
	t.Parallel()
	eachEncoding(t, func(t *testing.T, dir string, r, _ *repository.Repository) {
		put(t, r, "large", content(7, 3<<20))
		file := fileOf(dir, "large")
		whole := readFile(t, file)
		rapid.Check(t, func(rt *rapid.T) {
			b := bytes.Clone(whole)
			at := rapid.IntRange(0, len(b)-1).Draw(rt, "at")
			n := min(rapid.IntRange(1, 5000).Draw(rt, "n"), len(b)-at)
			how := rapid.SampledFrom([]string{"flip", "cut", "zeros", "leave out", "repeat", "append", "swap"}).Draw(rt, "how")
			switch how {
			case "flip":
				b[at] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
			case "cut":
				b = b[:at]
			case "zeros":
				clear(b[at : at+n])
			case "leave out":
				b = append(b[:at], b[at+n:]...)
			case "repeat":
				b = append(bytes.Clone(b[:at+n]), b[at:]...)
			case "append":
				b = append(b, whole[:n]...)
			case "swap":
				b = append(append(bytes.Clone(b[at:]), '\n'), b[:at]...)
			}
			if bytes.Equal(b, whole) {
				return
			}
			writeFile(t, file, b)
			wantDamage(t, r, "large", how)
		})
	})
}

// TestReplaced: an object under the name of another is none, even when somebody writes head and foot anew.
func TestReplaced(t *testing.T) {
	t.Parallel()
	eachEncoding(t, func(t *testing.T, dir string, r, _ *repository.Repository) {
		put(t, r, "old", []byte("the old one"))
		put(t, r, "new", []byte("the new one"))
		writeFile(t, fileOf(dir, "new"), readFile(t, fileOf(dir, "old")))
		wantDamage(t, r, "new", "another object")
		_, _, err := get(t.Context(), r, "new")
		wantCode(t, err, sqlstate.DataCorrupted, `The bytes are those of object "old".`)

		forged := bytes.Replace(readFile(t, fileOf(dir, "old")), []byte(" old\n"), []byte(" new\n"), 1)
		writeFile(t, fileOf(dir, "new"), repository.WithFoot(forged))
		wantDamage(t, r, "new", "another object with a new head")

		other := create(t, t.TempDir())
		put(t, other, "old", []byte("the old one"))
		writeFile(t, fileOf(dir, "old"), repository.WithFoot(bytes.Replace(readFile(t, fileOf(dir, "old")), []byte(r.ID()), []byte(other.ID()), 1)))
		_, _, err = get(t.Context(), r, "old")
		wantCode(t, err, sqlstate.DataCorrupted, "of another repository")
	})
}

// TestConfiguration: one damaged bit of the repository's own values costs nothing, and two are named.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, create(t, dir), "a", []byte("content"))
	first, second := filepath.Join(dir, "cleave-repository"), filepath.Join(dir, "cleave-repository.copy")
	whole := readFile(t, first)
	for i := range len(whole) * 8 {
		b := bytes.Clone(whole)
		b[i/8] ^= 1 << (i % 8)
		writeFile(t, first, b)
		r, err := repository.Open(t.Context(), dir, repository.Options{})
		if err != nil {
			t.Fatalf("bit %d: %v", i, err)
		}
		if i == 0 {
			wantContent(t, r, "a", []byte("content"))
		}
		_ = r.Close()
		if i%100 == 0 {
			writeFile(t, second, b)
			_, err = repository.Open(t.Context(), dir, repository.Options{Create: true})
			wantCode(t, err, sqlstate.DataCorrupted, `"cleave-repository" of the repository`)
			writeFile(t, second, whole)
		}
	}
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	open(t, dir, repository.Options{})
}

// TestKeys: who writes need not be able to read, and what does not fit is told from damage.
func TestKeys(t *testing.T) {
	t.Parallel()
	ctx := waitfor.Context(t)
	recipient, identity := keys(t)
	second, secondIdentity := keys(t)
	_, stranger := keys(t)
	dir := t.TempDir()
	w := open(t, dir, repository.Options{Create: true, Recipients: []string{recipient, second}})
	wrote := put(t, w, "secret", []byte("the content"))
	if !wrote.Encrypted || bytes.Contains(readFile(t, fileOf(dir, "secret")), []byte("the content")) {
		t.Error("it is not encrypted")
	}
	_, err := w.Get(ctx, "secret")
	wantCode(t, err, sqlstate.ConfigFileError, `"secret"`, "no identity is known")
	if o, err := w.Verify(ctx, "secret"); err != nil || o.Size != -1 || o.Sum != wrote.Sum {
		t.Errorf("%+v, %v", o, err)
	}
	for _, file := range []string{identity, secondIdentity} {
		wantContent(t, open(t, dir, repository.Options{IdentityFile: file}), "secret", []byte("the content"))
	}
	r := open(t, dir, repository.Options{IdentityFile: stranger})
	_, err = r.Get(ctx, "secret")
	wantCode(t, err, sqlstate.ConfigFileError, `"secret"`, "no identity opens")
	_, err = r.Put(ctx, "clear", strings.NewReader("x"))
	wantCode(t, err, sqlstate.ConfigFileError, "no recipient is known")
	if _, err = r.PutClear(ctx, "clear", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	wantContent(t, w, "clear", []byte("x"))

	_, err = repository.Open(ctx, dir, repository.Options{Recipients: []string{"age1wrong"}})
	wantCode(t, err, sqlstate.ConfigFileError)
	_, err = repository.Open(ctx, dir, repository.Options{IdentityFile: filepath.Join(dir, "no")})
	wantCode(t, err, sqlstate.ConfigFileError)
	bad := filepath.Join(t.TempDir(), "bad")
	writeFile(t, bad, []byte("AGE-SECRET-KEY-1BROKEN\n"))
	_, err = repository.Open(ctx, dir, repository.Options{IdentityFile: bad})
	wantCode(t, err, sqlstate.ConfigFileError)
	if strings.Contains(err.Error(), "BROKEN") {
		t.Errorf("an error repeats a secret: %v", err)
	}
}

// TestFull: a full repository says so, shows nothing of what did not fit, and goes on when there is room.
func TestFull(t *testing.T) {
	t.Parallel()
	ctx := waitfor.Context(t)
	dir := pgtest.SmallDisk(t, 8<<20, t.TempDir())
	r := create(t, dir)
	_, err := r.Put(ctx, "large", bytes.NewReader(content(1, 30<<20)))
	wantCode(t, err, sqlstate.DiskFull, `"large"`, "Give the repository more room")
	if left := names(t, r, ""); left != nil {
		t.Errorf("it has %v", left)
	}
	put(t, r, "large", content(1, 1<<20))
	wantContent(t, r, "large", content(1, 1<<20))
}

// readerFunc is a reader.
type readerFunc func(b []byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestGone: the folder is removed while an object is written. That is no "no such object", and nothing is made in its place.
func TestGone(t *testing.T) {
	t.Parallel()
	ctx := waitfor.Context(t)
	dir := filepath.Join(t.TempDir(), "repository")
	r := create(t, dir)
	put(t, r, "a", []byte("content"))
	from, n := bytes.NewReader(content(1, 20<<20)), 0
	_, err := r.Put(ctx, "b", readerFunc(func(b []byte) (int, error) {
		if n++; n == 10 {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
		return from.Read(b)
	}))
	wantCode(t, err, sqlstate.IOError, `"b"`, "gone")
	_, err = r.Get(ctx, "a")
	wantCode(t, err, sqlstate.IOError, "gone")
	_, err = r.List(ctx, "")
	wantCode(t, err, sqlstate.IOError, "gone")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is there again: %v", err)
	}
}

// TestHangs: a file system that does not answer costs a stall bound, and no more.
func TestHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := open(t, dir, repository.Options{Create: true, Stall: 300 * time.Millisecond})
	put(t, r, "a", []byte("content"))
	file := fileOf(dir, "a")
	// A pipe that nobody writes to is opened for as long as a dead mount.
	if err := errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err := r.Get(waitfor.Context(t), "a")
	wantCode(t, err, sqlstate.IOError, `"a"`, "nothing has moved for 300ms")
	end, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = end.Close() // the read that hangs ends
}

// TestBroken: the content ends with an error, or the caller's context does.
func TestBroken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := create(t, dir)
	broken := errors.New("the server went away")
	_, err := r.Put(t.Context(), "a", io.MultiReader(bytes.NewReader(content(1, 5<<20)), readerFunc(func([]byte) (int, error) { return 0, broken })))
	wantCode(t, err, sqlstate.IOError, `could not read what object "a" was to have`)
	if !errors.Is(err, broken) {
		t.Errorf("the cause is not in %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = r.Put(ctx, "a", io.MultiReader(bytes.NewReader(content(1, 5<<20)), readerFunc(func([]byte) (int, error) {
		cancel()
		return 0, nil
	})))
	wantCode(t, err, sqlstate.QueryCanceled, `"a"`)
	left, err := os.ReadDir(filepath.Join(dir, "unfinished"))
	if err != nil || len(left) > 0 || names(t, r, "") != nil {
		t.Errorf("left are %v, %v", left, err)
	}
}

// TestKilled: kill -9 while an object is written leaves none, and Sweep leaves alone who lives.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := create(t, dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), writerVariable+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range rand.IntN(4) + 1 {
			if !lines.Scan() {
				t.Fatal("the writer has ended")
			}
		}
		if n, err := r.Sweep(t.Context()); err != nil || n != 0 {
			t.Errorf("of a writer that lives %d were removed, %v", n, err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // says that it was killed
		if left := names(t, r, ""); left != nil {
			t.Fatalf("round %d: it left %v", round, left)
		}
		if n, err := r.Sweep(t.Context()); err != nil || n != 1 {
			t.Errorf("%d were removed, %v", n, err)
		}
	}
	put(t, r, "endless", []byte("content"))
	wantContent(t, r, "endless", []byte("content"))
}

// endlessWriter is the process of TestKilled: it puts an object that has no end, and prints a line for each part.
func endlessWriter(dir string) {
	r, err := repository.Open(context.Background(), dir, repository.Options{})
	if err == nil {
		part := content(1, 4<<20)
		_, err = r.Put(context.Background(), "endless", readerFunc(func(b []byte) (int, error) {
			fmt.Println("a part")
			return copy(b, part), nil
		}))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestAtOnce: of writers of one name one succeeds, and writers of others do not mind.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := create(t, dir)
	var won atomic.Int32
	var winner atomic.Value
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			mine := content(uint64(i), 1<<20)
			_, err := r.Put(context.Background(), "one/name", bytes.NewReader(mine))
			switch code(err) {
			case "":
				won.Add(1)
				winner.Store(mine)
			case sqlstate.DuplicateObject:
			default:
				t.Error(err)
			}
			put(t, r, fmt.Sprintf("own/%d/name", i), mine)
			wantContent(t, r, fmt.Sprintf("own/%d/name", i), mine)
		})
	}
	work.Wait()
	if won.Load() != 1 {
		t.Fatalf("%d have won", won.Load())
	}
	wantContent(t, r, "one/name", winner.Load().([]byte))
}

// TestTools: the programs of zstd and age read an object, without Cleave.
func TestTools(t *testing.T) {
	t.Parallel()
	recipient, identity := keys(t)
	dir := t.TempDir()
	r := open(t, dir, repository.Options{Create: true, Recipients: []string{recipient}})
	want := content(3, 1<<20)
	put(t, r, "secret", want)
	if _, err := r.PutClear(t.Context(), "clear", bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string]string{
		"clear":  `tail -n +2 "$FILE" | head -c -100 | "$ZSTD" -d`,
		"secret": `tail -n +2 "$FILE" | head -c -100 | "$AGE" -d -i "$KEY" | "$ZSTD" -d`,
	} {
		cmd := exec.Command("sh", "-c", command)
		cmd.Env = append(os.Environ(), "FILE="+fileOf(dir, name), "KEY="+identity, "ZSTD="+pgtest.Zstd(t), "AGE="+pgtest.Age(t))
		cmd.Stderr = os.Stderr
		if got, err := cmd.Output(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes that differ, %v", name, len(got), err)
		}
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	wantContent(t, open(t, copied, repository.Options{}), "clear", want)
}

// TestTimes: no time of day matters.
func TestTimes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := create(t, dir)
	put(t, r, "a", []byte("content"))
	for _, year := range []int{1971, 2037, 2100} {
		when := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		if err := filepath.Walk(dir, func(p string, _ os.FileInfo, err error) error {
			return errors.Join(err, os.Chtimes(p, when, when))
		}); err != nil {
			t.Fatal(err)
		}
		wantContent(t, r, "a", []byte("content"))
		if n, err := r.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("%d were removed, %v", n, err)
		}
	}
}
