package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cleave.yaml")
	write(t, path, text)
	return path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDefaultsAreValidAndShowAsThemselves(t *testing.T) {
	e, err := Load(Input{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range e.Values() {
		if v.Source != Default {
			t.Errorf("%s: source %q", v.Name, v.Source)
		}
		if v.Value != v.Default {
			t.Errorf("%s: shows as %q, default is %q", v.Name, v.Value, v.Default)
		}
		if v.Help == "" {
			t.Errorf("%s has no help", v.Name)
		}
	}
	if e.Listen != "127.0.0.1:6432" || e.Admin != "127.0.0.1:6480" || e.Shards != 4 || e.Engine != "sqlite" {
		t.Errorf("defaults: %+v", e.Config)
	}
}

func TestPrecedence(t *testing.T) {
	path := file(t, "# one file\nshards: 8\nengine: postgres\nlog-level: warn\nidle-timeout: 5m\n")
	env := []string{"PATH=/bin", "CLEAVE_SHARDS=16", "CLEAVE_LOG_LEVEL=error"}
	e, err := Load(Input{File: path, Env: env, Flags: map[string]string{"shards": "32"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, value, source string }{
		{"shards", "32", "flag --shards"},
		{"log-level", "error", "environment CLEAVE_LOG_LEVEL"},
		{"engine", "postgres", "file " + path + ":3"},
		{"idle-timeout", "5m", "file " + path + ":5"},
		{"servers", "1", "default"},
	} {
		s, ok := Lookup(c.name)
		if !ok {
			t.Fatalf("no setting %s", c.name)
		}
		if got := s.Show(&e.Config); got != c.value {
			t.Errorf("%s = %s, want %s", c.name, got, c.value)
		}
		if got := e.Source(c.name); string(got) != c.source {
			t.Errorf("%s comes from %q, want %q", c.name, got, c.source)
		}
		if e.Given(c.name) != (c.source != "default") {
			t.Errorf("Given(%s) = %v", c.name, e.Given(c.name))
		}
	}
	if e.IdleTimeout != 5*time.Minute {
		t.Errorf("idle-timeout is %v", e.IdleTimeout)
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	path := file(t, "shrads: 8\nmessage-max: 12 parsecs\nengine: [sqlite]\nlisten: here\nlisten: there:1\npool-size: 0\n")
	_, err := Load(Input{
		File:  path,
		Env:   []string{"CLEAVE_LOG_LEVLE=debug", "CLEAVE_LOG_FORMAT=xml", "CLEAVE_DATA="},
		Flags: map[string]string{"idle-timeout": "5", "drain-timeout": "-1s", "wrong": "1"},
	})
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v", err)
	}
	want := []string{
		`file ` + path + `:1: "shrads" is no setting; did you mean shards?`,
		`file ` + path + `:3: engine has no single value (allowed: sqlite, postgres)`,
		`file ` + path + `:5: listen is set a second time; the first is in line 4`,
		`environment CLEAVE_LOG_LEVLE: is no setting; did you mean CLEAVE_LOG_LEVEL?`,
		"flag --wrong: is no setting; `cleave config` lists all settings",
		`environment CLEAVE_DATA: data is empty (allowed: a path)`,
		`file ` + path + `:4: listen = "here" is not host:port (allowed: host:port, port 0 takes a free one)`,
		`file ` + path + `:6: pool-size = "0" is out of bounds (allowed: 1 to 10000)`,
		`flag --idle-timeout: idle-timeout = "5" is not a duration with its unit (allowed: 0 to 720h, like 500ms, 30s, 5m)`,
		`file ` + path + `:2: message-max = "12 parsecs" is not a size (allowed: 64KiB to 1GiB, in bytes or with KiB, MiB, GiB)`,
		`environment CLEAVE_LOG_FORMAT: log-format = "xml" is not one of them (allowed: text, json)`,
		`flag --drain-timeout: drain-timeout = "-1s" is out of bounds (allowed: 0 to 720h, like 500ms, 30s, 5m)`,
	}
	var got []string
	for _, p := range e.Problems {
		got = append(got, p.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestRulesBetweenSettings(t *testing.T) {
	for _, c := range []struct {
		flags map[string]string
		want  string
	}{
		{map[string]string{"servers": "2"}, "engine is sqlite"},
		{map[string]string{"servers": "5", "engine": "postgres"}, "more than the 4 shards"},
		{map[string]string{"admin": "127.0.0.1:6432"}, "same address as listen"},
		{map[string]string{"message-max": "64KiB"}, "more than message-max"},
	} {
		_, err := Load(Input{Flags: c.flags})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.flags, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "flag --") {
			t.Errorf("%v: no source in %v", c.flags, err)
		}
	}
	if _, err := Load(Input{Flags: map[string]string{"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"}}); err != nil {
		t.Errorf("two free ports: %v", err)
	}
}

func TestBadFiles(t *testing.T) {
	big := strings.Repeat("# padding\n", fileMax/10+1)
	for name, c := range map[string]struct{ text, want string }{
		"not yaml":      {"a: b: c", "is not YAML"},
		"a list":        {"- shards", "is not a list of"},
		"two documents": {"shards: 4\n---\nshards: 5\n", "more than one YAML document"},
		"null value":    {"shards:\n", "has no single value"},
		"too large":     {big, "larger than 1MiB"},
		"nested":        {"shards: {a: 1}\n", "has no single value"},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, c.text)
			_, err := Load(Input{File: path})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want %q and the path", err, c.want)
			}
		})
	}
	if _, err := Load(Input{File: "/does/not/exist.yaml"}); err == nil || !strings.Contains(err.Error(), "cannot be opened: no such file") {
		t.Errorf("missing file: %v", err)
	}
	for _, text := range []string{"", "# nothing\n", "---\n"} {
		if _, err := Load(Input{File: file(t, text)}); err != nil {
			t.Errorf("empty file %q: %v", text, err)
		}
	}
}

func TestForeignEnvironmentIsWarnedOf(t *testing.T) {
	e, err := Load(Input{Env: []string{"CLEAVE_SERVICE_HOST=10.0.0.1", "CLEAVE_CONFIG=x", "CLEAVE_PG_BIN=/usr/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "CLEAVE_SERVICE_HOST") {
		t.Errorf("warnings: %q", e.Warnings)
	}
}

func TestReload(t *testing.T) {
	path := file(t, "log-level: info\npool-size: 10\n")
	e, err := Load(Input{File: path, Flags: map[string]string{"idle-timeout": "1m"}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "log-level: debug\npool-size: 20\nidle-timeout: 9m\ndrain-timeout: 2s\n")
	next, changes, err := e.Reload()
	if err != nil {
		t.Fatal(err)
	}
	if next.LogLevel != "debug" || next.DrainTimeout != 2*time.Second {
		t.Errorf("not reloaded: %+v", next.Config)
	}
	if next.PoolSize != 10 || e.Source("pool-size") != next.Source("pool-size") {
		t.Errorf("pool-size changed to %d without a restart", next.PoolSize)
	}
	if next.IdleTimeout != time.Minute {
		t.Errorf("the flag lost to the file: %v", next.IdleTimeout)
	}
	var got []string
	for _, c := range changes {
		kind := "now"
		if c.Restart {
			kind = "restart"
		}
		got = append(got, c.Setting+" "+c.Old+" "+c.New+" "+kind)
	}
	want := []string{"pool-size 10 20 restart", "log-level info debug now", "drain-timeout 30s 2s now"}
	if !slices.Equal(got, want) {
		t.Errorf("changes %q, want %q", got, want)
	}

	write(t, path, "log-level: loud\n")
	if _, _, err := next.Reload(); err == nil || !strings.Contains(err.Error(), "loud") {
		t.Errorf("a bad file was taken: %v", err)
	}
	if next.LogLevel != "debug" {
		t.Errorf("a refused reload changed the log level to %s", next.LogLevel)
	}
}

func TestPasswordsAreNotShown(t *testing.T) {
	secret := "postgres://cleave:s3cr:et@db/x"
	_, err := Load(Input{Flags: map[string]string{"directory": secret}})
	if err == nil || strings.Contains(err.Error(), "s3cr") || strings.Contains(err.Error(), "et@") {
		t.Errorf("got %v", err)
	}
	for in, want := range map[string]string{
		secret:                        "postgres://cleave:xxxxx@db/x",
		"postgres://db/x":             "postgres://db/x",
		"postgres://cleave@db/x":      "postgres://cleave@db/x",
		"file:/a:b@c":                 "file:/a:b@c",
		"http://u:p@ss@host:1?q=a@b:": "http://u:xxxxx@host:1?q=a@b:",
	} {
		if got := redact(in); got != want {
			t.Errorf("redact(%q) = %q, want %q", in, got, want)
		}
	}
	e, err := Load(Input{Flags: map[string]string{"data": "http://u:p@host"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range e.Values() {
		if strings.Contains(v.Value, ":p@") {
			t.Errorf("%s shows %s", v.Name, v.Value)
		}
	}
}

func TestSizesAndDurationsRoundTrip(t *testing.T) {
	for _, c := range []struct{ name, in, out string }{
		{"message-max", "1048576", "1MiB"}, {"message-max", "1 GiB", "1GiB"}, {"message-max", "65537", "65537"},
		{"statement-max", "4KiB", "4KiB"}, {"drain-timeout", "90s", "1m30s"}, {"drain-timeout", "3600s", "1h"},
		{"drain-timeout", "0", "0"}, {"drain-timeout", "1h0m5s", "1h0m5s"}, {"statement-timeout", "250ms", "250ms"},
	} {
		s, _ := Lookup(c.name)
		flags := map[string]string{"statement-max": "1KiB"} // so that a small message-max is allowed
		flags[c.name] = c.in
		e, err := Load(Input{Flags: flags})
		if err != nil {
			t.Errorf("%s = %s: %v", c.name, c.in, err)
			continue
		}
		if got := s.Show(&e.Config); got != c.out {
			t.Errorf("%s = %s shows as %s, want %s", c.name, c.in, got, c.out)
		}
	}
	for _, bad := range []string{"9999999999999999GiB", "-1", "1.5MiB", ""} {
		if _, err := Load(Input{Flags: map[string]string{"message-max": bad}}); err == nil {
			t.Errorf("message-max = %q was taken", bad)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"listen", "log-level", "log-format", "idle-timeout"}
	for in, want := range map[string]string{"lisetn": "listen", "LOG_LEVEL": "log-level", "loglevel": "log-level", "zzzzzz": "", "idle": "", "idle-time": "idle-timeout"} {
		if got := Nearest(in, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", in, got, want)
		}
	}
	if d := distance("ab", "ba"); d != 1 {
		t.Errorf("a swap costs %d", d)
	}
	if d := distance("kitten", "sitting"); d != 3 {
		t.Errorf("kitten to sitting is %d", d)
	}
}

func TestTraceTrustAndHosts(t *testing.T) {
	load := func(name, value string) (*Effective, error) {
		return Load(Input{Flags: map[string]string{name: value}})
	}
	for _, c := range []struct{ name, value, show string }{
		{"trust", "", ""}, {"trust", "10.0.0.0/8,fd00::/8", "10.0.0.0/8, fd00::/8"}, {"admin-hosts", " router , router.example ", "router, router.example"},
		{"trace-sample", "0.5", "0.5"}, {"trace-sample", "1", "1"}, {"trace-endpoint", "https://user:secret@collector:4317", "https://user:xxxxx@collector:4317"},
		{"slow-statement", "0", "0"}, {"slow-statement", "250ms", "250ms"},
	} {
		e, err := load(c.name, c.value)
		if err != nil {
			t.Errorf("%s = %s: %v", c.name, c.value, err)
			continue
		}
		if s, _ := Lookup(c.name); s.Show(&e.Config) != c.show {
			t.Errorf("%s = %s is shown as %s", c.name, c.value, s.Show(&e.Config))
		}
	}
	for _, c := range [][2]string{
		{"trust", "10.0.0.0"}, {"trust", "10.1.0.0/8"}, {"trust", "everybody"}, {"admin-hosts", "a:1"}, {"admin-hosts", "*"},
		{"trace-sample", "1.5"}, {"trace-sample", "NaN"}, {"trace-sample", "many"}, {"trace-endpoint", "collector:4317"}, {"slow-statement", "-1s"},
	} {
		if _, err := load(c[0], c[1]); err == nil || !strings.Contains(err.Error(), c[0]) {
			t.Errorf("%s = %s: %v", c[0], c[1], err)
		}
	}
}
