package planner

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
)

// A string that PostgreSQL reads as a time may be a word for the time of the
// transaction: WHERE at < 'now', VALUES ('today'). Each shard has a transaction of its
// own, so that where the string's type is certain it becomes a cast, which is known to
// depend on the time (ClockLiteral).

// wordTypes are the types that know such words, by OID.
var wordTypes = map[uint32]string{oidDate: "date", oidTime: "time", oidTimestamp: "timestamp", oidTimestmpz: "timestamptz", oidTimetz: "timetz"}

const (
	oidTime   = 1083
	oidTimetz = 1266
)

// TimeWord reports whether a text is one of the words alone, in any case, with blanks around it.
func TimeWord(s string) bool {
	if len(s) < 3 || len(s) > 64 {
		return false
	}
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "now", "today", "tomorrow", "yesterday":
		return true
	}
	return false
}

// zoneNames are what may stand beside such a word in a time, in lower case: zones without a slash (pg_timezone_abbrevs and
// pg_timezone_names have them), and what the reader of times skips.
var zoneNames = wordSet(`am pm z t zulu utc uct gmt ut allballs at on dst mon monday tue tues tuesday wed weds wednesday thu thur thurs thursday fri friday sat saturday sun sunday
		est edt cst cdt mst mdt pst pdt akst akdt hst hdt ast adt nst ndt brt brst art clt clst pet bot wet west cet cest met mest eet eest msk msd sast eat cat wat ist pkt npt bst bdt ict wib wita wit
		hkt sgt pht jst kst awst acst acdt aest aedt nzst nzdt nzt chast fjt universal cuba egypt eire iran israel jamaica japan libya navajo poland portugal prc roc rok singapore turkey hongkong
		ad bc d dow doy epoch h infinity isodow isoyear j jd m mm s y iceland kwajalein nz gb factory greenwich cet met mst hst est est5edt cst6cdt mst7mdt pst8pdt
		acsst act acwst aesst aft almst almt amst amt anast anat arst awsst azost azot azst azt bdst bnt bort bra btt cadt cast cct cetdst chadt chat chut ckt
		cot cxt davt ddut easst east eetdst egst egt fet fjst fkst fkt fnst fnt galt gamt gest get gft gilt gyt idt iot irkst irkt irt jayt kdt kgst kgt kost
		krast krat lhdt lhst ligt lint lkt localtime magst magt mart mawt mesz metdst mez mht mmt mpt must mut mvt myt nft novst novt nut omsst omst petst
		pett pgt pkst pmdt pmst pont posixrules pwt pyst pyt ret sadt sct su taht tft tjt tkt tmt tot trut tvt ulast ulat uyst uyt uzst uzt vet vlast vlat
		volt vut w wadt wakt wast wdt wetdst wft wgst wgt xjt yakst yakt yapt yekst yekt`)

// wordSet is the set of the words of a text.
func wordSet(text string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(text) {
		set[w] = true
	}
	return set
}

