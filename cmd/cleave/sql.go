package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// inputMax bounds what `cleave sql` reads from standard input, bytes.
const inputMax = 64 << 20

// batchRows is how many rows are aligned together: more are printed as they come.
const batchRows = 1000

func sqlCommand(a *app) *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use:   "sql [STATEMENT...]",
		Short: "Run SQL through the router",
		Long: `Runs statements through the router, as any PostgreSQL client would: those given as
arguments, one after the other; else those on standard input; on a terminal it
asks for them (\q ends). The first error ends it.

The router is the one of the process that --admin names, or that of --url.
With --json each result is one line: {"tag", "columns", "rows"}; values are texts
as PostgreSQL writes them, or null.`,
		Example: `  cleave sql "SELECT * FROM cleave.shards"
  echo "SELECT count(*) FROM orders WHERE tenant_id = 42" | cleave sql --json
  cleave sql`,
		Args: args(0, -1),
		RunE: func(cmd *cobra.Command, given []string) error {
			conn, err := a.connect(cmd, url)
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(cmd.Context()))
			if len(given) == 0 {
				if f, ok := a.stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) && !a.json {
					return a.prompt(cmd.Context(), conn, f)
				}
				text, err := io.ReadAll(io.LimitReader(a.stdin, inputMax+1))
				if err != nil {
					return fmt.Errorf("standard input: %w", err)
				}
				if len(text) > inputMax {
					return sqlstate.New(sqlstate.ProgramLimitExceeded, "standard input holds more than %d bytes", inputMax).
						WithHint("use psql -f, which sends statement by statement")
				}
				given = []string{string(text)}
			}
			for _, sql := range given {
				if err := a.execute(cmd.Context(), conn, sql); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&url, "url", "", "connect here (postgres://...) instead of asking the admin API")
	return cmd
}

func routeCommand(a *app) *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use:   "route STATEMENT",
		Short: "Show where a statement would go, without running it",
		Long: `Prints the kind of plan, the shards, ranges and epochs, and the text that each shard
would get. The same as EXPLAIN (ROUTE) STATEMENT in psql. A statement that is
refused says why, and what would make it routable.`,
		Example: `  cleave route "SELECT * FROM orders WHERE tenant_id = 42"
  cleave route "SELECT * FROM orders WHERE tenant_id IN (1, 2)" --json`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			conn, err := a.connect(cmd, url)
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(cmd.Context()))
			results, err := conn.Exec(cmd.Context(), "EXPLAIN (ROUTE) "+given[0]).ReadAll()
			if err != nil {
				return terminal.ServerError(err)
			}
			var lines []string
			for _, r := range results {
				for _, row := range r.Rows {
					if len(row) > 0 {
						lines = append(lines, string(row[0]))
					}
				}
			}
			if a.json {
				return a.printJSON(map[string]any{"route": lines})
			}
			for _, l := range lines {
				fmt.Fprintln(a.stdout, l)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&url, "url", "", "connect here (postgres://...) instead of asking the admin API")
	return cmd
}

// connect opens a session with the router.
func (a *app) connect(cmd *cobra.Command, url string) (*pgconn.PgConn, error) {
	if url == "" {
		settings, err := a.load(cmd)
		if err != nil {
			return nil, err
		}
		address, err := routerAddress(cmd.Context(), settings)
		if err != nil {
			return nil, err
		}
		url = "postgres://" + address + "/cleave?sslmode=prefer"
	}
	cfg, err := pgconn.ParseConfig(url)
	if err != nil {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "%s is not the URL of a router", shardmap.Redacted(url)).
			WithHint("postgres://USER@HOST:PORT/cleave")
	}
	if cfg.User == "" {
		cfg.User = "cleave"
		if u, err := user.Current(); err == nil {
			cfg.User = u.Username
		}
	}
	cfg.RuntimeParams["application_name"] = "cleave sql"
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		fmt.Fprintf(a.stderr, "%s: %s\n", n.Severity, terminal.Printable(n.Message))
		if n.Hint != "" {
			fmt.Fprintf(a.stderr, "hint: %s\n", terminal.Printable(n.Hint))
		}
	}
	conn, err := pgconn.ConnectConfig(cmd.Context(), cfg)
	if err != nil {
		if e := terminal.ServerError(err); sqlstate.CodeOf(e) != sqlstate.InternalError {
			return nil, e
		}
		return nil, sqlstate.New(sqlstate.CannotConnectNow, "the router at %s:%d cannot be reached", cfg.Host, cfg.Port).
			WithHint("start it with cleave up, or see cleave doctor")
	}
	return conn, nil
}

