package copydata

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// split returns the records of data that comes in pieces of the sizes.
func split(s Splitter, data []byte, size int) (records []string, lines int, err error) {
	var rest []byte
	for at := 0; at <= len(data); {
		eof := at == len(data)
		if !eof {
			n := min(size, len(data)-at)
			rest = append(rest, data[at:at+n]...)
			at += n
		}
		for {
			r, ok, err := s.Next(rest, eof)
			if err != nil {
				return records, lines, err
			}
			if !ok {
				break
			}
			records = append(records, string(rest[:r.Content]))
			lines += r.Lines
			rest = rest[r.Size:]
			if r.Last {
				return records, lines, nil
			}
		}
		if eof {
			break
		}
	}
	return records, lines, nil
}

// FuzzSplit: however the data is cut into messages, the records are the same, and
// the quick way finds what the careful one does.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"a\tb\nc\td\n", "a\r\nb\r\n", "a\rb\r", "\"a\nb\",c\n\"d\"\"e\"\n", "a\\\nb\n\\.\nc\n", "x\\.\n", "\"a\\\"b\nc\"\n", "a\nb\r\n", "\\N\t\\\\\n\n", "\"\r\n\"\r\nb\r\n"} {
		f.Add([]byte(s), false, uint8(1))
		f.Add([]byte(s), true, uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, csv bool, size uint8) {
		s := Splitter{CSV: csv, Quote: '"', Escape: '"', EndMark: true}
		if size%2 == 0 {
			s.Escape = '\\'
		}
		whole, lines, err := split(s, data, len(data)+1)
		parts, lines2, err2 := split(s, data, int(size)+1)
		if (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() || lines != lines2 || len(whole) != len(parts) {
			t.Fatalf("%q: %q %v, in pieces %q %v", data, whole, err, parts, err2)
		}
		total := 0
		for i := range whole {
			if whole[i] != parts[i] {
				t.Fatalf("%q: record %d is %q, in pieces %q", data, i, whole[i], parts[i])
			}
			total += len(whole[i])
		}
		if total > len(data) {
			t.Fatalf("%q: %d bytes in records", data, total)
		}
	})
}

// TestSplitRandom is FuzzSplit with texts of the bytes that matter.
func TestSplitRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const alphabet = "ab\n\n\r\"\\.,\t"
	for range 20000 {
		data := make([]byte, r.IntN(24))
		for i := range data {
			data[i] = alphabet[r.IntN(len(alphabet))]
		}
		s := Splitter{CSV: r.IntN(2) == 0, Quote: '"', Escape: "\"\\"[r.IntN(2)], EndMark: true}
		whole, lines, err := split(s, data, len(data)+1)
		parts, lines2, err2 := split(s, data, 1+r.IntN(5))
		if (err == nil) != (err2 == nil) || lines != lines2 || !slices.Equal(whole, parts) {
			t.Fatalf("%q: %q %v, in pieces %q %v", data, whole, err, parts, err2)
		}
	}
}

func TestLineMap(t *testing.T) {
	var m LineMap
	client := int64(0)
	want := map[int64]int64{}
	for i := int64(1); i <= 6*lineBlock; i++ {
		client += 1 + i%300
		m.Add(client, 1, 10)
		want[i] = client
	}
	for i := int64(1); i <= 6*lineBlock; i += 997 {
		if got := m.client(i); got != want[i] {
			t.Fatalf("line %d is %d, want %d", i, got, want[i])
		}
	}
	if m.client(0) != 0 || m.client(6*lineBlock+1) != 0 {
		t.Error("a line that was not sent is known")
	}
	for range 3 * lineBytes / 30 {
		client++
		m.Add(client, 1, 30)
	}
	// What a shard may not have read yet is known, and not much more.
	oldest := m.Lines - lineBytes/30
	if m.client(1) != 0 || m.client(m.Lines) != client || m.client(oldest) != client-lineBytes/30 || m.client(oldest-2*lineBlock) != 0 {
		t.Errorf("%d blocks of %d bytes", len(m.blocks), m.bytes)
	}
}

// TestTuples finds tuples of the binary form, cut anywhere.
func TestTuples(t *testing.T) {
	one := []byte{0, 2, 0, 0, 0, 1, 'x', 0xff, 0xff, 0xff, 0xff}
	for i := range one {
		if n, end, err := Tuple(one[:i]); n != 0 || end || err != nil {
			t.Errorf("%d bytes: %d %v %v", i, n, end, err)
		}
	}
	if n, _, err := Tuple(append(bytes.Clone(one), 9)); n != len(one) || err != nil {
		t.Error(n, err)
	}
	for _, bad := range [][]byte{{0xff, 0xfe}, {0, 1, 0xff, 0xff, 0xff, 0xfe}} {
		if _, _, err := Tuple(bad); err == nil {
			t.Errorf("%x was taken", bad)
		}
	}
}
