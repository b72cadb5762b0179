package shardmap

import (
	"slices"

	"github.com/cleavedb/cleave/sqlstate"
)

// MaxReplicas bounds the replicas of one shard: each costs every router a
// connection and a question a second.
const MaxReplicas = 15

// Endpoints returns the URLs of the shard's servers, URL first. They may hold
// passwords: print them with Redacted only.
func (s *Shard) Endpoints() []string {
	return append(append(make([]string, 0, 1+len(s.Replicas)), s.URL), s.Replicas...)
}

// TimelineRecord is the key of the [Record] with a shard's system identifier and
// the highest timeline that a primary of it was seen on: "7312345 3".
func TimelineRecord(shard string) string { return "timeline/" + shard }

func checkReplicas(sh *Shard) *sqlstate.Error {
	if len(sh.Replicas) > MaxReplicas {
		return invalid(sqlstate.ProgramLimitExceeded, "shard %q has %d replicas; %d are allowed", sh.Name, len(sh.Replicas), MaxReplicas)
	}
	for i, url := range sh.Replicas {
		if url == "" {
			return invalid(sqlstate.InvalidParameterValue, "shard %q has a replica without a URL", sh.Name)
		}
		if url == sh.URL || slices.Contains(sh.Replicas[:i], url) {
			return invalid(sqlstate.DuplicateObject, "shard %q has the endpoint %s twice", sh.Name, Redacted(url))
		}
	}
	if len(sh.System) > maxSystemBytes || len(sh.Replicas) > 0 && sh.System == "" {
		return invalid(sqlstate.InvalidParameterValue, "shard %q has replicas, so it needs the system identifier of its servers", sh.Name).
			WithHint("add replicas with \"cleave shard replica add\", which asks the servers for it")
	}
	return nil
}

// maxSystemBytes bounds a system identifier: a decimal 64-bit number.
const maxSystemBytes = 20
