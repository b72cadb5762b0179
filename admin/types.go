package admin

import (
	"context"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
)

// API is every operation. [*Ops] carries them out; the client in admin/api calls
// them over HTTP. Errors are *sqlstate.Error in both.
type API interface {
	Status(ctx context.Context) (*Status, error)
	Keyspaces(ctx context.Context) ([]KeyspaceInfo, error)
	Tables(ctx context.Context) ([]TableInfo, error)
	// Routers lists the members of the cluster: routers and programs.
	Routers(ctx context.Context) ([]RouterInfo, error)
	// Ranges lists the ranges (or listed values) of one keyspace, or of all with "".
	Ranges(ctx context.Context, keyspace string) ([]RangeInfo, error)
	// Pins lists the pins of one keyspace, or of all with "".
	Pins(ctx context.Context, keyspace string) ([]PinInfo, error)
	// Map returns one version of the map, the current one with 0, with
	// passwords taken out of the shards' URLs.
	Map(ctx context.Context, version uint64) (*shardmap.State, error)
	History(ctx context.Context, req HistoryRequest) ([]shardmap.Entry, error)
	// Diff lists what changed from version a to version b; b 0 is the current one,
	// a 0 the one before b.
	Diff(ctx context.Context, a, b uint64) ([]shardmap.Difference, error)
	ShardOf(ctx context.Context, req ShardOfRequest) (*ShardOfResult, error)
	Doctor(ctx context.Context, req DoctorRequest) ([]Finding, error)

	CreateKeyspace(ctx context.Context, req CreateKeyspaceRequest) (*Result, error)
	DropKeyspace(ctx context.Context, req DropKeyspaceRequest) (*Result, error)
	Distribute(ctx context.Context, req DistributeRequest) (*Result, error)
	Declare(ctx context.Context, req DeclareRequest) (*Result, error)
	Pin(ctx context.Context, req PinRequest) (*Result, error)
	Unpin(ctx context.Context, req UnpinRequest) (*Result, error)

	Fleet
	Workflows
	Access
	Clients
	Balancing
}

// Clients are the sessions of clients, at all routers.
type Clients interface {
	Sessions(ctx context.Context, req SessionsRequest) (*SessionsInfo, error)
	// CancelSession cancels what a session runs; TerminateSession ends it.
	CancelSession(ctx context.Context, req SessionRequest) (*SessionResult, error)
	TerminateSession(ctx context.Context, req SessionRequest) (*SessionResult, error)
}

// Fleet is which shards and replicas there are, and what they may be used for.
type Fleet interface {
	Shards(ctx context.Context) ([]ShardInfo, error)
	AddShard(ctx context.Context, req AddShardRequest) (*AddShardResult, error)
	RemoveShard(ctx context.Context, req RemoveShardRequest) (*Result, error)
	MoveDefault(ctx context.Context, req MoveDefaultRequest) (*Result, error)
	SetShard(ctx context.Context, req SetShardRequest) (*Result, error)
	AddReplica(ctx context.Context, req ReplicaRequest) (*Result, error)
	RemoveReplica(ctx context.Context, req ReplicaRequest) (*Result, error)
}

// Balancing is where the load is, where keys may be, and when that is seen to.
type Balancing interface {
	// Heat tells where the load is: ranges, hottest first, and hot keys.
	Heat(ctx context.Context, req HeatRequest) (*HeatInfo, error)
	// Constraints lists the rules about where keys may be; AddConstraint and
	// RemoveConstraint change them.
	Constraints(ctx context.Context) ([]ConstraintInfo, error)
	AddConstraint(ctx context.Context, req ConstraintRequest) (*Result, error)
	RemoveConstraint(ctx context.Context, req ConstraintRequest) (*Result, error)
	// Policy tells when the cluster makes itself even; SetPolicy changes that.
	Policy(ctx context.Context) (*PolicyInfo, error)
	SetPolicy(ctx context.Context, req PolicyRequest) (*PolicyInfo, error)
}

// Access is who may connect.
type Access interface {
	// Users lists those who may connect where clients are asked who they are.
	Users(ctx context.Context) ([]UserInfo, error)
	AddUser(ctx context.Context, req UserRequest) (*UserInfo, error)
	ChangeUser(ctx context.Context, req UserRequest) (*UserInfo, error)
	RemoveUser(ctx context.Context, req UserRequest) (*UserInfo, error)
}

