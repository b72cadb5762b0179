package sqlite

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
)

// The built-in types, functions, operators and casts of PostgreSQL 15, read from
// pg_type, pg_proc, pg_operator and pg_cast of a fresh server (columns in the
// order of the scanners below).
var (
	//go:embed pgcatalog/type.tsv
	typeTSV string
	//go:embed pgcatalog/proc.tsv
	procTSV string
	//go:embed pgcatalog/operator.tsv
	operatorTSV string
	//go:embed pgcatalog/cast.tsv
	castTSV string
)

type pgType struct {
	oid         uint32
	name        string
	size        int16
	kind        byte // typtype
	category    byte
	preferred   bool
	elem, array uint32
	in, out     uint32
	collation   uint32
	relid       uint32
	storage     string
	align       string
	byval       bool
}

type pgProc struct {
	oid       uint32
	name      string
	kind      byte // f, a, w, p
	set       bool
	volatile  byte
	strict    bool
	ret       uint32
	variadic  uint32
	defaults  int
	args      []uint32
	signature string // name(type,type): the key of the emitter tables
}

type pgOperator struct {
	oid               uint32
	name              string
	kind              byte // b, l
	left, right       uint32
	result            uint32
	code              uint32
	commutes, negates uint32
}

type pgCast struct {
	source, target uint32
	fn             uint32
	context        byte // e, a, i
	method         byte // f, b, i
}

type pgCatalog struct {
	types       map[uint32]*pgType
	typeList    []*pgType
	typeByName  map[string]*pgType
	procs       map[uint32]*pgProc
	procList    []*pgProc
	procsByName map[string][]*pgProc
	opers       []*pgOperator
	operByName  map[string][]*pgOperator
	operByOID   map[uint32]*pgOperator
	casts       map[uint64]*pgCast
	castList    []*pgCast
}

// builtin is the embedded catalogue, read on first use.
var builtin = sync.OnceValue(loadBuiltin)

func loadBuiltin() *pgCatalog {
	c := &pgCatalog{
		types: map[uint32]*pgType{}, typeByName: map[string]*pgType{},
		procs: map[uint32]*pgProc{}, procsByName: map[string][]*pgProc{},
		operByName: map[string][]*pgOperator{}, operByOID: map[uint32]*pgOperator{},
		casts: map[uint64]*pgCast{},
	}
	lines(typeTSV, func(f []string) {
		t := &pgType{oid: u32(f[0]), name: f[1], size: int16(num(f[2])), kind: f[3][0], category: f[4][0],
			preferred: f[5] == "1", elem: u32(f[6]), array: u32(f[7]), in: u32(f[8]), out: u32(f[9]),
			collation: u32(f[10]), relid: u32(f[11]), storage: f[12], align: f[13], byval: f[14] == "1"}
		c.types[t.oid], c.typeByName[t.name] = t, t
		c.typeList = append(c.typeList, t)
	})
	lines(procTSV, func(f []string) {
		p := &pgProc{oid: u32(f[0]), name: f[1], kind: f[2][0], set: f[3] == "1", volatile: f[4][0],
			strict: f[5] == "1", ret: u32(f[6]), variadic: u32(f[7]), defaults: num(f[8])}
		for _, a := range strings.Fields(f[9]) {
			p.args = append(p.args, u32(a))
		}
		var b strings.Builder
		b.WriteString(p.name)
		b.WriteByte('(')
		for i, a := range p.args {
			if i > 0 {
				b.WriteByte(',')
			}
			if t := c.types[a]; t != nil {
				b.WriteString(t.name)
			} else {
				b.WriteString(f[9])
			}
		}
		b.WriteByte(')')
		p.signature = b.String()
		c.procs[p.oid] = p
		c.procList = append(c.procList, p)
		c.procsByName[p.name] = append(c.procsByName[p.name], p)
	})
	lines(operatorTSV, func(f []string) {
		o := &pgOperator{oid: u32(f[0]), name: f[1], kind: f[2][0], left: u32(f[3]), right: u32(f[4]),
			result: u32(f[5]), code: u32(f[6]), commutes: u32(f[7]), negates: u32(f[8])}
		c.opers = append(c.opers, o)
		c.operByName[o.name] = append(c.operByName[o.name], o)
		c.operByOID[o.oid] = o
	})
	lines(castTSV, func(f []string) {
		k := &pgCast{source: u32(f[0]), target: u32(f[1]), fn: u32(f[2]), context: f[3][0], method: f[4][0]}
		c.casts[castKey(k.source, k.target)] = k
		c.castList = append(c.castList, k)
	})
	return c
}

func lines(text string, each func(fields []string)) {
	for len(text) > 0 {
		line, rest, _ := strings.Cut(text, "\n")
		text = rest
		if line != "" {
			each(strings.Split(line, "\t"))
		}
	}
}

func u32(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return uint32(n)
}

