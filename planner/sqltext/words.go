package sqltext

import (
	"strings"
)

// WordSet is the set of the words of a text.
func WordSet(text string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(text) {
		set[w] = true
	}
	return set
}
