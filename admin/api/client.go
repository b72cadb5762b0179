package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// AnswerMax bounds an answer that the client reads, bytes.
const AnswerMax = 256 << 20

// Client calls the operations of a process over HTTP. It implements admin.API.
type Client struct {
	base  string
	token string
	http  *http.Client
	tls   *tls.Config
}

var _ admin.API = (*Client)(nil)

// NewClient returns a client of the process at address: host:port or an http URL.
// It does not connect. Fails with 22023 for an address that cannot be one.
func NewClient(address string) (*Client, error) {
	base := address
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || u.RawQuery != "" {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "%s is not the address of an admin API", printable(address)).
			WithHint("give host:port, such as --admin 127.0.0.1:6480")
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	transport := &http.Transport{
		TLSClientConfig:     settings,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 2,
		IdleConnTimeout:     30 * time.Second,
		TLSHandshakeTimeout: 5 * time.Second,
	}
	return &Client{base: strings.TrimSuffix(u.String(), "/"), tls: settings, http: &http.Client{
		Transport: transport,
		Timeout:   RequestMax + 15*time.Second,
		// The API never redirects; following one would send a password in an
		// AddShard request to another place.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// WithToken makes the client send the token that the process demands; see
// [Options]. Call it before the first request.
func (c *Client) WithToken(token string) { c.token = token }

// WithRoots makes the client trust the authorities in roots, and no others, when
// the address is an https one. Call it before the first request.
func (c *Client) WithRoots(roots *x509.CertPool) { c.tls.RootCAs = roots }

// WithoutVerification makes the client take any certificate. It is for questions
// whose answer is no secret, of a process on the same machine: nothing else may be
// asked with it, and no token sent. Call it before the first request.
func (c *Client) WithoutVerification() { c.tls.InsecureSkipVerify = true }

// Router returns the address of the process's router for PostgreSQL clients.
func (c *Client) Router(ctx context.Context) (string, error) {
	info, err := ask[struct {
		Listen string `json:"listen"`
	}](ctx, c, "router", nil)
	if err == nil && info.Listen == "" {
		err = sqlstate.New(sqlstate.ProtocolViolation, "the process at %s does not say where its router listens", c.base).
			WithHint("name the router with --url postgres://HOST:PORT/cleave")
	}
	return info.Listen, err
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c *Client) get(ctx context.Context, name string, query url.Values, out any) error {
	target := c.base + "/api/v1/" + name
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return fmt.Errorf("api: %w", err)
	}
	return c.do(req, false, out)
}

func (c *Client) post(ctx context.Context, name string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("api: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/api/v1/"+name, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("api: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	return c.do(req, true, out)
}

// stranger reports whether an error says that somebody answered, but not in
// HTTP: most often the router, whose port is easily taken for this one. Such a
// program has done nothing, so the outcome of a change is known.
func stranger(err error) bool { return err != nil && strings.Contains(err.Error(), "malformed HTTP") }

func (c *Client) notHTTP(err error) error {
	return sqlstate.Wrap(err, sqlstate.ProtocolViolation, "what answers at %s is no admin API", c.base).
		WithHint("is that the port for PostgreSQL clients? name that of the admin API with --admin host:port")
}

// handshake says why TLS with the process did not come about; nil if that is not
// what failed. The process has been told nothing then.
func (c *Client) handshake(err error) error {
	var untrusted *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &untrusted):
		return sqlstate.Wrap(err, sqlstate.InvalidAuthorization, "the certificate of the admin API at %s is not trusted", c.base).
			WithHint("name the authority that signed it: --admin-ca FILE")
	case errors.As(err, &plain), err != nil && strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return sqlstate.Wrap(err, sqlstate.ProtocolViolation, "what answers at %s speaks no TLS", c.base).
			WithHint("is it the port of the admin API? one without TLS is named with --admin http://host:port")
	}
	return nil
}

func (c *Client) do(req *http.Request, changes bool, out any) error {
	lost := func(err error) error {
		if ctx := req.Context(); ctx.Err() != nil {
			err = ctx.Err()
		}
		if e := c.handshake(err); e != nil {
			return e
		}
		if stranger(err) {
			return c.notHTTP(err)
		}
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" || !changes {
			return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the admin API at %s cannot be reached", c.base).
				WithHint("start it with cleave up, or name another with --admin host:port")
		}
		return sqlstate.Wrap(err, sqlstate.TransactionUnknown, "the admin API at %s was lost during the operation: its outcome is unknown", c.base).
			WithHint("look with: cleave map history")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return lost(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, AnswerMax+1))
	if err != nil {
		return lost(err)
	}
	if len(body) > AnswerMax {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "the answer is larger than %d bytes", AnswerMax)
	}
	if res.StatusCode != http.StatusOK {
		return notOK(c.base, res.Status, body)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return sqlstate.Wrap(err, sqlstate.ProtocolViolation, "%s answered something else than asked", c.base).
			WithHint("is it of the same version? see cleave version")
	}
	return nil
}

