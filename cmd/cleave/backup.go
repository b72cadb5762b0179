package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/backup"
	"github.com/cleavedb/cleave/backup/repository"
	_ "github.com/cleavedb/cleave/backup/repository/s3" // buckets
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// repositoryFlags say where backups lie.
type repositoryFlags struct {
	url  string
	opts repository.Options
}

func (f *repositoryFlags) add(cmd *cobra.Command, flag string) {
	cmd.Flags().StringVar(&f.url, flag, "", "repository: file:///FOLDER or s3://BUCKET/PREFIX?endpoint=URL")
	cmd.Flags().StringVar(&f.opts.IdentityFile, "identity", "", "file with age's secret key, for a repository that is encrypted")
}

// with opens the repository for a command.
func (f *repositoryFlags) with(cmd *cobra.Command, flag string, do func(ctx context.Context, repo *repository.Repository) error) (err error) {
	if f.url == "" {
		return &usageError{errMissing("--"+flag, "the repository, as file:///var/backups/cleave"), cmd}
	}
	umask()
	repo, err := repository.Open(cmd.Context(), f.url, f.opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, repo.Close()) }()
	return do(cmd.Context(), repo)
}

// locked does something with the repository while it is locked. Who only reads goes on without a lock if none can be written.
func (a *app) locked(ctx context.Context, repo *repository.Repository, mode repository.Mode, reads bool, what string, do func(*repository.Lock) error) (err error) {
	lock, err := repo.Lock(ctx, mode, what+", "+actor())
	if err != nil && reads && sqlstate.CodeOf(err) != sqlstate.LockNotAvailable && ctx.Err() == nil {
		fmt.Fprintf(a.stderr, "The repository is not locked (%v): delete no backup from it meanwhile.\n", err)
		return do(nil)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock(context.WithoutCancel(ctx))) }()
	return do(lock)
}

func backupCommand(a *app) *cobra.Command {
	return a.group("backup", "Take backups of the whole cluster at one moment",
		`A backup has all shards, the map with its history, users, sequences and settings, as of one
moment: no transaction over several shards is half in it. Statements go on meanwhile, and
no write waits. Backups lie in a repository: a folder, or a bucket of S3. Shards have to be
SQLite files so far; docs/operations.md says how to back up PostgreSQL shards.`,
		`  cleave backup create --repository file:///var/backups/shop`,
		backupCreateCommand(a), backupListCommand(a), backupShowCommand(a), backupVerifyCommand(a), backupDrillCommand(a), backupDeleteCommand(a))
}

func backupCreateCommand(a *app) *cobra.Command {
	f := &repositoryFlags{opts: repository.Options{Create: true}}
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Take a backup",
		Long: `Marks a place on each shard at the same time, proves that no transaction over several
shards is half in, and copies the shards as of those places. It reads the directory and the
shards itself: run it where they can be reached, beside routers or without one.

The repository is made if the folder or the prefix is empty. With --recipient it is
encrypted for good: only who has the secret key can read it (age-keygen makes one).
A backup counts when its last object is written; an interrupted one is not listed.`,
		Example: `  cleave backup create --repository file:///var/backups/shop
  cleave backup create --repository 's3://backups/shop?endpoint=https://s3.example.com'
  cleave backup create --repository file:///var/backups/shop --recipient age1ql3z7hjy...`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load(cmd)
			if err != nil {
				return err
			}
			url := cfg.Directory
			if url == "" {
				url = filepath.Join(cfg.Data, wiring.DirectoryFile)
			}
			return f.with(cmd, "repository", func(ctx context.Context, repo *repository.Repository) error {
				return a.createBackup(ctx, repo, url)
			})
		},
	}
	f.add(cmd, "repository")
	cmd.Flags().StringArrayVar(&f.opts.Recipients, "recipient", nil, "public key of age that can read the backup; may be given several times")
	addSettings(cmd.Flags(), "directory", "data")
	return cmd
}

