package sqlitedir

import (
	"fmt"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/cleavedb/cleave/shardmap"
)

// Synchronous returns the setting of each connection of a directory.
func Synchronous(dir shardmap.Directory) []int64 {
	d := dir.(*directory)
	reader, writer := <-d.reader, <-d.writer
	defer func() { d.reader <- reader; d.writer <- writer }()
	var out []int64
	for _, c := range []*sqlite.Conn{reader, writer, d.poller} {
		err := sqlitex.ExecuteTransient(c, "PRAGMA synchronous", &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
			out = append(out, s.ColumnInt64(0))
			return nil
		}})
		if err != nil {
			out = append(out, -1)
		}
	}
	return out
}

// LimitPages makes the file full at that many pages.
func LimitPages(t *testing.T, dir shardmap.Directory, pages int) {
	t.Helper()
	d := dir.(*directory)
	c := <-d.writer
	defer func() { d.writer <- c }()
	if err := sqlitex.ExecuteTransient(c, fmt.Sprintf("PRAGMA max_page_count = %d", pages), nil); err != nil {
		t.Fatal(err)
	}
}

// Boot gives a directory another clock of leases.
func Boot(dir shardmap.Directory, clock func() (boot string, ns int64, err error)) {
	dir.(*directory).clock = clock
}
