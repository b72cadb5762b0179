package workflow

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Format is the version of the stored form of a State.
const Format = 1

// The keys of the directory's records, before a workflow's id.
const (
	RecordPrefix   = "workflow/"
	ProgressPrefix = "progress/"
	// PlanPrefix is before the id and number of a part of a stored plan.
	PlanPrefix = "plan/"
)

// Bounds of a workflow.
const (
	// MaxIDBytes bounds an id: with the ending of a stream it is one of engine.Mover's.
	MaxIDBytes = 38
	// historyMax bounds the lines of a history, lineMax one of them, errorMax an error, bytes.
	historyMax, lineMax, errorMax = 64, 300, 2000
	// MaxChildren bounds the children that a parent waits for at a time.
	MaxChildren = 32
)

// Kind is what a workflow does.
type Kind string

// The kinds.
const (
	Move   Kind = "move"   // a part of a keyspace to another shard
	Split  Kind = "split"  // a range into two, both where it was
	Merge  Kind = "merge"  // a range with its upper neighbour
	Drain  Kind = "drain"  // everything off a shard
	Spread Kind = "spread" // an even share of everything to shards
	// Rebalance makes a plan of splits, moves and merges by what ranges hold, and carries it
	// out when somebody has approved it.
	Rebalance Kind = "rebalance"
	// Pin pins a key to the shard that owns it, so that it can be moved by itself.
	Pin Kind = "pin"
)

// StepName is where a workflow is.
type StepName string

// The steps. Not every kind has all of them.
const (
	Planned    StepName = "planned"
	Preparing  StepName = "preparing"
	Copying    StepName = "copying"
	CatchingUp StepName = "catching up"
	Verifying  StepName = "verifying"
	Closing    StepName = "closing"
	Reopening  StepName = "reopening"
	Waiting    StepName = "waiting"
	Opening    StepName = "opening"
	Opened     StepName = "opened"
	Cleaning   StepName = "cleaning"
	Cancelling StepName = "cancelling"

	// Of those that change the map only, or have children.
	Planning StepName = "planning"
	Working  StepName = "working"  // children are under way
	Editing  StepName = "editing"  // the map is changed
	Proposed StepName = "proposed" // a plan waits for somebody who approves it
	Choosing StepName = "choosing" // the next steps of an approved plan are begun

	// The ends.
	Done       StepName = "done"
	Cancelled  StepName = "cancelled"
	RolledBack StepName = "rolled back"
	Failed     StepName = "failed"
)

// Ended reports whether nothing is left to do.
func (n StepName) Ended() bool {
	return n == Done || n == Cancelled || n == RolledBack || n == Failed
}

// Spec is what was asked for.
type Spec struct {
	ID       string        `json:"id"`
	Kind     Kind          `json:"kind"`
	Keyspace string        `json:"keyspace,omitempty"`
	Part     shardmap.Part `json:"part"`             // move: what; merge: the lower range's bounds
	At       []string      `json:"at,omitempty"`     // split: the bound; nil: the middle
	Half     string        `json:"half,omitempty"`   // split of a range: what its halves have alike
	From     string        `json:"from,omitempty"`   // move: the owner; drain: the shard
	To       string        `json:"to,omitempty"`     // move, drain ("": any)
	Shards   []string      `json:"shards,omitempty"` // spread: those that get something; none: all
	By       string        `json:"by"`
	Why      string        `json:"why,omitempty"`
	Parent   string        `json:"parent,omitempty"`
	// Complete (drain): earlier moves that are in the way are completed.
	Complete bool `json:"finish,omitempty"`
	// Unpin (move of a key): its pin goes, and it is where the keyspace puts it. Else
	// it is pinned to To. WasPinned says whether it had a pin before.
	Unpin     bool `json:"unpin,omitempty"`
	WasPinned bool `json:"was_pinned,omitempty"`
	// Balance is what a rebalance is for; Approved that it needs nobody's approval.
	Balance  *BalanceOptions `json:"balance,omitempty"`
	Approved bool            `json:"approved,omitempty"`
	Options
}

