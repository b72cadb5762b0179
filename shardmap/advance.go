package shardmap

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cleavedb/cleave/sqlstate"
)

// ErrDuplicateID is returned by [Directory.Update] when a change with the same
// ID is stored already: it was made, and is not made twice. Find tells where.
var ErrDuplicateID = errors.New("shardmap: a change with this ID is stored already")

// ErrClosed is returned by every method of a [Directory] that was closed.
var ErrClosed = errors.New("shardmap: the directory is closed")

// Bounds of one change, bytes.
const (
	maxByBytes        = 1 << 10
	maxWhyBytes       = 8 << 10
	maxIDBytes        = 255
	maxStatementBytes = 16 << 20
	maxChangeTables   = 10_000
)

// Validate checks what can be checked without the map: who and what are named,
// and nothing exceeds its bound. Directories call it through [Advance].
func (c *Change) Validate() error {
	fail := func(format string, args ...any) error {
		return sqlstate.New(sqlstate.InvalidParameterValue, "a change of the shard map "+format, args...)
	}
	switch {
	case c.By == "":
		return fail("must say who makes it")
	case c.Op == "":
		return fail("must name its operation")
	case len(c.By) > maxByBytes, len(c.Op) > MaxNameBytes, len(c.Why) > maxWhyBytes, len(c.ID) > maxIDBytes, len(c.Transit) > maxIDBytes,
		len(c.Statement) > maxStatementBytes:
		return fail("is too long: who may have %d bytes, the operation %d, why %d, the ID %d, the statement %d",
			maxByBytes, MaxNameBytes, maxWhyBytes, maxIDBytes, maxStatementBytes)
	case len(c.Tables) > maxChangeTables:
		return fail("concerns %d tables; %d are allowed", len(c.Tables), maxChangeTables)
	}
	// History is stored as text and JSON, which would change other bytes.
	for _, text := range append([]string{c.By, c.Op, c.Why, c.ID, c.Statement}, c.Tables...) {
		if !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
			return fail("must be UTF-8 text without zero bytes")
		}
	}
	for _, t := range c.Tables {
		if t == "" || len(t) > 4*MaxNameBytes {
			return fail("names a table %q that cannot exist", clip(t))
		}
	}
	return nil
}

// Entry returns the line of history for the change, made as that version at
// that time.
func (c *Change) Entry(version uint64, at time.Time) Entry {
	return Entry{
		Version: version,
		// Microseconds are what every directory can store.
		At:        at.UTC().Truncate(time.Microsecond),
		By:        c.By,
		Why:       c.Why,
		Op:        c.Op,
		Statement: c.Statement,
		Tables:    slices.Clone(absent(c.Tables)),
		AllShards: c.AllShards,
		ID:        c.ID,
	}
}

// Conflict returns the error of an Update that expected another version than
// the current one: 40001, nothing was done, wrapping ErrConflict.
func Conflict(expect, current uint64) error {
	err := sqlstate.Wrap(ErrConflict, sqlstate.SerializationFailure,
		"the shard map is at version %d, the change was made from version %d", current, expect).
		WithHint("run it again; \"cleave map history\" shows who changed the map")
	err.Retry = sqlstate.RetryTransaction
	return err
}

// NotFound returns the error of a version, map or change that is not stored,
// wrapping ErrNotFound.
func NotFound(format string, args ...any) error {
	return sqlstate.Wrap(ErrNotFound, sqlstate.UndefinedObject, format, args...)
}

// NoMap returns the error of Load on a directory without a map.
func NoMap() error {
	return sqlstate.Wrap(ErrNotFound, sqlstate.CannotConnectNow, "the directory holds no shard map yet").
		WithHint("start the cluster once with \"cleave up\"")
}

// DuplicateID returns the error of a change whose ID is stored already,
// wrapping ErrDuplicateID.
func DuplicateID(id string, version uint64) error {
	return sqlstate.Wrap(ErrDuplicateID, sqlstate.DuplicateObject, "change %q was made already, as version %d", clip(id), version).
		WithHint("see \"cleave map history\"")
}

