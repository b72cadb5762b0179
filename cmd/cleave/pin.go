package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
	"github.com/cleavedb/cleave/sqlstate"
)

func pinCommand(a *app) *cobra.Command {
	var ch change
	cmd := &cobra.Command{
		Use:   "pin KEYSPACE KEY... SHARD",
		Short: "Pin a key to a shard",
		Long: `Places one key on a shard, whatever the keyspace's strategy says. A key of several
columns is given as several arguments. A key that has rows is moved with them, while it is
in use: the command says how to follow that.
The same as SELECT cleave.pin(keyspace, key, shard).`,
		Example: `  cleave pin hash_bigint 42 shard-1
  cleave pin hash_text_bigint eu 42 shard-1 --why "must stay in the EU"`,
		Args: args(3, -1),
		RunE: func(cmd *cobra.Command, given []string) error {
			last := len(given) - 1
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer c.Close()
			res, err := c.Pin(cmd.Context(), admin.PinRequest{Meta: ch.meta(), Keyspace: given[0], Key: given[1:last], Shard: given[last]})
			if err != nil {
				return err
			}
			return a.printResult(res, res)
		},
	}
	ch.flags(cmd)
	return cmd
}

func unpinCommand(a *app) *cobra.Command {
	var ch change
	cmd := &cobra.Command{
		Use:   "unpin KEYSPACE KEY...",
		Short: "Remove the pin of a key",
		Long: `Removes the pin of a key, which then is where the keyspace's strategy places it.
If it has rows on another shard they are moved, as by cleave pin.`,
		Example: "  cleave unpin hash_bigint 42 --dry-run",
		Args:    args(2, -1),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, given []string) error {
			res, err := c.Unpin(cmd.Context(), admin.UnpinRequest{Meta: ch.meta(), Keyspace: given[0], Key: given[1:]})
			if err != nil {
				return err
			}
			return a.printResult(res, res)
		}),
	}
	ch.flags(cmd)
	return cmd
}

func shardOfCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "shard-of KEYSPACE KEY...",
		Short: "Show which shard owns a key",
		Long: `Prints the shard that owns a key, with its range and epoch. The same as
SELECT cleave.shard_of(keyspace, key...).`,
		Example: "  cleave shard-of hash_bigint 42",
		Args:    args(2, -1),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, given []string) error {
			r, err := c.ShardOf(cmd.Context(), admin.ShardOfRequest{Keyspace: given[0], Key: given[1:]})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(r)
			}
			how := "range " + r.Range
			switch {
			case r.Pinned:
				how = "pinned"
			case r.Range == "":
				how = "listed"
			}
			_, err = fmt.Fprintf(a.stdout, "%s (%s, epoch %d)\n", r.Shard, how, r.Epoch)
			return err
		}),
	}
}

// splitKey reads the values of a key of several columns.
func splitKey(s string) ([]string, error) {
	if s == "" {
		return []string{""}, nil
	}
	r := csv.NewReader(strings.NewReader(s))
	key, err := r.Read()
	if err != nil {
		return nil, errors.New("is not a list of values with commas between them")
	}
	if _, err := r.Read(); !errors.Is(err, io.EOF) {
		return nil, errors.New("has more than one line")
	}
	return key, nil
}

// urlMax bounds a URL read from standard input, bytes.
const urlMax = 16 << 10

func readLine(r io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(r, urlMax)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("standard input: %w", err)
	}
	if line = strings.TrimSpace(line); line == "" {
		return "", sqlstate.New(sqlstate.InvalidParameterValue, "standard input holds no URL").WithHint("echo URL | cleave shard add NAME -")
	}
	return line, nil
}

func errMissing(flag, what string) error { return fmt.Errorf("%s is missing: %s", flag, what) }

func errNoKeyspace(name string, version uint64) error {
	return sqlstate.New(sqlstate.UndefinedObject, "version %d of the map has no keyspace %s", version, terminal.Printable(name)).
		WithHint("cleave keyspace list")
}
