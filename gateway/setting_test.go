package gateway_test

import (
	"fmt"
	"testing"
)

func TestSettings(t *testing.T) {
	cl, conn, keys := orders(t, config{executor: limitsOf(1)})
	_ = keys
	zone := "SELECT current_setting('TimeZone')"
	run(t, conn, []step{
		{"SET TIME ZONE 'Europe/Berlin'", "SET I"}, {zone, "SELECT 1: Europe/Berlin I"}, {zone, "SELECT 1: Europe/Berlin I"}, {zone, "SELECT 1: Europe/Berlin I"},
		{"SET TIME ZONE 'No/Where'", "22023 I"}, {"SHOW TimeZone", "SHOW: Europe/Berlin I"},
		{"BEGIN", "BEGIN T"}, {"SET TIME ZONE 'Asia/Tokyo'", "SET T"}, {zone, "SELECT 1: Asia/Tokyo T"}, {"ROLLBACK", "ROLLBACK I"}, {zone, "SELECT 1: Europe/Berlin I"},
		{"BEGIN", "BEGIN T"}, {"SET LOCAL TIME ZONE 'Asia/Tokyo'", "SET T"}, {"SHOW TimeZone", "SHOW: Asia/Tokyo T"}, {"COMMIT", "COMMIT I"}, {zone, "SELECT 1: Europe/Berlin I"},
		{"BEGIN", "BEGIN T"}, {"SELECT 1", "SELECT 1: 1 T"}, {"SAVEPOINT s", "SAVEPOINT T"}, {"SET TIME ZONE 'Asia/Tokyo'", "SET T"}, {"ROLLBACK TO s", "ROLLBACK T"}, {zone, "SELECT 1: Europe/Berlin T"}, {"SET TIME ZONE 'Asia/Seoul'", "SET T"}, {"COMMIT", "COMMIT I"}, {zone, "SELECT 1: Asia/Seoul I"},
		{"BEGIN", "BEGIN T"}, {"SET TIME ZONE 'No/Where'", "22023 E"}, {"ROLLBACK", "ROLLBACK I"},
		{"RESET TimeZone", "RESET I"}, {zone, "SELECT 1: UTC I"},
		{"SELECT set_config('work_mem', '7MB', false)", "SELECT 1: 7MB I"}, {"SHOW work_mem", "SHOW: 7MB I"}, {"SHOW work_mem", "SHOW: 7MB I"},
		{"SET my.setting = 'it''s'", "SET I"}, {"SHOW my.setting", "SHOW: it's I"}, {"SHOW my.setting", "SHOW: it's I"},
		{"RESET ALL", "RESET I"}, {"SHOW work_mem", "SHOW: 4MB I"}, {"SHOW my.setting", "SHOW:  I"},
		{"SET cleave.guard_epoch = '1'", "42501 I"}, {"SET session_replication_role = replica", "42501 I"}, {"SET client_encoding = 'LATIN1'", "0A000 I"}, {"SET client_encoding = 'UTF8'", "SET I"},
		{"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", "SET I"}, {"SHOW default_transaction_isolation", "SHOW: repeatable read I"}, {"CREATE TABLE no (a int)", "25006 I"}, {"RESET ALL", "RESET I"},
		{"SET statement_timeout = '50ms'", "SET I"}, {"SELECT pg_sleep(5)", "57014 I"}, {"DISCARD ALL", "DISCARD ALL I"}, {"SHOW statement_timeout", "SHOW: 0 I"},
		{"SET LOCAL work_mem = '9MB'", "SET I"}, {"SHOW work_mem", "SHOW: 4MB I"},
	})
	// Another session on the same connections has none of it.
	exec(t, conn, "SET TIME ZONE 'Asia/Tokyo'")
	other := cl.connect(t)
	for range 6 {
		if z := one[string](t, other, zone); z != "UTC" {
			t.Fatalf("another session's TimeZone is %s", z)
		}
		if z := one[string](t, conn, zone); z != "Asia/Tokyo" {
			t.Fatalf("TimeZone is %s", z)
		}
	}
}