// notOK is the error that an answer tells.
func notOK(base, status string, body []byte) error {
	if bytes.Contains(body, []byte("HTTP request to an HTTPS server")) {
		return sqlstate.New(sqlstate.ProtocolViolation, "the admin API at %s speaks TLS only", base).
			WithHint("name it with --admin https://host:port, and the authority of its certificate with --admin-ca")
	}
	var e ErrorBody
	if json.Unmarshal(body, &e) != nil || e.Code == "" {
		return sqlstate.New(sqlstate.ProtocolViolation, "%s answered %s", base, status).
			WithHint("is it the admin API of Cleave? see --admin")
	}
	return &sqlstate.Error{ID: sqlstate.ID(e.ID), Code: sqlstate.Code(e.Code), Message: e.Message, Detail: e.Detail, Hint: e.Hint, Shard: e.Shard}
}

func ask[T any](ctx context.Context, c *Client, name string, query url.Values) (T, error) {
	var out T
	err := c.get(ctx, name, query, &out)
	return out, err
}

func tell[T any](ctx context.Context, c *Client, name string, in any) (*T, error) {
	out := new(T)
	if err := c.post(ctx, name, in, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Health asks /healthz. It returns an error only if nothing answered.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/healthz", nil)
	if err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	res, err := c.http.Do(req)
	if err != nil {
		if stranger(err) {
			return nil, c.notHTTP(err)
		}
		return nil, sqlstate.Wrap(err, sqlstate.CannotConnectNow, "nothing answers at %s", c.base).
			WithHint("start it with cleave up, or name another with --admin host:port")
	}
	defer res.Body.Close()
	var h Health
	if err := json.NewDecoder(io.LimitReader(res.Body, BodyMax)).Decode(&h); err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.ProtocolViolation, "%s is not the admin API of Cleave", c.base).WithHint("see --admin")
	}
	return &h, nil
}

// Status implements admin.API.
func (c *Client) Status(ctx context.Context) (*admin.Status, error) {
	return ask[*admin.Status](ctx, c, "status", nil)
}

// Shards implements admin.API.
func (c *Client) Shards(ctx context.Context) ([]admin.ShardInfo, error) {
	return ask[[]admin.ShardInfo](ctx, c, "shards", nil)
}

// Keyspaces implements admin.API.
func (c *Client) Keyspaces(ctx context.Context) ([]admin.KeyspaceInfo, error) {
	return ask[[]admin.KeyspaceInfo](ctx, c, "keyspaces", nil)
}

// Tables implements admin.API.
func (c *Client) Tables(ctx context.Context) ([]admin.TableInfo, error) {
	return ask[[]admin.TableInfo](ctx, c, "tables", nil)
}

// Routers implements admin.API.
func (c *Client) Routers(ctx context.Context) ([]admin.RouterInfo, error) {
	return ask[[]admin.RouterInfo](ctx, c, "routers", nil)
}

func byKeyspace(name string) url.Values {
	if name == "" {
		return nil
	}
	return url.Values{"keyspace": {name}}
}

