package shardmap

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"
	"sync"

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

// Each runs f for every shard, at most atOnce at a time, and waits for all.
func Each(shards []Shard, atOnce int, f func(i int, s *Shard)) {
	slots := make(chan struct{}, atOnce)
	var wait sync.WaitGroup
	for i := range shards {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			f(i, &shards[i])
		})
	}
	wait.Wait()
}

// CopiesEpoch is the epoch of the guards of reference tables: a number that
// stands for the set of shards that have their rows. A session that changes such a
// table has to name it (the setting cleave.guard_epoch), so that a router with an
// older map cannot leave out a shard. It is never 0.
func (s *Snapshot) CopiesEpoch() uint64 {
	shards := slices.Clone(s.Shards())
	slices.SortFunc(shards, func(a, b Shard) int { return strings.Compare(a.Name, b.Name) })
	h := fnv.New64a()
	for _, sh := range shards {
		_, _ = h.Write([]byte(sh.Name)) // a hash takes everything
		_, _ = h.Write([]byte{0})
		if sh.Incarnation != 0 {
			_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, sh.Incarnation))
		}
	}
	return h.Sum64()>>1 | 1 // it fits a signed number too
}
