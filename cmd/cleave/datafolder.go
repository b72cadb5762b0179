package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cleavedb/cleave/sqlstate"
)

// dataFormat is the version of the data folder's layout.
const dataFormat = 1

const (
	layoutFile    = "cleave.json"
	lockFile      = "lock"
	directoryFile = "directory.db"
)

// layout is what the format file of a data folder says: what is in the folder,
// decided at the first start.
type layout struct {
	Format  int       `json:"format"`
	MadeBy  string    `json:"made_by"` // version of Cleave
	Made    time.Time `json:"made"`
	Engine  string    `json:"engine"`
	Shards  []string  `json:"shards"`            // local shards, in order
	Servers int       `json:"servers,omitempty"` // postgres: shard i is on server i modulo this
	Ports   []int     `json:"ports,omitempty"`   // postgres: of each server, as last used
}

// dataFolder is a locked data folder.
type dataFolder struct {
	path   string // absolute
	lock   *os.File
	layout *layout // nil: nothing is in it yet
}

// openDataFolder makes the folder if it is missing, locks it and reads its
// layout. Errors: 55006 when another process runs it, F0000 when it is not a
// data folder or of another format.
func openDataFolder(path string) (*dataFolder, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.ConfigFileError, "the data folder %q cannot be named", path)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, folderError(err, abs, "made")
	}
	d := &dataFolder{path: abs}
	if err := d.check(); err != nil {
		return nil, err
	}
	if d.lock, err = lockFolder(abs); err != nil {
		return nil, err
	}
	// Once more, now that nobody else can change it.
	if err := d.check(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// check reads the layout, or makes sure that the folder is free to use.
func (d *dataFolder) check() error {
	l, err := readLayout(d.path)
	if err == nil {
		d.layout = l
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return folderError(err, d.path, "read")
	}
	for _, e := range entries {
		if e.Name() != lockFile && !strings.HasPrefix(e.Name(), layoutFile) {
			return sqlstate.New(sqlstate.ConfigFileError, "%s is not a data folder of Cleave and is not empty: it holds %s", d.path, e.Name()).
				WithHint("choose an empty folder, or one that does not exist yet, with --data")
		}
	}
	return nil
}

// readLayout reads a data folder's format file; fs.ErrNotExist if there is none.
func readLayout(folder string) (*layout, error) {
	path := filepath.Join(folder, layoutFile)
	b, err := os.ReadFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, folderError(err, path, "read")
	}
	// The format first: the rest may mean something else in another one.
	var head struct {
		Format int    `json:"format"`
		MadeBy string `json:"made_by"`
	}
	if err := json.Unmarshal(b, &head); err != nil || head.Format == 0 {
		return nil, sqlstate.New(sqlstate.DataCorrupted, "%s is damaged: it does not say the data folder's format", path).
			WithHint("restore it from a backup of the folder, or start a new cluster with another --data")
	}
	if head.Format != dataFormat {
		made := "a newer"
		if head.Format < dataFormat {
			made = "an older"
		}
		return nil, sqlstate.New(sqlstate.ConfigFileError, "the data folder %s has format %d, made by %s version of Cleave (%s); this one, %s, uses format %d",
			folder, head.Format, made, orUnknown(head.MadeBy), versionText(), dataFormat).
			WithHint("run that version of Cleave on it, or start a new cluster with another --data")
	}
	l := &layout{}
	if err := json.Unmarshal(b, l); err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.DataCorrupted, "%s is damaged", path).
			WithHint("restore it from a backup of the folder, or start a new cluster with another --data")
	}
	if len(l.Shards) == 0 || (l.Engine != "sqlite" && l.Engine != "postgres") ||
		(l.Engine == "postgres" && (l.Servers < 1 || l.Servers > len(l.Shards) || (len(l.Ports) != 0 && len(l.Ports) != l.Servers))) {
		return nil, sqlstate.New(sqlstate.DataCorrupted, "%s is damaged: its shards, engine and servers do not fit together", path).
			WithHint("restore it from a backup of the folder, or start a new cluster with another --data")
	}
	return l, nil
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// save writes the layout so that a crash leaves the old or the new one, whole.
func (d *dataFolder) save(l *layout) error {
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fmt.Errorf("cleave: layout: %w", err)
	}
	path := filepath.Join(d.path, layoutFile)
	tmp := path + ".new"
	err = func() error {
		f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(append(b, '\n'))
		if err == nil {
			err = f.Sync()
		}
		if e := f.Close(); err == nil {
			err = e
		}
		if err == nil {
			err = os.Rename(tmp, path)
		}
		if err != nil {
			return err
		}
		dir, err := os.Open(d.path)
		if err != nil {
			return err
		}
		defer dir.Close()
		return dir.Sync()
	}()
	if err != nil {
		return folderError(err, path, "written")
	}
	d.layout = l
	return nil
}

