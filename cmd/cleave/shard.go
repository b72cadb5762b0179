package main

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
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
	return " (" + terminal.Printable(why) + ")"
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
		if err := a.readURL(&req.URL); err != nil {
			return err
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
				fmt.Fprintf(a.stdout, "  %-8s %s is %s", f.Level, f.Name, terminal.Printable(f.Is))
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
			if err := a.readURL(&req.URL); err != nil {
				return err
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

func replicaCommand(a *app) *cobra.Command {
	return a.group("replica", "Add and remove replicas of a shard",
		`A PostgreSQL shard can have replicas: servers that stream from its primary. The map
lists the servers; routers ask them which one is the primary, so that writes follow a
promotion by themselves. Reads go to replicas where the session's setting
cleave.read_policy says so.`,
		`  cleave shard replica add shard-0 postgres://cleave@db2.example.org/app`,
		replicaChange(a, "add", "Add a server that streams from the shard's primary",
			`Checks that the server is a replica of the shard (system identifier, marks of the
cluster and the shard, role, version) and adds it to the map. Make it with
pg_basebackup -R first. Give - to read the URL from standard input.`,
			`  cleave shard replica add shard-0 postgres://cleave@db2.example.org/app
  cleave shard replica add shard-0 - --dry-run < url.txt`, admin.API.AddReplica),
		replicaChange(a, "remove", "Take a server out of a shard",
			`Takes a server out of the map; the server itself is left as it is. The one that is
the primary now is refused: promote another first. Give its URL as the list shows it.`,
			`  cleave shard replica remove shard-0 postgres://cleave@db1.example.org/app --why "machine is retired"`, admin.API.RemoveReplica))
}

func replicaChange(a *app, name, short, long, example string, run func(admin.API, context.Context, admin.ReplicaRequest) (*admin.Result, error)) *cobra.Command {
	var ch change
	cmd := &cobra.Command{
		Use: name + " SHARD URL", Short: short, Long: long, Example: example, Args: args(2, 2),
		RunE: func(cmd *cobra.Command, given []string) error {
			req := admin.ReplicaRequest{Meta: ch.meta(), Shard: given[0], URL: given[1]}
			if err := a.readURL(&req.URL); err != nil {
				return err
			}
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer c.Close()
			res, err := run(c, cmd.Context(), req)
			if err != nil {
				return err
			}
			return a.printResult(res, res)
		},
	}
	ch.flags(cmd)
	return cmd
}

// listLine is a line of the list of shards: a shard's, or one of its servers'.
type listLine struct {
	shard    *admin.ShardInfo
	endpoint *endpointLine
}

func listLines(shards []admin.ShardInfo) []listLine {
	var lines []listLine
	for i := range shards {
		lines = append(lines, listLine{shard: &shards[i]})
		for j := range shards[i].Endpoints {
			lines = append(lines, listLine{endpoint: (*endpointLine)(&shards[i].Endpoints[j])})
		}
	}
	return lines
}

type endpointLine admin.EndpointInfo

func (e *endpointLine) cells() []string {
	role := e.Serves
	if role == "" {
		role = "unused"
	}
	health := e.Health
	if e.Reason != "" {
		health += ": " + e.Reason
	}
	if e.LagBytes != nil {
		health += fmt.Sprintf(", %d bytes behind", *e.LagBytes)
	}
	return []string{"  " + role, "", health, "", "", "", "", e.URL}
}

// readURL reads a URL that is given as - from standard input, where no list of processes shows its password.
func (a *app) readURL(url *string) (err error) {
	if *url == "-" {
		*url, err = readLine(a.stdin)
	}
	return err
}
