package lint

import (
	"bytes"
	"net/url"
	"path"
	"regexp"
	"strings"
)

var (
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)(?:\s+"[^"]*")?\)`)
	mdRef     = regexp.MustCompile(`(?m)^\[[^\]]+\]:\s+(\S+)`)
	mdHeading = regexp.MustCompile(`(?m)^#{1,6}\s+(.+?)\s*#*$`)
	mdFence   = regexp.MustCompile("(?ms)^[ \t]*(```|~~~).*?^[ \t]*(```|~~~)[ \t]*$")
	mdCode    = regexp.MustCompile("`[^`\n]*`")
	mdGoFile  = regexp.MustCompile("`([A-Za-z0-9_./-]+/[A-Za-z0-9_.-]+\\.go)`")
	mdDrop    = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// checkDocs wants every page to be reachable from README.md, every link between
// files to lead somewhere, every #anchor to be a heading there, and every path of a Go file in code to be one of the repository.
func checkDocs(t *Tree, say report) {
	exists := map[string]bool{"": true, ".": true}
	for p := range t.text {
		for d := p; d != "." && d != "/"; d = path.Dir(d) {
			exists[d] = true
		}
	}
	links := map[string][]string{}
	for _, p := range t.paths() {
		if path.Ext(p) != ".md" {
			continue
		}
		text := mdFence.ReplaceAllFunc(t.text[p], blank)
		plain := mdCode.ReplaceAllFunc(text, blank)
		for _, m := range mdGoFile.FindAllSubmatchIndex(text, -1) {
			if file := string(text[m[2]:m[3]]); p != "CHANGELOG.md" && !exists[file] {
				say(p, 1+bytes.Count(text[:m[2]], []byte("\n")), "there is no file %s", file)
			}
		}
		for _, m := range append(mdLink.FindAllSubmatchIndex(plain, -1), mdRef.FindAllSubmatchIndex(plain, -1)...) {
			target := string(plain[m[2]:m[3]])
			line := 1 + bytes.Count(plain[:m[2]], []byte("\n"))
			u, err := url.Parse(target)
			if err != nil {
				say(p, line, "link %s cannot be read", target)
				continue
			}
			if u.Scheme != "" || u.Host != "" {
				continue
			}
			to := p
			if u.Path != "" {
				to = path.Join(path.Dir(p), u.Path)
			}
			if strings.HasPrefix(to, "../") || strings.HasPrefix(u.Path, "/") {
				say(p, line, "link %s leaves the repository", target)
				continue
			}
			links[p] = append(links[p], to)
			if !exists[to] && !plainFile(to) {
				say(p, line, "link %s leads nowhere", target)
				continue
			}
			if u.Fragment != "" && path.Ext(to) == ".md" && !hasAnchor(t.text[to], u.Fragment) {
				say(p, line, "link %s: %s has no such heading", target, to)
			}
		}
	}
	reached := map[string]bool{}
	queue := []string{"README.md"}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		if reached[p] {
			continue
		}
		reached[p] = true
		queue = append(queue, links[p]...)
		if index := path.Join(p, "README.md"); exists[index] { // a link to a folder shows its README
			queue = append(queue, index)
		}
	}
	for _, p := range t.paths() {
		if path.Ext(p) == ".md" && strings.HasPrefix(p, "docs/") && !reached[p] {
			say(p, 0, "no link leads here from README.md")
		}
	}
}

// plainFile are files without an extension that pages link to.
func plainFile(p string) bool {
	return p == "LICENSE" || p == "NOTICE" || p == "Makefile"
}

// blank replaces text by spaces, so that positions and lines stay.
func blank(b []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return ' '
	}, b)
}

// hasAnchor reports whether a page has a heading with that anchor, as GitHub
// makes them.
func hasAnchor(page []byte, anchor string) bool {
	for _, m := range mdHeading.FindAllSubmatch(mdFence.ReplaceAllFunc(page, blank), -1) {
		h := strings.ToLower(strings.TrimSpace(string(m[1])))
		h = strings.ReplaceAll(mdDrop.ReplaceAllString(h, ""), " ", "-")
		if h == anchor {
			return true
		}
	}
	return false
}
