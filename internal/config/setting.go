package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine/capability"
)

// Config is the settings as values. Durations of 0 are "no limit" where the
// setting's help says so; sizes are bytes.
type Config struct {
	Data      string // folder of the local shards and the directory
	Listen    string // host:port of the router
	Admin     string // host:port of the admin API
	Shards    int    // local shards to make on the first start
	Engine    string // "sqlite" or "postgres": of the local shards
	Servers   int    // private PostgreSQL servers to spread them over
	Directory string // path of the directory's SQLite file, or its etcd:// URL; "" is directory.db in Data
	LeaseTTL  time.Duration
	// LoadWindow is the half-life of load figures.
	LoadWindow time.Duration

	MaxConnections           int // client sessions
	PoolSize                 int // connections to one shard
	Lanes                    int // loops that relay statements; 0 chooses, -1 is none
	ConnectTimeout           time.Duration
	FailoverWait             time.Duration
	HoldTimeout              time.Duration
	Moments                  string        // "router" or "cluster"
	ReadPolicy               string        // "primary", "replica" or "nearest": of sessions that set none
	MaxReplicaLag            time.Duration // 0: none
	LocalSockets             string        // "auto" or "off"
	LocalSocketDirs          string        // folders, with commas
	StatementTimeout         time.Duration
	IdleTimeout              time.Duration
	IdleInTransactionTimeout time.Duration
	DrainTimeout             time.Duration
	MessageMax               int
	StatementMax             int
	LogLevel                 string
	LogFormat                string
	SlowStatement            time.Duration // 0: none is logged
	// Of statements over several shards; 0: no bound.
	Scatter                       string // "on" or "off"
	ShardsTouchedMax              int
	RowsMax, BytesMax             int
	SeveralTimeout                time.Duration
	GatherRowsMax, GatherBytesMax int
	DeadlockTimeout               time.Duration
	TraceEndpoint                 string  // URL of an OpenTelemetry collector; "": see trace.Options
	TraceSample                   float64 // share of the statements without a parent
	Auth                          string  // "trust", "scram", "cert" or "passthrough"
	Trust                         []netip.Prefix
	TLSCert, TLSKey               string // files of the router's certificate; "": no TLS
	TLSClientCA                   string // file of authorities of clients' certificates
	TLS                           string // "optional" or "required"
	AdminHosts                    []string
	AdminTokenFile                string
	Coordinator                   string
	AdminTLS                      string // "auto", "on" or "off"; see AdminEncrypted
	AdminTLSCert, AdminTLSKey     string // files of the admin API's certificate; "": the router's
	AdminCA                       string // file of authorities that the commands trust; "": the system's
}

// AdminAddress is the host and port of Admin, without a scheme.
func (c *Config) AdminAddress() string {
	_, rest, ok := strings.Cut(c.Admin, "://")
	if !ok {
		return c.Admin
	}
	return rest
}

// OnServers reports whether local shards are databases on servers, otherwise files.
func (c *Config) OnServers() bool { return capability.Of(c.Engine).Servers }

// AdminEncrypted reports whether the admin API speaks TLS: for who offers it and
// for the commands that ask it.
func (c *Config) AdminEncrypted() bool {
	switch {
	case strings.HasPrefix(c.Admin, "https://"):
		return true
	case strings.HasPrefix(c.Admin, "http://"), c.AdminTLS == "off":
		return false
	}
	host, _, err := net.SplitHostPort(c.Admin)
	return c.AdminTLS == "on" || err != nil || !Loopback(host)
}

// Loopback reports whether only clients of the same machine reach a host.
func Loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// Setting describes one setting.
type Setting struct {
	Name    string // as file key and flag
	Help    string // one line
	Allowed string // what values it takes, for people
	Default string
	Reload  bool // takes effect on SIGHUP
	parse   func(c *Config, text string) error
	show    func(c *Config) string
}

// Env returns the setting's environment variable.
func (s Setting) Env() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// Show returns the setting's value in c as text that can be set again.
func (s Setting) Show(c *Config) string { return redact(s.show(c)) }

// EnvPrefix begins the names of all environment variables that are settings.
const EnvPrefix = "CLEAVE_"

