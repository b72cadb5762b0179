package tuplestore

import (
	"os"
	"sort"

	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

const (
	// memoryMax is how many bytes of a cursor's rows are kept in memory: the others are in a file, or are forgotten.
	memoryMax = 256 << 10
	// groupBytes and groupRows bound the rows that are found, and read, together.
	groupBytes = 32 << 10
	groupRows  = 64
)

// Store are rows of a cursor that were read already, as frames of DataRow, so that they can be read again in any direction:
// what PostgreSQL's Material node and a portal's holdStore are for. The file, if there is one, has no name and goes with the process.
type Store struct {
	left   *limits.Allowance // of rows and bytes
	spills bool              // into a file; else rows are kept for as long as they fit into memory
	mem    []byte            // the last of them
	file   *os.File
	size   int64 // of the file
	first  int64 // the number of the first row kept, from 1
	n      int64 // rows kept
	groups []group
}

// New is a store whose first row has this number.
func New(first int64) *Store { return &Store{first: first} }

// InFile reports whether rows are in a file.
func (k *Store) InFile() bool { return k.file != nil }

// group is where a group of rows begins.
type group struct{ row, at int64 }

// Add keeps a row; false: there is no room, and no file is wanted.
func (k *Store) Add(frame []byte) (bool, error) {
	if !k.spills && len(k.mem)+len(frame) > memoryMax {
		return false, nil
	}
	if k.spills {
		if err := k.left.Take(len(frame)); err != nil {
			return false, err
		}
	}
	at := k.size + int64(len(k.mem))
	row := k.first + k.n
	if g := len(k.groups); g == 0 || row-k.groups[g-1].row >= groupRows || at-k.groups[g-1].at+int64(len(frame)) > groupBytes {
		k.groups = append(k.groups, group{row, at})
	}
	k.mem = append(k.mem, frame...)
	k.n++
	if len(k.mem) > memoryMax {
		return true, k.write()
	}
	return true, nil
}

// Spill lets rows go to a file from now on.
func (k *Store) Spill(left *limits.Allowance) { k.spills, k.left = true, left }

func (k *Store) write() (err error) {
	if k.file == nil {
		k.file, err = NamelessFile("cleave-cursor-*")
	}
	if err == nil {
		_, err = k.file.WriteAt(k.mem, k.size)
	}
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.IOError, "the rows of a cursor cannot be kept in the router's folder for temporary files").
			WithHint("make room there, let the router have another (TMPDIR), or read the rows without a cursor")
	}
	k.size += int64(len(k.mem))
	if k.mem = k.mem[:0]; cap(k.mem) > 4*memoryMax {
		k.mem = nil
	}
	return nil
}

// NamelessFile makes a file that nobody else finds and that goes with the process.
func NamelessFile(pattern string) (*os.File, error) {
	f, err := os.CreateTemp("", pattern)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, err
	}
	return f, nil
}

// Around returns the frames of the rows that are found together with one, and the number of the first of them.
func (k *Store) Around(row int64) (first int64, frames []wire.Frame, err error) {
	g := sort.Search(len(k.groups), func(i int) bool { return k.groups[i].row > row }) - 1
	from, to := k.groups[g].at, k.size+int64(len(k.mem))
	if g+1 < len(k.groups) {
		to = k.groups[g+1].at
	}
	buf := make([]byte, 0, to-from)
	if from < k.size {
		buf = buf[:min(to, k.size)-from]
		if _, err := k.file.ReadAt(buf, from); err != nil {
			return 0, nil, sqlstate.Wrap(err, sqlstate.IOError, "the rows of a cursor cannot be read from the router's folder for temporary files")
		}
	}
	if to > k.size {
		buf = append(buf, k.mem[max(from-k.size, 0):to-k.size]...)
	}
	for len(buf) > 0 {
		f, rest, ok, err := wire.Cut(buf)
		if err != nil || !ok {
			return 0, nil, sqlstate.New(sqlstate.InternalError, "a row that a cursor kept cannot be read")
		}
		frames, buf = append(frames, f), rest
	}
	return k.groups[g].row, frames, nil
}

// Close removes the file.
func (k *Store) Close() {
	if k != nil && k.file != nil {
		_ = k.file.Close() // it has no name any more
		k.file = nil
	}
}
