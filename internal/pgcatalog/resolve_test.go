package pgcatalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// asked is a question about types, and what a server answers.
type asked struct {
	sql     string // an expression
	name    string
	in      []uint32
	infix   bool // an operator
	code    string
	chosen  uint32 // OID of the function or operator, 0 for a cast
	returns uint32
}

// server is a PostgreSQL of one version that is asked.
type server struct {
	t    *testing.T
	c    Catalog
	conn *pgx.Conn
	r    *rand.Rand
}

// TestResolver compares what calls, operators and casts mean with what servers of every version make of them.
func TestResolver(t *testing.T) {
	for _, install := range pgtest.VersionsOfRun(t) {
		t.Run(strconv.Itoa(install.Major), func(t *testing.T) {
			conn, err := pgx.Connect(context.Background(), pgtest.DatabaseOn(t, pgtest.NewServerOf(t, install, nil)))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			s := &server{t, Of(install.Major), conn, rand.New(rand.NewPCG(uint64(install.Major), 1))}
			s.calls()
			s.operators()
			s.casts()
			s.common()
		})
	}
}

// literal is a value of a type: it is NULL, so that only types count.
func (s *server) literal(oid uint32) string {
	if oid == oidUnknown {
		return "NULL"
	}
	return `NULL::pg_catalog."` + s.c.Type(oid).Name + `"`
}

var someTypes = []uint32{16, 17, 20, 21, 23, 25, 26, 114, 700, 701, 705, 790, 869, 1007, 1009, 1042, 1043, 1082, 1083, 1114, 1184, 1186, 1266, 1560, 1700, 2205, 2950, 3802, 3904, 3910, 4451, 19, 18, 22, 600, 1185}

// concrete is a type that a parameter takes, 0 if values of none can be written.
func (s *server) concrete(param uint32) uint32 {
	of := func(list ...uint32) uint32 { return list[s.r.IntN(len(list))] }
	switch param {
	case oidAny, oidAnyElement, oidAnyNonArray, oidAnyCompatible, oidAnyCompatNonArray:
		return of(23, 25, 1082)
	case oidAnyArray, oidAnyCompatArray:
		return of(1007, 1009, 1182)
	case oidAnyRange, oidAnyCompatRange:
		return of(3904, 3912)
	case oidAnyMultirange, oidAnyCompatMultirang:
		return of(4451, 4535)
	}
	if t := s.c.Type(param); t != nil && t.Kind != 'p' {
		return param
	}
	return 0
}

// variants are lists of arguments like those that a function takes.
func (s *server) variants(params []uint32) [][]uint32 {
	var base []uint32
	for _, p := range params {
		c := s.concrete(p)
		if c == 0 {
			return nil
		}
		base = append(base, c)
	}
	out := [][]uint32{base}
	changed := func(change func(l []uint32) []uint32) { out = append(out, change(slices.Clone(base))) }
	changed(func(l []uint32) []uint32 { return slices.Repeat([]uint32{oidUnknown}, len(l)) })
	changed(func(l []uint32) []uint32 {
		for i := range l {
			l[i] = someTypes[s.r.IntN(len(someTypes))]
		}
		return l
	})
	for i := range base {
		changed(func(l []uint32) []uint32 { l[i] = oidUnknown; return l })
		changed(func(l []uint32) []uint32 { l[i] = someTypes[s.r.IntN(len(someTypes))]; return l })
	}
	if len(base) > 0 {
		changed(func(l []uint32) []uint32 { return l[1:] })
		changed(func(l []uint32) []uint32 { return l[:len(l)-1] })
		changed(func(l []uint32) []uint32 { return append(l, l[len(l)-1]) })
	}
	return out
}

func (s *server) calls() {
	var all []asked
	seen := map[string]bool{}
	for f := range s.c.AllFunctions() {
		if f.Kind == 'p' || s.r.IntN(3) > 0 && f.Variadic == 0 {
			continue
		}
		for _, in := range s.variants(f.Args) {
			args := make([]string, len(in))
			for i, a := range in {
				args[i] = s.literal(a)
			}
			a := asked{name: f.Name, in: in, sql: `pg_catalog."` + f.Name + `"(` + strings.Join(args, ", ") + ")"}
			if f.Kind == 'w' {
				a.sql += " OVER ()"
			}
			if !seen[a.sql] {
				seen[a.sql] = true
				all = append(all, a)
			}
		}
	}
	s.ask(all)
	wrong, right := 0, 0
	for _, a := range all {
		k, ambiguous := s.c.Call(a.name, a.in, false)
		if msg := s.judge(a, k, ambiguous); msg != "" {
			if wrong++; wrong <= 40 {
				s.t.Errorf("%s: %s", a.sql, msg)
			}
		} else {
			right++
		}
	}
	s.t.Logf("%d calls as the server, %d not", right, wrong)
	if right < 3000 {
		s.t.Errorf("only %d calls", right)
	}
}

