package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Verdict says whether a column can be the shard key.
type Verdict string

const (
	// Good keys have nothing against them.
	Good Verdict = "good"
	// Possible keys have drawbacks that one can live with.
	Possible Verdict = "possible"
	// Poor keys do not work.
	Poor Verdict = "no"
)

// Candidate is a column that was looked at as a shard key by itself.
type Candidate struct {
	Column  string   `json:"column"`
	Type    string   `json:"type"`
	Verdict Verdict  `json:"verdict"`
	Key     Key      `json:"key"`
	Reasons []string `json:"reasons"` // for the verdict, the worst first
	// BestSkew is the least skew that any strategy can reach on the shards.
	BestSkew float64  `json:"best_skew"`
	Advice   []Advice `json:"advice"`

	penalty float64
}

// NewCandidate judges a column. c may know its name only; p is nil if its values
// could not be read as keys, and c.Refused then says why.
func NewCandidate(c Column, known bool, p *Profile, shards int) Candidate {
	out := Candidate{Column: c.Name, Type: c.Type, Verdict: Good, Key: Key{Top: []TopKey{}}, Reasons: []string{}, Advice: []Advice{}}
	if p == nil {
		out.Verdict, out.penalty = Poor, 1000
		out.Reasons = append(out.Reasons, c.Refused)
		out.Advice = append(out.Advice, Advice{"type", Problem, c.Name + " cannot be a shard key", c.Refused, "the type is " + c.Type,
			"choose another column, or add one of a type that can be a key"})
		return out
	}
	spec := Spec{Shards: shards}
	r := NewReport(&spec, p, nil, 3)
	r.Columns = []string{c.Name}
	out.Key = r.Key
	out.BestSkew = bestSkew(&r.Key, shards)
	var facts []Column
	if known {
		facts = []Column{c}
	}
	out.Advice = Advise(r, facts)
	for _, a := range out.Advice {
		switch {
		case a.Level == Problem:
			out.Verdict = Poor
			out.penalty += 100
		case a.Level == Warning && a.Code != "unique":
			if out.Verdict == Good {
				out.Verdict = Possible
			}
			out.penalty += 10
		case a.Code == "one-row-keys":
			// Even, but nothing is together: better than a drawback, worse than none.
			out.penalty += 5
		default:
			out.penalty++
		}
		out.Reasons = append(out.Reasons, a.What)
	}
	if r.Key.Rows == 0 {
		out.Verdict, out.penalty = Poor, 999
		out.Reasons = append(out.Reasons, "no row has a value")
	}
	if known {
		out.favour(&c)
	}
	if out.Verdict != Poor && len(out.Reasons) == 0 {
		out.Reasons = append(out.Reasons, fmt.Sprintf("%s keys, %.1f rows each", about(out.Key.Distinct, out.Key.DistinctError), float64(out.Key.Rows)/float64(max(out.Key.Distinct, 1))))
	}
	return out
}

// favour notes what speaks for a column that is known.
func (out *Candidate) favour(c *Column) {
	if c.InPrimaryKey {
		out.penalty -= 2
		out.Reasons = append(out.Reasons, "is in the primary key")
	}
	if len(c.References) > 0 {
		out.penalty -= 3
		out.Reasons = append(out.Reasons, "refers to "+strings.Join(c.References, ", ")+", so rows belong together by it")
	}
	if proof := c.fixed(); proof != "" {
		out.penalty--
		out.Reasons = append(out.Reasons, "does not change: "+proof)
	}
}

// bestSkew is the least possible skew: the heaviest key is on one shard, and
// shards without a key are empty.
func bestSkew(k *Key, shards int) float64 {
	s := 1.0
	if len(k.Top) > 0 {
		s = max(s, k.Top[0].Sure()*float64(shards))
	}
	if k.Distinct > 0 {
		s = max(s, float64(shards)/float64(k.Distinct))
	}
	return s
}

// Rank sorts candidates, the best first: by what speaks against them, then by
// how even they can be, then by how many keys they have.
func Rank(cs []Candidate) {
	order := []Verdict{Good, Possible, Poor}
	slices.SortStableFunc(cs, func(a, b Candidate) int {
		return cmp.Or(
			cmp.Compare(slices.Index(order, a.Verdict), slices.Index(order, b.Verdict)),
			cmp.Compare(a.penalty, b.penalty),
			cmp.Compare(a.BestSkew, b.BestSkew),
			cmp.Compare(b.Key.Distinct, a.Key.Distinct),
		)
	})
}
