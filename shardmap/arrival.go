package shardmap

import (
	"slices"

	"github.com/cleavedb/cleave/sqlstate"
)

// arriving is a transit whose owner changes at any moment: it is on hold.
type arriving struct {
	ks string
	t  *Transit
}

// arriving lists the transits on hold, in the order of the map.
func (s *Snapshot) arriving() []arriving {
	var out []arriving
	for i := range s.state.Keyspaces {
		k := &s.state.Keyspaces[i]
		for n := range k.Transits {
			if k.Transits[n].Hold != NoHold {
				out = append(out, arriving{k.Name, &k.Transits[n]})
			}
		}
	}
	return out
}

// checkHeld keeps a promise to those who hold statements: while a transit is on hold no change of the map is taken
// after which a constraint would refuse the change of its owner. Constraints are about one assignment or two, so it is
// enough to look at each transit on hold and at each two of them. What was in the way before stays possible: the change
// may be the one that ends it.
func checkHeld(prev, next *Snapshot) error {
	if len(next.rules) == 0 {
		return nil
	}
	held, before := next.arriving(), prev.arriving()
	was := func(a arriving) bool {
		return slices.ContainsFunc(before, func(b arriving) bool { return b.t.ID == a.t.ID })
	}
	for i, a := range held {
		// The move that puts a hold has asked for its own arrival, exactly: a pin may go with it.
		if was(a) {
			for _, unpin := range []bool{false, true} {
				if err := next.arrival(unpin, a); err != nil && prev.arrival(unpin, a) == nil {
					return inHold(err, a)
				}
			}
		}
		for _, b := range held[:i] {
			if err := next.arrival(false, b, a); err != nil && !(was(a) && was(b) && prev.arrival(false, b, a) != nil) {
				return inHold(err, b)
			}
		}
	}
	return nil
}

func inHold(err error, a arriving) error {
	e := sqlstate.New(sqlstate.ObjectNotInState, "move %s is changing the owner of %s of keyspace %s at this moment, and this change would not let it: %v",
		a.t.ID, a.t.Text(), a.ks, err).WithHint("try again in a moment; see: cleave moves %s", a.t.ID)
	e.Keyspace, e.Range = a.ks, a.t.Text()
	return e
}

// arrival says why the last of some transits could not change its owner after the others have: a constraint would be
// broken. unpin: a key that the target owns without its pin loses it.
func (s *Snapshot) arrival(unpin bool, all ...arriving) error {
	cur := s
	for _, a := range all {
		ix, ok := cur.keyspaces[a.ks]
		if !ok {
			return nil // checkMoving says so
		}
		_, to := ix.Sides(a.t)
		next := cur.state.Clone()
		if unpin {
			if a.t.Key == nil {
				return nil
			}
			if had, err := next.DropPin(a.ks, a.t.Key); err != nil || !had {
				return nil
			}
		} else if err := next.SetOwner(a.ks, a.t.Part.Clone(), to); err != nil {
			return nil
		}
		after, err := build(next)
		if err != nil {
			return nil // it is no question of constraints
		}
		if unpin {
			if owner, err := after.OwnerOf(a.ks, a.t.Part); err != nil || owner != to {
				return nil
			}
		}
		if a == all[len(all)-1] {
			return checkConstraints(cur, after)
		}
		cur = after
	}
	return nil
}
