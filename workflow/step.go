package workflow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// restartsMax is how often a move copies anew because tables were changed.
const restartsMax = 5

// Step applies an event. The state that it returns is to be stored before its effects
// are carried out. An event that comes too late changes nothing: the same state comes
// back, with its effects.
func Step(s State, e Event) (State, []Effect) {
	next := s.clone()
	switch {
	case s.Step.Ended():
	case e.Kind == EventAsked:
		if CanAsk(&s, e.Wish) == nil {
			next.ask(e)
		}
	case e.Seq != s.Seq:
	case e.Kind == EventDone:
		next.done(e)
	case e.Kind == EventFailed:
		next.failed(e)
	}
	return next, Effects(next)
}

func (s State) clone() State {
	s.History = slices.Clone(s.History)
	s.Children = slices.Clone(s.Children)
	return s
}

// goTo begins a step.
func (s *State) goTo(step StepName, at int64, why string) {
	from := s.Step
	s.Step, s.Tries, s.Error = step, 0, ""
	if step != Verifying {
		s.Verified = nil
	}
	s.Seq++
	if from != step || why != "" {
		s.note(at, why)
	}
}

// cause is why a workflow that has failed was cleaned up, whatever went wrong in that.
func (s *State) cause() string {
	if s.Cause != "" {
		return s.Cause
	}
	for _, l := range slices.Backward(s.History) {
		if l.Step == Cancelling && l.What != "" {
			return l.What
		}
	}
	return ""
}

func (s *State) done(e Event) {
	r, at := e.Result, e.At
	switch s.Step {
	case Planned:
		s.Rows, s.Bytes = r.Rows, r.Bytes
		s.goTo(Preparing, at, fmt.Sprintf("about %d rows, %d bytes, from %s to %s", r.Rows, r.Bytes, s.Source(), s.Target()))
	case Preparing:
		s.Tables = r.Tables
		s.goTo(Copying, at, "every member knows of the move")
	case Copying:
		s.Copied = r.Rows
		s.goTo(CatchingUp, at, fmt.Sprintf("%d rows copied", r.Rows)+orEmpty(", ", r.Note))
	case CatchingUp:
		if s.Spec.Unverified {
			s.goTo(Closing, at, "level with "+s.Source())
			return
		}
		s.goTo(Verifying, at, "level with "+s.Source())
	case Verifying:
		if s.Verified = r.Verified; r.Verified != nil {
			s.goTo(Verifying, at, "") // to go on with the rest
			return
		}
		s.goTo(Closing, at, orElse(r.Note, "both copies are equal"))
	case Waiting:
		s.MayBeOpen, s.ShutLater = false, false
		s.goTo(Closing, at, "")
	case Reopening:
		after := s.After
		if after == "" {
			after = Waiting
		}
		s.MayBeOpen = s.MayBeOpen && s.ShutLater
		s.After = ""
		if after == Opened {
			s.Back = false
		}
		s.goTo(after, at, s.Source()+" takes writes again")
	case Closing:
		s.goTo(Opening, at, "no write is under way on "+s.Source()+", everything is on "+s.Target())
	case Opening:
		s.HeldMS = r.HeldMS
		what := fmt.Sprintf("%s is the owner, after %d ms", s.Target(), r.HeldMS)
		switch {
		case s.Back:
			s.Ending = RolledBack
			s.goTo(Cleaning, at, what)
		case s.Spec.KeepMS < 0:
			s.Ending, s.OpenAt = Done, at
			s.goTo(Cleaning, at, what)
		default:
			s.OpenAt = at
			s.goTo(Opened, at, what)
		}
	case Opened:
		s.Ending = Done
		if s.Outdated {
			s.goTo(Cleaning, at, "the old rows are those of tables as they were before")
			return
		}
		s.goTo(Cleaning, at, "the time to reverse it is over")
	case Cleaning, Cancelling:
		end := s.Ending
		if end == "" {
			end = Done
		}
		what := "nothing is left of it"
		if s.Spec.Kind == Drain {
			what = "shard " + s.Spec.From + " may be given something again"
		}
		s.goTo(end, at, orElse(r.Note, what))
		if end == Failed {
			s.Error = s.cause()
		}
	case Choosing:
		s.PlanNext += r.Taken
		switch {
		case len(r.Children) > 0:
			s.adopt(r.Children, at)
		case r.Taken > 0:
			s.goTo(Choosing, at, fmt.Sprintf("%d of %d steps are done: %s", s.PlanNext, s.PlanSteps, r.Note))
		default:
			s.goTo(Done, at, "the plan is carried out")
		}
	case Planning:
		if s.Spec.Kind == Rebalance {
			s.planned(r, at)
			return
		}
		if len(r.Children) == 0 {
			if s.Spec.Kind == Merge {
				s.goTo(Editing, at, "the ranges are on one shard")
				return
			}
			s.finish(Done, at, orElse(r.Note, "nothing is left to be moved"))
			return
		}
		s.adopt(r.Children, at)
	case Working:
		s.Children = nil
		switch {
		case len(r.Failed) > 0 && s.Ending == "":
			s.finish(Failed, at, "not done: "+strings.Join(r.Failed, ", "))
			s.blame("these moves were not done: " + strings.Join(r.Failed, ", ") + orEmpty("; ", r.Note))
		case s.Ending != "":
			s.finish(s.Ending, at, "its moves have ended")
		case s.Spec.Kind == Rebalance:
			s.goTo(Choosing, at, fmt.Sprintf("%d of %d steps are done", s.PlanNext, s.PlanSteps))
		default:
			s.goTo(Planning, at, "its moves are done")
		}
	case Editing:
		s.goTo(Done, at, orElse(r.Note, "the map is changed"))
	}
}