// HasTimeWord reports whether a text has one of the words so that a type of times, or one made of such types
// (an array, a range, a row), would read it as such: alone, beside a time of day or a zone, or between the
// punctuation of such values.
func HasTimeWord(s string) bool {
	if strings.Contains(s, `\u00`) { // of JSON
		s = numbered.ReplaceAllStringFunc(s, func(n string) string {
			c, _ := strconv.ParseUint(n[2:], 16, 8)
			return string(rune(c))
		})
	}
	return hasTimeWordAs(s) || strings.ContainsAny(s, `"\`) && hasTimeWordAs(unquoted.Replace(s)) // {n\ow}
}

var numbered = regexp.MustCompile(`\\u00[4-7][0-9a-fA-F]`)

var unquoted = strings.NewReplacer(`"`, "", `\`, "")

func hasTimeWordAs(s string) bool {
	for i := 0; i < len(s); i++ {
		switch s[i] | 0x20 {
		case 'n', 't', 'y':
		default:
			continue
		}
		if i > 0 && wordy(s[i-1]) {
			continue
		}
		end := i
		for end < len(s) && wordy(s[end]) {
			end++
		}
		if (end-i == 3 || end-i == 5 || end-i == 8 || end-i == 9) && timeWord(s[i:end]) && timely(s, i, end) {
			return true
		}
		i = end
	}
	return false
}

func letter(c byte) bool { return wordy(c) || c == '_' }

// wordy reports whether a byte is of a word where times are read: PostgreSQL skips marks, '_' too.
func wordy(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80 }

func digit(c byte) bool { return c >= '0' && c <= '9' }

func timeWord(s string) bool {
	switch strings.ToLower(s) {
	case "now", "today", "tomorrow", "yesterday":
		return true
	}
	return false
}

// timely reports whether what stands around the word at s[from:to], up to the next punctuation of arrays, ranges
// and rows, can be of a time.
func timely(s string, from, to int) bool {
	const around = "{}[](),\"\\"
	from = strings.LastIndexAny(s[:from], around) + 1
	if i := strings.IndexAny(s[to:], around); i >= 0 {
		to += i
	} else {
		to = len(s)
	}
	for i := from; i < to; {
		if !letter(s[i]) {
			i++
			continue
		}
		end := i
		for end < to && (letter(s[end]) || s[end] == '/') {
			end++
		}
		if !posixZone(s[end:to]) && !timelyName(s[i:end]) {
			return false
		}
		i = end
	}
	return true
}

// posixZone reports whether letters are a zone (foo+3) with what follows them.
func posixZone(rest string) bool {
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, "+"), "-")
	return rest != "" && digit(rest[0])
}

// timelyName reports whether letters are a zone's name, or words that may stand in a time, with marks between them.
func timelyName(name string) bool {
	return strings.Contains(name, "/") || !slices.ContainsFunc(strings.Split(strings.ToLower(name), "_"), func(w string) bool { return w != "" && !timeWord(w) && !zoneNames[w] })
}

// reads says how a type reads a text that has one of the words.
type reads int

const (
	readsUnsure reads = iota // perhaps as a time: arrays, ranges, user-defined types
	readsText                // as anything but a time
	readsTime
)

// readsOf is that of a type by its OID, 0 if that is not certain.
func readsOf(oid uint32) reads {
	switch {
	case wordTypes[oid] != "":
		return readsTime
	case oid == 0 || oid >= firstUserOID:
		return readsUnsure
	}
	switch oid {
	case 1115, 1182, 1183, 1185, 1270, // arrays of times
		3908, 3909, 3910, 3911, 3912, 3913, 4533, 4534, 4535, 6152, 6153, 6155, // ranges and multiranges of times
		2249, 2287, 2276, 2277, 2283, 3831, 5078, 5079, 5080: // record, and types that stand for others
		return readsUnsure
	}
	return readsText
}

// MayReadTime reports whether a type reads such a text as a time, or may do so: alone, as a type of times, or inside.
func MayReadTime(oid uint32) (alone, inside bool) {
	return readsOf(oid) == readsTime, readsOf(oid) == readsUnsure
}

// readsType is that of a type by its name.
func (ty *typer) readsType(n *pg.TypeName) reads {
	names := sqltree.Strings(n.GetNames())
	if len(names) == 0 || n.Setof || n.PctType || !(len(names) == 2 && names[0] == "pg_catalog" || len(names) == 1 && !ty.hidden()) {
		return readsUnsure
	}
	switch name := names[len(names)-1]; {
	case strings.HasSuffix(name, "range") && name != "int4range" && name != "int8range" && name != "numrange":
	case slices.Contains(slices.Collect(maps.Values(wordTypes)), name):
		if len(n.ArrayBounds) == 0 {
			return readsTime
		}
	case serverdependent.WithoutOID[name] || serialTypes[name] != "" || name == "jsonpath" || name == "regclass":
		return readsText
	}
	return readsUnsure
}