// Options are how it is to be done.
type Options struct {
	// KeepMS is how long changes are replicated to the old owner after the cutover, so that the move can be
	// reversed, milliseconds; -1: not at all.
	KeepMS int64 `json:"keep_ms"`
	// AskedKeepMS is what KeepMS was before somebody asked to complete the move; 0: nobody has.
	AskedKeepMS int64 `json:"asked_keep_ms,omitempty"`
	// Unverified leaves the comparison of both copies out.
	Unverified bool `json:"unverified,omitempty"`
	// VerifyBytes is about how much of the copies is compared at one position; 0: the
	// coordinator's own bound.
	VerifyBytes int64 `json:"verify_bytes,omitempty"`
	// RowsPerSecond and BytesPerSecond bound copy and clean-up; 0: no bound.
	RowsPerSecond  int64 `json:"rows_per_second,omitempty"`
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"`
	// Window is when rows are copied, compared and deleted and a cutover begins, as
	// ParseWindows reads it; "": always. What a person asks for does not wait for it: a
	// reversal, and what a cancel removes.
	Window string `json:"window,omitempty"`
	// MaxLatencyMS bounds how long a small write may take on either shard, milliseconds, and MaxLagMS and
	// MaxLagBytes how far a replica of either may be behind, before copy and clean-up slow down. 0: for the latency what adapts
	// itself (what the work adds to it on a shard that others use), DefaultMaxLagMS, and no bound of bytes; -1: no bound.
	MaxLatencyMS int64 `json:"max_latency_ms,omitempty"`
	MaxLagMS     int64 `json:"max_lag_ms,omitempty"`
	MaxLagBytes  int64 `json:"max_lag_bytes,omitempty"`
	// Polite is how many cutovers wait for transactions in the part to end by
	// themselves before one ends them; HoldMS bounds each, milliseconds.
	Polite int   `json:"polite"`
	HoldMS int64 `json:"hold_ms"`
}

// Bounds are the bounds of Options that can be changed while a workflow is at work; nil: as it is.
type Bounds struct {
	RowsPerSecond  *int64 `json:"rows_per_second,omitempty"`
	BytesPerSecond *int64 `json:"bytes_per_second,omitempty"`
	MaxLatencyMS   *int64 `json:"max_latency_ms,omitempty"`
	MaxLagMS       *int64 `json:"max_lag_ms,omitempty"`
	MaxLagBytes    *int64 `json:"max_lag_bytes,omitempty"`
}

// with returns options with some bounds, and whether they are others.
func (o Options) with(b *Bounds) (Options, bool) {
	before := o
	if b == nil {
		return o, false
	}
	for _, c := range []struct{ to, from *int64 }{
		{&o.RowsPerSecond, b.RowsPerSecond}, {&o.BytesPerSecond, b.BytesPerSecond}, {&o.MaxLatencyMS, b.MaxLatencyMS}, {&o.MaxLagMS, b.MaxLagMS}, {&o.MaxLagBytes, b.MaxLagBytes},
	} {
		if c.from != nil {
			*c.to = *c.from
		}
	}
	return o, o != before
}

// The defaults of Options.
const (
	DefaultKeepMS   = 24 * 60 * 60 * 1000
	DefaultHoldMS   = 5000
	DefaultPolite   = 3
	DefaultMaxLagMS = 10_000
)

// WithDefaults returns the options with what is 0 set.
func (o Options) WithDefaults() Options {
	if o.KeepMS == 0 {
		o.KeepMS = DefaultKeepMS
	}
	if o.HoldMS <= 0 {
		o.HoldMS = DefaultHoldMS
	}
	if o.Polite <= 0 {
		o.Polite = DefaultPolite
	}
	return o
}

