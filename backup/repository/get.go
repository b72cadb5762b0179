package repository

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"slices"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/cleavedb/cleave/sqlstate"
)

// maxWindow bounds the memory that the head of a damaged zstd frame can ask for; what Put writes needs less.
const maxWindow = 64 << 20

// Reader gives the content of an object, and checks it meanwhile. Only io.EOF says that all of it was as it was put.
type Reader struct {
	r      *Repository
	name   string
	body   *source
	stored summed        // of what was read from the body
	rest   *bufio.Reader // of the payload
	after  io.Reader     // what follows the payload
	held   *holdBack
	zstd   *zstd.Decoder
	plain  summed
	object Object
	err    error // what Read goes on saying
}

// Get reads an object. What was read is to be trusted when the reader has said io.EOF.
func (r *Repository) Get(ctx context.Context, name string) (*Reader, error) {
	g, err := r.get(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := g.openPayload(); err != nil {
		_ = g.Close() // the first error says more
		return nil, err
	}
	return g, nil
}

// get opens an object up to its payload.
func (r *Repository) get(ctx context.Context, name string) (*Reader, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	key := keyOf(name)
	e, err := r.store.Stat(ctx, key)
	if err != nil {
		return nil, r.missing(ctx, err, name)
	}
	body, err := r.store.Open(ctx, key, 0, -1)
	if err != nil {
		return nil, r.missing(ctx, err, name)
	}
	g := &Reader{
		r: r, name: name, body: &source{ctx: ctx, from: body},
		stored: summed{sum: sha256.New()}, plain: summed{sum: sha256.New()},
	}
	g.object = Object{Name: name, Stored: e.Size, Size: -1}
	if err := g.readHead(e.Size); err != nil {
		_ = g.Close() // the first error says more
		return nil, err
	}
	return g, nil
}

func (r *Repository) missing(ctx context.Context, err error, name string) error {
	if errors.Is(err, fs.ErrNotExist) {
		if gone := r.gone(ctx); gone != nil {
			return gone
		}
		e := sqlstate.Wrap(err, sqlstate.UndefinedFile, "the repository has no object %q", name)
		e.Op = "repository " + r.place
		return e.WithHint("Check the name; cleave backup list shows the backups that are whole.")
	}
	return r.fault(err, "read object %q", name)
}

// readHead reads the first line and sets the reader on the payload.
func (g *Reader) readHead(size int64) error {
	all := bufio.NewReaderSize(g.body, 256<<10)
	line, err := all.Peek(int(min(size, maxHead)))
	if g.body.err != nil {
		return g.r.fault(g.body.err, "read object %q", g.name)
	}
	if end := bytes.IndexByte(line, '\n'); err == nil && end >= 0 {
		line = bytes.Clone(line[:end+1])
	}
	h, err := parseHead(line)
	switch {
	case err != nil:
		return g.damaged("%v", err)
	case h.name != g.name:
		return g.damaged("The bytes are those of object %q.", h.name)
	case h.repository != g.r.id:
		return g.damaged("The bytes are those of an object of another repository, %s.", h.repository)
	}
	payload := size - int64(len(line)) - int64(footLength)
	if payload < int64(sealLength(g.r.id, g.name)) {
		return g.damaged("It has %d bytes, which is too few: it was cut off.", size)
	}
	g.object.Encrypted = h.encoding == encodingSealed
	g.stored.Write(line)
	_, _ = all.Discard(len(line)) // was peeked at
	g.rest = bufio.NewReaderSize(io.TeeReader(io.LimitReader(all, payload), &g.stored), 64<<10)
	g.after = all
	return nil
}

// openPayload sets the reader on the content.
func (g *Reader) openPayload() error {
	var payload io.Reader = g.rest
	if g.object.Encrypted {
		if len(g.r.identities) == 0 {
			e := sqlstate.New(sqlstate.ConfigFileError, "object %q of the repository is encrypted, and no identity is known", g.name)
			e.Op = "repository " + g.r.place
			return e.WithHint("Name the file with the secret key: an identity, AGE-SECRET-KEY-1....")
		}
		opened, err := age.Decrypt(g.rest, g.r.identities...)
		if err != nil {
			return g.failed(err)
		}
		payload = opened
	}
	g.held = &holdBack{from: payload, keep: sealLength(g.r.id, g.name)}
	z, err := zstd.NewReader(g.held, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(2))
	if err != nil {
		return g.failed(err)
	}
	g.zstd = z
	return nil
}

// Read implements io.Reader.
func (g *Reader) Read(b []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.zstd.Read(b)
	g.plain.Write(b[:n])
	switch {
	case err == io.EOF:
		if g.err = g.finish(); g.err == nil {
			g.err = io.EOF
		}
	case err != nil:
		g.err = g.failed(err)
	}
	return n, g.err
}

// finish checks the end of an object whose content was read.
func (g *Reader) finish() error {
	tail, err := g.held.rest()
	if err != nil {
		return g.failed(err)
	}
	if err := g.checkStored(); err != nil {
		return err
	}
	size, sum, ok := parseSeal(tail, g.r.id, g.name)
	switch {
	case !ok:
		return g.damaged("The seal within it is that of another object.")
	case size != g.plain.n:
		return g.damaged("Its content has %d bytes, and %d were put.", g.plain.n, size)
	case !bytes.Equal(sum, g.plain.sum.Sum(nil)):
		return g.damaged("The checksum of its content is wrong.")
	}
	g.object.Size, g.object.SHA256 = size, hex.EncodeToString(sum)
	return nil
}

// checkStored reads what is left of the payload, and compares with the foot.
func (g *Reader) checkStored() error {
	if _, err := io.Copy(io.Discard, g.rest); err != nil {
		return g.r.fault(err, "read object %q", g.name)
	}
	before := footBefore(g.stored.n)
	g.stored.Write(before)
	end, err := io.ReadAll(io.LimitReader(g.after, int64(footLength)+1))
	if err != nil {
		return g.r.fault(err, "read object %q", g.name)
	}
	stored, sum, ok := parseFoot(end)
	switch {
	case !ok:
		return g.damaged("Its end is not that of an object: it was cut off, or its end was changed.")
	case stored != g.stored.n-int64(len(before)):
		return g.damaged("It has another length than when it was put.")
	case !bytes.Equal(sum, g.stored.sum.Sum(nil)):
		return g.damaged("The checksum of its bytes is wrong.")
	}
	g.object.Sum = hex.EncodeToString(sum)
	return nil
}

// failed finds out why the payload could not be read: the store, damage, or the wrong key.
func (g *Reader) failed(err error) error {
	if g.zstd != nil {
		g.zstd.Close() // it reads ahead
	}
	if g.body.err != nil {
		return g.r.fault(g.body.err, "read object %q", g.name)
	}
	// The sum of what is stored tells damage from a key that does not fit.
	if damage := g.checkStored(); damage != nil {
		return damage
	}
	var none *age.NoIdentityMatchError
	if errors.As(err, &none) {
		e := sqlstate.Wrap(err, sqlstate.ConfigFileError, "no identity opens object %q of the repository", g.name)
		e.Op = "repository " + g.r.place
		return e.WithHint("Name the file with the secret key of one of the recipients that the object was written for.")
	}
	return g.damaged("%v", err)
}

func (g *Reader) damaged(detail string, args ...any) error {
	return g.r.damaged(g.name, detail, args...)
}

// Object returns what is known of the object: all of it after io.EOF.
func (g *Reader) Object() Object { return g.object }

// Close ends reading, at any place.
func (g *Reader) Close() error {
	if g.zstd != nil {
		g.zstd.Close()
	}
	if g.err == nil {
		g.err = fs.ErrClosed
	}
	return g.body.from.Close()
}

// source remembers the error of the store, which is no damage.
type source struct {
	ctx  context.Context
	from io.ReadCloser
	err  error
}

func (s *source) Read(b []byte) (n int, err error) {
	if err = s.ctx.Err(); err == nil {
		n, err = s.from.Read(b)
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// holdBack passes on all but the last bytes of a reader.
type holdBack struct {
	from  io.Reader
	keep  int
	ahead []byte // what was read and not passed on
	err   error
}

func (h *holdBack) Read(b []byte) (int, error) {
	for len(h.ahead) <= h.keep && h.err == nil {
		h.ahead = slices.Grow(h.ahead, 64<<10)
		n, err := h.from.Read(h.ahead[len(h.ahead):cap(h.ahead)])
		h.ahead, h.err = h.ahead[:len(h.ahead)+n], err
	}
	n := copy(b, h.ahead[:max(0, len(h.ahead)-h.keep)])
	h.ahead = h.ahead[n:]
	if n == 0 && h.err != nil {
		return 0, h.err
	}
	return n, nil
}

// rest returns the last bytes, after all before them were read.
func (h *holdBack) rest() ([]byte, error) {
	if n, err := io.Copy(io.Discard, h); err != nil || n > 0 {
		return nil, errors.Join(err, errors.New("bytes follow the last frame"))
	}
	return h.ahead, nil
}

// Verify reads an object to its end and reports whether it is whole. Without an identity it checks the bytes of an
// encrypted object, and leaves Size at -1.
func (r *Repository) Verify(ctx context.Context, name string) (Object, error) {
	g, err := r.get(ctx, name)
	if err != nil {
		return Object{}, err
	}
	defer g.Close()
	if g.object.Encrypted && len(r.identities) == 0 {
		return g.object, g.checkStored()
	}
	if err := g.openPayload(); err != nil {
		return Object{}, err
	}
	if _, err := io.CopyBuffer(io.Discard, onlyReader{g}, make([]byte, 1<<20)); err != nil {
		return Object{}, err
	}
	return g.object, nil
}

// Stat tells what an object says of itself. It reads its ends only, and checks nothing else.
func (r *Repository) Stat(ctx context.Context, name string) (Object, error) {
	g, err := r.get(ctx, name)
	if err != nil {
		return Object{}, err
	}
	defer g.Close()
	n := int64(footLength + sealLength(r.id, name))
	end, err := r.store.Open(ctx, keyOf(name), g.object.Stored-n, n)
	if err != nil {
		return Object{}, r.missing(ctx, err, name)
	}
	defer end.Close()
	tail, err := io.ReadAll(io.LimitReader(end, n))
	if err != nil {
		return Object{}, r.fault(err, "read object %q", name)
	}
	if int64(len(tail)) != n {
		return Object{}, g.damaged("It was cut off while it was read.")
	}
	_, sum, ok := parseFoot(tail[len(tail)-footLength:])
	if !ok {
		return Object{}, g.damaged("Its end is not that of an object: it was cut off, or its end was changed.")
	}
	g.object.Sum = hex.EncodeToString(sum)
	if g.object.Encrypted {
		return g.object, nil
	}
	size, content, ok := parseSeal(tail[:len(tail)-footLength], r.id, name)
	if !ok {
		return Object{}, g.damaged("The seal within it is that of another object.")
	}
	g.object.Size, g.object.SHA256 = size, hex.EncodeToString(content)
	return g.object, nil
}
