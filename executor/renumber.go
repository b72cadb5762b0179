package executor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cleavedb/cleave/internal/wire"
)

// This file is what a Pipeline does about OIDs that differ between shards (oids.go).

// edit is an OID, or a column's number, of a description that is to be replaced.
type edit struct {
	at  int
	oid uint32
	two bool // it has two bytes
}

// hold keeps answers until an OID in the first of them is asked for.
func (p *Pipeline) hold(b []byte, err error) error {
	p.held = append(p.held[:0], b...)
	return err
}

// renumber gives a RowDescription or a ParameterDescription the OIDs that clients
// know, in place. held: nothing may be waited for, but shards have to be asked.
func (p *Pipeline) renumber(typ byte, body []byte, e *expected) (held bool, err error) {
	o := p.Conn.own()
	if o == nil || p.Inner && typ == wire.ParameterDescription { // what asks goes on with the shard's own numbers
		return false, nil
	}
	for {
		var missing []object
		p.edits = p.edits[:0]
		if typ == wire.ParameterDescription {
			missing = p.parameters(o, body)
		} else {
			missing = p.fields(o, body, e)
		}
		if len(missing) == 0 {
			break
		}
		if p.polling {
			return true, nil
		}
		if o, err = p.Conn.learn(o, missing, p.tablesOnly(missing)); err != nil {
			return false, err
		}
	}
	for _, d := range p.edits {
		if d.two {
			binary.BigEndian.PutUint16(body[d.at:], uint16(d.oid))
		} else {
			binary.BigEndian.PutUint32(body[d.at:], d.oid)
		}
	}
	return false, nil
}

func (p *Pipeline) tablesOnly(list []object) bool {
	for _, x := range list {
		if x.in != ofTable {
			return false
		}
	}
	return true
}

// learn asks for the shard's objects. optional: a column's table may also stay
// untold, so that a default shard that does not answer is in nobody's way.
func (c *Conn) learn(o *oids, missing []object, optional bool) (*oids, error) {
	o = c.numbers.roomy(o)
	limit := learnMax
	if optional {
		limit = tablesMax
	}
	err := o.learn(missing, false, limit)
	switch {
	case err == nil:
		return o, nil
	case optional:
		o.untold.Store(time.Now().Add(learnPause).UnixNano())
		return o, nil
	}
	return nil, fmt.Errorf("the OIDs of types cannot be asked for on shards %s and %s: %v", o.shard, o.home, err)
}

// shown is the OID that clients know a type of the shard's by.
func (o *oids) shown(oid uint32) (uint32, bool) {
	k, ok := o.get(object{ofType, oid}, false)
	if ok && k.oid == 0 {
		return oidUnknown, true
	}
	return k.oid, ok
}

func (p *Pipeline) parameters(o *oids, body []byte) (missing []object) {
	for at := 2; at+4 <= len(body); at += 4 {
		oid := binary.BigEndian.Uint32(body[at:])
		if oid < FirstUserOID {
			continue
		}
		if to, ok := o.shown(oid); ok {
			p.edits = append(p.edits, edit{at: at, oid: to})
		} else {
			missing = append(missing, object{ofType, oid})
		}
	}
	return missing
}

// fields notes what is to be replaced in a RowDescription, and in e.columns which
// columns come in binary with OIDs inside.
func (p *Pipeline) fields(o *oids, body []byte, e *expected) (missing []object) {
	if e.columns != nil {
		e.columns.list = e.columns.list[:0]
	}
	var table object
	var its known
	for i, at := 0, 2; at < len(body); i++ {
		end := bytes.IndexByte(body[at:], 0)
		if at += end + 1; end < 0 || at+18 > len(body) {
			break
		}
		if oid := binary.BigEndian.Uint32(body[at:]); oid >= FirstUserOID && !p.Inner {
			ok := oid == table.oid
			if !ok {
				table = object{ofTable, oid}
				if its, ok = o.get(table, false); !ok && time.Now().UnixNano() < o.untold.Load() {
					its, ok = known{}, true
				}
			}
			if ok {
				p.edits = append(p.edits, edit{at: at, oid: its.oid})
				if n := int16(binary.BigEndian.Uint16(body[at+4:])); its.oid == 0 || its.attrs != nil {
					p.edits = append(p.edits, edit{at: at + 4, oid: uint32(uint16(its.attrs[n])), two: true})
				}
			} else {
				missing = append(missing, table)
				table = object{}
			}
		}
		typ := binary.BigEndian.Uint32(body[at+6:])
		if typ >= FirstUserOID {
			if to, ok := o.shown(typ); ok {
				p.edits = append(p.edits, edit{at: at + 6, oid: to})
			} else {
				missing = append(missing, object{ofType, typ})
			}
		}
		if body[at+17] == 1 && MayNumber(typ) {
			r := recoder{o: o}
			if r.numbers(typ) {
				if e.columns == nil && e.what == anQuery {
					e.columns = &Columns{}
				}
				if e.columns != nil {
					e.columns.list = append(e.columns.list, numbered{at: i, oid: typ})
				}
			}
			missing = append(missing, r.missing...)
		}
		at += 18
	}
	return missing
}

