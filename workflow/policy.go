package workflow

import (
	"fmt"
	"slices"
	"time"

	"github.com/cleavedb/cleave/sqlstate"
)

// PolicyRecord is the key of the directory's record with the [Policy] and its history,
// PolicyStateRecord that with what the leader remembers of it.
const (
	PolicyRecord      = "balance/policy"
	PolicyStateRecord = "balance/state"
)

// Mode is what a policy does with what it finds.
type Mode string

// The modes.
const (
	Manual  Mode = "manual"  // nothing is looked at
	Propose Mode = "propose" // plans are made, and wait for somebody who approves them
	Auto    Mode = "auto"    // plans are made and carried out, within the limits
)

// Policy says when the cluster makes itself even, and how far it may go.
type Policy struct {
	Mode     Mode   `json:"mode"`
	Keyspace string `json:"keyspace,omitempty"` // "": all
	// By is what is to be even, see BalanceOptions.
	By string `json:"by,omitempty"`
	// MinSkew is the skew from which on something is done; Tolerance what a plan leaves.
	// Between both nothing happens, so that what was made even stays so for a while.
	MinSkew   float64 `json:"min_skew"`
	Tolerance float64 `json:"tolerance"`
	// SplitBytes and SplitLoad are the sizes above which ranges are cut into halves. Neighbours
	// are merged below a quarter of both. 0: never.
	SplitBytes int64   `json:"split_bytes,omitempty"`
	SplitLoad  float64 `json:"split_load,omitempty"`
	// AloneLoad is the load above which a key is placed by itself; 0: never.
	AloneLoad float64 `json:"alone_load,omitempty"`
	// EverySeconds is how often the cluster is measured, HoldSeconds for how long there must be
	// something to do before it is done, CoolSeconds how long after a plan nothing is done.
	EverySeconds int64 `json:"every_seconds"`
	HoldSeconds  int64 `json:"hold_seconds"`
	CoolSeconds  int64 `json:"cool_seconds"`
	// AtOnce bounds the moves under way at a time, BytesPerDay what they copy from one midnight
	// UTC to the next; 0: no bound.
	AtOnce      int   `json:"at_once,omitempty"`
	BytesPerDay int64 `json:"bytes_per_day,omitempty"`
	// BytesPerSecond bounds each move. Window is when plans are begun and moves copy and cut
	// over, see ParseWindows.
	BytesPerSecond int64  `json:"bytes_per_second,omitempty"`
	Window         string `json:"window,omitempty"`
}

// The defaults of a policy.
const (
	DefaultMinSkew      = 1.25
	DefaultTolerance    = 0.1
	DefaultEverySeconds = 300
	DefaultHoldSeconds  = 600
	DefaultCoolSeconds  = 3600
)

// DefaultPolicy is that of a cluster for which nobody has said anything.
func DefaultPolicy() Policy {
	return Policy{Mode: Manual, By: ByBytes, MinSkew: DefaultMinSkew, Tolerance: DefaultTolerance, EverySeconds: DefaultEverySeconds,
		HoldSeconds: DefaultHoldSeconds, CoolSeconds: DefaultCoolSeconds, AtOnce: 2}
}

// Check says what of a policy makes no sense: 22023.
func (p *Policy) Check() error {
	bad := func(format string, args ...any) error {
		return sqlstate.New(sqlstate.InvalidParameterValue, "a policy "+format, args...).WithHint("see: cleave policy set --help")
	}
	switch {
	case !slices.Contains([]Mode{Manual, Propose, Auto}, p.Mode):
		return bad("is manual, propose or auto, not %q", shorten(string(p.Mode)))
	case !slices.Contains([]string{ByBytes, ByRows, ByLoad, ByBoth}, p.By):
		return bad("makes bytes, rows, load or both even, not %q", shorten(p.By))
	case !(p.Tolerance >= 0.01 && p.Tolerance <= 10):
		return bad("leaves a tolerance of 0.01 to 10, not %v", p.Tolerance)
	case !(p.MinSkew >= 1+1.5*p.Tolerance && p.MinSkew <= 1000):
		return bad("acts from a skew of %.3g on, with that tolerance, or above, not %v: it would undo and do again", 1+1.5*p.Tolerance, p.MinSkew)
	case p.AtOnce > MaxChildren:
		return bad("has at most %d moves at once, not %d", MaxChildren, p.AtOnce)
	case p.EverySeconds < 1 || p.EverySeconds > 86400 || min(p.HoldSeconds, p.CoolSeconds) < 0 || max(p.HoldSeconds, p.CoolSeconds) > 30*86400:
		return bad("looks every 1 s to 24 h, and waits at most 30 days")
	}
	for _, n := range []struct {
		name  string
		value float64
	}{{"split_bytes", float64(p.SplitBytes)}, {"split_load", p.SplitLoad}, {"alone_load", p.AloneLoad}, {"at_once", float64(p.AtOnce)},
		{"bytes_per_day", float64(p.BytesPerDay)}, {"bytes_per_second", float64(p.BytesPerSecond)}} {
		if !(n.value >= 0) { // nor NaN
			return bad("has no negative %s: %g; 0 is no limit", n.name, n.value)
		}
	}
	_, err := ParseWindows(p.Window)
	return err
}

