package executor_test

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/shardmap"
)

// alter gives the new sessions of a shard's database settings.
func alter(t *testing.T, s shardmap.Shard, settings ...string) {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range settings {
		pgtest.Ask(t, s.URL, "ALTER DATABASE "+strings.TrimPrefix(u.Path, "/")+" SET "+set)
	}
}

func installed(t *testing.T, n int) []shardmap.Shard {
	t.Helper()
	var all []shardmap.Shard
	for i := range n {
		s := shardmap.Shard{Name: fmt.Sprint("shard-", i), Engine: "postgres", URL: pgtest.Database(t), Weight: 1}
		install(t, s)
		all = append(all, s)
	}
	return all
}

// TestSessionsKeepTheirBaseline: after the default shard's settings changed, connections of sessions that began before have the
// old ones on every shard, also behind RESET ALL, and those of new ones the new ones, whatever idles in the pools.
func TestSessionsKeepTheirBaseline(t *testing.T) {
	t.Parallel()
	shards := installed(t, 2)
	ex, _ := startWith(t, executor.Limits{LearnEvery: time.Nanosecond, PoolMax: 4}, shards...)
	begin := func() *executor.Settings {
		s, err := ex.Begin(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const shown = "SELECT concat_ws(' ', current_setting('search_path'), current_setting('DateStyle'), current_setting('statement_timeout'), current_setting('extra_float_digits'))"
	all := []struct {
		settings *executor.Settings
		want     string
		alter    []string
	}{
		{alter: []string{"search_path TO a", "DateStyle TO 'ISO, MDY'"}, want: "a ISO, MDY 0 1"},
		{alter: []string{"search_path TO b", "DateStyle TO 'German, DMY'", "statement_timeout TO '7min'", "extra_float_digits TO 0"}, want: "b German, DMY 7min 0"},
		{alter: []string{"search_path TO c"}, want: "c German, DMY 7min 0"},
		{alter: []string{"search_path TO a", "DateStyle TO 'ISO, MDY'", "statement_timeout TO 0", "extra_float_digits TO 1"}, want: "a ISO, MDY 0 1"},
	}
	for i := range all {
		alter(t, shards[0], all[i].alter...)
		// The default shard gets a new connection when those that idle are in use.
		var held []*executor.Conn
		for all[i].settings = begin(); i > 0 && all[i].settings.BeganAs() == all[i-1].settings.BeganAs(); all[i].settings = begin() {
			held = append(held, acquire(t, ex, "shard-0", nil))
		}
		for _, c := range held {
			c.Release()
		}
		for _, then := range all[:i+1] {
			for _, shard := range []string{"shard-0", "shard-1"} {
				for range 2 {
					c := acquire(t, ex, shard, then.settings)
					for _, first := range []string{"SELECT 1", "RESET ALL", "DISCARD ALL"} {
						value(t, c, first)
						if got := value(t, c, shown); got != then.want {
							t.Errorf("change %d, %s, after %s: %s, want %s", i, shard, first, got, then.want)
						}
					}
					c.Release()
				}
			}
		}
	}
	if a, b := all[0].settings, all[3].settings; a.BeganAs() != b.BeganAs() || a.BeganAs() == all[1].settings.BeganAs() {
		t.Error("a baseline that holds again is a new one, or one that differs is not")
	}
}

// TestConnectHasNoTimeouts: the router's own work is not ended by the timeouts that the default shard has for clients.
func TestConnectHasNoTimeouts(t *testing.T) {
	t.Parallel()
	shards := installed(t, 2)
	alter(t, shards[0], "statement_timeout TO '7min'", "lock_timeout TO '8min'", "idle_in_transaction_session_timeout TO '9min'", "idle_session_timeout TO '11min'", "search_path TO app")
	alter(t, shards[1], "lock_timeout TO '1min'", "statement_timeout TO '1min'")
	ex, _ := startWith(t, executor.Limits{}, shards...)
	const shown = "SELECT concat_ws(' ', current_setting('statement_timeout'), current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'), current_setting('idle_session_timeout'), current_setting('search_path'))"
	session, err := (*executor.Settings)(nil), error(nil)
	for range 2 { // the first time the baseline is not known yet
		for _, shard := range []string{"shard-0", "shard-1"} {
			for _, connect := range []func(context.Context, string) (engine.Conn, func(bool), error){ex.Connect, ex.ConnectFor(session, &executor.Holder{})} {
				c, release, err := connect(context.Background(), shard)
				if err != nil {
					t.Fatal(err)
				}
				if got := value(t, c.(*executor.Conn), shown); got != "0 0 0 0 app" {
					t.Errorf("%s, inside: %s", shard, got)
				}
				release(false)
			}
			if session, err = ex.Begin(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
			c := acquire(t, ex, shard, session)
			if got := value(t, c, shown); got != "7min 8min 9min 11min app" {
				t.Errorf("%s, a client's: %s", shard, got)
			}
			c.Release()
		}
	}
}

// watched is PostgreSQL's driver, with a look at each connection before it begins.
type watched struct {
	postgres.Driver
	connects func(start map[string]string)
}

type watchedShard struct {
	engine.Shard
	by *watched
}

func (w *watched) Open(c engine.Config) (engine.Shard, error) {
	s, err := w.Driver.Open(c)
	return &watchedShard{s, w}, err
}

func (s *watchedShard) Connect(ctx context.Context, start map[string]string) (engine.Conn, error) {
	s.by.connects(start)
	return s.Shard.Connect(ctx, start)
}

// followBy starts an executor over a directory whose connections are looked at.
func followBy(t testing.TB, dir shardmap.Directory, limits executor.Limits, connects func(start map[string]string)) *executor.Executor {
	t.Helper()
	return followWith(t, dir, limits, &watched{connects: connects})
}

// TestOneConnectionLearns: of many first connections one asks for the baseline, and none is thrown away.
func TestOneConnectionLearns(t *testing.T) {
	t.Parallel()
	_, dir := startWith(t, executor.Limits{}, installed(t, 1)...)
	var mu sync.Mutex
	var starts []map[string]string
	ex := followBy(t, dir, executor.Limits{}, func(start map[string]string) {
		mu.Lock()
		starts = append(starts, maps.Clone(start))
		mu.Unlock()
	})
	const many = 8
	var wg sync.WaitGroup
	conns := make([]*executor.Conn, many)
	for i := range conns {
		wg.Go(func() {
			var err error
			if conns[i], err = ex.Acquire(context.Background(), "shard-0", nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, c := range conns {
		if c != nil {
			c.Release()
		}
	}
	mu.Lock()
	defer mu.Unlock()
	plain := slices.DeleteFunc(slices.Clone(starts), func(start map[string]string) bool { return start["TimeZone"] != "" })
	if len(starts) != many || len(plain) != 1 {
		t.Errorf("%d connections began, %d of them to learn", len(starts), len(plain))
	}
}
