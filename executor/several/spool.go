package several

import (
	"context"
	"os"
	"strings"

	"github.com/cleavedb/cleave/executor/several/copydata"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/several/tuplestore"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

const (
	// spoolAfter is how many bytes of an INSERT ... SELECT are held before the rows go to a
	// file, and from there to the shards by COPY.
	spoolAfter = 4 << 20
	// spoolBlock is about how many bytes of one shard's rows lie together in the file.
	spoolBlock = 32 << 10
	// spoolBatch and spoolBatchBytes are how many rows get their generated values together.
	spoolBatch      = 1000
	spoolBatchBytes = 1 << 20
)

// spool keeps the rows of an INSERT ... SELECT in a file without a name, as lines of COPY's text
// form, until all of them are read: the SELECT must not see them, and may need the
// conversations that they are written by. The file goes with the process.
type spool struct {
	i     *inserting
	file  *os.File
	size  int64
	left  *limits.Allowance // of the file
	batch [][][]byte        // rows that have no place yet
	held  int               // bytes of the batch
	begun bool
	index map[string]*spooled
	key   keyspace.Key
}

// spooled are the rows of one shard.
type spooled struct {
	buf    []byte
	blocks []block
}

// block is a piece of the file.
type block struct {
	at   int64
	size int
}

// newSpool returns nil if the rows cannot go by COPY: it would do something else than the INSERT.
func (i *inserting) newSpool(column func(n int) (name, typ string)) *spool {
	if i.p.Copy == "" {
		return nil
	}
	for n, c := range i.p.Columns {
		if _, typ := column(n); !copiesAs(typ, c.Type) {
			return nil
		}
	}
	for k, n := range i.p.KeyAt {
		if _, typ := column(n); !sameText(typ, i.p.Types[k]) {
			return nil
		}
	}
	return &spool{i: i, left: i.c.shared.defaults.FileAllowance(i.c.host.Settings()), index: map[string]*spooled{}, key: make(keyspace.Key, len(i.p.KeyAt))}
}

// copiesAs reports whether reading the text of a value of one type as another does what the
// assignment does: the types are the same but for their lengths, which a type's input checks and
// rounds to as the assignment does.
func copiesAs(from, to string) bool {
	bare := func(t string) string {
		at := strings.IndexByte(t, '(')
		if at < 0 {
			return t
		}
		return t[:at] + strings.TrimPrefix(t[at:], modifier(t[at:]))
	}
	from, to = bare(from), bare(to)
	switch from {
	case "bit": // the input takes a length of its own for a hint
		return false
	case "text":
		return to == "text" || to == "character varying"
	case "character varying":
		return to == "text" || to == "character varying"
	case "smallint":
		return to == "smallint" || to == "integer" || to == "bigint"
	case "integer":
		return to == "integer" || to == "bigint"
	}
	return from == to
}

func (s *spool) addBody(body []byte) error {
	row, err := wire.SplitRow(append([]byte(nil), body...), nil)
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.ProtocolViolation, "a shard sent a malformed row")
	}
	return s.add(row)
}

func (s *spool) add(row [][]byte) error {
	s.begun = true
	s.batch = append(s.batch, row)
	for _, v := range row {
		s.held += len(v)
	}
	if len(s.batch) < spoolBatch && s.held < spoolBatchBytes {
		return nil
	}
	return s.place()
}

// place gives the rows of the batch to their shards.
func (s *spool) place() error {
	p := s.i.p
	if len(p.Made) > 0 {
		if err := s.i.c.make(s.batch, p.Made); err != nil {
			return err
		}
	}
	snap := s.i.c.host.Snapshot()
	for _, row := range s.batch {
		for k, n := range p.KeyAt {
			v, err := plan.StoredKey(p.Table, k, &p.Keys[k], row[n])
			if err != nil {
				return err
			}
			s.key[k] = v
		}
		shard, unit, err := plan.Owner(snap, p.Table, s.key)
		if err != nil {
			return err
		}
		s.i.c.Ex.CountRow(snap, unit)
		own := s.index[shard]
		if own == nil {
			own = &spooled{}
			s.index[shard] = own
		}
		before := len(own.buf)
		for n, v := range row {
			if n > 0 {
				own.buf = append(own.buf, '\t')
			}
			if v == nil {
				own.buf = append(own.buf, '\\', 'N')
			} else {
				own.buf = copydata.AppendText(own.buf, v, '\t')
			}
		}
		own.buf = append(own.buf, '\n')
		if err := s.left.Take(len(own.buf) - before); err != nil {
			return err
		}
		if len(own.buf) >= spoolBlock {
			if err := s.write(own); err != nil {
				return err
			}
		}
	}
	clear(s.batch)
	s.batch, s.held = s.batch[:0], 0
	return nil
}