// WaitsForWindow says for what a workflow waits at a time before it begins, in words; "" if it may
// begin, or has.
func (s *State) WaitsForWindow(now time.Time) string {
	if s.Step != Planned || s.Paused || s.Spec.Window == "" {
		return ""
	}
	ws, err := ParseWindows(s.Spec.Window)
	if err != nil {
		return err.Error()
	}
	return ws.Wait(now)
}

// lostTries is after how many failures in a row a shard that is to be cleaned up is taken for one that may be lost.
const lostTries = 3

// FailsSince returns since when a workflow does not get further, milliseconds since 1970: what it does has failed and is
// tried again, or one cutover after the other is. 0: it goes on, or a person holds it up.
func (s *State) FailsSince() int64 {
	if s.Step.Ended() || s.Paused || s.Tries == 0 && s.Attempt == 0 || s.Step == Opened && s.Tries == 0 {
		return 0
	}
	since := s.Changed
	for _, l := range slices.Backward(s.History) {
		again := l.Step == s.Step || s.Attempt > 0 && (l.Step == Closing || l.Step == Reopening || l.Step == Waiting || l.Step == Opening)
		if !again {
			break
		}
		since = l.At
	}
	return since
}

// WaitsForShard returns the shard that has nothing but what is to be deleted, while the workflow only waits for it:
// everything else has been let go. "" if it does not.
func (s *State) WaitsForShard() string {
	switch {
	case s.Spec.Kind != Move || s.Tries < lostTries:
		return ""
	case s.Step == Cancelling:
		return s.Target()
	case s.Step == Cleaning:
		return s.Source()
	}
	return ""
}

// State is a workflow as it is stored.
type State struct {
	Format int  `json:"format"`
	Spec   Spec `json:"spec"`

	Step StepName `json:"step"`
	// Seq grows with every change that makes other effects: events carry it.
	Seq uint64 `json:"seq"`
	// Paused: nothing is done until it is resumed. A cutover is not interrupted.
	Paused bool `json:"paused,omitempty"`
	// Back: the roles of the shards are exchanged (a move that is being reversed).
	Back bool `json:"back,omitempty"`
	// MayBeOpen: a cutover was taken back that may have opened the target's guards, which are shut before the source
	// takes writes again. ShutLater: the target could not be reached for that, so statements are let go first.
	MayBeOpen bool `json:"may_be_open,omitempty"`
	ShutLater bool `json:"shut_later,omitempty"`
	// After is the step that follows reopening, if it is not Waiting.
	After StepName `json:"after,omitempty"`
	// Ending is what the workflow ends as when it has cleaned up.
	Ending StepName `json:"ending,omitempty"`
	// Notes: the shards have a note of which rows are this move's to delete (see Spare). Not in records of earlier versions.
	Notes bool `json:"notes,omitempty"`
	// Tables is a checksum of the definitions that rows are copied by.
	Tables string `json:"tables,omitempty"`
	// Attempt counts the cutovers, Tries the failures of this step in a row, Restarts
	// the copies that were begun anew.
	Attempt  int `json:"attempt,omitempty"`
	Tries    int `json:"tries,omitempty"`
	Restarts int `json:"restarts,omitempty"`
	// BackLost says why reverse replication has ended; Outdated that this is because tables were changed: the old
	// rows are of no use then.
	BackLost string `json:"back_lost,omitempty"`
	Outdated bool   `json:"outdated,omitempty"`
	// Error is the last failure, "" once its step went well; Cause is why it is cleaned up, and fails then.
	Error string `json:"error,omitempty"`
	Cause string `json:"cause,omitempty"`

	// Rows and Bytes are what was estimated at the beginning, Copied what was copied.
	Rows   int64 `json:"rows,omitempty"`
	Bytes  int64 `json:"bytes,omitempty"`
	Copied int64 `json:"copied,omitempty"`
	// Verified is what of the copies was compared, nil before and afterwards.
	Verified *Verified `json:"verified,omitempty"`
	// Children are what a parent waits for; Made counts all it has made.
	Children []Spec `json:"children,omitempty"`
	Made     int    `json:"made,omitempty"`

	// Of a rebalance: how many steps its plan has, how many were begun, who approved it,
	// and the skew before and, as predicted, after.
	PlanSteps  int     `json:"plan_steps,omitempty"`
	PlanNext   int     `json:"plan_next,omitempty"`
	ApprovedBy string  `json:"approved_by,omitempty"`
	SkewBefore float64 `json:"skew_before,omitempty"`
	SkewAfter  float64 `json:"skew_after,omitempty"`

	// Times, in milliseconds since 1970 as the events told them.
	Created int64 `json:"created"`
	Changed int64 `json:"changed"`
	OpenAt  int64 `json:"open_at,omitempty"` // of the cutover
	// HeldMS is how long statements were held in the cutover that succeeded.
	HeldMS int64 `json:"held_ms,omitempty"`

	History []Line `json:"history"`
}

