package workflow

import "github.com/cleavedb/cleave/shardmap"

// Op is what an effect does. Each can be repeated.
type Op string

// The effects of a move. "Source" and "target" are those of the effect.
const (
	// Check looks whether the move is possible and estimates its size.
	Check Op = "check"
	// CompareSchema compares the definitions of the tables on both shards; a
	// difference is Refused. It gives the checksum of the definitions.
	CompareSchema Op = "compare schema"
	// PutTransit puts the transit into the map, with the hold.
	PutTransit Op = "put transit"
	// AskMembers waits until every member answers, or is none any more: before statements are held, so that they do not
	// wait for one that is silent.
	AskMembers Op = "ask members"
	// AwaitMembers waits until every member has acknowledged the map in which the
	// transit last changed, or its lease has run out. Late after ForMS.
	AwaitMembers Op = "await members"
	// Release ends the capture of the stream on its source; without a stream those of
	// both, on both shards.
	Release Op = "release"
	// Purge deletes the part's rows on the target, which does not own them; before a copy, but
	// those of tables that an interrupted one has brought whole.
	Purge Op = "purge"
	// AwaitWindow waits until one of the move's windows is open; changes that are followed
	// already go on.
	AwaitWindow Op = "await window"
	// Copy captures the source's changes and copies its rows; after an interruption it goes on
	// with the tables that are not there yet, as of a later position.
	Copy Op = "copy"
	// Follow applies changes until the target is nearly level with the source.
	Follow Op = "follow"
	// CaptureBack makes the capture of reverse replication on the target.
	CaptureBack Op = "capture back"
	// Verify compares both copies at one position, while changes are applied.
	Verify Op = "verify"
	// Hold puts the hold into the map, if the tables are still those that were copied.
	Hold Op = "hold"
	// Fence closes the source's guards. Late after ForMS.
	Fence Op = "fence"
	// DrainSource applies everything up to the fence. Late after ForMS.
	DrainSource Op = "drain source"
	// Unhold takes the hold out of the map.
	Unhold Op = "unhold"
	// SetGuards sets the guards of the source as the map would say without the hold.
	SetGuards Op = "set guards"
	// MarkBack says where reverse replication begins: behind everything that was applied. Late
	// after ForMS.
	MarkBack Op = "mark back"
	// OpenTarget opens the target's guards for the part. Late only if it is certain that the map has the source as
	// the owner: the target cannot be opened, in time or at all. ShutTarget is for what it may have opened.
	OpenTarget Op = "open target"
	// ShutTarget closes the target's guards for the part, if a cutover that was taken back has opened them.
	ShutTarget Op = "shut target"
	// Swap makes the target the owner in the map, without a hold.
	Swap Op = "swap"
	// SettleGuards sets the guards of both shards as the map says.
	SettleGuards Op = "settle guards"
	// KeepBack applies changes from the new owner to the old one, until the time Until.
	KeepBack Op = "keep back"
	// FollowFor applies changes for a while: between two cutovers.
	FollowFor Op = "follow for"
	// DropTransit takes the transit out of the map.
	DropTransit Op = "drop transit"
	// Sleep waits.
	Sleep Op = "sleep"
)

// The effects of the other kinds.
const (
	// Plan says what is to be done now: Result.Children, or nothing.
	Plan Op = "plan"
	// MakePlan measures what ranges hold, makes a plan and stores it: Result.PlanSteps.
	MakePlan Op = "make plan"
	// TakeSteps gives the next moves of the stored plan (Result.Children), or makes the next changes of the
	// map that move nothing: Result.Taken steps.
	TakeSteps Op = "take steps"
	// Spawn stores the record of a child, if there is none.
	Spawn Op = "spawn"
	// AwaitChildren waits until all children have ended or are opened for good. The
	// result's Failed names those that failed.
	AwaitChildren Op = "await children"
	// CancelChildren asks all children to be cancelled, as far as they can be.
	CancelChildren Op = "cancel children"
	// EndDrain takes the note that a shard is being drained out of the map. Plan puts it there.
	EndDrain Op = "end drain"
	// EditMap splits or merges ranges in the map, or pins a key.
	EditMap Op = "edit map"
)

// Effect is one thing to do, as plain data.
type Effect struct {
	Op     Op     `json:"op"`
	Source string `json:"source,omitempty"`
	Target string `json:"target,omitempty"`
	// Stream is the id of the changes from source to target, as engine.Mover has it.
	Stream string        `json:"stream,omitempty"`
	Hold   shardmap.Hold `json:"hold,omitempty"`
	// ForMS bounds it, or is how long it takes, milliseconds.
	ForMS int64 `json:"for_ms,omitempty"`
	// UntilMS is the time at which it ends, milliseconds since 1970.
	UntilMS int64 `json:"until_ms,omitempty"`
	Child   *Spec `json:"child,omitempty"`
}

// EventKind is what happened.
type EventKind string

// The kinds of events.
const (
	EventDone   EventKind = "done"   // all effects were carried out
	EventFailed EventKind = "failed" // one of them was not, nor those after it
	EventAsked  EventKind = "asked"  // an operator wants something
)

// Class says what a failure means.
type Class string

// The classes.
const (
	// Again: it may go better next time. A shard is down, a lock was not to be had.
	Again Class = "again"
	// Late: it did not end within its bound.
	Late Class = "late"
	// Changed: the tables are not those that were copied any more.
	Changed Class = "changed"
	// Gone: the changes since the copy are lost, by a failover or because they took too much room.
	Gone Class = "gone"
	// Refused: it will never go well as things are.
	Refused Class = "refused"
	// Differs: the copy is not what it should be.
	Differs Class = "differs"
)

// Wish is what an operator asks for.
type Wish string

// The wishes.
const (
	Pause    Wish = "pause"
	Resume   Wish = "resume"
	Cancel   Wish = "cancel"
	Reverse  Wish = "reverse"
	Complete Wish = "complete"
	Approve  Wish = "approve" // of a plan
)

// Event is something that happened.
type Event struct {
	Kind EventKind `json:"kind"`
	// At is the time, milliseconds since 1970.
	At int64 `json:"at"`
	// Seq is that of the state whose effects it is about. Not for Asked.
	Seq uint64 `json:"seq,omitempty"`

	Op    Op     `json:"op,omitempty"` // the effect that failed
	Class Class  `json:"class,omitempty"`
	Error string `json:"error,omitempty"`

	Wish Wish   `json:"wish,omitempty"`
	By   string `json:"by,omitempty"`
	// Bounds are those that a workflow goes on by from now on (Resume); nil: as before.
	Bounds *Bounds `json:"bounds,omitempty"`

	Result Result `json:"result"`
}

// Result is what effects found out.
type Result struct {
	Tables   string   `json:"tables,omitempty"` // CompareSchema
	Rows     int64    `json:"rows,omitempty"`   // Check, Copy
	Bytes    int64    `json:"bytes,omitempty"`
	HeldMS   int64    `json:"held_ms,omitempty"`  // Swap
	Children []Spec   `json:"children,omitempty"` // Plan
	Failed   []string `json:"failed,omitempty"`   // AwaitChildren
	Note     string   `json:"note,omitempty"`     // for the history
	// MakePlan
	PlanSteps  int     `json:"plan_steps,omitempty"`
	SkewBefore float64 `json:"skew_before,omitempty"`
	SkewAfter  float64 `json:"skew_after,omitempty"`
	Taken      int     `json:"taken,omitempty"` // TakeSteps
	// Verified is how far Verify has come, if not to its end.
	Verified *Verified `json:"verified,omitempty"`
}
