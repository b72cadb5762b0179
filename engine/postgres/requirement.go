package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine"
)

const (
	levelOK      = "ok"
	levelWarning = "warning"
	levelError   = "error"
)

// requirement is one thing that a shard's server, database and roles should have. All of them stand in requirements: an
// operator who adds a shard hears of what a later move needs.
type requirement struct {
	name string
	good bool
	is   string
	want string
	// fix is the statement or command that sets it.
	fix string
	// serve is the level of a shard without it, and move that of a move off or to the shard; "" is not said.
	serve, move string
}

// answers are a shard's to the questions.
type answers map[string]string

func (a answers) number(name string) int {
	n, _ := strconv.Atoi(a[name])
	return n
}

func (a answers) yes(name string) bool { return a[name] == "true" }

// granted says whether a role ("role", or "moves") has a right.
func (a answers) granted(name, role string) string {
	if a.yes(name) {
		return "granted"
	}
	return "not granted to " + a[role]
}

// questions are asked in one statement; each is an expression that gives text. @role is the oid of the URL's role, @mover that of
// the role of moves, @role_name and @mover_name the names of the first and of its mover, whether there is one or not.
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
	{"slots", `pg_catalog.current_setting('max_replication_slots')`},
	{"slots_used", `(SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots)::text`},
	{"senders", `pg_catalog.current_setting('max_wal_senders')`},
	{"keep", `pg_catalog.current_setting('max_slot_wal_keep_size')`},
	{"timezone", `pg_catalog.current_setting('TimeZone')`},
	{"fsync", `pg_catalog.current_setting('fsync')`},
	{"synchronous_commit", `pg_catalog.current_setting('synchronous_commit')`},
	{"full_page_writes", `pg_catalog.current_setting('full_page_writes')`},
	{"collation", `(SELECT datcollate FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())::text`},
	{"role", `pg_catalog.quote_ident(@role_name)`},
	{"mover_name", `pg_catalog.quote_ident(@mover_name)`},
	{"database", `pg_catalog.quote_ident(pg_catalog.current_database())`},
	{"create", `pg_catalog.has_database_privilege(@role, pg_catalog.current_database(), 'CREATE')::text`},
	{"create_public", `COALESCE((SELECT pg_catalog.has_schema_privilege(@role, oid, 'CREATE') FROM pg_catalog.pg_namespace WHERE nspname = 'public'), true)::text`},
	{"internal", `COALESCE((SELECT pg_catalog.has_schema_privilege(@mover, oid, 'CREATE') FROM pg_catalog.pg_namespace WHERE nspname = 'cleave_internal'), true)::text`},
	{"plpgsql", `COALESCE((SELECT pg_catalog.has_language_privilege(@role, oid, 'USAGE') FROM pg_catalog.pg_language WHERE lanname = 'plpgsql'), false)::text`},
	{"superuser", `(SELECT rolsuper FROM pg_catalog.pg_roles WHERE oid = @role)::text`},
	{"bootstrap", `(@role = 10)::text`},
	{"rights", `(SELECT pg_catalog.concat_ws(', ', CASE WHEN rolreplication THEN 'REPLICATION' END, CASE WHEN rolcreaterole THEN 'CREATEROLE' END, CASE WHEN rolbypassrls THEN 'BYPASSRLS' END) FROM pg_catalog.pg_roles WHERE oid = @role)`},
	{"member", `COALESCE((SELECT pg_catalog.string_agg(rolname::text, ', ' ORDER BY rolname) FROM pg_catalog.pg_roles WHERE rolname IN ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files') AND pg_catalog.pg_has_role(@role, oid, 'MEMBER')), '')`},
	{"mover_super", `(SELECT rolsuper FROM pg_catalog.pg_roles WHERE oid = @mover)::text`},
	{"replication", `(SELECT rolsuper OR rolreplication FROM pg_catalog.pg_roles WHERE oid = @mover)::text`},
	{"bypass", `(SELECT rolsuper OR rolbypassrls FROM pg_catalog.pg_roles WHERE oid = @mover)::text`},
	{"watch", `pg_catalog.pg_has_role(@mover, (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = 'pg_read_all_stats'), 'USAGE')::text`},
}