// Closed returns the error of a directory that was closed, wrapping ErrClosed.
func Closed() error {
	return sqlstate.Wrap(ErrClosed, sqlstate.AdminShutdown, "the directory is closed")
}

// Advance computes the version that follows prev (nil: the first one) by a
// change: what [Directory.Update] stores. It copies next, sets Version,
// SchemaVersion and every epoch, and validates. An assignment whose shard and
// bounds are those of prev keeps its epoch; every other gets the new version,
// whatever next says.
//
// Beyond what NewSnapshot checks it refuses a change of the cluster's identity,
// and another strategy, key types or seed for a keyspace that tables use: their
// rows would be looked for where they are not. It refuses a change of a transit, and
// of owners, bounds and pins in its part, unless change.Transit names it; but a transit may end with its shard that
// owns nothing of the part, if both leave the map in one change. It refuses what would break a constraint,
// now or when a transit that is on hold changes its owner.
//
// Errors: those of Change.Validate and NewSnapshot, Conflict if change.Expect is
// not prev's version, 55000 for the refusals.
func Advance(prev *Snapshot, change Change, next State) (*Snapshot, error) {
	var current uint64
	if prev != nil {
		current = prev.Version()
	}
	if change.Expect != current {
		return nil, Conflict(change.Expect, current)
	}
	if err := change.Validate(); err != nil {
		return nil, err
	}
	next = next.Clone()
	next.Version = current + 1
	next.SchemaVersion = next.Version
	for i := range next.Keyspaces {
		setEpochs(&next.Keyspaces[i], next.Version)
	}
	snap, err := build(next)
	if err != nil {
		return nil, err
	}
	snap.setServiceEpochs(prev)
	if prev == nil {
		return snap, nil
	}
	// The snapshot is not shared yet, and its texts are canonical now, so
	// assignments compare as strings.
	if err := checkFollows(prev, snap, change.Transit); err != nil {
		return nil, err
	}
	for i := range snap.state.Keyspaces {
		k := &snap.state.Keyspaces[i]
		if before, ok := prev.keyspaces[k.Name]; ok && sameDefinition(before.def, k) {
			keepEpochs(before.def, k)
			keepTransitEpochs(before.def, k)
			snap.keyspaces[k.Name].unpinnedEpochs(before, snap.state.Version)
		}
	}
	// A statement may change what the map does not know: a type, a default, a rule's text. What was parsed before
	// it then means something else than what is parsed after it.
	if change.Statement == "" && sameSchema(prev, snap) {
		snap.state.SchemaVersion = prev.state.SchemaVersion
	}
	return snap, nil
}

// checkFollows checks what a map may not do to the one before it.
func checkFollows(prev, snap *Snapshot, transit string) error {
	if err := checkTransition(prev, snap); err != nil {
		return err
	}
	if err := checkMoving(prev, snap, transit); err != nil {
		return err
	}
	if err := checkConstraints(prev, snap); err != nil {
		return err
	}
	if err := checkDrains(prev, snap, transit); err != nil {
		return err
	}
	return checkHeld(prev, snap)
}

func setEpochs(k *Keyspace, epoch uint64) {
	for i := range k.Ranges {
		k.Ranges[i].Epoch = epoch
	}
	for i := range k.Values {
		k.Values[i].Epoch = epoch
	}
	for i := range k.Pins {
		k.Pins[i].Epoch = epoch
	}
	for i := range k.Transits {
		k.Transits[i].Epoch = epoch
	}
}