// Verified is how far the comparison of both copies has come: it goes on from there.
type Verified struct {
	// Pieces is how many pieces each table is compared in, 0: all tables at once.
	Pieces int `json:"pieces,omitempty"`
	// Done is how many pieces are done, table by table; Rows is what they have.
	Done int   `json:"done"`
	Rows int64 `json:"rows"`
}

// Line is a line of a workflow's history.
type Line struct {
	At   int64    `json:"at"`
	Step StepName `json:"step"`
	What string   `json:"what"`
}

// UnderWay reports whether a workflow has not ended and does something, or will without anybody's
// approval.
func (s *State) UnderWay() bool {
	return !s.Step.Ended() && s.Step != Proposed && (s.Spec.Kind != Rebalance || s.Step != Planning || s.Spec.Approved)
}

// New returns the state of a workflow that was just asked for, at that time in
// milliseconds.
func New(spec Spec, at int64) State {
	s := State{Format: Format, Spec: spec, Step: Planned, Seq: 1, Created: at, Notes: spec.Kind == Move}
	switch spec.Kind {
	case Split, Pin:
		s.Step = Editing
	case Merge, Drain, Spread, Rebalance:
		s.Step = Planning
	}
	s.note(at, "asked for by "+spec.By+orEmpty(": ", spec.Why))
	return s
}

// Abandon ends a workflow where it stands, without its effects: for a directory whose map is made anew.
func Abandon(s State, at int64, why string) State {
	next := s.clone()
	next.goTo(Failed, at, why)
	next.Error = clip(why)
	return next
}

// Nothing returns the state of a workflow for which nothing is left to do.
func Nothing(spec Spec, at int64, why string) State {
	s := New(spec, at)
	s.goTo(Done, at, why)
	return s
}

func orEmpty(before, s string) string {
	if s == "" {
		return ""
	}
	return before + s
}

// Source and Target are the shards that rows go from and to at the moment: those of
// the spec, or the other way round in a reversal.
func (s *State) Source() string {
	if s.Back {
		return s.Spec.To
	}
	return s.Spec.From
}

// Target: see Source.
func (s *State) Target() string {
	if s.Back {
		return s.Spec.From
	}
	return s.Spec.To
}

// Forth and Back are the ids of the streams of a move, as engine.Mover has them:
// from the old owner to the new one, and back.
func Forth(id string) string { return id + "_f" }

// Back: see Forth.
func Back(id string) string { return id + "_b" }

// Spare is the id under which a shard notes that its rows of a move's part are the move's to delete, as long as the shard does not
// own them: it was empty when the copy began, or has given them away since.
func Spare(id string) string { return id + spareEnd }

const spareEnd = "_s"

// IsSpare reports whether an id is one of Spare.
func IsSpare(stream string) bool { return strings.HasSuffix(stream, spareEnd) }

// StreamOf returns the id of the move that a stream, or a note (see Spare), is of.
func StreamOf(stream string) (id string, ok bool) {
	for _, end := range []string{"_f", "_b", spareEnd} {
		if id, ok := strings.CutSuffix(stream, end); ok {
			return id, true
		}
	}
	return "", false
}

