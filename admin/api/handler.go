package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/sqlstate"
)

// The bounds of one request.
const (
	// BodyMax bounds a request's body, bytes.
	BodyMax = 1 << 20
	// RequestMax bounds the time of one operation.
	RequestMax = 2 * time.Minute
	// ConcurrentMax bounds the operations at work; more are refused with 53300.
	ConcurrentMax = 32
)

// Options are what the handler serves.
type Options struct {
	API admin.API
	// Ready reports why the process cannot serve, nil if it can. nil: always ready.
	Ready func(ctx context.Context) error
	// Metrics answers /metrics; nil is 404.
	Metrics http.Handler
	// Route explains where a statement goes, one line each; nil refuses.
	Route func(ctx context.Context, sql string) ([]string, error)
	// Hosts are names allowed in the Host header besides IP addresses and
	// localhost.
	Hosts []string
	// Token is demanded of every request but for health and metrics, as
	// "Authorization: Bearer TOKEN". Without one only clients of this machine and
	// of the networks in Trusted are obeyed.
	Token string
	// Local says that Token is one for the commands on the machine of the process:
	// clients of the networks in Trusted need none.
	Local   bool
	Trusted []netip.Prefix
	// Timeout bounds one operation; 0 is RequestMax.
	Timeout time.Duration
}

// RouteRequest asks where a statement would go.
type RouteRequest struct {
	SQL string `json:"sql"`
}

// RouteResult is the explanation, one line each.
type RouteResult struct {
	Lines []string `json:"lines"`
}

// Health is the answer of /healthz.
type Health struct {
	Live   bool   `json:"live"`
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
}

// ErrorBody is the JSON form of a failure.
type ErrorBody struct {
	ID      string `json:"id,omitempty"` // of a refusal
	Code    string `json:"code"`
	Message string `json:"message"`
	Detail  string `json:"detail,omitempty"`
	Hint    string `json:"hint,omitempty"`
	Shard   string `json:"shard,omitempty"`
}

type handler struct {
	opts  Options
	hosts map[string]bool
	slots chan struct{}
}