const (
	// ShardsMax bounds the shards that one `cleave up` makes on one machine.
	ShardsMax = 256
	// ServersMax bounds the private PostgreSQL servers of one `cleave up`.
	ServersMax = 32
)

var settings = []Setting{
	text("data", "folder of the local shards and the shard map", "a path", "./.cleave",
		func(c *Config) *string { return &c.Data }, notEmpty),
	text("listen", "address on which the router takes PostgreSQL clients", "host:port, port 0 takes a free one", "127.0.0.1:6432",
		func(c *Config) *string { return &c.Listen }, hostPort),
	text("admin", "address of the admin API, /healthz and /metrics", "host:port, port 0 takes a free one; https:// or http:// before it says whether it speaks TLS", "127.0.0.1:6480",
		func(c *Config) *string { return &c.Admin }, func(s string) error {
			return hostPort(strings.TrimPrefix(strings.TrimPrefix(s, "https://"), "http://"))
		}),
	number("shards", "number of local shards, made on the first start", 4, 1, ShardsMax,
		func(c *Config) *int { return &c.Shards }),
	choice("engine", "engine of the local shards", "sqlite", []string{"sqlite", "postgres"},
		func(c *Config) *string { return &c.Engine }),
	number("servers", "private PostgreSQL servers over which the local shards are spread", 1, 1, ServersMax,
		func(c *Config) *int { return &c.Servers }),
	text("directory", "store of the shard map and its history: a file on this machine, or etcd for many", "file:PATH, a path, or etcd://[USER:PASSWORD@]HOST:2379,.../PREFIX; empty is directory.db in the data folder", "",
		func(c *Config) *string { return &c.Directory }, func(s string) error {
			if strings.Contains(s, "://") && !strings.HasPrefix(s, "etcd://") {
				return errors.New("is neither a file nor etcd")
			}
			return nil
		}),
	duration("lease-ttl", "a router that cannot reach the directory for this long no longer counts; it stops answering a little earlier", 5*time.Second, time.Second,
		func(c *Config) *time.Duration { return &c.LeaseTTL }),
	number("max-connections", "client sessions at once; one more is refused with 53300", 1000, 1, 100_000,
		func(c *Config) *int { return &c.MaxConnections }),
	number("pool-size", "connections to one shard at once; a statement waits for a free one", 32, 1, 10_000,
		func(c *Config) *int { return &c.PoolSize }),
	number("lanes", "threads that relay statements without waking the session's goroutine; 0 is one for every four processors, -1 is none", 0, -1, 256,
		func(c *Config) *int { return &c.Lanes }),
	duration("connect-timeout", "longest attempt to connect to a shard", 5*time.Second, time.Millisecond,
		func(c *Config) *time.Duration { return &c.ConnectTimeout }),
	duration("failover-wait", "how long after the loss of a primary statements wait for the next one, on shards with replicas; 0 is not at all", 10*time.Second, 0,
		func(c *Config) *time.Duration { return &c.FailoverWait }),
	duration("hold-timeout", "how long statements wait whose keys are just then given to another shard, unless the session sets cleave.hold_timeout", 10*time.Second, time.Millisecond,
		func(c *Config) *time.Duration { return &c.HoldTimeout }),
	duration("load-window", "half-life of the load figures of ranges and keys: what was so long ago counts half", 2*time.Minute, time.Second,
		func(c *Config) *time.Duration { return &c.LoadWindow }),
	choice("moments", "whose transactions a REPEATABLE READ block over several shards sees in the order that clients saw: those of its router's clients, or of all routers'. All routers need the same value, and have to reach each other where they take clients", "router", []string{"router", "cluster"},
		func(c *Config) *string { return &c.Moments }),
	choice("read-policy", "where reads go that a replica can answer, unless the session sets cleave.read_policy", "primary", []string{"primary", "replica", "nearest"},
		func(c *Config) *string { return &c.ReadPolicy }),
	duration("max-replica-lag", "how old the data of a replica may be that is read, unless the session sets cleave.max_replica_lag; 0 is no limit", 10*time.Second, 0,
		func(c *Config) *time.Duration { return &c.MaxReplicaLag }),
	choice("local-sockets", "auto: a PostgreSQL server whose URL names an address of this machine is reached over its unix socket, if that is the very same server and the URL demands no TLS", "auto", []string{"auto", "off"},
		func(c *Config) *string { return &c.LocalSockets }),
	text("local-socket-dirs", "folders in which the sockets of local servers are looked for", "absolute paths with commas", "/var/run/postgresql,/tmp",
		func(c *Config) *string { return &c.LocalSocketDirs }, func(s string) error {
			for dir := range strings.SplitSeq(s, ",") {
				if !strings.HasPrefix(strings.TrimSpace(dir), "/") {
					return errors.New("has a path that is not absolute")
				}
			}
			return nil
		}),
	duration("statement-timeout", "longest run of a statement, 0 is no limit; a session's own statement_timeout can only be shorter", time.Hour, 0,
		func(c *Config) *time.Duration { return &c.StatementTimeout }),
	duration("idle-timeout", "ends a session that is idle outside of a transaction, 0 is never", 8*time.Hour, 0,
		func(c *Config) *time.Duration { return &c.IdleTimeout }),
	duration("idle-in-transaction-timeout", "ends a session that is idle in a transaction, 0 is never", 5*time.Minute, 0,
		func(c *Config) *time.Duration { return &c.IdleInTransactionTimeout }),
	size("message-max", "largest protocol message of a client", 64<<20, 64<<10, 1<<30,
		func(c *Config) *int { return &c.MessageMax }),
	size("statement-max", "longest text of a statement", 8<<20, 1<<10, 64<<20,
		func(c *Config) *int { return &c.StatementMax }),
	choice("scatter", "off refuses statements that need several shards, unless the session sets cleave.scatter", "on", []string{"on", "off"},
		func(c *Config) *string { return &c.Scatter }),
	number("shards-max", "shards that one statement may touch, unless the session sets cleave.shards_max; 0 is no limit", 0, 0, 1_000_000,
		func(c *Config) *int { return &c.ShardsTouchedMax }),
	number("rows-max", "rows that one statement over several shards may return, unless the session sets cleave.rows_max; 0 is no limit", 0, 0, math.MaxInt,
		func(c *Config) *int { return &c.RowsMax }),
	size("bytes-max", "bytes that one statement over several shards may return, unless the session sets cleave.bytes_max; 0 is no limit", 0, 0, 1<<50,
		func(c *Config) *int { return &c.BytesMax }),
	duration("several-timeout", "longest run of a statement over several shards, unless the session sets cleave.several_timeout; 0 is no limit", 0, 0,
		func(c *Config) *time.Duration { return &c.SeveralTimeout }),
	number("gather-rows-max", "rows that a gather may fetch, unless the session sets cleave.gather_rows_max", 10_000_000, 1, math.MaxInt,
		func(c *Config) *int { return &c.GatherRowsMax }),
	size("gather-bytes-max", "bytes that a gather may fetch, unless the session sets cleave.gather_bytes_max", 4<<30, 1, 1<<50,
		func(c *Config) *int { return &c.GatherBytesMax }),
	duration("deadlock-timeout", "how long a transaction over several shards waits before it is looked whether it is in a deadlock, unless the session sets cleave.deadlock_timeout", time.Second, 10*time.Millisecond,
		func(c *Config) *time.Duration { return &c.DeadlockTimeout }),
	choice("log-level", "least important log lines to write", "info", []string{"debug", "info", "warn", "error"},
		func(c *Config) *string { return &c.LogLevel }).reloadable(),
	choice("log-format", "form of the log on stderr", "text", []string{"text", "json"},
		func(c *Config) *string { return &c.LogFormat }),
	duration("slow-statement", "statements that take this long are logged, without their literals; 0 is none", time.Second, 0,
		func(c *Config) *time.Duration { return &c.SlowStatement }).reloadable(),
	text("trace-endpoint", "OpenTelemetry collector that gets spans of statements, by OTLP/gRPC", "http://HOST:PORT, or https:// for TLS; empty is OTEL_EXPORTER_OTLP_ENDPOINT, without which nothing is traced", "",
		func(c *Config) *string { return &c.TraceEndpoint }, collector),
	ratio("trace-sample", "share of the statements that are traced, of those whose client does not say whether they are to be", 0.01,
		func(c *Config) *float64 { return &c.TraceSample }).reloadable(),
	choice("auth", "trust: clients of this machine and of the networks in trust are let in, nobody else; scram: everybody else is asked for the password of a user; cert: everybody else needs a certificate with the user's name; passthrough: everybody else is asked for the password of a user of the shards, and works there as that user", "trust", []string{"trust", "scram", "cert", "passthrough"},
		func(c *Config) *string { return &c.Auth }),
	networks("trust", "networks whose clients may connect and do everything, asked for no password",
		func(c *Config) *[]netip.Prefix { return &c.Trust }),
	text("tls-cert", "file of the router's certificate, with its chain; read again on SIGHUP", "a path of a PEM file; empty is no TLS", "",
		func(c *Config) *string { return &c.TLSCert }, anything),
	text("tls-key", "file of the key of tls-cert", "a path of a PEM file", "",
		func(c *Config) *string { return &c.TLSKey }, anything),
	text("tls-client-ca", "file of the authorities whose certificates clients may show", "a path of a PEM file; empty asks for none", "",
		func(c *Config) *string { return &c.TLSClientCA }, anything),
	choice("tls", "whether clients may connect without TLS", "optional", []string{"optional", "required"},
		func(c *Config) *string { return &c.TLS }),
	names("admin-hosts", "names under which the admin API may be asked besides addresses and localhost",
		func(c *Config) *[]string { return &c.AdminHosts }),
	text("admin-token-file", "file with a token that the admin API demands, and that the commands send; without it the API obeys the networks in trust and, if auth is trust, this machine; else it makes a token at each start, which the commands of its user on this machine find", "a path; empty is no token", "",
		func(c *Config) *string { return &c.AdminTokenFile }, anything),
	choice("admin-tls", "whether the admin API speaks TLS, and the commands with it; auto: unless its address is a loopback one", "auto", []string{"auto", "on", "off"},
		func(c *Config) *string { return &c.AdminTLS }),
	text("admin-tls-cert", "file of the admin API's certificate, with its chain; read again on SIGHUP", "a path of a PEM file; empty is that of tls-cert", "",
		func(c *Config) *string { return &c.AdminTLSCert }, anything),
	text("admin-tls-key", "file of the key of admin-tls-cert", "a path of a PEM file", "",
		func(c *Config) *string { return &c.AdminTLSKey }, anything),
	text("admin-ca", "file of the authorities whose certificates the commands trust at the admin API", "a path of a PEM file; empty is the system's", "",
		func(c *Config) *string { return &c.AdminCA }, anything),
	choice("coordinator", "whether the process stands in the coordinators' election, whose winner carries out moves; off leaves that to others, such as cleave coordinator", "on", []string{"on", "off"},
		func(c *Config) *string { return &c.Coordinator }),
	duration("drain-timeout", "on SIGTERM, time for sessions to finish their transaction", 30*time.Second, 0,
		func(c *Config) *time.Duration { return &c.DrainTimeout }).reloadable(),
}

