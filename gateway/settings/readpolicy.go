package settings

import (
	"bytes"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/sqlstate"
)

// The settings of reads on replicas. They are the router's own: no shard gets
// them. See docs/replicas.md for what they promise.
const (
	ReadPolicy    = "cleave.read_policy"
	MaxReplicaLag = "cleave.max_replica_lag"
)

// DefaultReplicaLag is the bound on a replica's lag where nothing else is set.
const DefaultReplicaLag = 10 * time.Second

// ReadRule says where a session's reads may go.
type ReadRule struct {
	Policy executor.ReadPolicy
	LagMax time.Duration
}

var policyNames = map[executor.ReadPolicy]string{
	executor.ReadPrimary: "primary", executor.ReadReplica: "replica", executor.ReadNearest: "nearest",
}

// PolicyName is the policy in words.
func PolicyName(p executor.ReadPolicy) string { return policyNames[p] }

// ParseReadPolicy reads "primary", "replica" or "nearest".
func ParseReadPolicy(s string) (executor.ReadPolicy, bool) {
	for p, name := range policyNames {
		if strings.EqualFold(s, name) {
			return p, true
		}
	}
	return executor.ReadPrimary, false
}

// ParseReplicaLag reads a bound as PostgreSQL reads times ("500ms", "5 s", a
// number of milliseconds); -1 is none (executor.AnyLag).
func ParseReplicaLag(s string) (time.Duration, bool) {
	s = strings.TrimSpace(s)
	if s == "-1" {
		return executor.AnyLag, true
	}
	if s == "0" {
		return 0, true
	}
	d := duration(s)
	return d, d > 0
}

// ReadHint is a policy that a statement's own text asks for.
type ReadHint struct {
	Given  bool
	Policy executor.ReadPolicy
}

// HintOf reads a comment at the beginning of a text: /* cleave: read_policy=replica */.
// Other comments are none of ours; one of ours that cannot be read is an error.
func HintOf(text []byte) (ReadHint, error) {
	if len(text) == 0 || text[0] != '/' {
		return ReadHint{}, nil
	}
	body, ok := bytes.CutPrefix(text, []byte("/*"))
	if !ok {
		return ReadHint{}, nil
	}
	body, _, ok = bytes.Cut(body, []byte("*/"))
	if !ok {
		return ReadHint{}, nil
	}
	body, ok = bytes.CutPrefix(bytes.TrimSpace(body), []byte("cleave:"))
	if !ok {
		return ReadHint{}, nil
	}
	name, value, _ := strings.Cut(strings.TrimSpace(string(body)), "=")
	p, known := ParseReadPolicy(strings.TrimSpace(value))
	if strings.TrimSpace(name) != "read_policy" || !known {
		return ReadHint{}, sqlstate.New(sqlstate.InvalidParameterValue, "the comment for the router cannot be read: %s", strings.TrimSpace(string(body))).
			WithHint("write it as /* cleave: read_policy=replica */, with primary, replica or nearest")
	}
	return ReadHint{Given: true, Policy: p}, nil
}