// execute runs one message of statements and prints their results as they come.
func (a *app) execute(ctx context.Context, conn *pgconn.PgConn, sql string) error {
	results := conn.Exec(ctx, sql)
	for results.NextResult() {
		if err := a.printRows(results.ResultReader()); err != nil {
			_ = results.Close() // the first error is the one to report
			return err
		}
	}
	if err := results.Close(); err != nil {
		if e := terminal.ServerError(err); sqlstate.CodeOf(e) != sqlstate.InternalError {
			return e
		}
		return sqlstate.Wrap(err, sqlstate.TransactionUnknown, "the connection to the router was lost: the outcome of the statement is unknown").
			WithHint("cleave doctor")
	}
	return nil
}

func (a *app) printRows(r *pgconn.ResultReader) error {
	var head []string
	for _, f := range r.FieldDescriptions() {
		head = append(head, f.Name)
	}
	if a.json {
		return a.printRowsJSON(r, head)
	}
	var rows [][]string
	count := 0
	flush := func() error {
		if len(head) == 0 {
			return nil
		}
		err := terminal.Table(a.stdout, head, rows)
		rows = rows[:0]
		return err
	}
	for r.NextRow() {
		count++
		cells := make([]string, len(head))
		for i, v := range r.Values() {
			cells[i] = cellText(v)
		}
		rows = append(rows, cells)
		if len(rows) == batchRows {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	tag, err := r.Close()
	if err != nil {
		return terminal.ServerError(err)
	}
	if len(head) == 0 {
		_, err = fmt.Fprintln(a.stdout, tag)
		return err
	}
	if len(rows) > 0 || count == 0 {
		if err := flush(); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(a.stdout, "(%d %s)\n", count, plural(count, "row"))
	return err
}

// cellText shows NULL as psql does when asked to, so that it differs from ”.
func cellText(v []byte) string {
	if v == nil {
		return "∅"
	}
	return string(v)
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// printRowsJSON writes a result as one line, row by row, so that a large one
// needs no memory.
func (a *app) printRowsJSON(r *pgconn.ResultReader, head []string) error {
	columns, err := json.Marshal(append([]string{}, head...))
	if err != nil {
		return fmt.Errorf("cleave: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"columns":%s,"rows":[`, columns)
	for n := 0; r.NextRow(); n++ {
		if n > 0 {
			b.WriteByte(',')
		}
		cells := make([]*string, len(head))
		for i, v := range r.Values() {
			if v != nil {
				s := strings.ToValidUTF8(string(v), string(utf8.RuneError))
				cells[i] = &s
			}
		}
		row, err := json.Marshal(cells)
		if err != nil {
			return fmt.Errorf("cleave: %w", err)
		}
		b.Write(row)
		if b.Len() > 1<<16 {
			if _, err := io.WriteString(a.stdout, b.String()); err != nil {
				return err
			}
			b.Reset()
		}
	}
	tag, err := r.Close()
	if err != nil {
		if b.Len() > 0 && head != nil {
			fmt.Fprintln(a.stdout) // the error on stderr begins on a line of its own
		}
		return terminal.ServerError(err)
	}
	end, err := json.Marshal(tag.String())
	if err != nil {
		return fmt.Errorf("cleave: %w", err)
	}
	fmt.Fprintf(&b, `],"tag":%s}`, end)
	_, err = fmt.Fprintln(a.stdout, b.String())
	return err
}

// prompt asks for statements on a terminal until \q or the end of input. A
// statement that fails does not end it.
func (a *app) prompt(ctx context.Context, conn *pgconn.PgConn, in *os.File) error {
	fmt.Fprintln(a.stdout, `Statements end with a semicolon. \q ends; psql can do more.`)
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, a.stdout}, "cleave=> ")
	var pending strings.Builder
	for {
		// The terminal is raw only while a line is typed, so that Ctrl-C ends a
		// statement that runs, with the program, as everywhere.
		old, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return fmt.Errorf("terminal: %w", err)
		}
		line, err := t.ReadLine()
		if e := term.Restore(int(in.Fd()), old); e != nil && err == nil {
			err = e
		}
		switch {
		case errors.Is(err, io.EOF):
			fmt.Fprintln(a.stdout)
			return nil
		case err != nil && !errors.Is(err, term.ErrPasteIndicator):
			return fmt.Errorf("terminal: %w", err)
		}
		if pending.Len() == 0 {
			switch strings.TrimSpace(line) {
			case "":
				continue
			case `\q`, "exit", "quit":
				return nil
			}
		}
		pending.WriteString(line)
		pending.WriteByte('\n')
		if !terminal.Complete(pending.String()) {
			t.SetPrompt("cleave-> ")
			continue
		}
		sql := pending.String()
		pending.Reset()
		t.SetPrompt("cleave=> ")
		if err := a.execute(ctx, conn, sql); err != nil {
			if conn.IsClosed() {
				return err
			}
			fmt.Fprint(a.stderr, describe(sqlstate.As(err)))
		}
	}
}
