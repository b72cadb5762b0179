package sqltext

import (
	"slices"
	"unicode/utf8"

	"github.com/cleavedb/cleave/internal/sqlguard"
)

// placeMax bounds the words that are compared, of each text: an error's place is worth no more.
const placeMax = 1000

// Place is the character, from 1, in the client's text of what stands at character pos of the text sent
// in its place, 0 if it is not in it. Words before the first and after the last difference stand for themselves, those between
// by the longest sequence of words that both texts have.
func Place(sent string, pos int, client string) int {
	s, c := sqlguard.Tokens(sent), sqlguard.Tokens(client)
	at := len(sent)
	for i := range sent {
		if pos--; pos == 0 {
			at = i
			break
		}
	}
	n := slices.IndexFunc(s, func(t sqlguard.Token) bool { return t.Start <= at && at < t.End })
	if n < 0 {
		return 0
	}
	within := at - s[n].Start
	same := func(i, j int) bool { return sent[s[i].Start:s[i].End] == client[c[j].Start:c[j].End] }
	from := 0
	for from < len(s) && from < len(c) && same(from, from) {
		from++
	}
	tail := 0
	for tail < len(s)-from && tail < len(c)-from && same(len(s)-1-tail, len(c)-1-tail) {
		tail++
	}
	found := -1
	switch rows, cols := len(s)-from-tail, len(c)-from-tail; {
	case n < from:
		found = n
	case n >= len(s)-tail:
		found = n - len(s) + len(c)
	case rows > placeMax || cols > placeMax:
		return 0
	default:
		// longest[i][j]: of the words from i and j on.
		longest := make([][]int16, rows+1)
		for i := range longest {
			longest[i] = make([]int16, cols+1)
		}
		for i := rows - 1; i >= 0; i-- {
			for j := cols - 1; j >= 0; j-- {
				if longest[i][j] = max(longest[i+1][j], longest[i][j+1]); same(from+i, from+j) {
					longest[i][j] = max(longest[i][j], 1+longest[i+1][j+1])
				}
			}
		}
		for i, j := 0, 0; i < rows && j < cols; {
			switch {
			case same(from+i, from+j) && longest[i][j] == 1+longest[i+1][j+1]:
				if from+i == n {
					found = from + j
				}
				i, j = i+1, j+1
			case longest[i+1][j] >= longest[i][j+1]:
				i++
			default:
				j++
			}
		}
	}
	if found < 0 {
		return 0
	}
	return utf8.RuneCountInString(client[:c[found].Start+within]) + 1
}
