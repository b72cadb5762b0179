package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
)

// heatCommand shows where the load is.
func heatCommand(a *app) *cobra.Command {
	var req admin.HeatRequest
	cmd := &cobra.Command{
		Use:   "heat",
		Short: "Show where the load is: shards, hottest ranges, hot keys",
		Long: `Shows how many statements a second each shard gets, the hottest ranges, listed values and
pins, and the keys that are named most often. Every router and Go program counts what it
sends and tells the directory four times in each load-window (2 minutes unless set); figures
are smoothed over that time. BUSY is how many of the statements are under way at a time.
Statements over several ranges count for none. The same as SELECT * FROM cleave.heat and
cleave.hot_keys.`,
		Example: `  cleave heat
  cleave heat --keyspace hash_bigint --limit 5
  cleave heat --json | jq '.keys[0]'`,
		Args: args(0, 0),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, _ []string) error {
			h, err := c.Heat(cmd.Context(), req)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(h)
			}
			rate := func(n float64) string { return strconv.FormatFloat(n, 'f', 1, 64) }
			share := func(n float64) string { return strconv.FormatFloat(100*n, 'f', 1, 64) + " %" }
			if err := printList(a, h.Shards, "no shards", []string{"SHARD", "STATEMENTS/S", "SHARE", "OVER"}, func(s admin.ShardHeat) []string {
				return []string{s.Shard, rate(s.Statements), share(s.Share), strconv.FormatFloat(s.Over, 'f', 2, 64)}
			}); err != nil {
				return err
			}
			fmt.Fprintln(a.stdout)
			if err := printList(a, h.Ranges, "no range has load", []string{"KEYSPACE", "RANGE", "SHARD", "STATEMENTS/S", "SHARE", "BUSY"}, func(r admin.RangeHeat) []string {
				return []string{r.Keyspace, r.Part, r.Shard, rate(r.Statements), share(r.Share), strconv.FormatFloat(r.Busy, 'f', 2, 64)}
			}); err != nil {
				return err
			}
			fmt.Fprintln(a.stdout)
			return printList(a, h.Keys, "no key is hot", []string{"KEYSPACE", "KEY", "SHARD", "PINNED", "STATEMENTS/S", "SHARE"}, func(k admin.KeyHeat) []string {
				return []string{k.Keyspace, k.KeyText(), k.Shard, strconv.FormatBool(k.Pinned), rate(k.Statements), share(k.Share)}
			})
		}),
	}
	cmd.Flags().StringVar(&req.Keyspace, "keyspace", "", "only this keyspace (default: all)")
	cmd.Flags().IntVar(&req.Limit, "limit", 20, "the hottest ranges at most; 0 is all that have load")
	return cmd
}
