package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Module is the path of the Go module that is checked.
const Module = "github.com/cleavedb/cleave"

// rooms are the packages with one job each, in order: a room imports only
// rooms that stand before it.
var rooms = []string{
	"sqlstate",
	"keyspace",
	"placement",
	"shardmap",
	"access",
	"ids",
	"telemetry",
	"engine",
	"workflow",
	"planner",
	"executor",
	"schema",
	"coordinator",
	"admin",
	"backup",
	"gateway",
	client,
	"cmd/cleave",
	"sim",
}

// client is the room in the module's root folder: the package cleave.
const client = "cleave"

// never takes rooms away from what the order would allow.
var never = map[string][]string{
	"telemetry": {"sqlstate", "keyspace", "shardmap", "ids"},
	"engine":    {"shardmap", "ids"},
	// The steps are pure, and know of shards only what the map says.
	"workflow":    {"access", "ids", "telemetry", "engine"},
	"coordinator": {"access", "ids", "planner", "executor"},
	"planner":     {"engine", "workflow"},
	// The shards, the routers and the directory are simulated.
	"sim":      {"placement", "access", "ids", "telemetry", "planner", "executor", "admin", "gateway", client, "cmd/cleave"},
	"executor": {},
	"gateway":  {},
}

// leaves are drivers: only what wires the rooms together and tests import them,
// and they never import each other.
var leaves = []string{
	"shardmap/memory",
	"shardmap/sqlitedir",
	"shardmap/etcd",
	"engine/postgres",
	"engine/sqlite",
}

// suites and harnesses are imported by tests only.
var testOnly = []string{
	"shardmap/shardmaptest",
	"engine/enginetest",
	"internal/pgtest",
	"internal/oteltest",
	"internal/etcdtest",
	"internal/s3test",
	"internal/clustertest",
	"internal/testrun",
	"internal/waitfor",
}

// beside are packages outside of the rooms: what they import of this module,
// and who imports them. "*" is everybody.
var beside = map[string]struct{ imports, importers []string }{
	"internal/wire":     {[]string{"sqlstate"}, []string{"engine", "executor", "schema", "admin", "gateway", client, "cmd/cleave"}},
	"internal/lane":     {nil, []string{"engine", "engine/postgres", "executor", "gateway"}},
	"internal/sqlguard": {[]string{"sqlstate"}, []string{"planner", "executor/several", "engine/sqlite"}},
	"internal/virtual":  {nil, []string{"planner", "gateway", "engine/sqlite"}},
	// Fields of messages in their order.
	"internal/prototree": {nil, []string{"planner", "engine/sqlite"}},
	// PostgreSQL's own types, functions and so on, as data.
	"internal/pgcatalog": {nil, []string{"planner", "engine/sqlite"}},
	// OIDs of built-in types.
	"internal/pgoid":     {nil, []string{"planner", "engine/sqlite", "executor/several", "executor/timeinput", "gateway"}},
	"internal/pgbackend": {[]string{"sqlstate"}, []string{"engine/sqlite", "executor/several", "executor/txn", "gateway"}},
	// What the shards of an engine can do, as data.
	"engine/capability": {nil, []string{"shardmap", "engine/enginetest", "executor/several", "executor/txn", "schema", "internal/config", "internal/wiring"}},
	"internal/localpg":  {[]string{"sqlstate"}, []string{"cmd/cleave", "internal/pgtest", "bench"}},
	"internal/config":   {[]string{"sqlstate"}, []string{"cmd/cleave", client, "internal/wiring", "internal/clustertest"}},
	"internal/pipe":     {nil, []string{client}},
	// Where backups lie; who has no use for buckets does not import their driver.
	"backup/repository":    {[]string{"sqlstate"}, []string{"backup", "admin", "coordinator", "cmd/cleave", "internal/wiring"}},
	"backup/retention":     {nil, []string{"backup", "admin", "coordinator", "cmd/cleave", "internal/wiring"}},
	"backup/repository/s3": {[]string{"sqlstate", "backup/repository"}, []string{"cmd/cleave"}},
	// Of programs that are built for test/crash.
	"internal/crashpoint": {nil, []string{"schema", "admin", "coordinator"}},
	"internal/wiring": {[]string{"sqlstate", "shardmap", "access", "telemetry", "engine", "planner", "executor", "coordinator", "admin", "gateway", "internal/config"},
		[]string{"cmd/cleave", client, "internal/clustertest"}},
	"internal/lint":        {[]string{"sqlstate"}, nil},
	"internal/waitfor":     {nil, nil},
	"internal/testrun":     {nil, nil},
	"internal/oteltest":    {nil, nil},
	"internal/pgtest":      {[]string{"sqlstate", "internal/localpg", "internal/testrun"}, nil},
	"internal/etcdtest":    {[]string{"internal/pgtest"}, nil},
	"internal/s3test":      {[]string{"internal/pgtest"}, nil},
	"internal/clustertest": {[]string{"admin", "gateway", "internal/config", "internal/pgtest", "internal/wiring"}, nil},

	// Of cleave simulate.
	"internal/chart":     {nil, []string{"cmd/cleave"}},
	"internal/keysource": {[]string{"sqlstate", "keyspace"}, []string{"cmd/cleave"}},
}

