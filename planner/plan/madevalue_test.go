package plan

import "testing"

// TestLiterals: a value is a literal of its own, and none is NULL.
func TestLiterals(t *testing.T) {
	f := Fill{Pieces: []string{"SELECT ", "::text, ", "::inet, ", ""}, At: []int{1, 0, 1}}
	if got, want := f.Literals([][]byte{nil, []byte("it's")}), "SELECT 'it''s'::text, NULL::inet, 'it''s'"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
