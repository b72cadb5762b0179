package lint

import (
	"bytes"
	"path"
	"regexp"
	"strings"
)

// vague are phrases that leave out the actor or the thing. They are spelled in pieces so that a search of the tree does not find this file.
// Between two words there may be the end of a line, and never that of a paragraph.
var vague = regexp.MustCompile(`(?i)\b(` + strings.NewReplacer("_", `(?:[ \t]+|[ \t]*\n[ \t]*)`, "+", "").Replace("who+ever|is_sa+id|are_sa+id|what_is_the+re") + `)\b`)

// commentMark is what a line of a comment begins with.
var commentMark = regexp.MustCompile(`(?m)^[ \t]*(//|/?\*+)`)

// checkWords wants the prose of Markdown and of comments to name who does something, and what something is.
func checkWords(t *Tree, say report) {
	look := func(file string, first int, text []byte) {
		for _, m := range vague.FindAllIndex(text, -1) {
			phrase := strings.Join(strings.Fields(string(text[m[0]:m[1]])), " ")
			say(file, first+bytes.Count(text[:m[0]], []byte("\n")), "%q leaves something out: name the actor, or the thing", strings.ToLower(phrase))
		}
	}
	for _, p := range t.paths() {
		if path.Ext(p) == ".md" {
			look(p, 1, mdCode.ReplaceAllFunc(mdFence.ReplaceAllFunc(t.text[p], blank), blank))
		}
	}
	for _, f := range t.Go {
		if f.Generated {
			continue
		}
		for _, group := range f.AST.Comments {
			text := t.text[f.Path][t.fset.Position(group.Pos()).Offset:t.fset.Position(group.End()).Offset]
			look(f.Path, t.line(group.Pos()), commentMark.ReplaceAllFunc(text, blank))
		}
	}
}