// cut bounds a text, bytes, and says so in its end.
func cut(s string, most int) string {
	if s = strings.ToValidUTF8(s, ""); len(s) <= most {
		return s
	}
	const end = " ..."
	return strings.ToValidUTF8(s[:most-len(end)], "") + end
}

// note adds a line to the history. Of a long one the beginning is kept and the end.
func (s *State) note(at int64, what string) {
	what = cut(what, lineMax)
	lines := slices.Clone(s.History)
	if len(lines) >= historyMax {
		lines = slices.Delete(lines, historyMax/4, historyMax/4+1)
	}
	s.History = append(lines, Line{At: at, Step: s.Step, What: what})
	s.Changed = at
}

// Encode returns the stored form.
func (s *State) Encode() ([]byte, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if len(b) > shardmap.MaxRecordValueBytes {
		return nil, sqlstate.New(sqlstate.ProgramLimitExceeded, "the record of workflow %s would take %d bytes", s.Spec.ID, len(b))
	}
	return b, nil
}

// Decode reads the stored form.
func Decode(b []byte) (State, error) {
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		return State{}, sqlstate.Wrap(err, sqlstate.DataCorrupted, "the record of a workflow is damaged").WithHint("cleave doctor")
	}
	if s.Format != Format {
		return State{}, sqlstate.Refusal("CLV-1416", "workflow %s was written in format %d; this program knows %d", s.Spec.ID, s.Format, Format).
			WithHint("Update the programs of the cluster.")
	}
	return s, nil
}

// CheckID checks an id: letters, digits, '_' and '-', 1 to MaxIDBytes bytes.
func CheckID(id string) error {
	ok := id != "" && len(id) <= MaxIDBytes
	for i := 0; i < len(id) && ok; i++ {
		c := id[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
	}
	if !ok {
		return sqlstate.New(sqlstate.InvalidParameterValue, "an id has 1 to %d letters, digits, '_' and '-', not %q", MaxIDBytes, shorten(id))
	}
	return nil
}

func shorten(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:57], "") + "..."
	}
	return s
}

// Progress is how far a workflow has come. It is kept beside the State, since it
// changes all the time, and may be a second old.
type Progress struct {
	At   int64    `json:"at"` // milliseconds since 1970
	Step StepName `json:"step"`
	// Rows and Bytes are what was copied or deleted in this step, Changes what was applied.
	Rows    int64 `json:"rows"`
	Bytes   int64 `json:"bytes"`
	Changes int64 `json:"changes"`
	// RowsPerSecond and BytesPerSecond are of the last seconds.
	RowsPerSecond  float64 `json:"rows_per_second"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	// LagBytes is how far the target is behind, -1 if that is not known.
	LagBytes int64 `json:"lag_bytes"`
	// Doing is the effect that is under way, Note why it waits or is slow, in words.
	Doing Op     `json:"doing,omitempty"`
	Note  string `json:"note,omitempty"`
	Error string `json:"error,omitempty"`
}

// StepSince returns since when a workflow is in its step, milliseconds since 1970, as its history tells.
func (s *State) StepSince() int64 {
	since := s.Created
	for _, l := range slices.Backward(s.History) {
		if l.Step != s.Step {
			break
		}
		since = l.At
	}
	return since
}

// CopyTook is how long the last copy of a move took, as its history tells; ok is false if it has
// not ended.
func (s *State) CopyTook() (took time.Duration, ok bool) {
	var began int64
	for _, l := range s.History {
		switch {
		case l.Step == Copying:
			began, ok = l.At, false
		case l.Step == CatchingUp && began > 0 && !ok && !s.Back:
			took, ok = time.Duration(l.At-began)*time.Millisecond, true
		}
	}
	return max(took, time.Millisecond), ok && s.Spec.Kind == Move && s.Spec.Window == ""
}
