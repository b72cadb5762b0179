package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/cleavedb/cleave/backup/repository"
)

// bucket is a store in a bucket.
type bucket struct {
	core      *minio.Core
	transport *http.Transport
	place     place
	stall     time.Duration
}

func (s *bucket) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

func (s *bucket) key(key string) string { return s.place.prefix + key }

// Open implements repository.Store.
func (s *bucket) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	b := &body{s: s, ctx: ctx, key: key, at: offset, end: -1}
	if length == 0 {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	if length > 0 {
		b.end = offset + length
	}
	if err := b.open(); err != nil {
		return nil, s.fault(ctx, err)
	}
	return b, nil
}

// body reads a value, and asks for the rest when the connection breaks.
type body struct {
	s       *bucket
	ctx     context.Context
	key     string
	at, end int64 // end is -1 for the end of the value
	etag    string
	from    io.ReadCloser
	failed  int // since something came
}

func (b *body) open() error {
	var o minio.GetObjectOptions
	if b.end >= 0 {
		if err := o.SetRange(b.at, b.end-1); err != nil {
			return err
		}
	} else if b.at > 0 {
		if err := o.SetRange(b.at, 0); err != nil {
			return err
		}
	}
	if b.etag != "" {
		if err := o.SetMatchETag(b.etag); err != nil {
			return err
		}
	}
	from, info, _, err := b.s.core.GetObject(b.ctx, b.s.place.bucket, b.s.key(b.key), o)
	if err != nil {
		return err
	}
	b.from, b.etag = from, info.ETag
	return nil
}

func (b *body) Read(p []byte) (int, error) {
	for {
		n, err := b.from.Read(p)
		b.at += int64(n)
		if n > 0 {
			b.failed = 0
		}
		switch {
		case err == nil || err == io.EOF:
			return n, err
		case n > 0:
			return n, nil // the next Read has the error
		}
		if b.failed++; b.failed >= tries || b.ctx.Err() != nil {
			return 0, b.s.fault(b.ctx, err)
		}
		_ = b.from.Close() // it is broken
		if err := b.open(); err != nil {
			return 0, b.s.fault(b.ctx, err)
		}
	}
}

func (b *body) Close() error { return b.from.Close() }

// Stat implements repository.Store.
func (s *bucket) Stat(ctx context.Context, key string) (e repository.Entry, err error) {
	info, err := s.core.StatObject(ctx, s.place.bucket, s.key(key), minio.StatObjectOptions{})
	if err != nil {
		return e, s.fault(ctx, err)
	}
	return repository.Entry{Key: key, Size: info.Size, Modified: info.LastModified}, nil
}

// List implements repository.Store.
func (s *bucket) List(ctx context.Context, prefix string) (list []repository.Entry, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for o := range s.core.Client.ListObjects(ctx, s.place.bucket, minio.ListObjectsOptions{Prefix: s.key(prefix), Recursive: true}) {
		if o.Err != nil {
			return nil, s.fault(ctx, o.Err)
		}
		list = append(list, repository.Entry{Key: strings.TrimPrefix(o.Key, s.place.prefix), Size: o.Size, Modified: o.LastModified})
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b repository.Entry) int { return strings.Compare(a.Key, b.Key) })
	return list, nil
}

// Remove implements repository.Store.
func (s *bucket) Remove(ctx context.Context, key string) error {
	err := s.fault(ctx, s.core.RemoveObject(ctx, s.place.bucket, s.key(key), minio.RemoveObjectOptions{}))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Sweep implements repository.Store.
func (s *bucket) Sweep(ctx context.Context) (removed int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var left []minio.ObjectMultipartInfo
	for u := range s.core.ListIncompleteUploads(ctx, s.place.bucket, s.place.prefix, true) {
		if u.Err != nil {
			return 0, s.fault(ctx, u.Err)
		}
		left = append(left, u)
	}
	for _, u := range left {
		err := s.fault(ctx, s.core.AbortMultipartUpload(ctx, s.place.bucket, u.Key, u.UploadID))
		if errors.Is(err, errNoUpload) {
			continue
		} else if err != nil {
			return removed, err
		}
		removed++
	}
	return removed, ctx.Err()
}

var (
	errNoUpload = errors.New("the upload is gone")
	errNoBucket = errors.New("there is no such bucket")
)

// causes are the errors that codes of S3 stand for (https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html).
var causes = map[string]error{
	"NoSuchKey":                           fs.ErrNotExist,
	"NoSuchUpload":                        errNoUpload,
	"NoSuchBucket":                        errNoBucket,
	"PreconditionFailed":                  fs.ErrExist,
	"AccessDenied":                        fs.ErrPermission,
	"AllAccessDisabled":                   fs.ErrPermission,
	"ExpiredToken":                        fs.ErrPermission,
	"InvalidAccessKeyId":                  fs.ErrPermission,
	"InvalidToken":                        fs.ErrPermission,
	"SignatureDoesNotMatch":               fs.ErrPermission,
	"QuotaExceeded":                       syscall.ENOSPC,
	"StorageFull":                         syscall.ENOSPC,
	"XMinioAdminBucketQuotaExceeded":      syscall.ENOSPC,
	"XMinioStorageFull":                   syscall.ENOSPC,
	"EntityTooLarge":                      syscall.EFBIG,
	"XMinioInvalidObjectName":             fs.ErrInvalid,
	http.StatusText(http.StatusForbidden): fs.ErrPermission,
}

// fault adds its cause to an error.
func (s *bucket) fault(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil {
		return errors.Join(ended, err)
	}
	var r minio.ErrorResponse
	switch {
	case errors.As(err, &r):
		cause := causes[r.Code]
		if r.StatusCode == http.StatusInsufficientStorage {
			cause = syscall.ENOSPC
		}
		if cause == nil {
			return fmt.Errorf("the server says %s (HTTP %d): %w", r.Code, r.StatusCode, err)
		}
		return fmt.Errorf("%w: the server says %s (HTTP %d): %v", cause, r.Code, r.StatusCode, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		// A dial that took too long is one as well, and no end of the caller's context.
		return fmt.Errorf("nothing has moved for %v, in %d tries: %w: %v", s.stall/tries, tries, os.ErrDeadlineExceeded, err)
	}
	return err
}
