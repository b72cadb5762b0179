package simulate

import "slices"

// Report is the whole result, and the JSON of `cleave simulate --json`.
type Report struct {
	// Source is where the keys came from, Columns and Types the key's columns.
	Source  string   `json:"source"`
	Columns []string `json:"columns"`
	Types   []string `json:"types"`
	// Guessed is true if the types were guessed from the values.
	Guessed bool `json:"types_guessed"`
	// Interrupted is true if it was stopped: the figures are of the rows by then.
	Interrupted bool      `json:"interrupted"`
	Shards      int       `json:"shards"`
	Weights     []float64 `json:"weights"`
	Key         Key       `json:"key"`
	Strategies  []Placed  `json:"strategies"`
	Advice      []Advice  `json:"advice"`
}

// NewReport puts together what was counted by now. tallies may be in any order:
// the report has that of the spec. Source, Columns, Guessed and Interrupted are
// the caller's to fill in, and then Advice.
func NewReport(s *Spec, p *Profile, tallies []*Tally, top int) *Report {
	r := &Report{Columns: []string{}, Types: []string{}, Shards: s.Shards, Key: p.Key(top), Strategies: []Placed{}, Advice: []Advice{}}
	for _, t := range p.types {
		r.Types = append(r.Types, t.String())
	}
	for _, sh := range s.cluster(s.Shards) {
		r.Weights = append(r.Weights, sh.Weight)
	}
	for _, name := range s.Strategies {
		if i := slices.IndexFunc(tallies, func(t *Tally) bool { return t != nil && t.name == name }); i >= 0 {
			r.Strategies = append(r.Strategies, tallies[i].Placed(r.Key.Distinct))
		}
	}
	return r
}
