// Package lint makes the architecture a failing build: which package may import
// which, and the habits that a reader of the code can rely on. It reads source
// text only, so it needs neither network nor compiled packages.
//
// The rules are in [Check]. The table of rooms is in rooms.go and is the same
// as the one in docs/architecture.md; a package that is in no row is refused,
// so a new room begins with a line in both.
package lint
