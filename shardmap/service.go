package shardmap

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cleavedb/cleave/sqlstate"
)

// Service says what a shard is used for at the moment.
type Service string

// The services of a shard.
const (
	// InService: for everything.
	InService Service = ""
	// ReadOnly: its rows are read and moved away, nobody writes there.
	ReadOnly Service = "read-only"
	// OutOfService: no statement goes there, and no move begins a step there.
	OutOfService Service = "out-of-service"
)

// normalService is how people write InService.
const normalService = "normal"

// ParseService reads "normal", "read-only" or "out-of-service".
func ParseService(text string) (Service, error) {
	switch s := Service(strings.ToLower(text)); s {
	case normalService:
		return InService, nil
	case ReadOnly, OutOfService:
		return s, nil
	}
	return "", sqlstate.New(sqlstate.InvalidParameterValue, "%q is no state of a shard", clip(text)).WithHint("use normal, read-only or out-of-service")
}

// String is the text that ParseService reads.
func (s Service) String() string {
	if s == InService {
		return normalService
	}
	return string(s)
}

// Restricted reports whether a shard of the map is read-only or out of service.
func (s *Snapshot) Restricted() bool { return s.restricted }

// Refusal is the answer to a statement that needs a shard, with write to one that may write there; nil if
// the shard does that. The codes are 57P03 (out of service) and 25006 (read-only).
func (s *Snapshot) Refusal(shard string, write bool) error {
	if !s.restricted {
		return nil
	}
	sh, ok := s.shards[shard]
	if !ok {
		return nil
	}
	var e *sqlstate.Error
	switch {
	case sh.Service == OutOfService:
		e = sqlstate.New(sqlstate.CannotConnectNow, "shard %s is out of service%s", shard, because(sh.ServiceWhy))
	case sh.Service == ReadOnly && write:
		e = sqlstate.New(sqlstate.ReadOnlyTransaction, "shard %s is read-only%s", shard, because(sh.ServiceWhy))
	default:
		return nil
	}
	e.Epoch = sh.ServiceEpoch
	e.Retry = sqlstate.RetryNever
	since := ""
	if sh.ServiceSince > 0 {
		since = time.Unix(sh.ServiceSince, 0).UTC().Format(" since 2006-01-02 15:04:05 UTC,")
	}
	return e.OnShard(shard).WithDetail("Shard %s is %s%s from version %d of the map on. Unsharded tables are on the default shard; reference tables are written on every shard.",
		shard, sh.Service, since, sh.ServiceEpoch).
		WithHint("nothing was done; what does not need the shard goes on; when the work on it is over: cleave shard set %s --state normal", shard)
}

// Receives says why nothing is placed on a shard: it is being drained, read-only or out of service. 55000, nil for none of these.
func (s *Snapshot) Receives(shard string) error {
	if err := s.Drained(shard); err != nil {
		return err
	}
	if sh, ok := s.shards[shard]; ok && sh.Service != InService {
		return sqlstate.New(sqlstate.ObjectNotInState, "shard %s is %s: nothing is moved to it", shard, sh.Service).OnShard(shard).
			WithHint("cleave shard set %s --state normal", shard)
	}
	return nil
}

// quoteWhy quotes a reason in a list of words.
func quoteWhy(why string) string {
	if why == "" {
		return ""
	}
	return quoteText(why)
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// checkService checks the state of a shard.
func checkService(sh *Shard) *sqlstate.Error {
	switch sh.Service {
	case InService, ReadOnly, OutOfService:
	default:
		return invalid(sqlstate.InvalidParameterValue, "shard %q is in no known state", sh.Name)
	}
	if len(sh.ServiceWhy) > maxWhyBytes || !utf8.ValidString(sh.ServiceWhy) || strings.ContainsFunc(sh.ServiceWhy, isControl) {
		return invalid(sqlstate.InvalidParameterValue, "the reason for the state of shard %q is longer than %d bytes or has control characters", sh.Name, maxWhyBytes)
	}
	return nil
}

// setServiceEpochs stamps the shards whose state is another than before.
func (s *Snapshot) setServiceEpochs(prev *Snapshot) {
	for i := range s.state.Shards {
		sh := &s.state.Shards[i]
		var was Shard
		if prev != nil {
			if old, ok := prev.shards[sh.Name]; ok {
				was = *old
			}
		}
		switch {
		case sh.Service != was.Service:
			sh.ServiceEpoch = s.state.Version
		default:
			sh.ServiceEpoch = was.ServiceEpoch
		}
	}
}
