package wiring

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

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/capability"
	"github.com/cleavedb/cleave/sqlstate"
)

// DataFormat is the version of the data folder's layout.
const DataFormat = 1

// The files of a data folder.
const (
	LayoutFile    = "cleave.json"
	lockFile      = "lock"
	DirectoryFile = "directory.db"
)

// Layout is what the format file of a data folder says: what is in the folder,
// decided at the first start.
type Layout struct {
	Format  int       `json:"format"`
	MadeBy  string    `json:"made_by"` // version of Cleave
	Made    time.Time `json:"made"`
	Engine  string    `json:"engine"`
	Shards  []string  `json:"shards"`            // local shards, in order
	Servers int       `json:"servers,omitempty"` // postgres: shard i is on server i modulo this
	Ports   []int     `json:"ports,omitempty"`   // postgres: of each server, as last used
}

// DataFolder is a locked data folder.
type DataFolder struct {
	Path   string  // absolute
	Layout *Layout // nil: nothing is in it yet
	lock   *os.File
	// software is the version of Cleave that opened it.
	software string
}

// OpenDataFolder makes the folder if it is missing, locks it and reads its
// layout. Errors: 55006 when another process runs it, F0000 when it is not a
// data folder or of another format.
func OpenDataFolder(path, software string) (*DataFolder, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.ConfigFileError, "the data folder %q cannot be named", path)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, FolderError(err, abs, "made")
	}
	d := &DataFolder{Path: abs, software: software}
	if err := d.Check(); err != nil {
		return nil, err
	}
	if d.lock, err = lockFolder(abs); err != nil {
		return nil, err
	}
	// Once more, now that nobody else can change it.
	if err := d.Check(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Check reads the layout, or makes sure that the folder is free to use.
func (d *DataFolder) Check() error {
	l, err := ReadLayout(d.Path, d.software)
	if err == nil {
		d.Layout = l
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return FolderError(err, d.Path, "read")
	}
	for _, e := range entries {
		if e.Name() != lockFile && !strings.HasPrefix(e.Name(), LayoutFile) {
			return sqlstate.New(sqlstate.ConfigFileError, "%s is not a data folder of Cleave and is not empty: it holds %s", d.Path, e.Name()).
				WithHint("choose an empty folder, or one that does not exist yet, with --data")
		}
	}
	return nil
}

// ReadLayout reads a data folder's format file; fs.ErrNotExist if there is none.
func ReadLayout(folder, software string) (*Layout, error) {
	path := filepath.Join(folder, LayoutFile)
	b, err := os.ReadFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, FolderError(err, path, "read")
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
	if head.Format != DataFormat {
		made := "a newer"
		if head.Format < DataFormat {
			made = "an older"
		}
		return nil, sqlstate.New(sqlstate.ConfigFileError, "the data folder %s has format %d, made by %s version of Cleave (%s); this one, %s, uses format %d",
			folder, head.Format, made, orUnknown(head.MadeBy), software, DataFormat).
			WithHint("run that version of Cleave on it, or start a new cluster with another --data")
	}
	l := &Layout{}
	if err := json.Unmarshal(b, l); err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.DataCorrupted, "%s is damaged", path).
			WithHint("restore it from a backup of the folder, or start a new cluster with another --data")
	}
	if err := missing(folder, l.Engine); err != nil {
		return nil, err
	}
	if !l.fits() {
		return nil, sqlstate.New(sqlstate.DataCorrupted, "%s is damaged: its shards, engine and servers do not fit together", path).
			WithHint("restore it from a backup of the folder, or start a new cluster with another --data")
	}
	return l, nil
}

// fits reports whether the layout's parts go together.
func (l *Layout) fits() bool {
	known := slices.ContainsFunc(Drivers(), func(d engine.Driver) bool { return d.Name() == l.Engine })
	servers := l.Servers >= 1 && l.Servers <= len(l.Shards) && (len(l.Ports) == 0 || len(l.Ports) == l.Servers)
	return len(l.Shards) > 0 && known && (!l.OnServers() || servers)
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// Save writes the layout so that a crash leaves the old or the new one, whole.
func (d *DataFolder) Save(l *Layout) error {
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fmt.Errorf("cleave: layout: %w", err)
	}
	path := filepath.Join(d.Path, LayoutFile)
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
		dir, err := os.Open(d.Path)
		if err != nil {
			return err
		}
		defer dir.Close()
		return dir.Sync()
	}()
	if err != nil {
		return FolderError(err, path, "written")
	}
	d.Layout = l
	return nil
}

// Close gives the lock up.
func (d *DataFolder) Close() {
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
		return nil, FolderError(err, path, "opened")
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := readPID(f)
		_ = f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, FolderError(err, path, "locked")
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

// FolderError says that a path of the data folder cannot be done something
// with ("made", "read"), and what to do.
func FolderError(err error, path, done string) error {
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

// Wanted is what the settings ask of a data folder; Given says which of them
// somebody set, the others agree with whatever is there.
type Wanted struct {
	Engine          string
	Shards, Servers int
	Given           func(setting string) bool
}

// Settle returns the folder's layout: the one that is there, if the settings do
// not contradict it (else F0000), or a new one, saved.
func (d *DataFolder) Settle(w Wanted, now time.Time) (*Layout, error) {
	if l := d.Layout; l != nil {
		return l, l.Agree(d.Path, w)
	}
	l := &Layout{Format: DataFormat, MadeBy: d.software, Made: now.UTC().Truncate(time.Second), Engine: w.Engine}
	for i := range w.Shards {
		l.Shards = append(l.Shards, "shard-"+strconv.Itoa(i))
	}
	if capability.Of(w.Engine).Servers {
		l.Servers = w.Servers
	}
	return l, d.Save(l)
}

// Agree fails with F0000 if the settings contradict the layout.
func (l *Layout) Agree(folder string, w Wanted) error {
	differ := func(setting, has, want, hint string) error {
		return sqlstate.New(sqlstate.ConfigFileError, "the data folder %s has %s, but %s is set to %s", folder, has, setting, want).
			WithHint("%s, leave %s out, or choose another folder with --data", hint, setting)
	}
	if w.Given("engine") && w.Engine != l.Engine {
		return differ("engine", l.Engine+" shards", w.Engine, "start it with --engine "+l.Engine)
	}
	if w.Given("shards") && w.Shards != len(l.Shards) {
		return differ("shards", fmt.Sprintf("%d local shards", len(l.Shards)), strconv.Itoa(w.Shards),
			"add a shard to the running cluster with `cleave shard add NAME URL`")
	}
	if l.OnServers() && w.Given("servers") && w.Servers != l.Servers {
		return differ("servers", fmt.Sprintf("%d PostgreSQL servers", l.Servers), strconv.Itoa(w.Servers),
			fmt.Sprintf("start it with --servers %d", l.Servers))
	}
	return nil
}

// OnServers reports whether the local shards are databases on servers, which have to be started. Otherwise they are files.
func (l *Layout) OnServers() bool { return capability.Of(l.Engine).Servers }

// ServerOf returns the number of the server that a local shard is on.
func (l *Layout) ServerOf(shard string) int {
	return slices.Index(l.Shards, shard) % max(l.Servers, 1)
}
