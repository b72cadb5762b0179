package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
)

func keyspaceCommand(a *app) *cobra.Command {
	return a.group("keyspace", "Create, list and drop keyspaces",
		`A keyspace is a named sharding scheme with its map: a strategy (hash, range or
list), the types of the shard key, and which shard owns which part. Tables of one
keyspace are colocated: rows with equal shard keys are on one shard.

A table that names no keyspace gets the hash keyspace of its key's type, such as
hash_bigint, which is made on first use.`,
		`  cleave keyspace list`,
		keyspaceListCommand(a), keyspaceCreateCommand(a), keyspaceDropCommand(a))
}

func keyspaceListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the keyspaces",
		Long:    "Lists every keyspace with its strategy, key types, and the number of its ranges, pins and tables.",
		Example: "  cleave keyspace list --json",
		Args:    args(0, 0),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, _ []string) error {
			list, err := c.Keyspaces(cmd.Context())
			if err != nil {
				return err
			}
			return printList(a, list, "no keyspaces yet: the first sharded table makes one, or cleave keyspace create",
				[]string{"NAME", "STRATEGY", "KEY TYPES", "RANGES", "PINS", "TABLES"},
				func(k admin.KeyspaceInfo) []string {
					return []string{k.Name, k.Strategy, strings.Join(k.KeyTypes, ", "), strconv.Itoa(k.Ranges), strconv.Itoa(k.Pins), strconv.Itoa(k.Tables)}
				})
		}),
	}
}

func keyspaceCreateCommand(a *app) *cobra.Command {
	var ch change
	var req admin.CreateKeyspaceRequest
	var bounds, values []string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a keyspace",
		Long: `Creates a keyspace.

hash   ranges over a 64-bit hash of the key; --ranges says how many to begin with
range  ranges over the ordered key; --bound gives each inner boundary, in order
list   explicit values; --value gives each, a value that is not listed is refused

A key of several columns is written with commas between its values; a comma or a
quote inside a value needs double quotes around it, as in CSV.`,
		Example: `  cleave keyspace create tenants --strategy hash --type bigint --ranges 64
  cleave keyspace create events --strategy range --type date --bound 2026-01-01 --bound 2026-07-01
  cleave keyspace create regions --strategy list --type text --value eu=shard-0 --value us=shard-1`,
		Args: args(1, 1),
	}
	f := cmd.Flags()
	f.StringVar(&req.Strategy, "strategy", "hash", "hash, range or list")
	f.StringSliceVar(&req.KeyTypes, "type", nil, "type of each shard key column, as in CREATE TABLE; can be repeated (required)")
	f.IntVar(&req.Ranges, "ranges", 0, "hash: number of equal ranges; 0 is four per shard")
	f.StringArrayVar(&bounds, "bound", nil, "range: an inner boundary; can be repeated")
	f.StringArrayVar(&values, "value", nil, "list: KEY=SHARD, or KEY alone to hand them out in turn; can be repeated")
	f.StringSliceVar(&req.Shards, "shard", nil, "shard that gets ranges; can be repeated; none is all")
	ch.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		req.Name, req.Meta = given[0], ch.meta()
		if len(req.KeyTypes) == 0 {
			return &usageError{errMissing("--type", "the type of each shard key column"), cmd}
		}
		for _, b := range bounds {
			key, err := splitKey(b)
			if err != nil {
				return &usageError{fmt.Errorf("--bound %s: %w", b, err), cmd}
			}
			req.Bounds = append(req.Bounds, key)
		}
		for _, v := range values {
			text, shard := v, ""
			// The shard's name has no = in it; the key may.
			if i := strings.LastIndexByte(v, '='); i >= 0 {
				text, shard = v[:i], v[i+1:]
			}
			key, err := splitKey(text)
			if err != nil {
				return &usageError{fmt.Errorf("--value %s: %w", v, err), cmd}
			}
			req.Values = append(req.Values, admin.ListedValue{Key: key, Shard: shard})
		}
		c, err := a.client(cmd)
		if err != nil {
			return err
		}
		defer c.Close()
		res, err := c.CreateKeyspace(cmd.Context(), req)
		if err != nil {
			return err
		}
		return a.printResult(res, res)
	}
	return cmd
}

func keyspaceDropCommand(a *app) *cobra.Command {
	var ch change
	cmd := &cobra.Command{
		Use:   "drop NAME",
		Short: "Drop a keyspace without tables",
		Long: `Takes a keyspace out of the map, with its ranges and pins. Tables, declarations and
constraints must not need it any more, and none of its parts may be in a move.`,
		Example: `  cleave keyspace drop events --dry-run
  cleave keyspace drop events`,
		Args: args(1, 1),
	}
	ch.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		c, err := a.client(cmd)
		if err != nil {
			return err
		}
		defer c.Close()
		res, err := c.DropKeyspace(cmd.Context(), admin.DropKeyspaceRequest{Meta: ch.meta(), Name: given[0]})
		if err != nil {
			return err
		}
		return a.printResult(res, res)
	}
	return cmd
}
