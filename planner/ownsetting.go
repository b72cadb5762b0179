package planner

// ownSettings are the settings of the router's own; package gateway knows what
// values they take.
var ownSettings = map[string]bool{
	"cleave.read_policy":      true,
	"cleave.max_replica_lag":  true,
	"cleave.traceparent":      true,
	"cleave.scatter":          true,
	"cleave.shards_max":       true,
	"cleave.rows_max":         true,
	"cleave.bytes_max":        true,
	"cleave.several_timeout":  true,
	"cleave.gather_rows_max":  true,
	"cleave.gather_bytes_max": true,
	"cleave.hold_timeout":     true,
	"cleave.read_consistency": true,
	"cleave.transaction_mode": true,
	"cleave.deadlock_timeout": true,
}

// OwnSetting reports whether a setting, in lower case, is one of the router's
// own that sessions may set: no shard gets it.
func OwnSetting(name string) bool { return ownSettings[name] }
