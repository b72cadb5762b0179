package tuplestore

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestStore finds each row again, of all sizes, in memory and in the file, while rows are added.
func TestStore(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, first := range []int64{1, 500} {
		k := New(first)
		k.Spill(&limits.Allowance{Rows: math.MaxInt64, Bytes: math.MaxInt64})
		defer k.Close()
		var all []wire.Frame
		for range 3000 {
			size := r.IntN(200)
			if r.IntN(100) == 0 {
				size = r.IntN(400 << 10)
			}
			f := wire.AppendDataRow(nil, [][]byte{fmt.Appendf(nil, "%d", len(all)), bytes.Repeat([]byte("v"), size)})
			if room, err := k.Add(f); err != nil || !room {
				t.Fatal(room, err)
			}
			all = append(all, f)
			at := r.Int64N(int64(len(all)))
			from, frames, err := k.Around(first + at)
			if err != nil {
				t.Fatal(err)
			}
			if i := first + at - from; i < 0 || i >= int64(len(frames)) || !bytes.Equal(frames[i], all[at]) {
				t.Fatalf("row %d of %d is another one", at, len(all))
			}
			if len(frames) > groupRows {
				t.Fatalf("%d rows are read together", len(frames))
			}
		}
		if k.file == nil || len(k.mem) > memoryMax+(512<<10) {
			t.Errorf("%d bytes are in memory", len(k.mem))
		}
	}
	small := New(1)
	row := wire.AppendDataRow(nil, [][]byte{make([]byte, 1000)})
	n := 0
	for ; n < 1000; n++ {
		room, err := small.Add(row)
		if err != nil {
			t.Fatal(err)
		}
		if !room {
			break
		}
	}
	if n == 0 || n*len(row) > memoryMax || small.file != nil {
		t.Errorf("%d rows were kept without a file", n)
	}
	bound := New(1)
	bound.Spill(&limits.Allowance{Rows: 2, Bytes: 1 << 20})
	for range 2 {
		if _, err := bound.Add(row); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := bound.Add(row); sqlstate.CodeOf(err) != sqlstate.ConfigurationLimit {
		t.Errorf("the third row: %v", err)
	}
}
