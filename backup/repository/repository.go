package repository

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/cleavedb/cleave/sqlstate"
)

// Options say how a repository is opened. The zero value reads and writes without encryption.
type Options struct {
	// Create makes the repository if the place is empty.
	Create bool
	// Recipients are age's public keys ("age1..."). What is put can be read by each of them.
	Recipients []string
	// IdentityFile names a file with age's secret keys ("AGE-SECRET-KEY-1..."), one of which must fit what is read.
	IdentityFile string
	// Level is a compression level as the zstd program counts them, 1 to 19; 0 is 3.
	Level int
	// Stall bounds the time without any progress; 0 is a minute.
	Stall time.Duration
	// Lease is how long a lock outlives its holder; 0 is a minute.
	Lease time.Duration
}

// Repository is an open repository. It can be used by several goroutines.
type Repository struct {
	store      Store
	place      string // the URL, for errors
	id         string
	encrypted  bool
	recipients []age.Recipient
	identities []age.Identity
	level      zstd.EncoderLevel
	lease      time.Duration
}

// Object is what is known of an object.
type Object struct {
	Name string `json:"name"`
	// Stored is the number of bytes in the repository, Sum the SHA-256 that ends them.
	Stored int64  `json:"stored"`
	Sum    string `json:"sum"`
	// Size and SHA256 are of the content. They are -1 and "" where they lie within an encryption that was not opened.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"`
	// Encrypted says that reading it takes an identity.
	Encrypted bool `json:"encrypted,omitempty"`
}

// config is the first value of a repository. There are two of it: one damaged bit must not cost everything.
type config struct {
	Format    int    `json:"format"`
	ID        string `json:"id"`
	Encrypted bool   `json:"encrypted"` // objects without encryption are not written
}

const (
	configKey  = "cleave-repository"
	configCopy = "cleave-repository.copy"
	configMax  = 4096
)

// Open opens the repository at a URL: file:///path, a path, or s3://bucket/prefix?endpoint=URL&region=R&path-style=true.
func Open(ctx context.Context, url string, o Options) (*Repository, error) {
	r := &Repository{place: strings.TrimSuffix(url, "/"), level: zstd.SpeedDefault, lease: o.Lease}
	if o.Level != 0 {
		r.level = zstd.EncoderLevelFromZstd(o.Level)
	}
	if r.lease <= 0 {
		r.lease = time.Minute
	}
	if o.Stall <= 0 {
		o.Stall = time.Minute
	}
	if o.Level < 0 || o.Level > 19 {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "the compression level %d is not between 1 and 19", o.Level)
	}
	var err error
	if r.recipients, err = parseRecipients(o.Recipients); err != nil {
		return nil, err
	}
	if r.identities, err = readIdentities(o.IdentityFile); err != nil {
		return nil, err
	}
	if r.store, err = openStore(ctx, url, o.Create, o.Stall); err != nil {
		return nil, r.fault(err, "open the repository")
	}
	if err := r.setUp(ctx, o.Create); err != nil {
		_ = r.store.Close() // the first error says more
		return nil, err
	}
	return r, nil
}

// Close lets go of the repository. Locks that are held end with their lease.
func (r *Repository) Close() error { return r.store.Close() }

// ID is the repository's own name, which its objects carry.
func (r *Repository) ID() string { return r.id }

// setUp reads what the repository says of itself, and makes it if it is to be made.
func (r *Repository) setUp(ctx context.Context, create bool) error {
	c, err := r.readConfig(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		if !create {
			e := sqlstate.Wrap(err, sqlstate.UndefinedFile, "there is no repository at %s", r.place)
			return e.WithHint("Check the URL, and that the file system is mounted. cleave backup makes a repository when it is asked to.")
		}
		c, err = r.make(ctx)
	}
	if err != nil {
		return r.fault(err, "open the repository")
	}
	if c.Format != 1 {
		return sqlstate.New(sqlstate.FeatureNotSupported, "the repository at %s has format %d, and this program knows format 1", r.place, c.Format).
			WithHint("Use the version of Cleave that made it, or a newer one.")
	}
	r.id, r.encrypted = c.ID, c.Encrypted
	return nil
}

