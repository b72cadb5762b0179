package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/sqlstate"
)

// The levels of a finding.
const (
	levelOK      = "ok"
	levelWarning = "warning"
	levelError   = "error"
)

// diskLow is the free space below which a data folder's disk is a warning, bytes.
const diskLow = 1 << 30

func doctorCommand(a *app) *cobra.Command {
	var repair, setBack, rebuild bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the cluster, and print the next command to run",
		Long: `Looks at the settings, the data folder, the ports, the PostgreSQL programs, and at the
cluster that --admin names: router, shards, guards, rows on shards that do not own them
(cleave verify takes all the time that this needs), and what a crash may have left.
Where --admin names a cluster that answers, this machine's data folder is looked at
only if --data names it.
It works when nothing runs as well, and then says what to run. With --repair the
cluster finishes what a crash left and sets guards that differ from the map. Guards that
are newer than the map are left: the directory was put back to an older state, and rows
may be where the map does not say. --set-back-guards, with --repair, sets them too.
--rebuild-map goes the other way: it says how the map differs from the guards, and with
--repair makes the map say what they do. No row has to move then. Keep clients out, and
run "cleave verify --repair" afterwards.

The exit code is 1 if anything is an error.`,
		Example: `  cleave doctor
  cleave doctor --repair --json`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load(cmd)
			if err != nil {
				return err
			}
			findings := a.examine(cmd.Context(), cfg, admin.DoctorRequest{Repair: repair, SetBack: setBack, RebuildMap: rebuild})
			if err := a.printFindings(findings); err != nil {
				return err
			}
			for _, f := range findings {
				if f.Level == levelError {
					return reportedError{}
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&repair, "repair", false, "finish what a crash left, set guards that differ from the map")
	cmd.Flags().BoolVar(&setBack, "set-back-guards", false, "with --repair: set guards that are newer than the map too")
	cmd.Flags().BoolVar(&rebuild, "rebuild-map", false, "say how the map differs from the shards' guards; with --repair: make it say what they do")
	addSettings(cmd.Flags(), "data", "listen", "engine")
	return cmd
}

func (a *app) printFindings(findings []admin.Finding) error {
	if a.json {
		return a.printJSON(findings)
	}
	for _, f := range findings {
		what := f.What
		if f.Shard != "" && !strings.Contains(what, f.Shard) {
			what = "shard " + f.Shard + ": " + what
		}
		fmt.Fprintf(a.stdout, "%-8s %s\n", f.Level, terminal.Printable(what))
		if f.Done != "" {
			fmt.Fprintf(a.stdout, "%-8s done: %s\n", "", terminal.Printable(f.Done))
		}
		if f.Next != "" {
			fmt.Fprintf(a.stdout, "%-8s next: %s\n", "", terminal.Printable(f.Next))
		}
	}
	return nil
}

// examine looks at this machine and then at the cluster.
func (a *app) examine(ctx context.Context, cfg *config.Effective, req admin.DoctorRequest) []admin.Finding {
	d := &diagnosis{}
	for _, w := range cfg.Warnings {
		d.add(levelWarning, w, "unset it")
	}
	running := d.process(ctx, cfg)
	// A cluster that --admin names may have nothing to do with this folder.
	if here := cfg.Given("data") || !cfg.Given("admin"); here || !running {
		d.folder(cfg, running)
		d.postgres(cfg)
	}
	if !running {
		d.port(ctx, "listen", cfg.Listen)
		d.port(ctx, "admin", cfg.AdminAddress())
	}
	if running {
		d.cluster(ctx, cfg, req)
	}
	return d.findings
}

type diagnosis struct{ findings []admin.Finding }

func (d *diagnosis) add(level, what, next string) {
	d.findings = append(d.findings, admin.Finding{Level: level, What: what, Next: next})
}

func (d *diagnosis) fail(err error) {
	e := sqlstate.As(err)
	what := e.Message
	if e.Detail != "" {
		what += "; " + e.Detail
	}
	d.findings = append(d.findings, admin.Finding{Level: levelError, What: what, Shard: e.Shard, Next: e.Hint})
}

// process asks whether a cluster answers.
func (d *diagnosis) process(ctx context.Context, cfg *config.Effective) bool {
	c, err := adminClient(cfg)
	if err != nil {
		d.fail(err)
		return false
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	h, err := c.Health(ctx)
	switch {
	case err != nil && sqlstate.CodeOf(err) == sqlstate.CannotConnectNow:
		d.add(levelError, "nothing answers at "+cfg.Admin+", the address of the admin API", startLine(cfg))
		return false
	case err != nil:
		d.fail(err)
		return false
	case !h.Ready:
		d.add(levelWarning, "the process at "+cfg.Admin+" does not serve: "+h.Reason, "its log says why; if the directory is gone for the moment, it goes on by itself")
	default:
		d.add(levelOK, "a cluster answers at "+cfg.Admin, "")
	}
	return true
}

func startLine(cfg *config.Effective) string {
	line := "cleave up"
	if cfg.Given("data") {
		line += " --data " + cfg.Data
	}
	if cfg.Given("admin") {
		line += " --admin " + cfg.Admin
	}
	return line
}

// folder looks at the data folder, without locking it.
func (d *diagnosis) folder(cfg *config.Effective, running bool) {
	path, err := filepath.Abs(cfg.Data)
	if err != nil {
		d.fail(wiring.FolderError(err, cfg.Data, "named"))
		return
	}
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		// A cluster that answers may have its folder elsewhere.
		d.add(levelOK, "there is no data folder "+path+" yet", "")
		return
	}
	if err != nil {
		d.fail(wiring.FolderError(err, path, "looked at"))
		return
	}
	if !st.IsDir() {
		d.fail(wiring.FolderError(syscall.ENOTDIR, path, "used as data folder"))
		return
	}
	l, err := wiring.ReadLayout(path, versionText())
	if errors.Is(err, fs.ErrNotExist) {
		// What `cleave up` would say.
		if err := (&wiring.DataFolder{Path: path}).Check(); err != nil {
			d.fail(err)
			return
		}
		d.add(levelOK, "the data folder "+path+" is empty", "")
		return
	}
	if err != nil {
		d.fail(err)
		return
	}
	d.add(levelOK, fmt.Sprintf("data folder %s: format %d, %d %s shards", path, l.Format, len(l.Shards), l.Engine), "")
	if !running {
		d.files(cfg, path, l)
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(path, &disk); err == nil {
		if free := disk.Bavail * uint64(disk.Bsize); free < diskLow {
			d.add(levelWarning, fmt.Sprintf("the disk of %s has %d MiB left", path, free>>20), "free space on it: a full disk fails writes with 53100")
		}
	}
}

// files looks for the files that a data folder should have.
func (d *diagnosis) files(cfg *config.Effective, path string, l *wiring.Layout) {
	if !l.OnServers() {
		for _, name := range l.Shards {
			if file := filepath.Join(path, name+".db"); !exists(file) {
				d.add(levelError, file+" is missing, a shard of this folder", "put it back from a backup; cleave up would begin with an empty one")
			}
		}
	}
	if cfg.Directory == "" && !exists(filepath.Join(path, wiring.DirectoryFile)) {
		d.add(levelWarning, "the data folder "+path+" has no shard map: its first start did not finish", startLine(cfg))
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// port tries whether `cleave up` could listen there.
func (d *diagnosis) port(ctx context.Context, setting, address string) {
	l, err := bind(ctx, setting, address)
	if err != nil {
		d.fail(err)
		return
	}
	_ = l.Close() // it was open for a moment only
	d.add(levelOK, fmt.Sprintf("%s %s is free", setting, address), "")
}

// postgres looks for the programs of local PostgreSQL servers.
func (d *diagnosis) postgres(cfg *config.Effective) {
	needed := cfg.OnServers()
	if l, err := wiring.ReadLayout(cfg.Data, versionText()); err == nil {
		needed = l.OnServers()
	}
	found, err := localpg.Find(0)
	switch {
	case err == nil:
		d.add(levelOK, found.String(), "")
	case needed || os.Getenv(localpg.BinVariable) != "":
		d.fail(err)
	default:
		d.add(levelOK, "no PostgreSQL programs on this machine; only --engine postgres needs them", "")
	}
}

// cluster asks the router and the running process itself.
func (d *diagnosis) cluster(ctx context.Context, cfg *config.Effective, req admin.DoctorRequest) {
	c, err := adminClient(cfg)
	if err != nil {
		d.fail(err)
		return
	}
	defer c.Close()
	if address, err := routerAddress(ctx, cfg); err != nil {
		d.fail(err)
	} else {
		d.router(ctx, address)
	}
	req.Meta = admin.Meta{By: actor(), Why: "cleave doctor"}
	findings, err := c.Doctor(ctx, req)
	if err != nil {
		d.fail(err)
	}
	d.findings = append(d.findings, findings...)
}

// router opens a session and has it answer something that needs no shard.
func (d *diagnosis) router(ctx context.Context, address string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := func() error {
		conn, err := pgconn.Connect(ctx, "postgres://cleave@"+address+"/cleave?sslmode=disable")
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		_, err = conn.Exec(ctx, "SELECT count(*) FROM cleave.shards").ReadAll()
		return err
	}()
	host, _, splitErr := net.SplitHostPort(address)
	switch {
	case err == nil:
		d.add(levelOK, "the router answers at "+address, "")
	case splitErr == nil && sqlstate.CodeOf(terminal.ServerError(err)) != sqlstate.InternalError:
		d.fail(terminal.ServerError(err))
	default:
		d.add(levelError, fmt.Sprintf("the router at %s does not answer: %v", address, err), "look at the log of the process, and whether a firewall guards "+host)
	}
}
