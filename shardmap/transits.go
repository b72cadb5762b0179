package shardmap

import (
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// MaxTransits bounds the transits of a map.
const MaxTransits = 4096

// MaxTransitIDBytes bounds the id of a transit: it is part of names on the shards.
const MaxTransitIDBytes = 40

// holds are the transits of a keyspace that have a hold.
type holds struct {
	all  []*Transit
	keys map[string]*Transit // by encoded key
	// spans are those with bounds.
	spans []heldSpan
}

type heldSpan struct {
	iv keyspace.Interval
	t  *Transit
}

// Holds returns the transits of the keyspace that have a hold, nil if there are
// none, which is nearly always so. Read-only.
func (ix *Index) Holds() []*Transit {
	if ix.held == nil {
		return nil
	}
	return ix.held.all
}

// Held returns the transit with a hold that a whole shard key is in, nil if there
// is none.
func (ix *Index) Held(k keyspace.Key) *Transit {
	if ix.held == nil {
		return nil
	}
	enc := keyspace.AppendOrdered(nil, k)
	if t := ix.held.keys[string(enc)]; t != nil {
		return t
	}
	if _, pinned := ix.pins[string(enc)]; pinned {
		return nil
	}
	for i := range ix.held.spans {
		if s := &ix.held.spans[i]; ix.contains(s.iv, k) {
			return s.t
		}
	}
	return nil
}

// HeldRange returns the transit with a hold that has keys of range i, nil if there
// is none. A range can have keys of several; then it is one of them.
func (ix *Index) HeldRange(i int) *Transit {
	if ix.held == nil || i < 0 || i >= len(ix.def.Ranges) {
		return nil
	}
	for _, t := range ix.held.all {
		if t.Key != nil {
			span, err := ix.span(t.Part.Clone())
			if err != nil {
				continue
			}
			if _, pinned := ix.pins[span.enc]; !pinned && ix.LocateRange(span.key) == i {
				return t
			}
			continue
		}
		if first, last, err := ix.rangesOf(t.Part); err == nil && first <= i && i <= last {
			return t
		}
	}
	return nil
}

// Sides returns the shard that owns a transit's keys, and the one that does not and
// may have rows of them.
func (ix *Index) Sides(t *Transit) (owner, stranger string) {
	span, err := ix.span(t.Part.Clone())
	if err != nil {
		return t.From, t.To // never: the map was checked
	}
	if ix.spanOwner(span) == t.From {
		return t.From, t.To
	}
	return t.To, t.From
}

// OwnerOf returns the shard that owns a part of a keyspace. It is an error if there
// is no such part, or if several shards own it.
func (s *Snapshot) OwnerOf(ks string, p Part) (shard string, err error) {
	ix, ok := s.keyspaces[ks]
	if !ok {
		return "", sqlstate.New(sqlstate.UndefinedObject, "keyspace %q does not exist", clip(ks)).
			WithHint("list the keyspaces with \"cleave keyspace list\"")
	}
	fail := func(e *sqlstate.Error) (string, error) {
		e.Keyspace, e.Range = ks, p.Text()
		return "", e
	}
	p = p.Clone()
	sp, bad := ix.span(p)
	if bad != nil {
		return fail(bad)
	}
	if sp.key != nil {
		if shard = ix.spanOwner(sp); shard == "" {
			return fail(invalid(sqlstate.CheckViolation, "no shard is listed for value %s of keyspace %q", keyText(p.Key), ks))
		}
		return shard, nil
	}
	for i := ix.rangeFrom(sp.iv); i < len(ix.def.Ranges) && ix.begins(i, sp.iv); i++ {
		r := &ix.def.Ranges[i]
		if shard != "" && r.Shard != shard {
			return fail(sqlstate.New(sqlstate.ObjectNotInState, "shards %s and %s own %s of keyspace %q together", shard, r.Shard, p.Text(), ks).
				WithHint("move the parts one by one: SELECT * FROM cleave.ranges shows them"))
		}
		shard = r.Shard
	}
	return shard, nil
}

// begins reports whether range i begins before the end of an interval.
func (ix *Index) begins(i int, iv keyspace.Interval) bool {
	if iv.Last || i == 0 {
		return true
	}
	if ix.def.Strategy == keyspace.Hash {
		return ix.lowHash(i) < iv.High
	}
	return ix.lowKey(i) < iv.HighKey
}

// Holding reports whether some transit of the map has a hold.
func (s *Snapshot) Holding() bool { return s.holding }

// TransitIn returns the transit of a keyspace that has positions of a range; nil if none has.
func (s *Snapshot) TransitIn(ks string, r *Range) *Transit {
	ix, ok := s.Keyspace(ks)
	if !ok {
		return nil
	}
	at, err := ix.span(Part{Low: r.Low, High: r.High})
	if err != nil {
		return nil // never: it is one of the map's
	}
	for i := range ix.def.Transits {
		t := &ix.def.Transits[i]
		if span, err := ix.span(t.Part); err == nil && span.key == nil && meets(ix, span.iv, at.iv) {
			return t
		}
	}
	return nil
}

// Overlap reports whether two parts of a keyspace have a key in common. false if one is none.
func (s *Snapshot) Overlap(ks string, a, b Part) bool {
	ix, ok := s.Keyspace(ks)
	if !ok {
		return false
	}
	x, err := ix.span(a.Clone())
	if err != nil {
		return false
	}
	y, err := ix.span(b.Clone())
	return err == nil && ix.overlap(x, y)
}

// Transit returns the transit with that id, and its keyspace; nil if there is none.
func (s *Snapshot) Transit(id string) (ks string, t *Transit) {
	for i := range s.state.Keyspaces {
		k := &s.state.Keyspaces[i]
		for j := range k.Transits {
			if k.Transits[j].ID == id {
				return k.Name, &k.Transits[j]
			}
		}
	}
	return "", nil
}

// checkTransits validates the transits of all keyspaces, brings their texts to
// canonical form and fills the look-ups.
func (s *Snapshot) checkTransits() error {
	ids := map[string]bool{}
	for i := range s.state.Keyspaces {
		k := &s.state.Keyspaces[i]
		if len(k.Transits) == 0 {
			continue
		}
		ix := s.keyspaces[k.Name]
		spans := make([]span, len(k.Transits))
		for j := range k.Transits {
			t := &k.Transits[j]
			if ids[t.ID] {
				return invalid(sqlstate.DuplicateObject, "transit %q is there twice", clip(t.ID))
			}
			ids[t.ID] = true
			var err *sqlstate.Error
			if spans[j], err = s.checkTransit(ix, t); err == nil {
				for o := range j {
					if ix.overlap(spans[j], spans[o]) {
						err = invalid(sqlstate.ObjectNotInState, "transit %q (%s) of keyspace %q overlaps transit %q (%s)",
							t.ID, t.Text(), k.Name, k.Transits[o].ID, k.Transits[o].Text()).
							WithHint("wait for that move, or end it: cleave moves %s", k.Transits[o].ID)
						break
					}
				}
			}
			if err != nil {
				err.Keyspace, err.Range = k.Name, t.Text()
				return err
			}
			if t.Hold == NoHold {
				continue
			}
			if ix.held == nil {
				ix.held = &holds{keys: map[string]*Transit{}}
			}
			s.holding = true
			ix.held.all = append(ix.held.all, t)
			if spans[j].key != nil {
				ix.held.keys[spans[j].enc] = t
			} else {
				ix.held.spans = append(ix.held.spans, heldSpan{spans[j].iv, t})
			}
		}
	}
	if len(ids) > MaxTransits {
		return invalid(sqlstate.ProgramLimitExceeded, "%d transits are more than the %d that a map can hold", len(ids), MaxTransits)
	}
	return nil
}

// checkTransit checks one by itself.
func (s *Snapshot) checkTransit(ix *Index, t *Transit) (span, *sqlstate.Error) {
	if !ValidTransitID(t.ID) {
		return span{}, invalid(sqlstate.InvalidParameterValue, "%q cannot be the id of a transit", clip(t.ID)).
			WithHint("use 1 to %d letters, digits, hyphens and underscores", MaxTransitIDBytes)
	}
	what := fmt.Sprintf("transit %q", t.ID)
	for _, shard := range []string{t.From, t.To} {
		if err := s.checkOwner(what, shard, t.Epoch); err != nil {
			return span{}, err
		}
	}
	switch {
	case t.From == t.To:
		return span{}, invalid(sqlstate.InvalidObjectDefinition, "%s is from shard %s to itself", what, t.From)
	case t.Hold != NoHold && t.Hold != HoldNew && t.Hold != HoldAll:
		return span{}, invalid(sqlstate.InvalidObjectDefinition, "%s has the unknown hold %q", what, clip(string(t.Hold)))
	}
	sp, err := ix.span(t.Part)
	if err != nil {
		return sp, err
	}
	if sp.key != nil {
		owner := ix.spanOwner(sp)
		if owner == "" {
			return sp, invalid(sqlstate.InvalidObjectDefinition, "%s is of key %s, for which no shard is listed", what, keyText(t.Key))
		}
		return sp, ownedBy(what, t, owner)
	}
	first, last, err := ix.rangesOf(t.Part)
	if err != nil {
		return sp, err
	}
	for i := first; i <= last; i++ {
		if err := ownedBy(what, t, ix.def.Ranges[i].Shard); err != nil {
			return sp, err
		}
		if ix.def.Ranges[i].Shard != ix.def.Ranges[first].Shard {
			return sp, invalid(sqlstate.InvalidObjectDefinition, "%s is of a part that shards %s and %s own together",
				what, ix.def.Ranges[first].Shard, ix.def.Ranges[i].Shard)
		}
	}
	return sp, nil
}

func ownedBy(what string, t *Transit, owner string) *sqlstate.Error {
	if owner == t.From || owner == t.To {
		return nil
	}
	return invalid(sqlstate.InvalidObjectDefinition, "%s is from shard %s to shard %s, but shard %s owns its part", what, t.From, t.To, owner)
}

// ValidTransitID reports whether a text can be the id of a transit.
func ValidTransitID(id string) bool {
	if id == "" || len(id) > MaxTransitIDBytes {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// rangesOf returns the first and the last range of a part with bounds, whose texts
// are canonical; an error if it does not consist of whole ranges.
func (ix *Index) rangesOf(p Part) (first, last int, err *sqlstate.Error) {
	find := func(bound []string, none int) (int, *sqlstate.Error) {
		if bound == nil {
			return none, nil
		}
		for i := range ix.def.Ranges {
			if slices.Equal(ix.def.Ranges[i].Low, bound) {
				return i, nil
			}
		}
		return 0, invalid(sqlstate.InvalidObjectDefinition, "part %s of keyspace %q does not consist of whole ranges: there is no bound at %s",
			boundsText(p.Low, p.High), ix.def.Name, keyText(bound))
	}
	if first, err = find(p.Low, 0); err != nil {
		return 0, 0, err
	}
	if last, err = find(p.High, len(ix.def.Ranges)); err != nil {
		return 0, 0, err
	}
	return first, last - 1, nil
}

// overlap reports whether two parts have a key in common.
func (ix *Index) overlap(a, b span) bool {
	switch {
	case a.key != nil && b.key != nil:
		return a.enc == b.enc
	case a.key != nil:
		_, pinned := ix.pins[a.enc]
		return !pinned && ix.contains(b.iv, a.key)
	case b.key != nil:
		return ix.overlap(b, a)
	case ix.def.Strategy == keyspace.Hash:
		return (a.iv.Last || b.iv.Low < a.iv.High) && (b.iv.Last || a.iv.Low < b.iv.High)
	}
	return (a.iv.Last || b.iv.LowKey < a.iv.HighKey) && (b.iv.Last || a.iv.LowKey < b.iv.HighKey)
}

func (t *Transit) same(o *Transit) bool {
	return t.ID == o.ID && t.Part.Equal(o.Part) && t.From == o.From && t.To == o.To && t.Hold == o.Hold
}

// Equal reports whether two parts in canonical form are the same.
func (p Part) Equal(o Part) bool {
	return slices.Equal(p.Low, o.Low) && slices.Equal(p.High, o.High) && slices.Equal(p.Key, o.Key)
}

// keepTransitEpochs gives transits that are as before their old epochs.
func keepTransitEpochs(before, k *Keyspace) {
	for i := range k.Transits {
		t := &k.Transits[i]
		for j := range before.Transits {
			if o := &before.Transits[j]; o.same(t) {
				t.Epoch = o.Epoch
			}
		}
	}
}

// checkMoving refuses what a change must not do to a part that is in transit,
// unless it is made for that transit. Both maps are valid.
func checkMoving(prev, next *Snapshot, by string) error {
	for name, was := range prev.keyspaces {
		for i := range was.def.Transits {
			t := &was.def.Transits[i]
			if t.ID == by {
				continue
			}
			fail := func(what string) error {
				err := sqlstate.New(sqlstate.ObjectNotInState, "%s of keyspace %q is being moved from shard %s to shard %s (%s): %s",
					t.Text(), name, t.From, t.To, t.ID, what).
					WithHint("wait for the move %s, or end it: cleave complete %s, cleave reverse %s, or before its cutover cleave cancel %s", t.ID, t.ID, t.ID, t.ID)
				err.Keyspace, err.Range, err.Epoch = name, t.Text(), t.Epoch
				return err
			}
			is, ok := next.keyspaces[name]
			if !ok {
				return fail("the keyspace cannot be dropped")
			}
			j := slices.IndexFunc(is.def.Transits, func(o Transit) bool { return o.ID == t.ID })
			switch lost := was.loses(t, next); {
			case j < 0 && lost && t.Hold == NoHold:
				if !was.sameWithin(is, t.Part) {
					return fail("its owner, bounds and pins can only be changed by that move")
				}
				continue
			case j < 0 && lost:
				return fail("statements in it are held")
			}
			if j < 0 || !t.same(&is.def.Transits[j]) {
				return fail("its transit can only be changed by that move")
			}
			if !was.sameWithin(is, t.Part) {
				return fail("its owner, bounds and pins can only be changed by that move")
			}
		}
	}
	return nil
}

// loses reports whether a map has not the shard of a transit that owns nothing of its part: the transit may end with
// that, since nobody asks it for rows any more.
func (ix *Index) loses(t *Transit, next *Snapshot) bool {
	owner, _ := ix.Sides(t)
	other := t.To
	if owner == t.To {
		other = t.From
	}
	_, there := next.Shard(other)
	return !there
}

// sameWithin reports whether owners, bounds and pins in a part, which is a
// transit's in both, are the same.
func (ix *Index) sameWithin(o *Index, p Part) bool {
	if p.Key != nil {
		a, err := ix.span(p.Clone())
		if err != nil {
			return false
		}
		_, wasPinned := ix.pins[a.enc]
		_, isPinned := o.pins[a.enc]
		return wasPinned == isPinned && ix.spanOwner(a) == o.spanOwner(a)
	}
	first, last, err := ix.rangesOf(p)
	if err != nil {
		return false
	}
	from, to, err := o.rangesOf(p)
	if err != nil || to-from != last-first {
		return false
	}
	for i := range last - first + 1 {
		a, b := &ix.def.Ranges[first+i], &o.def.Ranges[from+i]
		if a.Shard != b.Shard || !slices.Equal(a.Low, b.Low) || !slices.Equal(a.High, b.High) {
			return false
		}
	}
	pins := func(ix *Index) []string {
		s, err := ix.span(p.Clone())
		var all []string
		for _, k := range ix.pinKeys {
			if err == nil && ix.contains(s.iv, k) {
				all = append(all, joinKey(k.Texts()))
			}
		}
		slices.Sort(all)
		return all
	}
	return slices.Equal(pins(ix), pins(o))
}

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