// parameterQuestions are those of PostgreSQL 15 and later, which has privileges of parameters.
var parameterQuestions = []struct{ name, expr string }{
	{"role_sets", `pg_catalog.has_parameter_privilege(@role, 'session_replication_role', 'SET')::text`},
	{"replica", `pg_catalog.has_parameter_privilege(@mover, 'session_replication_role', 'SET')::text`},
	{"deadlock", `pg_catalog.has_parameter_privilege(@mover, 'deadlock_timeout', 'SET')::text`},
}

// ask gives a shard's answers: besides those to the questions "mover" (its name, "" if there is none), and "moves" (the name of the role that moves
// act as, as SQL writes it).
func (s *shard) ask(ctx context.Context, c *conn) (answers, error) {
	mover, err := s.askMover(ctx, c)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(questions)
	parameters := serverVersion(c) >= 150000
	if parameters {
		all = append(all, parameterQuestions...)
	}
	role := roleOID(s.base.User)
	moves := role
	if mover != "" {
		moves = roleOID(mover)
	}
	names := strings.NewReplacer("@role_name", literal(s.base.User), "@mover_name", literal(s.base.User+MoverSuffix), "@role", role, "@mover", moves)
	exprs := make([]string, len(all))
	for i, q := range all {
		exprs[i] = names.Replace(q.expr)
	}
	res, err := c.exec(ctx, protect("SELECT "+strings.Join(exprs, ", ")))
	if err != nil {
		return nil, err
	}
	got := answers{"mover": mover}
	for i, q := range all {
		got[q.name] = res.Rows[0][i].String
	}
	if got["moves"] = got["role"]; mover != "" {
		got["moves"] = got["mover_name"]
	}
	if !parameters {
		got["role_sets"], got["replica"], got["deadlock"] = got["superuser"], got["mover_super"], got["mover_super"]
	}
	return got, nil
}

// findings are the requirements that have a level.
func findings(got answers, level func(*requirement) string) (out []engine.Finding) {
	for _, r := range requirements(got) {
		l := level(&r)
		if l == "" {
			continue
		}
		f := engine.Finding{Name: r.name, Level: levelOK, Is: r.is}
		if !r.good {
			f.Level, f.Want, f.Fix = l, r.want, r.fix
		}
		out = append(out, f)
	}
	return out
}

// requirements judges the answers.
func requirements(got answers) []requirement {
	return slices.Concat(serverRequirements(got), moveRequirements(got), roleRequirements(got))
}

// setting is the command that sets one of the server.
func setting(name, value string, restart bool) string {
	fix := fmt.Sprintf("ALTER SYSTEM SET %s = %s", name, value)
	if restart {
		return fix + "; then restart the server"
	}
	return fix + "; SELECT pg_reload_conf()"
}

