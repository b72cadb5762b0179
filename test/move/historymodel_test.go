package move

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/cleavedb/cleave/internal/testrun"
)

// What one object (a counter, an account, a register, a list, a token) is asked, and what
// it answers. All values are texts, as the wire has them.
type (
	input struct {
		Do   string `json:"do"`
		A    int64  `json:"a,omitempty"`
		B    int64  `json:"b,omitempty"`
		Text string `json:"text,omitempty"`
	}
	output struct {
		// Unknown: it may or may not have been done, now or later.
		Unknown bool       `json:"unknown,omitempty"`
		Rows    [][]string `json:"rows,omitempty"`
		Hit     int64      `json:"hit"`
	}
)

// register is the state of a register.
type register struct {
	There bool
	Value int64
}

// never is the response time of what was not answered: porcupine may put it after
// everything else, where it is as if it had not been done.
const never = int64(1) << 62

// one returns the only value of an answer.
func (o output) one() string {
	if len(o.Rows) != 1 || len(o.Rows[0]) != 1 {
		return ""
	}
	return o.Rows[0][0]
}

// step is the sequential behaviour of an object of a kind.
func step(kind string, state any, in input, out output) (bool, any) {
	switch kind {
	case "counter", "account":
		was := state.(int64)
		switch in.Do {
		case "add":
			return out.Unknown || out.one() == strconv.FormatInt(was+in.A, 10), was + in.A
		case "replace": // read under a lock, then written
			if out.Unknown && was != in.A {
				return true, was // it cannot have been done here
			}
			return was == in.A && (out.Unknown || out.Hit == 1), in.B
		}
		return out.one() == strconv.FormatInt(was, 10), was
	case "register":
		was := state.(register)
		hit := int64(0)
		next := was
		switch in.Do {
		case "write":
			if was.There {
				hit, next.Value = 1, in.A
			}
		case "swap":
			if was.There && was.Value == in.A {
				hit, next.Value = 1, in.B
			}
		case "put":
			hit, next = 1, register{true, in.A}
		case "delete":
			if was.There {
				hit, next = 1, register{}
			}
		default:
			if !was.There {
				return len(out.Rows) == 0, was
			}
			return out.one() == strconv.FormatInt(was.Value, 10), was
		}
		return out.Unknown || out.Hit == hit, next
	case "list":
		was := state.(string)
		if in.Do == "append" {
			return out.Unknown || out.one() == strconv.Itoa(len(was)+len(in.Text)), was + in.Text
		}
		return out.one() == was && len(out.Rows) == 1, was
	case "token":
		was := state.(int64)
		if in.Do == "go" {
			if was != in.A {
				return out.Unknown || out.Hit == 0, was
			}
			return out.Unknown || out.Hit == 1, in.B
		}
		return out.one() == strconv.FormatInt(was, 10), was
	}
	panic("no object is a " + kind)
}

// kindOf is the kind of an object: what stands before the slash.
func kindOf(object string) string {
	kind, _, _ := strings.Cut(object, "/")
	return kind
}

func model(kind string, initial any) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, in, out any) (bool, any) { return step(kind, state, in.(input), out.(output)) },
		DescribeOperation: func(in, out any) string {
			return fmt.Sprintf("%+v: %+v", in, out)
		},
	}
}

// recorder keeps the histories of a round.
type recorder struct {
	begun time.Time

	mu      sync.Mutex
	objects map[string][]porcupine.Operation
	count   int
}

func (r *recorder) now() int64 { return time.Since(r.begun).Nanoseconds() }

