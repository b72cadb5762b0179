package plan

import (
	"bytes"
	"strings"

	"github.com/cleavedb/cleave/shardmap"
)

// Fill is what a router evaluates anew for each execution of a statement: the
// ids of the rows that it inserts, the values of sequences. In Statement.Text
// value i is the parameter Params+1+i; see Literals.
type Fill struct {
	// Values are in the order in which PostgreSQL would evaluate them.
	Values []FillValue

	Pieces []string // of Text, around the values
	At     []int    // which value follows a piece
}

// FillValue is one value.
type FillValue struct {
	// Source is shardmap.NextID, UUIDv7 or UUIDv4, or the name of a function:
	// "nextval", "currval", "setval", "lastval", SourceCancel, SourceTerminate, SourceExport, one of SessionCalls; or
	// the name of one of PostgreSQL's relations about sessions, whose rows it is as JSON.
	Source string
	// JSON: Source is one of these relations.
	JSON bool
	// Sequence is that of nextval, currval and setval.
	Sequence *shardmap.Sequence
	// NameParam is the parameter that names the sequence of nextval and currval, of the cluster or the default shard's own; 0: none.
	NameParam int
	// Value is setval's second argument, or ValueParam the parameter that it is;
	// Called its third.
	Value      int64
	ValueParam int
	Called     bool
	// Asks is the text, with the client's parameters and then all values but those of such calls, that says in its column Column (from 0) whom a call of SourceCancel or
	// SourceTerminate names: "|pid|" or "|pid timeout|", NULL for nobody. The value is all of these that it reached.
	// OfDefault: the default shard is to be asked, else any.
	// Of SourceSetvals it is a statement of its own, without parameters, whose rows are the second and third arguments of setval().
	Asks      string
	Column    int
	OfDefault bool
}

// Type returns the value's type as SQL spells it.
func (v *FillValue) Type() string {
	switch v.Source {
	case shardmap.UUIDv7, shardmap.UUIDv4:
		return "uuid"
	case SourceCancel, SourceTerminate, SourceExport:
		return "text"
	case SourceSetvals:
		return "bigint[]"
	}
	if v.JSON {
		return "json"
	}
	if typ, ok := SessionCalls[v.Source]; ok {
		return typ
	}
	return "bigint"
}

// Literals returns the statement's text with the values in it, for the simple
// protocol. standard_conforming_strings is on at every shard.
func (f *Fill) Literals(values [][]byte) string {
	var b strings.Builder
	for i, p := range f.Pieces {
		b.WriteString(p)
		switch {
		case i == len(f.At):
		case values[f.At[i]] == nil:
			b.WriteString("NULL")
		default:
			b.WriteByte('\'')
			b.Write(bytes.ReplaceAll(values[f.At[i]], []byte("'"), []byte("''")))
			b.WriteByte('\'')
		}
	}
	return b.String()
}

// SourceSetvals is a FillValue's source: setval() once for each row of a query. The value is what they give.
const SourceSetvals = "setvals"

// The sources of such values: FillValue.Source.
const (
	// Those of SessionCalls.
	SourcePID        = "pg_backend_pid"
	SourceClientAddr = "inet_client_addr"
	SourceClientPort = "inet_client_port"
	SourceServerAddr = "inet_server_addr"
	SourceServerPort = "inet_server_port"
	// SourceCancel and SourceTerminate act on the sessions that FillValue.Asks names, and give those that they reached.
	SourceCancel    = "pg_cancel_backend"
	SourceTerminate = "pg_terminate_backend"
	// SourceExport is the name of the snapshots of all shards.
	SourceExport = "pg_export_snapshot"
)

// SessionCalls are the functions without arguments that say something of the session and are the same during all of it, with the types of
// what they give: the session's number, and both ends of its connection, NULL of a Unix socket. A shard would speak of its own session.
var SessionCalls = map[string]string{
	SourcePID: "integer", SourceClientAddr: "inet", SourceClientPort: "integer", SourceServerAddr: "inet", SourceServerPort: "integer",
}