func TestParameterStatus(t *testing.T) {
	cl := start(t, config{})
	conn := cl.connect(t, "&application_name=test&timezone=Europe/Paris&options=-c%20work_mem%3D5MB")
	status := func(name, want string) {
		t.Helper()
		if got := conn.PgConn().ParameterStatus(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	status("application_name", "test")
	status("TimeZone", "Europe/Paris")
	status("client_encoding", "UTF8")
	status("session_authorization", "app")
	if conn.PgConn().ParameterStatus("server_version") == "" {
		t.Error("no server_version")
	}
	run(t, conn, []step{
		{"SHOW work_mem", "SHOW: 5MB I"}, {"SET work_mem = '6MB'", "SET I"}, {"RESET work_mem", "RESET I"}, {"SHOW work_mem", "SHOW: 5MB I"},
		{"SET TIME ZONE 'Asia/Tokyo'", "SET I"},
	})
	status("TimeZone", "Asia/Tokyo")
	run(t, conn, []step{{"BEGIN", "BEGIN T"}, {"SET TIME ZONE 'Asia/Seoul'", "SET T"}})
	status("TimeZone", "Asia/Seoul")
	run(t, conn, []step{{"ROLLBACK", "ROLLBACK I"}})
	status("TimeZone", "Asia/Tokyo")
	// What SET LOCAL set ends with the transaction, and what a savepoint undoes with it, whether a shard took part or not.
	for _, between := range []string{"", "SELECT 1", "SELECT count(*) FROM pg_class"} {
		for _, end := range []step{{"COMMIT", "COMMIT I"}, {"ROLLBACK", "ROLLBACK I"}} {
			run(t, conn, []step{{"BEGIN", "BEGIN T"}, {"SET LOCAL TIME ZONE 'Asia/Seoul'", "SET T"}, {"SAVEPOINT s", "SAVEPOINT T"}})
			if between != "" {
				exec(t, conn, between)
			}
			status("TimeZone", "Asia/Seoul")
			run(t, conn, []step{{"SET LOCAL TIME ZONE 'UTC'", "SET T"}})
			status("TimeZone", "UTC")
			run(t, conn, []step{{"ROLLBACK TO s", "ROLLBACK T"}})
			status("TimeZone", "Asia/Seoul")
			run(t, conn, []step{end})
			status("TimeZone", "Asia/Tokyo")
		}
	}
	run(t, conn, []step{{"RESET ALL", "RESET I"}})
	status("TimeZone", "Europe/Paris")
	run(t, conn, []step{{"SET application_name = 'other'", "SET I"}})
	status("application_name", "other")
}

// TestPreparedUnderAnotherTimeZone: a literal means what the session's settings
// say, although sessions share prepared statements.
func TestPreparedUnderAnotherTimeZone(t *testing.T) {
	cl := start(t, config{shards: 1, executor: limitsOf(1)})
	a, b := cl.connect(t), cl.connect(t, "&timezone=Asia/Tokyo")
	exec(t, a, "CREATE TABLE times (at timestamptz)")
	exec(t, a, "INSERT INTO times VALUES ('2025-12-31 20:00:00+00')")
	sql := "SELECT count(*) FROM times WHERE at > '2026-01-01 00:00:00'"
	for range 3 {
		if n := one[int](t, a, sql); n != 0 {
			t.Errorf("in UTC: %d", n)
		}
		if n := one[int](t, b, sql); n != 1 {
			t.Errorf("in Tokyo: %d", n)
		}
	}
}

// TestSettingsOfTransactions: settings that are SET TRANSACTION's last as long as the transaction,
// on all shards that take part, and other sessions on the same connections see nothing of them.
func TestSettingsOfTransactions(t *testing.T) {
	cl, conn, keys := orders(t, config{executor: limitsOf(1)})
	readOnly, isolation := "SELECT current_setting('transaction_read_only')", "SELECT current_setting('transaction_isolation')"
	run(t, conn, []step{
		{"SET transaction_isolation TO serializable", "SET I"}, {"SET transaction_read_only TO on", "SET I"}, {"SET transaction_deferrable TO on", "SET I"},
		{"SELECT set_config('transaction_read_only', 'on', false)", "0A000 I"}, {readOnly, "SELECT 1: off I"},
		{"SET transaction_isolation TO nosuch", "22023 I"},
		{"CREATE SEQUENCE s", "CREATE SEQUENCE I"},
		{"BEGIN", "BEGIN T"}, {"SET transaction_read_only TO t", "SET T"}, {"SELECT nextval('s')", "25006 E"}, {"ROLLBACK", "ROLLBACK I"},
		{"BEGIN", "BEGIN T"}, {"SET LOCAL transaction_isolation TO 'repeatable read'", "SET T"}, {isolation, "SELECT 1: repeatable read T"}, {"COMMIT", "COMMIT I"}, {isolation, "SELECT 1: read committed I"},
		{"BEGIN", "BEGIN T"}, {"SAVEPOINT a", "SAVEPOINT T"}, {"SET transaction_read_only TO on", "SET T"}, {"ROLLBACK TO a", "ROLLBACK T"}, {"SELECT nextval('s')", "SELECT 1: 1 T"}, {"ROLLBACK", "ROLLBACK I"},
	})
	one0, one1 := fmt.Sprint("SELECT count(*) FROM orders WHERE tenant_id = ", keys[0][0]), fmt.Sprint("DELETE FROM orders WHERE tenant_id = ", keys[1][0])
	for _, before := range []string{"SELECT 1", one0, "SELECT count(*) FROM orders"} {
		exec(t, conn, "BEGIN")
		exec(t, conn, before)
		exec(t, conn, "SET transaction_read_only TO on")
		exec(t, conn, one0)
		run(t, conn, []step{{one1, "25006 E"}, {"ROLLBACK", "ROLLBACK I"}})
	}
	run(t, conn, []step{{"BEGIN", "BEGIN T"}, {"CREATE TABLE z (a int)", "CREATE TABLE T"}, {"SET transaction_read_only TO on", "0A000 E"}, {"ROLLBACK", "ROLLBACK I"}})
	other := cl.connect(t)
	for range 6 {
		if z := one[string](t, other, isolation); z != "read committed" {
			t.Fatalf("another session's transactions are %s", z)
		}
	}
}
