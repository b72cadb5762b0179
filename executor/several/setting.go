package several

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// Names of the session settings that bound statements over several shards. A
// bound of 0 is none.
const (
	// ScatterSetting is on or off: off refuses what needs several shards.
	ScatterSetting = "cleave.scatter"
	// ShardsMaxSetting is how many shards one statement may touch.
	ShardsMaxSetting = "cleave.shards_max"
	// RowsMaxSetting and BytesMaxSetting bound the rows that one statement over
	// several shards returns to the client.
	RowsMaxSetting  = "cleave.rows_max"
	BytesMaxSetting = "cleave.bytes_max"
	// TimeoutSetting bounds how long one statement over several shards runs.
	TimeoutSetting = "cleave.several_timeout"
	// DeadlockSetting is how long a statement of a transaction over several shards
	// waits before it is looked for a deadlock.
	DeadlockSetting = "cleave.deadlock_timeout"
)

// Defaults are what holds for sessions that have not set the setting of the same
// name. The zero value has no bounds but those of gathers and of deadlocks.
type Defaults struct {
	ScatterOff                    bool
	ShardsMax, RowsMax, BytesMax  int64         // 0: no bound
	Timeout                       time.Duration // 0: no bound
	GatherRowsMax, GatherBytesMax int64         // 0: [GatherRowsMax], [GatherBytesMax]
	DeadlockTimeout               time.Duration // 0: [DeadlockTimeout]
}

const (
	// DeadlockTimeout is that of cleave.deadlock_timeout where nobody sets it.
	DeadlockTimeout = time.Second
	// DeadlockTimeoutMin keeps the looks for deadlocks rare.
	DeadlockTimeoutMin = 10 * time.Millisecond
)

// Show is the default of a setting as text, "" if it is not one of these.
func (d *Defaults) Show(setting string) string {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	switch setting {
	case ScatterSetting:
		if d.ScatterOff {
			return "off"
		}
		return "on"
	case ShardsMaxSetting:
		return number(d.ShardsMax)
	case RowsMaxSetting:
		return number(d.RowsMax)
	case BytesMaxSetting:
		return number(d.BytesMax)
	case TimeoutSetting:
		return showDuration(d.Timeout)
	case GatherRowsSetting:
		return number(d.GatherRowsMax)
	case GatherBytesSetting:
		return number(d.GatherBytesMax)
	case DeadlockSetting:
		return showDuration(d.deadlock())
	}
	return ""
}

func showDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', -1, 64) + "ms"
}

func (d *Defaults) deadlock() time.Duration {
	if d.DeadlockTimeout == 0 {
		return DeadlockTimeout
	}
	return max(d.DeadlockTimeout, DeadlockTimeoutMin)
}

// deadlockTimeout is the session's.
func (d *Defaults) deadlockTimeout(s *executor.Settings) time.Duration {
	if v, ok := Duration(s.Text(DeadlockSetting)); ok && v >= DeadlockTimeoutMin {
		return v
	}
	return d.deadlock()
}

// Number reads a setting's value that is a whole number, not negative. With size
// it may have a unit of PostgreSQL's: B, kB, MB, GB, TB.
func Number(v string, size bool) (int64, bool) {
	v = strings.TrimSpace(v)
	unit := int64(1)
	if size {
		units := []struct {
			name string
			n    int64
		}{{"kB", 1 << 10}, {"MB", 1 << 20}, {"GB", 1 << 30}, {"TB", 1 << 40}, {"B", 1}}
		for _, u := range units {
			if s, ok := strings.CutSuffix(v, u.name); ok {
				v, unit = strings.TrimSpace(s), u.n
				break
			}
		}
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/unit {
		return 0, false
	}
	return n * unit, true
}

// Duration reads a time as PostgreSQL does, milliseconds without a unit.
func Duration(v string) (time.Duration, bool) {
	v = strings.TrimSpace(v)
	digits := strings.TrimRight(v, "abcdefghijklmnopqrstuvwxyz ")
	n, err := strconv.ParseFloat(digits, 64)
	units := map[string]time.Duration{"us": time.Microsecond, "": time.Millisecond, "ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	unit, ok := units[strings.TrimSpace(v[len(digits):])]
	if err != nil || !ok || n < 0 || n*float64(unit) > float64(24*24*time.Hour) {
		return 0, false
	}
	return time.Duration(n * float64(unit)), true
}

// bounds are the session's guard rails for one statement.
type bounds struct {
	forbidden   bool
	shards      int64
	rows, bytes int64
	timeout     time.Duration
	touched     []string // shards, so far
}

// bounds are those of a session's next statement.
func (d *Defaults) bounds(s *executor.Settings) bounds {
	b := bounds{forbidden: d.ScatterOff, shards: d.ShardsMax, rows: d.RowsMax, bytes: d.BytesMax, timeout: d.Timeout}
	if s.Len() == 0 {
		return b
	}
	number := func(name string, size bool, to *int64) {
		if n, ok := Number(s.Text(name), size); ok {
			*to = n
		}
	}
	if on, ok := planner.ParseBool(s.Text(ScatterSetting)); ok {
		b.forbidden = !on
	}
	number(ShardsMaxSetting, false, &b.shards)
	number(RowsMaxSetting, false, &b.rows)
	number(BytesMaxSetting, true, &b.bytes)
	if d, ok := Duration(s.Text(TimeoutSetting)); ok {
		b.timeout = d
	}
	return b
}

// touches refuses a statement that touches more shards than it may, with those
// that it has touched before.
func (b *bounds) touches(shards ...string) error {
	if !b.forbidden && b.shards == 0 {
		return nil
	}
	for _, s := range shards {
		if !slices.Contains(b.touched, s) {
			b.touched = append(b.touched, s)
		}
	}
	switch n := len(b.touched); {
	case n <= 1:
	case b.forbidden:
		return sqlstate.New(sqlstate.ConfigurationLimit, "the statement needs %d shards, and %s is off", n, ScatterSetting).
			WithHint("add the shard key to its conditions, or SET %s = on; EXPLAIN (ROUTE) shows where it goes", ScatterSetting)
	case b.shards > 0 && int64(n) > b.shards:
		return sqlstate.New(sqlstate.ConfigurationLimit, "the statement needs %d shards, more than %s allows (%d)", n, ShardsMaxSetting, b.shards).
			WithHint("add the shard key to its conditions, or raise the setting; EXPLAIN (ROUTE) shows where it goes")
	}
	return nil
}

// returned refuses to go on with an answer that is larger than it may be.
func (b *bounds) returned(rows, bytes int64) error {
	switch {
	case b.rows > 0 && rows > b.rows:
		return sqlstate.New(sqlstate.ConfigurationLimit, "the statement returns more than %d rows of several shards (%s)", b.rows, RowsMaxSetting).
			WithHint("add conditions or a LIMIT, or raise the setting")
	case b.bytes > 0 && bytes > b.bytes:
		return sqlstate.New(sqlstate.ConfigurationLimit, "the statement returns more than %d bytes of several shards (%s)", b.bytes, BytesMaxSetting).
			WithHint("add conditions, read fewer columns, or raise the setting")
	}
	return nil
}
