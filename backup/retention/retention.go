// Package retention decides which backups are kept. It computes: no files, no clock.
package retention

import (
	"cmp"
	"slices"
	"time"
)

// Backup is what the decision needs of a backup.
type Backup struct {
	ID     string
	Ended  time.Time
	Proven bool   // a drill has restored it and found it whole
	Base   string // the backup that this one builds on, "" for a full one
}

// Policy says what is kept. A backup that one of its rules keeps is kept; a policy without rules keeps all.
type Policy struct {
	Last   int           // so many of the newest
	Within time.Duration // those younger than this
	Daily  int           // the newest of each of so many days (UTC) that have one
	Proven int           // so many of the newest proven
}

// Decision is what becomes of a backup, with the reason in words.
type Decision struct {
	Backup
	Keep bool
	Why  string
}

// Decide returns a decision for each backup, newest first. Whatever the policy and the clock say, the newest backup, the
// newest proven one, and all that a kept one builds on are kept.
func Decide(now time.Time, all []Backup, p Policy) []Decision {
	list := make([]Decision, len(all))
	for i, b := range all {
		list[i] = Decision{Backup: b}
	}
	slices.SortStableFunc(list, func(a, b Decision) int {
		return cmp.Or(b.Ended.Compare(a.Ended), cmp.Compare(b.ID, a.ID))
	})
	proven, days := 0, map[string]bool{}
	for i := range list {
		d := &list[i]
		if d.Proven {
			proven++
		}
		day := d.Ended.UTC().Format(time.DateOnly)
		newest := !days[day]
		days[day] = true
		switch {
		case p.Last <= 0 && p.Within <= 0 && p.Daily <= 0 && p.Proven <= 0:
			d.keep("no rule removes backups")
		case i == 0:
			d.keep("it is the newest")
		case d.Proven && proven == 1:
			d.keep("it is the newest that is proven")
		case i < p.Last:
			d.keep("it is one of the newest")
		case p.Within > 0 && now.Sub(d.Ended) < p.Within:
			d.keep("it is young enough")
		case newest && len(days) <= p.Daily:
			d.keep("it is the newest of its day")
		case d.Proven && proven <= p.Proven:
			d.keep("it is one of the newest that are proven")
		default:
			d.Why = "no rule keeps it"
		}
	}
	keepBases(list)
	return list
}

func (d *Decision) keep(why string) { d.Keep, d.Why = true, why }

// keepBases keeps what others build on. What a kept one builds on may have a time that is wrong, and stand anywhere.
func keepBases(list []Decision) {
	at := map[string]int{}
	for i, d := range list {
		at[d.ID] = i
	}
	for _, d := range list {
		for d.Keep && d.Base != "" {
			i, ok := at[d.Base]
			if !ok || list[i].Keep {
				break // those that it builds on are kept by its own turn
			}
			list[i].keep("backup " + d.ID + " builds on it")
			d = list[i]
		}
	}
}