// judge says how a match differs from what the server took.
func (s *server) judge(a asked, k *Match, ambiguous bool) string {
	switch {
	case a.code == "42883" && (k != nil || ambiguous):
		return fmt.Sprintf("no such function for the server, not so here: %+v", k)
	case a.code == "42725" && !ambiguous:
		return fmt.Sprintf("ambiguous for the server, not so here: %+v", k)
	case a.code != "" && a.code != "42804" && a.code != "42P38":
		return "" // another fault, which comes after the choice
	case a.code == "42883" || a.code == "42725":
		return ""
	case k == nil:
		return fmt.Sprintf("the server (%s) takes %d, here there is none", a.code, a.chosen)
	case k.Cast != nil:
		if a.code != "" || a.chosen != 0 {
			return fmt.Sprintf("a cast here, the server (%s) takes %d", a.code, a.chosen)
		}
		return ""
	}
	var declared, oid uint32
	if k.Function != nil {
		declared, oid = k.Function.Result, k.Function.OID
	} else {
		declared, oid = k.Operator.Result, k.Operator.OID
	}
	_, returns, ok := s.c.Bind(k.Args, a.in, declared)
	switch {
	case a.code != "" && ok:
		return "types that the server (" + a.code + ") cannot tell are told here"
	case a.code == "" && !ok:
		return "the types are not told here"
	case a.code == "" && oid != a.chosen && oid != 0:
		return fmt.Sprintf("the server takes %d, here it is %d", a.chosen, oid)
	case a.code == "" && returns != a.returns:
		return fmt.Sprintf("the server returns %d, here it is %d", a.returns, returns)
	}
	return ""
}

// ask has the server parse each expression, and reads what it took from the trees that it keeps of views.
func (s *server) ask(all []asked) {
	ctx := context.Background()
	var good []*asked
	for i := range all {
		if all[i].code = s.parse("SELECT (" + all[i].sql + ") IS NULL"); all[i].code == "" {
			good = append(good, &all[i])
		}
	}
	for part := range slices.Chunk(good, 400) {
		var b strings.Builder
		for i, a := range part {
			fmt.Fprintf(&b, ", (%s) IS NULL AS c%d", a.sql, i)
		}
		if _, err := s.conn.Exec(ctx, "DROP VIEW IF EXISTS pg_temp.asked; CREATE TEMP VIEW asked AS SELECT "+b.String()[2:]); err != nil {
			s.t.Fatal(err)
		}
		var tree string
		if err := s.conn.QueryRow(ctx, "SELECT ev_action::text FROM pg_rewrite WHERE ev_class = 'pg_temp.asked'::regclass").Scan(&tree); err != nil {
			s.t.Fatal(err)
		}
		entries := strings.Split(tree, "{TARGETENTRY :expr {NULLTEST :arg {")[1:]
		if len(entries) != len(part) {
			s.t.Fatalf("%d expressions have %d entries", len(part), len(entries))
		}
		for i, e := range entries {
			part[i].chosen, part[i].returns = chosen(e)
		}
	}
}

// chosen reads the function or operator, and the type of its result, from an expression's tree.
func chosen(tree string) (oid, returns uint32) {
	kind, _, _ := strings.Cut(tree, " ")
	field := func(name string) uint32 {
		_, rest, _ := strings.Cut(tree, " :"+name+" ")
		n, _, _ := strings.Cut(rest, " ")
		return uint32(number(n))
	}
	switch kind {
	case "FUNCEXPR":
		return field("funcid"), field("funcresulttype")
	case "AGGREF":
		return field("aggfnoid"), field("aggtype")
	case "WINDOWFUNC":
		return field("winfnoid"), field("wintype")
	case "OPEXPR":
		return field("opno"), field("opresulttype")
	}
	return 0, 0
}

// parse returns the SQLSTATE with which the server refuses a statement.
func (s *server) parse(sql string) string {
	_, err := s.conn.PgConn().Prepare(context.Background(), "", sql, nil)
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return ""
}

