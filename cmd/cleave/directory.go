package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func directoryCommand(a *app) *cobra.Command {
	return a.group("directory", "Move a cluster's shard map to another directory",
		`The directory stores the shard map, its history and small records: a SQLite file for one
machine, etcd for many. These commands open directories themselves; no router has to run.`,
		`  cleave directory copy --from file:./.cleave/directory.db --to etcd://10.0.0.1:2379/shop --dry-run`,
		directoryCopyCommand(a))
}

func directoryCopyCommand(a *app) *cobra.Command {
	var from, to string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "copy",
		Short: "Move a cluster from one directory to another",
		Long: `Copies every version of the shard map with its history, and the records, from one
directory to another. The rows on the shards are not touched.

The source is marked as moved first: from then on it takes no changes, and routers that
use it stop answering (57P03) when their lease ends. So two maps cannot diverge. The
target opens when everything is there and those routers have stopped; start them again
with the new --directory. If the command is interrupted, run it again. To go back, copy
the other way round: what the old directory has is completed.

A target that is not empty is refused, unless it is the same cluster's former directory.
Shards with paths or socket addresses must be reachable from where the routers will run;
cleave shard list shows the URLs.`,
		Example: `  cleave directory copy --from file:./.cleave/directory.db --to etcd://10.0.0.1,10.0.0.2/shop --dry-run
  cleave directory copy --from file:./.cleave/directory.db --to etcd://10.0.0.1,10.0.0.2/shop
  cleave directory copy --from etcd://10.0.0.1:2379/shop --to file:./.cleave/directory.db`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case from == "":
				return &usageError{errMissing("--from", "the directory where the cluster is now"), cmd}
			case to == "":
				return &usageError{errMissing("--to", "the directory where it will be"), cmd}
			}
			return a.copyDirectory(cmd.Context(), from, to, dryRun)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "directory where the cluster is now: file:PATH or etcd://...")
	cmd.Flags().StringVar(&to, "to", "", "directory where it will be: file:PATH or etcd://...")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	return cmd
}

// openNamed opens a directory that a command names; shown is its URL for people.
func openNamed(ctx context.Context, url string, make bool) (dir shardmap.Directory, shown string, err error) {
	if wiring.InEtcd(url) {
		dir, err = wiring.OpenDirectory(ctx, url)
		return dir, shardmap.Redacted(url), err
	}
	path, err := filepath.Abs(wiring.FilePath(url))
	if err != nil {
		return nil, "", sqlstate.Wrap(err, sqlstate.ConfigFileError, "the path %q has no absolute form", url)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && !make {
		return nil, "", sqlstate.New(sqlstate.ConfigFileError, "there is no directory file %s", path).
			WithHint("it is directory.db in the data folder of cleave up, and what cleave config shows as directory otherwise")
	}
	dir, err = wiring.OpenDirectory(ctx, path)
	return dir, "file:" + path, err
}

func (a *app) copyDirectory(ctx context.Context, fromURL, toURL string, dryRun bool) (err error) {
	umask()
	from, fromShown, err := openNamed(ctx, fromURL, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	t := &shardmap.Transfer{From: from, FromURL: fromShown, By: actor()}
	if dryRun && !wiring.InEtcd(toURL) {
		// A dry run makes no file.
		if _, err := os.Stat(wiring.FilePath(toURL)); errors.Is(err, fs.ErrNotExist) {
			tmp, err := os.MkdirTemp("", "cleave-dry-")
			if err != nil {
				return sqlstate.Wrap(err, sqlstate.IOError, "no temporary folder can be made")
			}
			defer os.RemoveAll(tmp)
			shown, err := filepath.Abs(wiring.FilePath(toURL))
			if err != nil {
				return sqlstate.Wrap(err, sqlstate.ConfigFileError, "the path %q has no absolute form", toURL)
			}
			toURL, t.ToURL = filepath.Join(tmp, wiring.DirectoryFile), "file:"+shown
		}
	}
	to, toShown, err := openNamed(ctx, toURL, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	t.To = to
	if t.ToURL == "" {
		t.ToURL = toShown
	}
	run := t.Run
	if dryRun {
		run = t.Plan
	}
	p, err := run(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(p)
	}
	if dryRun {
		fmt.Fprintf(a.stdout, "Would move cluster %s, map version %d:\n", p.Cluster, p.Version)
		for i, s := range p.Steps {
			fmt.Fprintf(a.stdout, "  %d. %s\n", i+1, s)
		}
		return nil
	}
	_, err = fmt.Fprintf(a.stdout, "Cluster %s is in %s now: map version %d, %d %s copied, %d %s.\nStart its routers with --directory '%s'\n",
		p.Cluster, t.ToURL, p.Version, p.Versions, plural(int(p.Versions), "version"), p.Records, plural(p.Records, "record"), t.ToURL)
	return err
}