func (a *app) createBackup(ctx context.Context, repo *repository.Repository, url string) (err error) {
	dir, _, err := openNamed(ctx, url, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	var m *backup.Manifest
	err = a.locked(ctx, repo, repository.Shared, false, "cleave backup create", func(lock *repository.Lock) (err error) {
		m, err = backup.Create(ctx, backup.CreateOptions{Directory: dir, Drivers: wiring.Drivers(), Repository: repo, Software: versionText(), Progress: a.progress(), Check: lock.Check})
		return err
	})
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(m)
	}
	content, stored := m.Size()
	_, err = fmt.Fprintf(a.stdout, "Backup %s: %d %s as of %s, %s, %s in the repository.\n", m.ID, len(m.Shards), plural(len(m.Shards), "shard"),
		m.Cut.At.Format(time.RFC3339Nano), byteText(content), byteText(stored))
	return err
}

// progress tells people how far long work has come: a line when the work changes, and one every five seconds.
func (a *app) progress() backup.Progress {
	last, began, next := "", time.Now(), time.Time{}
	return func(what string, done, total int64) {
		now := time.Now()
		if what != last {
			last, began = what, now
		} else if now.Before(next) {
			return
		}
		next = now.Add(5 * time.Second)
		line := fmt.Sprintf("%s: %s of %s", what, byteText(done), byteText(total))
		if took := now.Sub(began); took > time.Second && done > 0 && total > done {
			line += fmt.Sprintf(", about %v left", (time.Duration(float64(took) * float64(total-done) / float64(done))).Round(time.Second))
		}
		fmt.Fprintln(a.stderr, line)
	}
}

// listedBackup is a backup in a list.
type listedBackup struct {
	ID string `json:"id"`
	*backup.Manifest
	Proven *time.Time `json:"proven,omitempty"` // by a drill
	Error  string     `json:"error,omitempty"`  // why the manifest cannot be read
}

func (l listedBackup) row() []string {
	if l.Manifest == nil {
		return []string{l.ID, "DAMAGED", "", "", "", "", ""}
	}
	content, stored := l.Size()
	proven := "never"
	if l.Proven != nil {
		proven = l.Proven.Format(time.RFC3339)
	}
	return []string{l.ID, l.Cut.At.Format(time.RFC3339), time.Since(l.Cut.At).Round(time.Second).String(), fmt.Sprint(len(l.Shards)), byteText(content), byteText(stored), proven}
}

func backupListCommand(a *app) *cobra.Command {
	f := &repositoryFlags{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the backups of a repository",
		Long: `Lists the backups that have a manifest, oldest first, with the time of the last drill of each.
One whose manifest cannot be read is DAMAGED; the others are listed all the same.`,
		Example: `  cleave backup list --repository file:///var/backups/shop`,
		Args:    args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.with(cmd, "repository", func(ctx context.Context, repo *repository.Repository) error {
				all, err := backup.List(ctx, repo)
				if err != nil {
					return err
				}
				proven, err := backup.Proven(ctx, repo)
				if err != nil {
					return err
				}
				list := make([]listedBackup, len(all))
				for i, m := range all {
					list[i].ID, list[i].Manifest = m.ID, m.Manifest
					if m.Err != nil {
						list[i].Error = m.Err.Error()
						fmt.Fprintf(a.stderr, "Backup %s cannot be used: %v\n", m.ID, m.Err)
					}
					if at, ok := proven[m.ID]; ok {
						list[i].Proven = &at
					}
				}
				return printList(a, list, "The repository has no backup.", []string{"ID", "MOMENT", "AGE", "SHARDS", "SIZE", "STORED", "PROVEN"}, listedBackup.row)
			})
		},
	}
	f.add(cmd, "repository")
	return cmd
}

