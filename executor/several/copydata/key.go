package copydata

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// KeyReader reads the shard key of records.
type KeyReader struct {
	Fields // those of the key
	p      *plan.CopyPlan
	Key    keyspace.Key
}

// NewKeyReader reads the records of a COPY.
func NewKeyReader(p *plan.CopyPlan) *KeyReader {
	k := &KeyReader{p: p, Key: make(keyspace.Key, len(p.KeyAt))}
	k.Format, k.ForceNull, k.ForceNotNull = &p.CopyFormat, make([]bool, len(p.KeyAt)), make([]bool, len(p.KeyAt))
	for i, at := range p.KeyAt {
		for at >= len(k.Want) {
			k.Want = append(k.Want, -1)
		}
		if at >= 0 {
			k.Want[at] = i
		}
		k.ForceNull[i] = plan.Forced(p.ForceNull, p.Table.ShardKey[i])
		k.ForceNotNull[i] = plan.Forced(p.ForceNotNull, p.Table.ShardKey[i])
	}
	return k
}

// badKey is what an error of the key means for its row.
type badKey uint8

const (
	goodKey  badKey = iota
	noKey           // the shards refuse the row, whichever gets it
	askShard        // a shard has to read the value
)

// take reads one value of the key; value nil is NULL. For askShard the caller
// gets the column.
func (k *KeyReader) take(i int, value []byte) (badKey, error) {
	if value != nil && !k.p.Binary && k.p.Plain(i) {
		if !utf8.Valid(value) || bytes.IndexByte(value, 0) >= 0 {
			return noKey, nil
		}
		k.Key[i] = k.p.TextKey(i, value)
		return goodKey, nil
	}
	v, err := k.p.Key(i, value)
	if err != nil {
		switch {
		case value == nil:
			return goodKey, err
		case sqlstate.CodeOf(err) == sqlstate.FeatureNotSupported:
			return askShard, nil
		}
		return noKey, nil
	}
	k.Key[i] = v
	return goodKey, nil
}

// AskError says that a shard has to read a value of the key.
type AskError struct {
	Column int
	Value  []byte
}

// Error implements error.
func (e *AskError) Error() string { return "copydata: a shard has to read the value" }

// Read reads the key of a record. known is false if the record is one that every
// shard refuses. The error may be an *AskError; then the value is asked for, put
// into resolved, and Read is called again.
func (k *KeyReader) Read(rec []byte, resolved map[int]keyspace.Value) (known bool, err error) {
	k.Begin()
	if k.p.Binary {
		return k.binary(rec, resolved)
	}
	for at, field := 0, 0; field < len(k.Want); field++ {
		if at < 0 {
			return false, nil // the row has too few values
		}
		var value []byte
		var ok bool
		from := at
		value, at, ok = k.Value(rec, at, k.Want[field])
		if !ok {
			return false, nil
		}
		i := k.Want[field]
		if i < 0 {
			continue
		}
		if k.p.HasDefault {
			end := at - 1
			if at < 0 {
				end = len(rec)
			}
			if string(rec[from:end]) == k.p.Default {
				return false, sqlstate.Refusal("CLV-0406", "the mark of DEFAULT stands for a value of the shard key column %s", k.p.Table.ShardKey[i]).
					WithHint("Give the value, or leave the column out if the router makes it.")
			}
		}
		if done, known, err := k.is(i, value, resolved); done {
			return known, err
		}
	}
	return true, nil
}

func (k *KeyReader) is(i int, value []byte, resolved map[int]keyspace.Value) (done, known bool, err error) {
	if v, ok := resolved[i]; ok {
		k.Key[i] = v
		return false, false, nil
	}
	what, err := k.take(i, value)
	switch {
	case err != nil:
		return true, true, err
	case what == noKey:
		return true, false, nil
	case what == askShard:
		return true, true, &AskError{i, value}
	}
	return false, false, nil
}

// binary reads the key of a tuple.
func (k *KeyReader) binary(rec []byte, resolved map[int]keyspace.Value) (known bool, err error) {
	n := int(int16(binary.BigEndian.Uint16(rec)))
	if n < len(k.Want) {
		return false, nil
	}
	at := 2
	for _, i := range k.Want {
		size := int(int32(binary.BigEndian.Uint32(rec[at:])))
		at += 4
		var value []byte
		if size >= 0 {
			value = rec[at : at+size : at+size]
			at += size
		}
		if i < 0 {
			continue
		}
		if done, known, err := k.is(i, value, resolved); done {
			return known, err
		}
	}
	return true, nil
}
