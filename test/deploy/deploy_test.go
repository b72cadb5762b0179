// Package deploy holds the files under deploy/ to the program, to its metrics and
// to the tools that read them.
package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/telemetry"
)

const root = "../.."

var binary string

// TestMain builds the program as deploy/Dockerfile does.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cleave-deploy")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "cleave")
	build := exec.Command("sh", "-c", buildStep("/out/cleave", binary))
	build.Dir = root
	build.Env = append(os.Environ(), "VERSION=test")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "the container file's build step: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// decode reads YAML; fields that into lacks are an error.
func decode(t testing.TB, path string, into any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(read(t, path)))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func run(t testing.TB, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return string(out)
}

// settings has the program judge a configuration: a file ("" is none) and variables.
func settings(t testing.TB, what, file string, env map[string]string) map[string]string {
	t.Helper()
	args := []string{"config", "--json"}
	if file != "" {
		args = append(args, "--config", file)
	}
	cmd := exec.Command(binary, args...)
	for k, v := range env {
		if k == "CLEAVE_DIRECTORY" && strings.HasPrefix(v, "etcd://") {
			if !regexp.MustCompile(`^etcd://[a-z0-9.-]+:2379(,[a-z0-9.-]+:2379)*/[a-z]+$`).MatchString(v) {
				t.Errorf("%s: the directory %s", what, v)
			}
		}
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, stderr.String())
	}
	if strings.Contains(stderr.String(), "no setting") {
		t.Errorf("%s: %s", what, stderr.String())
	}
	var list []struct{ Name, Value string }
	if err := json.Unmarshal(stdout.Bytes(), &list); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, stdout.String())
	}
	values := map[string]string{}
	for _, s := range list {
		values[s.Name] = s.Value
	}
	return values
}

// What metrics there are, with the labels that Prometheus adds.
var (
	metricName = regexp.MustCompile(`\b(cleave_[a-z_]+|process_[a-z_]+|go_[a-z_]+|up)\b(\{[^}]*\})?`)
	labelName  = regexp.MustCompile(`([a-z_]+)\s*(=~|!~|!=|=)`)
	grouping   = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	quoted     = regexp.MustCompile(`"[^"]*"`)
	added      = []string{"instance", "job"}
)

// checkExpression wants each metric and label of an expression to exist.
func checkExpression(t *testing.T, where, expr string) {
	t.Helper()
	families := map[string][]string{"up": nil, "process_open_fds": nil, "process_max_fds": nil, "process_cpu_seconds_total": nil, "process_resident_memory_bytes": nil, "go_goroutines": nil}
	for _, f := range telemetry.Families() {
		families[f.Name] = f.Labels
		if f.Type == "histogram" {
			families[f.Name+"_bucket"] = append([]string{"le"}, f.Labels...)
			families[f.Name+"_sum"], families[f.Name+"_count"] = f.Labels, f.Labels
		}
	}
	var labels []string
	bare := quoted.ReplaceAllString(expr, `""`)
	found := metricName.FindAllStringSubmatch(bare, -1)
	if len(found) == 0 {
		t.Errorf("%s: no metric in %s", where, expr)
	}
	for _, m := range found {
		have, ok := families[m[1]]
		if !ok {
			t.Errorf("%s: there is no metric %s", where, m[1])
			continue
		}
		labels = append(labels, have...)
		for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(have, l[1]) && !slices.Contains(added, l[1]) {
				t.Errorf("%s: %s has no label %s", where, m[1], l[1])
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(bare, -1) {
		for _, l := range strings.Split(g[1], ",") {
			if l = strings.TrimSpace(l); l != "" && !slices.Contains(labels, l) && !slices.Contains(added, l) {
				t.Errorf("%s: no metric of it has the label %s", where, l)
			}
		}
	}
}

type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Record, Expr, For string
			Labels, Annotations      map[string]string
		}
	}
}