func (d *dataFolder) close() {
	if d.lock != nil {
		_ = d.lock.Close() // gives the lock up; the file stays, for the next one to lock
		d.lock = nil
	}
}

// lockFolder takes the folder's lock for this process. The lock is the
// kernel's, on the open file: a killed process leaves none behind.
func lockFolder(folder string) (*os.File, error) {
	path := filepath.Join(folder, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, folderError(err, path, "opened")
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := readPID(f)
		_ = f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, folderError(err, path, "locked")
		}
		e := sqlstate.New(sqlstate.ObjectInUse, "another cleave runs the data folder %s", folder).
			WithHint("use that one (cleave doctor), stop it, or choose another folder with --data")
		if holder > 0 {
			e.Message += fmt.Sprintf(" (process %d)", holder)
			e.Hint = fmt.Sprintf("use that one (cleave doctor), stop it (kill %d), or choose another folder with --data", holder)
		}
		return nil, e
	}
	// Who holds it is for people; the lock counts.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

func readPID(f *os.File) int {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}

func folderError(err error, path, done string) error {
	e := sqlstate.Wrap(err, sqlstate.IOError, "%s cannot be %s", path, done)
	var cause *fs.PathError
	if errors.As(err, &cause) {
		e.Err = cause.Err
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		e.Code, e.Hint = sqlstate.InsufficientPrivilege, "give yourself access to it, or choose another folder with --data"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Code, e.Hint = sqlstate.DiskFull, "free space on that disk, or choose another folder with --data"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EEXIST):
		e.Code, e.Hint = sqlstate.ConfigFileError, "a file is where a folder should be; choose another folder with --data"
	case errors.Is(err, syscall.EROFS):
		e.Code, e.Hint = sqlstate.ConfigFileError, "choose a folder on a disk that can be written, with --data"
	}
	return e
}

// wanted is what the settings ask of a data folder; given says which of them
// somebody set, the others agree with whatever is there.
type wanted struct {
	engine          string
	shards, servers int
	given           func(setting string) bool
}

// settle returns the folder's layout: the one that is there, if the settings do
// not contradict it (else F0000), or a new one, saved.
func (d *dataFolder) settle(w wanted, now time.Time) (*layout, error) {
	if l := d.layout; l != nil {
		return l, l.agree(d.path, w)
	}
	l := &layout{Format: dataFormat, MadeBy: versionText(), Made: now.UTC().Truncate(time.Second), Engine: w.engine}
	for i := range w.shards {
		l.Shards = append(l.Shards, "shard-"+strconv.Itoa(i))
	}
	if w.engine == "postgres" {
		l.Servers = w.servers
	}
	return l, d.save(l)
}

func (l *layout) agree(folder string, w wanted) error {
	differ := func(setting, has, want, hint string) error {
		return sqlstate.New(sqlstate.ConfigFileError, "the data folder %s has %s, but %s is set to %s", folder, has, setting, want).
			WithHint("%s, leave %s out, or choose another folder with --data", hint, setting)
	}
	if w.given("engine") && w.engine != l.Engine {
		return differ("engine", l.Engine+" shards", w.engine, "start it with --engine "+l.Engine)
	}
	if w.given("shards") && w.shards != len(l.Shards) {
		return differ("shards", fmt.Sprintf("%d local shards", len(l.Shards)), strconv.Itoa(w.shards),
			"add a shard to the running cluster with `cleave shard add NAME URL`")
	}
	if l.Engine == "postgres" && w.given("servers") && w.servers != l.Servers {
		return differ("servers", fmt.Sprintf("%d PostgreSQL servers", l.Servers), strconv.Itoa(w.servers),
			fmt.Sprintf("start it with --servers %d", l.Servers))
	}
	return nil
}

// serverOf returns the number of the server that a local shard is on.
func (l *layout) serverOf(shard string) int {
	return slices.Index(l.Shards, shard) % max(l.Servers, 1)
}
