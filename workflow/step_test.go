package workflow

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func move(o Options) State {
	return New(Spec{ID: "m1", Kind: Move, Keyspace: "k", From: "a", To: "b", By: "test", Options: o.WithDefaults()}, 1)
}

// walk applies events in their short form: "ok", "again", "late", "changed", "gone",
// "refused", "differs", or a wish.
func walk(s State, at int64, events ...string) State {
	for _, text := range events {
		at++
		e := Event{At: at, Seq: s.Seq}
		switch text {
		case "ok":
			e.Kind = EventDone
		case "again", "late", "changed", "gone", "refused", "differs":
			e.Kind, e.Class, e.Error, e.Op = EventFailed, Class(text), "because", Fence
		default:
			e.Kind, e.Wish, e.By, e.Seq = EventAsked, Wish(text), "me", 0
		}
		s, _ = Step(s, e)
	}
	return s
}

func ops(list []Effect) string {
	var out []string
	for _, e := range list {
		text := string(e.Op)
		if e.Source+e.Target != "" {
			text += " " + e.Source + e.Target
		}
		if e.Stream != "" {
			text += " " + e.Stream
		}
		if e.Hold != "" {
			text += " " + string(e.Hold)
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// TestFailsSince: a workflow that fails again and again tells since when; what goes on, or is held up by a person, does not.
func TestFailsSince(t *testing.T) {
	s := move(Options{})
	at := int64(10)
	fail := func(class Class) {
		at += 10
		s, _ = Step(s, Event{Kind: EventFailed, Seq: s.Seq, At: at, Op: Effects(s)[len(Effects(s))-1].Op, Class: class, Error: fmt.Sprint("at ", at)})
	}
	ok := func() {
		at += 10
		s, _ = Step(s, Event{Kind: EventDone, Seq: s.Seq, At: at})
	}
	want := func(since int64) {
		t.Helper()
		if got := s.FailsSince(); got != since {
			t.Errorf("%s at %d: fails since %d, not %d", s.Step, at, got, since)
		}
	}
	want(0)
	ok() // preparing
	since := at
	want(0)
	fail(Again)
	fail(Again)
	want(since)
	s.Paused = true
	want(0)
	s.Paused = false
	for s.Step != Closing {
		ok()
		want(0)
	}
	since = at
	for range 3 { // one cutover after the other
		fail(Late)
		ok()
		ok()
		want(since)
	}
	for s.Step != Opened {
		ok()
	}
	want(0)
}

func TestMove(t *testing.T) {
	open := "ok ok ok ok ok ok ok"
	for name, c := range map[string]struct {
		o       Options
		events  string
		step    StepName
		effects string
	}{
		"planned":               {step: Planned, effects: "check ab m1_f"},
		"preparing":             {events: "ok", step: Preparing, effects: "compare schema ab m1_f; put transit ab m1_f; await members ab m1_f; release ab"},
		"copying":               {events: "ok ok", step: Copying, effects: "purge ab m1_f; copy ab m1_f"},
		"catching up":           {events: "ok ok ok", step: CatchingUp, effects: "follow ab m1_f; capture back ba m1_b; follow ab m1_f"},
		"not to be reversed":    {o: Options{KeepMS: -1}, events: "ok ok ok", step: CatchingUp, effects: "follow ab m1_f"},
		"verifying":             {events: "ok ok ok ok", step: Verifying, effects: "verify ab m1_f"},
		"unverified":            {o: Options{Unverified: true}, events: "ok ok ok ok", step: Closing},
		"closing":               {events: "ok ok ok ok ok", step: Closing, effects: "follow ab m1_f; ask members ab m1_f; hold ab m1_f new; await members ab m1_f; fence ab m1_f; drain source ab m1_f; mark back ba m1_b"},
		"late":                  {events: "ok ok ok ok ok late", step: Reopening, effects: "set guards ab m1_f; unhold ab m1_f; set guards ab m1_f"},
		"waiting":               {events: "ok ok ok ok ok late ok", step: Waiting, effects: "follow for ab m1_f"},
		"not polite":            {events: "ok ok ok ok ok late ok ok late ok ok late ok ok", step: Closing, effects: "follow ab m1_f; ask members ab m1_f; hold ab m1_f all; await members ab m1_f; fence ab m1_f; drain source ab m1_f; mark back ba m1_b"},
		"opening":               {events: "ok ok ok ok ok ok", step: Opening, effects: "open target ab m1_f; swap ab m1_f"},
		"opened":                {events: open, step: Opened, effects: "settle guards ab m1_f; release ab m1_f; keep back ba m1_b"},
		"not kept":              {o: Options{KeepMS: -1}, events: open, step: Cleaning, effects: "settle guards ab m1_f; release ab; purge ba; drop transit ab m1_f"},
		"done":                  {events: open + " ok ok", step: Done},
		"complete":              {events: open + " complete ok", step: Done},
		"complete asked early":  {events: "ok complete ok ok ok ok ok ok", step: Cleaning},
		"reverse":               {events: open + " reverse", step: CatchingUp, effects: "follow ba m1_b"},
		"reverse closes":        {events: open + " reverse ok ok", step: Closing, effects: "follow ba m1_b; ask members ba m1_b; hold ba m1_b new; await members ba m1_b; fence ba m1_b; drain source ba m1_b"},
		"reverse opens":         {events: open + " reverse ok ok ok", step: Opening, effects: "open target ba m1_b; swap ba m1_b"},
		"reverse cleans":        {events: open + " reverse ok ok ok ok", step: Cleaning, effects: "settle guards ba m1_b; release ba; purge ab; drop transit ba m1_b"},
		"rolled back":           {events: open + " reverse ok ok ok ok ok", step: RolledBack},
		"reverse is late":       {events: open + " reverse ok ok late ok ok ok ok ok", step: RolledBack},
		"reverse is cancelled":  {events: open + " reverse ok ok cancel", step: Reopening, effects: "set guards ba m1_b; unhold ba m1_b; set guards ba m1_b"},
		"and stays":             {events: open + " reverse ok ok cancel ok", step: Opened},
		"reverse refused":       {events: open + " reverse ok ok refused ok", step: Opened, effects: "settle guards ab m1_f; release ab; sleep"},
		"reverse before":        {events: "ok ok ok reverse ok", step: Cancelled},
		"cancel at once":        {events: "cancel", step: Cancelled},
		"cancel":                {events: "ok ok ok cancel", step: Cancelling, effects: "set guards ab m1_f; unhold ab m1_f; set guards ab m1_f; release ab; purge ab m1_f; drop transit ab m1_f"},
		"cancelled":             {events: "ok ok ok ok ok cancel ok", step: Cancelled},
		"cancel too late":       {events: open + " cancel", step: Opened},
		"impossible":            {events: "refused", step: Failed},
		"drift":                 {events: "ok refused", step: Cancelling},
		"drift, cleaned up":     {events: "ok refused ok", step: Failed},
		"tables changed":        {events: "ok ok ok changed", step: Preparing},
		"tables changed late":   {events: "ok ok ok ok ok changed ok", step: Preparing},
		"copies differ":         {events: "ok ok ok ok differs ok", step: Failed},
		"tables changed after":  {events: open + " changed", step: Opened, effects: "settle guards ab m1_f; release ab"},
		"and is cleaned up":     {events: open + " changed ok ok", step: Done},
		"reverse, changed":      {events: open + " reverse changed ok ok", step: Done},
		"changes are gone":      {events: "ok ok ok gone", step: Preparing},
		"gone after":            {events: open + " gone", step: Opened, effects: "settle guards ab m1_f; release ab; sleep"},
		"reverse, gone":         {events: open + " reverse gone", step: Opened, effects: "settle guards ab m1_f; release ab; sleep"},
		"shard down":            {events: "ok ok again again", step: Copying, effects: "sleep; purge ab m1_f; copy ab m1_f"},
		"down in the cutover":   {events: "ok ok ok ok ok again", step: Reopening},
		"down after the fence":  {events: "ok ok ok ok ok ok again refused", step: Opening, effects: "sleep; open target ab m1_f; swap ab m1_f"},
		"window: copying":       {o: Options{Window: "01:00-02:00"}, events: "ok ok", step: Copying, effects: "await window ab m1_f; purge ab m1_f; copy ab m1_f"},
		"window: catching up":   {o: Options{Window: "01:00-02:00"}, events: "ok ok ok", step: CatchingUp, effects: "follow ab m1_f; capture back ba m1_b; follow ab m1_f"},
		"window: verifying":     {o: Options{Window: "01:00-02:00"}, events: "ok ok ok ok", step: Verifying, effects: "follow ab m1_f; await window ab m1_f; verify ab m1_f"},
		"window: closing":       {o: Options{Window: "01:00-02:00", KeepMS: -1}, events: "ok ok ok ok ok", step: Closing, effects: "follow ab m1_f; await window ab m1_f; follow ab m1_f; ask members ab m1_f; hold ab m1_f new; await members ab m1_f; fence ab m1_f; drain source ab m1_f"},
		"window: cleaning":      {o: Options{Window: "01:00-02:00", KeepMS: -1}, events: open, step: Cleaning, effects: "settle guards ab m1_f; release ab; await window ab m1_f; purge ba; drop transit ab m1_f"},
		"window: reverse":       {o: Options{Window: "01:00-02:00"}, events: open + " reverse ok ok", step: Closing, effects: "follow ba m1_b; ask members ba m1_b; hold ba m1_b new; await members ba m1_b; fence ba m1_b; drain source ba m1_b"},
		"window: cancel":        {o: Options{Window: "01:00-02:00"}, events: "ok ok ok cancel", step: Cancelling, effects: "set guards ab m1_f; unhold ab m1_f; set guards ab m1_f; release ab; purge ab m1_f; drop transit ab m1_f"},
		"paused":                {events: "ok ok pause", step: Copying, effects: ""},
		"resumed":               {events: "ok ok pause resume", step: Copying, effects: "purge ab m1_f; copy ab m1_f"},
		"paused in the cutover": {events: "ok ok ok ok ok pause ok ok", step: Opened, effects: ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := walk(move(c.o), 1, strings.Fields(c.events)...)
			if s.Step != c.step {
				t.Fatalf("%s, not %s; history %v", s.Step, c.step, s.History)
			}
			if s.Step == Failed && !strings.Contains(s.Error, "because") {
				t.Errorf("it does not say why it has failed: %q", s.Error)
			}
			if got := ops(Effects(s)); (c.effects != "" || s.Paused) && got != c.effects {
				t.Errorf("effects\n %s, not\n %s", got, c.effects)
			}
		})
	}
}

// TestWhatFailedIsSaidWhole: what is to be run, at the end of an error, is not cut off.
func TestWhatFailedIsSaidWhole(t *testing.T) {
	s := walk(move(Options{}), 1, "ok")
	long := strings.Repeat("x", 600) + "; run there: ALTER TABLE"
	s, _ = Step(s, Event{Kind: EventFailed, Seq: s.Seq, At: 9, Op: CompareSchema, Class: Refused, Error: long})
	s = walk(s, 10, "again", "ok")
	if s.Step != Failed || !strings.HasSuffix(s.Error, long) {
		t.Errorf("%s: %s", s.Step, s.Error)
	}
	for _, c := range []struct {
		wish Wish
		want string
	}{{Reverse, "nothing to reverse"}, {Complete, "the owner was not changed"}} {
		if err := CanAsk(&s, c.wish); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.wish, err)
		}
	}
	back := walk(move(Options{}), 1, strings.Fields("ok ok ok ok ok ok ok reverse ok ok ok ok ok")...)
	if err := CanAsk(&back, Complete); back.Step != RolledBack || err == nil || !strings.Contains(err.Error(), "its rows are on a again") {
		t.Errorf("%s %v", back.Step, err)
	}
}

