package main

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
)

func shardCommand(a *app) *cobra.Command {
	return a.group("shard", "List, add, drain, hold back and remove shards",
		`A shard is a database that holds key ranges: a PostgreSQL database, or a SQLite
file on the machine of the router.`,
		`  cleave shard list`,
		shardListCommand(a), shardAddCommand(a), shardDrainCommand(a), shardRemoveCommand(a), shardDefaultCommand(a), shardSetCommand(a), replicaCommand(a))
}

func shardListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the shards with their health",
		Long: `Lists every shard of the map: name, engine, URL (without its password), labels,
weight, the number of ranges and pins it owns, and whether it answers now. Under a
shard with replicas each of its servers has a line: its role, its health, how much
of the primary's log it has not replayed yet, and its URL.

A PostgreSQL shard's URL can be given to psql as it is. What is written there
goes past the router; the shard still refuses rows that it does not own.`,
		Example: `  cleave shard list
  cleave shard list --json
  psql "$(cleave shard list --json | jq -r '.[0].url')"`,
		Args: args(0, 0),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, _ []string) error {
			shards, err := c.Shards(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return printList(a, shards, "", nil, func(admin.ShardInfo) []string { return nil })
			}
			return printList(a, listLines(shards), "no shards", []string{"NAME", "ENGINE", "HEALTH", "RANGES", "PINS", "WEIGHT", "LABELS", "URL"},
				func(l listLine) []string {
					if l.endpoint != nil {
						return l.endpoint.cells()
					}
					s := l.shard
					health := s.Health
					if s.State != "normal" {
						health = s.State + because(s.StateWhy) + ", " + health
					}
					if s.Reason != "" {
						health += ": " + s.Reason
					}
					name := s.Name
					if s.Default {
						name += " (default)"
					}
					return []string{name, s.Engine, health, strconv.Itoa(s.Ranges), strconv.Itoa(s.Pins),
						strconv.FormatFloat(s.Weight, 'g', -1, 64), labelText(s.Labels), s.URL}
				})
		}),
	}
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + printable(why) + ")"
}

func labelText(labels map[string]string) string {
	out := make([]string, 0, len(labels))
	for k, v := range labels {
		out = append(out, k+"="+v)
	}
	sort.Strings(out)
	return strings.Join(out, ",")
}

func shardAddCommand(a *app) *cobra.Command {
	var ch change
	var labels []string
	var weight float64
	var replicas []string
	cmd := &cobra.Command{
		Use:   "add NAME URL",
		Short: "Add a database to the cluster as a shard",
		Long: `Checks the database (PostgreSQL 14 or later; privileges; settings), says what is
missing and how to set it, installs what Cleave needs there, brings it to the
cluster's schema and adds it to the map. It owns no range at first.

The URL is postgres://USER@HOST:PORT/DATABASE, or file:/PATH for a SQLite file on
the machine of the router. A password in it is stored in the map and never
printed. A URL on the command line can be seen by other users of this machine:
give - to read it from standard input instead.`,
		Example: `  cleave shard add shard-4 postgres://cleave@db4.example.org/app --label region=eu --weight 2
  cleave shard add shard-5 - --dry-run < url.txt
  cleave shard add shard-6 postgres://cleave@db6/app --replica postgres://cleave@db7/app`,
		Args: args(2, 2),
	}
	cmd.Flags().StringArrayVar(&labels, "label", nil, "label of the shard as key=value; can be repeated")
	cmd.Flags().Float64Var(&weight, "weight", 1, "share of the load that it should carry, relative to the others")
	cmd.Flags().StringArrayVar(&replicas, "replica", nil, "URL of a server that streams from the one at URL; can be repeated")
	ch.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		req := admin.AddShardRequest{Meta: ch.meta(), Name: given[0], URL: given[1], Weight: weight, Replicas: replicas, Labels: map[string]string{}}
		for _, l := range labels {
			k, v, ok := strings.Cut(l, "=")
			if !ok || k == "" {
				return &usageError{fmt.Errorf("--label %q is not key=value", l), cmd}
			}
			if _, dup := req.Labels[k]; dup {
				return &usageError{fmt.Errorf("--label %s is given twice", k), cmd}
			}
			req.Labels[k] = v
		}
		if weight <= 0 {
			return &usageError{fmt.Errorf("--weight %g is not above 0", weight), cmd}
		}
		if req.URL == "-" {
			url, err := readLine(a.stdin)
			if err != nil {
				return err
			}
			req.URL = url
		}
		c, err := a.client(cmd)
		if err != nil {
			return err
		}
		defer c.Close()
		res, err := c.AddShard(cmd.Context(), req)
		if err != nil {
			return err
		}
		if !a.json {
			fmt.Fprintf(a.stdout, "%s: version %s\n", req.Name, res.ServerVersion)
			for _, f := range res.Findings {
				fmt.Fprintf(a.stdout, "  %-8s %s is %s", f.Level, f.Name, printable(f.Is))
				if f.Want != "" {
					fmt.Fprintf(a.stdout, ", want %s", f.Want)
				}
				if f.Fix != "" {
					fmt.Fprintf(a.stdout, "; fix: %s", f.Fix)
				}
				fmt.Fprintln(a.stdout)
			}
			res.Warnings = nil // they are among the findings
		}
		return a.printResult(res, &res.Result)
	}
	return cmd
}

func shardRemoveCommand(a *app) *cobra.Command {
	var ch change
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a shard that owns nothing",
		Long: `Takes a shard out of the map. It is refused while the shard owns a range, a listed
value or a pin, and for the default shard. The database itself is left as it is.`,
		Example: `  cleave shard remove shard-4 --dry-run
  cleave shard remove shard-4 --why "machine is retired"`,
		Args: args(1, 1),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, given []string) error {
			res, err := c.RemoveShard(cmd.Context(), admin.RemoveShardRequest{Meta: ch.meta(), Name: given[0]})
			if err != nil {
				return err
			}
			return a.printResult(res, res)
		}),
	}
	ch.flags(cmd)
	return cmd
}