// finish ends a workflow that has children, or changes the map. A drain has the note taken out of the map before.
func (s *State) finish(as StepName, at int64, why string) {
	if s.Spec.Kind != Drain {
		s.goTo(as, at, why)
		return
	}
	s.Ending = as
	s.goTo(Cleaning, at, why)
}

// blame notes why a workflow fails, or has.
func (s *State) blame(why string) { s.Error, s.Cause = clip(why), clip(why) }

// adopt begins children.
func (s *State) adopt(children []Spec, at int64) {
	s.Children = s.Children[:0]
	for _, c := range children[:min(len(children), MaxChildren)] {
		s.Made++
		c.ID = s.Spec.ID + "-" + strconv.Itoa(s.Made)
		c.Parent, c.By = s.Spec.ID, s.Spec.By
		s.Children = append(s.Children, c)
	}
	s.goTo(Working, at, fmt.Sprintf("%d begun", len(s.Children)))
}

// planned is what follows a plan that was made.
func (s *State) planned(r Result, at int64) {
	s.PlanSteps, s.SkewBefore, s.SkewAfter, s.Rows, s.Bytes = r.PlanSteps, r.SkewBefore, r.SkewAfter, r.Rows, r.Bytes
	what := fmt.Sprintf("%d steps, about %d bytes to move, skew %.2f to %.2f", r.PlanSteps, r.Bytes, r.SkewBefore, r.SkewAfter)
	switch {
	case r.PlanSteps == 0:
		s.goTo(Done, at, fmt.Sprintf("nothing has to be done: the skew is %.2f", r.SkewBefore))
	case s.Spec.Approved:
		s.goTo(Choosing, at, what)
	default:
		s.goTo(Proposed, at, what)
	}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func (s *State) failed(e Event) {
	what := string(e.Op) + ": " + e.Error
	class := e.Class
	// An opening that is late was not begun, else it would be another failure.
	if class == Late && s.Step != Closing && (s.Step != Opening || e.Op != OpenTarget) {
		class = Again
	}
	outdated := class == Changed
	if class == Gone {
		class = Changed
	}
	again := func() {
		first := s.Tries == 0
		s.Tries++
		s.Seq++
		s.Changed = e.At
		if first || s.Error != clip(what) {
			s.Error = clip(what)
			s.note(e.At, "tried again: "+what)
		}
	}
	lost := func() { // it cannot be reversed
		s.BackLost, s.Outdated = clip(what), outdated
		if s.Step == Closing {
			s.After = Opened
			s.goTo(Reopening, e.At, "it cannot be reversed: "+what)
			return
		}
		s.Back = false
		s.goTo(Opened, e.At, "it cannot be reversed: "+what)
	}
	fail := func() {
		s.Ending = Failed
		if s.Step == Planned { // nothing was made yet
			s.goTo(Failed, e.At, what)
			s.Error = clip(what)
			return
		}
		s.goTo(Cancelling, e.At, what)
		s.Error, s.Cause = clip(what), clip(what)
	}
	redo := func() {
		if s.Restarts++; s.Restarts > restartsMax {
			fail()
			return
		}
		if s.Step == Closing {
			s.After = Preparing
			s.goTo(Reopening, e.At, "begun anew: "+what)
			return
		}
		s.goTo(Preparing, e.At, "begun anew: "+what)
	}
	switch s.Step {
	case Planned, Preparing, Copying, CatchingUp, Verifying, Waiting:
		switch {
		case class == Again:
			again()
		case s.Back:
			lost()
		case class == Changed:
			redo()
		default:
			fail()
		}
	case Closing:
		switch {
		case class == Again, class == Late:
			if class == Late {
				s.Attempt++
			}
			s.goTo(Reopening, e.At, what)
		case s.Back && class == Refused && e.Op == Hold: // by a constraint, which may be removed: reverse replication goes on
			s.After = Opened
			s.goTo(Reopening, e.At, "the reversal was given up: "+what)
		case s.Back:
			lost()
		case class == Changed:
			redo()
		default:
			fail()
		}
	case Opening:
		if class != Late {
			again()
			return
		}
		s.Attempt++
		s.MayBeOpen, s.ShutLater = true, false
		s.goTo(Reopening, e.At, what)
	case Opened:
		if class == Again || s.BackLost != "" {
			again()
			return
		}
		s.BackLost, s.Outdated = clip(what), outdated
		s.goTo(Opened, e.At, "it can no longer be reversed: "+what)
	case Planning, Choosing, Working, Editing:
		if class == Again || class == Changed {
			again()
			return
		}
		s.finish(Failed, e.At, what)
		s.blame(what)
	case Reopening, Cancelling:
		// Held statements do not wait for a shard that has nothing of theirs.
		if e.Op == ShutTarget && !s.ShutLater {
			s.ShutLater = true
			s.goTo(s.Step, e.At, what)
			return
		}
		again()
	default: // what has been begun has to be ended
		again()
	}
}

func clip(s string) string { return cut(s, errorMax) }

// CanAsk says why a wish cannot be granted now; nil if it can, or has been already.
func CanAsk(s *State, w Wish) error {
	no := func(why, hint string) error {
		return sqlstate.New(sqlstate.ObjectNotInState, "workflow %s is %s: %s", s.Spec.ID, s.Step, why).WithHint("%s", hint)
	}
	id := s.Spec.ID
	switch w {
	case Pause, Resume:
		if s.Step.Ended() {
			return no("it has ended", "see: cleave moves "+id)
		}
		return nil
	case Cancel:
		switch {
		case s.Step == Cancelled, s.Ending == Cancelled:
			return nil
		case s.Step.Ended():
			return no("it has ended", "see: cleave moves "+id)
		case s.Spec.Kind != Move:
			if s.Step == Editing || s.Step == Cleaning {
				return no("the map is being changed", "see: cleave moves "+id)
			}
			return nil
		case s.Step == Opening, s.Step == Opened && !s.Back:
			return no("the rows have a new owner", "to reverse it: cleave reverse "+id)
		case s.Step == Cleaning, s.Step == Cancelling:
			return no("what is left of it is being removed", "see: cleave moves "+id)
		}
		return nil
	case Approve:
		switch {
		case s.Spec.Kind != Rebalance:
			return no("only a plan can be approved", "see: cleave moves "+id)
		case s.ApprovedBy != "" || s.Spec.Approved:
			return nil
		case s.Step != Proposed:
			return no("its plan does not wait for approval", "see: cleave plan show "+id)
		}
		return nil
	case Reverse:
		switch {
		case s.Spec.Kind != Move:
			return no("only a move can be reversed", "reverse its moves: cleave moves")
		case s.Back, s.Step == RolledBack, s.Step == Cancelled, s.Ending == Cancelled:
			return nil
		case s.Step == Opened && s.BackLost != "":
			return no("it can no longer be reversed ("+s.BackLost+")", "to bring it back: cleave complete "+id+" --wait, then "+s.moveBack())
		case s.Step == Opening:
			return no("the owner is changing at this moment", "ask again in a moment")
		case s.Step == Failed, s.Ending == Failed:
			return no("it has failed before the owner changed, so there is nothing to reverse", "see: cleave moves "+id)
		case s.Step.Ended():
			return no("it can no longer be reversed"+inBrackets(s.BackLost), "to bring it back: "+s.moveBack())
		case s.Step == Cleaning, s.Step == Cancelling:
			return no("it can no longer be reversed"+inBrackets(s.BackLost), "to bring it back: cleave moves "+id+" --wait, then "+s.moveBack())
		}
		return nil
	case Complete:
		switch {
		case s.Spec.Kind != Move:
			return no("only a move can be completed", "see: cleave moves")
		case s.Step == Done, s.Ending == Done:
			return nil
		case s.Step == RolledBack:
			return no("its rows are on "+s.Spec.From+" again, and nothing is left of it", "see: cleave moves "+id)
		case s.Step.Ended():
			return no("the owner was not changed, and nothing is left of it", "see: cleave moves "+id)
		case s.Back, s.Step == Cancelling:
			return no("it is being reversed", "see: cleave moves "+id)
		}
		return nil
	}
	return sqlstate.New(sqlstate.InvalidParameterValue, "nobody knows what %q is", shorten(string(w)))
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// moveBack is the command that moves the part to where it was.
func (s *State) moveBack() string {
	what := " --key " + strings.Join(s.Spec.Part.Key, ",")
	if s.Spec.Part.Key == nil {
		what = " --range '" + strings.Join(s.Spec.Part.Low, ",") + ".." + strings.Join(s.Spec.Part.High, ",") + "'"
	}
	return "cleave move --keyspace " + s.Spec.Keyspace + what + " --to " + s.Spec.From
}

func (s *State) ask(e Event) {
	by := " by " + orElse(e.By, "somebody")
	switch e.Wish {
	case Pause:
		if !s.Paused {
			s.Paused = true
			s.note(e.At, "paused"+by)
		}
	case Resume:
		// What is under way goes on, by the new bounds.
		if with, other := s.Spec.with(e.Bounds); other {
			s.Spec.Options = with
			s.note(e.At, "its bounds were changed"+by)
		}
		if s.Paused {
			s.Paused = false
			s.note(e.At, "resumed"+by)
		}
	case Approve:
		if s.Step == Proposed {
			s.ApprovedBy = orElse(e.By, "somebody")
			s.goTo(Choosing, e.At, "approved"+by)
		}
	case Cancel:
		s.askCancel(e.At, by)
	case Reverse:
		switch {
		case s.Back, s.Step.Ended(), s.Ending == Cancelled:
		case s.Step == Opened:
			s.Back, s.Attempt, s.Paused = true, 0, false
			s.goTo(CatchingUp, e.At, "reversed"+by)
		default: // before the cutover it is the same as to cancel
			s.giveUp(e.At, "reversed"+by)
		}
	case Complete:
		switch {
		case s.Ending == Done, s.Step.Ended():
		case s.Step == Opened:
			s.Ending, s.Paused = Done, false
			s.goTo(Cleaning, e.At, "completed"+by)
		default:
			if s.Spec.KeepMS >= 0 {
				s.Spec.AskedKeepMS = s.Spec.KeepMS
			}
			s.Spec.KeepMS = -1
			s.note(e.At, "will be completed at once"+by)
		}
	}
}

// askCancel ends what is under way. A move that is being reversed goes back to where the reversal began.
func (s *State) askCancel(at int64, by string) {
	switch {
	case s.Step == Cancelled, s.Ending == Cancelled:
	case s.Spec.Kind != Move:
		s.Ending, s.Paused = Cancelled, false
		if s.Step == Working {
			s.goTo(Working, at, "cancelled"+by)
			return
		}
		s.finish(Cancelled, at, "cancelled"+by)
	case s.Back:
		s.Paused = false
		if s.Step == Closing || s.Step == Reopening {
			s.After = Opened
			s.goTo(Reopening, at, "the reversal was cancelled"+by)
			return
		}
		s.Back = false
		s.goTo(Opened, at, "the reversal was cancelled"+by)
	default:
		s.giveUp(at, "cancelled"+by)
	}
}

// giveUp ends a move before its cutover.
func (s *State) giveUp(at int64, why string) {
	s.Ending, s.Paused, s.After = Cancelled, false, ""
	if s.Step == Planned {
		s.goTo(Cancelled, at, why)
		return
	}
	s.goTo(Cancelling, at, why)
}

// pausable reports whether a step may be held up by a pause: no statement waits in it. What is being cancelled may hold
// statements at first; its purge waits while it is paused.
func (n StepName) pausable() bool {
	return n != Closing && n != Reopening && n != Opening && n != Cancelling
}

// Effects returns what is to be done in a state, from the beginning: none in one
// that is paused or has ended.
func Effects(s State) []Effect {
	if s.Step.Ended() || s.Paused && s.Step.pausable() {
		return nil
	}
	var list []Effect
	if s.Spec.Kind == Move {
		list = s.moveEffects()
	} else {
		list = s.parentEffects()
	}
	if s.Tries > 0 {
		list = append([]Effect{{Op: Sleep, ForMS: backoff(s.Tries)}}, list...)
	}
	return list
}

// backoff is the pause before try n+1, milliseconds.
func backoff(n int) int64 {
	pause := 250 * time.Millisecond << min(n, 10)
	return min(pause, time.Minute).Milliseconds()
}

func (s *State) moveEffects() []Effect {
	id := s.Spec.ID
	source, target, stream := s.Source(), s.Target(), Forth(id)
	if s.Back {
		stream = Back(id)
	}
	do := func(op Op) Effect { return Effect{Op: op, Source: source, Target: target, Stream: stream} }
	bound := func(op Op) Effect {
		e := do(op)
		e.ForMS = s.Spec.HoldMS
		return e
	}
	all := Effect{Op: Release, Source: source, Target: target}
	// in puts the wait for a window before effects; a reversal does not wait.
	in := func(list ...Effect) []Effect {
		if s.Spec.Window == "" || s.Back && s.Step != Cleaning {
			return list
		}
		wait := []Effect{do(AwaitWindow)}
		if s.Step == Verifying || s.Step == Closing {
			// So that the source's log does not grow meanwhile. After the wait the target is
			// level again: a closing's list begins with that.
			wait = []Effect{do(Follow), do(AwaitWindow)}
		}
		return append(wait, list...)
	}
	switch s.Step {
	case Planned:
		return []Effect{do(Check)}
	case Preparing:
		// What an earlier copy has left is given up here, so that one which is interrupted goes on.
		return []Effect{do(CompareSchema), do(PutTransit), do(AwaitMembers), all}
	case Copying:
		return in(do(Purge), do(Copy))
	case CatchingUp:
		if s.Back || s.Spec.KeepMS < 0 {
			return []Effect{do(Follow)}
		}
		back := Effect{Op: CaptureBack, Source: target, Target: source, Stream: Back(id)}
		return []Effect{do(Follow), back, do(Follow)}
	case Verifying:
		return in(do(Verify))
	case Closing:
		hold := bound(Hold)
		hold.Hold = shardmap.HoldNew
		if s.Attempt >= s.Spec.Polite {
			hold.Hold = shardmap.HoldAll
		}
		list := in(do(Follow), do(AskMembers), hold, bound(AwaitMembers), bound(Fence), bound(DrainSource))
		if s.Back || s.Spec.KeepMS < 0 {
			return list
		}
		// Not with the opening, which is repeated after a crash: the mark would come
		// after the first writes that the target has taken.
		return append(list, Effect{Op: MarkBack, Source: target, Target: source, Stream: Back(id), ForMS: s.Spec.HoldMS})
	case Reopening:
		// Guards first, so that no statement is refused; and again, since guards that
		// another move set in between were those of the map with the hold.
		list := []Effect{do(SetGuards), do(Unhold), do(SetGuards)}
		if s.ShutLater {
			return list
		}
		return s.shutting(do(ShutTarget), list...)
	case Waiting:
		e := do(FollowFor)
		e.ForMS = backoff(s.Attempt + 1)
		// Routers' transactions were ended by then: who is still in the way is at work on the shard directly, and each
		// cutover that does not come about holds statements for nothing.
		if s.Attempt <= s.Spec.Polite {
			e.ForMS = min(e.ForMS, 10_000)
		}
		return s.shutting(do(ShutTarget), e)
	case Opening:
		return []Effect{do(OpenTarget), do(Swap)}
	case Opened:
		until := s.OpenAt + s.Spec.KeepMS
		oldOwner := Effect{Op: ShutTarget, Source: s.Spec.To, Target: s.Spec.From} // of a reversal that was ended
		forth := do(Release)                                                       // the old owner's changes are those of the new one, sent back
		forth.Stream = Forth(id)
		if s.BackLost != "" {
			all.Source, all.Target = s.Spec.From, s.Spec.To
			if s.Outdated {
				return s.shutting(oldOwner, do(SettleGuards), all)
			}
			return s.shutting(oldOwner, do(SettleGuards), all, Effect{Op: Sleep, UntilMS: until})
		}
		keep := Effect{Op: KeepBack, Source: target, Target: source, Stream: Back(id), UntilMS: until}
		return s.shutting(oldOwner, do(SettleGuards), forth, keep)
	case Cleaning: // the rows of the one that they were moved from go
		purge := Effect{Op: Purge, Source: target, Target: source}
		list := append([]Effect{do(SettleGuards), all}, in(purge, do(DropTransit))...)
		return s.shutting(Effect{Op: ShutTarget, Source: target, Target: source}, list...) // of a reversal that was ended
	case Cancelling:
		list := []Effect{do(SetGuards), do(Unhold), do(SetGuards), all}
		rest := []Effect{do(Purge), do(DropTransit)}
		if s.ShutLater {
			return append(list, s.shutting(do(ShutTarget), rest...)...)
		}
		return s.shutting(do(ShutTarget), append(list, rest...)...)
	}
	return nil
}

// shutting puts an effect that shuts a target before others, if it may be open.
func (s *State) shutting(shut Effect, list ...Effect) []Effect {
	if !s.MayBeOpen {
		return list
	}
	return append([]Effect{shut}, list...)
}

func (s *State) parentEffects() []Effect {
	switch s.Step {
	case Planning:
		if s.Spec.Kind == Rebalance {
			return []Effect{{Op: MakePlan}}
		}
		return []Effect{{Op: Plan}}
	case Choosing:
		return []Effect{{Op: TakeSteps}}
	case Working:
		var list []Effect
		if s.Ending == Cancelled {
			return []Effect{{Op: CancelChildren}, {Op: AwaitChildren}}
		}
		for i := range s.Children {
			list = append(list, Effect{Op: Spawn, Child: &s.Children[i]})
		}
		return append(list, Effect{Op: AwaitChildren})
	case Editing:
		return []Effect{{Op: EditMap}}
	case Cleaning:
		return []Effect{{Op: EndDrain}}
	}
	return nil
}
