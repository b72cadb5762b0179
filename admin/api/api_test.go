package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/sqlstate"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// start serves the operations of a real cluster and returns its client.
func start(t *testing.T, shards int) (*Client, *httptest.Server) {
	t.Helper()
	dir := memory.New()
	ops := admin.New(admin.Options{Directory: dir, Drivers: []engine.Driver{postgres.Driver{}}, Software: "test"})
	var req admin.BootstrapRequest
	for i := range shards {
		req.Shards = append(req.Shards, admin.BootstrapShard{Name: "shard-" + string(rune('0'+i)), URL: pgtest.Database(t)})
	}
	if _, err := ops.Bootstrap(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(NewHandler(Options{
		API:     ops,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "cleave_up 1\n") }),
		Hosts:   []string{"cleave.example"},
		Route:   func(_ context.Context, sql string) ([]string, error) { return []string{"one shard", sql}, nil },
	}))
	c, err := NewClient(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		srv.Close()
		_ = ops.Close()
		_ = dir.Close()
	})
	return c, srv
}

// TestClientCallsEveryOperation drives each operation through HTTP.
func TestClientCallsEveryOperation(t *testing.T) {
	c, _ := start(t, 2)
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	h, err := c.Health(ctx)
	must(err)
	if !h.Ready {
		t.Fatal("not ready")
	}
	res, err := c.CreateKeyspace(ctx, admin.CreateKeyspaceRequest{Meta: admin.Meta{By: "bob@host", Why: "try"}, Name: "k", Strategy: "hash", KeyTypes: []string{"bigint"}})
	must(err)
	if !res.Done || res.Version != 2 {
		t.Fatalf("%+v", res)
	}
	_, err = c.CreateKeyspace(ctx, admin.CreateKeyspaceRequest{Name: "k", Strategy: "hash", KeyTypes: []string{"bigint"}})
	if sqlstate.CodeOf(err) != sqlstate.DuplicateObject || sqlstate.As(err).Hint == "" {
		t.Fatal(err)
	}
	st, err := c.Status(ctx)
	must(err)
	if st.Version != 2 || st.Keyspaces != 1 || st.Software != "test" {
		t.Fatalf("%+v", st)
	}
	of, err := c.ShardOf(ctx, admin.ShardOfRequest{Keyspace: "k", Key: []string{"1"}})
	must(err)
	if of.Hash == nil || of.Shard == "" || of.Range == "" {
		t.Fatalf("%+v", of)
	}
	other := "shard-0"
	if of.Shard == other {
		other = "shard-1"
	}
	_, err = c.Pin(ctx, admin.PinRequest{Keyspace: "k", Key: []string{"1"}, Shard: other})
	must(err)
	pins, err := c.Pins(ctx, "k")
	must(err)
	if len(pins) != 1 || pins[0].Shard != other {
		t.Fatalf("%+v", pins)
	}
	_, err = c.Unpin(ctx, admin.UnpinRequest{Keyspace: "k", Key: []string{"1"}})
	must(err)
	shards, err := c.Shards(ctx)
	must(err)
	if len(shards) != 2 || shards[0].Health != admin.Up {
		t.Fatalf("%+v", shards)
	}
	ranges, err := c.Ranges(ctx, "k")
	must(err)
	if len(ranges) != 8 {
		t.Fatalf("%+v", ranges)
	}
	ks, err := c.Keyspaces(ctx)
	must(err)
	tables, err := c.Tables(ctx)
	must(err)
	if len(ks) != 1 || tables == nil || len(tables) != 0 {
		t.Fatalf("%+v %+v", ks, tables)
	}
	m, err := c.Map(ctx, 1)
	must(err)
	if m.Version != 1 || len(m.Keyspaces) != 0 {
		t.Fatalf("%+v", m)
	}
	now, err := c.Map(ctx, 0)
	must(err)
	if now.Version != 4 || now.Keyspaces[0].Types[0].String() != "bigint" {
		t.Fatalf("%+v", now)
	}
	hist, err := c.History(ctx, admin.HistoryRequest{After: 1, Limit: 1})
	must(err)
	if len(hist) != 1 || hist[0].By != "bob@host" || hist[0].Why != "try" {
		t.Fatalf("%+v", hist)
	}
	hist, err = c.History(ctx, admin.HistoryRequest{Limit: 1, Last: true})
	must(err)
	if len(hist) != 1 || hist[0].Op != "unpin" {
		t.Fatalf("%+v", hist)
	}
	diff, err := c.Diff(ctx, 1, 2)
	must(err)
	if len(diff) == 0 {
		t.Fatal("no difference")
	}
	url := pgtest.Database(t)
	add, err := c.AddShard(ctx, admin.AddShardRequest{Name: "extra", URL: url, Labels: map[string]string{"a": "b"}})
	must(err)
	if !add.Done || add.ServerVersion == "" || len(add.Findings) == 0 {
		t.Fatalf("%+v", add)
	}
	_, err = c.RemoveShard(ctx, admin.RemoveShardRequest{Name: "shard-1"})
	if sqlstate.CodeOf(err) != sqlstate.ObjectInUse {
		t.Fatal(err)
	}
	_, err = c.RemoveShard(ctx, admin.RemoveShardRequest{Name: "extra"})
	must(err)
	_, err = c.Distribute(ctx, admin.DistributeRequest{Table: "nope", ShardKey: []string{"a"}})
	if sqlstate.CodeOf(err) != sqlstate.UndefinedTable {
		t.Fatal(err)
	}
	found, err := c.Doctor(ctx, admin.DoctorRequest{})
	must(err)
	if len(found) < 3 || found[0].Level != admin.LevelOK {
		t.Fatalf("%+v", found)
	}
	lines, err := c.Route(ctx, "SELECT 1")
	must(err)
	if !reflect.DeepEqual(lines, []string{"one shard", "SELECT 1"}) {
		t.Fatal(lines)
	}
}