// make writes the configuration of a new repository, or returns that of who was faster.
func (r *Repository) make(ctx context.Context) (c config, err error) {
	there, err := r.store.List(ctx, "")
	if err != nil {
		return c, err
	}
	for _, e := range there {
		if e.Key != configKey && e.Key != configCopy {
			return c, sqlstate.New(sqlstate.ObjectNotInState, "there is no repository at %s, and the place is not empty", r.place).
				WithDetail("It has %q, for one.", cut(e.Key)).WithHint("Name an empty folder or an unused prefix.")
		}
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	text, err := json.Marshal(config{1, hex.EncodeToString(id[:]), len(r.recipients) > 0})
	if err != nil {
		return c, err
	}
	sum := sha256.Sum256(append(text, footBefore(int64(len(text)))...))
	text = append(text, foot(int64(len(text)), sum[:])...)
	if err = r.write(ctx, configKey, text); errors.Is(err, fs.ErrExist) {
		return r.readConfig(ctx)
	} else if err != nil {
		return c, err
	}
	// The second writing of the same key shows that the store keeps the first.
	if err := r.write(ctx, configKey, []byte("0")); !errors.Is(err, fs.ErrExist) {
		return c, sqlstate.Wrap(err, sqlstate.FeatureNotSupported, "the repository at %s lets a value be written over", r.place).
			WithHint("Take a server that knows conditional writes (If-None-Match), or a folder on a file system with hard links.")
	}
	if err = r.write(ctx, configCopy, text); err != nil && !errors.Is(err, fs.ErrExist) {
		return c, err
	}
	return r.readConfig(ctx)
}

// readConfig reads the configuration, or the copy of it.
func (r *Repository) readConfig(ctx context.Context) (config, error) {
	c, err := r.readConfigAt(ctx, configKey)
	if err == nil {
		return c, nil
	}
	var known *sqlstate.Error
	if !errors.Is(err, fs.ErrNotExist) && !errors.As(err, &known) {
		return c, err
	}
	if c, second := r.readConfigAt(ctx, configCopy); second == nil {
		return c, nil
	}
	return c, err
}

func (r *Repository) readConfigAt(ctx context.Context, key string) (c config, err error) {
	b, err := r.read(ctx, key, configMax)
	if err != nil {
		return c, err
	}
	bad := sqlstate.New(sqlstate.DataCorrupted, "%q of the repository at %s is damaged", key, r.place).
		WithHint("Copy it from a copy of the repository; %q and %q are the same.", configKey, configCopy)
	if len(b) < footLength {
		return c, bad
	}
	text, end := b[:len(b)-footLength], b[len(b)-footLength:]
	stored, want, ok := parseFoot(end)
	sum := sha256.Sum256(append(bytes.Clone(text), footBefore(stored)...))
	if !ok || stored != int64(len(text)) || !bytes.Equal(sum[:], want) || json.Unmarshal(text, &c) != nil || !isID(c.ID) {
		return config{}, bad
	}
	return c, nil
}

// gone reports that the repository itself is not there any more: its file system was unmounted, or it was removed.
func (r *Repository) gone(ctx context.Context) error {
	if _, err := r.readConfig(ctx); errors.Is(err, fs.ErrNotExist) {
		return r.fault(errGone, "find the repository")
	}
	return nil
}

// read reads a small value.
func (r *Repository) read(ctx context.Context, key string, most int64) ([]byte, error) {
	body, err := r.store.Open(ctx, key, 0, most)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(io.LimitReader(body, most))
}

// write writes a small value.
func (r *Repository) write(ctx context.Context, key string, value []byte) error {
	up, err := r.store.Create(ctx, key)
	if err != nil {
		return err
	}
	if _, err = up.Write(value); err == nil {
		err = up.Commit(ctx)
	}
	if err != nil {
		up.Abort()
	}
	return err
}

// List returns the names that begin with a prefix, in order, with the sizes in the repository. It reads no objects.
func (r *Repository) List(ctx context.Context, prefix string) ([]Object, error) {
	found, err := r.store.List(ctx, objects+prefix)
	if err != nil {
		return nil, r.fault(err, "list the objects that begin with %q", prefix)
	}
	if len(found) == 0 {
		if err := r.gone(ctx); err != nil {
			return nil, err
		}
	}
	var list []Object
	for _, e := range found {
		if name, ok := nameOf(e.Key); ok {
			list = append(list, Object{Name: name, Stored: e.Size, Size: -1})
		}
	}
	sortByName(list)
	return list, nil
}

// Delete removes an object; that there is none is no error.
func (r *Repository) Delete(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := r.store.Remove(ctx, keyOf(name)); err != nil {
		return r.fault(err, "delete object %q", name)
	}
	return nil
}

// Sweep removes what Puts have left that were never finished. Those that go on fail: hold the exclusive lock.
func (r *Repository) Sweep(ctx context.Context) (removed int, err error) {
	if removed, err = r.store.Sweep(ctx); err != nil {
		return removed, r.fault(err, "remove what was left unfinished")
	}
	return removed, nil
}