// TestPauses: pauses between cutovers grow further when the transactions of routers were ended and it still does not
// come about: each try holds statements.
func TestPauses(t *testing.T) {
	s := walk(move(Options{}), 1, "ok", "ok", "ok", "ok", "ok")
	var pauses []int64
	for range 9 {
		s = walk(s, 10, "late", "ok")
		list := Effects(s)
		if s.Step != Waiting || len(list) != 1 {
			t.Fatal(s.Step)
		}
		pauses = append(pauses, list[0].ForMS/1000)
		s = walk(s, 10, "ok")
	}
	if want := []int64{1, 2, 4, 8, 16, 32, 60, 60, 60}; !slices.Equal(pauses, want) {
		t.Errorf("%v, not %v", pauses, want)
	}
}

func TestWhyNotReversed(t *testing.T) {
	s := move(Options{KeepMS: -1})
	s.Spec.Part = shardmap.Part{Low: []string{"0"}, High: []string{"17"}}
	s = walk(s, 1, strings.Fields("ok ok ok ok ok ok ok ok")...)
	err := CanAsk(&s, Reverse)
	if err == nil || !strings.Contains(sqlstate.As(err).Hint, "cleave move --keyspace k --range '0..17' --to a") {
		t.Errorf("%v", err)
	}
}