// Settings returns all settings in the order of the documentation.
func Settings() []Setting { return slices.Clone(settings) }

// Lookup returns the setting of that name.
func Lookup(name string) (Setting, bool) {
	i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		return Setting{}, false
	}
	return settings[i], true
}

// check holds the rules that concern two settings. The problem names the
// first; its source is that of the second if only that one was set.
func (e *Effective) check() (problems []Problem) {
	c := &e.Config
	bad := func(name, other, format string, args ...any) {
		source := e.sources[name]
		if source == Default {
			source = e.sources[other]
		}
		problems = append(problems, Problem{Setting: name, Source: source, Message: fmt.Sprintf(format, args...)})
	}
	if c.Servers > 1 && !c.OnServers() {
		bad("servers", "engine", "is %d, but engine is %s and has no servers; set engine to postgres", c.Servers, c.Engine)
	}
	if c.Servers > c.Shards {
		bad("servers", "shards", "is %d, more than the %d shards; set it to %d or less", c.Servers, c.Shards, c.Shards)
	}
	if c.Listen == c.AdminAddress() && !strings.HasSuffix(c.Listen, ":0") {
		bad("admin", "listen", "is %s, the same address as listen; choose another port", c.Admin)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		bad("tls-cert", "tls-key", "and tls-key go together: one is set, the other is not")
	}
	if (c.AdminTLSCert == "") != (c.AdminTLSKey == "") {
		bad("admin-tls-cert", "admin-tls-key", "and admin-tls-key go together: one is set, the other is not")
	}
	if host, _, err := net.SplitHostPort(c.Listen); c.Auth == "passthrough" && c.TLSCert == "" && err == nil && !Loopback(host) {
		bad("auth", "listen", "is passthrough, and clients on other machines give their password over TLS only: set tls-cert")
	}
	if c.TLS == "required" && c.TLSCert == "" {
		bad("tls", "tls-cert", "is required, but there is no tls-cert")
	}
	if c.TLSClientCA != "" && c.TLSCert == "" {
		bad("tls-client-ca", "tls-cert", "is set, but there is no tls-cert")
	}
	if c.Auth == "cert" && c.TLSClientCA == "" {
		bad("auth", "tls-client-ca", "is cert, but there is no tls-client-ca to verify certificates with")
	}
	if c.StatementMax > c.MessageMax {
		bad("statement-max", "message-max", "is %s, more than message-max, %s, lets through", showSize(c.StatementMax), showSize(c.MessageMax))
	}
	return problems
}

