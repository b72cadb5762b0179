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
	s := seen{days: map[string]bool{}}
	for i := range list {
		newestOfDay := s.count(list[i].Backup)
		if why := s.anyhow(list[i].Backup, p); why != "" {
			list[i].keep(why)
		} else if why := s.byRule(list[i].Backup, now, p, newestOfDay); why != "" {
			list[i].keep(why)
		} else {
			list[i].Why = "no rule keeps it"
		}
	}
	keepBases(list)
	return list
}

// seen counts, from the newest on.
type seen struct {
	all, proven int
	days        map[string]bool
}

func (s *seen) count(b Backup) (newestOfDay bool) {
	s.all++
	if b.Proven {
		s.proven++
	}
	day := b.Ended.UTC().Format(time.DateOnly)
	newestOfDay = !s.days[day]
	s.days[day] = true
	return newestOfDay
}

// anyhow says why a backup is kept whatever its age.
func (s *seen) anyhow(b Backup, p Policy) string {
	switch {
	case p.Last <= 0 && p.Within <= 0 && p.Daily <= 0 && p.Proven <= 0:
		return "no rule removes backups"
	case s.all == 1:
		return "it is the newest"
	case b.Proven && s.proven == 1:
		return "it is the newest that is proven"
	}
	return ""
}

func (s *seen) byRule(b Backup, now time.Time, p Policy, newestOfDay bool) string {
	switch {
	case s.all <= p.Last:
		return "it is one of the newest"
	case p.Within > 0 && now.Sub(b.Ended) < p.Within:
		return "it is young enough"
	case newestOfDay && len(s.days) <= p.Daily:
		return "it is the newest of its day"
	case b.Proven && s.proven <= p.Proven:
		return "it is one of the newest that are proven"
	}
	return ""
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