func TestParents(t *testing.T) {
	parent := func(k Kind) State {
		return New(Spec{ID: "p", Kind: k, Keyspace: "k", From: "a", By: "test", Options: Options{}.WithDefaults()}, 1)
	}
	two := Event{Kind: EventDone, Result: Result{Children: []Spec{{Kind: Move, To: "b"}, {Kind: Move, To: "c"}}}}
	s := parent(Drain)
	if got := ops(Effects(s)); got != "plan" {
		t.Fatal(got)
	}
	two.Seq = s.Seq
	s, list := Step(s, two)
	if s.Step != Working || ops(list) != "spawn; spawn; await children" || list[1].Child.ID != "p-2" || list[1].Child.Parent != "p" {
		t.Fatalf("%s %s", s.Step, ops(list))
	}
	if s = walk(s, 9, "ok"); s.Step != Planning {
		t.Fatal(s.Step)
	}
	two.Seq = s.Seq
	if s, list = Step(s, two); list[0].Child.ID != "p-3" {
		t.Fatal(list[0].Child.ID)
	}
	if c := walk(s, 9, "cancel"); ops(Effects(c)) != "cancel children; await children" || ops(Effects(walk(c, 9, "ok"))) != "end drain" || walk(c, 9, "ok", "ok").Step != Cancelled {
		t.Fatal(c.Step)
	}
	failed, _ := Step(s, Event{Kind: EventDone, Seq: s.Seq, Result: Result{Failed: []string{"p-4"}}})
	if failed = walk(failed, 9, "again", "ok"); failed.Step != Failed || !strings.Contains(failed.Error, "p-4") {
		t.Fatal(failed)
	}
	if s = walk(s, 9, "ok", "ok"); ops(Effects(s)) != "end drain" || walk(s, 9, "ok").Step != Done {
		t.Fatal(s.Step)
	}
	if s = walk(parent(Spread), 1, "ok"); s.Step != Done {
		t.Fatal(s.Step)
	}
	if s = walk(parent(Merge), 1, "ok"); s.Step != Editing || walk(s, 2, "ok").Step != Done {
		t.Fatal(s.Step)
	}
	if s = walk(parent(Split), 1, "again", "ok"); s.Step != Done {
		t.Fatal(s.Step)
	}
}