// serverRequirements are those of the server and the database.
func serverRequirements(got answers) []requirement {
	database := got["database"]
	version := got.number("version_num")
	primary := map[bool]string{true: "primary", false: "in recovery"}[got["recovery"] == "false"]
	out := []requirement{
		{"version", version >= minVersion, got["version"], "14 or later", "upgrade the server with pg_upgrade, or use another one", levelError, ""},
		{"primary", primary == "primary", primary, "a primary", "use the primary's address: a standby takes no writes", levelError, levelError},
		{"default_transaction_read_only", got["read_only"] == "off", got["read_only"], "off",
			fmt.Sprintf("ALTER DATABASE %s SET default_transaction_read_only = off", database), levelError, ""},
		{"server_encoding", got["encoding"] == "UTF8", got["encoding"], "UTF8",
			"CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0, and use that database", levelError, ""},
		{"standard_conforming_strings", got["strings"] == "on", got["strings"], "on",
			fmt.Sprintf("ALTER DATABASE %s SET standard_conforming_strings = on", database), levelError, ""},
		{"max_connections", got.number("max_connections") >= minConnections, got["max_connections"],
			fmt.Sprintf("%d or more", minConnections), setting("max_connections", "100", true), levelWarning, ""},
		{"max_prepared_transactions", got.number("max_prepared") > 0, got["max_prepared"],
			"as many as max_connections (at 0, transactions that write on several shards are refused, and schema changes are not atomic)",
			setting("max_prepared_transactions", strconv.Itoa(max(got.number("max_connections"), 1)), true), levelWarning, ""},
		{"timezone", utc[got["timezone"]], got["timezone"], "UTC (sessions that set none would get different times from different shards)",
			fmt.Sprintf("ALTER DATABASE %s SET timezone = 'UTC'", database), levelWarning, ""},
		{"fsync", got["fsync"] == "on", got["fsync"], "on (a crash of the machine can destroy the database)", setting("fsync", "on", false), levelWarning, ""},
		{"full_page_writes", got["full_page_writes"] == "on", got["full_page_writes"], "on (a crash of the machine can destroy the database)",
			setting("full_page_writes", "on", false), levelWarning, ""},
		{"synchronous_commit", got["synchronous_commit"] != "off", got["synchronous_commit"], "on (a crash can lose commits that were answered)",
			setting("synchronous_commit", "on", false), levelWarning, ""},
		{"collation", true, got["collation"], "", "", levelOK, ""},
	}
	if version >= testedVersion {
		out = slices.Insert(out, 1, requirement{"version tested", false, got["version"], "14 to 18", "nothing to do if it works; this version is newer than the tests", levelWarning, ""})
	}
	return out
}

// slotsWanted are what a move takes at most on one shard: its capture, the way
// back's, a view for verification.
const slotsWanted = 3

// moveRequirements are what only moves need.
func moveRequirements(got answers) []requirement {
	free := got.number("slots") - got.number("slots_used")
	moves := got["moves"]
	replica := "GRANT SET ON PARAMETER session_replication_role TO " + moves
	if got.number("version_num") < 150000 {
		replica = "ALTER ROLE " + moves + " SUPERUSER; before PostgreSQL 15 there is no other way"
	}
	if got["mover"] == "" {
		replica = moverFix(got)
	}
	return []requirement{
		{"wal_level", got["wal_level"] == "logical", got["wal_level"], "logical (without it no range can be moved away online)", setting("wal_level", "'logical'", true), levelWarning, levelError},
		{"max_replication_slots", free >= slotsWanted, fmt.Sprintf("%s, %d of them free", got["slots"], free), fmt.Sprintf("%d free ones (a move takes as many)", slotsWanted),
			setting("max_replication_slots", strconv.Itoa(got.number("slots_used")+2*slotsWanted), true), levelWarning, levelError},
		{"max_wal_senders", got.number("senders") >= slotsWanted, got["senders"], fmt.Sprintf("%d or more (a move takes as many)", slotsWanted), setting("max_wal_senders", "10", true), levelWarning, levelError},
		{"max_slot_wal_keep_size", got["keep"] == "-1", got["keep"], "-1, or more than is written during a move (a capture that falls further behind is lost)",
			setting("max_slot_wal_keep_size", "-1", false), "", levelWarning},
		{"privilege REPLICATION", got.yes("replication"), got.granted("replication", "moves"), "granted: moves read the log",
			orMover(got, "ALTER ROLE "+moves+" REPLICATION"), levelWarning, levelError},
		{"privilege CREATE on schema cleave_internal", got.yes("internal"), got.granted("internal", "moves"), "granted", "GRANT CREATE ON SCHEMA cleave_internal TO " + moves, levelWarning, levelError},
		{"privilege SET of session_replication_role", got.yes("replica"), got.granted("replica", "moves"), "granted: moves write past triggers", replica, levelWarning, levelError},
		{"privilege SET of deadlock_timeout", got.yes("deadlock"), got.granted("deadlock", "moves"), "granted: else a cutover waits for autovacuum to leave the tables",
			"GRANT SET ON PARAMETER deadlock_timeout TO " + moves, "", levelWarning},
		{"privileges of pg_read_all_stats", got.yes("watch"), got.granted("watch", "moves"), "granted: else a move does not see how far standbys lag behind it, and who is in its way",
			"GRANT pg_read_all_stats TO " + moves, "", levelWarning},
		{"privilege BYPASSRLS", got.yes("bypass"), got.granted("bypass", "moves"), "granted: else tables with FORCE ROW LEVEL SECURITY cannot be moved",
			orMover(got, "ALTER ROLE "+moves+" BYPASSRLS"), "", levelWarning},
	}
}

