package localpg

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cleavedb/cleave/sqlstate"
)

// retryableError is a failed launch that another attempt may get past.
type retryableError struct {
	err  error
	port bool // the port was taken; else memory of a killed server's children
}

func (e *retryableError) Error() string { return e.err.Error() }
func (e *retryableError) Unwrap() error { return e.err }

// startFailure says why the server ended before it was ready, from its log.
func (s *Server) startFailure(logFrom int64) error {
	log := logTail(s.LogPath(), logFrom)
	dir := s.opts.DataDir
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(log, p) {
				return true
			}
		}
		return false
	}
	e := sqlstate.Wrap(s.exitErr, sqlstate.CannotConnectNow, "PostgreSQL in %s ended before it was ready", dir).
		WithDetail("%s", lastLines(faults(log), 5)).WithHint("read %s", s.LogPath())
	switch {
	case has("Address already in use"):
		e.Code = sqlstate.ObjectInUse
		e.Message = fmt.Sprintf("port %d on 127.0.0.1 is in use by another program", s.port)
		e.Hint = fmt.Sprintf("see which with: ss -ltnp 'sport = :%d'; or choose another port", s.port)
		return &retryableError{err: e, port: true}
	case has("pre-existing shared memory block"):
		e.Code = sqlstate.ObjectInUse
		e.Message = fmt.Sprintf("processes of a killed PostgreSQL server still use %s", dir)
		e.Hint = fmt.Sprintf("wait for them to end, or end them: fuser -k %s", dir)
		return &retryableError{err: e}
	case has("No space left on device"):
		e.Code = sqlstate.DiskFull
		e.Message = fmt.Sprintf("PostgreSQL in %s does not start: the disk is full", dir)
		e.Hint = fmt.Sprintf("make room (df -h %s) and start again; nothing committed is lost", dir)
	case has("incompatible with server", "not compatible with"):
		e.Code = sqlstate.ConfigFileError
		e.Message = fmt.Sprintf("the data folder %s is of another kind of PostgreSQL than %s", dir, s.opts.Installation)
		e.Hint = fmt.Sprintf("set %s to the programs that made it, or choose another folder with --data", BinVariable)
	case has(`lock file "postmaster.pid" already exists`, `lock file "`+dir):
		e.Code = sqlstate.ObjectInUse
		e.Message = fmt.Sprintf("another PostgreSQL server seems to run in %s", dir)
		e.Hint = fmt.Sprintf("stop it: %s stop -D %s", filepath.Join(s.opts.Installation.Bin, "pg_ctl"), dir)
	case has("unrecognized configuration parameter", "invalid value for parameter", "is outside the valid range", "requires a", "configuration file"):
		e.Code = sqlstate.ConfigFileError
		e.Message = fmt.Sprintf("PostgreSQL in %s refuses a setting", dir)
		e.Hint = "correct the setting named above, in the options or in " + filepath.Join(dir, "postgresql.conf")
	case has("could not create shared memory segment", "could not create semaphores", "Cannot allocate memory"):
		e.Code = sqlstate.InsufficientResources
		e.Message = fmt.Sprintf("the machine does not give PostgreSQL in %s the memory it asks for", dir)
		e.Hint = "stop other servers, or lower shared_buffers and max_connections"
	case has("could not locate a valid checkpoint record", "invalid checkpoint record", "PANIC:"):
		e.Code = sqlstate.DataCorrupted
		e.Message = fmt.Sprintf("the data folder %s is damaged", dir)
		e.Hint = fmt.Sprintf("keep a copy of it before anything else; read %s; restore a backup", s.LogPath())
	}
	return e
}

// faults keeps the lines that say what was wrong; all if there is none.
func faults(log string) string {
	var kept []string
	for line := range strings.Lines(log) {
		for _, word := range []string{"FATAL:", "PANIC:", "ERROR:", "HINT:", "DETAIL:", "could not"} {
			if strings.Contains(line, word) {
				kept = append(kept, line)
				break
			}
		}
	}
	if len(kept) == 0 {
		return log
	}
	return strings.Join(kept, "")
}

// logTail reads the log from an offset, its last 64 KiB at most.
func logTail(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil {
		from = max(from, st.Size()-64<<10)
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return ""
	}
	b, _ := io.ReadAll(io.LimitReader(f, 64<<10)) // what was read is enough
	return string(b)
}

// lastLines returns the last n lines in one line, for an error's detail.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, " | ")
}

// fileError classifies an error of the file system.
func fileError(err error, format string, args ...any) error {
	e := sqlstate.Wrap(err, sqlstate.IOError, format, args...)
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Code, e.Hint = sqlstate.DiskFull, "make room on the disk (df -h) and start again"
	case errors.Is(err, os.ErrPermission):
		e.Code, e.Hint = sqlstate.InsufficientPrivilege, "check the owner and mode of the folder (ls -ld), or choose another one"
	case errors.Is(err, syscall.EROFS):
		e.Code, e.Hint = sqlstate.IOError, "the file system is read-only; choose another folder"
	default:
		e.Hint = "check the path (ls -ld), or choose another folder"
	}
	return e
}
