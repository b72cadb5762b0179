package repository

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/cleavedb/cleave/sqlstate"
)

// fault makes an error of a store into one that says what was done, with what, and what to do next.
func (r *Repository) fault(err error, doing string, args ...any) error {
	var known *sqlstate.Error
	if errors.As(err, &known) {
		return err
	}
	code, hint := classify(err)
	e := sqlstate.Wrap(err, code, "could not "+doing, args...)
	e.Op = "repository " + r.place
	e.Hint = hint
	return e
}

func classify(err error) (sqlstate.Code, string) {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return sqlstate.QueryCanceled, "Run the command again: what is whole in the repository stays."
	case errors.Is(err, os.ErrDeadlineExceeded):
		return sqlstate.IOError, "Nothing moved for as long as the stall bound allows. Look at the server, the mount and the network, then run the command again."
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return sqlstate.DiskFull, "Give the repository more room or delete old backups, then run the command again. Nothing half written can be seen."
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return sqlstate.InsufficientPrivilege, "Check the owner and mode of the folder, or the keys and policy of the bucket."
	case errors.Is(err, fs.ErrExist):
		return sqlstate.DuplicateObject, "Objects are never changed. Take another name, or delete it first."
	case errors.Is(err, fs.ErrNotExist):
		return sqlstate.UndefinedFile, "Check the name and the URL of the repository."
	}
	return sqlstate.IOError, "Look at the server, the mount and the network of the repository, then run the command again."
}

// damaged is the error of an object that is not what was put.
func (r *Repository) damaged(name, detail string, args ...any) error {
	e := sqlstate.New(sqlstate.DataCorrupted, "object %q of the repository is damaged", name).WithDetail(detail, args...)
	e.Op = "repository " + r.place
	e.Hint = "Do not use what was read of it. Take another backup, or a copy of the repository that is whole."
	return e
}