// NewHandler returns the handler of all routes in the package's description.
func NewHandler(opts Options) http.Handler {
	if opts.Timeout <= 0 {
		opts.Timeout = RequestMax
	}
	h := &handler{opts: opts, hosts: map[string]bool{"localhost": true}, slots: make(chan struct{}, ConcurrentMax)}
	for _, name := range opts.Hosts {
		h.hosts[strings.ToLower(name)] = true
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", h.get(h.ready))
	live := h.get(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, Health{Live: true})
	})
	mux.HandleFunc("/healthz/live", live)
	mux.HandleFunc("/livez", live)
	mux.HandleFunc("/readyz", h.get(h.ready))
	if opts.Metrics != nil {
		mux.HandleFunc("/metrics", h.get(opts.Metrics.ServeHTTP))
	}
	a := opts.API
	query(h, mux, "status", func(ctx context.Context, _ url.Values) (any, error) { return a.Status(ctx) })
	query(h, mux, "shards", func(ctx context.Context, _ url.Values) (any, error) { return list(a.Shards(ctx)) })
	query(h, mux, "keyspaces", func(ctx context.Context, _ url.Values) (any, error) { return list(a.Keyspaces(ctx)) })
	query(h, mux, "routers", func(ctx context.Context, _ url.Values) (any, error) { return list(a.Routers(ctx)) })
	query(h, mux, "users", func(ctx context.Context, _ url.Values) (any, error) { return list(a.Users(ctx)) })
	query(h, mux, "tables", func(ctx context.Context, _ url.Values) (any, error) { return list(a.Tables(ctx)) })
	query(h, mux, "ranges", func(ctx context.Context, q url.Values) (any, error) {
		return list(a.Ranges(ctx, q.Get("keyspace")))
	}, "keyspace")
	query(h, mux, "pins", func(ctx context.Context, q url.Values) (any, error) {
		return list(a.Pins(ctx, q.Get("keyspace")))
	}, "keyspace")
	query(h, mux, "heat", func(ctx context.Context, q url.Values) (any, error) {
		limit, err := number(q, "limit")
		if err != nil {
			return nil, err
		}
		return a.Heat(ctx, admin.HeatRequest{Keyspace: q.Get("keyspace"), Limit: int(min(limit, 1<<20))})
	}, "keyspace", "limit")
	query(h, mux, "map", func(ctx context.Context, q url.Values) (any, error) {
		v, err := number(q, "version")
		if err != nil {
			return nil, err
		}
		return a.Map(ctx, v)
	}, "version")
	query(h, mux, "history", func(ctx context.Context, q url.Values) (any, error) {
		after, err := number(q, "after")
		if err != nil {
			return nil, err
		}
		limit, err := number(q, "limit")
		if err != nil {
			return nil, err
		}
		last := false
		if text := q.Get("last"); text != "" {
			if last, err = strconv.ParseBool(text); err != nil {
				return nil, sqlstate.New(sqlstate.InvalidParameterValue, "last must be true or false, not %q", text)
			}
		}
		return list(a.History(ctx, admin.HistoryRequest{After: after, Limit: int(min(limit, 1<<20)), Last: last}))
	}, "after", "limit", "last")
	query(h, mux, "diff", func(ctx context.Context, q url.Values) (any, error) {
		from, err := number(q, "a")
		if err != nil {
			return nil, err
		}
		to, err := number(q, "b")
		if err != nil {
			return nil, err
		}
		return list(a.Diff(ctx, from, to))
	}, "a", "b")
	query(h, mux, "shard_of", func(ctx context.Context, q url.Values) (any, error) {
		return a.ShardOf(ctx, admin.ShardOfRequest{Keyspace: q.Get("keyspace"), Key: q["key"]})
	}, "keyspace", "key")

	change(h, mux, "create_keyspace", a.CreateKeyspace)
	change(h, mux, "drop_keyspace", a.DropKeyspace)
	change(h, mux, "distribute", a.Distribute)
	change(h, mux, "declare", a.Declare)
	query(h, mux, "constraints", func(ctx context.Context, _ url.Values) (any, error) { return list(a.Constraints(ctx)) })
	change(h, mux, "constraint_add", a.AddConstraint)
	change(h, mux, "constraint_remove", a.RemoveConstraint)
	change(h, mux, "pin", a.Pin)
	change(h, mux, "unpin", a.Unpin)
	change(h, mux, "shard_add", a.AddShard)
	change(h, mux, "shard_remove", a.RemoveShard)
	change(h, mux, "shard_default", a.MoveDefault)
	change(h, mux, "shard_set", a.SetShard)
	change(h, mux, "replica_add", a.AddReplica)
	change(h, mux, "replica_remove", a.RemoveReplica)
	query(h, mux, "moves", func(ctx context.Context, q url.Values) (any, error) {
		return list(a.Moves(ctx, q.Get("id")))
	}, "id")
	change(h, mux, "verify", func(ctx context.Context, req admin.VerifyRequest) ([]admin.VerifyResult, error) {
		return list(a.Verify(ctx, req))
	})
	change(h, mux, "verify_pieces", a.VerifyPieces)
	change(h, mux, "move", a.Move)
	change(h, mux, "split", a.Split)
	change(h, mux, "merge", a.Merge)
	change(h, mux, "shard_drain", a.Drain)
	change(h, mux, "spread", a.Spread)
	change(h, mux, "plan", a.Plan)
	query(h, mux, "plan_show", func(ctx context.Context, q url.Values) (any, error) { return a.ShowPlan(ctx, q.Get("id")) }, "id")
	change(h, mux, "plan_approve", a.Approve)
	query(h, mux, "policy", func(ctx context.Context, _ url.Values) (any, error) { return a.Policy(ctx) })
	change(h, mux, "policy_set", a.SetPolicy)
	change(h, mux, "pause", a.Pause)
	change(h, mux, "resume", a.Resume)
	change(h, mux, "cancel", a.Cancel)
	change(h, mux, "reverse", a.Reverse)
	change(h, mux, "rollback", a.Reverse) // its name of earlier versions
	change(h, mux, "complete", a.Complete)
	change(h, mux, "finish", a.Complete) // its name of earlier versions
	change(h, mux, "user_add", a.AddUser)
	change(h, mux, "user_change", a.ChangeUser)
	change(h, mux, "user_remove", a.RemoveUser)
	query(h, mux, "sessions", func(ctx context.Context, q url.Values) (any, error) {
		return a.Sessions(ctx, admin.SessionsRequest{Router: q.Get("router")})
	}, "router")
	change(h, mux, "session_cancel", a.CancelSession)
	change(h, mux, "session_terminate", a.TerminateSession)
	change(h, mux, "doctor", func(ctx context.Context, req admin.DoctorRequest) ([]admin.Finding, error) {
		return list(a.Doctor(ctx, req))
	})
	change(h, mux, "route", func(ctx context.Context, req RouteRequest) (*RouteResult, error) {
		if opts.Route == nil {
			return nil, sqlstate.Refusal("CLV-1403", "this process routes no statements").
				WithHint(`Ask a router: cleave sql "EXPLAIN (ROUTE) ...".`)
		}
		lines, err := opts.Route(ctx, req.SQL)
		if err != nil {
			return nil, err
		}
		return &RouteResult{Lines: lines}, nil
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, sqlstate.New(sqlstate.UndefinedObject, "there is nothing at %s", printable(r.URL.Path)).
			WithHint("the operations are under /api/v1/"))
	})
	return h.guard(mux)
}

