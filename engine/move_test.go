package engine

import (
	"fmt"
	"testing"
)

// TestAddLoaded: a version that does not know of parts has made a table whole and left its older parts. It is whole, whatever comes first.
func TestAddLoaded(t *testing.T) {
	whole := LoadedTable{Schema: "s", Name: "t", Rows: 9, Bytes: 90}
	for _, first := range []bool{true, false} {
		var list []LoadedTable
		if first {
			list = AddLoaded(list, whole, Part{})
		}
		for _, place := range []string{"1", "2"} {
			list = AddLoaded(list, LoadedTable{Schema: "s", Name: "t", Rows: 1, Bytes: 10}, Part{Place: place, Since: "x"})
			list = AddLoaded(list, LoadedTable{Schema: "s", Name: "other", Rows: 1, Bytes: 10}, Part{Place: place, Since: "x"})
		}
		if !first {
			list = AddLoaded(list, whole, Part{})
		}
		for _, got := range list {
			want := whole
			if got.Name == "other" {
				want = LoadedTable{Schema: "s", Name: "other", Rows: 2, Bytes: 20, Parts: []Part{{Place: "1", Since: "x"}, {Place: "2", Since: "x"}}}
			}
			if len(list) != 2 || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%v: got %+v, want %+v", first, got, want)
			}
		}
	}
}
