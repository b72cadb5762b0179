package generate

import "strings"

// Node is a part of a statement that can be written, and perhaps made smaller.
type Node interface {
	write(b *strings.Builder)
	// visit calls f for each part that can change, this one and those below it
	// that are still there.
	visit(f func(change))
}

// change is one way to make a part smaller; do returns how to take it back.
type change struct {
	// size is how much text would go.
	size int
	do   func() (undo func())
}

// Text returns a statement's text.
func Text(n Node) string {
	var b strings.Builder
	n.write(&b)
	return b.String()
}

// word is fixed text.
type word string

func (w word) write(b *strings.Builder) { b.WriteString(string(w)) }
func (w word) visit(func(change))       {}

// seq is parts that all have to be there.
type seq []Node

func (s seq) write(b *strings.Builder) {
	for _, n := range s {
		n.write(b)
	}
}

func (s seq) visit(f func(change)) {
	for _, n := range s {
		n.visit(f)
	}
}

// optional is a part that can go.
type optional struct {
	n    Node
	gone bool
}

func maybe(n Node) *optional { return &optional{n: n} }

func (o *optional) write(b *strings.Builder) {
	if !o.gone {
		o.n.write(b)
	}
}

func (o *optional) visit(f func(change)) {
	if o.gone {
		return
	}
	f(change{len(Text(o.n)), func() func() {
		o.gone = true
		return func() { o.gone = false }
	}})
	o.n.visit(f)
}

// many is a list of which some can go.
type many struct {
	before string // written if there is any item
	sep    string
	items  []Node
	min    int
}

func list(sep string, min int, items ...Node) *many { return &many{sep: sep, items: items, min: min} }

func (m *many) write(b *strings.Builder) {
	for i, n := range m.items {
		if i == 0 {
			b.WriteString(m.before)
		} else {
			b.WriteString(m.sep)
		}
		n.write(b)
	}
}

func (m *many) visit(f func(change)) {
	if len(m.items) > m.min {
		for i := range m.items {
			f(change{len(Text(m.items[i])), func() func() {
				old := m.items
				m.items = append(append([]Node(nil), old[:i]...), old[i+1:]...)
				return func() { m.items = old }
			}})
		}
	}
	for _, n := range m.items {
		n.visit(f)
	}
}

// choice is a part that something smaller can stand for.
type choice struct {
	n       Node
	simpler []Node
}

// or returns a part that one of simpler can stand for.
func or(n Node, simpler ...Node) *choice { return &choice{n, simpler} }

func (c *choice) write(b *strings.Builder) { c.n.write(b) }

func (c *choice) visit(f func(change)) {
	size := len(Text(c.n))
	for _, s := range c.simpler {
		if less := len(Text(s)); less < size {
			f(change{size - less, func() func() {
				n, simpler := c.n, c.simpler
				c.n, c.simpler = s, nil
				for _, o := range simpler {
					if len(Text(o)) < less {
						c.simpler = append(c.simpler, o)
					}
				}
				return func() { c.n, c.simpler = n, simpler }
			}})
		}
	}
	c.n.visit(f)
}

// Shrink makes a statement smaller as long as bad holds of it, the largest parts
// first, with at most tries trials.
func Shrink(n Node, tries int, bad func(sql string) bool) {
	for progress := true; progress; {
		progress = false
		var changes []change
		n.visit(func(c change) { changes = append(changes, c) })
		for len(changes) > 0 && tries > 0 {
			best := 0
			for i := range changes {
				if changes[i].size > changes[best].size {
					best = i
				}
			}
			c := changes[best]
			changes[best] = changes[len(changes)-1]
			changes = changes[:len(changes)-1]
			undo := c.do()
			tries--
			if bad(Text(n)) {
				progress = true
				break // parts below may be gone: look anew
			}
			undo()
		}
	}
}