func backupShowCommand(a *app) *cobra.Command {
	f := &repositoryFlags{}
	cmd := &cobra.Command{
		Use:     "show [ID]",
		Short:   "Show what is in a backup",
		Long:    `Shows the manifest of a backup as JSON; of the newest one without an id.`,
		Example: `  cleave backup show 20261128T031500Z-1b9d6bcd --repository file:///var/backups/shop`,
		Args:    args(0, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return f.with(cmd, "repository", func(ctx context.Context, repo *repository.Repository) error {
				m, err := backup.Load(ctx, repo, first(given))
				if err != nil {
					return err
				}
				return a.printJSON(m)
			})
		},
	}
	f.add(cmd, "repository")
	return cmd
}

func first(given []string) string {
	if len(given) == 0 {
		return ""
	}
	return given[0]
}

func backupVerifyCommand(a *app) *cobra.Command {
	f := &repositoryFlags{}
	cmd := &cobra.Command{
		Use:   "verify [ID]",
		Short: "Read all objects of a backup and check them",
		Long: `Reads every object of a backup to its end and compares its checksums; of the newest backup
without an id. A damaged object is named. It does not show that the backup can be restored:
restore it into an empty folder for that.`,
		Example: `  cleave backup verify --repository file:///var/backups/shop`,
		Args:    args(0, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return f.with(cmd, "repository", func(ctx context.Context, repo *repository.Repository) error {
				m, err := backup.Load(ctx, repo, first(given))
				if err != nil {
					return err
				}
				err = a.locked(ctx, repo, repository.Shared, true, "cleave backup verify", func(*repository.Lock) error { return backup.Verify(ctx, repo, m) })
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(map[string]any{"id": m.ID, "objects": 1 + len(m.Shards), "whole": true})
				}
				_, err = fmt.Fprintf(a.stdout, "Backup %s is whole: %d objects.\n", m.ID, 1+len(m.Shards))
				return err
			})
		},
	}
	f.add(cmd, "repository")
	return cmd
}

func backupDrillCommand(a *app) *cobra.Command {
	f := &repositoryFlags{}
	var scratch string
	cmd := &cobra.Command{
		Use:   "drill [ID]",
		Short: "Prove that a backup can be restored",
		Long: `Restores a backup into a folder of its own, the newest one without an id, counts the rows of
every sharded table and adds their checksums up, removes the folder and stores the proof in
the repository. A later drill of the same backup must find the same. cleave backup list
shows when each backup was proven last.`,
		Example: `  cleave backup drill --repository file:///var/backups/shop --scratch /var/tmp`,
		Args:    args(0, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return f.with(cmd, "repository", func(ctx context.Context, repo *repository.Repository) error {
				m, err := backup.Load(ctx, repo, first(given))
				if err != nil {
					return err
				}
				var p *backup.Proof
				err = a.locked(ctx, repo, repository.Shared, false, "cleave backup drill", func(*repository.Lock) (err error) {
					p, err = backup.Drill(ctx, a.restoreOptions(ctx, repo, m, ""), scratch)
					return err
				})
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(p)
				}
				rows := int64(0)
				for _, t := range p.Tables {
					rows += t.Rows
				}
				_, err = fmt.Fprintf(a.stdout, "Backup %s is proven: restored in %v, %d rows in %d sharded %s.\n", p.Backup,
					time.Duration(p.TookMS)*time.Millisecond, rows, len(p.Tables), plural(len(p.Tables), "table"))
				return err
			})
		},
	}
	f.add(cmd, "repository")
	cmd.Flags().StringVar(&scratch, "scratch", "", "folder with room for the cluster; the system's temporary one without it")
	return cmd
}

