package copydata

import (
	"encoding/binary"
	"regexp"
	"slices"
	"strconv"

	"github.com/cleavedb/cleave/sqlstate"
)

const (
	lineBlock = 16 << 10 // lines in a block of a LineMap
	// lineBytes is how much of what was sent is kept at least: more than the buffers of two sockets,
	// and so more than a shard has not read yet.
	lineBytes = 16 << 20
)

// LineMap knows which line of the client's data a line sent to a shard was. It
// keeps the last ones, about a byte for each.
type LineMap struct {
	blocks []lineRun
	last   int64 // the client's line of the last one
	Lines  int64 // of the shard
	bytes  int64 // of these lines
}

// lineRun are lines one after the other, as differences.
type lineRun struct {
	from, client int64 // the shard's and the client's line before the first
	bytes        int64 // of the lines before it
	lines        int
	deltas       []byte
}

// Add notes a record of some bytes that ends at the client's line and has n lines on the shard.
func (m *LineMap) Add(client int64, n, bytes int) {
	for ; n > 0; n-- {
		if len(m.blocks) == 0 || m.blocks[len(m.blocks)-1].lines == lineBlock {
			var reuse []byte
			for len(m.blocks) > 1 && m.bytes-m.blocks[1].bytes >= lineBytes {
				reuse = m.blocks[0].deltas[:0]
				m.blocks = slices.Delete(m.blocks, 0, 1)
			}
			m.blocks = append(m.blocks, lineRun{from: m.Lines, client: m.last, bytes: m.bytes, deltas: reuse})
		}
		r := &m.blocks[len(m.blocks)-1]
		r.deltas = binary.AppendUvarint(r.deltas, uint64(client-m.last))
		r.lines++
		m.Lines++
		m.last = client
	}
	m.bytes += int64(bytes)
}

// client returns the client's line, 0 if it is not known any more.
func (m *LineMap) client(line int64) int64 {
	for _, r := range m.blocks {
		if line <= r.from || line > r.from+int64(r.lines) {
			continue
		}
		at, deltas := r.client, r.deltas
		for range line - r.from {
			d, n := binary.Uvarint(deltas)
			at, deltas = at+int64(d), deltas[n:]
		}
		return at
	}
	return 0
}

var copyContext = regexp.MustCompile(`(?m)^(COPY .*?, line )(\d+)`)

// Translate replaces the shard's line in an error's context by the client's. It
// returns that, 0 if there is none.
func (m *LineMap) Translate(e *sqlstate.Error) (client int64) {
	at := copyContext.FindStringSubmatchIndex(e.Where)
	if at == nil {
		return 0
	}
	line, err := strconv.ParseInt(e.Where[at[4]:at[5]], 10, 64)
	if err != nil {
		return 0
	}
	is := "unknown"
	if client = m.client(line); client > 0 {
		is = strconv.FormatInt(client, 10)
	}
	e.Where = e.Where[:at[4]] + is + e.Where[at[5]:]
	return client
}
