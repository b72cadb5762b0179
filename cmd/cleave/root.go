package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/sqlstate"
)

// app is one run of the program: its surroundings and the flags that every
// command has.
type app struct {
	*process
	json       bool
	configFile string
}

// usageError is a wrong command line: exit code 2.
type usageError struct {
	err error
	cmd *cobra.Command
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// reportedError is a failure whose report the command has printed already.
type reportedError struct{}

func (reportedError) Error() string { return "reported" }

// run carries out a command line and returns the exit code.
func run(ctx context.Context, p *process, args []string) int {
	a := &app{process: p}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	// Cobra may have failed before the flags were read.
	if slices.Contains(args, "--json") || slices.Contains(args, "--json=true") {
		a.json = true
	}
	return a.fail(err)
}

// fail prints an error and returns its exit code.
func (a *app) fail(err error) int {
	code := exitFailed
	var usage *usageError
	var bad *config.Error
	if errors.As(err, &usage) || errors.As(err, &bad) {
		code = exitUsage
	}
	if errors.As(err, new(reportedError)) {
		return code
	}
	if a.json {
		a.failJSON(err)
		return code
	}
	switch e, ok := errors.AsType[*sqlstate.Error](err); {
	case usage != nil:
		fmt.Fprintf(a.stderr, "cleave: %s\nusage: %s\n`%s --help` says more\n", usage.err, usage.cmd.UseLine(), usage.cmd.CommandPath())
	case bad != nil:
		fmt.Fprintf(a.stderr, "cleave: %s\nnext: cleave config --help\n", bad)
	case ok:
		fmt.Fprint(a.stderr, describe(e))
	default:
		fmt.Fprintf(a.stderr, "cleave: %s\n", err)
	}
	return code
}

// describe prints an error as a few lines: what, where, detail, what next.
func describe(e *sqlstate.Error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cleave: %s", e.Message)
	var place []string
	if e.Shard != "" {
		place = append(place, "shard "+e.Shard)
	}
	if e.Keyspace != "" {
		place = append(place, "keyspace "+e.Keyspace)
	}
	if e.Range != "" {
		place = append(place, "range "+e.Range)
	}
	if e.Epoch != 0 {
		place = append(place, fmt.Sprintf("epoch %d", e.Epoch))
	}
	place = append(place, "SQLSTATE "+string(e.Code))
	fmt.Fprintf(&b, " (%s)\n", strings.Join(place, ", "))
	if e.Detail != "" {
		fmt.Fprintf(&b, "detail: %s\n", e.Detail)
	}
	if e.Err != nil && e.Message != e.Err.Error() {
		fmt.Fprintf(&b, "cause: %s\n", e.Err)
	}
	if next := e.Advice(); next != "" {
		fmt.Fprintf(&b, "next: %s\n", next)
	}
	return b.String()
}

type jsonError struct {
	api.ErrorBody
	Keyspace string           `json:"keyspace,omitempty"`
	Range    string           `json:"range,omitempty"`
	Epoch    uint64           `json:"epoch,omitempty"`
	Cause    string           `json:"cause,omitempty"`
	Problems []config.Problem `json:"problems,omitempty"`
}

func (a *app) failJSON(err error) {
	out := jsonError{}
	var usage *usageError
	var bad *config.Error
	switch e, ok := errors.AsType[*sqlstate.Error](err); {
	case errors.As(err, &bad):
		out.Code, out.Message, out.Problems = string(sqlstate.ConfigFileError), "the configuration has errors", bad.Problems
		out.Hint = "cleave config --help"
	case errors.As(err, &usage):
		out.Code, out.Message = string(sqlstate.SyntaxError), usage.Error()
		out.Hint = usage.cmd.CommandPath() + " --help"
	case ok:
		out.ErrorBody = api.ErrorBody{ID: string(e.ID), Code: string(e.Code), Message: e.Message, Detail: e.Detail, Hint: e.Hint, Shard: e.Shard}
		out.Keyspace, out.Range, out.Epoch = e.Keyspace, e.Range, e.Epoch
		if e.Err != nil && e.Message != e.Err.Error() {
			out.Cause = e.Err.Error()
		}
	default:
		out.Code, out.Message = string(sqlstate.InternalError), err.Error()
	}
	enc := json.NewEncoder(a.stderr)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(map[string]any{"error": out}) // stderr is gone: nobody to tell
}

const rootLong = `Cleave shards SQL databases. It splits tables over many databases (shards) by a
shard key and routes every statement to the shard that owns its key. Clients
connect with the PostgreSQL protocol.

Start a cluster on this machine with "cleave up", connect with psql, and look at
it with the other commands. They talk to the admin API of a running "cleave up"
or "cleave router"; --admin names it.

Every setting has one name, as flag (--idle-timeout), environment variable
(CLEAVE_IDLE_TIMEOUT) and key of a YAML file given with --config (idle-timeout).
A flag wins over the environment, the environment over the file.

Exit codes: 0 done; 1 failed, or doctor found an error; 2 the command line or
the configuration is wrong and nothing was done. With --json, results go to
stdout as JSON and an error to stderr as {"error": {"code": SQLSTATE, ...}}.`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "cleave",
		Short: "Shard SQL databases: one command, any PostgreSQL client, rows on real shards",
		Long:  rootLong,
		Example: `  # a cluster of four SQLite shards under ./.cleave, and a client
  cleave up
  psql -h 127.0.0.1 -p 6432 cleave

  # the same on private PostgreSQL servers
  cleave up --engine postgres --data ./.cleave-pg

  # one of databases that exist, with a router on as many machines as wanted
  cleave init --directory etcd://10.0.0.1:2379/shop a=postgres://cleave@db1/app b=postgres://cleave@db2/app
  cleave router --directory etcd://10.0.0.1:2379/shop`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          a.noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	// Before cobra's own commands are made: they keep the writer of that moment.
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{err, cmd} })
	root.CompletionOptions.HiddenDefaultCmd = false
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "print results and errors as JSON")
	flags.StringVar(&a.configFile, "config", "", "YAML file with settings (environment CLEAVE_CONFIG)")
	addSettings(flags, adminSettings...)
	root.AddCommand(
		upCommand(a), initCommand(a), routerCommand(a), coordinatorCommand(a),
		shardCommand(a), keyspaceCommand(a), tableCommand(a), mapCommand(a), heatCommand(a), constraintCommand(a), policyCommand(a),
		pinCommand(a), unpinCommand(a), shardOfCommand(a), userCommand(a), sessionsCommand(a),
		moveCommand(a), splitCommand(a), mergeCommand(a), spreadCommand(a), growCommand(a), planCommand(a), movesCommand(a), verifyCommand(a),
		routeCommand(a), sqlCommand(a), simulateCommand(a),
		directoryCommand(a), backupCommand(a), restoreCommand(a), doctorCommand(a), healthCommand(a), configCommand(a), versionCommand(a),
	)
	root.AddCommand(wishCommands(a)...)
	// Cobra adds these two only when it runs; the manual wants them now.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	return root
}

