package move

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// noisy are settings that change no answer of a history, with values that are not their own.
var noisy = map[string][]string{
	"application_name":   {"noise", ""},
	"bytea_output":       {"escape"},
	"datestyle":          {"German, DMY", "SQL, MDY", "ISO, YMD", "ISO", "dmy"},
	"extra_float_digits": {"-3", "3"},
	"intervalstyle":      {"iso_8601", "sql_standard"},
	"statement_timeout":  {"100s"},
	"timezone":           {"Asia/Kathmandu", "America/St_Johns"},
	"work_mem":           {"1234kB"},
}

// fresh reads the settings of a connection, which a new one has as all others had.
func (c *client) fresh(ctx context.Context) (string, error) {
	names := slices.Sorted(maps.Keys(noisy))
	if c.h.kind == "postgres" {
		out, err := c.text(ctx, "SELECT string_agg(name || '=' || setting, ', ' ORDER BY name), current_user, (SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND pg_table_is_visible(oid)),"+
			" (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) FROM pg_settings WHERE lower(name) IN ('"+strings.Join(names, "', '")+"')")
		if err != nil {
			return "", &nothing{err}
		}
		return fmt.Sprint(out.Rows), nil
	}
	var all []string
	for _, name := range names {
		if name == "statement_timeout" || name == "work_mem" {
			continue // a SQLite shard has none
		}
		out, err := c.text(ctx, "SHOW "+name)
		if err != nil {
			return "", &nothing{err}
		}
		all = append(all, name+"="+out.one())
	}
	return strings.Join(all, ", "), nil
}

// arrive looks whether a new connection has anything of a former one.
func (c *client) arrive(ctx context.Context) {
	got, err := c.fresh(ctx)
	switch {
	case err != nil:
		c.h.judge("arrive", err)
	case got != c.h.freshly:
		_ = c.h.wrong("a new connection has %s; all began with %s", got, c.h.freshly)
		_ = c.conn.Close(ctx)
	}
}

// noise does something to its session that has to end with it.
func (c *client) noise(ctx context.Context) (string, error) {
	const what = "noise"
	r, id := c.r, c.h.ids.Add(1)
	name := slices.Sorted(maps.Keys(noisy))[r.IntN(len(noisy))]
	for c.h.kind != "postgres" && (name == "statement_timeout" || name == "work_mem") {
		name = slices.Sorted(maps.Keys(noisy))[r.IntN(len(noisy))]
	}
	value := noisy[name][r.IntN(len(noisy[name]))]
	ways := [][]string{
		{fmt.Sprintf("SET %s = '%s'", name, value)},
		{"BEGIN", fmt.Sprintf("SET LOCAL %s = '%s'", name, value), "COMMIT"},
		{"BEGIN", fmt.Sprintf("SET %s = '%s'", name, value), "ROLLBACK"},
		{fmt.Sprintf("BEGIN; SET %s = '%s'; COMMIT", name, value)},
		{"RESET " + name},
		{"RESET ALL"},
		{"DISCARD ALL"},
	}
	if c.h.kind == "postgres" {
		ways = append(ways, [][]string{
			{fmt.Sprintf("SELECT set_config('%s', '%s', false)", name, value)},
			{fmt.Sprintf("SELECT pg_advisory_lock(%d)", id)},
			{fmt.Sprintf("SELECT pg_advisory_lock(%d)", id), fmt.Sprintf("SELECT pg_advisory_unlock(%d)", id)},
			{fmt.Sprintf("CREATE TEMP TABLE noise%d (a int)", id), fmt.Sprintf("INSERT INTO noise%d VALUES (1)", id)},
			{fmt.Sprintf("PREPARE noise%d AS SELECT 1; SET %s = '%s'", id, name, value)},
			{fmt.Sprintf("DECLARE noise%d CURSOR WITH HOLD FOR SELECT generate_series(1, 1000)", id), fmt.Sprintf("FETCH 3 FROM noise%d", id)},
			{fmt.Sprintf("LISTEN noise%d", id%7)},
		}...)
	}
	for _, sql := range ways[r.IntN(len(ways))] {
		if _, err := c.conn.Exec(ctx, sql).ReadAll(); err != nil {
			if !c.conn.IsClosed() && c.conn.TxStatus() != 'I' {
				_, _ = c.text(ctx, "ROLLBACK")
			}
			if codeOf(err) == "0A000" {
				return what, nil // a SQLite shard has not all settings; a session with temporary tables no cursor WITH HOLD
			}
			return what, &nothing{fmt.Errorf("%s: %w", sql, err)}
		}
		if sql == "DISCARD ALL" {
			clear(c.prepared)
		}
	}
	if r.IntN(6) == 0 {
		_ = c.conn.Close(ctx)
	}
	return what, nil
}
