package wiring

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// PassFile is the file of a data folder with the passwords of its PostgreSQL servers' users, in libpq's format.
const PassFile = "postgres.pass"

// NewSecret returns a word that nobody can guess.
func NewSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it does not fail
	return hex.EncodeToString(b)
}

// Password returns the password that a user of the folder's PostgreSQL servers has, and the path of the file that holds
// it, which only the owner of the process reads. A user that is not in it gets a new password.
func (d *DataFolder) Password(user string) (password, path string, err error) {
	path = filepath.Join(d.Path, PassFile)
	have, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", FolderError(err, path, "read")
	}
	for lines := bufio.NewScanner(bytes.NewReader(have)); lines.Scan(); {
		if f := strings.Split(lines.Text(), ":"); len(f) == 5 && f[3] == user && f[4] != "" {
			return f[4], path, nil
		}
	}
	password = NewSecret()
	if len(have) > 0 && have[len(have)-1] != '\n' {
		have = append(have, '\n')
	}
	return password, path, WriteSecret(path, append(have, "*:*:*:"+user+":"+password+"\n"...))
}

// WriteSecret writes a file that only its owner reads; a crash leaves the old one or the new one, whole.
func WriteSecret(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return FolderError(err, path, "written")
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = FolderError(err, path, "written")
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
