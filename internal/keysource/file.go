package keysource

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cleavedb/cleave/sqlstate"
)

// Formats are those of files.
func Formats() []string { return []string{"csv", "tsv", "jsonl", "lines"} }

// sniffed is how much of a file is looked at to find its format, bytes.
const sniffed = 64 << 10

// file is a file or standard input.
type file struct {
	name    string
	format  string
	columns []string
	raw     *os.File
	size    int64
	done    atomic.Int64
	// Of standard input: the pump, a copy of what it gave (if there is to be a
	// second pass), and the content for the first pass, until that begins.
	pump  *pump
	spool *os.File
	first io.Reader
}

// Open opens a file; "-" is standard input, which can be read twice only if twice
// is true. format is one of [Formats], or "" to find it out by name and content.
// Errors: 58P01 if it is not there, 22P04 if it is empty or not text, 22023 for an unknown format.
func Open(path, format string, stdin io.Reader, twice bool) (Source, error) {
	if format != "" && !slices.Contains(Formats(), format) {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "there is no format %q", format).WithHint("use %s", strings.Join(Formats(), ", "))
	}
	f := &file{name: path}
	if path == "-" {
		f.name = "standard input"
		f.pump = newPump(stdin)
		if twice {
			spool, err := os.CreateTemp("", "cleave-simulate-")
			if err != nil {
				return nil, errors.Join(fmt.Errorf("no file to keep standard input in: %w", err), f.Close())
			}
			f.spool = spool
			// Without a name it is gone with the process, however that ends.
			if err := os.Remove(spool.Name()); err != nil {
				return nil, errors.Join(err, f.Close())
			}
		}
	} else {
		raw, err := os.Open(path)
		if err != nil {
			return nil, sqlstate.New(sqlstate.UndefinedFile, "%s cannot be read: %v", path, errors.Unwrap(err)).
				WithHint("--from takes a file, - for standard input, table:NAME, postgres://... with --table, or a generator such as zipf:1.1:1000000")
		}
		f.raw = raw
		st, err := raw.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if st.IsDir() {
			return nil, errors.Join(sqlstate.New(sqlstate.WrongObjectType, "%s is a folder", path).WithHint("name a file in it"), f.Close())
		}
		f.size = st.Size()
	}
	if err := f.detect(format); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// detect finds format and columns.
func (f *file) detect(format string) error {
	r, err := f.reader(context.Background())
	if err != nil {
		return err
	}
	head := make([]byte, sniffed)
	n, err := io.ReadFull(r, head)
	if err != nil && err != io.EOF && (err != io.ErrUnexpectedEOF || n == 0) {
		return f.broken(err)
	}
	head = head[:n]
	text := bytes.TrimPrefix(head, []byte(byteOrderMark))
	if len(bytes.TrimSpace(text)) == 0 {
		return bad("%s is empty", f.name).WithHint("it needs one key a line, or a header and rows")
	}
	if bytes.IndexByte(text, 0) >= 0 {
		return bad("%s is not a text file: it has zero bytes", f.name).WithHint("give CSV, TSV, JSON lines or one key a line, in UTF-8, plain or compressed with gzip")
	}
	if f.format = format; format == "" {
		f.format = guessFormat(f.name, text)
	}
	content := io.MultiReader(bytes.NewReader(head), r)
	if f.pump != nil {
		// The header is read of the head alone: the rest can be read only once.
		f.first, content = content, bytes.NewReader(head)
	}
	if f.format == "lines" {
		f.columns = []string{"key"}
		return nil
	}
	rd := f.records(content)
	if f.columns, err = rd.header(); err != nil {
		return f.at(rd, err)
	}
	return nil
}

