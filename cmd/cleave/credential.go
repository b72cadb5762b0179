package main

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// Where clients are asked who they are (any auth but trust), so are those of the admin API. Unless somebody named a token, a
// process makes one at each start and leaves it in files that its own user alone reads, under the admin API's
// port. The commands of that user, and root's, find it there and need no flag.

// credentialName is the file's name, by the port of the admin API.
func credentialName(port string) string { return "admin-" + port + ".token" }

// credential is what the admin API demands: the token that somebody named, or one that is made now and left in the data
// folder, if there is one, and in the user's runtime folder.
func (r *runner) credential(data string) (adminCredential, error) {
	cfg := r.cfg.Load()
	token, err := adminToken(&cfg.Config)
	if err != nil || token != "" || cfg.Auth == "trust" {
		return adminCredential{token: token}, err
	}
	token = wiring.NewSecret()
	_, port, err := net.SplitHostPort(r.admin.Addr().String())
	if err != nil {
		return adminCredential{}, err
	}
	var written []string
	write := func(folder string, err error) {
		path := filepath.Join(folder, credentialName(port))
		if err == nil {
			err = wiring.WriteSecret(path, []byte(token+"\n"))
		}
		if err != nil {
			r.log.Debug("the credential of the admin API could not be left in a folder", "folder", folder, telemetry.KeyError, err)
			return
		}
		written = append(written, path)
	}
	if data != "" {
		old, _ := filepath.Glob(filepath.Join(data, credentialName("*"))) // a process that was killed left it
		for _, path := range old {
			_ = os.Remove(path)
		}
		write(data, nil)
	}
	write(runtimeFolder())
	if len(written) == 0 {
		r.log.Warn("the admin API asks for a token, and there is no folder to leave one in: see the setting admin-token-file")
	} else {
		r.log.Info("the admin API asks for a token, which the commands of this user find", "files", written)
	}
	r.undo(func(context.Context) error {
		for _, path := range written {
			if b, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(b)) == token {
				_ = os.Remove(path) // it is of no use any more
			}
		}
		return nil
	})
	return adminCredential{token: token, own: true}, nil
}

// runtimeFolder makes the folder for files that live as long as processes of this user.
func runtimeFolder() (string, error) {
	if dir, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":"); dir != "" { // of a systemd unit
		return dir, nil
	}
	err := fs.ErrNotExist
	for _, dir := range readFolders() {
		if dir == rootFolder && os.Geteuid() != 0 {
			continue
		}
		if err = ownFolder(dir); err == nil {
			return dir, nil
		}
	}
	return "", err
}

// rootFolder is root's, and that of systemd units with RuntimeDirectory=cleave.
const rootFolder = "/run/cleave"

// readFolders are the folders in which a credential is looked for.
func readFolders() []string {
	var out []string
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		out = append(out, filepath.Join(dir, "cleave"))
	}
	return append(out, rootFolder, filepath.Join(os.TempDir(), "cleave-"+strconv.Itoa(os.Geteuid())))
}

// ownFolder makes a folder that nobody else can look into or replace files in; one that is there has to be such.
func ownFolder(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !st.IsDir() || !ok || int(sys.Uid) != os.Geteuid() || st.Mode().Perm()&0o022 != 0 {
		return sqlstate.New(sqlstate.InsufficientPrivilege, "the folder %s is another user's, or others may write to it", dir).WithHint("remove it")
	}
	return nil
}

// localCredential finds the token that a process of this machine made for itself; "" if there is none that we may read.
func localCredential(cfg *config.Config) string {
	host, port, err := net.SplitHostPort(cfg.AdminAddress())
	if err != nil || !config.Loopback(host) {
		return ""
	}
	for _, dir := range append([]string{cfg.Data}, readFolders()...) {
		b, err := os.ReadFile(filepath.Join(dir, credentialName(port)))
		if token := strings.TrimSpace(string(b)); err == nil && checkToken(token) {
			return token
		}
	}
	return ""
}

func checkToken(token string) bool {
	return len(token) >= tokenMin && len(token) <= 4096 && !strings.ContainsAny(token, " \t\r\n")
}
