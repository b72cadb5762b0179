package localpg

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cleavedb/cleave/sqlstate"
)

// account is the operating system user that the server runs as.
type account struct {
	name     string
	uid, gid uint32
	groups   []uint32
	drop     bool // we are another user (root) and must change to it
}

// chooseAccount picks the user: ourselves unless we are root; else the named
// one, else the owner of an existing data folder, else postgres, else nobody.
func chooseAccount(name, dataDir string) (account, error) {
	if os.Geteuid() != 0 {
		a := account{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
		if u, err := user.Current(); err == nil {
			a.name = u.Username
		}
		if name != "" && name != a.name {
			return account{}, sqlstate.New(sqlstate.InsufficientPrivilege, "only root can run PostgreSQL as another user (%s)", name).
				WithHint("leave the user out, or start as root")
		}
		return a, nil
	}
	candidates := []string{"postgres", "nobody"}
	if name != "" {
		candidates = []string{name}
	} else if st, err := os.Stat(filepath.Join(dataDir, "PG_VERSION")); err == nil {
		if owner := ownerOf(st); owner != 0 {
			candidates = []string{strconv.FormatUint(uint64(owner), 10)}
		}
	}
	for _, c := range candidates {
		u, err := user.Lookup(c)
		if err != nil {
			u, err = user.LookupId(c)
		}
		if err != nil {
			continue
		}
		if a, ok := accountOf(u); ok {
			return a, nil
		}
	}
	return account{}, sqlstate.New(sqlstate.ConfigFileError, "PostgreSQL refuses to run as root, and there is no user %s to run it as", strings.Join(candidates, " or ")).
		WithHint("start as another user, or create one: useradd --system postgres")
}

// accountOf is a user's account, with its groups; false for root.
func accountOf(u *user.User) (account, bool) {
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err1 != nil || err2 != nil || uid == 0 {
		return account{}, false
	}
	a := account{name: u.Username, uid: uint32(uid), gid: uint32(gid), drop: true}
	ids, _ := u.GroupIds() // without them the primary group alone is used
	for _, id := range ids {
		if g, err := strconv.ParseUint(id, 10, 32); err == nil {
			a.groups = append(a.groups, uint32(g))
		}
	}
	return a, true
}

// attributes are those of a child process: its own process group, so that an
// interrupt typed at a terminal reaches us and not the server, and the account.
func (a account) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a.drop {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups}
	}
	return attr
}

// own gives a file or folder to the account.
func (a account) own(path string) error {
	if !a.drop {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// mayEnter reports whether the account can go through the folder by its mode
// bits (access lists are not looked at).
func (a account) mayEnter(st os.FileInfo) bool { return a.allowed(st, 0o1) }

func (a account) mayWrite(st os.FileInfo) bool { return a.allowed(st, 0o3) }

func (a account) allowed(st os.FileInfo, bits os.FileMode) bool {
	mode := st.Mode().Perm()
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case a.uid == 0, !ok:
		return true
	case sys.Uid == a.uid:
		return mode>>6&bits == bits
	case sys.Gid == a.gid || slices.Contains(a.groups, sys.Gid):
		return mode>>3&bits == bits
	default:
		return mode&bits == bits
	}
}

// reach checks that the account can go through every folder above path.
func (a account) reach(path string) error {
	if !a.drop {
		return nil
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil {
			return fileError(err, "cannot look at the folder %s", dir)
		}
		if !a.mayEnter(st) {
			return sqlstate.New(sqlstate.InsufficientPrivilege, "the user %s, whom PostgreSQL runs as, cannot go through the folder %s to %s", a.name, dir, path).
				WithDetail("PostgreSQL refuses to run as root, so it runs as %s.", a.name).
				WithHint("chmod o+x %s, or choose a folder that everybody can reach, such as one under /var/lib or /tmp", dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// Reachable reports, with the reason as an error, whether the user that a
// server started by us runs as can go through every folder above path. It is
// always nil when we are not root.
func Reachable(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fileError(err, "cannot name %q", path)
	}
	a, err := chooseAccount("", "")
	if err != nil {
		return err
	}
	return a.reach(path)
}

func ownerOf(st os.FileInfo) uint32 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Uid
	}
	return 0
}