// Workflows are the operations that move data, and what can be asked of them.
type Workflows interface {
	// Moves lists workflows; Move and the others begin one, or ask something of one.
	Moves(ctx context.Context, id string) ([]WorkflowInfo, error)
	Move(ctx context.Context, req MoveRequest) (*WorkflowResult, error)
	Split(ctx context.Context, req SplitRequest) (*WorkflowResult, error)
	Merge(ctx context.Context, req MergeRequest) (*WorkflowResult, error)
	Drain(ctx context.Context, req DrainRequest) (*WorkflowResult, error)
	Spread(ctx context.Context, req SpreadRequest) (*WorkflowResult, error)
	// Plan makes a plan, ShowPlan returns it, Approve lets it be carried out.
	Plan(ctx context.Context, req PlanRequest) (*WorkflowResult, error)
	ShowPlan(ctx context.Context, id string) (*PlanInfo, error)
	Approve(ctx context.Context, req WorkflowRequest) (*WorkflowInfo, error)
	Pause(ctx context.Context, req WorkflowRequest) (*WorkflowInfo, error)
	Resume(ctx context.Context, req WorkflowRequest) (*WorkflowInfo, error)
	Cancel(ctx context.Context, req WorkflowRequest) (*WorkflowInfo, error)
	Reverse(ctx context.Context, req WorkflowRequest) (*WorkflowInfo, error)
	Complete(ctx context.Context, req WorkflowRequest) (*WorkflowInfo, error)
	// Verify reads the rows of sharded tables and compares where they are with the map.
	Verify(ctx context.Context, req VerifyRequest) ([]VerifyResult, error)
	// VerifyPieces is Verify in steps, which can be interrupted: under req.ID it goes on where it was.
	VerifyPieces(ctx context.Context, req VerifyRequest) (*VerifyProgress, error)
}

// Meta is part of every request that changes something.
type Meta struct {
	By     string `json:"by,omitempty"`  // who: session user, or user@host
	Why    string `json:"why,omitempty"` // one line for people
	DryRun bool   `json:"dry_run,omitempty"`
}

// Result is what a change did, or would do.
type Result struct {
	Version  uint64   `json:"version"` // of the map afterwards
	Done     bool     `json:"done"`    // false with DryRun
	Plan     []string `json:"plan"`    // the steps, one line each
	Warnings []string `json:"warnings,omitempty"`
}

// CreateKeyspaceRequest creates a keyspace.
type CreateKeyspaceRequest struct {
	Meta
	Name     string   `json:"name"`
	Strategy string   `json:"strategy"`  // "hash", "range" or "list"
	KeyTypes []string `json:"key_types"` // PostgreSQL type names
	// Ranges (hash) is how many equal ranges to start with; 0 is four per shard.
	Ranges int `json:"ranges,omitempty"`
	// Bounds (range) are the inner boundaries in order, each a key or a prefix of one.
	Bounds [][]string `json:"bounds,omitempty"`
	// Values (list) are the listed keys with their shards. An empty shard: they
	// are handed out in turn, more to the shards of greater weight.
	Values []ListedValue `json:"values,omitempty"`
	// Shards are those that get ranges, in contiguous runs by weight; empty is all.
	Shards []string `json:"shards,omitempty"`
}

// DropKeyspaceRequest takes a keyspace without tables out of the map.
type DropKeyspaceRequest struct {
	Meta
	Name string `json:"name"`
}

// ListedValue is one value of a list keyspace.
type ListedValue struct {
	Key   []string `json:"key"`
	Shard string   `json:"shard,omitempty"`
}

// DistributeRequest shards an unsharded table, or makes it a reference table.
type DistributeRequest struct {
	Meta
	Table    string   `json:"table"` // name or schema.name; quoted as in SQL where needed
	ShardKey []string `json:"shard_key,omitempty"`
	Keyspace string   `json:"keyspace,omitempty"` // "" is the hash keyspace of the key's types
	// Related: also the tables that foreign keys connect with it, by what the shard key is there.
	Related bool `json:"related,omitempty"`
	// Reference: it becomes a reference table, whose rows every shard gets. ShardKey is empty then.
	Reference bool `json:"reference,omitempty"`
}

// DeclareRequest says what a table becomes when it is created.
type DeclareRequest struct {
	Meta
	Table     string   `json:"table"` // name or schema.name; quoted as in SQL where needed
	ShardKey  []string `json:"shard_key,omitempty"`
	Keyspace  string   `json:"keyspace,omitempty"` // "" is the hash keyspace of the key's types
	Reference bool     `json:"reference,omitempty"`
	// Forget takes the declaration back.
	Forget bool `json:"forget,omitempty"`
}

