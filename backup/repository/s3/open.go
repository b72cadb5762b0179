package s3

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/cleavedb/cleave/backup/repository"
	"github.com/cleavedb/cleave/sqlstate"
)

func init() { repository.Register("s3", open) }

// tries is how often a request is tried. All of them together take a stall bound, if nothing moves.
const tries = 3

type place struct {
	bucket, prefix, region string
	endpoint               *url.URL
	lookup                 minio.BucketLookupType
}

// errURL says what is wrong with a URL, and nothing of what it has.
func errURL(what string) error {
	return sqlstate.New(sqlstate.InvalidParameterValue, "the URL of the repository %s", what).
		WithHint("It is like s3://bucket/prefix?endpoint=https://host&region=eu-central-1&path-style=true.")
}

// parse reads a URL and, for what it leaves out, the environment.
func parse(u *url.URL) (p place, err error) {
	q, err := url.ParseQuery(u.RawQuery)
	switch {
	case err != nil:
		return p, errURL("has parameters that cannot be read")
	case u.User != nil:
		return p, errURL("has keys in it, which belong into the environment")
	case u.Host == "" || u.Port() != "":
		return p, errURL("names no bucket")
	}
	for name, values := range q {
		if !slices.Contains([]string{"endpoint", "region", "path-style"}, name) || len(values) != 1 {
			return p, errURL("has a parameter that is not known, or is there twice: " + strconv.Quote(name))
		}
	}
	p.bucket = u.Host
	if p.prefix = strings.Trim(u.Path, "/"); p.prefix != "" {
		if repository.CheckName(p.prefix) != nil {
			return p, errURL("has a prefix with other characters than letters, digits and ._=@+-")
		}
		p.prefix += "/"
	}
	p.region = cmp.Or(q.Get("region"), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if p.endpoint, err = endpoint(q.Get("endpoint")); err != nil {
		return p, err
	}
	p.lookup, err = lookup(q.Get("path-style"))
	return p, err
}

func endpoint(named string) (*url.URL, error) {
	u, err := url.Parse(cmp.Or(named, os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), "https://s3.amazonaws.com"))
	if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errURL("has an endpoint that is not like https://host")
	}
	return u, nil
}

func lookup(pathStyle string) (minio.BucketLookupType, error) {
	if pathStyle == "" {
		return minio.BucketLookupAuto, nil
	}
	path, err := strconv.ParseBool(pathStyle)
	if err != nil {
		return 0, errURL("has a path-style that is neither true nor false")
	}
	if path {
		return minio.BucketLookupPath, nil
	}
	return minio.BucketLookupDNS, nil
}

func open(_ context.Context, u *url.URL, stall time.Duration) (repository.Store, error) {
	p, err := parse(u)
	if err != nil {
		return nil, err
	}
	transport, err := newTransport(stall / tries)
	if err != nil {
		return nil, err
	}
	core, err := minio.NewCore(p.endpoint.Host, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}),
		Secure: p.endpoint.Scheme == "https", Region: p.region, BucketLookup: p.lookup, Transport: transport, MaxRetries: tries,
	})
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.InvalidParameterValue, "the URL of the repository cannot be used")
	}
	return &bucket{core: core, transport: transport, place: p, stall: stall}, nil
}

// newTransport makes connections on which something moves within the bound, in one direction or the other.
func newTransport(stall time.Duration) (*http.Transport, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := os.Getenv("AWS_CA_BUNDLE"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, sqlstate.Wrap(err, sqlstate.ConfigFileError, "the file of AWS_CA_BUNDLE cannot be read")
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, sqlstate.New(sqlstate.ConfigFileError, "the file of AWS_CA_BUNDLE has no certificate")
		}
	}
	dialer := &net.Dialer{Timeout: stall}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, TLSHandshakeTimeout: stall,
		MaxIdleConnsPerHost: 2 * atOnce, IdleConnTimeout: stall / 2, DisableCompression: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &movingConn{c, stall}, nil
		},
	}, nil
}

// movingConn breaks when nothing has moved for a time.
type movingConn struct {
	net.Conn
	stall time.Duration
}

func (c *movingConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// Write moves the bound of a reader, too, which waits for the answer meanwhile.
func (c *movingConn) Write(b []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
