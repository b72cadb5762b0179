package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine"
)

const (
	minVersion    = 140000
	testedVersion = 190000 // first one that the tests do not cover
	// minConnections is what a small router pool, the admin operations and a
	// person with psql need together.
	minConnections = 20
)

// Check reports version, privileges and settings, changing nothing. Fails only
// when the shard cannot be asked.
func (s *shard) Check(ctx context.Context) (engine.Report, error) {
	var rep engine.Report
	c, err := s.dial(ctx, plainParams)
	if err != nil {
		return rep, err
	}
	defer c.Close()
	got, err := s.settings(ctx, c)
	if err != nil {
		return rep, err
	}
	rep.Version = got["version"]
	rep.Findings = findings(got)
	owner, err := s.ownerFinding(ctx, c)
	if err != nil {
		return rep, err
	}
	rep.Findings = append(rep.Findings, owner)
	return rep, nil
}

// questions are asked in one statement; each is an expression that gives text.
var questions = []struct{ name, expr string }{
	{"version_num", `pg_catalog.current_setting('server_version_num')`},
	{"version", `pg_catalog.current_setting('server_version')`},
	{"recovery", `pg_catalog.pg_is_in_recovery()::text`},
	{"read_only", `pg_catalog.current_setting('default_transaction_read_only')`},
	{"encoding", `pg_catalog.getdatabaseencoding()::text`},
	{"strings", `pg_catalog.current_setting('standard_conforming_strings')`},
	{"max_connections", `pg_catalog.current_setting('max_connections')`},
	{"max_prepared", `pg_catalog.current_setting('max_prepared_transactions')`},
	{"wal_level", `pg_catalog.current_setting('wal_level')`},
	{"timezone", `pg_catalog.current_setting('TimeZone')`},
	{"fsync", `pg_catalog.current_setting('fsync')`},
	{"synchronous_commit", `pg_catalog.current_setting('synchronous_commit')`},
	{"full_page_writes", `pg_catalog.current_setting('full_page_writes')`},
	{"collation", `(SELECT datcollate FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())::text`},
	{"database", `pg_catalog.quote_ident(pg_catalog.current_database())`},
	{"role", `pg_catalog.quote_ident(current_user)`},
	{"create", `pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')::text`},
	{"create_public", `COALESCE((SELECT pg_catalog.has_schema_privilege(oid, 'CREATE') FROM pg_catalog.pg_namespace WHERE nspname = 'public'), true)::text`},
	{"plpgsql", `COALESCE((SELECT pg_catalog.has_language_privilege(oid, 'USAGE') FROM pg_catalog.pg_language WHERE lanname = 'plpgsql'), false)::text`},
}

func (s *shard) settings(ctx context.Context, c *conn) (map[string]string, error) {
	exprs := make([]string, len(questions))
	for i, q := range questions {
		exprs[i] = q.expr
	}
	res, err := c.exec(ctx, qualified("SELECT "+strings.Join(exprs, ", ")))
	if err != nil {
		return nil, s.failed("check", err)
	}
	got := make(map[string]string, len(questions))
	for i, q := range questions {
		got[q.name] = res.Rows[0][i].String
	}
	return got, nil
}

const (
	levelOK      = "ok"
	levelWarning = "warning"
	levelError   = "error"
)

