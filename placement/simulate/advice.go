package simulate

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Level says how much an advice matters.
type Level string

const (
	// Problem means that the key cannot work as it is.
	Problem Level = "problem"
	// Warning means that the key works, but worse than one may expect.
	Warning Level = "warning"
	// Note is something to know.
	Note Level = "note"
)

// Advice is one thing to know about the key: what, why it matters, how it was
// found out, and what to do.
type Advice struct {
	// Code is "low-cardinality", "skewed", "rising", "falling", "mutable", "null",
	// "empty", "type", "unique", "one-row-keys" or "few-rows".
	Code     string `json:"code"`
	Level    Level  `json:"level"`
	What     string `json:"what"`
	Why      string `json:"why"`
	Measured string `json:"measured"`
	Do       string `json:"do"`
}

// evenEnough is the skew up to which shards are called even.
const evenEnough = 1.25

// KeysNeeded is how many keys of equal weight make that many shards even enough:
// the fullest shard has less than 1.25 times the mean, in the mean of many such
// sets of keys, when each key goes to a shard as if by dice (as with every hash).
func KeysNeeded(shards int) uint64 {
	if shards < 2 {
		return 1
	}
	// The fullest of n shards with m keys each has about m + sqrt(2 m ln n).
	n, d := float64(shards), evenEnough-1
	return uint64(math.Ceil(n * 2 * math.Log(n) / (d * d)))
}

// Advise says what is wrong with the key of a report. facts are what the
// database knows of the key's columns; nil for keys from a file.
func Advise(r *Report, facts []Column) []Advice {
	a := adviser{r: r, name: strings.Join(r.Columns, ", "), out: []Advice{}}
	if a.name == "" {
		a.name = "the key"
	}
	if r.Key.Rows > 0 {
		a.cardinality()
		a.skewed()
		a.order()
	}
	a.missing()
	for i := range facts {
		a.column(&facts[i])
	}
	a.uniqueness(facts)
	slices.SortStableFunc(a.out, func(x, y Advice) int { return rank(x.Level) - rank(y.Level) })
	return a.out
}

func rank(l Level) int { return slices.Index([]Level{Problem, Warning, Note}, l) }

type adviser struct {
	r    *Report
	name string
	out  []Advice
}

func (a *adviser) say(code string, level Level, what, why, measured, do string) {
	a.out = append(a.out, Advice{code, level, what, why, measured, do})
}

// about writes an estimate as one.
func about(n uint64, standardError float64) string {
	if standardError == 0 {
		return Thousands(n)
	}
	return fmt.Sprintf("about %s (±%.1f %%)", Thousands(n), 200*standardError)
}

// Thousands writes a number with commas: 1,234,567.
func Thousands(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func percent(share float64) string {
	switch p := 100 * share; {
	case p == 0 || p == 100:
		return fmt.Sprintf("%.0f %%", p)
	case p >= 1:
		return fmt.Sprintf("%.1f %%", p)
	default:
		return fmt.Sprintf("%.2g %%", p)
	}
}

func (a *adviser) cardinality() {
	k, n := &a.r.Key, a.r.Shards
	measured := fmt.Sprintf("%s distinct keys in %s rows", about(k.Distinct, k.DistinctError), Thousands(k.Rows))
	need := KeysNeeded(n)
	switch {
	case k.Distinct < uint64(n):
		a.say("low-cardinality", Problem,
			fmt.Sprintf("%s has only %s for %d shards", a.name, plural(k.Distinct, "distinct key"), n),
			fmt.Sprintf("a key's rows are all on one shard, so %s get no rows by any strategy", plural(uint64(n)-k.Distinct, "shard")),
			measured,
			fmt.Sprintf("shard by a column with many values (%s or more), or by this one and another together (--column %s,OTHER); for a few known classes use a list keyspace",
				Thousands(need), strings.Join(a.r.Columns, ",")))
	case k.Distinct < need:
		a.say("low-cardinality", Warning,
			fmt.Sprintf("%s has %s distinct keys; %d shards need about %s to be even by a hash", a.name, Thousands(k.Distinct), n, Thousands(need)),
			fmt.Sprintf("with few keys chance decides: the fullest shard has more than %.2f times the mean even if all keys are equally heavy", evenEnough),
			measured,
			"use fewer shards, place the keys by hand with pins or a list keyspace, or shard by a column with more values")
	case float64(k.Distinct) >= 0.99*(1-3*k.DistinctError)*float64(k.Rows) && k.Rows >= 1000:
		a.say("one-row-keys", Note,
			fmt.Sprintf("nearly every row has its own %s", a.name),
			"such a key is as even as can be, but rows that are used together share no key: a statement about several of them needs several shards",
			measured,
			"if rows belong to something (a tenant, a customer, a device), shard by that; it is what most WHERE clauses name")
	}
}

func plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Thousands(n) + " " + what + "s"
}

