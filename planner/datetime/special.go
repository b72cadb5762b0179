package datetime

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/planner/sqltext"
)

// HasLetters reports whether a text has the letters of one of the words one after the other.
func HasLetters(s string) bool {
	s = strings.ToLower(s)
	return strings.Contains(s, "now") || strings.Contains(s, "today") || strings.Contains(s, "tomorrow") || strings.Contains(s, "yesterday")
}

// TypeNames are the types that know such words, by OID.
var TypeNames = map[uint32]string{pgoid.Date: "date", oidTime: "time", pgoid.Timestamp: "timestamp", pgoid.Timestamptz: "timestamptz", oidTimetz: "timetz"}

const (
	oidTime   = 1083
	oidTimetz = 1266
)

// IsSpecial reports whether a text is one of the words alone, in any case, with blanks around it.
func IsSpecial(s string) bool {
	if len(s) < 3 || len(s) > 64 {
		return false
	}
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "now", "today", "tomorrow", "yesterday":
		return true
	}
	return false
}

// ZoneNames are what may stand beside such a word in a time, in lower case: zones without a slash (pg_timezone_abbrevs and
// pg_timezone_names have them), and what the reader of times skips.
var ZoneNames = sqltext.WordSet(`am pm z t zulu utc uct gmt ut allballs at on dst mon monday tue tues tuesday wed weds wednesday thu thur thurs thursday fri friday sat saturday sun sunday
		est edt cst cdt mst mdt pst pdt akst akdt hst hdt ast adt nst ndt brt brst art clt clst pet bot wet west cet cest met mest eet eest msk msd sast eat cat wat ist pkt npt bst bdt ict wib wita wit
		hkt sgt pht jst kst awst acst acdt aest aedt nzst nzdt nzt chast fjt universal cuba egypt eire iran israel jamaica japan libya navajo poland portugal prc roc rok singapore turkey hongkong
		ad bc d dow doy epoch h infinity isodow isoyear j jd m mm s y iceland kwajalein nz gb factory greenwich cet met mst hst est est5edt cst6cdt mst7mdt pst8pdt
		acsst act acwst aesst aft almst almt amst amt anast anat arst awsst azost azot azst azt bdst bnt bort bra btt cadt cast cct cetdst chadt chat chut ckt
		lmt cot cxt davt ddut easst east eetdst egst egt fet fjst fkst fkt fnst fnt galt gamt gest get gft gilt gyt idt iot irkst irkt irt jayt kdt kgst kgt kost
		krast krat lhdt lhst ligt lint lkt localtime magst magt mart mawt mesz metdst mez mht mmt mpt must mut mvt myt nft novst novt nut omsst omst petst
		pett pgt pkst pmdt pmst pont posixrules pwt pyst pyt ret sadt sct su taht tft tjt tkt tmt tot trut tvt ulast ulat uyst uyt uzst uzt vet vlast vlat
		volt vut w wadt wakt wast wdt wetdst wft wgst wgt xjt yakst yakt yapt yekst yekt`)

// HasSpecial reports whether a text has one of the words so that a type of times, or one made of such types
// (an array, a range, a row), would read it as such: alone, beside a time of day or a zone, or between the
// punctuation of such values.
func HasSpecial(s string) bool {
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
		if i > 0 && Wordy(s[i-1]) {
			continue
		}
		end := i
		for end < len(s) && Wordy(s[end]) {
			end++
		}
		if (end-i == 3 || end-i == 5 || end-i == 8 || end-i == 9) && IsWord(s[i:end]) && timely(s, i, end) {
			return true
		}
		i = end
	}
	return false
}

// Letter reports whether a byte is of a word, or a mark between words.
func Letter(c byte) bool { return Wordy(c) || c == '_' }

// Wordy reports whether a byte is of a word where times are read: PostgreSQL skips marks, '_' too.
func Wordy(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80 }

func digit(c byte) bool { return c >= '0' && c <= '9' }

// IsWord reports whether a text is one of the words and nothing else, in any case.
func IsWord(s string) bool {
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
		if !Letter(s[i]) {
			i++
			continue
		}
		end := i
		for end < to && (Letter(s[end]) || s[end] == '/' || s[end] == '-' && strings.Contains(s[i:end], "/")) { // America/Port-au-Prince
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
	return strings.Contains(name, "/") || !slices.ContainsFunc(strings.Split(strings.ToLower(name), "_"), func(w string) bool { return w != "" && !IsWord(w) && !ZoneNames[w] })
}

// Reading says how a type reads a text that has one of the words.
type Reading int

const (
	Unsure Reading = iota // perhaps as a time: arrays, ranges, user-defined types
	AsText                // as anything but a time
	AsTime
)

// ReadingOf is that of a type by its OID, 0 if that is not certain.
func ReadingOf(oid uint32) Reading {
	switch {
	case TypeNames[oid] != "":
		return AsTime
	case oid == 0 || oid >= pgoid.FirstNormal:
		return Unsure
	}
	switch oid {
	case 1115, 1182, 1183, 1185, 1270, // arrays of times
		3908, 3909, 3910, 3911, 3912, 3913, 4533, 4534, 4535, 6152, 6153, 6155, // ranges and multiranges of times
		2249, 2287, 2276, 2277, 2283, 3831, 5078, 5079, 5080, 2275: // record, types that stand for others, and what the reader of a type takes
		return Unsure
	}
	return AsText
}

// MayRead reports whether a type reads such a text as a time, or may do so: alone, as a type of times, or inside.
func MayRead(oid uint32) (alone, inside bool) {
	return ReadingOf(oid) == AsTime, ReadingOf(oid) == Unsure
}