// NewServer returns an http.Server for the handler with bounds on headers, time
// and idle connections. The caller listens: on a loopback address unless asked otherwise.
func NewServer(opts Options) *http.Server {
	timeout := opts.Timeout
	if timeout <= 0 {
		timeout = RequestMax
	}
	return &http.Server{
		Handler:           NewHandler(opts),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      timeout + 10*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
	}
}

// guard refuses what a web page of another site could have sent.
func (h *handler) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Cache-Control", "no-store")
		// Health is asked for by load balancers under any name, and tells nothing.
		health := strings.HasPrefix(r.URL.Path, "/healthz") || r.URL.Path == "/livez" || r.URL.Path == "/readyz"
		if !health && !h.allowed(r.Host) {
			writeError(w, http.StatusForbidden, sqlstate.New(sqlstate.InsufficientPrivilege, "the host name %s is not one of this server's", printable(r.Host)).
				WithHint("use the address (such as 127.0.0.1), or add the name to the allowed hosts"))
			return
		}
		if foreign(r) {
			writeError(w, http.StatusForbidden, sqlstate.New(sqlstate.InsufficientPrivilege, "requests from web pages of other sites are refused"))
			return
		}
		if !health && r.URL.Path != "/metrics" && !h.known(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="cleave"`)
			hint := "ask from the machine of the process, or give it a token: see the setting admin-token-file"
			if h.opts.Token != "" {
				hint = "name the file with the token: --admin-token-file"
			}
			if h.opts.Local {
				hint = "run the command as the user of the process, or as root, on its machine, where its token is found; for others start it with --admin-token-file"
			}
			writeError(w, http.StatusUnauthorized, sqlstate.New(sqlstate.InvalidAuthorization, "the admin API does not know you").WithHint("%s", hint))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// known reports whether the caller may use the API.
func (h *handler) known(r *http.Request) bool {
	if want := h.opts.Token; want != "" {
		kind, got, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		// Of hashes, so that the time tells nothing of the length either.
		a, b := sha256.Sum256([]byte(strings.TrimSpace(got))), sha256.Sum256([]byte(want))
		if subtle.ConstantTimeCompare(a[:], b[:]) == 1 && strings.EqualFold(kind, "Bearer") {
			return true
		}
		if !h.opts.Local {
			return false
		}
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	addr := from.Addr().Unmap()
	return h.opts.Token == "" && addr.IsLoopback() || slices.ContainsFunc(h.opts.Trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// allowed reports whether a Host header cannot be a foreign name that was made to point
// here. An address is safe: a page has it in its own URL only if it came from here.
func (h *handler) allowed(host string) bool {
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	if h.hosts[name] {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// foreign reports whether a browser says that another site sent the request.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return true
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return true
		}
	}
	return false
}

func (h *handler) get(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			wrongMethod(w, r, "GET, HEAD")
			return
		}
		next(w, r)
	}
}

func (h *handler) ready(w http.ResponseWriter, r *http.Request) {
	if h.opts.Ready != nil {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		if err := h.opts.Ready(ctx); err != nil {
			writeJSON(w, http.StatusServiceUnavailable, Health{Live: true, Reason: sqlstate.As(err).Message})
			return
		}
	}
	writeJSON(w, http.StatusOK, Health{Live: true, Ready: true})
}

// query registers an operation that changes nothing. Parameters that it does not
// know are refused, so that a misspelt one is not silently without effect.
func query(h *handler, mux *http.ServeMux, name string, run func(context.Context, url.Values) (any, error), known ...string) {
	mux.HandleFunc("/api/v1/"+name, h.get(func(w http.ResponseWriter, r *http.Request) {
		values, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			writeError(w, http.StatusBadRequest, sqlstate.New(sqlstate.InvalidParameterValue, "the query string is malformed"))
			return
		}
		for key := range values {
			if !contains(known, key) {
				writeError(w, http.StatusBadRequest, sqlstate.New(sqlstate.InvalidParameterValue, "%s has no parameter %s", name, printable(key)).
					WithHint("known: %s", strings.Join(known, ", ")))
				return
			}
		}
		h.run(w, r, func(ctx context.Context) (any, error) { return run(ctx, values) })
	}))
}

// change registers an operation that may change something.
func change[Req, Res any](h *handler, mux *http.ServeMux, name string, run func(context.Context, Req) (Res, error)) {
	mux.HandleFunc("/api/v1/"+name, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			wrongMethod(w, r, "POST")
			return
		}
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			writeError(w, http.StatusUnsupportedMediaType, sqlstate.New(sqlstate.ProtocolViolation, "%s needs Content-Type: application/json", name))
			return
		}
		var req Req
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, BodyMax))
		dec.DisallowUnknownFields()
		err := dec.Decode(&req)
		if err == nil {
			if _, more := dec.Token(); !errors.Is(more, io.EOF) {
				err = errors.New("something follows the JSON value")
			}
		}
		if err != nil {
			status := http.StatusBadRequest
			if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
				status = http.StatusRequestEntityTooLarge
			}
			writeError(w, status, sqlstate.New(sqlstate.InvalidTextRepresentation, "the body of %s is not what it should be", name).WithDetail("%v", err))
			return
		}
		h.run(w, r, func(ctx context.Context) (any, error) { return run(ctx, req) })
	})
}

func (h *handler) run(w http.ResponseWriter, r *http.Request, op func(context.Context) (any, error)) {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		fail(w, sqlstate.New(sqlstate.TooManyConnections, "%d operations are at work already", ConcurrentMax).WithHint("try again in a moment"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
	defer cancel()
	res, err := op(ctx)
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, res)
}

func wrongMethod(w http.ResponseWriter, r *http.Request, allow string) {
	w.Header().Set("Allow", allow)
	writeError(w, http.StatusMethodNotAllowed, sqlstate.Refusal("CLV-1404", "%s does not answer %s", printable(r.URL.Path), printable(r.Method)).
		WithHint("Use %s.", allow))
}

func fail(w http.ResponseWriter, err error) {
	if _, ok := errors.AsType[*sqlstate.Error](err); !ok {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			err = sqlstate.Wrap(err, sqlstate.QueryCanceled, "the operation took too long")
		case errors.Is(err, context.Canceled):
			err = sqlstate.Wrap(err, sqlstate.QueryCanceled, "the caller went away")
		}
	}
	writeError(w, statusOf(sqlstate.CodeOf(err)), err)
}

// statusOf is the HTTP status of an SQLSTATE.
func statusOf(code sqlstate.Code) int {
	switch code {
	case sqlstate.UndefinedObject, sqlstate.UndefinedTable, sqlstate.InvalidSchemaName:
		return http.StatusNotFound
	case sqlstate.InsufficientPrivilege:
		return http.StatusForbidden
	case sqlstate.FeatureNotSupported:
		return http.StatusUnprocessableEntity
	case sqlstate.SerializationFailure, sqlstate.DuplicateObject, sqlstate.DuplicateTable, sqlstate.ObjectInUse,
		sqlstate.ObjectNotInState, sqlstate.LockNotAvailable, sqlstate.DependentObjects:
		return http.StatusConflict
	case sqlstate.CannotConnectNow, sqlstate.ConnectionFailure, sqlstate.AdminShutdown:
		return http.StatusServiceUnavailable
	case sqlstate.QueryCanceled:
		return http.StatusGatewayTimeout
	}
	if len(code) < 2 {
		return http.StatusInternalServerError
	}
	// By class (PostgreSQL's errcodes.txt): what the caller can mend is no 5xx.
	switch code[:2] {
	case "08", "53", "57":
		return http.StatusServiceUnavailable
	case "25", "40", "55":
		return http.StatusConflict
	case "0A":
		return http.StatusUnprocessableEntity
	case "28":
		return http.StatusForbidden
	case "F0", "58", "XX", "ZC":
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

func writeError(w http.ResponseWriter, status int, err error) {
	e := sqlstate.As(err)
	writeJSON(w, status, ErrorBody{ID: string(e.ID), Code: string(e.Code), Message: e.Message, Detail: e.Detail, Hint: e.Hint, Shard: e.Shard})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"code":"XX000","message":"the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The caller may be gone; there is nobody left to tell.
	_, _ = w.Write(append(body, '\n'))
}

// list makes an empty answer [] and not null.
func list[T any](items []T, err error) ([]T, error) {
	if items == nil {
		items = []T{}
	}
	return items, err
}

func number(q url.Values, name string) (uint64, error) {
	text := q.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, sqlstate.New(sqlstate.InvalidParameterValue, "%s must be a number from 0, not %s", name, printable(text))
	}
	return n, nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// printable quotes and bounds what a caller sent, for messages.
func printable(s string) string {
	if len(s) > 100 {
		s = s[:100] + "..."
	}
	return strconv.Quote(s)
}