func (a *adviser) skewed() {
	k, n := &a.r.Key, a.r.Shards
	if len(k.Top) == 0 || n < 2 || k.Distinct < uint64(n) {
		return // few keys are a reason of their own
	}
	top := k.Top[0]
	sure := top.Sure()
	weight, heaviest := 0.0, 0.0
	for _, w := range a.r.Weights {
		weight += w
		heaviest = max(heaviest, w)
	}
	fair := heaviest / weight
	measured := fmt.Sprintf("%s of %s rows have the key %s", Thousands(top.Rows), Thousands(k.Rows), quoteKey(top.Key))
	if top.Error > 0 {
		measured = fmt.Sprintf("between %s and %s", Thousands(top.Rows-top.Error), measured)
	}
	switch {
	case sure > fair:
		a.say("skewed", Problem,
			fmt.Sprintf("one key has %s of the rows, and the largest shard's share is %s", percent(sure), percent(fair)),
			fmt.Sprintf("a key's rows are all on one shard, so no strategy can be even: more than %d shards of equal size do not help", max(1, int(1/sure))),
			measured,
			"pin that key to a shard of its own (cleave pin KEYSPACE KEY SHARD), or shard by this column and a second one so that its rows can be spread")
	case sure > fair/2:
		a.say("skewed", Warning,
			fmt.Sprintf("one key has %s of the rows, more than half of a shard's share", percent(sure)),
			"whatever else is on its shard makes it the fullest one, and it will grow there",
			measured,
			"plan to pin it to a shard of its own, or give its shard a larger weight")
	default:
		a.together()
	}
}

// together finds keys of which none is too heavy, but which make shards uneven
// where several of them meet.
func (a *adviser) together() {
	var skews []float64
	for _, p := range a.r.Strategies {
		if p.Strategy != Range {
			skews = append(skews, p.Skew)
		}
	}
	slices.Sort(skews)
	if len(skews) == 0 || skews[len(skews)/2] <= evenEnough || a.r.Key.Distinct < KeysNeeded(a.r.Shards) {
		return
	}
	sum := 0.0
	for i := range a.r.Key.Top {
		sum += a.r.Key.Top[i].Sure()
	}
	a.say("skewed", Warning,
		fmt.Sprintf("no key is too heavy for a shard, but the heavy ones together make shards uneven: skew %.2f to %.2f by hash", skews[0], skews[len(skews)-1]),
		"a hash spreads keys, not rows: where several heavy keys meet by chance, that shard is the fullest",
		fmt.Sprintf("the %d heaviest of %s keys have %s of the rows", len(a.r.Key.Top), about(a.r.Key.Distinct, a.r.Key.DistinctError), percent(sum)),
		"pin the heaviest keys to shards that have room (cleave pin KEYSPACE KEY SHARD), or use the range strategy with boundaries cut by rows")
}

func quoteKey(texts []string) string {
	short := make([]string, len(texts))
	for i, t := range texts {
		if r := []rune(t); len(r) > 60 {
			t = string(r[:60]) + "…"
		}
		short[i] = fmt.Sprintf("%q", t)
	}
	return strings.Join(short, ", ")
}

func (a *adviser) order() {
	k := &a.r.Key
	if k.RisingLag == 0 || k.Distinct < 2 {
		return
	}
	code, end, share := "rising", "last", k.Rising
	if share < 0.5 {
		code, end, share = "falling", "first", 1-share
	}
	if share < 0.95 {
		return
	}
	level, do := Note, "keep the hash strategy; use range only if most statements ask for spans of it, and then cut ranges ahead of time"
	if slices.ContainsFunc(a.r.Strategies, func(p Placed) bool { return p.Strategy == Range }) {
		level, do = Warning, "use a hash strategy, or put another column before it in the key"
	}
	measured := fmt.Sprintf("%s of rows have a key that is %s than that of the row %d before", percent(share),
		map[string]string{"rising": "greater", "falling": "smaller"}[code], k.RisingLag)
	for _, p := range a.r.Strategies {
		if p.Strategy == Range && p.WriteSkew > 0 {
			measured += fmt.Sprintf("; the range strategy's write skew is %.2f of %d shards", p.WriteSkew, a.r.Shards)
		}
	}
	a.say(code, level,
		fmt.Sprintf("%s is %s in the order in which the rows came", a.name, code),
		fmt.Sprintf("by the range strategy the %s range takes all new rows, so one shard does all the writing; hashes spread them", end),
		measured, do+" (if the input was sorted by this column on purpose, this says nothing)")
}

func (a *adviser) missing() {
	k := &a.r.Key
	all := k.Rows + k.Nulls + k.Empty
	if k.Nulls > 0 {
		a.say("null", Problem, fmt.Sprintf("%s is NULL in %s rows", a.name, Thousands(k.Nulls)),
			"a shard key is never NULL: these rows would be refused (23502), and they are in no figure here",
			fmt.Sprintf("%s of %s rows", Thousands(k.Nulls), Thousands(all)),
			"give them a value (such as 0 or 'none', if they are few), or choose a column that is NOT NULL")
	}
	if k.Empty > 0 {
		a.say("empty", Warning, fmt.Sprintf("%s is empty in %s rows", a.name, Thousands(k.Empty)),
			"all empty texts are one key, on one shard; in a CSV file an empty value mostly stands for NULL, which a shard key cannot be",
			fmt.Sprintf("%s of %s rows", Thousands(k.Empty), Thousands(max(all-k.Empty, k.Empty))),
			"find out what an empty value means, and give those rows a key")
	}
}