// Options are those of a plan that the policy makes when bytes were moved already today.
func (p *Policy) Options(movedToday int64) BalanceOptions {
	o := BalanceOptions{By: p.By, Tolerance: p.Tolerance, SplitBytes: p.SplitBytes, SplitLoad: p.SplitLoad,
		MergeBytes: p.SplitBytes / 4, MergeLoad: p.SplitLoad / 4, AloneLoad: p.AloneLoad, AtOnce: p.AtOnce, BytesPerSecond: float64(p.BytesPerSecond)}
	if p.BytesPerDay > 0 {
		o.MovedBytesMax = max(1, p.BytesPerDay-movedToday)
		// What is more than a day's bytes could never move.
		if half := p.BytesPerDay / 2; o.SplitBytes == 0 || o.SplitBytes > half {
			o.SplitBytes, o.MergeBytes = half, half/4
		}
	}
	return o
}

// PolicyChange is a line of a policy's history.
type PolicyChange struct {
	At     int64  `json:"at"` // milliseconds since 1970
	By     string `json:"by"`
	Why    string `json:"why,omitempty"`
	Policy Policy `json:"policy"`
}

// Policies is the record of a policy: the newest change is last.
type Policies struct {
	Format  int            `json:"format"`
	History []PolicyChange `json:"history"`
}

// policyHistoryMax is how many changes of a policy are kept.
const policyHistoryMax = 50

// Now returns the policy in force.
func (p *Policies) Now() Policy {
	if len(p.History) == 0 {
		return DefaultPolicy()
	}
	return p.History[len(p.History)-1].Policy
}

// Add makes a change the newest.
func (p *Policies) Add(c PolicyChange) {
	p.Format = Format
	p.History = append(slices.Clone(p.History), c)
	if over := len(p.History) - policyHistoryMax; over > 0 {
		p.History = p.History[over:]
	}
}

// PolicyState is what the leader remembers between looks.
type PolicyState struct {
	// Since is the time since which there has been something to do at each look, 0 if there
	// was nothing at the last one.
	Since int64 `json:"since,omitempty"`
	// Plan is the last rebalance that the policy began, Ended when it was seen to have ended.
	Plan  string `json:"plan,omitempty"`
	Ended int64  `json:"ended,omitempty"`
	// Day counts days since 1970, Moved the bytes that plans of that day have moved.
	Day   int64 `json:"day,omitempty"`
	Moved int64 `json:"moved,omitempty"`
	// Note says what the last look found, At when that was.
	Note string `json:"note,omitempty"`
	At   int64  `json:"at,omitempty"`
}

// Look is what the leader finds. Nothing is concluded from a shard that does not answer: then
// there is no look.
type Look struct {
	// Plan is what would make the cluster even, from what was measured just now.
	Plan *BalancePlan
	// Busy is what the policy has to wait for: its last plan that has not ended, or something else that moves rows; "": nothing.
	Busy string
}

const day = 24 * 60 * 60 * 1000

// Roll is the state at a time: on a new day nothing has been moved yet.
func (s PolicyState) Roll(now int64) PolicyState {
	if s.Day != now/day {
		s.Day, s.Moved = now/day, 0
	}
	return s
}

// Decide says whether a plan is to be begun now, and what is to be remembered. It is: if for
// HoldSeconds each look found something worth doing, no other plan is under way, the last
// one ended CoolSeconds ago, and the window is open. Worth doing are a skew from MinSkew on, a
// constraint that is broken, a range to be cut, or neighbours to be merged.
func (p *Policy) Decide(s PolicyState, look Look, now int64) (next PolicyState, begin bool) {
	s = s.Roll(now)
	s.At = now
	why := ""
	if look.Plan != nil {
		why = worth(p, look.Plan)
	}
	switch {
	case p.Mode == Manual:
		s.Since, s.Note = 0, "nothing is done by itself"
		return s, false
	case look.Busy != "":
		s.Since, s.Note = 0, look.Busy
		return s, false
	case why == "":
		s.Since = 0
		s.Note = "nothing has to be done"
		if look.Plan != nil {
			s.Note = fmt.Sprintf("nothing has to be done: the skew is %.2f, of %.2f", look.Plan.SkewBefore, p.MinSkew)
		}
		return s, false
	}
	if s.Since == 0 {
		s.Since = now
	}
	s.Note = why
	ws, err := ParseWindows(p.Window)
	switch {
	case now-s.Since < p.HoldSeconds*1000:
		s.Note += fmt.Sprintf("; it has to be so for %s", time.Duration(p.HoldSeconds)*time.Second)
	case s.Ended > 0 && now-s.Ended < p.CoolSeconds*1000:
		s.Note += fmt.Sprintf("; plan %s ended less than %s ago", s.Plan, time.Duration(p.CoolSeconds)*time.Second)
	case p.BytesPerDay > 0 && s.Moved >= p.BytesPerDay:
		s.Note += "; as much as is allowed was moved today"
	case err != nil:
		s.Note += "; the window cannot be read: " + err.Error()
	case ws.Wait(time.UnixMilli(now)) != "":
		s.Note += "; " + ws.Wait(time.UnixMilli(now))
	default:
		return s, true
	}
	return s, false
}

// worth says what of a plan is worth doing, "" if nothing is.
func worth(p *Policy, plan *BalancePlan) string {
	kinds := map[Kind]int{}
	repairs := false
	for i := range plan.Steps {
		kinds[plan.Steps[i].Kind]++
		repairs = repairs || plan.Steps[i].Repairs != ""
	}
	switch {
	case len(plan.Steps) == 0:
		return ""
	case repairs:
		return "a constraint is broken"
	case kinds[Move] > 0 && plan.SkewBefore >= p.MinSkew:
		return fmt.Sprintf("the skew is %.2f", plan.SkewBefore)
	case kinds[Split] > 0:
		return "a range is too large"
	case kinds[Pin] > 0:
		return "a key is hot"
	case kinds[Merge] > 0:
		return "ranges are small"
	}
	return ""
}
