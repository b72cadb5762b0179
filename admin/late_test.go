package admin

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
)

// asked counts how often the members of a directory are read.
type asked struct {
	shardmap.Directory
	members atomic.Int64
}

func (d *asked) Members(ctx context.Context) ([]shardmap.MemberState, error) {
	d.members.Add(1)
	return d.Directory.Members(ctx)
}

// TestMembersKnowItBeforeItIsDone: what is done for a client every router goes by, also one that learns late: a keyspace that is made, a table
// that is distributed, with a sequence and without, and a table that becomes a reference table.
func TestMembersKnowItBeforeItIsDone(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 2)
	dir := &asked{Directory: c.dir}
	c.ops.opts.Directory = dir
	c.ddl(`CREATE TABLE plain (tenant bigint PRIMARY KEY)`)
	c.ddl(`CREATE TABLE counted (tenant bigint, id bigserial, PRIMARY KEY (tenant, id))`)
	c.ddl(`CREATE TABLE colors (id int PRIMARY KEY)`)
	lease, leave, err := c.dir.Join(ctx, shardmap.Member{ID: "late", Role: "router", Address: "late"})
	if err != nil {
		t.Fatal(err)
	}
	lease.Acknowledge(c.snap().Version())
	defer func() {
		if err := leave(ctx); err != nil {
			t.Error(err)
		}
	}()
	for name, do := range map[string]func() error{
		"a keyspace": func() error {
			_, err := c.ops.CreateKeyspace(ctx, CreateKeyspaceRequest{Meta: meta, Name: "fresh", Strategy: "hash", KeyTypes: []string{"bigint"}})
			return err
		},
		"a sharded table": func() error {
			_, err := c.ops.Distribute(ctx, DistributeRequest{Meta: meta, Table: "plain", ShardKey: []string{"tenant"}})
			return err
		},
		"a sharded table with a sequence": func() error {
			_, err := c.ops.Distribute(ctx, DistributeRequest{Meta: meta, Table: "counted", ShardKey: []string{"tenant"}})
			return err
		},
		"a reference table": func() error {
			_, err := c.ops.Distribute(ctx, DistributeRequest{Meta: meta, Table: "colors", Reference: true})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			end := make(chan error, 1)
			go func() { end <- do() }()
			for behind := 0; ; {
				var err error
				over := false
				count := dir.members.Load()
				waitfor.True(t, "it waits for the member, or has ended", func() bool {
					select {
					case err = <-end:
						over = true
					default:
						is, _ := schema.Behind(ctx, c.dir, c.snap().Version())
						return strings.Contains(is, "late") && dir.members.Load() > count+1
					}
					return true
				})
				if !over {
					behind++
					lease.Acknowledge(c.snap().Version())
					continue
				}
				if is, errBehind := schema.Behind(ctx, c.dir, c.snap().Version()); err != nil || errBehind != nil || is != "" || behind == 0 {
					t.Errorf("%v: it has ended, %d times it waited, and %q is behind", errors.Join(err, errBehind), behind, is)
				}
				return
			}
		})
	}
}
