package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/sqlstate"
)

// cli runs a command line in this process.
func cli(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), &process{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, env: env}, args)
	return code, out.String(), errs.String()
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"uqp"}, `cleave has no command "uqp"; did you mean up?`},
		{[]string{"shard"}, "cleave shard needs one of: add, default, drain, list, remove, replica, set"},
		{[]string{"shard", "lits"}, `did you mean list?`},
		{[]string{"up", "--shrads", "3"}, "unknown flag: --shrads"},
		{[]string{"up", "now"}, `"now" is one too many`},
		{[]string{"up", "--shards", "0"}, "shards = \"0\" is out of bounds (allowed: 1 to 256)"},
		{[]string{"up", "--engine", "oracle"}, "allowed: sqlite, postgres"},
		{[]string{"up", "--servers", "2"}, "engine is sqlite"},
		{[]string{"router"}, "--directory is missing"},
		{[]string{"shard", "add", "x"}, "needs at least 2 argument(s), got 1"},
		{[]string{"shard", "add", "x", "file:/x", "--label", "region"}, "is not key=value"},
		{[]string{"shard", "add", "x", "file:/x", "--label", "a=1", "--label", "a=2"}, "given twice"},
		{[]string{"shard", "add", "x", "file:/x", "--weight", "0"}, "not above 0"},
		{[]string{"keyspace", "create", "k"}, "--type is missing"},
		{[]string{"keyspace", "create", "k", "--type", "text", "--bound", `"a`}, "not a list of values"},
		{[]string{"table", "distribute", "t"}, "--shard-key is missing"},
		{[]string{"pin", "k", "1"}, "needs at least 3"},
		{[]string{"map", "diff", "x"}, "is no version"},
		{[]string{"map", "history", "--limit", "0"}, "is not from 1 to 1000"},
		{[]string{"doctor", "--admin", "nowhere"}, "is not host:port"},
	} {
		code, stdout, stderr := cli(t, nil, c.args...)
		if code != exitUsage || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q, want %d and %q", c.args, code, stdout, stderr, exitUsage, c.want)
		}
		if strings.Contains(strings.ToLower(stderr), "panic") {
			t.Errorf("%q: %s", c.args, stderr)
		}
		code, _, stderr = cli(t, nil, append(slices.Clone(c.args), "--json")...)
		var e struct {
			Error struct {
				Code, Message, Hint string
				Problems            []struct{ Message string }
			}
		}
		if err := json.Unmarshal([]byte(stderr), &e); err != nil || code != exitUsage || len(e.Error.Code) != 5 || e.Error.Message == "" || e.Error.Hint == "" {
			t.Errorf("%q --json: exit code %d, %v, stderr %s", c.args, code, err, stderr)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, args := range [][]string{{}, {"help"}, {"--help"}, {"help", "up"}, {"shard", "add", "--help"}, {"completion", "bash"}} {
		code, stdout, stderr := cli(t, nil, args...)
		if code != exitOK || len(stdout) < 200 || stderr != "" {
			t.Errorf("%q: exit code %d, %d bytes, stderr %q", args, code, len(stdout), stderr)
		}
	}
	code, stdout, _ := cli(t, nil, "version", "--json")
	var v struct {
		Version     string
		DataFormat  int    `json:"data_format"`
		PostgresMin int    `json:"postgres_min"`
		Platform    string `json:"platform"`
	}
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || code != exitOK || v.Version == "" || v.DataFormat != wiring.DataFormat || v.PostgresMin != 14 {
		t.Errorf("version --json: %d, %v, %s", code, err, stdout)
	}
}

func TestConfigCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("pool-size: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, how := range []struct{ args, env []string }{
		{[]string{"config", "--json", "--config", path}, []string{"CLEAVE_LOG_LEVEL=debug"}},
		{[]string{"config", "--json"}, []string{"CLEAVE_LOG_LEVEL=debug", "CLEAVE_CONFIG=" + path}},
	} {
		code, stdout, stderr := cli(t, how.env, how.args...)
		var values []struct {
			Name, Value, Source string
			Reload              bool
		}
		if err := json.Unmarshal([]byte(stdout), &values); err != nil || code != exitOK {
			t.Fatalf("exit code %d, %v, %s", code, err, stderr)
		}
		got := map[string]string{}
		for _, v := range values {
			got[v.Name] = v.Value + " from " + v.Source
		}
		if got["pool-size"] != "7 from file "+path+":1" || got["log-level"] != "debug from environment CLEAVE_LOG_LEVEL" || got["shards"] != "4 from default" {
			t.Errorf("%v", got)
		}
	}
}

