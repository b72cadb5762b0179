package planner

import (
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Owners returns the shard of each row of VALUES. computed are the values of
// Computed, in text, nil for NULL.
//
// Errors: 23502 for a NULL in the shard key, 23514 for a key that a list keyspace
// does not have, 22xxx for a value that is not one of its type, 57P03 if the
// keyspace is not in the map any more.
func (p *InsertPlan) Owners(snap *shardmap.Snapshot, args *Args, computed [][]byte) (shards []string, units []Units, err error) {
	index, err := indexOf(snap, p.Table)
	if err != nil {
		return nil, nil, err
	}
	shards = make([]string, len(p.Rows))
	key := make(keyspace.Key, len(p.Types))
	for r := range p.Rows {
		if err := p.key(key, r, args, computed); err != nil {
			return nil, nil, err
		}
		at, err := index.Locate(key)
		if err != nil {
			return nil, nil, err
		}
		shards[r], units = at.Shard, addUnit(units, at.Unit)
	}
	return shards, once(units), nil
}

// Key is the shard key of a row of VALUES. Errors: those of Owners.
func (p *InsertPlan) Key(row int, args *Args, computed [][]byte) (keyspace.Key, error) {
	key := make(keyspace.Key, len(p.Types))
	return key, p.key(key, row, args, computed)
}

func (p *InsertPlan) key(key keyspace.Key, row int, args *Args, computed [][]byte) (err error) {
	for i := range p.Rows[row].Key {
		e := &p.Rows[row].Key[i]
		never := false
		switch {
		case e.Computed > 0:
			key[i], err = StoredKey(p.Table, i, &e.KeyExpr, computed[e.Computed-1])
		case e.Param == 0:
			key[i] = e.Value
		default:
			key[i], never, err = e.eval(args)
		}
		if err == nil && never {
			err = nullKey(p.Table, p.Table.ShardKey[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// StoredKey is column i of a table's shard key as it is stored when a value, in
// text, is assigned to it; nil is NULL. e says what the column does to a value.
// Errors: 23502, 22xxx.
func StoredKey(t *shardmap.Table, i int, e *KeyExpr, text []byte) (keyspace.Value, error) {
	if text == nil {
		return keyspace.Value{}, nullKey(t, t.ShardKey[i])
	}
	v, err := keyspace.ParseText(e.Type, text)
	if err != nil {
		return v, err
	}
	return e.mod.Coerce(v)
}

// Owner is the shard that owns a key of a table. Errors: those of Owners.
func Owner(snap *shardmap.Snapshot, t *shardmap.Table, key keyspace.Key) (shard string, unit int, err error) {
	index, err := indexOf(snap, t)
	if err != nil {
		return "", -1, err
	}
	at, err := index.Locate(key)
	return at.Shard, at.Unit, err
}

func indexOf(snap *shardmap.Snapshot, t *shardmap.Table) (*shardmap.Index, error) {
	index, found := snap.Keyspace(t.Keyspace)
	if !found {
		return nil, sqlstate.New(sqlstate.CannotConnectNow, "keyspace %q is not in the shard map any more", t.Keyspace)
	}
	return index, nil
}
