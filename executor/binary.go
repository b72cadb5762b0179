package executor

import (
	"encoding/binary"

	"github.com/cleavedb/cleave/sqlstate"
)

// Values in binary have OIDs inside where they are arrays, composites (records), or
// made of such, and where they are regtype, regclass or another of the types that name an
// object. An OID has one width, so they are replaced in place.

// Types of pg_type.dat whose binary values can have OIDs of user-defined types inside.
const (
	oidRegclass = 2205
	oidRegtype  = 2206
	oidRecord   = 2249
	oidRecords  = 2287
)

// naming are the types whose values are OIDs, with the catalogue that these are of, and the
// types of their arrays.
var naming = map[uint32]struct {
	in    catalog
	array uint32
}{
	24: {ofFunction, 1008}, 2202: {ofFunction, 2207}, 2203: {ofOperator, 2208}, 2204: {ofOperator, 2209}, oidRegclass: {ofTable, 2210}, oidRegtype: {ofType, 2211},
	3734: {ofConfig, 3735}, 3769: {ofDictionary, 3770}, 4089: {ofSchema, 4090}, 4096: {ofRole, 4097}, 4191: {ofCollation, 4192},
}

// builtIn is what those of PostgreSQL's own types are whose values have OIDs inside.
var builtIn = func() map[uint32]known {
	kinds := map[uint32]known{oidRecord: {kind: 'c'}, oidRecords: {kind: 'a', elem: oidRecord}}
	for oid, t := range naming {
		kinds[oid], kinds[t.array] = known{kind: 'o'}, known{kind: 'a', elem: oid}
	}
	return kinds
}()

// Columns are those columns of a result whose values have OIDs inside. The zero
// value knows of none.
type Columns struct {
	list []numbered
}

// numbered is a column, or a parameter, with a type of the side that the value comes from.
type numbered struct {
	at  int
	oid uint32
}

// MayNumber reports whether binary values of a type could have OIDs inside that
// differ between shards.
func MayNumber(oid uint32) bool {
	switch oid { // the keys of builtIn; every column of every binary result comes here
	case 24, 1008, 2202, 2203, 2204, 2205, 2206, 2207, 2208, 2209, 2210, 2211, oidRecord, oidRecords, 3734, 3735, 3769, 3770, 4089, 4090, 4096, 4097, 4191, 4192:
		return true
	}
	return oid >= FirstUserOID
}

// recoder translates values from the shard, or, with in, to the shard. What it would
// have to know of is in missing.
type recoder struct {
	o       *oids
	in      bool
	apply   bool
	missing []object
	absent  uint32 // an OID to the shard that it does not have
	depth   int
	deep    bool // a value was nested too deep
}

// nestMax bounds how deep values are nested.
const nestMax = 500

func errDeep() error {
	return sqlstate.New(sqlstate.StatementTooComplex, "a value of user-defined types is nested deeper than %d", nestMax).
		WithHint("pass it as text")
}

// of is what a type of the values' side is.
func (r *recoder) of(oid uint32) known {
	if oid < FirstUserOID {
		if k, ok := builtIn[oid]; ok {
			return k
		}
		return known{kind: 's'}
	}
	k, ok := r.o.get(object{ofType, oid}, r.in)
	if !ok {
		r.missing = append(r.missing, object{ofType, oid})
	}
	return k
}

// numbers reports whether values of a type have OIDs inside.
func (r *recoder) numbers(oid uint32) bool {
	for range 32 { // a domain over a range over a domain ...
		switch k := r.of(oid); k.kind {
		case 'a', 'c', 'o':
			return true
		case 'd', 'r', 'm':
			oid = k.elem
		default:
			return false
		}
	}
	return true
}

// oid translates the OID that b begins with.
func (r *recoder) oid(b []byte, in catalog) {
	was := binary.BigEndian.Uint32(b)
	if was < FirstUserOID {
		return
	}
	k, ok := r.o.get(object{in, was}, r.in)
	switch {
	case !ok:
		if x, n := (object{in, was}), len(r.missing); n == 0 || r.missing[n-1] != x {
			r.missing = append(r.missing, x)
		}
	case !r.apply:
	case k.oid != 0:
		binary.BigEndian.PutUint32(b, k.oid)
	case r.in:
		r.absent = was
	case in == ofType:
		binary.BigEndian.PutUint32(b, oidUnknown)
	default:
		binary.BigEndian.PutUint32(b, 0)
	}
}

