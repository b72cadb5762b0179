package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
	"github.com/cleavedb/cleave/sqlstate"
)

func userCommand(a *app) *cobra.Command {
	return a.group("user", "Add, list, change and remove users",
		`Users may connect to routers that ask for passwords (the setting auth is scram) or
certificates (cert). They are the cluster's own, kept in the directory as SCRAM-SHA-256
verifiers. On the shards all statements run as the user of the shard's URL; with the
setting auth passthrough the users are the shards' own instead, and these are not asked.`,
		`  cleave user list`,
		userListCommand(a), userAddCommand(a), userPasswordCommand(a), userRoleCommand(a), userRemoveCommand(a))
}

func userListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the users with their roles",
		Long: `Lists the users. Nothing of their passwords is shown. The same as
SELECT * FROM cleave.users.`,
		Example: `  cleave user list --json`,
		Args:    args(0, 0),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, _ []string) error {
			list, err := c.Users(cmd.Context())
			if err != nil {
				return err
			}
			return printList(a, list, "no users yet: cleave user add NAME", []string{"NAME", "ROLE"},
				func(u admin.UserInfo) []string { return []string{u.Name, u.Role} })
		}),
	}
}

// credential is how a command is told a password.
type credential struct {
	file, verifier string
}

func (c *credential) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.file, "password-file", "", "file with the password, - for standard input; one line end at its end is not part of it")
	cmd.Flags().StringVar(&c.verifier, "verifier-file", "", "file with a SCRAM-SHA-256 verifier instead, as in pg_authid.rolpassword of a PostgreSQL server; - for standard input")
	cmd.MarkFlagsMutuallyExclusive("password-file", "verifier-file")
}

// read returns the verifier of what the user gave. The password goes no further.
func (a *app) read(c credential) (string, error) {
	if c.verifier != "" {
		return a.secret(c.verifier)
	}
	var password string
	var err error
	if c.file != "" {
		password, err = a.secret(c.file)
	} else {
		password, err = a.askPassword()
	}
	if err != nil {
		return "", err
	}
	if err := access.CheckPassword(password); err != nil {
		return "", err
	}
	v, err := access.NewVerifier(password)
	if err != nil {
		return "", sqlstate.New(sqlstate.InvalidParameterValue, "%v", err)
	}
	return v.Text(), nil
}

// secret reads a file, or standard input, without the last line end.
func (a *app) secret(path string) (string, error) {
	from := a.stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", sqlstate.Wrap(err, sqlstate.InvalidParameterValue, "the file cannot be read")
		}
		defer f.Close()
		from = f
	}
	b, err := io.ReadAll(io.LimitReader(from, 2*access.PasswordBytes+1))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if text == "" || len(b) > 2*access.PasswordBytes || strings.ContainsAny(text, "\r\n") {
		return "", sqlstate.New(sqlstate.InvalidParameterValue, "%s does not hold one line with a password", path)
	}
	return text, nil
}

// askPassword asks twice on a terminal.
func (a *app) askPassword() (string, error) {
	f, ok := a.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return "", sqlstate.New(sqlstate.InvalidParameterValue, "there is no terminal to ask for a password on").
			WithHint("give it in a file: --password-file FILE, or - for standard input")
	}
	var given [2]string
	for i, prompt := range []string{"Password: ", "Again: "} {
		fmt.Fprint(a.stderr, prompt)
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(a.stderr)
		if err != nil {
			return "", fmt.Errorf("terminal: %w", err)
		}
		given[i] = string(b)
	}
	if given[0] != given[1] {
		return "", sqlstate.New(sqlstate.InvalidParameterValue, "the two passwords differ").WithHint("nothing was changed: run it again")
	}
	return given[0], nil
}

func (a *app) printUser(u *admin.UserInfo, done string) error {
	if a.json {
		return a.printJSON(u)
	}
	_, err := fmt.Fprintf(a.stdout, "user %s %s\n", terminal.Printable(u.Name), done)
	return err
}

func userAddCommand(a *app) *cobra.Command {
	var c credential
	var role string
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a user with a password",
		Long: `Adds a user. The password is asked for on the terminal, or read from a file; it is
never given on the command line, which other users of the machine can see. Only a
verifier that is made of it here leaves this command.

The role writer may run statements that read and change rows; user may also change the
schema; admin may also change the cluster with Cleave's functions (cleave.add_shard,
cleave.pin, ...).`,
		Example: `  cleave user add app
  cleave user add ops --role admin --password-file /run/secrets/ops
  cleave user add web --role writer --password-file /run/secrets/web
  psql -Atc "SELECT rolpassword FROM pg_authid WHERE rolname = 'app'" | cleave user add app --verifier-file -`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := errors.Join(access.CheckName(given[0]), checkRole(role)); err != nil {
				return err
			}
			verifier, err := a.read(c)
			if err != nil {
				return err
			}
			client, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			u, err := client.AddUser(cmd.Context(), admin.UserRequest{By: actor(), Name: given[0], Role: role, Verifier: verifier})
			if err != nil {
				return err
			}
			return a.printUser(u, "added with the role "+u.Role)
		},
	}
	cmd.Flags().StringVar(&role, "role", string(access.Ordinary), "admin, user or writer")
	c.flags(cmd)
	return cmd
}

func checkRole(role string) error {
	_, err := access.ParseRole(role)
	return err
}

func userPasswordCommand(a *app) *cobra.Command {
	var c credential
	cmd := &cobra.Command{
		Use:   "password NAME",
		Short: "Change the password of a user",
		Long: `Replaces a user's password, as in cleave user add. The old one is good for nothing
from then on, at every router; sessions that run go on.`,
		Example: `  cleave user password app
  cleave user password app --password-file /run/secrets/app`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			verifier, err := a.read(c)
			if err != nil {
				return err
			}
			return a.changeUser(cmd, admin.UserRequest{Name: given[0], Verifier: verifier}, "has a new password")
		},
	}
	c.flags(cmd)
	return cmd
}

func (a *app) changeUser(cmd *cobra.Command, req admin.UserRequest, done string) error {
	client, err := a.client(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	req.By = actor()
	u, err := client.ChangeUser(cmd.Context(), req)
	if err != nil {
		return err
	}
	return a.printUser(u, done)
}

func userRoleCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "role NAME admin|user|writer",
		Short: "Change the role of a user",
		Long: `Gives a user another role: admin may change the cluster with Cleave's functions,
user the schema, writer rows. Sessions that run go on with the role that they began with.`,
		Example: `  cleave user role app admin`,
		Args:    args(2, 2),
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := checkRole(given[1]); err != nil {
				return err
			}
			return a.changeUser(cmd, admin.UserRequest{Name: given[0], Role: given[1]}, "has the role "+given[1])
		},
	}
}

func userRemoveCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a user",
		Long: `Removes a user, who can begin no session from then on, at any router. Sessions that
run go on.`,
		Example: `  cleave user remove app`,
		Args:    args(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			client, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			u, err := client.RemoveUser(cmd.Context(), admin.UserRequest{By: actor(), Name: given[0]})
			if err != nil {
				return err
			}
			return a.printUser(u, "removed")
		},
	}
}