// timed returns a string literal that is read as a type as the cast to that type, if it
// has one of the words; else n.
func timed(n *pg.Node, oid uint32) *pg.Node {
	typ, s := wordTypes[oid], n.GetAConst().GetSval()
	if s == nil || !HasTimeWord(s.Sval) {
		return n
	}
	if typ == "" {
		made, ok := madeOfTimes[oid]
		if !ok {
			return n
		}
		cast := sqltree.CastNode(n, strings.TrimSuffix(made, "[]"), nil)
		if made != cast.GetTypeCast().TypeName.Names[1].GetString_().Sval {
			cast.GetTypeCast().TypeName.ArrayBounds = []*pg.Node{{Node: &pg.Node_Integer{Integer: &pg.Integer{Ival: -1}}}}
		}
		return cast
	}
	cast := sqltree.CastNode(n, typ, nil)
	if word, _ := sqltree.ClockLiteral(cast.GetTypeCast()); word == "" && TimeWord(s.Sval) {
		return n // 'today' is no time of day
	}
	return cast
}

// madeOfTimes are the types whose values are made of times, but for multiranges.
var madeOfTimes = map[uint32]string{1182: "date[]", 1183: "time[]", 1270: "timetz[]", 1115: "timestamp[]", 1185: "timestamptz[]", 3912: "daterange", 3908: "tsrange", 3910: "tstzrange"}

// hasTimeWord reports whether a tree has one of the words as a string of its own.
func hasTimeWord(m proto.Message) bool {
	found := false
	sqltree.Inspect(m, func(m proto.Message) bool {
		if c, ok := m.(*pg.A_Const); ok && c.GetSval() != nil {
			found = found || HasTimeWord(c.GetSval().Sval)
		}
		return !found
	})
	return found
}

// inputWords say how special date/time inputs ('now') in what is bound are read, as far as the types beside
// them are known. They may change the tree, of which one shard alone needs nothing then.
type inputWords struct {
	*typer

	p     *Planner
	texts *severalTexts
}

// comparedWords makes casts of the words that an expression compares with times.
func (in *inputWords) comparedWords(e *pg.A_Expr, sc *scope) {
	if !hasTimeWordIn(e) {
		return
	}
	switch e.Kind {
	case pg.A_Expr_Kind_AEXPR_OP, pg.A_Expr_Kind_AEXPR_DISTINCT, pg.A_Expr_Kind_AEXPR_NOT_DISTINCT, pg.A_Expr_Kind_AEXPR_NULLIF:
		switch sqltree.Operator(e) {
		case "=", "<>", "!=", "<", ">", "<=", ">=", "-":
			in.pairWords(&e.Lexpr, &e.Rexpr, sc)
			return
		}
		if op := sqltree.Operator(e); op == "@>" || op == "<@" || op == "&&" { // a text beside an array or a range is read as another one
			for _, p := range [][2]**pg.Node{{&e.Lexpr, &e.Rexpr}, {&e.Rexpr, &e.Lexpr}} {
				if oid := in.typeOf(*p[0], sc); madeOfTimes[oid] != "" {
					*p[1] = timed(*p[1], oid)
				}
			}
		}
		in.texts.plainWords(in.readsAs(e.Lexpr, sc), e.Rexpr)
		in.texts.plainWords(in.readsAs(e.Rexpr, sc), e.Lexpr)
	case pg.A_Expr_Kind_AEXPR_OP_ANY, pg.A_Expr_Kind_AEXPR_OP_ALL:
		for oid, made := range madeOfTimes {
			if typ := wordTypes[in.wordType(e.Lexpr, sc)]; typ != "" && made == typ+"[]" {
				e.Rexpr = timed(e.Rexpr, oid)
			}
		}
		in.texts.plainWords(in.readsAs(e.Lexpr, sc), e.Rexpr)
		in.texts.plainWords(in.readsAs(e.Rexpr, sc), e.Lexpr)
		if elements := e.Rexpr.GetAArrayExpr().GetElements(); elements != nil {
			in.texts.plainWords(in.readsAs(e.Lexpr, sc), elements...)
		}
	case pg.A_Expr_Kind_AEXPR_IN, pg.A_Expr_Kind_AEXPR_BETWEEN, pg.A_Expr_Kind_AEXPR_NOT_BETWEEN, pg.A_Expr_Kind_AEXPR_BETWEEN_SYM, pg.A_Expr_Kind_AEXPR_NOT_BETWEEN_SYM:
		items := e.Rexpr.GetList().GetItems()
		how := in.readsAs(e.Lexpr, sc)
		if e.Lexpr.GetAConst() != nil {
			how = in.readsAll(items, sc)
			in.texts.plainWords(how, e.Lexpr)
		}
		for i, n := range items {
			in.texts.plainWords(how, n)
			in.rowWords(e.Lexpr, n, sc)
			items[i] = timed(n, in.wordType(e.Lexpr, sc))
		}
	}
}