// PinRequest places a key on a shard.
type PinRequest struct {
	Meta
	Keyspace string   `json:"keyspace"`
	Key      []string `json:"key"` // one text per key column
	Shard    string   `json:"shard"`
}

// UnpinRequest removes the pin of a key.
type UnpinRequest struct {
	Meta
	Keyspace string   `json:"keyspace"`
	Key      []string `json:"key"`
}

// AddShardRequest adds a database to the cluster.
type AddShardRequest struct {
	Meta
	Name   string            `json:"name"`
	URL    string            `json:"url"`
	Labels map[string]string `json:"labels,omitempty"`
	Weight float64           `json:"weight,omitempty"` // 0 is 1
	// Replicas are the URLs of servers that stream from the one at URL.
	Replicas []string `json:"replicas,omitempty"`
}

// ReplicaRequest adds a server to a shard, or takes one out.
type ReplicaRequest struct {
	Meta
	Shard string `json:"shard"`
	URL   string `json:"url"`
}

// AddShardResult is a Result with what the check of the database found.
type AddShardResult struct {
	Result
	ServerVersion string           `json:"server_version"`
	Findings      []engine.Finding `json:"findings"`
}

// RemoveShardRequest takes a shard that owns nothing out of the map.
type RemoveShardRequest struct {
	Meta
	Name string `json:"name"`
}

// HistoryRequest asks for entries with After < version, oldest first. Limit 0 is
// 100, at most 1000. Last asks for the newest Limit entries instead.
type HistoryRequest struct {
	After uint64 `json:"after,omitempty"`
	Limit int    `json:"limit,omitempty"`
	Last  bool   `json:"last,omitempty"`
}

// ShardOfRequest asks where a key is.
type ShardOfRequest struct {
	Keyspace string   `json:"keyspace"`
	Key      []string `json:"key"`
}

// ShardOfResult is the owner of a key.
type ShardOfResult struct {
	Shard  string `json:"shard"`
	Range  string `json:"range,omitempty"` // "" for a pin or a listed value
	Epoch  uint64 `json:"epoch"`
	Pinned bool   `json:"pinned"`
	// Hash is the position of the key, hash keyspaces only.
	Hash    *int64 `json:"hash,omitempty,string"`
	Version uint64 `json:"version"`
}

// Health of a shard.
const (
	Up   = "up"
	Down = "down"
)

// ShardInfo is one shard.
type ShardInfo struct {
	Name    string            `json:"name"`
	Engine  string            `json:"engine"`
	URL     string            `json:"url"` // without the password
	Labels  map[string]string `json:"labels"`
	Weight  float64           `json:"weight"`
	Default bool              `json:"default"`
	Ranges  int               `json:"ranges"` // ranges and listed values owned
	Pins    int               `json:"pins"`
	// State is "normal", "read-only" or "out-of-service", StateWhy the reason.
	State    string  `json:"state"`
	StateWhy string  `json:"state_why,omitempty"`
	Health   string  `json:"health"` // "up" or "down"
	Reason   string  `json:"reason,omitempty"`
	Latency  float64 `json:"latency_ms"` // of the probe
	// Endpoints are the servers of a shard with replicas.
	Endpoints []EndpointInfo `json:"endpoints,omitempty"`
}

// EndpointInfo is one server of a shard with replicas, as it was found just now.
type EndpointInfo struct {
	URL    string `json:"url"`              // without the password
	Role   string `json:"role,omitempty"`   // "primary" or "replica": what it says of itself
	Serves string `json:"serves,omitempty"` // the role in which it gets statements, "" if none
	Health string `json:"health"`           // "up" or "down"
	Reason string `json:"reason,omitempty"`
	// Timeline counts promotions: an old primary's is below the others'.
	Timeline uint32 `json:"timeline,omitempty"`
	// LagBytes is how much of the primary's log a replica has not replayed.
	LagBytes *int64  `json:"lag_bytes,omitempty"`
	Latency  float64 `json:"latency_ms"` // of connecting and asking
}

// KeyspaceInfo is one keyspace.
type KeyspaceInfo struct {
	Name     string   `json:"name"`
	Strategy string   `json:"strategy"`
	KeyTypes []string `json:"key_types"`
	Seed     int64    `json:"seed"`
	Ranges   int      `json:"ranges"` // or listed values
	Pins     int      `json:"pins"`
	Tables   int      `json:"tables"`
}

