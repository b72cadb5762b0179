package pgcatalog

import "slices"

// OIDs of types that the rules of resolution name.
const (
	oidInt2               uint32 = 21
	oidInt2Vector         uint32 = 22
	oidText               uint32 = 25
	oidOID                uint32 = 26
	oidOIDVector          uint32 = 30
	oidUnknown            uint32 = 705
	oidAny                uint32 = 2276
	oidAnyArray           uint32 = 2277
	oidAnyElement         uint32 = 2283
	oidAnyNonArray        uint32 = 2776
	oidAnyEnum            uint32 = 3500
	oidAnyRange           uint32 = 3831
	oidAnyMultirange      uint32 = 4537
	oidAnyCompatMultirang uint32 = 4538
	oidAnyCompatible      uint32 = 5077
	oidAnyCompatArray     uint32 = 5078
	oidAnyCompatNonArray  uint32 = 5079
	oidAnyCompatRange     uint32 = 5080
)

// CastContext orders the contexts of a conversion: each allows what the ones
// before it allow (PostgreSQL manual, CREATE CAST).
type CastContext uint8

// The contexts.
const (
	Implicit CastContext = iota
	Assignment
	Explicit
)

// Allows reports whether the cast is made in a context.
func (k *Cast) Allows(ctx CastContext) bool {
	switch k.Context {
	case 'i':
		return true
	case 'a':
		return ctx >= Assignment
	}
	return ctx == Explicit
}

// Category returns the category of a type, X for types that are not built in.
func (c Catalog) Category(oid uint32) byte {
	if t := c.Type(oid); t != nil {
		return t.Category
	}
	return 'X'
}

// Preferred reports whether a type is the preferred one of its category.
func (c Catalog) Preferred(oid uint32) bool {
	t := c.Type(oid)
	return t != nil && t.Preferred
}

// Element returns the type of the elements of an array or vector, 0 for other types.
func (c Catalog) Element(oid uint32) uint32 {
	switch oid {
	case oidInt2Vector:
		return oidInt2
	case oidOIDVector:
		return oidOID
	}
	if t := c.Type(oid); t != nil && t.Category == 'A' {
		return t.Elem
	}
	return 0
}

// Array returns the type of arrays of a type, 0 if there is none.
func (c Catalog) Array(oid uint32) uint32 {
	if t := c.Type(oid); t != nil {
		return t.Array
	}
	return 0
}

func isVector(oid uint32) bool { return oid == oidInt2Vector || oid == oidOIDVector }

// trueArray reports a type of arrays of any length, the two vector types among them (get_element_type).
func (t *Type) trueArray() bool { return t.Category == 'A' && t.Elem != 0 && t.Size == -1 }

// CanCoerce reports whether a value of one type becomes one of another in a context (can_coerce_type).
func (c Catalog) CanCoerce(from, to uint32, ctx CastContext) bool {
	if from == to || from == oidUnknown {
		return true
	}
	if to == oidAny || IsPolymorphic(to) {
		return c.fits(from, to)
	}
	if k := c.Cast(from, to); k != nil {
		return k.Allows(ctx)
	}
	ft, tt := c.Type(from), c.Type(to)
	if ft == nil || tt == nil {
		return false
	}
	// Arrays convert as their elements do, but never into the two vector types.
	if !isVector(to) && ft.trueArray() && tt.trueArray() {
		return c.CanCoerce(ft.Elem, tt.Elem, ctx)
	}
	// Every type converts to and from the string types through its text form.
	if ctx >= Assignment && tt.Category == 'S' {
		return true
	}
	return ctx == Explicit && ft.Category == 'S'
}

// Match is a function or operator that could be meant, or a cast that is written as a call.
type Match struct {
	Args     []uint32 // the types of the parameters, one for each argument
	Function *Function
	Operator *Operator
	Cast     *Type // a call of a type's name
	// Expanded is how many arguments the variadic parameter takes, 0 if it is
	// not expanded; Defaulted how many parameters are left to their defaults.
	Expanded, Defaulted int
}

