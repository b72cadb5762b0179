package pgcatalog

// IsPolymorphic reports the pseudo-types that stand for other types. "any" is none of them: it stands for itself.
func IsPolymorphic(oid uint32) bool {
	switch oid {
	case oidAnyElement, oidAnyArray, oidAnyNonArray, oidAnyEnum, oidAnyRange, oidAnyMultirange,
		oidAnyCompatible, oidAnyCompatArray, oidAnyCompatNonArray, oidAnyCompatRange, oidAnyCompatMultirang:
		return true
	}
	return false
}

// fits reports whether a type can be what "any" or a polymorphic type stands for.
func (c Catalog) fits(t, param uint32) bool {
	have := c.Type(t)
	switch param {
	case oidAnyArray, oidAnyCompatArray:
		return have != nil && have.trueArray()
	case oidAnyNonArray, oidAnyCompatNonArray:
		return have == nil || have.Category != 'A'
	case oidAnyRange, oidAnyCompatRange:
		return have != nil && have.Kind == 'r'
	case oidAnyMultirange, oidAnyCompatMultirang:
		return have != nil && have.Kind == 'm'
	case oidAnyEnum:
		return have != nil && have.Kind == 'e'
	}
	return true
}

// family are the types for which the polymorphic types of a signature stand: anyelement and its
// like, or anycompatible and its like.
type family struct {
	used       bool // the signature has one of the family
	elem       uint32
	array      uint32
	rng        uint32
	multirange uint32
	elements   []uint32 // of anycompatible: the types of which elem is the common one
}

// solution is what the polymorphic types of a signature stand for.
type solution struct {
	any, compatible family
	ok              bool // the arguments can be meant together
}

// set keeps the first type that is given, and reports whether others are the same.
func set(to *uint32, t uint32) bool {
	if *to == 0 {
		*to = t
	}
	return *to == t
}

// take notes what an argument says of a family. role is the family's type that the parameter has,
// written as that of anyelement's family.
func (c Catalog) take(f *family, role, t uint32, element func(uint32) bool) bool {
	f.used = true
	if t == oidUnknown {
		return true
	}
	have := c.Type(t)
	switch role {
	case oidAnyArray:
		return set(&f.array, t) && element(c.Element(t))
	case oidAnyRange:
		return set(&f.rng, t) && have != nil && element(have.Subtype)
	case oidAnyMultirange:
		if have == nil || !set(&f.multirange, t) || !set(&f.rng, have.Subtype) {
			return false
		}
		r := c.Type(have.Subtype)
		return r != nil && element(r.Subtype)
	}
	return element(t)
}

// roles are the types of anycompatible's family by those of anyelement's.
var roles = map[uint32]uint32{oidAnyCompatible: oidAnyElement, oidAnyCompatNonArray: oidAnyNonArray, oidAnyCompatArray: oidAnyArray,
	oidAnyCompatRange: oidAnyRange, oidAnyCompatMultirang: oidAnyMultirange}

// solve finds what the polymorphic parameters stand for (check_generic_type_consistency).
func (c Catalog) solve(params, args []uint32) solution {
	s := solution{ok: true}
	for i, p := range params {
		if !IsPolymorphic(p) {
			continue
		}
		t, f := args[i], &s.any
		element := func(t uint32) bool { return set(&f.elem, t) }
		role := p
		if r, ok := roles[p]; ok {
			f, role = &s.compatible, r
			element = func(t uint32) bool {
				// An array alone may differ from others of the family: it converts to that of the common type.
				f.elements = append(f.elements, t)
				if role == oidAnyArray {
					f.array = 0
				}
				return t != 0
			}
		}
		s.ok = s.ok && (t == oidUnknown || c.fits(t, p)) && c.take(f, role, t, element)
	}
	for _, p := range params {
		s.ok = s.ok && (p != oidAnyNonArray || s.any.elem == 0 || c.fits(s.any.elem, p)) && (p != oidAnyEnum || s.any.elem == 0 || c.fits(s.any.elem, p))
	}
	s.ok = s.ok && c.common(&s.compatible, params)
	return s
}

// common finds the type that the elements of anycompatible's family have in common.
func (c Catalog) common(f *family, params []uint32) bool {
	if len(f.elements) == 0 {
		return true
	}
	var other uint32
	if f.elem, other = c.Common(f.elements); other != 0 {
		return false
	}
	for _, t := range f.elements {
		if !c.CanCoerce(t, f.elem, Implicit) {
			return false
		}
	}
	for _, p := range params {
		if p == oidAnyCompatNonArray && !c.fits(f.elem, p) {
			return false
		}
	}
	r := c.Type(f.rng)
	return f.rng == 0 || r != nil && r.Subtype == f.elem
}

// Common is the type that UNION, CASE, VALUES and their like give what is of several types
// (select_common_type). If there is none, the types typ and other do not match; else other is 0.
func (c Catalog) Common(list []uint32) (typ, other uint32) {
	typ = list[0]
	for _, t := range list[1:] {
		switch {
		case t == oidUnknown || t == typ:
		case typ == oidUnknown:
			typ = t
		case c.Category(t) != c.Category(typ):
			return typ, t
		case !c.Preferred(typ) && c.CanCoerce(typ, t, Implicit) && !c.CanCoerce(t, typ, Implicit):
			typ = t
		}
	}
	if typ == oidUnknown {
		typ = oidText
	}
	return typ, 0
}

// Bind replaces the polymorphic types of a signature, and "any", by what they stand for with the given arguments
// (enforce_generic_type_consistency). ok is false if the arguments do not say it. An unknown argument of "any" is a text.
func (c Catalog) Bind(params, args []uint32, result uint32) (types []uint32, returns uint32, ok bool) {
	s := c.solve(params, args)
	if !s.ok || s.any.used && s.any.elem == 0 {
		return nil, 0, false
	}
	if s.compatible.used && s.compatible.elem == 0 {
		s.compatible.elem = oidText // as of UNION's
	}
	types = make([]uint32, len(params))
	for i, p := range params {
		types[i] = p
		if p == oidAny {
			if types[i] = args[i]; args[i] == oidUnknown {
				types[i] = oidText
			}
		} else if IsPolymorphic(p) {
			types[i] = c.meant(&s, p)
		}
		if types[i] == 0 {
			return nil, 0, false
		}
	}
	returns = result
	if IsPolymorphic(result) {
		returns = c.meant(&s, result)
	}
	return types, returns, returns != 0
}

// meant is what a polymorphic type stands for, 0 if that is not known.
func (c Catalog) meant(s *solution, p uint32) uint32 {
	f := &s.any
	if r, ok := roles[p]; ok {
		f, p = &s.compatible, r
	}
	switch p {
	case oidAnyArray:
		if f.array != 0 {
			return f.array
		}
		return c.Array(f.elem)
	case oidAnyRange:
		return f.rng
	case oidAnyMultirange:
		if r := c.Type(f.rng); f.multirange == 0 && r != nil {
			return r.Multirange
		}
		return f.multirange
	}
	return f.elem
}
