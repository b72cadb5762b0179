package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"go.opentelemetry.io/otel/attribute"

	"github.com/cleavedb/cleave/internal/oteltest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// TestOneTraceFromClientToShard: the client's span, the router's and the shard's
// arrive at one collector with one trace id, each under the one before.
func TestOneTraceFromClientToShard(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			onEngine(t, engine == "postgres")
			col := oteltest.Start(t)
			c := start(t, engine, "--trace-endpoint", col.URL, "--trace-sample", "0")
			c.exec(t, "CREATE TABLE orders (tenant_id bigint, id bigint, PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')")
			ctx := context.Background()
			exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(col.URL))
			if err != nil {
				t.Fatal(err)
			}
			provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "shop"))))
			defer func() { _ = provider.Shutdown(ctx) }()
			conn := c.connect(t)
			for i, run := range []func(ctx context.Context) error{
				func(ctx context.Context) error { // in the statement's text
					_, err := conn.Exec(ctx, trace.Comment(ctx, "INSERT INTO orders VALUES (42, 1)"))
					return err
				},
				func(ctx context.Context) error { // prepared: in the transaction
					return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
						if _, err := tx.Exec(ctx, "SET LOCAL cleave.traceparent = '"+trace.FromContext(ctx).String()+"'"); err != nil {
							return err
						}
						_, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1, $2)", 42, 2)
						return err
					})
				},
			} {
				inside, span := provider.Tracer("shop").Start(ctx, "checkout")
				if err := run(inside); err != nil {
					t.Fatal(err)
				}
				span.End()
				id := span.SpanContext().TraceID().String()
				of := func(name string) oteltest.Span {
					return col.Await(t, 1, func(s oteltest.Span) bool { return s.Trace == id && s.Name == name })[0]
				}
				client, router, shard := of("checkout"), of("INSERT orders"), of(trace.PartShard)
				if client.Service != "shop" || router.Service != "cleave-router" || router.Parent != client.ID {
					t.Errorf("%d: the router's span is not under the client's: %+v, %+v", i, client, router)
				}
				for _, s := range col.Spans() {
					if s.Trace == id && s.Name == trace.PartShard && s.Parent == router.ID {
						shard = s
					}
				}
				if shard.Parent != router.ID || shard.Attributes["cleave.shard"] == "" || shard.Attributes["cleave.shard"] != router.Attributes["cleave.shard"] {
					t.Errorf("%d: the shard's span is not under the router's: %+v, %+v", i, router, shard)
				}
			}
		})
	}
}

// TestLastSpansAreSent: what waits at the end of the process reaches the
// collector, which the standard variable names here.
func TestLastSpansAreSent(t *testing.T) {
	testrun.Short(t)
	col := oteltest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", col.URL)
	c := start(t, "sqlite", "--trace-sample", "1")
	c.exec(t, "SELECT 1")
	c.stop()
	col.Await(t, 1, func(s oteltest.Span) bool { return s.Name == "SELECT" })
}

func TestSlowStatementsInTheLog(t *testing.T) {
	testrun.Short(t)
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "cleave.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("slow-statement: 0\n")
	c := start(t, "sqlite", "--config", file, "--log-format", "json")
	c.exec(t, "CREATE TABLE orders (tenant_id bigint PRIMARY KEY, note text) WITH (cleave.shard_key = 'tenant_id')", "INSERT INTO orders VALUES (42, 'secret note')")
	if strings.Contains(c.log.String(), "slow statement") {
		t.Error("a statement is slow although none is to be")
	}
	write("slow-statement: 1ns\n")
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(waitfor.Max); !strings.Contains(c.log.String(), `"shape":"SELECT * FROM orders WHERE tenant_id = $i AND note = $s"`); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no line:\n%s", c.log.String())
		}
		c.exec(t, "SELECT * FROM orders WHERE tenant_id = 42 AND note = 'secret note'")
	}
	if strings.Contains(c.log.String(), "secret note") {
		t.Errorf("a literal is in the log:\n%s", c.log.String())
	}
	if n := c.metric(t, "cleave_slow_statements_total"); n < 1 {
		t.Errorf("%v slow statements are counted", n)
	}
}

// TestProbes asks what a container's orchestrator asks.
func TestProbes(t *testing.T) {
	testrun.Short(t)
	t.Parallel()
	c := start(t, "sqlite", "--admin-hosts", "router, router.example", "--drain-timeout", "20s")
	get := func(path, host string) int {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, "http://"+c.admin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	for _, p := range []string{"/livez", "/readyz", "/healthz"} {
		if got := get(p, "any.name"); got != 200 {
			t.Errorf("%s: %d", p, got)
		}
	}
	for host, want := range map[string]int{"router": 200, "router.example:6480": 200, "evil.example": 403} {
		if got := get("/metrics", host); got != want {
			t.Errorf("/metrics under %s: %d, not %d", host, got, want)
		}
	}
	// A transaction is open: the router drains, is live, and not ready.
	conn := c.connect(t)
	ctx := context.Background()
	if _, err := conn.Exec(ctx, "BEGIN; SELECT 1"); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(waitfor.Max); get("/readyz", "x") != 503; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is still ready")
		}
	}
	if got := get("/livez", "x"); got != 200 {
		t.Errorf("/livez: %d", got)
	}
	if n := c.metric(t, "cleave_draining"); n != 1 {
		t.Errorf("cleave_draining is %v", n)
	}
	if _, err := conn.Exec(ctx, "COMMIT"); err != nil {
		t.Error(err)
	}
	select {
	case err := <-c.exited:
		c.exited <- err
		if err != nil {
			t.Error(err)
		}
	case <-time.After(waitfor.Max):
		t.Error(fmt.Sprint("it goes on after the last transaction\n", c.log.String()))
	}
}