func (r *recorder) add(object string, op porcupine.Operation) {
	if op.Output.(output).Unknown {
		op.Return = never
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects[object] = append(r.objects[object], op)
	r.count++
}

// initial is what an object is before the first operation, by what a read of all tables gave.
type world struct {
	objects map[string]any
}

// checkMax bounds the check of one object, which has no bound of its own.
const checkMax = 20 * time.Second

// check compares each object's history with what one such object could answer, and with
// what was found in the end. It returns those that could not be, and how many checks
// were given up.
func (r *recorder) check(before, after world) (wrong []string, unproven int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := r.now()
	for _, object := range slices.Sorted(maps.Keys(before.objects)) {
		kind := kindOf(object)
		history := append(promised(kind, r.objects[object]), porcupine.Operation{ClientId: 99, Input: input{Do: "read"}, Output: final(after.objects[object]), Call: end + 1, Return: end + 2})
		switch porcupine.CheckOperationsTimeout(model(kind, before.objects[object]), history, checkMax) {
		case porcupine.Illegal:
			wrong = append(wrong, object)
		case porcupine.Unknown:
			unproven++
		}
	}
	return wrong, unproven
}

// promised leaves out of a token's history what no statement is promised: one that goes to one shard may miss a token that is
// between two shards, committed on one and still prepared on the other (docs/consistency.md, `shard`). Where a router is
// stopped between the two that lasts until another finds it.
func promised(kind string, list []porcupine.Operation) []porcupine.Operation {
	if kind != "token" {
		return slices.Clone(list)
	}
	goes := func(op porcupine.Operation) bool {
		return op.Input.(input).Do == "go" && (op.Output.(output).Unknown || op.Output.(output).Hit > 0)
	}
	return slices.DeleteFunc(slices.Clone(list), func(op porcupine.Operation) bool {
		return op.Input.(input).Do == "go" && !goes(op) &&
			slices.ContainsFunc(list, func(o porcupine.Operation) bool { return goes(o) && o.Call < op.Return && op.Call < o.Return })
	})
}

// final is the answer that a read of a state gives.
func final(state any) output {
	switch s := state.(type) {
	case int64:
		return output{Rows: [][]string{{strconv.FormatInt(s, 10)}}, Hit: 1}
	case string:
		return output{Rows: [][]string{{s}}, Hit: 1}
	case register:
		if s.There {
			return output{Rows: [][]string{{strconv.FormatInt(s.Value, 10)}}, Hit: 1}
		}
	}
	return output{}
}

// write writes the histories to files that stay: one of JSON lines with everything, and a
// picture of each object that is wrong.
func (r *recorder) write(t testing.TB, head string, wrong []string, before, after world) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cleave-history-")
	if err != nil {
		t.Error(err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	b.WriteString(head)
	for _, object := range slices.Sorted(maps.Keys(r.objects)) {
		fmt.Fprintf(&b, "\n== %s: %v before, %v after\n", object, before.objects[object], after.objects[object])
		list := slices.Clone(r.objects[object])
		slices.SortFunc(list, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, op := range list {
			in, _ := json.Marshal(op.Input)
			out, _ := json.Marshal(op.Output)
			fmt.Fprintf(&b, "%v..%v client %d %v %s -> %s\n", time.Duration(op.Call), time.Duration(op.Return), op.ClientId, op.Metadata, in, out)
		}
	}
	path := filepath.Join(dir, "history.txt")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Error(err)
	}
	t.Logf("the histories are in %s", path)
	for i, object := range wrong {
		if i == 3 {
			break
		}
		m := model(kindOf(object), before.objects[object])
		_, info := porcupine.CheckOperationsVerbose(m, r.objects[object], checkMax)
		if err := porcupine.VisualizePath(m, info, filepath.Join(dir, strings.ReplaceAll(object, "/", "-")+".html")); err != nil {
			t.Error(err)
		}
	}
}

// TestHistoryModel: the checker finds what must not be.
func TestHistoryModel(t *testing.T) {
	testrun.Short(t)
	op := func(call, ret int64, in input, out output) porcupine.Operation {
		return porcupine.Operation{Input: in, Output: out, Call: call, Return: ret}
	}
	rows := func(v string) output { return output{Rows: [][]string{{v}}, Hit: 1} }
	unknown := output{Unknown: true}
	cases := []struct {
		name, object  string
		before, after any
		list          []porcupine.Operation
		wrong         bool
	}{
		{"lost increment", "counter/1", int64(0), int64(1), []porcupine.Operation{op(1, 2, input{Do: "add", A: 1}, rows("1")), op(3, 4, input{Do: "add", A: 1}, rows("2"))}, true},
		{"stale read", "counter/1", int64(0), int64(1), []porcupine.Operation{op(1, 2, input{Do: "add", A: 1}, rows("1")), op(3, 4, input{Do: "read"}, rows("0"))}, true},
		{"read beside a write", "counter/1", int64(0), int64(1), []porcupine.Operation{op(1, 4, input{Do: "add", A: 1}, rows("1")), op(2, 3, input{Do: "read"}, rows("0"))}, false},
		{"not done", "counter/1", int64(0), int64(0), []porcupine.Operation{op(1, 2, input{Do: "add", A: 1}, unknown)}, false},
		{"done late", "counter/1", int64(0), int64(1), []porcupine.Operation{op(1, 2, input{Do: "add", A: 1}, unknown), op(3, 4, input{Do: "read"}, rows("0"))}, false},
		{"done twice", "counter/1", int64(0), int64(2), []porcupine.Operation{op(1, 2, input{Do: "add", A: 1}, unknown)}, true},
		{"lost update", "counter/1", int64(5), int64(6), []porcupine.Operation{
			op(1, 4, input{Do: "replace", A: 5, B: 6}, output{Hit: 1}), op(2, 5, input{Do: "replace", A: 5, B: 6}, output{Hit: 1})}, true},
		{"swap", "register/1", register{true, 1}, register{true, 3}, []porcupine.Operation{
			op(1, 2, input{Do: "swap", A: 1, B: 2}, output{Hit: 1}), op(3, 4, input{Do: "swap", A: 1, B: 9}, output{}), op(5, 6, input{Do: "write", A: 3}, output{Hit: 1})}, false},
		{"swapped twice", "register/1", register{true, 1}, register{true, 3}, []porcupine.Operation{
			op(1, 2, input{Do: "swap", A: 1, B: 2}, output{Hit: 1}), op(3, 4, input{Do: "swap", A: 1, B: 3}, output{Hit: 1})}, true},
		{"deleted and there", "register/1", register{true, 1}, register{true, 1}, []porcupine.Operation{op(1, 2, input{Do: "delete"}, output{Hit: 1})}, true},
		{"lost append", "list/1", "", "b.", []porcupine.Operation{op(1, 2, input{Do: "append", Text: "a."}, rows("2")), op(1, 2, input{Do: "append", Text: "b."}, rows("4"))}, true},
		{"a row not seen", "list/1", "a.", "a.", []porcupine.Operation{op(1, 2, input{Do: "read"}, output{})}, true},
		{"token missed on its way", "token/1", int64(1), int64(2), []porcupine.Operation{
			op(1, 9, input{Do: "go", A: 1, B: 2}, output{Hit: 1}), op(3, 4, input{Do: "go", A: 1, B: 3}, output{}), op(5, 6, input{Do: "go", A: 2, B: 3}, output{})}, false},
		{"token missed at its place", "token/1", int64(1), int64(2), []porcupine.Operation{
			op(1, 2, input{Do: "go", A: 1, B: 2}, output{Hit: 1}), op(3, 4, input{Do: "go", A: 2, B: 3}, output{})}, true},
		{"token taken twice", "token/1", int64(1), int64(3), []porcupine.Operation{
			op(1, 5, input{Do: "go", A: 1, B: 2}, output{Hit: 1}), op(2, 6, input{Do: "go", A: 1, B: 3}, output{Hit: 1})}, true},
		{"token in two places", "token/1", int64(1), int64(2), []porcupine.Operation{
			op(1, 2, input{Do: "go", A: 1, B: 2}, output{Hit: 1}), op(3, 4, input{Do: "read"}, output{Rows: [][]string{{"1"}, {"2"}}, Hit: 2})}, true},
	}
	for _, c := range cases {
		r := &recorder{begun: time.Now(), objects: map[string][]porcupine.Operation{}}
		for _, o := range c.list {
			r.add(c.object, o)
		}
		wrong, unproven := r.check(world{map[string]any{c.object: c.before}}, world{map[string]any{c.object: c.after}})
		if len(wrong) > 0 != c.wrong || unproven > 0 {
			t.Errorf("%s: %v", c.name, wrong)
		}
	}
}
