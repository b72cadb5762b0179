package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
)

func (a *app) verifyCommand() *cobra.Command {
	var req admin.VerifyRequest
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Count the rows of every shard, and those that should not be there",
		Long: `Counts, table by table, the rows of keys that each shard owns, with a checksum that does
not depend on their order, and those of keys that it does not own: strangers are the other copy
of a move that is under way or can be rolled back; orphans should not be there. Nobody who asks a router sees
either. Every table is read wholly. The exit code is 1 if there are orphans or a shard could not be asked.`,
		Example: `  cleave verify
  cleave verify --keyspace hash_bigint --shard shard-1 --json`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := c.Verify(cmd.Context(), req)
			if err != nil {
				return err
			}
			err = printList(a, list, "no sharded tables", []string{"KEYSPACE", "SHARD", "TABLE", "ROWS", "CHECKSUM", "STRANGERS", "ORPHANS"}, func(v admin.VerifyResult) []string {
				if v.Error != "" {
					return []string{v.Keyspace, v.Shard, v.Table, "?", v.Error, "", ""}
				}
				return []string{v.Keyspace, v.Shard, v.Table, strconv.FormatInt(v.Rows, 10), v.Checksum, strconv.FormatInt(v.Strangers, 10), strconv.FormatInt(v.Orphans, 10)}
			})
			if err != nil {
				return err
			}
			for _, v := range list {
				if v.Orphans > 0 || v.Error != "" {
					if !a.json {
						fmt.Fprintln(a.stderr, "not all is as it should be; next: cleave doctor")
					}
					return reportedError{}
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&req.Keyspace, "keyspace", "", "the keyspace (default: all)")
	cmd.Flags().StringVar(&req.Shard, "shard", "", "the shard (default: all)")
	return cmd
}
