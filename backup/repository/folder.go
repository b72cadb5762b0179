package repository

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// unfinished is the folder of what is being written.
const unfinished = "unfinished"

// syncEvery bounds what a sync has to write, so that it cannot be taken for a stall.
const syncEvery = 64 << 20

// folder is a store on a file system. It holds the folder open: what is mounted over it, or put in its place, is another.
type folder struct {
	root  *os.Root
	stall time.Duration
}

// errGone is not fs.ErrNotExist, which would be said of an object.
var errGone = errors.New("it is gone, or its file system is not mounted any more")

func openFolder(ctx context.Context, at string, create bool, stall time.Duration) (Store, error) {
	f := &folder{stall: stall}
	err := bounded(ctx, stall, func(func()) error {
		if create {
			if err := os.MkdirAll(at, 0o700); err != nil {
				return err
			}
		}
		root, err := os.OpenRoot(at)
		f.root = root
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (f *folder) Close() error { return f.root.Close() }

type fileUpload struct {
	f       *folder
	ctx     context.Context
	key     string
	temp    string
	file    *os.File
	buf     *bufio.Writer
	written int64 // since the last sync
}

// Create implements Store.
func (f *folder) Create(ctx context.Context, key string) (Upload, error) {
	u := &fileUpload{f: f, ctx: ctx, key: key}
	err := bounded(ctx, f.stall, func(func()) error {
		if err := f.root.Mkdir(unfinished, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return gone(err)
		}
		u.temp = path.Join(unfinished, rand.Text())
		file, err := f.root.OpenFile(u.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return gone(err)
		}
		u.file = file
		// Sweep leaves alone what somebody has locked.
		return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	})
	if err != nil {
		return nil, err
	}
	u.buf = bufio.NewWriterSize(writerFunc(u.put), 1<<20)
	return u, nil
}

func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %v", errGone, err)
	}
	return err
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }

func (u *fileUpload) Write(b []byte) (int, error) { return u.buf.Write(b) }

// put is called with the buffer of buf, which ends at the first error: nobody writes to what a hung write holds.
func (u *fileUpload) put(b []byte) (int, error) {
	err := bounded(u.ctx, u.f.stall, func(tick func()) error {
		if _, err := u.file.Write(b); err != nil {
			return err
		}
		tick()
		if u.written += int64(len(b)); u.written < syncEvery {
			return nil
		}
		u.written = 0
		return u.file.Sync()
	})
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

// Commit implements Upload. The link fails if the key is there, and it is there after a power cut if Commit has returned.
func (u *fileUpload) Commit(ctx context.Context) error {
	if err := u.buf.Flush(); err != nil {
		return err
	}
	return bounded(ctx, u.f.stall, func(tick func()) error {
		if err := u.file.Sync(); err != nil {
			return err
		}
		tick()
		dir := path.Dir(u.key)
		if err := u.f.mkdirAll(dir); err != nil {
			return gone(err)
		}
		if err := u.f.root.Link(u.temp, u.key); err != nil {
			return gone(err)
		}
		tick()
		if err := u.f.syncDir(dir); err != nil {
			return err
		}
		_ = u.f.root.Remove(u.temp) // a second name of the same; Sweep finds it
		return u.file.Close()
	})
}

// Abort implements Upload.
func (u *fileUpload) Abort() {
	_ = bounded(context.WithoutCancel(u.ctx), u.f.stall, func(func()) error { // Sweep finds what is left
		return errors.Join(u.file.Close(), u.f.root.Remove(u.temp))
	})
}

// mkdirAll makes folders that are there after a power cut.
func (f *folder) mkdirAll(dir string) error {
	if dir == "." {
		return nil
	}
	if info, err := f.root.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := path.Dir(dir)
	if err := f.mkdirAll(parent); err != nil {
		return err
	}
	if err := f.root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return f.syncDir(parent)
}

func (f *folder) syncDir(dir string) error {
	d, err := f.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Open implements Store.
func (f *folder) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	r := &fileReader{f: f, ctx: ctx, left: length}
	err := bounded(ctx, f.stall, func(func()) error {
		file, err := f.root.Open(key)
		if err != nil {
			return err
		}
		if _, err = file.Seek(offset, io.SeekStart); err != nil {
			return errors.Join(err, file.Close())
		}
		r.file = file
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

type fileReader struct {
	f    *folder
	ctx  context.Context
	file *os.File
	left int64  // -1 is all
	own  []byte // a hung read keeps this, and not the memory of the caller
}

func (r *fileReader) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	if r.left > 0 && int64(len(b)) > r.left {
		b = b[:r.left]
	}
	if r.own == nil {
		r.own = make([]byte, 256<<10)
	}
	n, own, file := 0, r.own[:min(len(b), len(r.own))], r.file
	got := make(chan int, 1)
	err := bounded(r.ctx, r.f.stall, func(func()) error {
		m, err := file.Read(own)
		got <- m
		return err
	})
	select {
	case n = <-got:
		copy(b, own[:n])
	default: // it hangs
		r.own = nil
	}
	if r.left > 0 {
		r.left -= int64(n)
	}
	return n, err
}

func (r *fileReader) Close() error { return r.file.Close() }

// Stat implements Store.
func (f *folder) Stat(ctx context.Context, key string) (e Entry, err error) {
	var info fs.FileInfo
	err = bounded(ctx, f.stall, func(func()) error {
		i, err := f.root.Stat(key)
		info = i
		return err
	})
	if err != nil {
		return e, err
	}
	return Entry{key, info.Size(), info.ModTime()}, nil
}

// List implements Store.
func (f *folder) List(ctx context.Context, prefix string) ([]Entry, error) {
	found := make(chan []Entry, 1)
	err := bounded(ctx, f.stall, func(tick func()) error {
		list, err := f.walk(prefix, tick)
		found <- list
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-found, nil
}

func (f *folder) walk(prefix string, tick func()) (list []Entry, err error) {
	dir := "."
	if i := strings.LastIndexByte(prefix, '/'); i > 0 {
		dir = prefix[:i]
	}
	err = fs.WalkDir(f.root.FS(), dir, func(p string, d fs.DirEntry, err error) error {
		tick()
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile, or never made
			return nil
		case err != nil:
			return err
		case d.IsDir():
			if p == unfinished {
				return fs.SkipDir
			}
			return nil
		case !strings.HasPrefix(p, prefix):
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		list = append(list, Entry{p, info.Size(), info.ModTime()})
		return nil
	})
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	return list, err
}

// Remove implements Store.
func (f *folder) Remove(ctx context.Context, key string) error {
	return bounded(ctx, f.stall, func(func()) error {
		if err := f.root.Remove(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := f.syncDir(path.Dir(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// Sweep implements Store. The lock of a file tells whether its writer lives.
func (f *folder) Sweep(ctx context.Context) (removed int, err error) {
	swept := make(chan int, 1)
	err = bounded(ctx, f.stall, func(tick func()) error {
		n, err := f.sweep(tick)
		swept <- n
		return err
	})
	select {
	case removed = <-swept:
	default:
	}
	return removed, err
}

func (f *folder) sweep(tick func()) (removed int, err error) {
	left, err := fs.ReadDir(f.root.FS(), unfinished)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, e := range left {
		tick()
		name := path.Join(unfinished, e.Name())
		file, openErr := f.root.OpenFile(name, os.O_WRONLY, 0)
		if openErr != nil {
			continue // it has been finished
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil && f.root.Remove(name) == nil {
			removed++
		}
		_ = file.Close() // nothing was written to it
	}
	return removed, err
}