// group is a command that only holds others.
func (a *app) group(use, short, long, example string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long, Example: example, Args: a.noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return &usageError{fmt.Errorf("%s needs one of: %s", cmd.CommandPath(), strings.Join(names(cmd), ", ")), cmd}
		}}
	c.AddCommand(children...)
	return c
}

func names(cmd *cobra.Command) []string {
	var out []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			out = append(out, c.Name())
		}
	}
	return out
}

func (a *app) noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0])
	if near := config.Nearest(args[0], names(cmd)); near != "" {
		err = fmt.Errorf("%w; did you mean %s?", err, near)
	}
	return &usageError{err, cmd}
}

// args checks the number of arguments; most -1 is any number.
func args(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		switch n := len(given); {
		case n < least:
			return &usageError{fmt.Errorf("%s needs at least %d argument(s), got %d", cmd.CommandPath(), least, n), cmd}
		case most >= 0 && n > most:
			return &usageError{fmt.Errorf("%s takes at most %d argument(s), got %d: %q is one too many", cmd.CommandPath(), most, n, given[most]), cmd}
		}
		return nil
	}
}

// addSettings makes flags of settings. Their text is checked with all other
// sources in [app.load], so that every problem is reported at once.
func addSettings(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		s, ok := config.Lookup(name)
		if !ok {
			panic("cleave: no setting " + name)
		}
		flags.String(name, s.Default, s.Help)
	}
}

