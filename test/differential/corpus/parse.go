package corpus

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/test/differential/compare"
)

//go:embed *.sql schema/*.sql
var files embed.FS

// Topic is one file.
type Topic struct {
	Name    string
	Engines []string // on which the topic is run
	Items   []Item
}

// Item is a statement, or several that are run one after the other and given up
// together when one is refused.
type Item struct {
	Statements []compare.Statement
	Options    compare.Options
	Only       string // the engine it is for; "": all of the topic's
	Line       int
	// Parameters: the statement has parameters, so it needs the extended protocol.
	Parameters bool
}

// Schema is a file that makes tables: what each side has to run, in order.
type Schema struct {
	Name    string
	Engines []string
	// Steps are in order; see Step.
	Steps []Step
}

// Step is a statement of a schema.
type Step struct {
	SQL string
	// Router, Plain: which side runs it. Rows are written on the plain side only,
	// and carried over.
	Router, Plain bool
}

var both = []string{"postgres", "sqlite"}

// Topics reads all topics, sorted by name.
func Topics() ([]Topic, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}
	var out []Topic
	for _, n := range names {
		b, err := files.ReadFile(n)
		if err != nil {
			return nil, err
		}
		t, err := ParseTopic(strings.TrimSuffix(n, ".sql"), string(b))
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// Schemas reads all schemas, sorted by name.
func Schemas() ([]Schema, error) {
	names, err := fs.Glob(files, "schema/*.sql")
	if err != nil {
		return nil, err
	}
	var out []Schema
	for _, n := range names {
		b, err := files.ReadFile(n)
		if err != nil {
			return nil, err
		}
		s, err := ParseSchema(strings.TrimSuffix(path.Base(n), ".sql"), string(b))
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

var cleaveOption = regexp.MustCompile(`(?i)\s+WITH\s*\(\s*cleave\.[^)]*\)`)

// ParseSchema reads a schema's text.
func ParseSchema(name, text string) (Schema, error) {
	t, err := ParseTopic(name, text)
	if err != nil {
		return Schema{}, err
	}
	s := Schema{Name: name, Engines: t.Engines}
	for _, it := range t.Items {
		for _, st := range it.Statements {
			word := strings.ToUpper(strings.Fields(st.SQL)[0])
			plain := Plain(st.SQL)
			switch {
			case strings.Contains(st.SQL, "cleave.") && word == "SELECT":
				s.Steps = append(s.Steps, Step{SQL: st.SQL, Router: true})
			case word == "INSERT" || word == "UPDATE" || word == "SELECT":
				s.Steps = append(s.Steps, Step{SQL: st.SQL, Plain: true})
			case plain != st.SQL:
				s.Steps = append(s.Steps, Step{SQL: st.SQL, Router: true}, Step{SQL: plain, Plain: true})
			default:
				s.Steps = append(s.Steps, Step{SQL: st.SQL, Router: true, Plain: true})
			}
		}
	}
	return s, nil
}

// Plain is a statement without Cleave's options, for a plain database.
func Plain(sql string) string { return cleaveOption.ReplaceAllString(sql, "") }

// parser reads one file.
type parser struct {
	topic Topic
	line  int
	begun bool // a statement was read: what follows is no header

	item    Item
	each    []list // of foreach, for the next item
	params  [][]*string
	types   []uint32
	inBlock bool
}

type list struct {
	name   string
	values []string
}

// ParseTopic reads a topic's text.
func ParseTopic(name, text string) (Topic, error) {
	p := &parser{topic: Topic{Name: name, Engines: both}}
	var st strings.Builder
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		p.line = i + 1
		line := lines[i]
		if st.Len() == 0 && strings.TrimSpace(line) == "" {
			continue
		}
		if st.Len() == 0 && strings.HasPrefix(line, "--") {
			if err := p.directive(strings.TrimSpace(line[2:])); err != nil {
				return Topic{}, fmt.Errorf("%s.sql:%d: %w", name, p.line, err)
			}
			continue
		}
		if st.Len() == 0 {
			if !p.inBlock || len(p.item.Statements) == 0 {
				p.item.Line = p.line
			}
		} else {
			st.WriteByte('\n')
		}
		st.WriteString(line)
		sql := st.String()
		if !complete(sql) {
			continue
		}
		st.Reset()
		sql = strings.TrimSuffix(strings.TrimSpace(sql), ";")
		data := ""
		if strings.HasPrefix(strings.ToUpper(sql), "COPY") && strings.Contains(strings.ToUpper(sql), "FROM STDIN") {
			var b strings.Builder
			for i++; i < len(lines) && lines[i] != `\.`; i++ {
				b.WriteString(lines[i] + "\n")
			}
			data = b.String()
		}
		p.statement(sql, data)
	}
	if st.Len() > 0 {
		return Topic{}, fmt.Errorf("%s.sql:%d: a statement without its end", name, p.line)
	}
	if p.inBlock {
		return Topic{}, fmt.Errorf("%s.sql:%d: a block without its end", name, p.line)
	}
	return p.topic, nil
}

// complete reports whether a text ends with a semicolon that ends a statement.
func complete(sql string) bool {
	if !strings.HasSuffix(strings.TrimSpace(sql), ";") {
		return false
	}
	for i := 0; i < len(sql); i++ {
		switch c := sql[i]; {
		case c == '\'' || c == '"':
			end := strings.IndexByte(sql[i+1:], c)
			if end < 0 {
				return false
			}
			i += end + 1
		case c == '$':
			tag := dollar.FindString(sql[i:])
			if tag == "" || i > 0 && (sql[i-1] == '_' || sql[i-1] >= '0' && sql[i-1] <= '9') {
				continue
			}
			end := strings.Index(sql[i+len(tag):], tag)
			if end < 0 {
				return false
			}
			i += len(tag) + end + len(tag) - 1
		case strings.HasPrefix(sql[i:], "--"):
			end := strings.IndexByte(sql[i:], '\n')
			if end < 0 {
				return false
			}
			i += end
		}
	}
	return true
}

var dollar = regexp.MustCompile(`^\$[A-Za-z_]*\$`)

func (p *parser) directive(text string) error {
	word, rest, ok := strings.Cut(text, ":")
	rest = strings.TrimSpace(rest)
	switch {
	case word == "engines" && ok && !p.begun:
		p.topic.Engines = strings.Fields(rest)
	case word == "only" && ok:
		p.item.Only = rest
	case word == "order" && ok && rest == "any":
		p.item.Options.Order.Any = true
	case word == "order" && ok:
		for _, f := range strings.Split(rest, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(f))
			if err != nil || n < 1 {
				return fmt.Errorf("order: any, or numbers of columns, not %q", rest)
			}
			p.item.Options.Order.Columns = append(p.item.Options.Order.Columns, n-1)
		}
	case text == "loose":
		p.item.Options.Loose = true
	case text == "messages":
		p.item.Options.Messages = true
	case text == "anyerror":
		p.item.Options.AnyError = true
	case text == "shape":
		p.item.Options.Shape = true
	case strings.HasPrefix(word, "foreach ") && ok:
		l := list{name: strings.TrimPrefix(word, "foreach ")}
		for _, v := range strings.Split(" "+rest+" ", " | ") {
			l.values = append(l.values, strings.TrimSpace(v))
		}
		p.each = append(p.each, l)
	case word == "params" && ok:
		var row []*string
		for _, v := range strings.Split(rest, " | ") {
			v = strings.TrimSpace(v)
			if v == `\N` {
				row = append(row, nil)
			} else {
				row = append(row, &v)
			}
		}
		p.params = append(p.params, row)
	case word == "types" && ok:
		for _, v := range strings.Fields(rest) {
			n, err := strconv.ParseUint(v, 10, 32)
			if err != nil {
				return fmt.Errorf("types: OIDs, not %q", v)
			}
			p.types = append(p.types, uint32(n))
		}
	case text == "block":
		p.inBlock = true
	case text == "end":
		if !p.inBlock {
			return fmt.Errorf("end of no block")
		}
		p.inBlock = false
		p.flush()
	}
	return nil // everything else is a comment
}

func (p *parser) statement(sql, data string) {
	p.begun = true
	p.item.Statements = append(p.item.Statements, compare.Statement{SQL: sql, Data: data})
	if !compare.Ordered(sql) {
		p.item.Options.Order.Any = true
	}
	if !p.inBlock {
		p.flush()
	}
}

// flush adds the item, once for each combination of foreach and params.
func (p *parser) flush() {
	items := []Item{p.item}
	for _, l := range p.each {
		var next []Item
		for _, it := range items {
			for _, v := range l.values {
				c := it
				c.Statements = slices.Clone(it.Statements)
				for i := range c.Statements {
					c.Statements[i].SQL = strings.ReplaceAll(c.Statements[i].SQL, "${"+l.name+"}", v)
					c.Statements[i].Data = strings.ReplaceAll(c.Statements[i].Data, "${"+l.name+"}", v)
				}
				next = append(next, c)
			}
		}
		items = next
	}
	for _, it := range items {
		if len(p.params) == 0 {
			p.topic.Items = append(p.topic.Items, it)
			continue
		}
		it.Parameters = true
		for _, row := range p.params {
			for _, mode := range []compare.Mode{compare.Text, compare.Binary} {
				c := it
				c.Statements = slices.Clone(it.Statements)
				for i := range c.Statements {
					c.Statements[i].Mode, c.Statements[i].Params, c.Statements[i].ParamTypes = mode, row, p.types
				}
				p.topic.Items = append(p.topic.Items, c)
			}
		}
	}
	p.item, p.each, p.params, p.types = Item{}, nil, nil, nil
}