// keepEpochs gives the assignments of k that are also in before their old
// epochs. Both are canonical.
func keepEpochs(before, k *Keyspace) {
	// Neighbours share a bound, so a range is known by its lower one.
	ranges := make(map[string]*Range, len(before.Ranges))
	for i := range before.Ranges {
		ranges[joinKey(before.Ranges[i].Low)] = &before.Ranges[i]
	}
	for i := range k.Ranges {
		r := &k.Ranges[i]
		if old, ok := ranges[joinKey(r.Low)]; ok && old.Shard == r.Shard && slices.Equal(old.High, r.High) {
			r.Epoch = old.Epoch
		}
	}
	values := make(map[string]*ListValue, len(before.Values))
	for i := range before.Values {
		values[joinKey(before.Values[i].Key)] = &before.Values[i]
	}
	for i := range k.Values {
		v := &k.Values[i]
		if old, ok := values[joinKey(v.Key)]; ok && old.Shard == v.Shard {
			v.Epoch = old.Epoch
		}
	}
	pins := make(map[string]*Pin, len(before.Pins))
	for i := range before.Pins {
		pins[joinKey(before.Pins[i].Key)] = &before.Pins[i]
	}
	for i := range k.Pins {
		p := &k.Pins[i]
		if old, ok := pins[joinKey(p.Key)]; ok && old.Shard == p.Shard {
			p.Epoch = old.Epoch
		}
	}
}

// unpinnedEpochs gives what has got keys that were pinned to another shard before a new epoch: a range, or a listed value. A
// transaction whose snapshot is older does not see their rows there.
func (ix *Index) unpinnedEpochs(before *Index, epoch uint64) {
	for i, k := range before.pinKeys {
		now, err := ix.Locate(k)
		if err != nil || now.Pinned || now.Shard == before.def.Pins[i].Shard {
			continue
		}
		if n := now.Unit - ix.first; n < len(ix.def.Ranges) {
			ix.def.Ranges[n].Epoch = epoch
		} else {
			ix.def.Values[n-len(ix.def.Ranges)].Epoch = epoch
		}
	}
}

// joinKey makes one string of key texts, injectively: each is preceded by its
// length.
func joinKey(texts []string) string {
	var b strings.Builder
	for _, t := range texts {
		fmt.Fprintf(&b, "%d:%s", len(t), t)
	}
	return b.String()
}

func sameDefinition(a, b *Keyspace) bool {
	return a.Strategy == b.Strategy && a.Seed == b.Seed && slices.Equal(a.Types, b.Types)
}

func checkTransition(prev, next *Snapshot) error {
	if prev.state.Cluster != next.state.Cluster {
		return sqlstate.New(sqlstate.ObjectNotInState, "the map belongs to cluster %s and cannot become that of cluster %s",
			prev.state.Cluster, next.state.Cluster)
	}
	for i := range prev.state.Tables {
		t := &prev.state.Tables[i]
		if t.Kind != Sharded {
			continue
		}
		after, ok := next.tables[tableName{t.Schema, t.Name}]
		if !ok || after.Keyspace != t.Keyspace {
			continue
		}
		if !sameDefinition(prev.keyspaces[t.Keyspace].def, next.keyspaces[t.Keyspace].def) {
			err := sqlstate.New(sqlstate.ObjectNotInState, "keyspace %q is used by table %s, so its strategy, key types and seed cannot change",
				t.Keyspace, t.QualifiedName()).
				WithHint("make another keyspace with \"SELECT cleave.create_keyspace(...)\"")
			err.Keyspace = t.Keyspace
			return err
		}
	}
	return nil
}

// sameSchema reports whether plans made under prev hold under next: the same
// keyspace definitions and the same tables, in whatever order.
func sameSchema(prev, next *Snapshot) bool {
	if len(prev.keyspaces) != len(next.keyspaces) || len(prev.tables) != len(next.tables) {
		return false
	}
	for name, ix := range next.keyspaces {
		old, ok := prev.keyspaces[name]
		if !ok || !sameDefinition(old.def, ix.def) {
			return false
		}
	}
	for name, t := range next.tables {
		old, ok := prev.tables[name]
		if !ok || !reflect.DeepEqual(old, t) {
			return false
		}
	}
	return sameSequences(prev, next) && sameObjects(prev, next)
}
