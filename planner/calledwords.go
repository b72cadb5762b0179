package planner

import pg "github.com/pganalyze/pg_query_go/v6"

// calledWords makes casts of the words among a function's arguments that are read as times, and notes the texts beside
// others that are not of times.
func (a *analyzer) calledWords(f *pg.FuncCall, sc *scope) {
	if a.second == nil || !hasTimeWord(f) {
		return
	}
	a.calledTimes(f, sc)
	switch callName(f) {
	case "array_append", "array_prepend", "array_remove", "array_position", "array_positions", "array_replace", "array_cat", "array_to_string", "lag", "lead", "nullif":
		for _, n := range f.Args {
			if n.GetAConst() == nil && a.readsAs(n, sc) == readsText {
				a.second.plainWords(readsText, f.Args...)
			}
		}
	}
}

// calledTimes makes casts of the words in arguments of PostgreSQL's own functions, where these are read as times: a
// function of one name may take several types, of which PostgreSQL chooses by the other arguments, and else timestamptz.
func (a *analyzer) calledTimes(f *pg.FuncCall, sc *scope) {
	names := strs(f.Funcname)
	if len(names) > 2 || len(names) == 2 && names[0] != "pg_catalog" || a.userFunction(names) != nil || f.FuncVariadic {
		return
	}
	for _, n := range f.Args {
		if n.GetNamedArgExpr() != nil {
			return
		}
	}
	to := func(oid uint32, at ...int) {
		for _, i := range at {
			if i < len(f.Args) {
				f.Args[i] = timed(f.Args[i], oid)
			}
		}
	}
	of := func(i int) uint32 {
		if i >= len(f.Args) || f.Args[i].GetAConst() != nil {
			return oidUnknown
		}
		return a.wordType(f.Args[i], sc)
	}
	// beside is what a word is read as that stands in one of the places, with the others: 0 if that is not certain.
	beside := func(alone uint32, places ...int) uint32 {
		typ := uint32(oidUnknown)
		for _, i := range places {
			switch t := of(i); {
			case t == oidUnknown || t == typ:
			case typ == oidUnknown && (t == oidTimestamp || t == oidTimestmpz || t == oidDate):
				typ = t
			default:
				return 0
			}
		}
		switch typ {
		case oidUnknown:
			return alone
		case oidDate:
			return oidTimestmpz
		}
		return typ
	}
	switch name, args := names[len(names)-1], len(f.Args); {
	case castCall(f) == wordsAlone && name != "time" && name != "timetz":
		for oid, typ := range wordTypes {
			if typ == name {
				to(oid, 0)
			}
		}
	case name == "daterange" && args >= 2:
		to(oidDate, 0, 1)
	case name == "tsrange" && args >= 2:
		to(oidTimestamp, 0, 1)
	case name == "tstzrange" && args >= 2:
		to(oidTimestmpz, 0, 1)
	case name == "date_trunc" && args == 3:
		to(oidTimestmpz, 1)
	case name == "date_bin" && args == 3:
		to(beside(oidTimestmpz, 1, 2), 1, 2)
	case name == "age" && args == 2:
		to(beside(oidTimestmpz, 0, 1), 0, 1)
	case name == "generate_series" && args == 3:
		to(beside(0, 0, 1), 0, 1)
	case name == "timezone" && args == 2 && (f.Args[0].GetAConst() != nil || a.readsAs(f.Args[0], sc) == readsText):
		to(oidTimestmpz, 1)
	case (name == "lag" || name == "lead") && args == 3:
		to(a.wordType(f.Args[0], sc), 2)
	case (name == "array_append" || name == "array_remove" || name == "array_position" || name == "array_positions") && args >= 2:
		to(elementTime(of(0)), 1)
	case name == "array_replace" && args == 3:
		to(elementTime(of(0)), 1, 2)
	case name == "array_prepend" && args == 2:
		to(elementTime(of(1)), 0)
	}
}

// elementTime is the type of times of which an array is, 0 for other arrays.
func elementTime(array uint32) uint32 {
	made, ok := madeOfTimes[array]
	for oid, typ := range wordTypes {
		if ok && made == typ+"[]" {
			return oid
		}
	}
	return 0
}
