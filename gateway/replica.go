package gateway

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
	readPolicySetting = "cleave.read_policy"
	lagMaxSetting     = "cleave.max_replica_lag"
)

// DefaultReplicaLag is the bound on a replica's lag where nothing else is set.
const DefaultReplicaLag = 10 * time.Second

// readRule says where a session's reads may go.
type readRule struct {
	policy executor.ReadPolicy
	lagMax time.Duration
}

var policyNames = map[executor.ReadPolicy]string{
	executor.ReadPrimary: "primary", executor.ReadReplica: "replica", executor.ReadNearest: "nearest",
}

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
	d := settingDuration(s)
	return d, d > 0
}

// unquoted is the value of a setting's SQL text.
func unquoted(v string) string {
	v = strings.TrimSpace(v)
	if len(v) >= 2 && v[0] == '\'' && v[len(v)-1] == '\'' {
		return strings.ReplaceAll(v[1:len(v)-1], "''", "'")
	}
	return v
}

// stale are the errors of a replica that the primary might not give: what it
// lacks or cannot do, and conflicts of its replay with reads.
func stale(code sqlstate.Code) bool {
	switch code {
	case sqlstate.SerializationFailure, "40P01", sqlstate.ReadOnlyTransaction, sqlstate.FeatureNotSupported, sqlstate.ObjectNotInState:
		return true
	}
	return strings.HasPrefix(string(code), "42") || strings.HasPrefix(string(code), "XX") || strings.HasPrefix(string(code), "58")
}

// onPrimary runs the unit again on the primary, after a replica's error, if that
// can be done.
func (x *unitRun) onPrimary() error {
	again := x.repeatable(roamMax)
	if !again {
		return nil
	}
	if err := x.undo(); err != nil {
		return nil
	}
	x.shards.primary = true
	return errAgain
}

// readHint is a policy that a statement's own text asks for.
type readHint struct {
	given  bool
	policy executor.ReadPolicy
}

// hintOf reads a comment at the beginning of a text: /* cleave: read_policy=replica */.
// Other comments are none of ours; one of ours that cannot be read is an error.
func hintOf(text []byte) (readHint, error) {
	if len(text) == 0 || text[0] != '/' {
		return readHint{}, nil
	}
	body, ok := bytes.CutPrefix(text, []byte("/*"))
	if !ok {
		return readHint{}, nil
	}
	body, _, ok = bytes.Cut(body, []byte("*/"))
	if !ok {
		return readHint{}, nil
	}
	body, ok = bytes.CutPrefix(bytes.TrimSpace(body), []byte("cleave:"))
	if !ok {
		return readHint{}, nil
	}
	name, value, _ := strings.Cut(strings.TrimSpace(string(body)), "=")
	p, known := ParseReadPolicy(strings.TrimSpace(value))
	if strings.TrimSpace(name) != "read_policy" || !known {
		return readHint{}, sqlstate.New(sqlstate.InvalidParameterValue, "the comment for the router cannot be read: %s", strings.TrimSpace(string(body))).
			WithHint("write it as /* cleave: read_policy=replica */, with primary, replica or nearest")
	}
	return readHint{given: true, policy: p}, nil
}
