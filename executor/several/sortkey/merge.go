package sortkey

import "bytes"

// Rows are the rows of one shard, in the order of the keys.
type Rows interface {
	// Next returns the body of the next DataRow, nil at the end. It is valid until the next call.
	Next() ([]byte, error)
}

// Merge makes one sequence of rows of several: in the order of the keys, or one after the other without keys. It holds
// what each has read ahead (one chunk of its connection) and one encoded key for each.
type Merge struct {
	rows   []Rows
	keys   *Keys
	unique int // so many keys decide which rows are alike; 0: all are given

	begun bool
	at    int    // without keys: the rows that are read
	heads []head // one for each that has a row
	heap  []int  // indexes into heads, the smallest key first
	last  []byte // the unique part of the key of the last row
	any   bool   // there was a last row
}

// NewMerge merges rows. Of rows whose first unique keys are alike only the first is given; 0 gives all.
func NewMerge(rows []Rows, keys *Keys, unique int) *Merge {
	return &Merge{rows: rows, keys: keys, unique: unique}
}

// head is the next row of a sequence.
type head struct {
	rows Rows
	row  []byte
	key  []byte // see Keys.Encode
	cut  int    // where the unique part of the key ends
}

// Next returns the next row, nil at the end. It is valid until the next call.
func (j *Merge) Next() ([]byte, error) {
	if j.keys == nil {
		for j.at < len(j.rows) {
			row, err := j.rows[j.at].Next()
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

// advance takes the row that was given last from its sequence, and orders the heap.
func (j *Merge) advance() error {
	if !j.begun {
		j.begun = true
		j.heads = make([]head, len(j.rows))
		for i, r := range j.rows {
			j.heads[i].rows = r
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

// read reads the next row of a sequence and encodes its key.
func (j *Merge) read(h *head) (ok bool, err error) {
	if h.row, err = h.rows.Next(); err != nil || h.row == nil {
		return false, err
	}
	h.key, h.cut, err = j.keys.Encode(h.key[:0], h.row, j.unique)
	return err == nil, err
}

// less orders two heads; of equal keys the earlier shard's comes first.
func (j *Merge) less(a, b int) bool {
	if n := bytes.Compare(j.heads[a].key, j.heads[b].key); n != 0 {
		return n < 0
	}
	return a < b
}

func (j *Merge) down(i int) {
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
