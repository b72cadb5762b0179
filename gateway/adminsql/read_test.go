package adminsql

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestWrongCalls: what a call says wrong is told before the operation is asked.
func TestWrongCalls(t *testing.T) {
	word := func(s string) plan.CallArg { return plan.CallArg{Text: s} }
	named := func(name, s string) plan.CallArg { return plan.CallArg{Name: name, Text: s} }
	null := plan.CallArg{Null: true}
	for _, c := range []struct {
		function string
		args     []plan.CallArg
		want     string // "" where it is read
	}{
		{"pin", []plan.CallArg{word("k"), word("5"), word("s")}, ""},
		{"pin", []plan.CallArg{word("k"), named("shard", "s"), named("key", "5")}, ""},
		{"pin", []plan.CallArg{word("k"), word("5")}, "cleave.pin needs shard"},
		{"pin", []plan.CallArg{word("k"), null, word("s")}, "cleave.pin needs key"},
		{"pin", []plan.CallArg{word("k"), {Array: []plan.CallArg{null}}, word("s")}, "key must not hold NULL"},
		{"pin", []plan.CallArg{word("k"), word("5"), word("s"), word("x")}, "cleave.pin takes at most 3 arguments, not 4"},
		{"pin", []plan.CallArg{word("k"), named("keyspace", "k")}, `parameter "keyspace" is given twice`},
		{"pin", []plan.CallArg{named("where", "k")}, `cleave.pin has no parameter "where"`},
		{"pin", []plan.CallArg{{Param: 1}}, "argument 1 of cleave.pin: parameter $1 has no value"},
		{"shard_of", []plan.CallArg{word("k"), word("5"), word("6")}, ""},
		{"shard_of", []plan.CallArg{word("k"), {Array: []plan.CallArg{word("5")}}}, ""},
		{"shard_of", []plan.CallArg{word("k"), null}, "a key must not be NULL"},
		{"shard_of", []plan.CallArg{word("k")}, "cleave.shard_of needs key"},
		{"rollback", []plan.CallArg{word("m")}, ""},
		{"drain", []plan.CallArg{word("s"), named("finish", "true"), named("complete", "true")}, `parameter "complete" is given twice`},
	} {
		f, err := Find(c.function)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Read(&plan.CallExpr{Function: c.function, Args: c.args}, &plan.Args{})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s%v: %v", c.function, c.args, err)
		case c.want != "" && (sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue || sqlstate.As(err).Message != c.want || !strings.HasPrefix(sqlstate.As(err).Hint, "usage: SELECT cleave.")):
			t.Errorf("%s%v: %v, want %s", c.function, c.args, err, c.want)
		}
	}
	if _, err := Find("nothing"); sqlstate.CodeOf(err) != sqlstate.UndefinedFunction {
		t.Errorf("a function that is not there: %v", err)
	}
}
