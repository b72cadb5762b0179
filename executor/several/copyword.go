package several

import (
	"bytes"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several/copydata"
	"github.com/cleavedb/cleave/executor/timeinput"
	"github.com/cleavedb/cleave/planner/datetime"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// copyWords replaces words for the time (now, today, ...) in the data of a COPY, which each shard
// would read by its own clock.
type copyWords struct {
	fields  *copydata.Fields // Want says which fields may be read as times, by their place in columns
	columns []*shardmap.Column
	now     string            // the transaction's time, "" while nothing else depends on it
	known   map[string][]byte // by type and word
	plain   map[string]bool   // user-defined types that read no times
	hot     bool              // the data at hand may have a word
	// oddMarks: letters of the words are quotes or escapes of the data.
	oddMarks bool
}

// newCopyWords returns nil if no column of the data can be read as a time.
func newCopyWords(p *plan.CopyPlan) *copyWords {
	if p.Binary {
		return nil
	}
	w := &copyWords{fields: &copydata.Fields{Format: &p.CopyFormat}, known: map[string][]byte{}, plain: map[string]bool{}}
	w.oddMarks = p.CSV && bytes.ContainsAny([]byte{p.Quote | 0x20, p.Escape | 0x20}, "nowtdaymres")
	at := 0
	add := func(c *shardmap.Column) {
		if alone, inside := datetime.MayRead(c.OID); alone || inside {
			for len(w.fields.Want) < at {
				w.fields.Want = append(w.fields.Want, -1)
			}
			w.fields.Want = append(w.fields.Want, len(w.columns))
			w.columns = append(w.columns, c)
			w.fields.ForceNull = append(w.fields.ForceNull, plan.Forced(p.ForceNull, c.Name))
			w.fields.ForceNotNull = append(w.fields.ForceNotNull, plan.Forced(p.ForceNotNull, c.Name))
		}
		at++
	}
	if len(p.Columns) == 0 {
		for i := range p.Table.Columns {
			if !p.Table.Columns[i].Computed {
				add(&p.Table.Columns[i])
			}
		}
	}
	for _, name := range p.Columns {
		c := shardmap.Column{Name: name}
		for i := range p.Table.Columns {
			if p.Table.Columns[i].Name == name {
				c = p.Table.Columns[i]
			}
		}
		add(&c)
	}
	if len(w.columns) == 0 {
		return nil
	}
	return w
}

// mayHaveWord reports whether now, today, tomorrow or yesterday may be in data, in letters of any case. It is
// run on all data of a COPY into a table with times: every word has a w behind "no" or "rro", or a y behind "da". There
// may be marks between the letters that a reader takes out: of the format, of arrays, of rows.
func (w *copyWords) mayHaveWord(b []byte) bool {
	return w.oddMarks || w.endsWord(b, 'w', 'o', 'n', 'r') || w.endsWord(b, 'W', 'o', 'n', 'r') || w.endsWord(b, 'y', 'a', 'd', 'd') || w.endsWord(b, 'Y', 'a', 'd', 'd') ||
		!w.fields.Format.CSV && hasNumbered(b)
}

// endsWord looks for a letter behind another one behind one of two.
func (w *copyWords) endsWord(b []byte, last, before, one, two byte) bool {
	for at := 0; ; {
		i := bytes.IndexByte(b[at:], last)
		if i < 0 {
			return false
		}
		at += i + 1
		c, i := w.letterBefore(b, at-1)
		if c != before {
			continue
		}
		if c, _ = w.letterBefore(b, i); c == one || c == two {
			return true
		}
	}
}

// letterBefore is the byte before a place, and where it is, as a small letter if it is one; marks do not count.
func (w *copyWords) letterBefore(b []byte, at int) (byte, int) {
	p := w.fields.Format
	for at--; at >= 0; at-- {
		if c := b[at]; c != '\\' && c != '"' && (!p.CSV || c != p.Quote && c != p.Escape) {
			return c | 0x20, at
		}
	}
	return 0, 0
}

// hasNumbered reports whether a letter may be written by its number: \x6e, \156.
func hasNumbered(b []byte) bool {
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 || i+1 == len(b) {
			return false
		}
		if b[i+1] == 'x' || b[i+1] == '1' {
			return true
		}
		b = b[i+2:]
	}
}