// choice is what is left of the candidates while rules take some away.
type choice struct {
	c     Catalog
	in    []uint32
	cands []Match
}

// pick chooses among candidates as func_select_candidate does (PostgreSQL
// manual, chapter "Type Conversion", Operators and Functions, step by step).
// It returns nil when the choice is ambiguous.
func (c Catalog) pick(in []uint32, cands []Match) *Match {
	x := choice{c, in, cands}
	x.keepBest(func(have, want uint32) bool { return have == want })
	x.keepBest(func(have, want uint32) bool {
		return have == want || c.Preferred(want) && c.Category(want) == c.Category(have)
	})
	if len(x.cands) > 1 {
		x.unknowns()
	}
	if len(x.cands) > 1 {
		x.alike()
	}
	if len(x.cands) == 1 {
		return &x.cands[0]
	}
	return nil
}

// keepBest keeps the candidates with the most parameters that suit their arguments.
func (x *choice) keepBest(suits func(have, want uint32) bool) {
	best, kept := 0, x.cands[:0:0]
	for _, k := range x.cands {
		n := 0
		for i, t := range x.in {
			if t != oidUnknown && suits(t, k.Args[i]) {
				n++
			}
		}
		if n > best || len(kept) == 0 {
			best, kept = n, append(kept[:0], k)
		} else if n == best {
			kept = append(kept, k)
		}
	}
	x.cands = kept
}

// unknowns gives each unknown argument a category, and keeps the candidates that take these.
func (x *choice) unknowns() {
	cats, prefs := make([]byte, len(x.in)), make([]bool, len(x.in))
	for i, t := range x.in {
		if t != oidUnknown {
			continue
		}
		var ok bool
		if cats[i], prefs[i], ok = x.category(i); !ok {
			return
		}
	}
	kept := x.cands[:0:0]
next:
	for _, k := range x.cands {
		for i, t := range x.in {
			if t == oidUnknown && (x.c.Category(k.Args[i]) != cats[i] || prefs[i] && !x.c.Preferred(k.Args[i])) {
				continue next
			}
		}
		kept = append(kept, k)
	}
	if len(kept) > 0 {
		x.cands = kept
	}
}

// category is that of an unknown argument: string if any candidate takes one there, else the one that all take.
func (x *choice) category(i int) (cat byte, preferred, ok bool) {
	have, conflict := false, false
	for _, k := range x.cands {
		c, pref := x.c.Category(k.Args[i]), x.c.Preferred(k.Args[i])
		switch {
		case !have:
			cat, preferred, have = c, pref, true
		case c == cat:
			preferred = preferred || pref
		case c == 'S':
			cat, preferred = c, pref
		default:
			conflict = true
		}
	}
	return cat, preferred, !conflict || cat == 'S'
}

// alike takes unknown arguments to be of the type that all others have, if exactly one candidate takes that.
func (x *choice) alike() {
	known := uint32(0)
	for _, t := range x.in {
		if t == oidUnknown || t == known {
			continue
		}
		if known != 0 {
			return
		}
		known = t
	}
	all := make([]uint32, len(x.in))
	unknown := false
	for i, t := range x.in {
		all[i], unknown = known, unknown || t == oidUnknown
	}
	if known != 0 && unknown {
		if kept := x.c.matching(all, x.cands); len(kept) == 1 {
			x.cands = kept
		}
	}
}

// matching are the candidates to whose parameters the arguments convert implicitly (func_match_argtypes).
func (c Catalog) matching(in []uint32, cands []Match) []Match {
	var out []Match
next:
	for _, k := range cands {
		for i, t := range in {
			if !c.CanCoerce(t, k.Args[i], Implicit) {
				continue next
			}
		}
		if s := c.solve(k.Args, in); s.ok {
			out = append(out, k)
		}
	}
	return out
}

