package etcd

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Options change what Open does by default.
type Options struct {
	// Now is the clock of the history; nil is time.Now.
	Now func() time.Time
	// LeaseTTL is for how long a lease runs without renewal, at least
	// shardmap.MinLeaseTTL; 0 is shardmap.DefaultLeaseTTL. etcd counts whole
	// seconds: it keeps a lease for the next full one.
	LeaseTTL time.Duration
	// Poll is the time between two looks at whether the watch is alive; 0 is a second.
	Poll time.Duration
}

// attemptsPerTimeout is how often a request is tried within its time.
const attemptsPerTimeout = 5

// Open connects to the directory that a URL names, see [Form].
//
// Errors: F0000 for a URL or certificates that cannot be used, 57P03 when etcd
// cannot be reached, 28P01 and 42501 when it refuses the user.
func Open(ctx context.Context, url string, o Options) (shardmap.Directory, error) {
	a, err := load(url)
	if err != nil {
		return nil, err
	}
	if o.LeaseTTL, err = shardmap.LeaseTTL(o.LeaseTTL); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Poll <= 0 {
		o.Poll = time.Second
	}
	d := &directory{
		opts: o, timeout: a.timeout, root: a.prefix + "/", where: strings.Join(a.endpoints, ","),
		tokens: map[uint64]string{},
	}
	d.life, d.end = context.WithCancel(context.Background())
	scheme := "http://"
	if a.tls != nil {
		scheme = "https://"
	}
	endpoints := make([]string, len(a.endpoints))
	for i, e := range a.endpoints {
		endpoints[i] = scheme + e
	}
	// With a password the client asks for a token at once.
	d.client, err = clientv3.New(clientv3.Config{
		Endpoints: endpoints, TLS: a.tls, Username: a.user, Password: a.password,
		DialTimeout: a.timeout, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Logger: zap.NewNop(), Context: d.life,
		// The library's own pauses grow to two minutes; a network that is whole
		// again should be noticed within a lease's time.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		})},
	})
	if err != nil {
		d.end()
		return nil, d.problem(err, "open")
	}
	if _, err := d.version(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// directory is a handle on the keys below root.
type directory struct {
	opts    Options
	timeout time.Duration
	root    string // the prefix with a slash
	// back: etcd was seen to be older than what this process knows.
	back   atomic.Bool
	where  string // the servers, for messages
	client *clientv3.Client

	// newest is the highest version that this handle has decoded.
	newest atomic.Pointer[shardmap.Snapshot]
	feed   shardmap.FollowedFeed

	life context.Context // ends with Close
	end  context.CancelFunc

	mu     sync.Mutex
	tokens map[uint64]string // elections of tokens
	closed bool
}

func (d *directory) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	d.end()
	d.feed.Stop()
	if err := d.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// ask runs a request that may be tried again, see the package's comment.
func (d *directory) ask(ctx context.Context, what string, request func(ctx context.Context) error) error {
	return d.tryFor(ctx, d.timeout, what, request)
}

func (d *directory) tryFor(ctx context.Context, timeout time.Duration, what string, request func(ctx context.Context) error) error {
	if err := d.over(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	for {
		attempt, stop := context.WithTimeout(limited, max(timeout/attemptsPerTimeout, 50*time.Millisecond))
		err := request(attempt)
		stop()
		if err == nil {
			return nil
		}
		if over := d.over(ctx); over != nil {
			return over
		}
		if !passing(err) {
			return d.problem(err, what)
		}
		select {
		case <-limited.Done():
			if over := d.over(ctx); over != nil {
				return over
			}
			return d.problem(err, what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// over is the error of a call whose context or directory has ended.
func (d *directory) over(ctx context.Context) error {
	if d.life.Err() != nil {
		return shardmap.Closed()
	}
	return ctx.Err()
}

// passing reports whether an error may be gone at the next attempt: a server
// that is away, an election among them, an attempt that took too long.
func passing(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	var known *sqlstate.Error
	if errors.As(err, &known) {
		return false
	}
	switch code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	case codes.Unauthenticated:
		return errors.Is(rpctypes.Error(err), rpctypes.ErrInvalidAuthToken) // the client gets another
	}
	return false
}

func code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// problem makes etcd's errors ones that people can act on.
func (d *directory) problem(err error, what string) error {
	var known *sqlstate.Error
	if errors.As(err, &known) || errors.Is(err, shardmap.ErrLeaseLost) {
		return err
	}
	text := status.Convert(err).Message()
	switch {
	case errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace):
		return sqlstate.Wrap(err, sqlstate.DiskFull, "the directory etcd %s has no space left: nothing was changed", d.where).
			WithHint("%s", makeSpace)
	case errors.Is(rpctypes.Error(err), rpctypes.ErrRequestTooLarge):
		return sqlstate.Wrap(err, sqlstate.ProgramLimitExceeded, "etcd %s takes smaller requests than this one: nothing was changed", d.where).
			WithHint("start etcd with --max-request-bytes of at least 1572864, its default")
	case errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied):
		return sqlstate.Wrap(err, sqlstate.InsufficientPrivilege, "etcd %s does not let this user %s keys below %s", d.where, what, d.root).
			WithHint("give the user's role access: etcdctl role grant-permission ROLE readwrite %s --prefix=true", d.root)
	case errors.Is(rpctypes.Error(err), rpctypes.ErrAuthFailed), errors.Is(rpctypes.Error(err), rpctypes.ErrUserEmpty),
		strings.Contains(text, "authentication failed"), strings.Contains(text, "user name is empty"):
		return sqlstate.Wrap(err, sqlstate.InvalidPassword, "etcd %s does not let this user in", d.where).
			WithHint("put the user and its password into the directory's URL: etcd://USER:PASSWORD@HOST:2379/PREFIX")
	}
	if text == "" || passing(err) && errors.Is(err, context.DeadlineExceeded) {
		text = "no answer"
	}
	e := sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the directory etcd %s cannot be reached: %s", d.where, text)
	e.Hint = "is etcd up, and does its network reach this machine? etcdctl --endpoints=" + d.where + " endpoint health"
	if strings.Contains(text, "tls:") || strings.Contains(text, "x509:") || strings.Contains(text, "certificate") {
		e.Hint = "check the parameters cacert, cert, key and server-name of the directory's URL"
	}
	return e
}

const makeSpace = "compact and defragment it (etcdctl compact, etcdctl defrag), or raise its --quota-backend-bytes, then etcdctl alarm disarm"

var _ shardmap.Watchful = (*directory)(nil)

// TakesWrites asks for etcd's alarms: after one it answers reads alone, until somebody disarms it.
func (d *directory) TakesWrites(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	list, err := d.client.AlarmList(ctx)
	if err != nil {
		return nil // it may not be ours to ask; what needs it says that it does not answer
	}
	for _, a := range list.Alarms {
		switch a.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			return sqlstate.New(sqlstate.DiskFull, "the directory etcd %s takes no writes: it has no space left (alarm NOSPACE)", d.where).
				WithDetail("Statements go on for as long as leases are renewed; moves, schema changes and new routers wait or fail.").WithHint("%s", makeSpace)
		case etcdserverpb.AlarmType_CORRUPT:
			return sqlstate.New(sqlstate.DataCorrupted, "the directory etcd %s takes no writes: a member's data is corrupt (alarm CORRUPT)", d.where).
				WithHint("replace that member (etcdctl alarm list, etcdctl member remove, etcdctl member add), then etcdctl alarm disarm")
		}
	}
	return nil
}

// unknown is the error of a write whose outcome nobody knows.
func unknown(err error, what string) error {
	e := sqlstate.Wrap(err, sqlstate.TransactionUnknown, "it is not known whether %s was stored in etcd", what).
		WithHint("look with \"cleave map history\" before running it again")
	e.Retry = sqlstate.RetryUnknown
	return e
}

// commit runs a transaction that may be tried again because it recognises its
// own doing, regardless of the caller's context. done reads the answer. An
// attempt whose answer is missing and that cannot be followed by one with an
// answer is unknown.
func (d *directory) commit(ctx context.Context, what string, txn func(clientv3.Txn) clientv3.Txn, done func(*clientv3.TxnResponse) error) error {
	if err := d.over(ctx); err != nil {
		return err
	}
	maybe := false
	var last *clientv3.TxnResponse
	err := d.tryFor(context.WithoutCancel(ctx), 2*d.timeout, "write", func(ctx context.Context) error {
		res, err := txn(d.client.Txn(ctx)).Commit()
		if err != nil {
			maybe = maybe || passing(err)
			return err
		}
		last = res
		return nil
	})
	if err != nil {
		if maybe {
			return unknown(err, what)
		}
		return err
	}
	return done(last)
}
