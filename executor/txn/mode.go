package txn

import (
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/sqlstate"
)

// Settings of a session, as SET takes them.
const (
	// ModeSetting is 'multi' (several shards in a transaction) or 'single'.
	ModeSetting = "cleave.transaction_mode"
	// ConsistencySetting is 'atomic', which is the default, or 'shard' (each shard's own snapshot).
	ConsistencySetting = "cleave.read_consistency"
)

// Single reports whether the session keeps each transaction to one shard.
func Single(s *executor.Settings) bool {
	single, _ := ParseMode(s.Text(ModeSetting))
	return single
}

// ParseMode reads a value of ModeSetting.
func ParseMode(v string) (single, ok bool) {
	switch strings.ToLower(v) {
	case "single":
		return true, true
	case "multi":
		return false, true
	}
	return false, false
}

// Atomic reports whether reads over several shards are atomic: unless the session wants each shard's own snapshot.
func Atomic(s *executor.Settings) bool {
	return !strings.EqualFold(s.Text(ConsistencySetting), "shard")
}

// Insists reports whether the session has asked for atomic reads itself. By default what cannot be atomic, of which docs/consistency.md
// has a list, is read with each shard's own snapshot.
func Insists(s *executor.Settings) bool {
	return strings.EqualFold(s.Text(ConsistencySetting), "atomic")
}

// CheckMode refuses a transaction's second shard where the session wants one only.
func CheckMode(s *executor.Settings, first, second string) error {
	if !Single(s) {
		return nil
	}
	return sqlstate.Refusal("CLV-1002", "the transaction is on shard %s, and this statement needs shard %s: %s is 'single'", first, second, ModeSetting).
		WithHint("Run SET %s = 'multi', or keep the transaction to one shard.", ModeSetting).OnShard(second)
}

// Serializable reports whether what was said of an isolation names SERIALIZABLE, in any case of letters.
func Serializable(isolation string) bool {
	return strings.Contains(strings.ToLower(isolation), "serializable")
}

// CheckIsolation refuses SERIALIZABLE over several shards: each shard's history
// would be serializable, but not necessarily all of them together.
func CheckIsolation(isolation, first, second string) error {
	if !Serializable(isolation) {
		return nil
	}
	return sqlstate.Refusal("CLV-1003", "SERIALIZABLE over several shards (%s, %s) is not supported: what is serializable on each shard need not be so on all together", first, second).
		WithHint("Use REPEATABLE READ, lock what must not change with SELECT ... FOR UPDATE, or keep the transaction to one shard.").OnShard(second)
}
