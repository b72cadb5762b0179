package several

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/several/sortkey"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
)

// sorting is what is known about the order of a plan's rows: fields are the
// columns of its text; mergeable, whether the values' bytes are enough to compare them.
type sorting struct {
	fields    []wire.Field
	mergeable bool
}

// keysOf returns the keys of a plan, nil if its order is PostgreSQL's to know.
func (c *runner) keysOf(ctx context.Context, e *execution, parts []*txn.Participant, q request) (*sortkey.Keys, error) {
	plan := e.st.Plan
	s := c.shared.sorting(plan)
	if s == nil {
		d, err := c.describeOn(parts[0], plan.Text, q.oids)
		if err != nil {
			return nil, err
		}
		s = &sorting{fields: d.fields}
		k, ok := sortkey.New(plan.Combine.Order, d.fields, []int16{1})
		if ok {
			if s.mergeable, err = c.bytewise(e, parts, k, len(d.fields), q); err != nil {
				return nil, err
			}
		}
		c.shared.putSorting(plan, s)
	}
	if !s.mergeable {
		return nil, nil
	}
	k, ok := sortkey.New(plan.Combine.Order, s.fields, q.results)
	if !ok || restyled(k, s.fields, q.results, c.host.Settings()) {
		// A text from which the value cannot be read: PostgreSQL sorts the values
		// and prints them for the client.
		return nil, nil
	}
	return k, nil
}

// restyled reports whether the session's settings print one of the keys so that its
// text does not give the value back: rounded, or in another style than the encoders read.
func restyled(k *sortkey.Keys, fields []wire.Field, formats []int16, s *executor.Settings) bool {
	style, _ := dateStyle(s)
	for _, at := range k.At() {
		if wire.FormatAt(formats, at) != 0 {
			continue
		}
		switch fields[at].TypeOID {
		case pgoid.Float4, pgoid.Float8:
			v := s.Text("extra_float_digits")
			if n, ok := limits.Number(v, false); v != "" && (!ok || n < 1) {
				return true
			}
		case pgoid.Date, pgoid.Timestamp, pgoid.Timestamptz:
			if style != "iso" {
				return true
			}
		case pgoid.Bytea:
			if v := s.Text("bytea_output"); v != "" && !strings.EqualFold(v, "hex") {
				return true
			}
		}
	}
	return false
}

// bytewise reports whether the texts among the keys are sorted by their bytes on
// every part: by a collation that says so, or by the database's if that does.
func (c *runner) bytewise(e *execution, parts []*txn.Participant, k *sortkey.Keys, columns int, q request) (bool, error) {
	plan := e.st.Plan
	var ask []string
	for _, at := range k.Collated() {
		ask = append(ask, "pg_catalog.pg_collation_for(f.c"+strconv.Itoa(at+1)+")::text")
	}
	if len(ask) == 0 {
		return true, nil
	}
	if !e.st.ReadOnly {
		return false, nil // the text locks rows
	}
	collates := func(p *txn.Participant) bool { return c.Can(p.Shard).Collations }
	if !slices.ContainsFunc(parts, collates) {
		return !strings.Contains(strings.ToUpper(plan.Text), "COLLATE"), nil
	}
	if slices.ContainsFunc(parts, func(p *txn.Participant) bool { return !collates(p) }) {
		return false, nil
	}
	names := make([]string, columns)
	for i := range names {
		names[i] = "c" + strconv.Itoa(i+1)
	}
	q.text = "SELECT " + strings.Join(ask, ", ") + " FROM (SELECT 1) AS one LEFT JOIN (" + plan.Text + ") AS f(" + strings.Join(names, ", ") + ") ON false"
	q.results, q.portion, q.named, q.proved = nil, 0, false, false
	s, err := c.send(parts[0], q)
	if err != nil {
		return false, err
	}
	row, err := s.Next()
	if err != nil || row == nil {
		return false, err
	}
	byBytes, ofDatabase := bytewiseCollations(row, len(ask))
	if err := s.rest(); err != nil || !byBytes || !ofDatabase {
		return err == nil && byBytes, err
	}
	for _, p := range parts {
		ok, err := c.databaseBytewise(p)
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// bytewiseCollations reads the names of collations. ofDatabase: one is the database's, of which more has to be known.
func bytewiseCollations(row []byte, n int) (byBytes, ofDatabase bool) {
	for i := range n {
		v, isNull := sortkey.Column(row, i)
		switch name := strings.TrimPrefix(string(v), "pg_catalog."); {
		case isNull:
			return false, false
		case name == `"default"`:
			ofDatabase = true
		case name != `"C"` && name != `"POSIX"` && name != "ucs_basic" && name != "pg_c_utf8":
			return false, false
		}
	}
	return true, ofDatabase
}

// rest reads the answer to its end.
func (s *stream) rest() error {
	for {
		if row, err := s.Next(); row == nil || err != nil {
			return err
		}
	}
}

// databaseBytewise reports whether the default collation of a shard's database is
// that of bytes. It is asked once for each shard.
func (c *runner) databaseBytewise(p *txn.Participant) (bool, error) {
	if ok, known := c.shared.collation(p.Shard); known {
		return ok, nil
	}
	res, err := c.Exec(p, "SELECT datcollate, pg_catalog.to_jsonb(d)->>'datlocprovider', COALESCE(pg_catalog.to_jsonb(d)->>'datlocale', pg_catalog.to_jsonb(d)->>'daticulocale', '') "+
		"FROM pg_catalog.pg_database d WHERE datname = pg_catalog.current_database()")
	if err != nil || len(res.Rows) != 1 {
		return false, err
	}
	collate, provider, locale := res.Rows[0][0].String, res.Rows[0][1].String, res.Rows[0][2].String
	ok := false
	switch provider {
	case "", "c", "d":
		switch strings.ToLower(strings.ReplaceAll(collate, "-", "")) {
		case "c", "posix", "c.utf8":
			ok = true
		}
	case "b":
		ok = locale == "C" || strings.EqualFold(locale, "C.UTF-8") || strings.EqualFold(locale, "C.UTF8")
	}
	c.shared.putCollation(p.Shard, ok)
	return ok, nil
}

func (s *Shared) sorting(p *plan.Plan) *sorting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sortings[p]
}

func (s *Shared) putSorting(p *plan.Plan, o *sorting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sortings == nil || len(s.sortings) >= describedMax {
		s.sortings = map[*plan.Plan]*sorting{}
	}
	s.sortings[p] = o
}

func (s *Shared) collation(shard string) (ok, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok, known = s.collations[shard]
	return ok, known
}

func (s *Shared) putCollation(shard string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.collations == nil || len(s.collations) >= describedMax {
		s.collations = map[string]bool{}
	}
	s.collations[shard] = ok
}
