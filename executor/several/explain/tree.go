package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// PostgreSQL prints a plan as JSON, YAML or XML from one tree of properties (explain.c). So the shards are asked for JSON, their
// trees are put into one, and that is printed as the client wants it.

// property is a name with its value: a scalar as JSON, a group or a list.
type property struct {
	name  string
	value any // json.RawMessage, group, list
}

type group []property

type list []any // of values as in property

// get returns a value of a group, nil if there is none.
func (g group) get(name string) any {
	for _, p := range g {
		if p.name == name {
			return p.value
		}
	}
	return nil
}

// number is a value that is a number.
func (g group) number(name string) (n float64, ok bool) {
	raw, ok := g.get(name).(json.RawMessage)
	return n, ok && json.Unmarshal(raw, &n) == nil
}

// say is a scalar property.
func say(name string, v any) property { return property{name, scalar(v)} }

// millis is a time in milliseconds, as EXPLAIN prints it.
func millis(name string, ms float64) property {
	return property{name, json.RawMessage(fmt.Sprintf("%.3f", ms))}
}

// parsePlan reads what EXPLAIN (FORMAT JSON) of one statement answers.
func parsePlan(text []byte) (group, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := parseValue(d)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = fmt.Errorf("something follows the plan")
		}
	}
	if l, ok := v.(list); err == nil && ok && len(l) == 1 {
		if g, ok := l[0].(group); ok {
			return g, nil
		}
	}
	return nil, sqlstate.Wrap(err, sqlstate.ProtocolViolation, "a shard's plan is not what EXPLAIN (FORMAT JSON) answers")
}

func parseValue(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		g := group{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := parseValue(d)
			if err != nil {
				return nil, err
			}
			g = append(g, property{name.(string), v}) // a key of an object is a text
		}
		_, err = d.Token()
		return g, err
	case json.Delim('['):
		l := list{}
		for d.More() {
			v, err := parseValue(d)
			if err != nil {
				return nil, err
			}
			l = append(l, v)
		}
		_, err = d.Token()
		return l, err
	}
	return scalar(t), nil
}

// scalar is a text, number or boolean as JSON, with <, > and & as they are.
func scalar(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return json.RawMessage("null") // texts and finite numbers have a JSON form
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// printPlan prints the tree in a format of EXPLAIN's: "json", "yaml" or "xml".
func printPlan(format string, tree group) string {
	var b strings.Builder
	switch format {
	case "yaml":
		b.WriteString("- ")
		yamlGroup(&b, tree, 1)
		return b.String()[:b.Len()-1]
	case "xml":
		b.WriteString("<explain xmlns=\"http://www.postgresql.org/2009/explain\">\n  <Query>\n")
		xmlGroup(&b, tree, 2)
		b.WriteString("  </Query>\n</explain>")
		return b.String()
	}
	jsonValue(&b, list{tree}, 0)
	return b.String()
}

func jsonValue(b *strings.Builder, v any, depth int) {
	between := func(open, shut string, n int, one func(i int)) {
		b.WriteString(open)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("\n" + strings.Repeat("  ", depth+1))
			one(i)
		}
		b.WriteString("\n" + strings.Repeat("  ", depth) + shut)
	}
	switch v := v.(type) {
	case group:
		between("{", "}", len(v), func(i int) {
			b.Write(scalar(v[i].name))
			b.WriteString(": ")
			jsonValue(b, v[i].value, depth+1)
		})
	case list:
		if len(v) > 0 && !slices.ContainsFunc(v, func(e any) bool { _, ok := e.(json.RawMessage); return !ok }) {
			inline(b, v)
			return
		}
		between("[", "]", len(v), func(i int) {
			if e, ok := v[i].(list); ok {
				inline(b, e)
				return
			}
			jsonValue(b, v[i], depth+1)
		})
	case json.RawMessage:
		b.Write(v)
	}
}

// inline prints a list of scalars on one line.
func inline(b *strings.Builder, l list) {
	b.WriteByte('[')
	for i, e := range l {
		if i > 0 {
			b.WriteString(", ")
		}
		if raw, ok := e.(json.RawMessage); ok {
			b.Write(raw)
		}
	}
	b.WriteByte(']')
}

// yamlGroup prints the properties, the first of which stands where the text ends.
func yamlGroup(b *strings.Builder, g group, depth int) {
	for i, p := range g {
		if i > 0 {
			b.WriteString(strings.Repeat("  ", depth))
		}
		b.WriteString(p.name + ": ")
		yamlValue(b, p.value, depth)
	}
}

func yamlValue(b *strings.Builder, v any, depth int) {
	in := "\n" + strings.Repeat("  ", depth+1)
	switch v := v.(type) {
	case group:
		b.WriteString(in)
		yamlGroup(b, v, depth+1)
	case list:
		for _, e := range v {
			b.WriteString(in + "- ")
			if g, ok := e.(group); ok {
				var own strings.Builder
				yamlGroup(&own, g, depth+2)
				b.WriteString(strings.TrimSuffix(own.String(), "\n"))
				continue
			}
			switch e := e.(type) {
			case list:
				inline(b, e)
			case json.RawMessage:
				b.Write(e)
			}
		}
		b.WriteByte('\n')
	case json.RawMessage:
		b.Write(v)
		b.WriteByte('\n')
	}
}

// xmlItems are the elements of the lists that EXPLAIN prints; those of others are Item.
var xmlItems = map[string]string{"Plans": "Plan", "Triggers": "Trigger", "Workers": "Worker", "Full-sort Groups": "Full-sort Group", "Grouping Sets": "Grouping Set", "Group Keys": "Group Key", "Hash Keys": "Hash Key"}

func xmlGroup(b *strings.Builder, g group, depth int) {
	for _, p := range g {
		xmlValue(b, p.name, p.value, depth)
	}
}

func xmlValue(b *strings.Builder, name string, v any, depth int) {
	indent := strings.Repeat("  ", depth)
	tag := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, name)
	switch v := v.(type) {
	case group:
		b.WriteString(indent + "<" + tag + ">\n")
		xmlGroup(b, v, depth+1)
		b.WriteString(indent + "</" + tag + ">\n")
	case list:
		item := xmlItems[name]
		if item == "" {
			item = "Item"
		}
		b.WriteString(indent + "<" + tag + ">\n")
		for _, e := range v {
			xmlValue(b, item, e, depth+1)
		}
		b.WriteString(indent + "</" + tag + ">\n")
	case json.RawMessage:
		text := string(v)
		var s string
		if json.Unmarshal(v, &s) == nil && strings.HasPrefix(text, `"`) {
			text = xmlText.Replace(s)
		}
		b.WriteString(indent + "<" + tag + ">" + text + "</" + tag + ">\n")
	}
}

var xmlText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\r", "&#x0d;")

// sumPlans adds the costs and rows of the children to a node that has them as its parts.
func sumPlans(node group, children list) group {
	for _, name := range []string{"Startup Cost", "Total Cost", "Plan Rows", "Plan Width", "Actual Rows"} {
		all, n := 0.0, 0
		for _, c := range children {
			v, ok := c.(group).number(name)
			if !ok {
				continue
			}
			switch n++; name {
			case "Startup Cost":
				if n == 1 || v < all {
					all = v
				}
			case "Plan Width":
				all = max(all, v)
			case "Actual Rows":
				loops, ok := c.(group).number("Actual Loops")
				if !ok {
					loops = 1
				}
				all += v * loops
			default:
				all += v
			}
		}
		if n > 0 && n == len(children) && !slices.ContainsFunc(node, func(p property) bool { return p.name == name }) {
			node = append(node, say(name, all))
		}
	}
	return node
}