// hasTimeWordIn is hasTimeWord of what an operator stands between.
func hasTimeWordIn(e *pg.A_Expr) bool {
	return e.Lexpr != nil && hasTimeWord(e.Lexpr) || e.Rexpr != nil && hasTimeWord(e.Rexpr)
}

// commonWords makes casts of the words beside which there are times in what gives one of several
// values: COALESCE(at, 'now').
func (in *inputWords) commonWords(sc *scope, of ...**pg.Node) {
	var all []*pg.Node
	found := false
	for _, n := range of {
		s := uncollated(*n).GetAConst().GetSval()
		found = found || s != nil && HasTimeWord(s.Sval)
		all = append(all, *n)
	}
	if !found {
		return
	}
	oid, how := in.commonType(all, sc), in.readsAll(all, sc)
	for _, n := range of {
		in.texts.plainWords(how, *n)
		*n = timed(*n, oid)
	}
}

// pointers are the places of a list's nodes.
func pointers(list []*pg.Node) []**pg.Node {
	out := make([]**pg.Node, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// storedWords makes casts of the words that are assigned to columns of times.
func (in *inputWords) storedWords(v *pg.RangeVar, list []*pg.Node) {
	t := in.relation(v).table
	if t == nil {
		return
	}
	multi := false
	for _, n := range list {
		if r := n.GetResTarget(); r != nil && len(r.Indirection) > 0 {
			in.texts.plainWords(readsOf(keyColumnOrUnknown(t, r.Name).OID), r.Val)
		} else if r != nil {
			from := assigned(r.Val)
			in.texts.plainWords(readsOf(keyColumnOrUnknown(t, r.Name).OID), from)
			to := in.timedIn(from, keyColumnOrUnknown(t, r.Name))
			if to == from {
				continue
			}
			if multi = multi || from != r.Val; !multi {
				r.Val = to
			}
		}
	}
	if !multi {
		return
	}
	for _, n := range list {
		r := n.GetResTarget() // SET (a, b) = (x, y) is SET a = x, b = y
		if r.Val = assigned(r.Val); len(r.Indirection) == 0 {
			r.Val = in.timedIn(r.Val, keyColumnOrUnknown(t, r.Name))
		}
	}
}

// insertedWords is storedWords for the rows of an INSERT.
func (in *inputWords) insertedWords(t *shardmap.Table, cols []string, sel *pg.SelectStmt) {
	if t == nil || sel == nil {
		return
	}
	for i, name := range cols {
		col := keyColumnOrUnknown(t, name)
		oid := col.OID
		for _, row := range sel.ValuesLists {
			if items := row.GetList().GetItems(); i < len(items) {
				in.texts.plainWords(readsOf(oid), items[i])
				items[i] = in.timedIn(items[i], col)
			}
		}
		if i < len(sel.TargetList) && sel.Op == pg.SetOperation_SETOP_NONE && !sqltree.AnyStar(sel.TargetList[:i]) && len(sel.DistinctClause) == 0 && len(sel.GroupClause) == 0 {
			if r := sel.TargetList[i].GetResTarget(); r != nil {
				in.texts.plainWords(readsOf(oid), r.Val)
				r.Val = in.timedIn(r.Val, col)
			}
		}
	}
}

// timedIn is timed for a column that the text is written to. The cast to a user-defined type says what it means.
func (in *inputWords) timedIn(n *pg.Node, c *shardmap.Column) *pg.Node {
	s := n.GetAConst().GetSval()
	if c.OID < firstUserOID || s == nil || !HasTimeWord(s.Sval) {
		return timed(n, c.OID)
	}
	tree, err := in.p.parse("SELECT NULL::" + c.Type)
	if err != nil || len(tree.Stmts) != 1 {
		return n
	}
	cast := tree.Stmts[0].Stmt.GetSelectStmt().GetTargetList()[0].GetResTarget().GetVal()
	if cast.GetTypeCast() == nil {
		return n
	}
	cast.GetTypeCast().Arg, cast.GetTypeCast().Location = n, 0
	return cast
}

// mergedWords is storedWords for the rows that a MERGE inserts.
func (in *inputWords) mergedWords(t *shardmap.Table, c *pg.MergeWhenClause) {
	if t == nil {
		return
	}
	cols := columnNames(t)
	if len(c.TargetList) > 0 {
		cols = nil
		for _, n := range c.TargetList {
			cols = append(cols, n.GetResTarget().GetName())
		}
	}
	for i := range min(len(cols), len(c.Values)) {
		oid := keyColumnOrUnknown(t, cols[i]).OID
		in.texts.plainWords(readsOf(oid), c.Values[i])
		c.Values[i] = in.timedIn(c.Values[i], keyColumnOrUnknown(t, cols[i]))
	}
}

// readWords makes casts of a statement's words for times, as far as they are certain; strict: what is not
// certain is refused.
func (p *Planner) readWords(n *pg.Node, sql string, snap *shardmap.Snapshot, path []string, strict bool) {
	if d := n.GetDeclareCursorStmt(); d != nil {
		n = d.Query
	}
	switch n.GetNode().(type) {
	case *pg.Node_SelectStmt, *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt:
	default:
		return
	}
	a := p.analyzer(sql, snap, path)
	a.one.several = true
	whole := func() (whole bool) {
		defer func() {
			if r := recover(); r != nil {
				if _, refused := r.(bailout); !refused {
					panic(r)
				}
			}
		}()
		a.query(n)
		a.settleBounds()
		return true
	}()
	a.checkNow()
	if whole && strict {
		a.looseWords(n, a.bound)
	}
}

// ReadAlike reports whether the strings in a text certainly mean the same under every DateStyle, IntervalStyle and TimeZone: none of
// them can be a date, a time or an interval, or have one inside.
func ReadAlike(text string) bool {
	res, err := pg.Scan(text)
	if err != nil {
		return false
	}
	for _, t := range res.Tokens {
		switch t.Token {
		case pg.Token_SCONST:
			if !timeless(text[t.Start:t.End]) {
				return false
			}
		case pg.Token_USCONST:
			return false
		}
	}
	return true
}

var (
	uuidString = regexp.MustCompile(`^'[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}'$`)
	fewDigits  = regexp.MustCompile(`^'[0-9]{1,3}'$`)
)

// timeless reports whether a string, with its quotes, can be no date, time or interval, alone or inside of an array, a range or a row. Those
// have digits or are a word. PostgreSQL skips most other signs where it reads them, so that these tell nothing.
func timeless(s string) bool {
	switch {
	case strings.Contains(s, `\`):
		return false
	case !strings.ContainsAny(s, "0123456789"):
		word := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return r < 'a' || r > 'z' })
		return !slices.ContainsFunc(word, func(w string) bool { return timeWord(w) || w == "allballs" })
	}
	return fewDigits.MatchString(s) || uuidString.MatchString(s)
}
