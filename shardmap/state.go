package shardmap

import (
	"github.com/cleavedb/cleave/engine/capability"
	"github.com/cleavedb/cleave/keyspace"
)

// Format is the version of the stored form of a State. A directory that holds
// another one is refused with the command that converts it.
const Format = 1

// State is the shard map as plain data: what a directory stores and what a
// change edits. Use [NewSnapshot] to validate it and to look positions up.
type State struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"` // uuid, written on every shard as well
	// Version counts changes, from 1.
	Version uint64 `json:"version"`
	// SchemaVersion is the Version at which a keyspace's definition (not its
	// ranges or transits), a table or anything else that schema changes change last changed. Plans are valid for one SchemaVersion.
	SchemaVersion uint64 `json:"schema_version"`
	// DefaultShard holds the tables that are not sharded, and answers the
	// catalogue queries.
	DefaultShard string `json:"default_shard"`
	// DefaultEpoch is the version at which the default shard last became another one.
	DefaultEpoch uint64     `json:"default_epoch,omitempty"`
	Shards       []Shard    `json:"shards"`
	Keyspaces    []Keyspace `json:"keyspaces"`
	Tables       []Table    `json:"tables"`
	Sequences    []Sequence `json:"sequences,omitempty"`
	Views        []View     `json:"views,omitempty"`     // by name
	Functions    []Function `json:"functions,omitempty"` // by name
	// FunctionsRead is the version of the rules by which Functions were read; 0: never.
	FunctionsRead int `json:"functions_read,omitempty"`
	// Acting: something of the default shard's, as a trigger, may run a function that is not known to leave its session alone.
	Acting bool `json:"acting,omitempty"`
	// Declarations say how tables are to be that do not exist yet.
	Declarations []Declaration `json:"declarations,omitempty"`
	// Constraints are rules about where keys may be, by name.
	Constraints []Constraint `json:"constraints,omitempty"`
}

// Shard is a database that holds ranges.
type Shard struct {
	Name   string `json:"name"`
	Engine string `json:"engine"` // "postgres" or "sqlite"
	URL    string `json:"url"`    // may hold a password: print it with Redacted only
	// Replicas are the URLs of the shard's other servers. Which of all of them is
	// the primary is not in the map: routers ask the servers.
	Replicas []string `json:"replicas,omitempty"`
	// System is PostgreSQL's system identifier, which all servers of a shard with
	// replicas share; "" without replicas. A server with another is a stranger.
	System string            `json:"system,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Weight float64           `json:"weight"`
	// Service is what the shard is used for, ServiceWhy the reason for people, ServiceEpoch the Version
	// at which it last changed. ServiceSince is when it was made read-only or taken out of service, seconds since 1970.
	Service      Service `json:"service,omitempty"`
	ServiceWhy   string  `json:"service_why,omitempty"`
	ServiceSince int64   `json:"service_since,omitempty"`
	ServiceEpoch uint64  `json:"service_epoch,omitempty"`
	// Drain is the workflow that empties the shard: nothing new is placed on it meanwhile. "" for none.
	Drain string `json:"drain,omitempty"`
	// Incarnation is drawn when a shard is added, and tells it from an earlier one of its name; 0 for those that a
	// cluster began with.
	Incarnation uint64 `json:"incarnation,omitempty"`
}

// Can is what the shard can do, as all of its engine.
func (s *Shard) Can() capability.Set { return capability.Of(s.Engine) }

// Keyspace is a named sharding scheme with its map.
type Keyspace struct {
	Name     string            `json:"name"`
	Strategy keyspace.Strategy `json:"strategy"`
	Types    []keyspace.Type   `json:"types"`
	Seed     int64             `json:"seed"`             // hash only
	Ranges   []Range           `json:"ranges,omitempty"` // hash and range: sorted, gapless, covering all
	Values   []ListValue       `json:"values,omitempty"` // list only
	Pins     []Pin             `json:"pins,omitempty"`
	// Transits are the parts of which two shards have rows; they do not overlap.
	Transits []Transit `json:"transits,omitempty"`
}

// Range is a key range and its owner. Bounds are canonical texts: for hash one
// decimal signed 64-bit number, for range one text per key column (a prefix of
// the columns is allowed). Low is inclusive, High exclusive, nil is unbounded.
// The first Low and the last High of a keyspace are nil.
type Range struct {
	Low   []string `json:"low"`
	High  []string `json:"high"`
	Shard string   `json:"shard"`
	Epoch uint64   `json:"epoch"`
}

// ListValue is a listed key and its owner.
type ListValue struct {
	Key   []string `json:"key"`
	Shard string   `json:"shard"`
	Epoch uint64   `json:"epoch"`
}

// Pin places one key explicitly, over any strategy.
type Pin struct {
	Key   []string `json:"key"`
	Shard string   `json:"shard"`
	Epoch uint64   `json:"epoch"`
}

// TableKind says where the rows of a table are.
type TableKind string

const (
	Whole     TableKind = "whole"     // all rows on the default shard
	Sharded   TableKind = "sharded"   // rows on the owner of their shard key
	Reference TableKind = "reference" // all rows on every shard
)

// Word is the kind in messages: what is stored as "whole" is an unsharded table.
func (k TableKind) Word() string {
	if k == Whole {
		return "unsharded"
	}
	return string(k)
}

// Table is a table that Cleave knows.
type Table struct {
	Schema   string    `json:"schema"`
	Name     string    `json:"name"`
	Kind     TableKind `json:"kind"`
	Keyspace string    `json:"keyspace,omitempty"`  // sharded only
	ShardKey []string  `json:"shard_key,omitempty"` // sharded only: column names in key order
	Columns  []Column  `json:"columns"`
}

// Column is a column as the shard describes it. Dropped columns are left out.
type Column struct {
	Name    string `json:"name"`
	Type    string `json:"type"` // as format_type prints it
	OID     uint32 `json:"oid"`
	NotNull bool   `json:"not_null,omitempty"`
	// Generated says what a router puts in where an INSERT leaves the column out:
	// NextID, UUIDv7, UUIDv4 or [SequenceValue]; "": the shard's own default.
	Generated string `json:"generated,omitempty"`
	// Clocked is the column's default, as the shard prints it, if it depends on the
	// time of the transaction, which several shards do not share; else "".
	Clocked string `json:"clocked,omitempty"`
	// Identity is IdentityAlways or IdentityByDefault for an identity column.
	Identity string `json:"identity,omitempty"`
	// Computed is set for a column GENERATED ALWAYS AS (...): the shard computes
	// it, and no statement may give it a value.
	Computed bool `json:"computed,omitempty"`
}