// free are folders of programs and tests that use the public surface and may
// import anything; nobody imports them.
var free = []string{"bench", "examples", "test"}

// noOutside are rooms that compute: no files, no network.
var noOutside = map[string][]string{
	"sqlstate": {"os", "net", "syscall", "time"},
	"keyspace": {"os", "net", "syscall"},
	"planner":  {"os", "net", "syscall"},
	"workflow": {"os", "net", "syscall", "math/rand", "crypto/rand"},
	// A seed comes from the caller, and so does everything else.
	"placement": {"os", "net", "syscall", "time", "math/rand", "crypto/rand"},
}

// noClock are rooms that must give the same answer at any time of day.
var noClock = []string{"sqlstate", "keyspace", "placement", "planner", "workflow"}

// libraries are dependencies that only some packages may know.
var libraries = map[string][]string{
	"github.com/pganalyze/pg_query_go/v6": {"planner", "engine/sqlite"},
	"zombiezen.com/go/sqlite":             {"engine/sqlite", "shardmap/sqlitedir"},
	"modernc.org/sqlite":                  {"engine/sqlite", "shardmap/sqlitedir"},
	"go.etcd.io/etcd/client/v3":           {"shardmap/etcd", "internal/etcdtest"},
	"gonum.org/v1/plot":                   {"internal/chart"},
	"github.com/axiomhq/hyperloglog":      {"placement/simulate"},
	"github.com/spf13/cobra":              {"cmd/cleave"},
	"github.com/spf13/pflag":              {"cmd/cleave"},
	"golang.org/x/term":                   {"cmd/cleave"},
	"gopkg.in/yaml.v3":                    {"internal/config"},
	"github.com/prometheus":               {"telemetry", client},
	"go.opentelemetry.io":                 {"telemetry/trace", "internal/oteltest"},
	"google.golang.org/grpc":              {"internal/oteltest", "shardmap/etcd"},
	"github.com/minio/minio-go/v7":        {"backup/repository/s3", "internal/s3test"},
	"filippo.io/age":                      {"backup/repository"},
	"github.com/klauspost/compress":       {"backup/repository"},
}

// wirer alone knows the drivers: cmd/cleave and the root package share it.
const wirer = "internal/wiring"

func within(pkg, folder string) bool {
	return pkg == folder || strings.HasPrefix(pkg, folder+"/")
}

func listed(pkg string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return within(pkg, f) })
}

// roomOf returns the index of the room that pkg belongs to, -1 for none.
func roomOf(pkg string) int {
	return slices.IndexFunc(rooms, func(r string) bool { return within(pkg, r) })
}

// allowed says whether the package from may import the package to, both as
// folders of the module; test is true for test files. why is empty if it may.
func allowed(from, to string, test bool) (why string) {
	if from == to {
		return ""
	}
	if listed(to, free) && !within(to, from) && !siblings(from, to) {
		return "nobody imports programs and end-to-end tests"
	}
	if listed(to, testOnly) && !test && !listed(from, free) && !listed(from, testOnly) {
		return "is for tests only"
	}
	if listed(from, free) {
		return ""
	}
	if to == "internal/waitfor" && listed(from, testOnly) {
		return "" // suites wait for states as tests do
	}
	if test && (listed(to, leaves) || listed(to, testOnly) || within(to, "internal/localpg") || within(to, "internal/wire")) {
		return "" // tests run on real drivers
	}
	if listed(to, leaves) && !sameLeaf(from, to) {
		if from == wirer {
			return ""
		}
		if roomOf(from) != roomOf(to) || listed(from, leaves) {
			return "a driver is known to " + wirer + " and to tests only"
		}
	}
	if b, ok := beside[to]; ok && !listed(to, testOnly) {
		if !listed(from, b.importers) {
			return fmt.Sprintf("is only for %s", strings.Join(b.importers, ", "))
		}
		return ""
	}
	if b, ok := beside[from]; ok {
		if !listed(to, b.imports) {
			return fmt.Sprintf("%s knows only %s", from, strings.Join(append([]string{"the standard library"}, b.imports...), ", "))
		}
		return ""
	}
	fr, tr := roomOf(from), roomOf(to)
	switch {
	case fr < 0:
		return from + " is in no row of internal/lint/rooms.go"
	case tr < 0:
		return to + " is in no row of internal/lint/rooms.go"
	case tr > fr:
		return fmt.Sprintf("%s stands after %s: a room imports only rooms before it", rooms[tr], rooms[fr])
	case tr != fr && slices.Contains(never[rooms[fr]], rooms[tr]):
		return fmt.Sprintf("%s must not know %s", rooms[fr], rooms[tr])
	}
	return ""
}

// sameLeaf says whether two packages are parts of one driver.
func sameLeaf(from, to string) bool {
	return slices.ContainsFunc(leaves, func(leaf string) bool { return within(from, leaf) && within(to, leaf) })
}

// siblings says whether two packages are parts of one folder of tests, such as
// test/differential/corpus and test/differential/compare.
func siblings(from, to string) bool {
	folder := path.Dir(to)
	return strings.Contains(folder, "/") && within(from, folder)
}

// known says whether a folder with Go files is in a row at all.
func known(pkg string) bool {
	_, ok := beside[pkg]
	return ok || roomOf(pkg) >= 0 || listed(pkg, free)
}
