package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/shardmap"
)

func growCommand(a *app) *cobra.Command {
	var f moveFlags
	var to []string
	var complete bool
	cmd := &cobra.Command{
		Use:   "grow",
		Short: "Move the cluster to other shards while it is in use",
		Long: `Adds the shards, moves everything there that is sharded, makes the first of them the
default shard with the unsharded tables, and, with --complete, completes the moves and
removes the other shards: a laptop's cluster goes to servers while clients use it.

Without --complete the moves can still be reversed, and the default shard be made another
one; run the command again with --complete when nothing is amiss. If it is interrupted, run it
again: it goes on where it stopped. The directory is moved by itself: cleave directory copy.`,
		Example: `  cleave grow --to a=postgres://cleave@db1/app --to b=postgres://cleave@db2/app --dry-run
  cleave grow --to a=postgres://cleave@db1/app --to b=postgres://cleave@db2/app
  cleave grow --to a --to b --complete`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := admin.GrowRequest{Meta: f.meta(), Complete: complete, MoveOptions: f.how}
			for _, g := range to {
				name, url, _ := strings.Cut(g, "=")
				if strings.Contains(name, ":") {
					return &usageError{fmt.Errorf("%s is not NAME=URL", shardmap.Redacted(g)), cmd}
				}
				req.To = append(req.To, admin.BootstrapShard{Name: name, URL: url, Weight: 1})
			}
			if len(to) == 0 {
				return &usageError{errMissing("--to", "the shards that get everything, as NAME=URL"), cmd}
			}
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer c.Close()
			var lines []string
			err = admin.Grow(cmd.Context(), c, req, func(format string, args ...any) {
				line := fmt.Sprintf(format, args...)
				lines = append(lines, line)
				if !a.json {
					fmt.Fprintln(a.stdout, line)
				}
			})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(admin.Result{Done: !req.DryRun, Plan: lines})
			}
			if !complete && !req.DryRun {
				var names []string
				for _, s := range req.To {
					names = append(names, "--to "+s.Name)
				}
				fmt.Fprintf(a.stdout, "next: cleave grow %s --complete\n", strings.Join(names, " "))
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&to, "to", nil, "a shard that gets its share, as NAME=URL, or NAME if it is in the map; can be repeated; the first becomes the default shard (required)")
	completeFlag(cmd, &complete, "complete the moves and remove the other shards")
	f.change.flags(cmd)
	f.howFlags(cmd, "24h")
	return cmd
}

func shardDefaultCommand(a *app) *cobra.Command {
	var ch change
	cmd := &cobra.Command{
		Use:   "default NAME",
		Short: "Make another shard the default shard",
		Long: `Carries the unsharded tables to another shard, with their rows, which is the
default shard then. Statements go on; those that write to such tables wait meanwhile, for
cleave.hold_timeout at most, and are to be run again then (40001). The copies are compared. If it is
interrupted, run it again.`,
		Example: `  cleave shard default shard-4 --dry-run
  cleave shard default shard-4`,
		Args: args(1, 1),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, given []string) error {
			res, err := c.MoveDefault(cmd.Context(), admin.MoveDefaultRequest{Meta: ch.meta(), To: given[0]})
			if err != nil {
				return err
			}
			return a.printResult(res, res)
		}),
	}
	ch.flags(cmd)
	return cmd
}
