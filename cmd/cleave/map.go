package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
	"github.com/cleavedb/cleave/shardmap"
)

func mapCommand(a *app) *cobra.Command {
	return a.group("map", "Show the shard map, its history, and what changed",
		`The shard map says which shards, keyspaces and tables exist and which shard owns
which key range at which epoch. Every change makes a new version and is kept with
who made it, when and why.`,
		`  cleave map show`,
		mapShowCommand(a), mapHistoryCommand(a), mapDiffCommand(a))
}

func mapShowCommand(a *app) *cobra.Command {
	var version uint64
	var keyspace string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the shard map, now or as it was",
		Long: `Prints the ranges, listed values and pins of every keyspace with their owners.
With --json the whole map is printed, passwords taken out.`,
		Example: `  cleave map show --keyspace hash_bigint
  cleave map show --version 3 --json`,
		Args: args(0, 0),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, _ []string) error {
			m, err := c.Map(cmd.Context(), version)
			if err != nil {
				return err
			}
			shown := m.Keyspaces
			if keyspace != "" {
				shown = slices.DeleteFunc(slices.Clone(shown), func(ks shardmap.Keyspace) bool { return ks.Name != keyspace })
				if len(shown) == 0 {
					return errNoKeyspace(keyspace, m.Version)
				}
			}
			if a.json {
				m.Keyspaces = shown
				return a.printJSON(m)
			}
			return a.printMap(m, shown)
		}),
	}
	cmd.Flags().Uint64Var(&version, "version", 0, "version of the map; 0 is the current one")
	cmd.Flags().StringVar(&keyspace, "keyspace", "", "only this keyspace")
	return cmd
}

func (a *app) printMap(m *shardmap.State, shown []shardmap.Keyspace) error {
	snap, err := shardmap.NewSnapshot(*m)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "cluster %s, map version %d, %d shards, default shard %s\n", m.Cluster, m.Version, len(m.Shards), m.DefaultShard)
	for _, ks := range shown {
		index, ok := snap.Keyspace(ks.Name)
		if !ok {
			return errNoKeyspace(ks.Name, m.Version)
		}
		types := make([]string, len(ks.Types))
		for i, t := range ks.Types {
			types[i] = t.String()
		}
		fmt.Fprintf(a.stdout, "\nkeyspace %s: %s of (%s)\n", terminal.Printable(ks.Name), ks.Strategy, strings.Join(types, ", "))
		var rows [][]string
		for i, r := range ks.Ranges {
			rows = append(rows, []string{index.RangeText(i), r.Shard, strconv.FormatUint(r.Epoch, 10)})
		}
		for _, v := range ks.Values {
			rows = append(rows, []string{strings.Join(v.Key, ", "), v.Shard, strconv.FormatUint(v.Epoch, 10)})
		}
		for _, p := range ks.Pins {
			rows = append(rows, []string{"pin " + strings.Join(p.Key, ", "), p.Shard, strconv.FormatUint(p.Epoch, 10)})
		}
		if err := terminal.Table(a.stdout, []string{"RANGE", "SHARD", "EPOCH"}, rows); err != nil {
			return err
		}
	}
	if len(m.Keyspaces) == 0 {
		fmt.Fprintln(a.stdout, "no keyspaces yet: the first sharded table makes one, or cleave keyspace create")
	}
	return nil
}

func mapHistoryCommand(a *app) *cobra.Command {
	var req admin.HistoryRequest
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show who changed the map, when and why",
		Long: `Prints the newest changes of the map, oldest of them first: version, time, who,
operation, the tables of a schema change, and reason. With --json the statements
are printed as well.`,
		Example: `  cleave map history
  cleave map history --after 10 --limit 50 --json`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Limit < 1 || req.Limit > 1000 {
				return &usageError{fmt.Errorf("--limit %d is not from 1 to 1000", req.Limit), cmd}
			}
			req.Last = !cmd.Flags().Changed("after")
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := c.History(cmd.Context(), req)
			if err != nil {
				return err
			}
			return printList(a, list, "no changes", []string{"VERSION", "AT", "BY", "OPERATION", "TABLES", "WHY"}, func(e shardmap.Entry) []string {
				return []string{strconv.FormatUint(e.Version, 10), e.At.UTC().Format(time.RFC3339), e.By, e.Op, strings.Join(e.Tables, ", "), e.Why}
			})
		},
	}
	cmd.Flags().Uint64Var(&req.After, "after", 0, "only versions after this one")
	cmd.Flags().IntVar(&req.Limit, "limit", 20, "number of changes, at most 1000")
	return cmd
}

func mapDiffCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "diff [FROM [TO]]",
		Short: "Show what differs between two versions of the map",
		Long: `Prints what differs between two versions of the map. Without TO: the current one.
Without FROM: the version before the current one.`,
		Example: `  cleave map diff
  cleave map diff 3 7`,
		Args: args(0, 2),
		RunE: func(cmd *cobra.Command, given []string) error {
			var versions [2]uint64
			for i, text := range given {
				v, err := strconv.ParseUint(text, 10, 64)
				if err != nil || v == 0 {
					return &usageError{fmt.Errorf("%q is no version of the map: a number from 1", text), cmd}
				}
				versions[i] = v
			}
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := c.Diff(cmd.Context(), versions[0], versions[1])
			if err != nil {
				return err
			}
			if a.json {
				return printList(a, list, "", nil, nil)
			}
			if len(list) == 0 {
				_, err = fmt.Fprintln(a.stdout, "no difference")
			}
			for _, d := range list {
				_, err = fmt.Fprintln(a.stdout, terminal.Printable(d.String()))
			}
			return err
		},
	}
}
