package shardmap

import (
	"github.com/cleavedb/cleave/sqlstate"
)

// A shard that a workflow empties gets nothing new: no key, no transit that leads there, not the default shard's place. The map says
// so itself, so that no way of placing something can forget it. A transit that led there before goes on, and the drain waits for it.

// maxDrainBytes bounds the id of a workflow in a shard.
const maxDrainBytes = 64

// Drained says why nothing is placed on a shard: it is being drained. 55000, nil if it is not.
func (s *Snapshot) Drained(shard string) error {
	sh, ok := s.shards[shard]
	if !ok || sh.Drain == "" {
		return nil
	}
	return sqlstate.New(sqlstate.ObjectNotInState, "shard %s is being drained by %s: nothing is placed on it", shard, sh.Drain).OnShard(shard).
		WithHint("choose another shard, or end the drain first: cleave cancel %s", sh.Drain)
}

// StateWhy is why a shard is in its state, with the drain that empties it; "" for nothing.
func (sh *Shard) StateWhy() string {
	switch {
	case sh.Drain == "":
		return sh.ServiceWhy
	case sh.ServiceWhy == "":
		return "drained by " + sh.Drain
	}
	return sh.ServiceWhy + "; drained by " + sh.Drain
}

// Draining reports whether some shard is being drained.
func (s *Snapshot) Draining() bool { return s.draining }

// SetDrain notes the workflow that empties a shard, "" for none, and reports whether that is a change.
func (s *State) SetDrain(shard, id string) bool {
	for i := range s.Shards {
		if sh := &s.Shards[i]; sh.Name == shard && sh.Drain != id {
			sh.Drain = id
			return true
		}
	}
	return false
}

// checkDrains refuses a change that brings something to a shard which is being drained. by is the transit for which it is made.
func checkDrains(prev, next *Snapshot, by string) error {
	if !next.draining {
		return nil
	}
	drained := func(shard string) bool {
		return shard != "" && next.shards[shard] != nil && next.shards[shard].Drain != ""
	}
	fail := func(ks, shard, what string) error {
		err := sqlstate.As(next.Drained(shard))
		err.Keyspace, err.Detail = ks, what
		return err
	}
	if def := next.state.DefaultShard; def != prev.state.DefaultShard && drained(def) {
		return fail("", def, "It would become the default shard.")
	}
	for i := range next.state.Shards {
		// Who holds statements was promised that its part arrives.
		sh := &next.state.Shards[i]
		if was, ok := prev.shards[sh.Name]; sh.Drain == "" || ok && was.Drain == sh.Drain {
			continue
		}
		for _, a := range prev.arriving() {
			if _, to := prev.keyspaces[a.ks].Sides(a.t); to == sh.Name && a.t.To != sh.Name {
				return inHold(next.Drained(sh.Name), a)
			}
		}
	}
	_, own := prev.Transit(by)
	for name, is := range next.keyspaces {
		was := prev.keyspaces[name]
		if was != nil && !sameDefinition(was.def, is.def) {
			was = nil
		}
		for i := range is.def.Transits {
			t := &is.def.Transits[i]
			if _, before := prev.Transit(t.ID); before == nil && drained(t.To) {
				return fail(name, t.To, t.Text()+" of keyspace "+name+" would be moved to it.")
			}
		}
		for _, d := range diffContents(was, is) {
			to := d.To
			switch d.Kind {
			case BoundDiffers, TransitDiffers:
				continue
			case PinDiffers:
				var from string
				if from, to = pinSides(was, is, d.Key); from == to {
					continue
				}
			}
			if !drained(to) || own != nil && own.To == to {
				continue
			}
			what := Part{Low: d.Low, High: d.High, Key: d.Key}
			return fail(name, to, what.Text()+" of keyspace "+name+" would be placed on it.")
		}
	}
	return nil
}

// pinSides are the owners of a key before a change of the map and after it, "" where there is none. was may be nil.
func pinSides(was, is *Index, texts []string) (from, to string) {
	k, err := parseWhole(is.def, append([]string(nil), texts...))
	if err != nil {
		return "", "" // never: the map was checked
	}
	if was != nil {
		if a, err := was.Locate(k); err == nil {
			from = a.Shard
		}
	}
	if a, err := is.Locate(k); err == nil {
		to = a.Shard
	}
	return from, to
}
