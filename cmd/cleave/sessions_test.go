package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// TestSessionsOfAllRouters lists, cancels and ends sessions of a router by asking another one: by command, by SQL, by the API.
func TestSessionsOfAllRouters(t *testing.T) {
	directory := "file:" + filepath.Join(pgtest.Dir(t), "directory.db")
	if code, out, stderr := command(t, "", "init", "--directory", directory, "a="+pgtest.Database(t)); code != 0 {
		t.Fatalf("init: %d %s%s", code, out, stderr)
	}
	here, there := start(t, "router", "--directory", directory), start(t, "router", "--directory", directory)
	boss := here.session()
	as := func(user string) *pgx.Conn {
		c, err := pgx.Connect(context.Background(), "postgres://"+user+"@"+there.Listen+"/cleave?sslmode=disable&application_name=victim")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	sessions := func(args ...string) map[int64]admin.SessionInfo {
		var info admin.SessionsInfo
		here.into(&info, append([]string{"sessions"}, args...)...)
		if len(info.Silent) != 0 {
			t.Errorf("silent: %v", info.Silent)
		}
		out := map[int64]admin.SessionInfo{}
		for _, s := range info.Sessions {
			out[s.PID] = s
		}
		return out
	}
	victim := as("app")
	pid := int64(victim.PgConn().PID())
	all := sessions()
	if s := all[pid]; s.Router != there.Listen || s.User != "app" || s.Application != "victim" || s.State != "idle" || s.Client == "" {
		t.Errorf("the session of the other router is shown as %+v", s)
	}
	if s := all[int64(boss.PgConn().PID())]; s.Router != here.Listen {
		t.Errorf("the session of this router is shown as %+v", s)
	}
	if _, ok := sessions("--router", there.Listen)[pid]; !ok {
		t.Error("it is not shown among its router's")
	}
	if _, ok := sessions("--router", here.Listen)[pid]; ok {
		t.Error("it is shown among another router's")
	}
	if got := one[string](t, boss, fmt.Sprintf("SELECT router || ' ' || username FROM cleave.sessions WHERE pid = %d", pid)); got != there.Listen+" app" {
		t.Errorf("cleave.sessions shows %q", got)
	}
	number := strconv.FormatInt(pid, 10)
	busy := func(c *pgx.Conn) chan error {
		result := make(chan error, 1)
		go func() {
			_, err := c.Exec(context.Background(), "SELECT pg_sleep(600)")
			result <- err
		}()
		waitfor.True(t, "it is busy", func() bool { return sessions("--router", there.Listen)[int64(c.PgConn().PID())].State == "active" })
		return result
	}
	for how, cancel := range map[string]func(){
		"command":  func() { here.ok("sessions", "cancel", number) },
		"function": func() { one[string](t, boss, "SELECT cleave.cancel_session("+number+")") },
		"postgres": func() {
			if !one[bool](t, boss, "SELECT pg_cancel_backend("+number+")") {
				t.Error("not cancelled")
			}
		},
	} {
		result := busy(victim)
		cancel()
		if err := <-result; sqlState(err) != "57014" {
			t.Errorf("cancelled by %s: %v", how, err)
		}
	}
	if out := here.ok("sessions", "terminate", number, "--dry-run"); !strings.Contains(out, "would be ended: user app") {
		t.Errorf("the dry run says %q", out)
	}
	if got := one[int](t, victim, "SELECT 1"); got != 1 {
		t.Error("the dry run has done something")
	}
	for how, end := range map[string]func(pid string){
		"command":  func(pid string) { here.ok("sessions", "terminate", pid) },
		"function": func(pid string) { one[string](t, boss, "SELECT cleave.terminate_session("+pid+", wait => 10)") },
		"postgres": func(pid string) {
			if !one[bool](t, boss, "SELECT pg_terminate_backend("+pid+", 10000)") {
				t.Error("not ended")
			}
		},
	} {
		for _, work := range []bool{false, true} {
			c := as("app")
			var err error
			if pid := strconv.FormatUint(uint64(c.PgConn().PID()), 10); work {
				result := busy(c)
				end(pid)
				err = <-result
			} else {
				end(pid)
				_, err = c.Exec(context.Background(), "SELECT 1")
			}
			var pe *pgconn.PgError
			if !errors.As(err, &pe) || pe.Code != "57P01" || pe.Severity != "FATAL" {
				t.Errorf("ended by %s, busy %v: %v", how, work, err)
			}
		}
	}
	for args, want := range map[string]string{"sessions cancel 7": "42704", "sessions terminate x": "22023", "sessions --router nowhere": "42704"} {
		if code, _, stderr := here.cleave("", strings.Fields(args)...); code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d %s", args, code, stderr)
		}
	}

	// A router that is stopped says nothing: the others are shown, and nothing is done.
	if err := there.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, err := boss.Exec(context.Background(), "SELECT pg_terminate_backend("+number+")")
	if err := there.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || pe.Code != "57P03" || !strings.Contains(pe.Message, "nothing was done") {
		t.Errorf("of a stopped router: %v", err)
	}
	waitfor.True(t, "it answers again", func() bool {
		_, err := victim.Exec(context.Background(), "SELECT 1")
		if err != nil && sqlState(err) != "57P03" {
			t.Fatalf("it was done afterwards: %v", err)
		}
		return err == nil
	})
}