func guessFormat(name string, text []byte) string {
	name = strings.TrimSuffix(strings.ToLower(name), ".gz")
	switch filepath.Ext(name) {
	case ".csv":
		return "csv"
	case ".tsv", ".tab":
		return "tsv"
	case ".jsonl", ".ndjson", ".json":
		return "jsonl"
	case ".txt", ".list":
		return "lines"
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	tabs, commas := bytes.Count(line, []byte("\t")), bytes.Count(line, []byte(","))
	switch {
	case bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")):
		return "jsonl"
	case tabs > 0:
		return "tsv"
	case commas > 0:
		return "csv"
	}
	return "lines"
}

func bad(format string, args ...any) *sqlstate.Error {
	return sqlstate.New(sqlstate.BadFileFormat, format, args...)
}

// broken is an error of reading, not of what was read.
func (f *file) broken(err error) error {
	if e, ok := errors.AsType[*sqlstate.Error](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, io.ErrUnexpectedEOF) {
		return bad("%s is damaged: %v", f.name, err).WithHint("gzip -t says more")
	}
	return sqlstate.Wrap(err, sqlstate.IOError, "%s cannot be read: %v", f.name, err)
}

// at is an error in a record.
func (f *file) at(rd records, err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) && !errors.As(err, new(*sqlstate.Error)) {
		return bad("%s, line %d: %v", f.name, parse.Line, parse.Err).WithHint("if it is not CSV, say what it is: --format tsv, jsonl or lines")
	}
	if e, ok := errors.AsType[*sqlstate.Error](err); ok {
		copied := *e
		if !strings.HasPrefix(e.Message, f.name) {
			copied.Message = fmt.Sprintf("%s, line %d: %s", f.name, rd.line(), e.Message)
		}
		return &copied
	}
	return f.broken(err)
}

func (f *file) Columns() []string { return f.columns }

func (f *file) Progress() (done, all int64) { return f.done.Load(), f.size }

func (f *file) Close() error {
	var errs []error
	if f.raw != nil {
		errs = append(errs, f.raw.Close())
	}
	if f.spool != nil {
		errs = append(errs, f.spool.Close())
	}
	if f.pump != nil {
		f.pump.stop()
	}
	return errors.Join(errs...)
}

const byteOrderMark = "\xef\xbb\xbf"

// reader returns the content from the beginning, decompressed.
func (f *file) reader(ctx context.Context) (io.Reader, error) {
	if f.pump != nil {
		f.pump.ctx = ctx
	}
	if f.first != nil {
		r := f.first
		f.first = nil
		return r, nil
	}
	var r io.Reader
	switch {
	case f.pump != nil && !f.pump.started:
		r = f.pump
		if f.spool != nil {
			r = io.TeeReader(r, f.spool)
		}
	case f.pump != nil && f.spool == nil:
		return nil, sqlstate.New(sqlstate.InternalError, "standard input was read already").WithHint("report this as a bug")
	default:
		from := f.raw
		if f.spool != nil {
			from = f.spool
		}
		if _, err := from.Seek(0, io.SeekStart); err != nil {
			return nil, f.broken(err)
		}
		r = from
	}
	f.done.Store(0)
	buffered := bufio.NewReaderSize(&counting{r, &f.done}, 256<<10)
	if magic, err := buffered.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, f.broken(err)
		}
		return z, nil
	}
	return buffered, nil
}

// counting counts what is read.
type counting struct {
	r    io.Reader
	done *atomic.Int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.done.Add(int64(n))
	return n, err
}

// pump reads standard input in a goroutine, because a read from a terminal or a
// pipe cannot be interrupted. After stop the goroutine ends with its next read.
type pump struct {
	ctx     context.Context
	in      io.Reader
	started bool
	blocks  chan block
	ended   chan struct{}
	now     block
}

type block struct {
	data []byte
	err  error
}

func newPump(in io.Reader) *pump {
	return &pump{ctx: context.Background(), in: in, blocks: make(chan block), ended: make(chan struct{})}
}

func (p *pump) run() {
	for {
		buf := make([]byte, 64<<10)
		n, err := p.in.Read(buf)
		select {
		case p.blocks <- block{buf[:n], err}:
		case <-p.ended:
			return
		}
		if err != nil {
			return
		}
	}
}

func (p *pump) Read(dst []byte) (int, error) {
	if !p.started {
		p.started = true
		go p.run()
	}
	for len(p.now.data) == 0 {
		if p.now.err != nil {
			return 0, p.now.err
		}
		select {
		case p.now = <-p.blocks:
		case <-p.ctx.Done():
			return 0, p.ctx.Err()
		}
	}
	n := copy(dst, p.now.data)
	p.now.data = p.now.data[n:]
	return n, nil
}

func (p *pump) stop() { close(p.ended) }