// TableInfo is one table.
type TableInfo struct {
	Schema   string   `json:"schema"`
	Name     string   `json:"name"`
	Kind     string   `json:"kind"`
	Keyspace string   `json:"keyspace,omitempty"`
	ShardKey []string `json:"shard_key,omitempty"`
	Shards   []string `json:"shards"`
}

// RouterInfo is a member of the cluster as the directory knows it.
type RouterInfo struct {
	ID       string    `json:"id"`
	Role     string    `json:"role"`
	Address  string    `json:"address,omitempty"`
	Host     string    `json:"host"`
	Software string    `json:"software"`
	Node     uint16    `json:"node"`
	Version  uint64    `json:"version"` // of the map that it has acknowledged
	Lag      uint64    `json:"lag"`     // versions that it is behind the newest one
	Joined   time.Time `json:"joined"`
	// LeaseLeft is for how long it may serve without renewing, seconds.
	LeaseLeft float64 `json:"lease_left"`
	// Leads says that it is the coordinators' leader, which carries out moves.
	Leads bool `json:"leads,omitempty"`
}

// RangeInfo is one range or listed value.
type RangeInfo struct {
	Keyspace string `json:"keyspace"`
	Position int    `json:"position"` // from 0
	Range    string `json:"range"`    // printable
	Low      string `json:"low,omitempty"`
	High     string `json:"high,omitempty"`
	Shard    string `json:"shard"`
	Epoch    uint64 `json:"epoch"`
	// Load is how many statements a second the cluster's routers send there, smoothed over
	// minutes.
	Load float64 `json:"load"`
}

// PinInfo is one pin.
type PinInfo struct {
	Keyspace string   `json:"keyspace"`
	Key      []string `json:"key"`
	Shard    string   `json:"shard"`
	Epoch    uint64   `json:"epoch"`
}

// Status is the state of the process that answers.
type Status struct {
	Cluster       string    `json:"cluster"`
	Version       uint64    `json:"version"`        // of the map
	SchemaVersion uint64    `json:"schema_version"` // of tables and keyspaces
	DefaultShard  string    `json:"default_shard"`
	Shards        int       `json:"shards"`
	Keyspaces     int       `json:"keyspaces"`
	Tables        int       `json:"tables"`
	Software      string    `json:"software"` // version of Cleave
	Started       time.Time `json:"started"`
}

// DoctorRequest asks what is wrong. Repair also finishes what a crash left and
// sets guards that differ from the map.
type DoctorRequest struct {
	Meta
	Repair bool `json:"repair,omitempty"`
	// SetBack, with Repair, also sets guards to the map that are newer than it: see schema.RecoverOptions.
	SetBack bool `json:"set_back,omitempty"`
	// RebuildMap says what of the map differs from the shards' guards, and with Repair makes the map say what they do.
	RebuildMap bool `json:"rebuild_map,omitempty"`
}

// Finding is one thing that Doctor looked at.
type Finding struct {
	Level string `json:"level"` // "ok", "warning" or "error"
	What  string `json:"what"`
	Shard string `json:"shard,omitempty"`
	Table string `json:"table,omitempty"`
	Done  string `json:"done,omitempty"` // what was done about it
	Next  string `json:"next,omitempty"` // the command to run
	// Later says that time alone will let another Recover do it.
	Later bool `json:"-"`
	// Newer says that a guard is newer than the map, so that nobody knows what the shard owns.
	Newer bool `json:"-"`
}

// BootstrapRequest makes a cluster of databases.
type BootstrapRequest struct {
	Meta
	Shards []BootstrapShard `json:"shards"` // the first is the default shard
}

// BootstrapShard is one database of a new cluster.
type BootstrapShard struct {
	Name   string            `json:"name"`
	URL    string            `json:"url"`
	Labels map[string]string `json:"labels,omitempty"`
	Weight float64           `json:"weight,omitempty"`
}

// BootstrapResult says what Bootstrap found or made.
type BootstrapResult struct {
	Cluster string `json:"cluster"`
	Version uint64 `json:"version"`
	Created bool   `json:"created"` // false: it was there already
	// Warnings are what is not as it should be on the shards of a new cluster, and how to set it.
	Warnings []string `json:"warnings,omitempty"`
}