// recode translates a row. held as of renumber.
func (p *Pipeline) recode(body []byte, columns *Columns) (held bool, err error) {
	o := p.Conn.own()
	if o == nil {
		return false, nil
	}
	for {
		missing, err := o.row(body, columns.list, false)
		if len(missing) == 0 || err != nil {
			return false, err
		}
		if p.polling {
			return true, nil
		}
		if o, err = p.Conn.learn(o, missing, false); err != nil {
			return false, err
		}
	}
}

// copySignature is what a COPY in binary begins with.
var copySignature = []byte("PGCOPY\n\xff\r\n\x00")

// recopy translates a tuple of a COPY in binary, which PostgreSQL sends in a message of
// its own; the header may stand before the first.
func (p *Pipeline) recopy(body []byte, columns *Columns) (held bool, err error) {
	if columns == nil || len(columns.list) == 0 {
		return false, nil
	}
	if head := len(copySignature) + 8; len(body) >= head && bytes.HasPrefix(body, copySignature) {
		body = body[min(len(body), head+int(binary.BigEndian.Uint32(body[head-4:]))):]
	}
	return p.recode(body, columns)
}

// typesOf are the types of a ParameterDescription.
func typesOf(body []byte) []uint32 {
	var oids []uint32
	for at := 2; at+4 <= len(body); at += 4 {
		oids = append(oids, binary.BigEndian.Uint32(body[at:]))
	}
	return oids
}

// Values are parameters in binary as the conversation's shard wants them, types as a
// client numbers them; formats as in a Bind. What needs no translation stays as it is. Without
// wait it fails with ErrUnknownOID rather than ask the shards. Errors: 42704 for what the default
// shard or this one does not have, and those of asking.
func (c *Conn) Values(types []uint32, formats []int16, values [][]byte, wait bool) ([][]byte, error) {
	var out [][]byte
	for i, v := range values {
		if i >= len(types) || !MayNumber(types[i]) || v == nil || wire.FormatAt(formats, i) != 1 {
			continue
		}
		o := c.own()
		if o == nil {
			return values, nil
		}
		if out == nil {
			out = append([][]byte(nil), values...)
		}
		out[i] = append([]byte{}, v...)
		for {
			r := recoder{o: o, in: true}
			r.value(out[i], types[i])
			if r.deep {
				return nil, errDeep()
			}
			if len(r.missing) == 0 {
				r.apply = true
				r.value(out[i], types[i])
				if r.absent != 0 {
					return nil, o.lacks(r.absent)
				}
				break
			}
			if !wait {
				return nil, ErrUnknownOID
			}
			o = c.numbers.roomy(o)
			if err := o.learn(r.missing, true, learnMax); err != nil {
				return nil, err
			}
		}
	}
	if out == nil {
		return values, nil
	}
	return out, nil
}

// Row translates the body of a DataRow, or a tuple of a binary COPY, in place: one of
// the conversation's shard, with what LearnColumns found, or, with columns nil, one of a client's, whose
// types are given.
func (c *Conn) Row(row []byte, columns *Columns, types []uint32) error {
	o := c.own()
	if o == nil {
		return nil
	}
	var list []numbered
	if columns != nil {
		list = columns.list
	}
	for i, t := range types {
		if columns == nil && MayNumber(t) {
			list = append(list, numbered{at: i, oid: t})
		}
	}
	for {
		missing, err := o.row(row, list, columns == nil)
		if len(missing) == 0 || err != nil {
			return err
		}
		o = c.numbers.roomy(o)
		if err := o.learn(missing, columns == nil, learnMax); err != nil {
			return err
		}
	}
}
