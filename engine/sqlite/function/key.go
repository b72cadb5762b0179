package function

import (
	"strings"

	"github.com/google/uuid"

	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// keyFunctions are the functions of shard keys and of values that routers give.
var keyFunctions = []Def{
	Volatile("cleave_uuidv7", 0, func(v *Env, a []Arg) (value.Datum, error) {
		u, err := uuid.NewV7()
		if err != nil {
			return value.Datum{}, err
		}
		return value.Blob(string(u[:])), nil
	}),
	Volatile("cleave_router_value", 1, func(v *Env, a []Arg) (value.Datum, error) {
		what := "cleave.next_id()"
		if name := a[0].Text(); name != "" {
			what = "the sequence " + name
		}
		return value.Datum{}, sqlstate.New(sqlstate.ObjectNotInState, "%s is the router's: its values are not given on a shard", what).
			WithHint("insert through the router, or give the value")
	}),
	// cleave_hash(seed, types, columns...): the position in a hash keyspace.
	Strict("cleave_hash", -1, func(v *Env, a []Arg) (value.Datum, error) {
		k, err := KeyOf(a[1].Text(), a[2:])
		if err != nil {
			return value.Datum{}, err
		}
		return value.Int(keyspace.HashKey(a[0].Int64(), k)), nil
	}),
	// cleave_key(types, columns...): the ordered encoding of a key.
	Strict("cleave_key", -1, func(v *Env, a []Arg) (value.Datum, error) {
		k, err := KeyOf(a[0].Text(), a[1:])
		if err != nil {
			return value.Datum{}, err
		}
		v.scratch = keyspace.AppendOrdered(v.scratch[:0], k)
		return value.Blob(string(v.scratch)), nil
	}),
}

// keyValue makes a shard key value of a stored one.
func keyValue(oid uint32, d value.Datum) (keyspace.Value, error) {
	ty, ok := keyspace.TypeByOID(oid)
	if !ok {
		return keyspace.Value{}, sqlstate.New(sqlstate.InternalError, "type %s cannot be a shard key", value.TypeName(oid))
	}
	if d.Kind == 'i' {
		return keyspace.Int(ty, d.Int), nil
	}
	return keyspace.Str(ty, d.Str), nil
}

// KeyOf is a shard key of columns whose types are given by number, separated by commas.
func KeyOf(types string, a []Arg) (keyspace.Key, error) {
	k := make(keyspace.Key, 0, len(a))
	for i, f := range strings.Split(types, ",") {
		if i >= len(a) {
			break
		}
		v, err := keyValue(value.ParseOID(f), a[i].Datum())
		if err != nil {
			return nil, err
		}
		k = append(k, v)
	}
	return k, nil
}
