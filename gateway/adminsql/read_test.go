package adminsql

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestWrongCalls: what a call says wrong is told before the operation is asked.
func TestWrongCalls(t *testing.T) {
	word := func(s string) planner.CallArg { return planner.CallArg{Text: s} }
	named := func(name, s string) planner.CallArg { return planner.CallArg{Name: name, Text: s} }
	null := planner.CallArg{Null: true}
	for _, c := range []struct {
		function string
		args     []planner.CallArg
		want     string // "" where it is read
	}{
		{"pin", []planner.CallArg{word("k"), word("5"), word("s")}, ""},
		{"pin", []planner.CallArg{word("k"), named("shard", "s"), named("key", "5")}, ""},
		{"pin", []planner.CallArg{word("k"), word("5")}, "cleave.pin needs shard"},
		{"pin", []planner.CallArg{word("k"), null, word("s")}, "cleave.pin needs key"},
		{"pin", []planner.CallArg{word("k"), {Array: []planner.CallArg{null}}, word("s")}, "key must not hold NULL"},
		{"pin", []planner.CallArg{word("k"), word("5"), word("s"), word("x")}, "cleave.pin takes at most 3 arguments, not 4"},
		{"pin", []planner.CallArg{word("k"), named("keyspace", "k")}, `parameter "keyspace" is given twice`},
		{"pin", []planner.CallArg{named("where", "k")}, `cleave.pin has no parameter "where"`},
		{"pin", []planner.CallArg{{Param: 1}}, "argument 1 of cleave.pin: parameter $1 has no value"},
		{"shard_of", []planner.CallArg{word("k"), word("5"), word("6")}, ""},
		{"shard_of", []planner.CallArg{word("k"), {Array: []planner.CallArg{word("5")}}}, ""},
		{"shard_of", []planner.CallArg{word("k"), null}, "a key must not be NULL"},
		{"shard_of", []planner.CallArg{word("k")}, "cleave.shard_of needs key"},
		{"rollback", []planner.CallArg{word("m")}, ""},
		{"drain", []planner.CallArg{word("s"), named("finish", "true"), named("complete", "true")}, `parameter "complete" is given twice`},
	} {
		f, err := Find(c.function)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Read(&planner.CallExpr{Function: c.function, Args: c.args}, &planner.Args{})
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