// TestWalks: whatever happens, in whatever order, a move keeps what is promised of
// it, and ends when nothing is in its way.
func TestWalks(t *testing.T) {
	classes := []string{"ok", "ok", "ok", "ok", "ok", "ok", "again", "late", "changed", "gone", "refused", "differs", "pause", "resume", "cancel", "reverse", "complete"}
	for seed := range uint64(1_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := move(Options{KeepMS: []int64{-1, 0}[r.IntN(2)], Unverified: r.IntN(2) == 0})
		owner, open, transit := "a", false, false
		fail := func(format string, args ...any) {
			t.Fatalf("seed %d: %s; owner %s, state %+v", seed, fmt.Sprintf(format, args...), owner, s)
		}
		world := func(list []Effect) {
			for _, e := range list {
				switch e.Op {
				case PutTransit:
					transit = true
				case Purge:
					if e.Target == owner || open {
						fail("the owner's rows are deleted")
					}
				case Copy, Follow, FollowFor, DrainSource:
					if e.Target == owner || !transit {
						fail("%s into the owner", e.Op)
					}
				case KeepBack:
					if e.Target == owner || !transit || e.UntilMS == 0 {
						fail("%s into the owner", e.Op)
					}
				case OpenTarget:
					open = true
				case Swap:
					if e.Source != owner || !open {
						fail("swap")
					}
					owner, open = e.Target, false
				case DropTransit:
					transit = false
				}
			}
		}
		for i := range 200 {
			what := classes[r.IntN(len(classes))]
			if i > 100 {
				what = []string{"ok", "resume"}[r.IntN(2)]
			}
			if what == "ok" && Effects(s) == nil {
				what = "resume"
			}
			if what == "ok" {
				world(Effects(s))
			}
			before := s
			s = walk(s, int64(i+2), what)
			if s.Seq < before.Seq || before.Step.Ended() && s.Step != before.Step {
				fail("went back after %s", what)
			}
			if s.Seq == before.Seq && s.Step != before.Step {
				fail("another step, the same number")
			}
			if b, err := s.Encode(); err != nil || len(b) > 32<<10 {
				fail("%d bytes, %v", len(b), err)
			} else if again, err := Decode(b); err != nil || ops(Effects(again)) != ops(Effects(s)) {
				fail("%v", err)
			}
			// What comes late changes nothing.
			if late, _ := Step(s, Event{Kind: EventDone, Seq: s.Seq - 1, At: 1}); late.Seq != s.Seq || late.Step != s.Step {
				fail("a late event")
			}
		}
		want := map[StepName]string{Done: "b", Cancelled: "a", RolledBack: "a", Failed: "a"}[s.Step]
		if want != owner || transit || open {
			fail("it ended wrong, transit %v, open %v", transit, open)
		}
	}
}

