package etcdtest_test

import (
	"testing"

	"github.com/cleavedb/cleave/internal/etcdtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// TestServerAnswers builds the etcd server if it is missing, starts a member and reads what was written.
func TestServerAnswers(t *testing.T) {
	c := etcdtest.New(t, etcdtest.Options{})
	ctx := waitfor.Context(t)
	client := c.Client(t)
	if _, err := client.Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	got, err := client.Get(ctx, "k")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v" {
		t.Errorf("%v, %v", got, err)
	}
}