// orMover is the command, or what makes the mover where there is none.
func orMover(got answers, fix string) string {
	if got["mover"] == "" {
		return moverFix(got)
	}
	return fix
}

// moverFix makes the mover of the URL's role.
func moverFix(got answers) string {
	mover := got["mover_name"]
	fix := "CREATE ROLE " + mover + " LOGIN REPLICATION BYPASSRLS PASSWORD '...'; GRANT " + got["role"] + ", pg_read_all_stats TO " + mover
	if got.number("version_num") < 150000 {
		return fix + "; ALTER ROLE " + mover + " SUPERUSER"
	}
	return fix + "; GRANT SET ON PARAMETER session_replication_role, deadlock_timeout TO " + mover
}

// roleRequirements are those of the URL's role: what it needs, and that it has no more.
func roleRequirements(got answers) []requirement {
	database, role := got["database"], got["role"]
	out := []requirement{
		{"privilege CREATE on the database", got.yes("create"), got.granted("create", "role"), "granted", fmt.Sprintf("GRANT CREATE ON DATABASE %s TO %s", database, role), levelError, levelError},
		{"privilege CREATE on schema public", got.yes("create_public"), got.granted("create_public", "role"), "granted", fmt.Sprintf("GRANT CREATE ON SCHEMA public TO %s", role), levelWarning, ""},
		{"language plpgsql", got.yes("plpgsql"), got.granted("plpgsql", "role"), "granted", fmt.Sprintf("CREATE EXTENSION plpgsql; GRANT USAGE ON LANGUAGE plpgsql TO %s", role), levelError, ""},
	}
	const want = "none: all users' statements run with them"
	if got.yes("superuser") {
		fix := moverFix(got) + "; ALTER ROLE " + role + " NOSUPERUSER NOREPLICATION NOCREATEROLE NOBYPASSRLS"
		if got.yes("bootstrap") {
			fix = "give the shard's URL a role of its own that owns database and tables: docs/security.md, Roles on the shards"
		}
		return append(out, requirement{"rights of " + role + " beyond its need", false, "superuser", want, fix, levelWarning, ""})
	}
	more := got["rights"]
	fix := "ALTER ROLE " + role + " NOREPLICATION NOCREATEROLE NOBYPASSRLS"
	add := func(right, revoke string) {
		if right != "" {
			more = strings.TrimPrefix(more+", "+right, ", ")
			fix += "; " + revoke
		}
	}
	if got.yes("role_sets") {
		add("SET of session_replication_role", "REVOKE SET ON PARAMETER session_replication_role FROM "+role)
	}
	add(got["member"], "REVOKE "+got["member"]+" FROM "+role)
	if got["mover"] == "" {
		fix = moverFix(got) + "; " + fix
	}
	is := more
	if is == "" {
		is = "none"
	}
	return append(out, requirement{"rights of " + role + " beyond its need", more == "", is, want, fix, levelWarning, ""})
}

var utc = map[string]bool{"UTC": true, "Etc/UTC": true, "GMT": true, "Etc/GMT": true, "Universal": true, "Zulu": true, "Etc/Universal": true, "Etc/Zulu": true, "Etc/UCT": true, "UCT": true}