// Ranges implements admin.API.
func (c *Client) Ranges(ctx context.Context, keyspace string) ([]admin.RangeInfo, error) {
	return ask[[]admin.RangeInfo](ctx, c, "ranges", byKeyspace(keyspace))
}

// Heat implements admin.API.
func (c *Client) Heat(ctx context.Context, req admin.HeatRequest) (*admin.HeatInfo, error) {
	q := byKeyspace(req.Keyspace)
	if req.Limit > 0 {
		if q == nil {
			q = url.Values{}
		}
		q.Set("limit", strconv.Itoa(req.Limit))
	}
	return ask[*admin.HeatInfo](ctx, c, "heat", q)
}

// Constraints implements admin.API.
func (c *Client) Constraints(ctx context.Context) ([]admin.ConstraintInfo, error) {
	return ask[[]admin.ConstraintInfo](ctx, c, "constraints", nil)
}

// AddConstraint implements admin.API.
func (c *Client) AddConstraint(ctx context.Context, req admin.ConstraintRequest) (*admin.Result, error) {
	return tell[admin.Result](ctx, c, "constraint_add", req)
}

// RemoveConstraint implements admin.API.
func (c *Client) RemoveConstraint(ctx context.Context, req admin.ConstraintRequest) (*admin.Result, error) {
	return tell[admin.Result](ctx, c, "constraint_remove", req)
}

// Pins implements admin.API.
func (c *Client) Pins(ctx context.Context, keyspace string) ([]admin.PinInfo, error) {
	return ask[[]admin.PinInfo](ctx, c, "pins", byKeyspace(keyspace))
}

func numbers(pairs map[string]uint64) url.Values {
	q := url.Values{}
	for name, n := range pairs {
		if n != 0 {
			q.Set(name, strconv.FormatUint(n, 10))
		}
	}
	return q
}

// Map implements admin.API.
func (c *Client) Map(ctx context.Context, version uint64) (*shardmap.State, error) {
	return ask[*shardmap.State](ctx, c, "map", numbers(map[string]uint64{"version": version}))
}

// History implements admin.API.
func (c *Client) History(ctx context.Context, req admin.HistoryRequest) ([]shardmap.Entry, error) {
	q := numbers(map[string]uint64{"after": req.After, "limit": uint64(max(req.Limit, 0))})
	if req.Last {
		q.Set("last", "true")
	}
	return ask[[]shardmap.Entry](ctx, c, "history", q)
}

// Diff implements admin.API.
func (c *Client) Diff(ctx context.Context, a, b uint64) ([]shardmap.Difference, error) {
	return ask[[]shardmap.Difference](ctx, c, "diff", numbers(map[string]uint64{"a": a, "b": b}))
}

// ShardOf implements admin.API.
func (c *Client) ShardOf(ctx context.Context, req admin.ShardOfRequest) (*admin.ShardOfResult, error) {
	return ask[*admin.ShardOfResult](ctx, c, "shard_of", url.Values{"keyspace": {req.Keyspace}, "key": req.Key})
}

// Doctor implements admin.API.
func (c *Client) Doctor(ctx context.Context, req admin.DoctorRequest) ([]admin.Finding, error) {
	out, err := tell[[]admin.Finding](ctx, c, "doctor", req)
	if err != nil {
		return nil, err
	}
	return *out, nil
}

// Route asks where a statement would go, as EXPLAIN (ROUTE) prints it.
func (c *Client) Route(ctx context.Context, sql string) ([]string, error) {
	out, err := tell[RouteResult](ctx, c, "route", RouteRequest{SQL: sql})
	if err != nil {
		return nil, err
	}
	return out.Lines, nil
}

// DropKeyspace implements admin.API.
func (c *Client) DropKeyspace(ctx context.Context, req admin.DropKeyspaceRequest) (*admin.Result, error) {
	return tell[admin.Result](ctx, c, "drop_keyspace", req)
}

