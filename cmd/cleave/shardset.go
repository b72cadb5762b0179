package main

import (
	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
)

func (a *app) shardSetCommand() *cobra.Command {
	var ch change
	var state string
	cmd := &cobra.Command{
		Use:   "set NAME --state STATE",
		Short: "Make a shard read-only, take it out of service, or make it normal again",
		Long: `Says what a shard is used for, for the time of some work on it. The reason is told to
those whose statements are refused, and shown by cleave shard list.

read-only: statements that may write there fail with 25006, reads go on, and everything can
be moved off it (cleave shard drain). The shard itself refuses writes of sharded and
reference tables, whoever sends them.

out-of-service: statements that need it fail with 57P03 at once, nobody waits for it, and
no router keeps a connection there. All others go on. Moves from and to it wait.

Transactions that have written there are waited for, a few seconds: if they do not end, nothing is
changed. In both states writes of reference tables and schema changes are refused, since
they concern every shard. The same as SELECT cleave.set_shard(...).`,
		Example: `  cleave shard set shard-2 --state read-only --why "its disk is replaced at noon"
  cleave shard set shard-2 --state out-of-service --dry-run
  cleave shard set shard-2 --state normal`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if state == "" {
				return &usageError{errMissing("--state", "normal, read-only or out-of-service"), cmd}
			}
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer c.Close()
			res, err := c.SetShard(cmd.Context(), admin.SetShardRequest{Meta: ch.meta(), Name: given[0], State: state})
			if err != nil {
				return err
			}
			return a.printResult(res, res)
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "normal, read-only or out-of-service")
	ch.flags(cmd)
	return cmd
}