func TestRefusals(t *testing.T) {
	_, srv := start(t, 1)
	good := `{"name":"x","strategy":"hash","key_types":["bigint"],"dry_run":true}`
	type call struct {
		name, method, path, body string
		set                      func(*http.Request)
		status                   int
		code                     string
	}
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == "Host" {
					r.Host = pairs[i+1]
					continue
				}
				r.Header.Set(pairs[i], pairs[i+1])
			}
		}
	}
	host := strings.TrimPrefix(srv.URL, "http://")
	for _, c := range []call{
		{"works", "POST", "/api/v1/create_keyspace", good, nil, 200, ""},
		{"same origin", "POST", "/api/v1/create_keyspace", good, header("Origin", "http://"+host, "Sec-Fetch-Site", "same-origin"), 200, ""},
		{"allowed name", "GET", "/api/v1/status", "", header("Host", "Cleave.example:80"), 200, ""},
		{"localhost", "GET", "/api/v1/status", "", header("Host", "localhost:1"), 200, ""},
		{"IPv6", "GET", "/api/v1/status", "", header("Host", "[::1]:6480"), 200, ""},
		{"health under any name", "GET", "/healthz", "", header("Host", "lb.example"), 200, ""},
		{"rebinding", "GET", "/api/v1/status", "", header("Host", "evil.example"), 403, "42501"},
		{"rebinding of metrics", "GET", "/metrics", "", header("Host", "evil.example"), 403, "42501"},
		{"another origin", "POST", "/api/v1/create_keyspace", good, header("Origin", "https://evil.example"), 403, "42501"},
		{"null origin", "POST", "/api/v1/create_keyspace", good, header("Origin", "null"), 403, "42501"},
		{"another port", "POST", "/api/v1/create_keyspace", good, header("Origin", "http://127.0.0.1:1"), 403, "42501"},
		{"cross-site", "GET", "/api/v1/map", "", header("Sec-Fetch-Site", "cross-site"), 403, "42501"},
		{"preflight", "OPTIONS", "/api/v1/create_keyspace", "", header("Origin", "https://evil.example"), 403, "42501"},
		{"form", "POST", "/api/v1/create_keyspace", good, header("Content-Type", "text/plain"), 415, "08P01"},
		{"no type", "POST", "/api/v1/create_keyspace", good, func(r *http.Request) { r.Header.Del("Content-Type") }, 415, "08P01"},
		{"GET of a change", "GET", "/api/v1/pin", "", nil, 405, "0A000"},
		{"POST of a view", "POST", "/api/v1/shards", "{}", nil, 405, "0A000"},
		{"JSON that nests deeply", "POST", "/api/v1/route", strings.Repeat("[", 100_000), nil, 400, "22P02"},
		{"not JSON", "POST", "/api/v1/pin", "{", nil, 400, "22P02"},
		{"unknown field", "POST", "/api/v1/pin", `{"keyspacee":"x"}`, nil, 400, "22P02"},
		{"two values", "POST", "/api/v1/pin", `{} {}`, nil, 400, "22P02"},
		{"too large", "POST", "/api/v1/pin", `{"keyspace":"` + strings.Repeat("x", BodyMax) + `"}`, nil, 413, "22P02"},
		{"unknown parameter", "GET", "/api/v1/map?verison=1", "", nil, 400, "22023"},
		{"not a number", "GET", "/api/v1/map?version=-1", "", nil, 400, "22023"},
		{"no such version", "GET", "/api/v1/map?version=99", "", nil, 404, "42704"},
		{"no such keyspace", "GET", "/api/v1/ranges?keyspace=x", "", nil, 404, "42704"},
		{"no such path", "GET", "/api/v1/nope", "", nil, 404, "42704"},
		{"the root", "GET", "/", "", nil, 404, "42704"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, err := http.NewRequest(c.method, srv.URL+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			if c.set != nil {
				c.set(req)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != c.status || res.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Fatalf("%s: %s", res.Status, body)
			}
			if c.code != "" {
				var e ErrorBody
				if err := json.Unmarshal(body, &e); err != nil || e.Code != c.code || e.Message == "" {
					t.Fatalf("%s %v", body, err)
				}
			}
		})
	}
	http.DefaultClient.CloseIdleConnections()
}