// load reads all settings for a command.
func (a *app) load(cmd *cobra.Command) (*config.Effective, error) {
	in := config.Input{File: a.configFile, Env: a.env, Flags: map[string]string{}}
	if in.File == "" {
		for _, line := range a.env {
			if path, ok := strings.CutPrefix(line, "CLEAVE_CONFIG="); ok {
				in.File = path
			}
		}
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if _, ok := config.Lookup(f.Name); ok {
			in.Flags[f.Name] = f.Value.String()
		}
	})
	return config.Load(in)
}

// client returns a client of the cluster that --admin names.
func (a *app) client(cmd *cobra.Command) (*api.Client, error) {
	cfg, err := a.load(cmd)
	if err != nil {
		return nil, err
	}
	return adminClient(cfg)
}

// withClient is a command that asks the admin API.
func (a *app) withClient(run func(cmd *cobra.Command, c *api.Client, given []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, given []string) error {
		c, err := a.client(cmd)
		if err != nil {
			return err
		}
		defer c.Close()
		return run(cmd, c, given)
	}
}

// adminSettings are those that every command has.
var adminSettings = []string{"admin", "admin-token-file", "admin-tls", "admin-ca"}

// adminURL is where the admin API of the settings is asked.
func adminURL(cfg *config.Config) string {
	if cfg.AdminEncrypted() {
		return "https://" + cfg.AdminAddress()
	}
	return "http://" + cfg.AdminAddress()
}

// adminClient returns a client of the admin API of the settings, with its token.
func adminClient(cfg *config.Effective) (*api.Client, error) {
	token, err := adminToken(&cfg.Config)
	if err != nil {
		return nil, err
	}
	if token == "" {
		token = localCredential(&cfg.Config)
	}
	c, err := api.NewClient(adminURL(&cfg.Config))
	if err != nil {
		return nil, err
	}
	c.WithToken(token)
	if cfg.AdminCA != "" {
		pem, err := os.ReadFile(cfg.AdminCA)
		if err != nil {
			return nil, sqlstate.Wrap(err, sqlstate.ConfigFileError, "the authorities of the admin API cannot be read (setting admin-ca)")
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, sqlstate.New(sqlstate.ConfigFileError, "%s holds no certificate (setting admin-ca)", cfg.AdminCA)
		}
		c.WithRoots(roots)
	}
	return c, nil
}

// adminToken reads the token of the admin API, "" if there is none.
func adminToken(cfg *config.Config) (string, error) {
	if cfg.AdminTokenFile == "" {
		return "", nil
	}
	b, err := os.ReadFile(cfg.AdminTokenFile)
	if err != nil {
		return "", sqlstate.Wrap(err, sqlstate.ConfigFileError, "the token of the admin API cannot be read (setting admin-token-file)")
	}
	token := strings.TrimSpace(string(b))
	if !checkToken(token) {
		return "", sqlstate.New(sqlstate.ConfigFileError, "%s does not hold a token: one word of at least %d characters", cfg.AdminTokenFile, tokenMin).
			WithHint("openssl rand -hex 32 > %s", cfg.AdminTokenFile)
	}
	return token, nil
}

// tokenMin is the length of a token that cannot be guessed, bytes.
const tokenMin = 16

// actor is who runs the command, for the map's history.
func actor() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return name + "@" + host
}