func num(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

func castKey(from, to uint32) uint64 { return uint64(from)<<32 | uint64(to) }

// castContext orders the contexts of a conversion: each allows what the ones
// before it allow (PostgreSQL manual, CREATE CAST).
type castContext uint8

const (
	implicitCast castContext = iota
	assignmentCast
	explicitCast
)

func (k *pgCast) allows(ctx castContext) bool {
	switch k.context {
	case 'i':
		return true
	case 'a':
		return ctx >= assignmentCast
	}
	return ctx == explicitCast
}

func (c *pgCatalog) category(oid uint32) byte {
	if t := c.types[oid]; t != nil {
		return t.category
	}
	return 'X'
}

func (c *pgCatalog) isPreferred(oid uint32) bool {
	t := c.types[oid]
	return t != nil && t.preferred
}

// isPolymorphic reports the pseudo-types that stand for any type.
func isPolymorphic(oid uint32) bool {
	switch oid {
	case oidAnyElement, oidAnyArray, oidAnyNonArray, oidAnyEnum, oidAny,
		oidAnyCompatible, oidAnyCompatibleArray, oidAnyCompatibleNonArray:
		return true
	}
	return false
}

func (c *pgCatalog) canCoerce(from, to uint32, ctx castContext) bool {
	if from == to || from == oidUnknown {
		return true
	}
	switch to {
	case oidAny, oidAnyElement, oidAnyCompatible:
		return true
	case oidAnyArray, oidAnyCompatibleArray:
		t := c.types[from]
		return t != nil && t.elem != 0 && t.size == -1 || from == oidInt2Vector || from == oidOIDVector
	case oidAnyNonArray, oidAnyCompatibleNonArray:
		t := c.types[from]
		return t == nil || t.category != 'A'
	}
	if k := c.casts[castKey(from, to)]; k != nil {
		return k.allows(ctx)
	}
	ft, tt := c.types[from], c.types[to]
	if ft == nil || tt == nil {
		return false
	}
	// Arrays convert as their elements do, but never into the two vector types.
	vector := func(o uint32) bool { return o == oidInt2Vector || o == oidOIDVector }
	if !vector(to) && ft.category == 'A' && tt.category == 'A' && ft.elem != 0 && tt.elem != 0 && ft.size == -1 && tt.size == -1 {
		return c.canCoerce(ft.elem, tt.elem, ctx)
	}
	// Every type converts to and from the string types through its text form.
	if ctx >= assignmentCast && tt.category == 'S' {
		return true
	}
	return ctx == explicitCast && ft.category == 'S'
}

// candidate is a function or operator that could be meant.
type candidate struct {
	args []uint32
	proc *pgProc
	oper *pgOperator
	// nvariadic is how many arguments the variadic parameter takes, 0 if it is
	// not expanded; ndefaults how many arguments are left to their defaults.
	nvariadic, ndefaults int
}

// pick chooses among candidates as func_select_candidate does (PostgreSQL
// manual, chapter "Type Conversion", Operators and Functions, step by step).
// It returns nil when the choice is ambiguous.
func (c *pgCatalog) pick(in []uint32, cands []candidate) *candidate {
	if len(cands) == 1 {
		return &cands[0]
	}
	unknowns := 0
	for _, t := range in {
		if t == oidUnknown {
			unknowns++
		}
	}
	keepBest := func(score func(have, want uint32) bool) {
		best, kept := 0, cands[:0:0]
		for _, k := range cands {
			n := 0
			for i, t := range in {
				if t != oidUnknown && score(t, k.args[i]) {
					n++
				}
			}
			if n > best || len(kept) == 0 {
				best, kept = n, append(kept[:0], k)
			} else if n == best {
				kept = append(kept, k)
			}
		}
		cands = kept
	}
	keepBest(func(have, want uint32) bool { return have == want })
	if len(cands) == 1 {
		return &cands[0]
	}
	keepBest(func(have, want uint32) bool {
		return have == want || c.isPreferred(want) && c.category(want) == c.category(have)
	})
	if len(cands) == 1 {
		return &cands[0]
	}
	if unknowns == 0 {
		return nil
	}
	resolved := true
	cats, prefs := make([]byte, len(in)), make([]bool, len(in))
	for i, t := range in {
		if t != oidUnknown {
			continue
		}
		have, conflict := false, false
		for _, k := range cands {
			cat, pref := c.category(k.args[i]), c.isPreferred(k.args[i])
			switch {
			case !have:
				cats[i], prefs[i], have = cat, pref, true
			case cat == cats[i]:
				prefs[i] = prefs[i] || pref
			case cat == 'S':
				cats[i], prefs[i], conflict = cat, pref, false
			case cats[i] != 'S':
				conflict = true
			}
		}
		if conflict && cats[i] != 'S' {
			resolved = false
			break
		}
	}
	if resolved {
		kept := cands[:0:0]
	next:
		for _, k := range cands {
			for i, t := range in {
				if t != oidUnknown {
					continue
				}
				if c.category(k.args[i]) != cats[i] || prefs[i] && !c.isPreferred(k.args[i]) {
					continue next
				}
			}
			kept = append(kept, k)
		}
		if len(kept) > 0 {
			cands = kept
		}
		if len(cands) == 1 {
			return &cands[0]
		}
	}
	if unknowns < len(in) {
		known := uint32(0)
		for _, t := range in {
			if t == oidUnknown {
				continue
			}
			if known == 0 {
				known = t
			} else if known != t {
				return nil
			}
		}
		var found *candidate
	each:
		for n := range cands {
			for i := range in {
				if !c.canCoerce(known, cands[n].args[i], implicitCast) {
					continue each
				}
			}
			if found != nil {
				return nil
			}
			found = &cands[n]
		}
		return found
	}
	return nil
}

func (c *pgCatalog) matching(in []uint32, cands []candidate) []candidate {
	var out []candidate
next:
	for _, k := range cands {
		for i, t := range in {
			if !c.canCoerce(t, k.args[i], implicitCast) {
				continue next
			}
		}
		if !c.consistent(in, k.args) {
			continue
		}
		out = append(out, k)
	}
	return out
}

// consistent reports whether polymorphic parameters can have one meaning.
func (c *pgCatalog) consistent(in, params []uint32) bool {
	var elem uint32
	var compat []uint32
	for i, p := range params {
		t := in[i]
		if t == oidUnknown {
			continue
		}
		switch p {
		case oidAnyArray, oidAnyCompatibleArray:
			t = elemType(t)
		}
		switch p {
		case oidAnyElement, oidAnyNonArray, oidAnyArray:
			if elem != 0 && elem != t {
				return false
			}
			elem = t
		case oidAnyCompatible, oidAnyCompatibleNonArray, oidAnyCompatibleArray:
			compat = append(compat, t)
		}
	}
	if len(compat) < 2 {
		return true
	}
next:
	for _, to := range compat {
		for _, from := range compat {
			if !c.canCoerce(from, to, implicitCast) {
				continue next
			}
		}
		return true
	}
	return false
}

// operator finds the operator for the operand types (left is 0 for a prefix
// operator). It returns nil and whether any operator of the name exists.
func (c *pgCatalog) operator(name string, left, right uint32) (op *pgOperator, ambiguous bool) {
	list := c.operByName[name]
	if left == 0 {
		var cands []candidate
		for _, o := range list {
			if o.kind != 'l' {
				continue
			}
			if o.right == right {
				return o, false
			}
			cands = append(cands, candidate{args: []uint32{o.right}, oper: o})
		}
		in := []uint32{right}
		if cands = c.matching(in, cands); len(cands) == 0 {
			return nil, false
		}
		if k := c.pick(in, cands); k != nil {
			return k.oper, false
		}
		return nil, true
	}
	l, r := left, right
	if l == oidUnknown && r != oidUnknown {
		l = r
	} else if r == oidUnknown && l != oidUnknown {
		r = l
	}
	var cands []candidate
	for _, o := range list {
		if o.kind != 'b' {
			continue
		}
		if o.left == l && o.right == r {
			return o, false
		}
		cands = append(cands, candidate{args: []uint32{o.left, o.right}, oper: o})
	}
	in := []uint32{left, right}
	if cands = c.matching(in, cands); len(cands) == 0 {
		return nil, false
	}
	if k := c.pick(in, cands); k != nil {
		return k.oper, false
	}
	return nil, true
}

// function finds the function for the argument types. variadic tells that the
// call has the keyword VARIADIC. It returns nil when none matches.
func (c *pgCatalog) function(name string, in []uint32, variadic bool) (k *candidate, ambiguous bool) {
	var cands []candidate
	for _, p := range c.procsByName[name] {
		if p.kind == 'p' {
			continue
		}
		switch {
		case p.variadic != 0 && !variadic && len(in) >= len(p.args):
			n := len(in) - len(p.args) + 1
			args := append([]uint32(nil), p.args[:len(p.args)-1]...)
			elem := p.variadic
			for range n {
				args = append(args, elem)
			}
			cands = append(cands, candidate{args: args, proc: p, nvariadic: n})
		case len(p.args) == len(in):
			cands = append(cands, candidate{args: p.args, proc: p})
		case len(in) < len(p.args) && len(in) >= len(p.args)-p.defaults:
			cands = append(cands, candidate{args: p.args[:len(in)], proc: p, ndefaults: len(p.args) - len(in)})
		}
	}
exact:
	for i := range cands {
		for n, t := range in {
			if cands[i].args[n] != t {
				continue exact
			}
		}
		return &cands[i], false
	}
	if cands = c.matching(in, cands); len(cands) == 0 {
		return nil, false
	}
	if k := c.pick(in, cands); k != nil {
		return k, false
	}
	return nil, true
}