func backupDeleteCommand(a *app) *cobra.Command {
	f := &repositoryFlags{}
	cmd := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete a backup",
		Long: `Deletes a backup and its proofs. It is refused while a backup of the repository is taken,
verified, drilled or restored. A restore from a repository that it cannot write to takes
no lock: it fails if its backup is deleted.`,
		Example: `  cleave backup delete 20261128T031500Z-1b9d6bcd --repository file:///var/backups/shop`,
		Args:    args(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return f.with(cmd, "repository", func(ctx context.Context, repo *repository.Repository) error {
				err := a.locked(ctx, repo, repository.Exclusive, false, "cleave backup delete", func(*repository.Lock) error { return backup.Delete(ctx, repo, given[0]) })
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(map[string]string{"deleted": given[0]})
				}
				_, err = fmt.Fprintf(a.stdout, "Backup %s is deleted.\n", given[0])
				return err
			})
		},
	}
	f.add(cmd, "repository")
	return cmd
}

func restoreCommand(a *app) *cobra.Command {
	f := &repositoryFlags{}
	var to, id string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Make a new cluster of a backup",
		Long: `Makes a data folder with the cluster of a backup, as of its moment. Start it with
cleave up --data FOLDER. The folder must be empty or missing; an interrupted restore goes on
when the same command is run again.

The new cluster has an id of its own. The old one may still run: its routers cannot use the
new shards, and nothing of it is opened. Transactions over several shards are ended as they
were decided at the moment; moves that were under way are ended by what the map says, and
have to be begun anew.`,
		Example: `  cleave restore --from file:///var/backups/shop --to /var/lib/cleave-restored --dry-run
  cleave restore --from file:///var/backups/shop --to /var/lib/cleave-restored
  cleave restore --from file:///var/backups/shop --to /srv/new --backup 20261128T031500Z-1b9d6bcd`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to == "" {
				return &usageError{errMissing("--to", "the folder of the new cluster"), cmd}
			}
			return f.with(cmd, "from", func(ctx context.Context, repo *repository.Repository) error {
				m, err := backup.Load(ctx, repo, id)
				if err != nil {
					return err
				}
				return a.restore(ctx, repo, m, to, dryRun)
			})
		},
	}
	f.add(cmd, "from")
	cmd.Flags().StringVar(&to, "to", "", "folder of the new cluster")
	cmd.Flags().StringVar(&id, "backup", "", "the backup's id; the newest one without it")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	return cmd
}

func (a *app) restoreOptions(ctx context.Context, repo *repository.Repository, m *backup.Manifest, to string) backup.RestoreOptions {
	return backup.RestoreOptions{
		Repository: repo, Manifest: m, Folder: to, Drivers: wiring.Drivers(), Software: versionText(), Progress: a.progress(),
		OpenDirectory: func(path string) (shardmap.Directory, error) { return wiring.OpenDirectory(ctx, path) },
		Finish: func(folder string, shards []string) error {
			l := &wiring.Layout{Format: wiring.DataFormat, MadeBy: versionText(), Made: time.Now().UTC().Truncate(time.Second), Engine: m.Shards[0].Engine, Shards: shards}
			return (&wiring.DataFolder{Path: folder}).Save(l)
		},
	}
}

func (a *app) restore(ctx context.Context, repo *repository.Repository, m *backup.Manifest, to string, dryRun bool) error {
	o := a.restoreOptions(ctx, repo, m, to)
	if dryRun {
		plan, err := o.Plan()
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(plan)
		}
		fmt.Fprintf(a.stdout, "Would restore backup %s, as of %s, into %s:\n", plan.Backup, plan.At.Format(time.RFC3339Nano), plan.Folder)
		for i, s := range plan.Steps {
			fmt.Fprintf(a.stdout, "  %d. %s\n", i+1, s)
		}
		return nil
	}
	var res *backup.Restored
	err := a.locked(ctx, repo, repository.Shared, true, "cleave restore", func(*repository.Lock) (err error) {
		res, err = o.Restore(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(res)
	}
	_, err = fmt.Fprintf(a.stdout, "Restored backup %s, as of %s, as cluster %s: %s.\nStart it with: cleave up --data '%s'\n",
		res.Backup, res.At.Format(time.RFC3339Nano), res.Cluster, byteText(res.Bytes), res.Folder)
	return err
}