// choose is what is common to functions and operators where no candidate takes exactly the given types.
func (c Catalog) choose(in []uint32, cands []Match) (k *Match, ambiguous bool) {
	if cands = c.matching(in, cands); len(cands) == 0 {
		return nil, false
	}
	k = c.pick(in, cands)
	return k, k == nil
}

// Prefix finds the prefix operator for the type of its operand.
func (c Catalog) Prefix(name string, right uint32) (o *Operator, ambiguous bool) {
	return c.operator(name, []uint32{right}, []uint32{right})
}

// Infix finds the operator for the types of its operands. It returns nil when none matches, or several do.
func (c Catalog) Infix(name string, left, right uint32) (o *Operator, ambiguous bool) {
	l, r := left, right
	if l == oidUnknown {
		l = r
	} else if r == oidUnknown {
		r = l
	}
	return c.operator(name, []uint32{left, right}, []uint32{l, r})
}

// operator finds the operator; exact are the types with which one is taken at once.
func (c Catalog) operator(name string, in, exact []uint32) (o *Operator, ambiguous bool) {
	var cands []Match
	for o := range c.Operators(name) {
		args := []uint32{o.Left, o.Right}
		if o.Left == 0 {
			args = args[1:]
		}
		if len(args) != len(in) {
			continue
		}
		if args[0] == exact[0] && args[len(args)-1] == exact[len(exact)-1] {
			return o, false
		}
		cands = append(cands, Match{Args: args, Operator: o})
	}
	k, ambiguous := c.choose(in, cands)
	if k == nil {
		return nil, ambiguous
	}
	return k.Operator, false
}

// Call finds what a call means by the types of its arguments; variadic: it has the keyword VARIADIC. A call
// of a type's name is a cast, where no function takes just this type. It returns nil when nothing matches, or
// several do. Procedures are not called so.
func (c Catalog) Call(name string, in []uint32, variadic bool) (k *Match, ambiguous bool) {
	var cands []Match
	for f := range c.Functions(name) {
		if k := f.candidate(len(in), variadic); k != nil {
			cands = k.among(cands)
		}
	}
	for i := range cands {
		if slices.Equal(cands[i].Args, in) {
			return &cands[i], false
		}
	}
	if len(in) == 1 && !variadic {
		if t := c.TypeNamed(name); t != nil && c.relabels(in[0], t.OID) {
			return &Match{Args: in, Cast: t}, false
		}
	}
	return c.choose(in, cands)
}

// among adds a candidate. Of two that take the same types, the one whose variadic parameter need not be expanded counts.
func (k *Match) among(cands []Match) []Match {
	i := slices.IndexFunc(cands, func(o Match) bool { return slices.Equal(o.Args, k.Args) && (o.Expanded == 0) != (k.Expanded == 0) })
	switch {
	case i < 0:
		return append(cands, *k)
	case k.Expanded == 0:
		cands[i] = *k
	}
	return cands
}

// candidate is the function as a call with n arguments would use it, nil if it cannot.
func (f *Function) candidate(n int, variadic bool) *Match {
	switch have := len(f.Args); {
	case f.Kind == 'p':
	case f.Variadic != 0 && !variadic && n >= have:
		args := append([]uint32(nil), f.Args[:have-1]...)
		for len(args) < n {
			args = append(args, f.Variadic)
		}
		return &Match{Args: args, Function: f, Expanded: n - have + 1}
	case have == n:
		return &Match{Args: f.Args, Function: f}
	case n < have && n >= have-f.Defaults:
		return &Match{Args: f.Args[:n], Function: f, Defaulted: have - n}
	}
	return nil
}

// relabels reports whether a type becomes another without a function of its own: only such casts can be
// written as calls of the type's name, as those with a function can be called by the function's.
func (c Catalog) relabels(from, to uint32) bool {
	if from == oidUnknown || from == to {
		return true
	}
	if k := c.Cast(from, to); k != nil {
		return k.Method != 'f'
	}
	ft, tt := c.Type(from), c.Type(to)
	return ft != nil && tt != nil && (ft.Category == 'S' || tt.Category == 'S') && ft.Kind != 'p'
}
