package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
)

func tableCommand(a *app) *cobra.Command {
	return a.group("table", "List tables, distribute a table",
		`Tables are made with SQL through the router. A table is unsharded (all rows on the
default shard), sharded (rows on the owner of their shard key) or a reference
table (all rows on every shard).`,
		`  cleave table list`,
		tableListCommand(a), tableDistributeCommand(a))
}

func tableListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the tables and how they are placed",
		Long:    "Lists every table that Cleave knows: kind, keyspace, shard key and the shards that hold it.",
		Example: "  cleave table list",
		Args:    args(0, 0),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, _ []string) error {
			list, err := c.Tables(cmd.Context())
			if err != nil {
				return err
			}
			return printList(a, list, "no tables yet: CREATE TABLE ... WITH (cleave.shard_key = '...') in psql makes a sharded one",
				[]string{"TABLE", "KIND", "KEYSPACE", "SHARD KEY", "SHARDS"},
				func(t admin.TableInfo) []string {
					return []string{t.Schema + "." + t.Name, t.Kind, t.Keyspace, strings.Join(t.ShardKey, ", "), strings.Join(t.Shards, ", ")}
				})
		}),
	}
}

func tableDistributeCommand(a *app) *cobra.Command {
	var ch change
	var req admin.DistributeRequest
	cmd := &cobra.Command{
		Use:   "distribute TABLE",
		Short: "Shard an existing table",
		Long: `Makes a sharded table of an unsharded one: creates it on all shards, sets the guards
and enters it in the map. The same as SELECT cleave.distribute(...).

A table with rows keeps them where they are, on the default shard, which has to
own all of the keyspace then; cleave spread moves them on. Columns that take values
from a sequence get them from one of the cluster.

--related shards the tables with it that foreign keys connect. --reference makes a
reference table, whose rows are copied to every shard; writers wait meanwhile.`,
		Example: `  cleave table distribute orders --shard-key tenant_id --dry-run
  cleave table distribute public.orders --shard-key tenant_id --keyspace tenants
  cleave table distribute customers --shard-key id --related
  cleave table distribute countries --reference`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if len(req.ShardKey) == 0 && !req.Reference {
				return &usageError{errMissing("--shard-key", "the column, or the columns with commas between them"), cmd}
			}
			req.Meta, req.Table = ch.meta(), given[0]
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer c.Close()
			res, err := c.Distribute(cmd.Context(), req)
			if err != nil {
				return err
			}
			return a.printResult(res, res)
		},
	}
	cmd.Flags().StringSliceVar(&req.ShardKey, "shard-key", nil, "shard key columns, with commas between them (required)")
	cmd.Flags().StringVar(&req.Keyspace, "keyspace", "", "keyspace; none is the hash keyspace of the key's types")
	cmd.Flags().BoolVar(&req.Related, "related", false, "also the tables that foreign keys connect with it")
	cmd.Flags().BoolVar(&req.Reference, "reference", false, "make it a reference table")
	ch.flags(cmd)
	return cmd
}
