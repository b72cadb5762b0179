package limits

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner/utility"
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

// DeadlockAfter is the session's.
func (d *Defaults) DeadlockAfter(s *executor.Settings) time.Duration {
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

// Bounds are the session's guard rails for one statement.
type Bounds struct {
	forbidden   bool
	shards      int64
	rows, bytes int64
	Timeout     time.Duration
	touched     []string // shards, so far
}

// Bounds are those of a session's next statement.
func (d *Defaults) Bounds(s *executor.Settings) Bounds {
	b := Bounds{forbidden: d.ScatterOff, shards: d.ShardsMax, rows: d.RowsMax, bytes: d.BytesMax, Timeout: d.Timeout}
	if s.Len() == 0 {
		return b
	}
	number := func(name string, size bool, to *int64) {
		if n, ok := Number(s.Text(name), size); ok {
			*to = n
		}
	}
	if on, ok := utility.ParseBool(s.Text(ScatterSetting)); ok {
		b.forbidden = !on
	}
	number(ShardsMaxSetting, false, &b.shards)
	number(RowsMaxSetting, false, &b.rows)
	number(BytesMaxSetting, true, &b.bytes)
	if d, ok := Duration(s.Text(TimeoutSetting)); ok {
		b.Timeout = d
	}
	return b
}

// Touches refuses a statement that touches more shards than it may, with those
// that it has touched before.
func (b *Bounds) Touches(shards ...string) error {
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

// Returned refuses to go on with an answer that is larger than it may be.
func (b *Bounds) Returned(rows, bytes int64) error {
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

const (
	// GatherRowsMax and GatherBytesMax bound one gather where the settings
	// cleave.gather_rows_max and cleave.gather_bytes_max say nothing.
	GatherRowsMax  = 10_000_000
	GatherBytesMax = 4 << 30
)

// Names of the session settings that bound a gather: the rows and bytes of all its
// relations together. 0 is the router's default.
const (
	GatherRowsSetting  = "cleave.gather_rows_max"
	GatherBytesSetting = "cleave.gather_bytes_max"
)

// GatherLimits are the bounds of one gather.
type GatherLimits struct{ rows, bytes int64 }

// Gather bounds a gather, as the settings say.
func (d *Defaults) Gather(s *executor.Settings) GatherLimits {
	l := GatherLimits{rows: GatherRowsMax, bytes: GatherBytesMax}
	if d.GatherRowsMax > 0 {
		l.rows = d.GatherRowsMax
	}
	if d.GatherBytesMax > 0 {
		l.bytes = d.GatherBytesMax
	}
	if s.Len() == 0 {
		return l
	}
	if n, ok := Number(s.Text(GatherRowsSetting), false); ok && n > 0 {
		l.rows = n
	}
	if n, ok := Number(s.Text(GatherBytesSetting), true); ok && n > 0 {
		l.bytes = n
	}
	return l
}

// Check refuses what is over them.
func (l GatherLimits) Check(rows, bytes int64) error {
	switch {
	case rows > l.rows:
		return sqlstate.New(sqlstate.ConfigurationLimit, "the statement has to bring more than %d rows of several shards together", l.rows).
			WithHint("add conditions, or raise the setting %s", GatherRowsSetting)
	case bytes > l.bytes:
		return sqlstate.New(sqlstate.ConfigurationLimit, "the statement has to bring more than %d bytes of several shards together", l.bytes).
			WithHint("add conditions, read fewer columns, or raise the setting %s", GatherBytesSetting)
	}
	return nil
}

// heldBytesMax is how many bytes of rows a statement that writes may hold in the
// router where the setting says nothing.
const heldBytesMax = 256 << 20

// Allowance is how much one statement may still hold in the router.
type Allowance struct{ Rows, Bytes int64 }

// Allowance is what the session's settings allow.
func (d *Defaults) Allowance(s *executor.Settings) *Allowance {
	l := d.Gather(s)
	a := &Allowance{Rows: l.rows, Bytes: l.bytes}
	if _, set := s.Get(GatherBytesSetting); !set {
		a.Bytes = min(a.Bytes, heldBytesMax)
	}
	return a
}

// Take takes a row of so many bytes out of it; 53400 when it is used up.
func (a *Allowance) Take(bytes int) error {
	a.Rows--
	if a.Bytes -= int64(bytes) + 24; a.Rows < 0 || a.Bytes < 0 {
		return sqlstate.New(sqlstate.ConfigurationLimit, "the statement has to hold more rows in the router than the settings %s and %s allow", GatherRowsSetting, GatherBytesSetting).
			WithHint("do it in several statements, for example by ranges of a key, or raise the setting %s", GatherBytesSetting)
	}
	return nil
}

// FileAllowance is what the session's settings allow of rows in a file.
func (d *Defaults) FileAllowance(s *executor.Settings) *Allowance {
	l := d.Gather(s)
	return &Allowance{Rows: l.rows, Bytes: l.bytes}
}