// stuck is an API whose Status waits.
type stuck struct {
	admin.API
	wait chan struct{}
}

func (s stuck) Status(ctx context.Context) (*admin.Status, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.wait:
		return &admin.Status{}, nil
	}
}

func TestBounds(t *testing.T) {
	defer goleak.VerifyNone(t, pgtest.IgnoreShared(), goleak.IgnoreCurrent())
	s := stuck{wait: make(chan struct{})}
	srv := httptest.NewServer(NewHandler(Options{API: s, Timeout: 300 * time.Millisecond,
		Ready: func(context.Context) error { return errors.New("no map yet") }}))
	defer srv.Close()
	c, err := NewClient(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := make(chan sqlstate.Code, ConcurrentMax+1)
	for range ConcurrentMax + 1 {
		go func() {
			_, err := c.Status(context.Background())
			got <- sqlstate.CodeOf(err)
		}()
	}
	count := map[sqlstate.Code]int{}
	for range ConcurrentMax + 1 {
		count[<-got]++
	}
	if count[sqlstate.TooManyConnections] != 1 || count[sqlstate.QueryCanceled] != ConcurrentMax {
		t.Fatal(count)
	}
	h, err := c.Health(context.Background())
	if err != nil || h.Ready || !h.Live || h.Reason != "no map yet" {
		t.Fatal(h, err)
	}
	if _, err := c.Route(context.Background(), "SELECT 1"); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		t.Fatal(err)
	}
}

func TestClientWithoutServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	c, err := NewClient(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Lost during a change: the outcome is not known.
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
	}()
	_, err = c.Pin(context.Background(), admin.PinRequest{})
	if sqlstate.CodeOf(err) != sqlstate.TransactionUnknown {
		t.Fatal(err)
	}
	_ = l.Close()
	// Not there at all: nothing was done.
	_, err = c.Pin(context.Background(), admin.PinRequest{})
	if sqlstate.CodeOf(err) != sqlstate.CannotConnectNow || !strings.Contains(sqlstate.As(err).Hint, "--admin") {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "ftp://x", "http://", "http://u:p@host", "a b"} {
		if _, err := NewClient(bad); sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue {
			t.Errorf("%q: %v", bad, err)
		}
	}
	// Something else answers.
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	c2, err := NewClient(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c2.Close()
	if _, err := c2.Status(context.Background()); sqlstate.CodeOf(err) != sqlstate.ProtocolViolation {
		t.Fatal(err)
	}
}

// TestClientAtAnotherProgram: the router's port is easily taken for this one.
func TestClientAtAnotherProgram(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = conn.Write([]byte("EFATAL: invalid length of startup packet\n\x00"))
			_, _ = io.Copy(io.Discard, conn) // closing at once could reset what was written
			_ = conn.Close()
		}
	}()
	defer func() { l.Close(); <-served }()
	c, err := NewClient(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Health(t.Context())
	_, second := c.Shards(t.Context())
	_, third := c.Unpin(t.Context(), admin.UnpinRequest{Keyspace: "k", Key: []string{"1"}})
	for _, err := range []error{err, second, third} {
		if sqlstate.CodeOf(err) != sqlstate.ProtocolViolation || !strings.Contains(sqlstate.As(err).Hint, "--admin") {
			t.Error(err)
		}
	}
}

// TestStatusByClass: what the caller can mend is answered with 4xx, what the cluster cannot do now with 503.
func TestStatusByClass(t *testing.T) {
	for code, want := range map[sqlstate.Code]int{
		sqlstate.StatementTooComplex: 400, sqlstate.ProgramLimitExceeded: 400, sqlstate.InvalidParameterValue: 400,
		sqlstate.SyntaxError: 400, sqlstate.FeatureNotSupported: 422, sqlstate.SerializationFailure: 409,
		sqlstate.ConnectionFailure: 503, sqlstate.TooManyConnections: 503, sqlstate.InternalError: 500, "": 500,
	} {
		if got := statusOf(code); got != want {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
}
