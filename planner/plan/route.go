package plan

import (
	"errors"
	"strings"
	"unsafe"

	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/keytype"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// MaxKeyColumns is how many shard key columns are evaluated without allocation.
const MaxKeyColumns = 8

// Route says where one execution of the statement goes.
//
// OneShard: the owner of all shard key alternatives; if they are on several
// shards, Route.Several is set and nothing else. An alternative with NULL matches no row and is left out (in an INSERT it is an error). If none
// is left, no row can match, any shard gives the right answer and the default
// shard is taken. DefaultShard: the default shard. AnyShard: Route.Shard is "",
// the caller chooses. Other kinds have no route: 0A000.
//
// Errors: 0A000 if a parameter's type is not known, 23502 for a NULL shard key in an INSERT, 23514 for a key that a
// list keyspace does not have, 22xxx and 08P01 for a parameter that is not a
// value of its type.
//
// For one alternative of a fixed-size type nothing is allocated.
func (s *Statement) Route(snap *shardmap.Snapshot, args *Args) (Route, error) {
	return s.route(snap, args, "", nil)
}

// RouteText routes a text that has the same [Shaper.Normalize] shape as the
// statement, with the literals that Normalize found in it. ok is false if that
// cannot be done with certainty; then the text has to be analysed by itself.
// What holds for the statement besides its Text then holds for the text.
func (s *Statement) RouteText(snap *shardmap.Snapshot, sql string, literals []sqltext.Literal) (r Route, ok bool, err error) {
	if !s.Reusable {
		return r, false, nil
	}
	for _, l := range literals {
		// Longer digits are a numeric for PostgreSQL, which changes the types
		// of the expression around them.
		if l.Class == 'i' && l.End-l.Start > 18 {
			return r, false, nil
		}
	}
	if r, err = s.route(snap, nil, sql, literals); err == errUnsure {
		return Route{}, false, nil
	}
	return r, err == nil, err
}

// errUnsure is returned inside by a route from literals that cannot be read
// with certainty.
var errUnsure = errors.New("planner: not certain")

func (s *Statement) route(snap *shardmap.Snapshot, args *Args, sql string, literals []sqltext.Literal) (Route, error) {
	switch s.Kind {
	case OneShard:
	case DefaultShard:
		return Route{Shard: snap.State().DefaultShard}, nil
	case AnyShard:
		return Route{}, nil
	default:
		return Route{}, sqlstate.Refusal("CLV-0267", "this statement is not run on one shard")
	}
	index, found := snap.Keyspace(s.Keyspace)
	if !found {
		return Route{}, sqlstate.New(sqlstate.CannotConnectNow, "keyspace %q is not in the shard map any more", s.Keyspace)
	}
	var stack [MaxKeyColumns]keyspace.Value
	var route Route
	keys := s.Keys
	if s.ArrayKeys && literals == nil {
		var err error
		if keys, err = expandKeys(keys, args); err != nil {
			return Route{}, err
		}
	}
	for _, exprs := range keys {
		if len(exprs) > MaxKeyColumns {
			return Route{}, sqlstate.Refusal("CLV-0268", "the shard key has too many columns")
		}
		key := stack[:len(exprs)]
		match := true
		for i := range exprs {
			e := &exprs[i]
			var never bool
			switch {
			case literals != nil:
				v, ok := e.fromText(sql, literals)
				if !ok {
					return Route{}, errUnsure
				}
				key[i] = v
			case e.Param == 0:
				key[i], never = e.Value, e.Never
			default:
				var err error
				if key[i], never, err = e.eval(args); err != nil {
					return Route{}, err
				}
				if never && e.Into != nil && !e.Selected {
					return Route{}, NullKey(e.Into, e.Into.ShardKey[i])
				}
			}
			match = match && !never
		}
		if !match {
			continue
		}
		at, err := index.Locate(key)
		if err != nil {
			if unlisted := sqlstate.As(err).Code == sqlstate.CheckViolation; unlisted && !stores(exprs) {
				continue // no shard has rows of a value that is not listed
			} else if unlisted && exprs[0].Selected {
				return Route{Several: true, Keyspace: s.Keyspace}, nil // an error only if there are such rows
			}
			return Route{}, err
		}
		if index.Holds() != nil && route.Held == nil {
			route.Held = index.Held(key)
		}
		if route.Shard == "" {
			route = Route{Shard: at.Shard, Keyspace: s.Keyspace, Epoch: at.Epoch, Pinned: at.Pinned, Held: route.Held, Unit: at.Unit + 1, index: index, rangeAt: at.Range}
			continue
		}
		if at.Shard != route.Shard {
			return Route{Several: true, Keyspace: s.Keyspace}, nil
		}
		if at.Range != route.rangeAt || at.Pinned != route.Pinned {
			route.rangeAt, route.Pinned = several, false
		}
		route.Epoch = max(route.Epoch, at.Epoch)
	}
	if route.Shard == "" {
		return Route{Shard: snap.State().DefaultShard}, nil
	}
	return route, nil
}

// KeyTexts returns the first key that an execution names, printable, nil if there is none.
// It is not for the hot path.
func (s *Statement) KeyTexts(args *Args) []string { return s.firstKey(args, "", nil) }

// TextKey is KeyTexts for a text as RouteText has it.
func (s *Statement) TextKey(sql string, literals []sqltext.Literal) []string {
	if len(literals) == 0 {
		return nil
	}
	return s.firstKey(nil, sql, literals)
}

func (s *Statement) firstKey(args *Args, sql string, literals []sqltext.Literal) []string {
	keys := s.Keys
	if s.ArrayKeys && literals == nil {
		var err error
		if keys, err = expandKeys(keys, args); err != nil {
			return nil
		}
	}
	for _, exprs := range keys {
		key := make(keyspace.Key, len(exprs))
		match := true
		for i := range exprs {
			e := &exprs[i]
			never, ok := false, true
			switch {
			case literals != nil:
				key[i], ok = e.fromText(sql, literals)
			case e.Param == 0:
				key[i], never = e.Value, e.Never
			default:
				var err error
				key[i], never, err = e.eval(args)
				ok = err == nil
			}
			match = match && ok && !never
		}
		if match {
			return key.Texts()
		}
	}
	return nil
}

// stores reports whether a key is one that is written, not one that is looked for.
func stores(key []KeyExpr) bool {
	for i := range key {
		if key[i].Into != nil {
			return true
		}
	}
	return false
}

// several marks a route whose keys are in more than one range.
const several = -2

// Text returns the key range that decided, printable; "" where no key did. It
// allocates, so the hot path does without.
func (r *Route) Text() string {
	switch {
	case r.Range != "":
		return r.Range
	case r.index == nil:
		return ""
	case r.rangeAt == several:
		return "several"
	case r.Pinned:
		return "pin"
	case r.rangeAt < 0:
		return "listed value"
	}
	return r.index.RangeText(r.rangeAt)
}

// fromText reads the literal of another text of the same shape.
func (e *KeyExpr) fromText(sql string, literals []sqltext.Literal) (keyspace.Value, bool) {
	var v keyspace.Value
	if e.Param != 0 || e.Literal == 0 || int(e.Literal) > len(literals) {
		return v, false
	}
	l := literals[e.Literal-1]
	switch l.Class {
	case 'i':
		if !keytype.IsInt(e.As) {
			return v, false
		}
		n := int64(0)
		for _, c := range []byte(sql[l.Start:l.End]) {
			n = n*10 + int64(c-'0') // at most 18 digits
		}
		if !keytype.Fits(e.As, n) || !keytype.Fits(e.Type, n) {
			return v, false
		}
		return keyspace.Int(e.Type, n), true
	case 's':
		text := sql[l.Start+1 : l.End-1]
		if strings.IndexByte(text, '\'') >= 0 {
			return v, false
		}
		v, err := keyspace.ParseText(e.As, unsafe.Slice(unsafe.StringData(text), len(text)))
		if err != nil {
			return v, false
		}
		v, never, ok := keytype.Convert(v, e.Type)
		if !ok || never {
			return v, false
		}
		if v, err = e.Modifier.Coerce(v); err != nil {
			return v, false
		}
		return v, true
	}
	return v, false
}

// eval reads a parameter. never is true if it is equal to no value of the column.
func (e *KeyExpr) eval(args *Args) (v keyspace.Value, never bool, err error) {
	raw, oid, format, err := e.bound(args)
	if err != nil || raw == nil {
		return v, true, err
	}
	return e.value(raw, oid, format)
}

// bound returns the parameter as it was bound; nil is NULL.
func (e *KeyExpr) bound(args *Args) (raw []byte, oid uint32, format int16, err error) {
	raw, oid, format, ok := args.Param(e.Param)
	if !ok {
		return nil, 0, 0, sqlstate.New(sqlstate.UndefinedParameter, "there is no parameter $%d", e.Param)
	}
	if (oid == 0 || oid == pgoid.Unknown) && e.Strict && raw != nil {
		return nil, 0, 0, sqlstate.Refusal("CLV-0269", "parameter %s is the shard key, and the statement uses it elsewhere too, so its type is not certain", sqltext.Dollar(e.Param)).
			WithHint("Cast it where it is the shard key (%s::%s) and use a parameter of its own elsewhere, or give its type in the driver.", sqltext.Dollar(e.Param), e.Type.String())
	}
	return raw, oid, format, nil
}

// ReadAs is the type that a parameter of an open type is read as.
func (e *KeyExpr) ReadAs() keyspace.Type {
	if e.Cast != 0 {
		return e.Cast
	}
	return e.As
}

// value reads a value of a type (0: the one that it is compared with).
func (e *KeyExpr) value(raw []byte, oid uint32, format int16) (v keyspace.Value, never bool, err error) {
	as := e.ReadAs()
	switch {
	case oid == 0 || oid == pgoid.Unknown:
		if keytype.IsInt(as) && format == 1 {
			as = intOfSize(len(raw), as)
		}
	case keytype.IsInt(as) && (oid == pgoid.Int8 || oid == pgoid.Int4 || oid == pgoid.Int2):
		t, _ := keyspace.TypeByOID(oid)
		if e.Cast == 0 {
			as = t
		} else if v, err = parse(t, format, raw); err == nil && !keytype.Fits(e.Cast, v.Int()) {
			return v, false, sqlstate.New(sqlstate.NumericOutOfRange, "%s out of range", e.Cast)
		} else {
			as = t
		}
	case keytype.IsText(as) && (oid == pgoid.Text || oid == pgoid.Varchar):
	case oid == as.OID():
	case e.Cast != 0 && (oid == pgoid.Text || oid == pgoid.Varchar):
		format = 0 // the bytes of a text are the same in both formats
	case keytype.IsInt(as) && oid == pgoid.Numeric && format == 0 && e.Cast == 0 && e.Into == nil:
		n, integral, sure := keytype.WholeNumber(string(raw))
		if !sure {
			return v, false, typeRefusal(e)
		}
		if !integral || !keytype.Fits(e.Type, n) {
			return v, true, nil
		}
		return keyspace.Int(e.Type, n), false, nil
	default:
		return v, false, typeRefusal(e)
	}
	if v, err = parse(as, format, raw); err != nil {
		return v, false, err
	}
	v, never, ok := keytype.Convert(v, e.Type)
	if !ok {
		return v, false, typeRefusal(e)
	}
	if never {
		if e.Into != nil {
			return v, false, sqlstate.New(sqlstate.NumericOutOfRange, "%s out of range", e.Type)
		}
		return v, true, nil
	}
	if e.Modifier != keyspace.NoModifier {
		if v, err = e.Modifier.Coerce(v); err != nil {
			return v, false, err
		}
	}
	return v, false, nil
}

func parse(t keyspace.Type, format int16, raw []byte) (keyspace.Value, error) {
	if format == 1 {
		return keyspace.ParseBinary(t, raw)
	}
	return keyspace.ParseText(t, raw)
}

// intOfSize is the integer type that a binary value of a length can be.
func intOfSize(n int, otherwise keyspace.Type) keyspace.Type {
	switch n {
	case 2:
		return keyspace.Int2
	case 4:
		return keyspace.Int4
	case 8:
		return keyspace.Int8
	}
	return otherwise
}

func typeRefusal(e *KeyExpr) error {
	return sqlstate.Refusal("CLV-0270", "parameter %s has a type that the router does not compare with a shard key of type %s", sqltext.Dollar(e.Param), e.Type.String()).
		WithHint("Send it as %s, or leave its type open.", e.Type.String())
}

// Held returns a transit with a hold that has keys which one execution of the
// statement may touch, nil if there is none. Where the keys are not known before it
// runs, it may touch any of the keyspace. args may be nil for a statement without
// parameters. It costs something only while the map has a hold.
func (s *Statement) Held(snap *shardmap.Snapshot, args *Args) *shardmap.Transit {
	if !snap.Holding() {
		return nil
	}
	var held *shardmap.Transit
	s.needs(snap, args, &need{
		key:  func(ix *shardmap.Index, k keyspace.Key) { held = first(held, ix.Held(k)) },
		span: func(ix *shardmap.Index, i int) { held = first(held, ix.HeldRange(i)) },
		whole: func(ix *shardmap.Index) {
			if all := ix.Holds(); len(all) > 0 {
				held = first(held, all[0])
			}
		},
	})
	return held
}

func first(a, b *shardmap.Transit) *shardmap.Transit {
	if a != nil {
		return a
	}
	return b
}

// Epoch returns the highest epoch of what one execution of the statement may touch,
// as Held understands it; 0 if that is nothing.
func (s *Statement) Epoch(snap *shardmap.Snapshot, args *Args) uint64 {
	epoch := snap.State().DefaultEpoch // unsharded tables came to the default shard with it
	s.needs(snap, args, &need{
		key: func(ix *shardmap.Index, k keyspace.Key) {
			if at, err := ix.Locate(k); err == nil {
				epoch = max(epoch, at.Epoch)
			}
		},
		span: func(ix *shardmap.Index, i int) { epoch = max(epoch, ix.Def().Ranges[i].Epoch) },
		whole: func(ix *shardmap.Index) {
			def := ix.Def()
			for i := range def.Ranges {
				epoch = max(epoch, def.Ranges[i].Epoch)
			}
			for i := range def.Values {
				epoch = max(epoch, def.Values[i].Epoch)
			}
			for i := range def.Pins {
				epoch = max(epoch, def.Pins[i].Epoch)
			}
		},
	})
	return epoch
}

// need is told what a statement may touch: keys, ranges without their pins, or a
// whole keyspace.
type need struct {
	key   func(*shardmap.Index, keyspace.Key)
	span  func(*shardmap.Index, int)
	whole func(*shardmap.Index)
}

func (s *Statement) needs(snap *shardmap.Snapshot, args *Args, n *need) {
	switch {
	case s.Kind == OneShard:
		t := Target{Keyspace: s.Keyspace, Keys: s.Keys}
		if len(s.Keys) == 0 {
			return // no row can match
		}
		t.needs(snap, args, n)
	case s.Kind == ExplainRoute && s.Analyze && s.Inner != nil:
		s.Inner.needs(snap, args, n)
	case s.Kind == DDLKind:
		// TRUNCATE is the one that is about rows.
		if len(s.DDL.Cascades) > 0 && s.DDL.AllShards {
			for _, k := range snap.State().Keyspaces { // what it reaches is known on the shards
				(&Target{Keyspace: k.Name}).needs(snap, args, n)
			}
			return
		}
		for _, name := range s.DDL.Truncated {
			if t, ok := snap.Table(name.Schema, name.Name); ok && t.Keyspace != "" {
				(&Target{Keyspace: t.Keyspace}).needs(snap, args, n)
			}
		}
	case s.Kind == Several && s.Plan != nil:
		s.Plan.needs(snap, args, n)
	}
}

func (p *Plan) needs(snap *shardmap.Snapshot, args *Args, n *need) {
	all := func(t *shardmap.Table) {
		if t != nil && t.Keyspace != "" {
			(&Target{Keyspace: t.Keyspace}).needs(snap, args, n)
		}
	}
	inner := func(s *Statement) {
		if s != nil {
			s.needs(snap, args, n)
		}
	}
	p.Target.needs(snap, args, n)
	for i := range p.Relations {
		p.Relations[i].Target.needs(snap, args, n)
	}
	if i := p.Insert; i != nil {
		all(i.Table) // where its rows go is known when they are
		inner(i.Source)
		for _, c := range i.Computed {
			inner(c)
		}
	}
	if m := p.Modify; m != nil {
		if m.Move != nil {
			all(m.Table)
		}
		for _, r := range m.Reads {
			inner(r)
		}
	}
	if c := p.Copy; c != nil {
		inner(c.Source)
	}
}

func (t *Target) needs(snap *shardmap.Snapshot, args *Args, n *need) {
	if t.Where != KeyShards || t.Keyspace == "" {
		return
	}
	index, found := snap.Keyspace(t.Keyspace)
	if !found {
		return // the statement itself is refused
	}
	if t.Keys == nil && t.Spans == nil {
		n.whole(index)
		return
	}
	for i := range t.Spans {
		if err := t.Spans[i].visit(index, args, func(i int) { n.span(index, i) }, func(i int) {
			def := index.Def()
			if k, err := keyspace.ParseKey(def.Types, def.Pins[i].Key); err == nil {
				n.key(index, k)
			}
		}); err != nil {
			n.whole(index) // it cannot be told
			return
		}
	}
	keys, err := expandKeys(t.Keys, args)
	if err != nil {
		n.whole(index)
		return
	}
	for _, exprs := range keys {
		key := make(keyspace.Key, len(exprs))
		match := true
		for i := range exprs {
			v, never, err := exprs[i].Value, exprs[i].Never, error(nil)
			if exprs[i].Param != 0 {
				if v, never, err = exprs[i].eval(args); err != nil {
					n.whole(index)
					return
				}
			}
			key[i], match = v, match && !never
		}
		if match {
			n.key(index, key)
		}
	}
}

// KeyExpr is a shard key column's value: a literal, or a parameter.
type KeyExpr struct {
	Type  keyspace.Type
	Param int            // 1-based; 0 for a literal
	Value keyspace.Value // literal
	Never bool           // the literal is NULL or out of the column's domain: no row can match
	// Cast is the type of an explicit cast around the parameter, 0 if none.
	Cast keyspace.Type
	// Array: the parameter is an array, of which the value is one element.
	Array bool
	// Strict is set when the statement uses the parameter elsewhere too, where
	// PostgreSQL could take another type for it: then the client has to say it.
	Strict bool

	Into *shardmap.Table // the table that an INSERT stores the value in, nil for a comparison
	// Selected: rows of a query are stored, which may give none. What it says of them
	// comes from its conditions, so that there are none with NULL.
	Selected bool
	Modifier keyspace.Modifier // what the column does to a stored value (INSERT)
	Literal  int32             // 1-based index into the literals of Normalize; 0: not a plain literal
	Location int32             // byte offset of the literal in the text + 1
	As       keyspace.Type     // the type that the literal is read as, before it becomes Type
}

// Route is where one execution goes.
type Route struct {
	Shard    string
	Keyspace string // "" where no key decided
	// Range is printable where the caller has filled it with Text; Route leaves
	// it empty so that the hot path builds no string.
	Range  string
	Epoch  uint64 // of the range or pin; the highest of several
	Pinned bool
	// Several: the keys are on several shards, so the statement has to be planned
	// for them: Planner.Several.
	Several bool
	// Held is a transit with a hold that has a key of the statement, nil nearly
	// always. Of a route to several shards it may be missing, see [Statement.Held].
	Held *shardmap.Transit
	// Unit is 1 more than the number of the assignment that decided, of the first one where
	// there are several (see shardmap.Snapshot.Units); 0 where no key did.
	Unit int

	index   *shardmap.Index
	rangeAt int // index into the keyspace's ranges, negative for a pin or listed value
}

// NullKey is the error of NULL in a column of the shard key.
func NullKey(t *shardmap.Table, col string) error {
	e := sqlstate.New(sqlstate.NullNotAllowed, "")
	e.Code = sqlstate.NotNullViolation
	e.Message = "null value in column " + sqltext.QuoteAlways(col) + " of relation " + sqltext.QuoteAlways(t.Name) + " violates not-null constraint"
	e.Schema, e.Table, e.Column = t.Schema, t.Name, col
	return e
}
