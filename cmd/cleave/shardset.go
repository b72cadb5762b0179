package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
)

func shardSetCommand(a *app) *cobra.Command {
	var ch change
	var state, url string
	var labels []string
	var weight float64
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change a shard's state, URL, weight or labels",
		Long: `With --state it says what a shard is used for, for the time of some work on it. The reason is told to
those whose statements are refused, and shown by cleave shard list.

read-only: statements that may write there fail with 25006, reads go on, and everything can
be moved off it (cleave shard drain). The shard itself refuses writes of sharded and
reference tables from every sender.

out-of-service: statements that need it fail with 57P03 at once, nobody waits for it, and
no router keeps a connection there. All others go on. Moves from and to it wait.

Transactions that have written there are waited for, a few seconds: if they do not end, nothing is
changed. In both states writes of reference tables and schema changes are refused, since
they concern every shard.

With --url the shard's database is reached in another way from now on: with another password,
as another user, at another host. The URL is checked before it is taken: the database has
to be this shard's, with the tables and guards that the map says, and while the
present URL answers it has to be the same running server. Routers follow without a restart.
Of a shard with replicas it is the URL of the server with the same host, port and
database. Give - to read it from standard input, since others can see command lines.

A password in a file (passfile=, .pgpass) needs no command: files are read at each connection.

The same as SELECT cleave.set_shard(...).`,
		Example: `  cleave shard set shard-2 --state read-only --why "its disk is replaced at noon"
  cleave shard set shard-2 --state normal
  cleave shard set shard-2 --url - --why "a new password" < url.txt
  cleave shard set shard-2 --weight 2 --label region=eu --label rack- --dry-run`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			req := admin.SetShardRequest{Meta: ch.meta(), Name: given[0], State: state, URL: url, Weight: weight}
			if state == "" && url == "" && len(labels) == 0 && !cmd.Flags().Changed("weight") {
				return &usageError{errMissing("--state", "normal, read-only or out-of-service; or give --url, --weight or --label"), cmd}
			}
			if cmd.Flags().Changed("weight") && weight <= 0 {
				return &usageError{fmt.Errorf("--weight %g is not above 0", weight), cmd}
			}
			for _, l := range labels {
				if err := putLabel(&req, l); err != nil {
					return &usageError{err, cmd}
				}
			}
			if req.URL == "-" {
				line, err := readLine(a.stdin)
				if err != nil {
					return err
				}
				req.URL = line
			}
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer c.Close()
			res, err := c.SetShard(cmd.Context(), req)
			if err != nil {
				return err
			}
			return a.printResult(res, res)
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "normal, read-only or out-of-service")
	cmd.Flags().StringVar(&url, "url", "", "where the shard's database is from now on; - reads it from standard input")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "label to set as key=value, or to take away as key-; can be repeated")
	cmd.Flags().Float64Var(&weight, "weight", 0, "share of the load that it should carry, relative to the others")
	ch.flags(cmd)
	return cmd
}

// putLabel reads key=value, or key- for a label that is taken away.
func putLabel(req *admin.SetShardRequest, text string) error {
	key, value, ok := strings.Cut(text, "=")
	v := &value
	if !ok {
		if key, ok = strings.CutSuffix(text, "-"); ok {
			v = nil
		}
	}
	if !ok || key == "" {
		return fmt.Errorf("--label %q is neither key=value nor key-", text)
	}
	if _, dup := req.Labels[key]; dup {
		return fmt.Errorf("--label %s is given twice", key)
	}
	if req.Labels == nil {
		req.Labels = map[string]*string{}
	}
	req.Labels[key] = v
	return nil
}
