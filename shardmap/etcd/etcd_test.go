package etcd_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/etcdtest"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/etcd"
	"github.com/cleavedb/cleave/shardmap/shardmaptest"
)

func TestMain(m *testing.M) {
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
	d, err := etcd.Open(tb.Context(), url, etcd.Options{LeaseTTL: shardmaptest.LeaseTTL})
	if err != nil {
		tb.Errorf("Open: %v", err)
		panic(err)
	}
	return d
}

func TestConformance(t *testing.T) {
	c := etcdtest.Shared(t)
	shardmaptest.RunShared(t, func(t *testing.T) shardmaptest.Store {
		url := c.URL()
		return func() shardmap.Directory { return open(t, url) }
	})
}
