package etcd_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/etcdtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/etcd"
	"github.com/cleavedb/cleave/shardmap/shardmaptest"
	"github.com/cleavedb/cleave/shardmap/sqlitedir"
)

// leadVariable makes the test binary a process that leads in the directory at
// its value until it is deposed.
const leadVariable = "CLEAVE_ETCD_TEST_LEAD"

func TestMain(m *testing.M) {
	if url := os.Getenv(leadVariable); url != "" {
		d, err := etcd.Open(context.Background(), url, etcd.Options{LeaseTTL: shardmaptest.LeaseTTL})
		if err == nil {
			err = shardmaptest.PausedLeader(d)
		}
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	etcdtest.EndShared()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func open(tb testing.TB, url string) shardmap.Directory {
	tb.Helper()
	for end := time.Now().Add(waitfor.Max); ; { // a busy machine's etcd may not answer within a test's short timeout
		d, err := etcd.Open(tb.Context(), url, etcd.Options{LeaseTTL: shardmaptest.LeaseTTL})
		if err == nil {
			return d
		}
		if time.Now().After(end) {
			tb.Errorf("Open: %v", err)
			panic(err)
		}
	}
}

func TestConformance(t *testing.T) {
	c := etcdtest.Shared(t)
	shardmaptest.RunShared(t, func(t *testing.T) shardmaptest.Store {
		url := c.URL()
		return func() shardmap.Directory { return open(t, url) }
	})
}

func TestPausedLeader(t *testing.T) {
	t.Parallel()
	url := etcdtest.Shared(t).URL()
	d := open(t, url)
	defer d.Close()
	shardmaptest.RunPaused(t, d, func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), leadVariable+"="+url)
		return cmd
	})
}

// TestTransfer moves a cluster from a file to etcd and back, and the other way round.
func TestTransfer(t *testing.T) {
	t.Parallel()
	etcdStore := func() shardmaptest.Store {
		url := etcdtest.Shared(t).URL()
		return func() shardmap.Directory { return open(t, url) }
	}
	fileStore := func(t *testing.T) shardmaptest.Store {
		path := filepath.Join(t.TempDir(), "d.db")
		return func() shardmap.Directory {
			d, err := sqlitedir.OpenWith(path, sqlitedir.Options{LeaseTTL: shardmaptest.LeaseTTL})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
	}
	t.Run("FileToEtcd", func(t *testing.T) { shardmaptest.RunTransfer(t, fileStore(t), etcdStore()) })
	t.Run("EtcdToFile", func(t *testing.T) { shardmaptest.RunTransfer(t, etcdStore(), fileStore(t)) })
}