// wordless returns a record with times in place of words, nil if it has none. Errors: 0A000 for words inside of something else.
func (j *copyIn) wordless(rec []byte) ([]byte, error) {
	w := j.words
	if !w.mayHaveWord(rec) {
		return nil, nil
	}
	k := w.fields
	k.Begin()
	var out []byte
	done := 0
	for at, field := 0, 0; field < len(k.Want) && at >= 0; field++ {
		from := at
		var value []byte
		var ok bool
		value, at, ok = k.Value(rec, at, k.Want[field])
		if !ok {
			return nil, nil // the shard says what is wrong
		}
		i := k.Want[field]
		if i < 0 || value == nil || !datetime.HasSpecial(string(value)) {
			continue
		}
		to := at - 1
		if at < 0 {
			to = len(rec)
		}
		if k.Format.HasDefault && string(rec[from:to]) == k.Format.Default {
			continue
		}
		time, err := j.wordValue(w.columns[i], string(value))
		if err != nil {
			return nil, err
		}
		if time == nil {
			continue
		}
		out = append(out, rec[done:from]...)
		if k.Format.CSV {
			out = copydata.AppendCSV(out, time, k.Format, true)
		} else {
			out = copydata.AppendText(out, time, k.Format.Delimiter)
		}
		done = to
	}
	if out == nil {
		return nil, nil
	}
	return append(out, rec[done:]...), nil
}

// wordValue is what a text with a word for the time means in a column; nil if it is a plain text.
func (j *copyIn) wordValue(c *shardmap.Column, text string) ([]byte, error) {
	w := j.words
	if w.plain[c.Type] {
		return nil, nil
	}
	word := strings.ToLower(strings.TrimSpace(text))
	if v, ok := w.known[c.Type+" "+word]; ok {
		return v, nil
	}
	if err := j.ask.begin(); err != nil {
		return nil, err
	}
	one := func(sql string) (string, bool, error) {
		res, err := j.ask.conn.Exec("SAVEPOINT cleave_ask; " + sql)
		if err != nil {
			if j.ask.conn.Broken() || j.c.Ctx.Err() != nil {
				return "", false, j.ask.failed(err)
			}
			if _, err := j.ask.conn.Exec("ROLLBACK TO cleave_ask"); err != nil {
				return "", false, j.ask.failed(err)
			}
			return "", false, nil
		}
		if len(res.Rows) != 1 || len(res.Rows[0]) != 1 {
			return "", false, nil
		}
		return res.Rows[0][0].String, true, nil
	}
	alone, _ := datetime.MayRead(c.OID)
	if !alone {
		category, ok, err := one("SELECT typcategory FROM pg_catalog.pg_type WHERE oid = " + executor.QuoteLiteral(c.Type) + "::pg_catalog.regtype")
		if err != nil {
			return nil, err
		}
		switch {
		case ok && strings.Contains(timeinput.NoTimes, category):
			w.plain[c.Type] = true
			return nil, nil
		case ok && category == "D":
			alone = true // a domain
		}
	}
	if !alone || !datetime.IsSpecial(text) {
		return nil, sqlstate.Refusal("CLV-0601", "a value of column %s has a word for the time inside, which each shard could read by its own clock", quote(c.Name)).
			WithHint("Give the time itself.")
	}
	clock := "pg_catalog.now()"
	if w.now != "" {
		clock = executor.QuoteLiteral(w.now) + "::pg_catalog.timestamptz"
	}
	value, ok, err := one("SELECT pg_catalog.to_jsonb(" + wordExpr(clock, word) + "::" + c.Type + ") #>> '{}'")
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, nil // no word of this type
	}
	w.known[c.Type+" "+word] = []byte(value)
	return []byte(value), nil
}

// wordExpr is what a word means, clock being the time.
func wordExpr(clock, word string) string {
	switch word {
	case "today":
		return clock + "::pg_catalog.date"
	case "tomorrow":
		return "(" + clock + "::pg_catalog.date + 1)"
	case "yesterday":
		return "(" + clock + "::pg_catalog.date - 1)"
	}
	return clock
}
