package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"syscall"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/cleavedb/cleave/backup/repository"
)

const (
	// firstPart is the size of the first parts. S3 takes 10,000 parts of at least 5 MiB; every 500 parts they grow by as
	// much, so that there is room for 1.6 TiB, and small values take little memory.
	firstPart = 16 << 20
	maxParts  = 10_000
	// atOnce is how many parts are under way at the same time.
	atOnce = 3
	// tailLength is how much of the end of a value is compared to know it again.
	tailLength = 128
)

func partSize(number int) int { return firstPart * (1 + (number-1)/500) }

// upload is a value that is being written: in one request if it is small, else in parts.
type upload struct {
	s      *bucket
	caller context.Context
	ctx    context.Context // of the parts: the first error ends it
	key    string
	id     string // of an upload in parts
	buf    []byte
	size   int64
	tail   []byte

	number int
	group  *errgroup.Group
	mu     sync.Mutex
	parts  []minio.CompletePart
}

// Create implements repository.Store.
func (s *bucket) Create(ctx context.Context, key string) (repository.Upload, error) {
	u := &upload{s: s, caller: ctx, key: s.key(key)}
	u.group, u.ctx = errgroup.WithContext(ctx)
	u.group.SetLimit(atOnce)
	return u, nil
}

// Write implements io.Writer.
func (u *upload) Write(b []byte) (int, error) {
	n := len(b)
	u.size += int64(n)
	u.tail = append(u.tail, b[max(0, n-tailLength):]...)
	u.tail = slices.Clone(u.tail[max(0, len(u.tail)-tailLength):])
	for {
		room := partSize(u.number+1) - len(u.buf)
		if len(b) < room {
			u.buf = append(u.buf, b...)
			return n, nil
		}
		u.buf, b = append(u.buf, b[:room]...), b[room:]
		if err := u.send(); err != nil {
			return 0, u.s.fault(u.caller, err)
		}
	}
}

// send begins to send the buffer as a part.
func (u *upload) send() error {
	if u.ctx.Err() != nil {
		return u.group.Wait() // a part has failed, or the caller's context
	}
	if u.id == "" {
		id, err := u.s.core.NewMultipartUpload(u.ctx, u.s.place.bucket, u.key, minio.PutObjectOptions{})
		if err != nil {
			return err
		}
		u.id = id
	}
	if u.number++; u.number > maxParts {
		return fmt.Errorf("%w: S3 takes %d parts", syscall.EFBIG, maxParts)
	}
	number, part := u.number, u.buf
	u.buf = nil
	u.group.Go(func() error {
		sum := sha256.Sum256(part)
		done, err := u.s.core.PutObjectPart(u.ctx, u.s.place.bucket, u.key, u.id, number, bytes.NewReader(part), int64(len(part)),
			minio.PutObjectPartOptions{Sha256Hex: hex.EncodeToString(sum[:])})
		if err != nil {
			return err
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.parts = append(u.parts, minio.CompletePart{PartNumber: number, ETag: done.ETag})
		return nil
	})
	return nil
}

// Commit implements repository.Upload. When the answer is lost, the request is made again, and finds its own value.
func (u *upload) Commit(ctx context.Context) error {
	err := u.finish(ctx)
	_ = u.group.Wait() // finish has the error, if there were parts
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && u.isThere(ctx) {
		return nil
	}
	return u.s.fault(ctx, err)
}

func (u *upload) finish(ctx context.Context) error {
	var o minio.PutObjectOptions
	o.SetMatchETagExcept("*")
	if u.id == "" {
		sum := sha256.Sum256(u.buf)
		_, err := u.s.core.PutObject(ctx, u.s.place.bucket, u.key, bytes.NewReader(u.buf), int64(len(u.buf)), "", hex.EncodeToString(sum[:]), o)
		return err
	}
	if len(u.buf) > 0 {
		if err := u.send(); err != nil {
			return err
		}
	}
	if err := u.group.Wait(); err != nil {
		return err
	}
	// A server may know the condition of the last request, and not of this one.
	if _, err := u.s.core.StatObject(ctx, u.s.place.bucket, u.key, minio.StatObjectOptions{}); err == nil {
		return fs.ErrExist
	}
	slices.SortFunc(u.parts, func(a, b minio.CompletePart) int { return a.PartNumber - b.PartNumber })
	_, err := u.s.core.CompleteMultipartUpload(ctx, u.s.place.bucket, u.key, u.id, u.parts, o)
	return err
}

// isThere reports whether the key has this value. Its end is compared, which has a checksum of the rest.
func (u *upload) isThere(ctx context.Context) bool {
	info, err := u.s.core.StatObject(ctx, u.s.place.bucket, u.key, minio.StatObjectOptions{})
	if err != nil || info.Size != u.size {
		return false
	}
	var o minio.GetObjectOptions
	if err := o.SetRange(u.size-int64(len(u.tail)), u.size-1); err != nil {
		return false
	}
	from, _, _, err := u.s.core.GetObject(ctx, u.s.place.bucket, u.key, o)
	if err != nil {
		return false
	}
	defer from.Close()
	end, err := io.ReadAll(io.LimitReader(from, tailLength+1))
	return err == nil && bytes.Equal(end, u.tail)
}

// Abort implements repository.Upload.
func (u *upload) Abort() {
	waited := u.group.Wait()
	if u.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), u.s.stall)
	defer cancel()
	_ = errors.Join(waited, u.s.core.AbortMultipartUpload(ctx, u.s.place.bucket, u.key, u.id)) // Sweep finds what is left
}