// value translates what is inside of a value. One that is malformed is left as it
// is from there on: its reader reports the error.
func (r *recoder) value(b []byte, oid uint32) {
	if r.depth++; r.depth > nestMax {
		r.deep = true
		return
	}
	defer func() { r.depth-- }()
	k := r.of(oid)
	switch k.kind {
	case 'o':
		if len(b) == 4 {
			r.oid(b, naming[oid].in)
		}
	case 'd':
		r.value(b, k.elem)
	case 'a':
		r.array(b)
	case 'c':
		r.record(b)
	case 'r':
		if r.numbers(k.elem) {
			r.bounds(b, k.elem)
		}
	case 'm':
		if r.numbers(k.elem) && len(b) >= 4 {
			each(b[4:], -1, func(v []byte) { r.bounds(v, k.elem) })
		}
	}
}

// each calls f for values that have their size in front (-1 is NULL), n of them, or, with n < 0, all; it
// returns what is left.
func each(b []byte, n int, f func(v []byte)) []byte {
	for ; n != 0 && len(b) >= 4; n-- {
		size := int32(binary.BigEndian.Uint32(b))
		b = b[4:]
		if size < 0 {
			continue
		}
		if int(size) > len(b) {
			return nil
		}
		f(b[:size])
		b = b[size:]
	}
	return b
}

// array is array_send: dimensions, flags, the elements' type, size and lower bound of each dimension, elements.
func (r *recoder) array(b []byte) {
	if len(b) < 12 {
		return
	}
	dims, elem := int64(binary.BigEndian.Uint32(b)), binary.BigEndian.Uint32(b[8:])
	deep := r.numbers(elem)
	r.oid(b[8:], ofType)
	if deep && int64(len(b)) >= 12+8*dims {
		each(b[12+8*dims:], -1, func(v []byte) { r.value(v, elem) })
	}
}

// record is record_send: the number of columns, and of each its type and value.
func (r *recoder) record(b []byte) {
	if len(b) < 4 {
		return
	}
	n := binary.BigEndian.Uint32(b)
	for b = b[4:]; n > 0 && len(b) >= 8; n-- {
		typ := binary.BigEndian.Uint32(b)
		r.oid(b, ofType)
		b = each(b[4:], 1, func(v []byte) {
			if MayNumber(typ) {
				r.value(v, typ)
			}
		})
	}
}

// bounds is range_send: flags, and the bounds that there are.
func (r *recoder) bounds(b []byte, elem uint32) {
	if len(b) > 1 {
		each(b[1:], 2, func(v []byte) { r.value(v, elem) })
	}
}

// row translates the columns of the body of a DataRow, or of a tuple of a binary
// COPY: all, or, if something is not known, none.
func (o *oids) row(body []byte, columns []numbered, in bool) (missing []object, err error) {
	r := recoder{o: o, in: in}
	for pass := range 2 {
		r.apply = pass == 1
		at, next := 2, 0
		for i := 0; next < len(columns) && at+4 <= len(body); i++ {
			size := int(int32(binary.BigEndian.Uint32(body[at:])))
			at += 4
			if size < 0 {
				size = 0
			}
			if at+size > len(body) {
				break
			}
			if columns[next].at == i {
				if size > 0 {
					r.value(body[at:at+size], columns[next].oid)
				}
				next++
			}
			at += size
		}
		if len(r.missing) > 0 || r.deep {
			break
		}
	}
	if r.deep {
		return nil, errDeep()
	}
	if r.absent != 0 {
		return nil, o.lacks(r.absent)
	}
	return r.missing, nil
}

// lacks is the error of a value for the shard that has the OID of something inside which
// the default shard or the shard does not have.
func (o *oids) lacks(oid uint32) error {
	return sqlstate.New(sqlstate.UndefinedObject, "a value in binary has the OID %d inside, of an object that shard %s or %s does not have", oid, o.home, o.shard).OnShard(o.shard).
		WithHint("look it up again; what the open transaction has made can be used by its name, as text")
}
