// Package capability says, as data, what the shards of an engine can do. It is for who has a shard of the map before
// him and no conversation with it: the pure planner above all. What one conversation can do is an interface of its
// [engine.Conn].
package capability

// Set is what all shards of one engine can do. Each field is named by what its readers want to know.
type Set struct {
	// Servers: a shard is a database on a server, which gives it a name, users with passwords, replicas, and a URL that
	// may become another while the shard is used. Otherwise it is a file.
	Servers bool
	// Catalogue: PostgreSQL's whole catalogue is there, from which definitions are read as they are, with what depends on them.
	Catalogue bool
	// Sequences, Types, Code and LargeObjects: users can make sequences; types, those of rows among them; functions in
	// other languages than SQL, and DO; and large objects.
	Sequences, Types, Code, LargeObjects bool
	// Functions: the functions of the schema cleave have to be made with SQL. Otherwise the engine brings them.
	Functions bool
	// ObjectIDs: each shard gives the objects that users make OIDs of its own.
	ObjectIDs bool
	// Styles: settings of the session change how values are written as texts. Otherwise each value has one text.
	Styles bool
	// Clock: a text such as 'now' is read as a time by the shard's clock.
	Clock bool
	// Collations: columns have the collation of the database or another one. Otherwise texts are sorted as bytes unless
	// the statement says something else.
	Collations bool
	// TypedRelations: the relations that a conversation brings rows into are tables like others, in which every type of
	// column keeps its binary form.
	TypedRelations bool
	// Locks: rows and tables are locked one by one, and names with advisory locks, for lock_timeout at most. Otherwise a
	// shard has one writer at a time, which keeps all others out.
	Locks bool
	// Waits: the catalogue says which process waits for which, by their numbers.
	Waits bool
	// Judges: PREPARE says what is wrong with a statement, without running it. Otherwise EXPLAIN does.
	Judges bool
	// Snapshots: a transaction that parsed a statement and did not run it may have a snapshot.
	Snapshots bool
	// PreparesDefinitions: a prepared transaction can hold changes of the schema.
	PreparesDefinitions bool
	// ConcurrentIndexes: indexes are made, rebuilt and dropped while others write, and an attempt that fails leaves an
	// invalid index behind. Otherwise that is one transaction, which ends with its process.
	ConcurrentIndexes bool
	// KeyedMoves: the rows of a table can be moved only if it has a primary key or another replica identity.
	KeyedMoves bool
	// Evaluates: the shard itself computes the defaults and expressions of a definition, for each row.
	Evaluates bool
	// Exports: a transaction can give its snapshot to others.
	Exports bool
}

// postgres can do everything: SQL of PostgreSQL is what shards are asked in.
var postgres = Set{
	Servers: true, Catalogue: true, Sequences: true, Types: true, Code: true, LargeObjects: true, Functions: true, ObjectIDs: true, Styles: true, Clock: true,
	Collations: true, TypedRelations: true, Locks: true, Waits: true, Judges: true, Snapshots: true, PreparesDefinitions: true, ConcurrentIndexes: true,
	KeyedMoves: true, Evaluates: true, Exports: true,
}

// lacking are the engines that are not PostgreSQL.
var lacking = map[string]Set{
	"sqlite": {},
}

// Of returns what shards of an engine can do. An engine without an entry of its own is taken for PostgreSQL.
func Of(engine string) Set {
	if s, ok := lacking[engine]; ok {
		return s
	}
	return postgres
}
