package planner

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
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
		lmt cot cxt davt ddut easst east eetdst egst egt fet fjst fkst fkt fnst fnt galt gamt gest get gft gilt gyt idt iot irkst irkt irt jayt kdt kgst kgt kost
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
	if strings.Contains(s, `\`) && hasTimeWordAs(blanks.Replace(s)) { // of JSON: "\tnow"
		return true
	}
	return hasTimeWordAs(s) || strings.ContainsAny(s, `"\`) && hasTimeWordAs(unquoted.Replace(s)) // {n\ow}
}

var blanks = strings.NewReplacer(`\b`, " ", `\f`, " ", `\n`, " ", `\r`, " ", `\t`, " ")

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
		for end < to && (letter(s[end]) || s[end] == '/' || s[end] == '-' && strings.Contains(s[i:end], "/")) { // America/Port-au-Prince
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
		2249, 2287, 2276, 2277, 2283, 3831, 5078, 5079, 5080, 2275: // record, types that stand for others, and what the reader of a type takes
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

// timed is the cast of a literal to a type of times that reads it as the time of the transaction; nil if it is none.
func timed(c *pg.A_Const, oid uint32) *pg.Node {
	if wordTypes[oid] == "" {
		return nil
	}
	cast := sqltree.CastNode(&pg.Node{Node: &pg.Node_AConst{AConst: c}}, wordTypes[oid], nil)
	if word, _ := sqltree.ClockLiteral(cast.GetTypeCast()); word == "" {
		return nil // 'today' is no time of day
	}
	return cast
}

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

// inputWords read special date/time inputs ('now') as the types that a shard says, and have the casts of what is bound look
// for others. They may change the tree, of which one shard alone needs nothing then.
type inputWords struct {
	*typer

	p     *Planner
	texts *severalTexts
	asks  *plan.InputQuestion // about the statement's literals, nil if it has none to ask for
}

// A shard said of which type the literals are that may be special date/time inputs (plan.InputQuestion). A text stays. One of a
// type of times is the transaction's time. What is neither, or was not told, is refused: it may be an array, a range or a row of
// times, or be cast by a function.

// With returns a Planner that knows the types of the literals of statements.
func (p *Planner) With(types plan.InputTypes) *Planner {
	own := *p
	own.inputs = types
	return &own
}

// answered are the types that are known of the literals of a statement; ok is false if nobody has said them.
func (p *Planner) answered(q *plan.InputQuestion) (types []plan.InputType, ok bool) {
	if p.inputs.Of != q.Of {
		return nil, false
	}
	return p.inputs.Types, true
}

// readInputs makes casts of the literals that are special date/time inputs. It reports whether nobody has said the types yet; then
// literals that are to be asked for stay as they are.
func (in *inputWords) readInputs(n *pg.Node) (unanswered bool) {
	if !hasTimeWord(n) {
		return false
	}
	r := &inputReader{inputWords: in}
	if in.asks != nil {
		var told bool
		r.types, told = in.p.answered(in.asks)
		r.unanswered = !told
	}
	r.message(n.ProtoReflect())
	return r.open
}

type inputReader struct {
	*inputWords
	types      []plan.InputType
	unanswered bool
	open       bool                 // a literal waits for its type
	given      map[*pg.A_Const]bool // to functions of the user's, which may cast them
}

// message looks at a message and all below it.
func (r *inputReader) message(m protoreflect.Message) {
	switch v := m.Interface().(type) {
	case *pg.JsonTablePathSpec: // the grammar takes nothing but a string
		return
	case *pg.TypeCast:
		r.cast(v)
		return
	case *pg.FuncCall:
		if isInput(castCallArg(v)) && r.timeCall(v) == wordsAlone {
			v.Args[0] = sqltree.CastNode(v.Args[0], sqltree.CallName(v), nil)
			r.cast(v.Args[0].GetTypeCast())
			return
		}
		if !builtin.Has(sqltree.CallName(v)) || !r.onlyBuiltin(v) {
			for _, n := range v.Args {
				r.give(n)
			}
		}
	case *pg.ResTarget:
		if v.Name != "" || v.Val == nil {
			break
		}
		name := outputname.Of(v.Val)
		r.message(v.Val.ProtoReflect())
		if outputname.Of(v.Val) != name {
			v.Name = name
		}
		return
	case *pg.Node:
		if c := v.GetAConst(); c != nil {
			r.literal(v, c)
			return
		}
	case *pg.CollateClause: // a time has no collation
		if c := v.Arg.GetAConst(); isInput(c) {
			if oid, ok := r.typeOf(c); !ok || !r.unanswered && readsOf(oid) != readsText {
				r.refuse(c.GetSval().Sval)
			}
		}
	}
	sqltree.Below(m, r.message)
}

// typeOf is the type of a literal, 0 if it may be one of several; ok is false if it was not asked for.
func (r *inputReader) typeOf(c *pg.A_Const) (oid uint32, ok bool) {
	if r.asks == nil {
		return 0, false
	}
	l, t := r.asks.At(c.Location, r.types)
	if l == nil || l.Again && readsOf(t.OID) != readsText {
		return 0, l != nil
	}
	return t.OID, true
}

// literal reads a literal that stands at a place.
func (r *inputReader) literal(at *pg.Node, c *pg.A_Const) {
	if !isInput(c) || slices.Contains(patterns, c.GetSval().Sval) {
		return
	}
	switch oid, ok := r.typeOf(c); {
	case ok && r.unanswered:
		r.open = true
	case ok && readsOf(oid) == readsText && !r.given[c]:
	default:
		cast := timed(c, oid)
		if cast == nil {
			r.refuse(c.GetSval().Sval)
		}
		at.Node = cast.Node
	}
}

// castCallArg is the constant that a call which is a cast has as its argument, nil for others.
func castCallArg(f *pg.FuncCall) *pg.A_Const {
	if castCall(f) == wordsNone {
		return nil
	}
	return f.Args[0].GetAConst()
}

// give notes the literals among the values that an expression may give.
func (r *inputReader) give(n *pg.Node) {
	switch v := n.GetNode().(type) {
	case *pg.Node_AConst:
		if r.given == nil {
			r.given = map[*pg.A_Const]bool{}
		}
		r.given[v.AConst] = true
	case *pg.Node_NamedArgExpr:
		r.give(v.NamedArgExpr.Arg)
	case *pg.Node_CollateClause:
		r.give(v.CollateClause.Arg)
	case *pg.Node_AArrayExpr:
		r.giveAll(v.AArrayExpr.Elements)
	case *pg.Node_RowExpr:
		r.giveAll(v.RowExpr.Args)
	case *pg.Node_CoalesceExpr:
		r.giveAll(v.CoalesceExpr.Args)
	case *pg.Node_MinMaxExpr:
		r.giveAll(v.MinMaxExpr.Args)
	case *pg.Node_CaseExpr:
		r.give(v.CaseExpr.Defresult)
		for _, w := range v.CaseExpr.Args {
			r.give(w.GetCaseWhen().GetResult())
		}
	case *pg.Node_AExpr:
		if v.AExpr.Kind == pg.A_Expr_Kind_AEXPR_NULLIF {
			r.give(v.AExpr.Lexpr)
		}
	}
}

func (r *inputReader) giveAll(list []*pg.Node) {
	for _, n := range list {
		r.give(n)
	}
}

// cast looks at a cast: of a text to a type of times it is known as the transaction's time.
func (r *inputReader) cast(c *pg.TypeCast) {
	inner := c.Arg
	for inner.GetTypeCast() != nil {
		inner = inner.GetTypeCast().Arg
	}
	s := inner.GetAConst().GetSval()
	if s == nil {
		r.message(c.Arg.ProtoReflect())
		return
	}
	if word, _ := sqltree.ClockLiteral(c); r.readsType(c.TypeName) != readsText && word == "" && HasTimeWord(s.Sval) {
		r.refuse(s.Sval)
	}
}

func (r *inputReader) refuse(s string) {
	fail(sqlstate.Refusal("CLV-0626", "the text %s has a word for the time, which each shard could read by its own clock", sqltext.QuoteString(s)).
		WithHint("Write now() or current_date; if it is no time, compare it with a text: column::text = %s.", sqltext.QuoteString(s)))
}

// finishInputs says what is to be asked about the statement, with what the router makes in it.
func (a *analyzer) finishInputs() {
	q := a.asks
	if q == nil {
		return
	}
	if _, told := a.p.answered(q); told {
		return
	}
	f := a.madeValues.fill
	switch {
	case len(q.Base) > 0:
	case len(a.judged) > 0:
		q.Base = slices.Clone(a.judged)
	case f != nil:
		q.Base = slices.Clone(f.edits)
		q.Params = max(q.Params, f.base+len(f.values))
		for i := range q.Base {
			_, _, q.Base[i].Text = f.marked(q.Base[i].Text, func(n int) int { return n })
		}
	}
	a.st.Asks = q
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