func TestHistoryIsBounded(t *testing.T) {
	s := move(Options{})
	for i := range 500 {
		s.note(int64(i), strings.Repeat("ü", 400))
	}
	b, err := s.Encode()
	if err != nil || len(b) > shardmap.MaxRecordValueBytes/2 || len(s.History) != historyMax {
		t.Fatalf("%d bytes, %d lines, %v", len(b), len(s.History), err)
	}
	if !slices.ContainsFunc(s.History, func(l Line) bool { return strings.HasPrefix(l.What, "asked for by test") }) {
		t.Error("the first line is gone")
	}
}

func TestIDs(t *testing.T) {
	for _, id := range []string{"", "a b", strings.Repeat("x", MaxIDBytes+1), "ä"} {
		if CheckID(id) == nil {
			t.Errorf("%q", id)
		}
	}
	if err := CheckID("Move-1_x"); err != nil {
		t.Error(err)
	}
	if id, ok := StreamOf(Forth("m")); !ok || id != "m" {
		t.Error(id)
	}
}

// TestLateOpening: an opening that was not begun is taken back, and no other.
func TestLateOpening(t *testing.T) {
	s := walk(move(Options{}), 1, "ok", "ok", "ok", "ok", "ok", "ok")
	if s.Step != Opening {
		t.Fatal(s.Step)
	}
	late := func(op Op, class Class) State {
		next, _ := Step(s, Event{Kind: EventFailed, Seq: s.Seq, At: 50, Op: op, Class: class, Error: "because"})
		return next
	}
	if n := late(OpenTarget, Late); n.Step != Reopening || n.Attempt != 1 || walk(n, 60, "ok").Step != Waiting {
		t.Errorf("%+v", n)
	}
	for _, n := range []State{late(Swap, Late), late(OpenTarget, Again), late(OpenTarget, Refused)} {
		if n.Step != Opening {
			t.Errorf("%+v", n)
		}
	}
}

// TestVerifiedInPieces: what was compared is stored, goes with the step, and is gone when
// the move has to copy anew.
func TestVerifiedInPieces(t *testing.T) {
	s := walk(move(Options{}), 1, "ok", "ok", "ok", "ok")
	some := func(n int) {
		t.Helper()
		seq := s.Seq
		s, _ = Step(s, Event{Kind: EventDone, Seq: s.Seq, At: 40, Result: Result{Verified: &Verified{Pieces: 2, Done: n, Rows: 10}}})
		if s.Step != Verifying || s.Verified == nil || s.Verified.Done != n || s.Seq == seq {
			t.Fatalf("%+v", s)
		}
	}
	some(1)
	some(2)
	s = walk(s, 50, "again")
	if s.Step != Verifying || s.Verified == nil || s.Verified.Done != 2 {
		t.Errorf("%+v", s)
	}
	if n := walk(s, 60, "changed"); n.Step != Preparing || n.Verified != nil {
		t.Errorf("%+v", n)
	}
	if n := walk(s, 60, "ok"); n.Step != Closing || n.Verified != nil {
		t.Errorf("%+v", n)
	}
}
