package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/gateway/adminsql"
	"github.com/cleavedb/cleave/shardmap/memory"
)

// form is what an operation is called on the command line, in SQL and in the HTTP API. "-" and words behind it: it has no such form, for that reason.
type form struct{ command, function, route string }

// forms are those of each method of admin.API.
var forms = map[string]form{
	"Map":              {"map show", "- the virtual tables have it", "map"},
	"Status":           {"map show", "- the virtual tables have it", "status"},
	"Shards":           {"shard list", "- cleave.shards", "shards"},
	"Keyspaces":        {"keyspace list", "- cleave.keyspaces", "keyspaces"},
	"Tables":           {"table list", "- cleave.tables", "tables"},
	"Routers":          {"router list", "- cleave.routers", "routers"},
	"Ranges":           {"map show", "- cleave.ranges", "ranges"},
	"Pins":             {"- map show has them", "- cleave.pins", "pins"},
	"History":          {"map history", "- cleave.history", "history"},
	"Diff":             {"map diff", "- a difference of two maps is for people", "diff"},
	"ShardOf":          {"shard-of", "shard_of", "shard_of"},
	"Doctor":           {"doctor", "- it looks at the shards for longer than a statement may take", "doctor"},
	"CreateKeyspace":   {"keyspace create", "create_keyspace", "create_keyspace"},
	"DropKeyspace":     {"keyspace drop", "drop_keyspace", "drop_keyspace"},
	"Distribute":       {"table distribute", "distribute", "distribute"},
	"Declare":          {"- cleave sql: it is a part of a schema change", "declare", "declare"},
	"Pin":              {"pin", "pin", "pin"},
	"Unpin":            {"unpin", "unpin", "unpin"},
	"AddShard":         {"shard add", "add_shard", "shard_add"},
	"RemoveShard":      {"shard remove", "remove_shard", "shard_remove"},
	"MoveDefault":      {"shard default", "- it copies for longer than a statement may take", "shard_default"},
	"SetShard":         {"shard set", "set_shard", "shard_set"},
	"AddReplica":       {"shard replica add", "add_replica", "replica_add"},
	"RemoveReplica":    {"shard replica remove", "remove_replica", "replica_remove"},
	"Moves":            {"moves", "- cleave.workflows", "moves"},
	"Move":             {"move", "move", "move"},
	"Split":            {"split", "split", "split"},
	"Merge":            {"merge", "merge", "merge"},
	"Drain":            {"shard drain", "drain", "shard_drain"},
	"Spread":           {"spread", "spread", "spread"},
	"Plan":             {"plan", "plan", "plan"},
	"ShowPlan":         {"plan show", "- a plan is for people", "plan_show"},
	"Approve":          {"plan approve", "approve", "plan_approve"},
	"Pause":            {"pause", "pause", "pause"},
	"Resume":           {"resume", "resume", "resume"},
	"Cancel":           {"cancel", "cancel", "cancel"},
	"Reverse":          {"reverse", "reverse", "reverse"},
	"Complete":         {"complete", "complete", "complete"},
	"Verify":           {"verify", "verify", "verify"},
	"VerifyPieces":     {"verify", "- cleave.verify does it in one statement", "verify_pieces"},
	"Users":            {"user list", "- cleave.users", "users"},
	"AddUser":          {"user add", "- CREATE USER", "user_add"},
	"ChangeUser":       {"user password", "- ALTER USER", "user_change"},
	"RemoveUser":       {"user remove", "- DROP USER", "user_remove"},
	"Sessions":         {"sessions", "- cleave.sessions", "sessions"},
	"CancelSession":    {"sessions cancel", "cancel_session", "session_cancel"},
	"TerminateSession": {"sessions terminate", "terminate_session", "session_terminate"},
	"Heat":             {"heat", "- cleave.heat", "heat"},
	"Constraints":      {"constraint list", "- cleave.constraints", "constraints"},
	"AddConstraint":    {"constraint add", "add_constraint", "constraint_add"},
	"RemoveConstraint": {"constraint remove", "remove_constraint", "constraint_remove"},
	"Policy":           {"policy", "- cleave.policy", "policy"},
	"SetPolicy":        {"policy set", "set_policy", "policy_set"},
}

// routed reports whether the admin API has something under a name.
func routed(t *testing.T, name string) bool {
	t.Helper()
	handler := api.NewHandler(api.Options{API: admin.New(admin.Options{Directory: memory.New()})})
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		r := httptest.NewRequest(method, "http://127.0.0.1/api/v1/"+name+"?no_such_parameter=1", bytes.NewBufferString("{"))
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		body, err := io.ReadAll(w.Result().Body)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(body), "there is nothing at") {
			return true
		}
	}
	return false
}

// TestOlderForms: what was renamed is taken by its old name too, and shown by its new one only. SQL's are in
// test/move, TestDrainAndReversals.
func TestOlderForms(t *testing.T) {
	root := tree()
	for old, now := range map[string]string{"rollback": "reverse", "finish": "complete"} {
		a, _, err := root.Find([]string{old})
		b, _, errNow := root.Find([]string{now})
		if err != nil || errNow != nil || !a.Hidden || b.Hidden || a.Short != b.Short {
			t.Errorf("command %s: %v, %v", old, err, errNow)
		}
		if !routed(t, old) {
			t.Errorf("there is no route %s", old)
		}
	}
	for _, path := range []string{"shard drain", "grow"} {
		cmd, _, err := root.Find(strings.Fields(path))
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.ParseFlags([]string{"--finish"}); err != nil || cmd.Flags().Lookup("complete").Value.String() != "true" || !cmd.Flags().Lookup("finish").Hidden {
			t.Errorf("%s --finish: %v", path, err)
		}
	}
}

// TestEachOperationHasItsForms: what can be done to a cluster can be done on the command line, in SQL and over HTTP, or it says here why not.
// Functions of SQL that are no operation's are found too.
func TestEachOperationHasItsForms(t *testing.T) {
	if routed(t, "nothing") {
		t.Error("a route that there is not was found")
	}
	root := tree()
	all := adminsql.Names()
	known := []string{"undeclare"} // with declare
	of := reflect.TypeOf((*admin.API)(nil)).Elem()
	for i := range of.NumMethod() {
		name := of.Method(i).Name
		f, ok := forms[name]
		if !ok {
			t.Errorf("admin.API.%s has no row in forms", name)
			continue
		}
		if cmd, rest, err := root.Find(strings.Fields(f.command)); !strings.HasPrefix(f.command, "- ") && (err != nil || len(rest) > 0 || cmd == root) {
			t.Errorf("%s: there is no command %q", name, f.command)
		}
		if known = append(known, f.function); !strings.HasPrefix(f.function, "- ") && !slices.Contains(all, f.function) {
			t.Errorf("%s: there is no function cleave.%s", name, f.function)
		}
		if !routed(t, f.route) {
			t.Errorf("%s: there is no route %s", name, f.route)
		}
	}
	if len(forms) != of.NumMethod() {
		t.Errorf("%d rows for %d operations", len(forms), of.NumMethod())
	}
	for _, f := range all {
		if !slices.Contains(known, f) {
			t.Errorf("cleave.%s is no operation's form", f)
		}
	}
}