// write puts what was collected for a shard into the file.
func (s *spool) write(own *spooled) error {
	if s.file == nil {
		f, err := tuplestore.NamelessFile("cleave-insert-*")
		if err != nil {
			return spoolError(err)
		}
		s.file = f
	}
	if _, err := s.file.WriteAt(own.buf, s.size); err != nil {
		return spoolError(err)
	}
	own.blocks = append(own.blocks, block{s.size, len(own.buf)})
	s.size += int64(len(own.buf))
	own.buf = own.buf[:0]
	return nil
}

func spoolError(err error) error {
	return sqlstate.Wrap(err, sqlstate.IOError, "the rows of an INSERT cannot be kept in the router's folder for temporary files").
		WithHint("make room there, let the router have another (TMPDIR), or do it in several statements")
}

// copy writes the rows, to all shards at once.
func (s *spool) copy(ctx context.Context) (err error) {
	if err := s.place(); err != nil {
		return err
	}
	c := s.i.c
	for _, sh := range c.host.Snapshot().Shards() {
		if s.index[sh.Name] != nil {
			s.i.shards = append(s.i.shards, sh.Name)
		}
	}
	parts, err := c.partsOf(ctx, s.i.shards, true)
	if err != nil {
		return err
	}
	var open []*copyPart
	defer func() {
		stopCopies(open)
	}()
	for _, p := range parts {
		t, err := c.openCopy(p, s.i.p.Copy)
		if t != nil {
			open = append(open, t)
		}
		if err != nil {
			return err
		}
	}
	for at, more := 0, true; more; at++ { // a block of each shard in turn
		more = false
		for n, t := range open {
			own := s.index[s.i.shards[n]]
			if err := s.block(own, at, t); err != nil {
				return err
			}
			more = more || at < len(own.blocks)
			if err := context.Cause(c.Ctx); err != nil {
				return err
			}
			if err := t.flush(); err != nil {
				return err
			}
		}
	}
	return s.finish(open)
}

// finish ends the data of all shards, and then reads what each says.
func (s *spool) finish(open []*copyPart) error {
	for _, t := range open {
		if err := t.finish(wire.AppendEmpty(nil, wire.CopyDoneF)); err != nil {
			return err
		}
	}
	for _, t := range open {
		if _, err := t.s.Next(); err != nil {
			return notOfCopy(err)
		}
		s.i.copied += counted(t.s.tag)
	}
	return nil
}

// block puts a shard's block into what is sent to it, after the last one the rows that were not written to the file.
func (s *spool) block(own *spooled, at int, t *copyPart) error {
	if at == len(own.blocks) {
		t.buf = append(t.buf, own.buf...)
	}
	if at >= len(own.blocks) {
		return nil
	}
	b, n := own.blocks[at], len(t.buf)
	t.buf = append(t.buf, make([]byte, b.size)...)
	if _, err := s.file.ReadAt(t.buf[n:], b.at); err != nil {
		return spoolError(err)
	}
	return nil
}

// notOfCopy takes the place in a COPY out of an error: the client has sent none.
func notOfCopy(err error) error {
	se := sqlstate.As(err)
	if !strings.HasPrefix(se.Where, "COPY ") {
		return err
	}
	e := *se
	e.Where = ""
	return &e
}

func (s *spool) close() {
	if s != nil && s.file != nil {
		_ = s.file.Close() // it has no name any more
	}
}
