package telemetry

// Plan is the kind of plan by which a statement was carried out.
type Plan uint8

// The kinds of plan.
const (
	// Prepare is a round trip that ran nothing: Parse and Describe.
	Prepare      Plan = iota
	OneShard          // to the owner of its shard key
	Reference         // reads reference tables, on any shard
	DefaultShard      // tables that are not sharded
	AnyShard          // touches no table
	Virtual           // the schema "cleave" and Cleave's functions
	Control           // BEGIN, COMMIT, SET, SHOW and their like
	DDL               // schema changes
	Scatter           // to several shards, results put one after the other
	Gather            // to several shards, results combined
	plans
)

var planNames = [plans]string{"prepare", "one_shard", "reference", "default_shard", "any_shard", "virtual", "control", "ddl", "scatter", "gather"}

// String returns the label value.
func (p Plan) String() string {
	if p >= plans {
		return Other
	}
	return planNames[p]
}

// Class stands for a keyspace, a kind of plan, and whether the statement may
// write. It is made once for each analysed statement, see [Metrics.Class]; 0 is
// no keyspace and Prepare.
type Class uint16

// classKey is what a Class stands for.
type classKey struct {
	keyspace string
	plan     Plan
	write    bool
}

// access is the label value of write.
func (k classKey) access() string {
	if k.write {
		return "write"
	}
	return "read"
}

const (
	// ClassMax bounds the classes: 20 of them are for keyspaces over the bound,
	// which count as "other".
	ClassMax = 256
	// KeyspaceMax is the number of keyspaces that get a label value of their own.
	KeyspaceMax = 64
)

// Class returns the class of statements of a keyspace ("" is none) with a kind
// of plan. Not for the hot path: keep the result with the plan.
func (m *Metrics) Class(keyspace string, p Plan, write bool) Class {
	if m == nil || p >= plans {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := classKey{keyspace, p, write}
	if c, ok := m.classes[k]; ok {
		return c
	}
	k.keyspace = m.keyspaceName(keyspace)
	// Classes without a keyspace, and those of "other", always find room.
	if k.keyspace != "" && len(m.classList) >= ClassMax-4*int(plans) {
		k.keyspace = Other
	}
	c, ok := m.classes[k]
	if !ok {
		c = Class(len(m.classList))
		m.classes[k] = c
		m.classList = append(m.classList, k)
	}
	return c
}

// keyspaceName is the label of a keyspace; m.mu is held.
func (m *Metrics) keyspaceName(keyspace string) string {
	if keyspace != "" && !m.keyspaces[keyspace] {
		if len(m.keyspaces) >= KeyspaceMax {
			return Other
		}
		m.keyspaces[keyspace] = true
	}
	return keyspace
}

// Fault is what an error's SQLSTATE says about whose it is. It separates what
// operators are woken for from what is the business of the client.
type Fault uint8

// The faults.
const (
	ClientFault Fault = iota // the statement or its data: syntax, constraints, types, a refused form
	Contention               // serialization failures, deadlocks, locks: run it again
	Cancelled                // by the client, or a timeout of its own
	Resources                // too many connections, disk full, out of memory, a limit reached
	Unavailable              // a shard or the map cannot be reached, or was lost
	Ownership                // the shard's guard refused the write, and running it again did not help
	Internal                 // a fault of the shard or the router
	faults
)

var faultNames = [faults]string{"client", "contention", "cancelled", "resources", "unavailable", "ownership", "internal"}

// String returns the label value.
func (f Fault) String() string {
	if f >= faults {
		return Other
	}
	return faultNames[f]
}

// FaultOf returns the fault that a SQLSTATE stands for.
func FaultOf(code string) Fault {
	if len(code) != 5 {
		return Internal
	}
	switch code {
	case "57014", "25P03", "57P05":
		return Cancelled
	case "55P03", "55006":
		return Contention
	case "08P01":
		return ClientFault
	}
	switch code[:2] {
	case "40":
		return Contention
	case "53", "54":
		return Resources
	case "08", "57":
		return Unavailable
	case "ZC":
		return Ownership
	case "58", "XX", "F0":
		return Internal
	}
	return ClientFault
}

// Result is how a statement ended.
type Result uint8

// The results.
const (
	OK      Result = iota
	Failed         // the shard returned an error
	Refused        // the router, or the shard's guard, refused it
	Retried        // it met a guard or a lost connection and was run again
	Lost           // the shard's connection was lost
	results
)

var resultNames = [results]string{"ok", "error", "refused", "retried", "lost"}

// String returns the label value.
func (r Result) String() string {
	if r >= results {
		return Other
	}
	return resultNames[r]
}
