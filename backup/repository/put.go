package repository

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"slices"
	"strings"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/cleavedb/cleave/sqlstate"
)

// Put stores what a reader has under a name. It holds some megabytes of it at a time. The object can be seen when Put has
// returned without an error, and never in part. An error of the reader itself is in the chain of Put's.
func (r *Repository) Put(ctx context.Context, name string, content io.Reader) (Object, error) {
	if r.encrypted && len(r.recipients) == 0 {
		return Object{}, sqlstate.New(sqlstate.ConfigFileError, "the repository at %s takes encrypted objects, and no recipient is known", r.place).
			WithHint("Name the public key of the repository: a recipient, age1....")
	}
	return r.put(ctx, name, content, r.recipients)
}

// PutClear is Put without encryption, for what a machine has to read that has no identity.
func (r *Repository) PutClear(ctx context.Context, name string, content io.Reader) (Object, error) {
	return r.put(ctx, name, content, nil)
}

func (r *Repository) put(ctx context.Context, name string, content io.Reader, to []age.Recipient) (Object, error) {
	if err := CheckName(name); err != nil {
		return Object{}, err
	}
	// The store refuses a name that exists, too, but only at the end.
	if _, err := r.store.Stat(ctx, keyOf(name)); err == nil {
		return Object{}, r.fault(fs.ErrExist, "begin object %q", name)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return Object{}, r.fault(err, "begin object %q", name)
	}
	up, err := r.store.Create(ctx, keyOf(name))
	if err != nil {
		return Object{}, r.fault(err, "begin object %q", name)
	}
	w := &objectWriter{repository: r, name: name, stored: summed{to: up, sum: sha256.New()}, plain: summed{sum: sha256.New()}}
	from := &untilDone{ctx: ctx, from: content}
	o, err := w.write(from, to)
	if err != nil {
		up.Abort()
		if from.err != nil {
			return Object{}, r.unread(from.err, name)
		}
		return Object{}, r.fault(err, "write object %q (after %d bytes of content)", name, w.plain.n)
	}
	if err := up.Commit(ctx); err != nil {
		up.Abort()
		return Object{}, r.fault(err, "finish object %q", name)
	}
	return o, nil
}

// summed counts and sums what is written.
type summed struct {
	to  io.Writer // nil is nowhere
	sum hash.Hash
	n   int64
}

func (s *summed) Write(b []byte) (int, error) {
	s.sum.Write(b)
	s.n += int64(len(b))
	if s.to == nil {
		return len(b), nil
	}
	return s.to.Write(b)
}

// untilDone is a reader that ends with its context. It remembers its error, which is none of the repository.
type untilDone struct {
	ctx  context.Context
	from io.Reader
	err  error
}

func (u *untilDone) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := u.from.Read(b)
	if err != nil && err != io.EOF {
		u.err = err
	}
	return n, err
}

// unread is the error of an object whose content could not be had.
func (r *Repository) unread(err error, name string) error {
	var known *sqlstate.Error
	if errors.As(err, &known) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return r.fault(err, "write object %q", name)
	}
	e := sqlstate.Wrap(err, sqlstate.IOError, "could not read what object %q was to have", name)
	e.Op = "repository " + r.place
	return e.WithHint("Look at where it comes from: nothing of it is in the repository.")
}

type objectWriter struct {
	repository    *Repository
	name          string
	stored, plain summed
}

func (w *objectWriter) write(content io.Reader, to []age.Recipient) (o Object, err error) {
	r := w.repository
	h := head{r.id, encodingPlain, w.name}
	if len(to) > 0 {
		h.encoding = encodingSealed
	}
	if _, err = w.stored.Write(h.line()); err != nil {
		return o, err
	}
	payload := nothingToClose(&w.stored)
	if len(to) > 0 {
		if payload, err = age.Encrypt(&w.stored, to...); err != nil {
			return o, err
		}
	}
	if err = w.compress(payload, content); err != nil {
		return o, err
	}
	size, sum := w.plain.n, w.plain.sum.Sum(nil)
	if _, err = payload.Write(seal(size, sum, r.id, w.name)); err != nil {
		return o, err
	}
	if err = payload.Close(); err != nil {
		return o, err
	}
	if _, err = w.stored.Write(footBefore(w.stored.n)); err != nil {
		return o, err
	}
	whole := w.stored.sum.Sum(nil)
	if _, err = w.stored.to.Write(append(hex.AppendEncode(nil, whole), '\n')); err != nil {
		return o, err
	}
	return Object{
		Name: w.name, Stored: w.stored.n + 65, Sum: hex.EncodeToString(whole),
		Size: size, SHA256: hex.EncodeToString(sum), Encrypted: len(to) > 0,
	}, nil
}

func (w *objectWriter) compress(to io.Writer, content io.Reader) error {
	z, err := zstd.NewWriter(to, zstd.WithEncoderLevel(w.repository.level), zstd.WithZeroFrames(true))
	if err != nil {
		return err
	}
	w.plain.to = z
	if _, err = io.CopyBuffer(onlyWriter{&w.plain}, onlyReader{content}, make([]byte, 1<<20)); err != nil {
		return errors.Join(err, z.Close())
	}
	return z.Close()
}

// onlyWriter and onlyReader keep io.CopyBuffer to its buffer.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func nothingToClose(w io.Writer) io.WriteCloser { return nopCloser{w} }

func sortByName(list []Object) {
	slices.SortFunc(list, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
}