// TestNothingRuns asks every command that needs a cluster while there is none.
func TestNothingRuns(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"shard", "list"}, {"shard", "add", "s", "file:/tmp/none.db"}, {"shard", "remove", "s"},
		{"keyspace", "list"}, {"keyspace", "create", "k", "--type", "bigint"},
		{"table", "list"}, {"table", "distribute", "t", "--shard-key", "a"},
		{"map", "show"}, {"map", "history"}, {"map", "diff"},
		{"pin", "k", "1", "s"}, {"unpin", "k", "1"}, {"shard-of", "k", "1"},
		{"route", "SELECT 1"}, {"sql", "SELECT 1"},
	} {
		code, stdout, stderr := cli(t, nil, append(args, "--admin", free)...)
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, free) || !strings.Contains(stderr, "cleave up") || !strings.Contains(stderr, "57P03") {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
	code, stdout, stderr := cli(t, nil, "doctor", "--admin", free, "--data", filepath.Join(t.TempDir(), "none"), "--listen", "127.0.0.1:0")
	if code != exitFailed || !strings.Contains(stdout, "nothing answers at "+free) || !strings.Contains(stdout, "next: cleave up") || stderr != "" {
		t.Errorf("doctor: exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// TestNoClusterThere: who names a directory without a cluster is told how to make one.
func TestNoClusterThere(t *testing.T) {
	none := "file:" + filepath.Join(t.TempDir(), "none.db")
	empty := filepath.Join(t.TempDir(), "empty.db")
	dir, err := wiring.OpenDirectory(t.Context(), empty)
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"router", "--directory", none, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, []string{"there is no directory file", "cleave init --directory"}},
		{[]string{"router", "--directory", empty, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, []string{"holds no shard map", "cleave init --directory", "cleave directory copy --to"}},
		{[]string{"directory", "copy", "--from", none, "--to", none + "2"}, []string{"there is no directory file", "directory.db"}},
	} {
		code, _, stderr := cli(t, nil, c.args...)
		for _, want := range c.want {
			if code != exitFailed || !strings.Contains(stderr, want) {
				t.Errorf("%q: exit code %d, stderr %q, want %q", c.args, code, stderr, want)
			}
		}
	}
}

func TestBindErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_, err = bind(t.Context(), "listen", l.Addr().String())
	if sqlstate.CodeOf(err) != sqlstate.ObjectInUse || !strings.Contains(err.Error(), "port "+port) || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("port in use: %v", err)
	}
	_, err = bind(t.Context(), "admin", "192.0.2.1:0")
	if sqlstate.CodeOf(err) != sqlstate.ConfigFileError || !strings.Contains(err.Error(), "--admin") {
		t.Errorf("foreign address: %v", err)
	}
}

func TestSplitKey(t *testing.T) {
	for in, want := range map[string][]string{"": {""}, "a": {"a"}, "a,b": {"a", "b"}, `"a,b",c`: {"a,b", "c"}, `"say ""x""",`: {`say "x"`, ""}} {
		got, err := splitKey(in)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("splitKey(%q) = %q, %v", in, got, err)
		}
	}
	for _, in := range []string{`"a`, "a\nb", `a"b`} {
		if got, err := splitKey(in); err == nil {
			t.Errorf("splitKey(%q) = %q", in, got)
		}
	}
}

func TestDescribe(t *testing.T) {
	e := sqlstate.Wrap(errors.New("disk on fire"), sqlstate.IOError, "it broke").WithDetail("in two").WithHint("cleave doctor").OnShard("shard-1")
	e.Keyspace, e.Range, e.Epoch = "k", "[0 .. 1)", 3
	want := "cleave: it broke (shard shard-1, keyspace k, range [0 .. 1), epoch 3, SQLSTATE 58030)\ndetail: in two\ncause: disk on fire\nnext: cleave doctor\n"
	if got := describe(e); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestFindingsNameTheirShard: a setting to change is of no use without its place.
func TestFindingsNameTheirShard(t *testing.T) {
	var out bytes.Buffer
	a := &app{process: &process{stdout: &out}}
	err := a.printFindings([]admin.Finding{
		{Level: levelWarning, Shard: "eu-1", What: "fsync is off", Next: "ALTER SYSTEM SET fsync = on"},
		{Level: levelOK, Shard: "eu-1", What: "shard eu-1 answers"},
	})
	if want := "warning  shard eu-1: fsync is off\n         next: ALTER SYSTEM SET fsync = on\nok       shard eu-1 answers\n"; err != nil || out.String() != want {
		t.Errorf("%v, printed\n%swant\n%s", err, out.String(), want)
	}
}