func (s Setting) reloadable() Setting {
	s.Reload = true
	return s
}

func text(name, help, allowed, def string, at func(*Config) *string, check func(string) error) Setting {
	return Setting{Name: name, Help: help, Allowed: allowed, Default: def,
		parse: func(c *Config, s string) error {
			if strings.ContainsRune(s, 0) {
				return errors.New("contains a zero byte")
			}
			if err := check(s); err != nil {
				return err
			}
			*at(c) = s
			return nil
		},
		show: func(c *Config) string { return *at(c) }}
}

func choice(name, help, def string, among []string, at func(*Config) *string) Setting {
	return Setting{Name: name, Help: help, Allowed: strings.Join(among, ", "), Default: def,
		parse: func(c *Config, s string) error {
			if !slices.Contains(among, s) {
				if near := Nearest(s, among); near != "" {
					return fmt.Errorf("is not one of them; did you mean %s?", near)
				}
				return errors.New("is not one of them")
			}
			*at(c) = s
			return nil
		},
		show: func(c *Config) string { return *at(c) }}
}

func number(name, help string, def, low, high int, at func(*Config) *int) Setting {
	return Setting{Name: name, Help: help, Allowed: fmt.Sprintf("%d to %d", low, high), Default: strconv.Itoa(def),
		parse: func(c *Config, s string) error {
			n, err := strconv.Atoi(s)
			if err != nil {
				return errors.New("is not a whole number")
			}
			if n < low || n > high {
				return errors.New("is out of bounds")
			}
			*at(c) = n
			return nil
		},
		show: func(c *Config) string { return strconv.Itoa(*at(c)) }}
}