func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool := pgtest.Promtool(t)
	dir := filepath.Join(root, "deploy/prometheus")
	run(t, dir, promtool, "check", "rules", "rules.yml")
	run(t, dir, promtool, "check", "config", "prometheus.yml")
	run(t, dir, promtool, "test", "rules", "rules_test.yml")
	var rules ruleFile
	decode(t, "deploy/prometheus/rules.yml", &rules)
	tests, book := read(t, "deploy/prometheus/rules_test.yml"), read(t, "docs/operations.md")
	fires := regexp.MustCompile(`alertname: (\w+)\n        exp_alerts:\n`)
	calm := regexp.MustCompile(`alertname: (\w+)\n        exp_alerts: \[\]\n`)
	tested := map[string]int{}
	for _, m := range fires.FindAllStringSubmatch(tests, -1) {
		tested[m[1]] |= 1
	}
	for _, m := range calm.FindAllStringSubmatch(tests, -1) {
		tested[m[1]] |= 2
	}
	alerts := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			checkExpression(t, "rule "+r.Alert+r.Record, r.Expr)
			if r.Alert == "" {
				continue
			}
			alerts++
			if tested[r.Alert] != 3 {
				t.Errorf("%s: rules_test.yml lacks a case that fires, or one that does not", r.Alert)
			}
			if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
				t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
			}
			page, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "#")
			if !strings.HasSuffix(page, "/docs/operations.md") || !strings.Contains(strings.ToLower(book), "\n#### "+anchor+"\n") {
				t.Errorf("%s: %s leads to no heading", r.Alert, r.Annotations["runbook_url"])
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s says too little", r.Alert)
			}
		}
	}
	if alerts < 15 {
		t.Errorf("only %d alerts were seen", alerts)
	}
	// Each paragraph of the runbook has the next command, and an alert that leads there.
	for _, part := range strings.Split(book, "\n#### ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		if !strings.Contains(text, "`") {
			t.Errorf("the runbook of %s names no command", name)
		}
		if !strings.Contains(read(t, "deploy/prometheus/rules.yml"), "operations.md#"+strings.ToLower(name)+"\n") {
			t.Errorf("no alert leads to the runbook of %s", name)
		}
	}
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	var d struct {
		UID, Title string
		Templating struct {
			List []struct {
				Name, Type string
				Query      any
			}
		}
		Panels []struct {
			ID                       int
			Type, Title, Description string
			GridPos                  struct{ H, W, X, Y int }
			Targets                  []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana/cleave.json")), &d); err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{"__rate_interval": "5m"}
	for _, v := range d.Templating.List {
		variables[v.Name] = ".*"
		if q, ok := v.Query.(map[string]any); ok {
			text, _ := q["query"].(string)
			metric, label, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(text, "label_values("), ")"), ", ")
			checkExpression(t, "variable "+v.Name, fmt.Sprintf("sum by (%s) (%s)", label, metric))
		}
	}
	variable := regexp.MustCompile(`\$(\w+)`)
	shown := map[string]bool{}
	out := "groups:\n  - name: dashboard\n    rules:\n"
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("panel %d is there twice", p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q has no query, no title, or no place", p.ID, p.Title)
		}
		for i, target := range p.Targets {
			expr := variable.ReplaceAllStringFunc(target.Expr, func(v string) string {
				value, ok := variables[v[1:]]
				if !ok {
					t.Errorf("panel %q: there is no variable %s", p.Title, v)
				}
				return value
			})
			checkExpression(t, "panel "+p.Title, expr)
			for _, m := range metricName.FindAllStringSubmatch(expr, -1) {
				shown[m[1]] = true
			}
			quotedExpr, err := json.Marshal(expr)
			if err != nil {
				t.Fatal(err)
			}
			out += fmt.Sprintf("      - record: panel:%d:%d\n        expr: %s\n", p.ID, i, quotedExpr)
		}
	}
	// promtool reads each query as PromQL.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rules.yml"), []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, dir, pgtest.Promtool(t), "check", "rules", "rules.yml")
	for _, must := range []string{"cleave_statement_seconds_bucket", "cleave_pool_queue", "cleave_pool_wait_seconds_bucket", "cleave_errors_total", "cleave_map_version"} {
		if !shown[must] {
			t.Errorf("no panel shows %s", must)
		}
	}
}

// instructions reads a container file: lines joined, comments left out.
func instructions(text string) [][2]string {
	var out [][2]string
	for _, line := range strings.Split(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		out = append(out, [2]string{word, strings.TrimSpace(rest)})
	}
	return out
}

// buildStep is the container file's command that builds the program, with
// another place for the result.
func buildStep(from, to string) string {
	text, err := os.ReadFile(filepath.Join(root, "deploy/Dockerfile"))
	if err != nil {
		panic(err)
	}
	for _, i := range instructions(string(text)) {
		if i[0] == "RUN" && strings.Contains(i[1], "go build") {
			// -trimpath would have every package compiled anew: it is no part of the test.
			return strings.NewReplacer(from, to, " -trimpath", "").Replace(i[1])
		}
	}
	return "false"
}

func TestContainerFile(t *testing.T) {
	t.Parallel()
	known := []string{"FROM", "WORKDIR", "COPY", "RUN", "ARG", "USER", "ENV", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
	env := map[string]string{}
	words := map[string][]string{}
	stages := 0
	for _, i := range instructions(read(t, "deploy/Dockerfile")) {
		name, rest := i[0], i[1]
		if !slices.Contains(known, name) {
			t.Errorf("%s is no instruction that is known here", name)
		}
		words[name] = strings.Fields(rest)
		switch name {
		case "FROM":
			stages++
			if !strings.Contains(words[name][0], ":") || strings.HasSuffix(words[name][0], ":latest") {
				t.Errorf("FROM %s has no tag", rest)
			}
			if v, ok := strings.CutPrefix(words[name][0], "golang:"); ok && !strings.Contains(read(t, "go.mod"), "\ngo "+strings.SplitN(v, "-", 2)[0]) {
				t.Errorf("FROM %s is not the Go of go.mod", rest)
			}
		case "COPY":
			for _, f := range words[name][:len(words[name])-1] {
				if strings.HasPrefix(words[name][0], "--from") {
					break
				}
				if _, err := os.Stat(filepath.Join(root, f)); err != nil {
					t.Errorf("COPY: %v", err)
				}
			}
		case "ENV":
			for _, kv := range words[name] {
				k, v, _ := strings.Cut(kv, "=")
				env[k] = v
			}
		}
	}
	if stages != 2 {
		t.Errorf("%d stages", stages)
	}
	if u := words["USER"]; len(u) != 1 || strings.HasPrefix(u[0], "0") || strings.HasPrefix(u[0], "root") {
		t.Errorf("USER %v", u)
	}
	values := settings(t, "ENV of the container file", "", env)
	for i, name := range []string{"listen", "admin"} {
		if port := words["EXPOSE"][i]; !strings.HasSuffix(values[name], ":"+port) {
			t.Errorf("EXPOSE %s, but %s is %s", port, name, values[name])
		}
	}
	list := func(text string) []string {
		var out []string
		if err := json.Unmarshal([]byte(text[strings.IndexByte(text, '['):]), &out); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return out
	}
	for _, args := range [][]string{
		append(list(strings.Join(words["ENTRYPOINT"], " ")), list(strings.Join(words["CMD"], " "))...),
		list(strings.Join(words["HEALTHCHECK"], " ")),
	} {
		if args[0] != "cleave" {
			t.Errorf("%v is not the program", args)
		}
		run(t, "", binary, append(args[1:], "--help")...)
	}
	// The health check tells a router from none.
	cmd := exec.Command(binary, "health", "--admin", "127.0.0.1:1")
	if out, err := cmd.CombinedOutput(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("health of nobody: %v %s", err, out)
	}
}

func TestCompose(t *testing.T) {
	t.Parallel()
	type service struct {
		Image   string
		Build   *struct{ Context, Dockerfile string }
		Restart string
		Command []string

		Environment     map[string]string
		DependsOn       []string `yaml:"depends_on"`
		StopGracePeriod string   `yaml:"stop_grace_period"`
		Ulimits         map[string]int
		Ports, Volumes  []string
	}
	var c struct {
		Name     string
		Etcd     service `yaml:"x-etcd"`
		Router   service `yaml:"x-router"`
		Postgres service `yaml:"x-postgres"`
		Services map[string]service
		Volumes  map[string]any
		Networks map[string]struct {
			IPAM struct {
				Config []struct{ Subnet string }
			}
		}
	}
	decode(t, "deploy/compose.yaml", &c)
	count := map[string]int{}
	taken := map[string]string{}
	var hosts string
	for name, s := range c.Services {
		kind, _, _ := strings.Cut(name, "-")
		count[kind]++
		if (s.Image == "") == (s.Build == nil) || s.Image != "" && !strings.Contains(s.Image, ":") {
			t.Errorf("%s: image %q", name, s.Image)
		}
		for _, d := range s.DependsOn {
			if _, ok := c.Services[d]; !ok {
				t.Errorf("%s depends on %s, which is not there", name, d)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if strings.HasPrefix(from, "./") {
				if _, err := os.Stat(filepath.Join(root, "deploy", from)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			} else if _, ok := c.Volumes[from]; !ok {
				t.Errorf("%s: volume %s is not declared", name, from)
			}
		}
		for _, p := range s.Ports {
			host := p[:strings.LastIndexByte(p, ':')]
			if !strings.HasPrefix(host, "127.0.0.1:") || taken[host] != "" {
				t.Errorf("%s: port %s reaches out of this machine, or is that of %s", name, p, taken[host])
			}
			taken[host] = name
		}
		if kind != "router" {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, "deploy", s.Build.Context, s.Build.Dockerfile)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		values := settings(t, name, "", s.Environment)
		hosts = values["admin-hosts"]
		for i, setting := range []string{"listen", "admin"} {
			if _, port, _ := strings.Cut(values[setting], ":"); !strings.HasSuffix(s.Ports[i], ":"+port) {
				t.Errorf("%s: port %s, but %s is %s", name, s.Ports[i], setting, values[setting])
			}
		}
		for _, d := range strings.Split(strings.Split(strings.TrimPrefix(s.Environment["CLEAVE_DIRECTORY"], "etcd://"), "/")[0], ",") {
			if host, _, _ := strings.Cut(d, ":"); c.Services[host].Image == "" {
				t.Errorf("%s: the directory %s is not there", name, d)
			}
		}
		trust, err := netip.ParsePrefix(values["trust"])
		if err != nil || trust.String() != c.Networks["default"].IPAM.Config[0].Subnet {
			t.Errorf("%s: trust %s is not the network: %v", name, values["trust"], err)
		}
		grace, err := time.ParseDuration(s.StopGracePeriod)
		drain, err2 := time.ParseDuration(values["drain-timeout"])
		if err != nil || err2 != nil || grace < drain+5*time.Second {
			t.Errorf("%s: %s to stop, but it drains for %s", name, s.StopGracePeriod, drain)
		}
	}
	for kind, n := range map[string]int{"etcd": 3, "router": 2, "postgres": 2, "prometheus": 1, "grafana": 1} {
		if count[kind] != n {
			t.Errorf("%d services of %s, not %d", count[kind], kind, n)
		}
	}
	// Prometheus asks the routers under names that they know.
	for _, m := range regexp.MustCompile(`router-\d:\d+`).FindAllString(read(t, "deploy/prometheus/prometheus.yml"), -1) {
		name, port, _ := strings.Cut(m, ":")
		if _, ok := c.Services[name]; !ok || port != "6480" || !strings.Contains(hosts, name) {
			t.Errorf("Prometheus asks %s, but admin-hosts is %s", m, hosts)
		}
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	analyze := pgtest.SystemdAnalyze(t)
	for unit, file := range map[string]string{"cleave-router": "router.yaml", "cleave-up": "up.yaml", "cleave-coordinator": "coordinator.yaml"} {
		text := read(t, "deploy/systemd/"+unit+".service")
		line := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(text)[1]
		words := strings.Fields(line)
		if words[0] != "/usr/local/bin/cleave" || words[3] != "/etc/cleave/"+file {
			t.Errorf("%s: %s", unit, line)
		}
		run(t, "", binary, append(words[1:], "--help")...)
		dir := t.TempDir()
		copied := filepath.Join(dir, unit+".service")
		if err := os.WriteFile(copied, []byte(strings.ReplaceAll(text, words[0], binary)), 0o644); err != nil {
			t.Fatal(err)
		}
		if out := run(t, "", analyze, "verify", "--man=no", copied); strings.Contains(out, unit) {
			t.Errorf("%s: %s", unit, out)
		}
		// 0 is sealed, 10 open; what runs without a line of hardening has 9.6.
		run(t, "", analyze, "security", "--offline=true", "--no-pager", "--threshold=25", copied)
		values := settings(t, unit, filepath.Join(root, "deploy/systemd", file), nil)
		stop, err := time.ParseDuration(regexp.MustCompile(`TimeoutStopSec=(\d+)`).FindStringSubmatch(text)[1] + "s")
		drain, err2 := time.ParseDuration(values["drain-timeout"])
		// closeTimeout of cmd/cleave comes after the drain.
		if err != nil || err2 != nil || stop < drain+30*time.Second {
			t.Errorf("%s: %v to stop, but it drains for %v", unit, stop, drain)
		}
	}
}

func TestKubernetes(t *testing.T) {
	t.Parallel()
	// The types of the API are in a module of their own.
	build := exec.Command("go", "run", ".", "../../../deploy/kubernetes/router.yaml")
	build.Dir = "kube"
	build.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	var deployment, monitor struct {
		Spec struct {
			Template struct {
				Spec struct {
					TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
					Containers                    []struct {
						Args  []string
						Env   []struct{ Name, Value string }
						Ports []struct {
							Name          string
							ContainerPort int `yaml:"containerPort"`
						}
						StartupProbe, LivenessProbe, ReadinessProbe struct {
							HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
						} `yaml:",omitempty"`
						Lifecycle struct {
							PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
						}
					}
				}
			}
			Endpoints []struct{ Port string }
		}
	}
	var configMap struct{ Data map[string]string }
	for _, doc := range strings.Split(read(t, "deploy/kubernetes/router.yaml"), "\n---\n") {
		var head struct{ Kind string }
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatal(err)
		}
		into := map[string]any{"Deployment": &deployment, "ConfigMap": &configMap}[head.Kind]
		if into == nil {
			continue
		}
		if err := yaml.Unmarshal([]byte(doc), into); err != nil {
			t.Fatal(err)
		}
	}
	pod := deployment.Spec.Template.Spec
	c := pod.Containers[0]
	run(t, "", binary, append(c.Args, "--help")...)
	file := filepath.Join(t.TempDir(), "cleave.yaml")
	if err := os.WriteFile(file, []byte(configMap.Data["cleave.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, e := range c.Env {
		if e.Name == "CLEAVE_CONFIG" && e.Value != "/etc/cleave/cleave.yaml" {
			t.Errorf("CLEAVE_CONFIG is %s", e.Value)
		}
		if e.Value != "" && e.Name != "CLEAVE_CONFIG" {
			env[e.Name] = e.Value
		}
	}
	values := settings(t, "the ConfigMap", file, env)
	for i, setting := range []string{"listen", "admin"} {
		if !strings.HasSuffix(values[setting], fmt.Sprint(":", c.Ports[i].ContainerPort)) {
			t.Errorf("port %v, but %s is %s", c.Ports[i], setting, values[setting])
		}
	}
	drain, err := time.ParseDuration(values["drain-timeout"])
	if grace := time.Duration(pod.TerminationGracePeriodSeconds-c.Lifecycle.PreStop.Sleep.Seconds) * time.Second; err != nil || grace < drain+10*time.Second {
		t.Errorf("%v to stop, but it drains for %v", grace, drain)
	}
	if text := read(t, "deploy/kubernetes/router.yaml"); strings.Count(text, "path: /livez") != 2 || strings.Count(text, "path: /readyz") != 1 {
		t.Error("the probes are not /livez and /readyz")
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/kubernetes/servicemonitor.yaml")), &monitor); err != nil || monitor.Spec.Endpoints[0].Port != "admin" {
		t.Errorf("the ServiceMonitor: %v %+v", err, monitor)
	}
}

// TestRoles runs roles.sql on a server of each kind and makes a cluster of it: nothing is missing, and nothing too much.
// A cluster of a role that has too much, or of one that cannot move ranges, is told what to do.
func TestRoles(t *testing.T) {
	psql := pgtest.PSQL(t)
	versions := pgtest.Versions(t)
	for _, install := range []localpg.Installation{versions[0], versions[len(versions)-1]} {
		t.Run(install.Version, func(t *testing.T) {
			t.Parallel()
			s := pgtest.NewServerOf(t, install, map[string]string{"fsync": "on", "full_page_writes": "on"})
			for _, sql := range []string{"DROP OWNED BY cleave_mover", "DROP ROLE cleave_mover", "ALTER DATABASE postgres OWNER TO postgres", "DROP ROLE cleave", "CREATE ROLE plain LOGIN", "CREATE DATABASE plain OWNER plain"} {
				pgtest.Ask(t, s.SuperuserURL("postgres"), sql)
			}
			cmd := exec.Command(psql, "-X", "-v", "ON_ERROR_STOP=1", "-f", filepath.Join(root, "deploy/roles.sql"), s.SuperuserURL("postgres"))
			cmd.Env = append(os.Environ(), "CLEAVE_PASSWORD=one's own", "CLEAVE_MOVER_PASSWORD=another")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			made := func(database, url string) string {
				t.Helper()
				out, err := exec.Command(binary, "init", "--directory", "file:"+filepath.Join(t.TempDir(), "map.db"), database+"="+url).CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				return string(out)
			}
			if out := made("s0", s.URL("shard")); strings.Contains(out, "warning") {
				t.Errorf("with the roles of roles.sql: %s", out)
			}
			if got := pgtest.Ask(t, s.SuperuserURL("postgres"), "SELECT count(*) FROM pg_authid WHERE rolname LIKE 'cleave%' AND rolpassword LIKE 'SCRAM-SHA-256$%'"); got != "2" {
				t.Errorf("%s roles have a password", got)
			}
			out := made("s0", strings.Replace(s.URL("plain"), "cleave@", "plain@", 1))
			for _, want := range []string{"privilege REPLICATION is not granted to plain", "session_replication_role is not granted", "CREATE ROLE plain_mover LOGIN REPLICATION"} {
				if !strings.Contains(out, want) {
					t.Errorf("a role that cannot move ranges: %q is not in %s", want, out)
				}
			}
			// What it is told helps.
			fix := regexp.MustCompile(`\((CREATE ROLE plain_mover [^()]*)\)`).FindStringSubmatch(out)
			if fix == nil {
				t.Fatalf("no statements in %s", out)
			}
			for _, sql := range strings.Split(fix[1], ";") {
				pgtest.Ask(t, s.SuperuserURL("postgres"), sql)
			}
			pgtest.Ask(t, s.SuperuserURL("plain"), "DROP SCHEMA cleave_internal CASCADE")
			if out := made("s0", strings.Replace(s.URL("plain"), "cleave@", "plain@", 1)); strings.Contains(out, "warning") {
				t.Errorf("with the statements of the warning: %s", out)
			}
			pgtest.Ask(t, s.SuperuserURL("postgres"), "CREATE DATABASE super")
			if out := made("s0", s.SuperuserURL("super")); !strings.Contains(out, "rights of postgres beyond its need is superuser") {
				t.Errorf("a superuser: %s", out)
			}
		})
	}
}
