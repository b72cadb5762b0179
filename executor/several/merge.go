package several

import "bytes"

// chunkSize is about how many bytes of rows one step of a merge gives.
const chunkSize = 64 << 10

// merge makes one stream of rows of several: in the order of the keys, or one
// stream after the other without keys. It holds what each stream has read ahead
// (one chunk of its connection) and one encoded key per stream.
type merge struct {
	streams []*stream
	keys    *keys
	visible int
	hidden  int
	unique  int   // so many keys decide which rows are alike; 0: all are given
	skip    int64 // rows of OFFSET that are still to be left out
	left    int64 // rows of LIMIT that may still be given; -1: any number

	begun bool
	done  bool
	at    int    // without keys: the stream that is read
	heads []head // one for each stream that has a row
	heap  []int  // indexes into heads, the smallest key first
	last  []byte // the unique part of the key of the last row
	any   bool   // there was a last row
}

// head is the next row of a stream.
type head struct {
	s   *stream
	row []byte
	key []byte // see keys.encode
	cut int    // where the unique part of the key ends
}

// step implements job.
func (j *merge) step(out []byte, rows int32) ([]byte, bool, string, error) {
	begin := len(out)
	for n := int32(0); !j.done && len(out)-begin < chunkSize && (rows <= 0 || n < rows); {
		if j.left == 0 {
			j.done = true
			break
		}
		row, err := j.next()
		if err != nil {
			return out, false, "", err
		}
		if row == nil {
			j.done = true
			break
		}
		if j.skip > 0 {
			j.skip--
			continue
		}
		out = appendRow(out, row, j.visible, j.hidden)
		n++
		if j.left > 0 {
			j.left--
		}
	}
	if !j.done || len(out) > begin {
		return out, false, "", nil
	}
	j.stop()
	return out, true, "SELECT", nil
}

// stop implements job.
func (j *merge) stop() {
	for _, s := range j.streams {
		s.stop()
	}
}

// next returns the next row, nil at the end. It is valid until the next call.
func (j *merge) next() ([]byte, error) {
	if j.keys == nil {
		for j.at < len(j.streams) {
			row, err := j.streams[j.at].next()
			if row != nil || err != nil {
				return row, err
			}
			j.at++
		}
		return nil, nil
	}
	for {
		if err := j.advance(); err != nil || len(j.heap) == 0 {
			return nil, err
		}
		h := &j.heads[j.heap[0]]
		if j.unique == 0 {
			return h.row, nil
		}
		if j.any && bytes.Equal(j.last, h.key[:h.cut]) {
			continue
		}
		j.any = true
		j.last = append(j.last[:0], h.key[:h.cut]...)
		return h.row, nil
	}
}

// advance takes the row that was given last from its stream, and orders the heap.
func (j *merge) advance() error {
	if !j.begun {
		j.begun = true
		j.heads = make([]head, len(j.streams))
		for i, s := range j.streams {
			j.heads[i].s = s
			ok, err := j.read(&j.heads[i])
			if err != nil {
				return err
			}
			if ok {
				j.heap = append(j.heap, i)
			}
		}
		for i := len(j.heap)/2 - 1; i >= 0; i-- {
			j.down(i)
		}
		return nil
	}
	if len(j.heap) == 0 {
		return nil
	}
	ok, err := j.read(&j.heads[j.heap[0]])
	if err != nil {
		return err
	}
	if !ok {
		last := len(j.heap) - 1
		j.heap[0] = j.heap[last]
		j.heap = j.heap[:last]
	}
	j.down(0)
	return nil
}

// read reads the next row of a stream and encodes its key.
func (j *merge) read(h *head) (ok bool, err error) {
	if h.row, err = h.s.next(); err != nil || h.row == nil {
		return false, err
	}
	h.key, h.cut, err = j.keys.encode(h.key[:0], h.row, j.unique)
	return err == nil, err
}

// less orders two heads; of equal keys the earlier shard's comes first.
func (j *merge) less(a, b int) bool {
	if n := bytes.Compare(j.heads[a].key, j.heads[b].key); n != 0 {
		return n < 0
	}
	return a < b
}

func (j *merge) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(j.heap) {
			return
		}
		if r := child + 1; r < len(j.heap) && j.less(j.heap[r], j.heap[child]) {
			child = r
		}
		if !j.less(j.heap[child], j.heap[i]) {
			return
		}
		j.heap[i], j.heap[child] = j.heap[child], j.heap[i]
		i = child
	}
}