// durationMax keeps a deadline within what a clock can hold.
const durationMax = 30 * 24 * time.Hour

func duration(name, help string, def, low time.Duration, at func(*Config) *time.Duration) Setting {
	allowed := fmt.Sprintf("%s to %s, like 500ms, 30s, 5m", showDuration(low), showDuration(durationMax))
	return Setting{Name: name, Help: help, Allowed: allowed, Default: showDuration(def),
		parse: func(c *Config, s string) error {
			d, err := time.ParseDuration(s)
			if err != nil {
				return errors.New("is not a duration with its unit")
			}
			if d < low || d > durationMax {
				return errors.New("is out of bounds")
			}
			*at(c) = d
			return nil
		},
		show: func(c *Config) string { return showDuration(*at(c)) }}
}

func showDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func size(name, help string, def, low, high int, at func(*Config) *int) Setting {
	allowed := fmt.Sprintf("%s to %s, in bytes or with KiB, MiB, GiB", showSize(low), showSize(high))
	return Setting{Name: name, Help: help, Allowed: allowed, Default: showSize(def),
		parse: func(c *Config, s string) error {
			n, err := parseSize(s)
			if err != nil {
				return err
			}
			if n < low || n > high {
				return errors.New("is out of bounds")
			}
			*at(c) = n
			return nil
		},
		show: func(c *Config) string { return showSize(*at(c)) }}
}