func (s *server) operators() {
	var all []asked
	seen := map[string]bool{}
	for o := range s.c.AllOperators() {
		params := []uint32{o.Left, o.Right}
		if o.Left == 0 {
			params = params[1:]
		}
		for _, in := range s.variants(params) {
			if len(in) != len(params) || s.r.IntN(2) > 0 {
				continue
			}
			a := asked{name: o.Name, in: in, infix: true, sql: o.Name + " " + s.literal(in[len(in)-1])}
			if len(in) == 2 {
				a.sql = s.literal(in[0]) + " " + a.sql
			}
			if !seen[a.sql] {
				seen[a.sql] = true
				all = append(all, a)
			}
		}
	}
	s.ask(all)
	wrong := 0
	for _, a := range all {
		var o *Operator
		var ambiguous bool
		if len(a.in) == 1 {
			o, ambiguous = s.c.Prefix(a.name, a.in[0])
		} else {
			o, ambiguous = s.c.Infix(a.name, a.in[0], a.in[1])
		}
		var k *Match
		if o != nil {
			if k = (&Match{Operator: o, Args: []uint32{o.Left, o.Right}}); len(a.in) == 1 {
				k.Args = k.Args[1:]
			}
		}
		if msg := s.judge(a, k, ambiguous); msg != "" {
			if wrong++; wrong <= 40 {
				s.t.Errorf("%s: %s", a.sql, msg)
			}
		}
	}
	s.t.Logf("%d operators as the server, %d not", len(all)-wrong, wrong)
	if len(all) < 1000 {
		s.t.Errorf("only %d operators", len(all))
	}
}

// casts asks for pairs of types whether one becomes the other, when it is written and when it is stored.
func (s *server) casts() {
	var list []uint32
	var columns []string
	for t := range s.c.Types() {
		if e := s.c.Type(t.Elem); t.Kind != 'p' && (e == nil || e.Kind != 'p') {
			list = append(list, t.OID)
			columns = append(columns, fmt.Sprintf(`c%d pg_catalog."%s"`, t.OID, t.Name))
		}
	}
	if _, err := s.conn.Exec(context.Background(), "CREATE TEMP TABLE stored ("+strings.Join(columns, ", ")+")"); err != nil {
		s.t.Fatal(err)
	}
	for range 1200 {
		from, to := list[s.r.IntN(len(list))], list[s.r.IntN(len(list))]
		if s.r.IntN(3) == 0 { // a pair that is in pg_cast
			all := slices.Collect(s.c.Casts())
			k := all[s.r.IntN(len(all))]
			from, to = k.Source, k.Target
		}
		explicit := "SELECT " + s.literal(from) + `::pg_catalog."` + s.c.Type(to).Name + `"`
		if got, want := s.c.CanCoerce(from, to, Explicit), s.parse(explicit) == ""; got != want {
			s.t.Errorf("%s: %v, the server %v", explicit, got, want)
		}
		stored := fmt.Sprintf("INSERT INTO pg_temp.stored (c%d) VALUES (%s)", to, s.literal(from))
		if got, want := s.c.CanCoerce(from, to, Assignment), s.parse(stored) == ""; got != want {
			s.t.Errorf("%s: %v, the server %v", stored, got, want)
		}
	}
}

// common asks for the type that values of several have in common.
func (s *server) common() {
	for range 800 {
		in := make([]uint32, 2+s.r.IntN(3))
		texts := make([]string, len(in))
		for i := range in {
			in[i] = someTypes[s.r.IntN(len(someTypes))]
			if i > 0 && s.r.IntN(2) == 0 { // of one category
				for k := range 20 {
					if s.c.Category(in[i]) == s.c.Category(in[0]) {
						break
					}
					in[i] = someTypes[(k*7+s.r.IntN(len(someTypes)))%len(someTypes)]
				}
			}
			texts[i] = s.literal(in[i])
		}
		sql := "SELECT COALESCE(" + strings.Join(texts, ", ") + ")"
		d, err := s.conn.PgConn().Prepare(context.Background(), "", sql, nil)
		typ, other := s.c.Common(in)
		for _, t := range in {
			if other == 0 && !s.c.CanCoerce(t, typ, Implicit) {
				other = t
			}
		}
		switch {
		case (err == nil) != (other == 0):
			s.t.Errorf("%s: %d, %d, the server %v", sql, typ, other, err)
		case err == nil && d.Fields[0].DataTypeOID != typ:
			s.t.Errorf("%s: %d, the server %d", sql, typ, d.Fields[0].DataTypeOID)
		}
	}
}