// CreateKeyspace implements admin.API.
func (c *Client) CreateKeyspace(ctx context.Context, req admin.CreateKeyspaceRequest) (*admin.Result, error) {
	return tell[admin.Result](ctx, c, "create_keyspace", req)
}

// MoveDefault implements admin.API.
func (c *Client) MoveDefault(ctx context.Context, req admin.MoveDefaultRequest) (*admin.Result, error) {
	return tell[admin.Result](ctx, c, "shard_default", req)
}

// Distribute implements admin.API.
func (c *Client) Distribute(ctx context.Context, req admin.DistributeRequest) (*admin.Result, error) {
	return tell[admin.Result](ctx, c, "distribute", req)
}

// Pin implements admin.API.
func (c *Client) Pin(ctx context.Context, req admin.PinRequest) (*admin.Result, error) {
	return tell[admin.Result](ctx, c, "pin", req)
}

// Declare implements admin.API.
func (c *Client) Declare(ctx context.Context, req admin.DeclareRequest) (*admin.Result, error) {
	return tell[admin.Result](ctx, c, "declare", req)
}

// Unpin implements admin.API.
func (c *Client) Unpin(ctx context.Context, req admin.UnpinRequest) (*admin.Result, error) {
	return tell[admin.Result](ctx, c, "unpin", req)
}

// AddShard implements admin.API.
func (c *Client) AddShard(ctx context.Context, req admin.AddShardRequest) (*admin.AddShardResult, error) {
	return tell[admin.AddShardResult](ctx, c, "shard_add", req)
}

// AddReplica implements admin.API.
func (c *Client) AddReplica(ctx context.Context, req admin.ReplicaRequest) (*admin.Result, error) {
	return tell[admin.Result](ctx, c, "replica_add", req)
}

// RemoveReplica implements admin.API.
func (c *Client) RemoveReplica(ctx context.Context, req admin.ReplicaRequest) (*admin.Result, error) {
	return tell[admin.Result](ctx, c, "replica_remove", req)
}

// SetShard implements admin.API.
func (c *Client) SetShard(ctx context.Context, req admin.SetShardRequest) (*admin.Result, error) {
	return tell[admin.Result](ctx, c, "shard_set", req)
}

// RemoveShard implements admin.API.
func (c *Client) RemoveShard(ctx context.Context, req admin.RemoveShardRequest) (*admin.Result, error) {
	return tell[admin.Result](ctx, c, "shard_remove", req)
}

// Users implements admin.API.
func (c *Client) Users(ctx context.Context) ([]admin.UserInfo, error) {
	return ask[[]admin.UserInfo](ctx, c, "users", nil)
}

// AddUser implements admin.API.
func (c *Client) AddUser(ctx context.Context, req admin.UserRequest) (*admin.UserInfo, error) {
	return tell[admin.UserInfo](ctx, c, "user_add", req)
}

// ChangeUser implements admin.API.
func (c *Client) ChangeUser(ctx context.Context, req admin.UserRequest) (*admin.UserInfo, error) {
	return tell[admin.UserInfo](ctx, c, "user_change", req)
}

// RemoveUser implements admin.API.
func (c *Client) RemoveUser(ctx context.Context, req admin.UserRequest) (*admin.UserInfo, error) {
	return tell[admin.UserInfo](ctx, c, "user_remove", req)
}

// Sessions implements admin.API.
func (c *Client) Sessions(ctx context.Context, req admin.SessionsRequest) (*admin.SessionsInfo, error) {
	q := url.Values{}
	if req.Router != "" {
		q.Set("router", req.Router)
	}
	return ask[*admin.SessionsInfo](ctx, c, "sessions", q)
}

// CancelSession implements admin.API.
func (c *Client) CancelSession(ctx context.Context, req admin.SessionRequest) (*admin.SessionResult, error) {
	return tell[admin.SessionResult](ctx, c, "session_cancel", req)
}

// TerminateSession implements admin.API.
func (c *Client) TerminateSession(ctx context.Context, req admin.SessionRequest) (*admin.SessionResult, error) {
	return tell[admin.SessionResult](ctx, c, "session_terminate", req)
}