var units = []struct {
	name  string
	bytes int
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

func parseSize(s string) (int, error) {
	unit := 1
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			s, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, errors.New("is not a size")
	}
	if n < 0 || n > math.MaxInt/unit {
		return 0, errors.New("is out of bounds")
	}
	return n * unit, nil
}

func showSize(n int) string {
	for _, u := range units {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.Itoa(n/u.bytes) + u.name
		}
	}
	return strconv.Itoa(n)
}

func anything(string) error { return nil }

func notEmpty(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("is empty")
	}
	return nil
}

func ratio(name, help string, def float64, at func(*Config) *float64) Setting {
	show := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	return Setting{Name: name, Help: help, Allowed: "0 to 1, like 0.01", Default: show(def),
		parse: func(c *Config, s string) error {
			f, err := strconv.ParseFloat(s, 64)
			if err != nil || math.IsNaN(f) {
				return errors.New("is not a number")
			}
			if f < 0 || f > 1 {
				return errors.New("is out of bounds")
			}
			*at(c) = f
			return nil
		},
		show: func(c *Config) string { return show(*at(c)) }}
}

// entries splits a list with commas; the empty text is the empty list.
func entries(s string) []string {
	var out []string
	for _, e := range strings.Split(s, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}

func networks(name, help string, at func(*Config) *[]netip.Prefix) Setting {
	return Setting{Name: name, Help: help, Allowed: "networks with commas between them, like 10.0.0.0/8, fd00::/8",
		parse: func(c *Config, s string) error {
			var list []netip.Prefix
			for _, e := range entries(s) {
				p, err := netip.ParsePrefix(e)
				if err != nil {
					return fmt.Errorf("holds %q, which is not a network like 10.0.0.0/8", e)
				}
				if p.Masked() != p {
					return fmt.Errorf("holds %s, whose network is %s", e, p.Masked())
				}
				list = append(list, p)
			}
			*at(c) = list
			return nil
		},
		show: func(c *Config) string {
			var out []string
			for _, p := range *at(c) {
				out = append(out, p.String())
			}
			return strings.Join(out, ", ")
		}}
}

func names(name, help string, at func(*Config) *[]string) Setting {
	return Setting{Name: name, Help: help, Allowed: "host names with commas between them",
		parse: func(c *Config, s string) error {
			list := entries(s)
			for _, e := range list {
				if strings.ContainsAny(e, ":/ *") {
					return fmt.Errorf("holds %q, which is not a host name", e)
				}
			}
			*at(c) = list
			return nil
		},
		show: func(c *Config) string { return strings.Join(*at(c), ", ") }}
}

func collector(s string) error {
	u, err := url.Parse(s)
	if s != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return errors.New("is not http://HOST:PORT or https://HOST:PORT")
	}
	return nil
}

func hostPort(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("is not host:port")
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 {
		return errors.New("has no port from 0 to 65535")
	}
	return nil
}

// redact hides the password of a URL. No setting should hold one; a value that
// was put into the wrong setting must not reach a log either.
func redact(s string) string {
	scheme := strings.Index(s, "://")
	if scheme < 0 {
		return s
	}
	rest := s[scheme+3:]
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if strings.Contains(rest[end:], "@") && strings.Contains(rest[:end], ":") && strings.HasPrefix(s, "etcd://") {
		// Perhaps a password with an unescaped slash: all before the last @ goes.
		return s[:scheme+3] + "xxxxx" + rest[strings.LastIndexByte(rest, '@'):]
	}
	at := strings.LastIndexByte(rest[:end], '@')
	if at < 0 {
		return s
	}
	user, _, has := strings.Cut(rest[:at], ":")
	if !has {
		return s
	}
	return s[:scheme+3] + user + ":xxxxx" + rest[at:]
}