// findings judges the answers.
func findings(got map[string]string) []engine.Finding {
	var out []engine.Finding
	add := func(name, bad string, good bool, is, want, fix string) {
		f := engine.Finding{Name: name, Level: levelOK, Is: is}
		if !good {
			f.Level, f.Want, f.Fix = bad, want, fix
		}
		out = append(out, f)
	}
	number := func(name string) int {
		n, _ := strconv.Atoi(got[name])
		return n
	}
	setting := func(name, value string, restart bool) string {
		fix := fmt.Sprintf("ALTER SYSTEM SET %s = %s", name, value)
		if restart {
			return fix + "; then restart the server"
		}
		return fix + "; SELECT pg_reload_conf()"
	}
	database, role := got["database"], got["role"]

	version := number("version_num")
	add("version", levelError, version >= minVersion, got["version"], "14 or later", "upgrade the server with pg_upgrade, or use another one")
	if version >= testedVersion {
		add("version tested", levelWarning, false, got["version"], "14 to 18", "nothing to do if it works; this version is newer than the tests")
	}
	add("primary", levelError, got["recovery"] == "false", map[bool]string{true: "primary", false: "in recovery"}[got["recovery"] == "false"],
		"a primary", "use the primary's address: a standby takes no writes")
	add("default_transaction_read_only", levelError, got["read_only"] == "off", got["read_only"], "off",
		fmt.Sprintf("ALTER DATABASE %s SET default_transaction_read_only = off", database))
	add("server_encoding", levelError, got["encoding"] == "UTF8", got["encoding"], "UTF8",
		"CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0, and use that database")
	add("standard_conforming_strings", levelError, got["strings"] == "on", got["strings"], "on",
		fmt.Sprintf("ALTER DATABASE %s SET standard_conforming_strings = on", database))
	add("privilege CREATE on the database", levelError, got["create"] == "true", yes(got["create"]), "granted",
		fmt.Sprintf("GRANT CREATE ON DATABASE %s TO %s", database, role))
	add("privilege CREATE on schema public", levelWarning, got["create_public"] == "true", yes(got["create_public"]), "granted",
		fmt.Sprintf("GRANT CREATE ON SCHEMA public TO %s", role))
	add("language plpgsql", levelError, got["plpgsql"] == "true", yes(got["plpgsql"]), "granted",
		fmt.Sprintf("CREATE EXTENSION plpgsql; GRANT USAGE ON LANGUAGE plpgsql TO %s", role))
	add("max_connections", levelWarning, number("max_connections") >= minConnections, got["max_connections"],
		fmt.Sprintf("%d or more", minConnections), setting("max_connections", "100", true))
	add("max_prepared_transactions", levelWarning, number("max_prepared") > 0, got["max_prepared"],
		"as many as max_connections (at 0, transactions that write on several shards are refused, and schema changes are not atomic)",
		setting("max_prepared_transactions", strconv.Itoa(max(number("max_connections"), 1)), true))
	add("wal_level", levelWarning, got["wal_level"] == "logical", got["wal_level"],
		"logical (without it no range can be moved away online)", setting("wal_level", "'logical'", true))
	add("timezone", levelWarning, utc[got["timezone"]], got["timezone"],
		"UTC (sessions that set none would get different times from different shards)",
		fmt.Sprintf("ALTER DATABASE %s SET timezone = 'UTC'", database))
	add("fsync", levelWarning, got["fsync"] == "on", got["fsync"], "on (a crash of the machine can destroy the database)", setting("fsync", "on", false))
	add("full_page_writes", levelWarning, got["full_page_writes"] == "on", got["full_page_writes"],
		"on (a crash of the machine can destroy the database)", setting("full_page_writes", "on", false))
	add("synchronous_commit", levelWarning, got["synchronous_commit"] != "off", got["synchronous_commit"],
		"on (a crash can lose commits that were answered)", setting("synchronous_commit", "on", false))
	add("collation", levelOK, true, got["collation"], "", "")
	return out
}

var utc = map[string]bool{"UTC": true, "Etc/UTC": true, "GMT": true, "Etc/GMT": true, "Universal": true, "Zulu": true, "Etc/Universal": true, "Etc/Zulu": true, "Etc/UCT": true, "UCT": true}

func yes(granted string) string {
	if granted == "true" {
		return "granted"
	}
	return "not granted"
}

// ownerFinding says whether the database is free, ours or another's.
func (s *shard) ownerFinding(ctx context.Context, c *conn) (engine.Finding, error) {
	f := engine.Finding{Name: "cluster", Level: levelOK}
	res, err := c.exec(ctx, "SELECT pg_catalog.to_regclass('cleave_internal.shard') IS NOT NULL")
	if err != nil {
		return f, s.failed("check", err)
	}
	if res.Rows[0][0].String != "t" {
		f.Is = "not set up yet"
		return f, nil
	}
	res, err = c.exec(ctx, identitySQL)
	if err != nil {
		return f, s.failed("check", err)
	}
	if len(res.Rows) == 1 {
		f.Is = fmt.Sprintf("shard %s of cluster %s", res.Rows[0][1].String, res.Rows[0][0].String)
	}
	if s.cfg.Cluster == "" {
		return f, nil
	}
	if err := s.identify(res); err != nil {
		f.Level = levelError
		f.Want = fmt.Sprintf("shard %s of cluster %s", s.cfg.Name, s.cfg.Cluster)
		f.Fix = "use another database, one for each shard"
	}
	return f, nil
}
