package translate

import (
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/internal/pgoid"
)

// An emitter gives the SQL of a call whose arguments have the declared types.
type emitter func(t *Translator, args []expr) string

// emitters holds what runs exactly, by PostgreSQL's signature (for operators,
// that of the function behind the operator). aggregates likewise for aggregates
// and window functions.
var (
	emitters         = map[string]emitter{}
	aggregates       = map[string]emitter{}
	variadicEmitters = map[string]bool{}
)

// tpl makes an emitter of a template in which %1 to %9 are the arguments.
func tpl(s string) emitter {
	return func(_ *Translator, args []expr) string { return fillTemplate(s, args) }
}

func fillTemplate(s string, args []expr) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+1 < len(s) && s[i+1] >= '1' && s[i+1] <= '9' {
			if n := int(s[i+1] - '1'); n < len(args) {
				b.WriteString(args[n].sql)
			}
			i++
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func init() {
	intEmitters()
	floatEmitters()
	numericEmitters()
	textEmitters()
	timeEmitters()
	jsonEmitters()
	aggregateEmitters()
	systemEmitters()
}

func simple(m map[string]string) {
	for sig, s := range m {
		emitters[sig] = tpl(s)
	}
}

func intEmitters() {
	size := []struct {
		n   string
		oid uint32
	}{{"2", pgoid.Int2}, {"4", pgoid.Int4}, {"8", pgoid.Int8}}
	for i, a := range size {
		for j, b := range size {
			res := a.oid
			if j > i {
				res = b.oid
			}
			prefix := "int" + a.n + b.n
			if i == j {
				prefix = "int" + a.n
			}
			sig := func(op string) string { return fmt.Sprintf("%s%s(int%s,int%s)", prefix, op, a.n, b.n) }
			if res == pgoid.Int8 {
				emitters[sig("pl")] = tpl("cleave_add(%1, %2)")
				emitters[sig("mi")] = tpl("cleave_sub(%1, %2)")
				emitters[sig("mul")] = tpl("cleave_mul(%1, %2)")
			} else {
				emitters[sig("pl")] = tpl(fmt.Sprintf("cleave_int(%%1 + %%2, %d)", res))
				emitters[sig("mi")] = tpl(fmt.Sprintf("cleave_int(%%1 - %%2, %d)", res))
				emitters[sig("mul")] = tpl(fmt.Sprintf("cleave_int(%%1 * %%2, %d)", res))
			}
			emitters[sig("div")] = tpl(fmt.Sprintf("cleave_div(%%1, %%2, %d)", res))
		}
		ty := "int" + a.n
		emitters[ty+"mod("+ty+","+ty+")"] = tpl("cleave_mod(%1, %2)")
		emitters["mod("+ty+","+ty+")"] = tpl("cleave_mod(%1, %2)")
		emitters[ty+"um("+ty+")"] = tpl(fmt.Sprintf("cleave_neg(%%1, %d)", a.oid))
		emitters[ty+"up("+ty+")"] = tpl("%1")
		emitters[ty+"abs("+ty+")"] = tpl(fmt.Sprintf("cleave_abs(%%1, %d)", a.oid))
		emitters["abs("+ty+")"] = tpl(fmt.Sprintf("cleave_abs(%%1, %d)", a.oid))
		emitters[ty+"and("+ty+","+ty+")"] = tpl("(%1 & %2)")
		emitters[ty+"or("+ty+","+ty+")"] = tpl("(%1 | %2)")
		emitters[ty+"xor("+ty+","+ty+")"] = tpl("((%1 | %2) - (%1 & %2))")
		emitters[ty+"not("+ty+")"] = tpl("(~%1)")
	}
	emitters["int8xor(int8,int8)"] = tpl("cleave_xor(%1, %2)")
	simple(map[string]string{
		"gcd(int4,int4)": "cleave_gcd(%1, %2, 23)", "gcd(int8,int8)": "cleave_gcd(%1, %2, 20)",
		"to_hex(int4)": "cleave_to_hex(%1, 32)", "to_hex(int8)": "cleave_to_hex(%1, 64)",
		"hashint8extended(int8,int8)":             "cleave_hash_extended(%1, %2, 20)",
		"hashint4extended(int4,int8)":             "cleave_hash_extended(%1, %2, 23)",
		"hashint2extended(int2,int8)":             "cleave_hash_extended(%1, %2, 21)",
		"hashtextextended(text,int8)":             "cleave_hash_extended(%1, %2, 25)",
		"uuid_hash_extended(uuid,int8)":           "cleave_hash_extended(%1, %2, 2950)",
		"timestamp_hash_extended(timestamp,int8)": "cleave_hash_extended(%1, %2, 1114)",
	})
}

func floatEmitters() {
	simple(map[string]string{
		"float8pl(float8,float8)": "cleave_fadd(%1, %2)", "float8mi(float8,float8)": "cleave_fsub(%1, %2)",
		"float8mul(float8,float8)": "cleave_fmul(%1, %2)", "float8div(float8,float8)": "cleave_fdiv(%1, %2)",
		"float8um(float8)": "cleave_fneg(%1)", "float8up(float8)": "%1", "float8abs(float8)": "cleave_fabs(%1)",
		"abs(float8)":   "cleave_fabs(%1)",
		"round(float8)": "cleave_fround(%1)", "dround(float8)": "cleave_fround(%1)",
		"floor(float8)": "cleave_ffloor(%1)", "ceil(float8)": "cleave_fceil(%1)", "ceiling(float8)": "cleave_fceil(%1)",
		"trunc(float8)": "cleave_ftrunc(%1)", "sqrt(float8)": "cleave_fsqrt(%1)", "dsqrt(float8)": "cleave_fsqrt(%1)",
		"sign(float8)": "cleave_fsign(%1)",
	})
}

func numericEmitters() {
	simple(map[string]string{
		"numeric_add(numeric,numeric)": "cleave_num(1, %1, %2)", "numeric_sub(numeric,numeric)": "cleave_num(2, %1, %2)",
		"numeric_mul(numeric,numeric)": "cleave_num(3, %1, %2)", "numeric_div(numeric,numeric)": "cleave_num(4, %1, %2)",
		"numeric_mod(numeric,numeric)": "cleave_num(5, %1, %2)", "mod(numeric,numeric)": "cleave_num(5, %1, %2)",
		"numeric_uminus(numeric)": "cleave_num1(1, %1)", "numeric_uplus(numeric)": "%1",
		"numeric_abs(numeric)": "cleave_num1(2, %1)", "abs(numeric)": "cleave_num1(2, %1)",
		"floor(numeric)": "cleave_num1(3, %1)", "ceil(numeric)": "cleave_num1(4, %1)", "ceiling(numeric)": "cleave_num1(4, %1)",
		"sign(numeric)": "cleave_num1(5, %1)", "round(numeric)": "cleave_num_round(%1, 0)", "trunc(numeric)": "cleave_num_trunc(%1, 0)",
		"round(numeric,int4)": "cleave_num_round(%1, %2)", "trunc(numeric,int4)": "cleave_num_trunc(%1, %2)",
		"scale(numeric)": "cleave_num_scale(%1)", "div(numeric,numeric)": "cleave_num(6, %1, %2)",
	})
}

func textEmitters() {
	simple(map[string]string{
		"textcat(text,text)":     "(%1 || %2)",
		"byteacat(bytea,bytea)":  "cleave_byteacat(%1, %2)",
		"lower(text)":            "cleave_lower(%1)",
		"upper(text)":            "cleave_upper(%1)",
		"initcap(text)":          "cleave_initcap(%1)",
		"length(text)":           "length(%1)",
		"length(bpchar)":         "length(rtrim(%1, ' '))",
		"length(bytea)":          "length(%1)",
		"char_length(text)":      "length(%1)",
		"char_length(bpchar)":    "length(rtrim(%1, ' '))",
		"character_length(text)": "length(%1)",
		"octet_length(text)":     "cleave_octets(%1)",
		"octet_length(bytea)":    "length(%1)",
		"octet_length(bpchar)":   "cleave_octets(%1)",
		"bit_length(text)":       "(8 * cleave_octets(%1))",
		"substr(text,int4)":      "cleave_substr(%1, %2)", "substring(text,int4)": "cleave_substr(%1, %2)",
		"substr(text,int4,int4)": "cleave_substr(%1, %2, %3)", "substring(text,int4,int4)": "cleave_substr(%1, %2, %3)",
		"substr(bytea,int4)": "cleave_subbytes(%1, %2)", "substring(bytea,int4)": "cleave_subbytes(%1, %2)",
		"substr(bytea,int4,int4)": "cleave_subbytes(%1, %2, %3)", "substring(bytea,int4,int4)": "cleave_subbytes(%1, %2, %3)",
		"btrim(text)": "trim(%1, ' ')", "ltrim(text)": "ltrim(%1, ' ')", "rtrim(text)": "rtrim(%1, ' ')",
		"btrim(text,text)": "cleave_trim(%1, %2, 3)", "ltrim(text,text)": "cleave_trim(%1, %2, 1)", "rtrim(text,text)": "cleave_trim(%1, %2, 2)",
		"replace(text,text,text)":    "cleave_replace(%1, %2, %3)",
		"left(text,int4)":            "cleave_left(%1, %2)",
		"right(text,int4)":           "cleave_right(%1, %2)",
		"lpad(text,int4)":            "cleave_pad(%1, %2, ' ', 1)",
		"lpad(text,int4,text)":       "cleave_pad(%1, %2, %3, 1)",
		"rpad(text,int4)":            "cleave_pad(%1, %2, ' ', 2)",
		"rpad(text,int4,text)":       "cleave_pad(%1, %2, %3, 2)",
		"reverse(text)":              "cleave_reverse(%1)",
		"repeat(text,int4)":          "cleave_repeat(%1, %2)",
		"strpos(text,text)":          "cleave_strpos(%1, %2)",
		"position(text,text)":        "cleave_strpos(%1, %2)",
		"split_part(text,text,int4)": "cleave_split_part(%1, %2, %3)",
		"starts_with(text,text)":     "cleave_starts_with(%1, %2)",
		"translate(text,text,text)":  "cleave_translate(%1, %2, %3)",
		"chr(int4)":                  "cleave_chr(%1)",
		"ascii(text)":                "cleave_ascii(%1)",
		"md5(text)":                  "cleave_md5(%1)", "md5(bytea)": "cleave_md5(%1)",
		"sha256(bytea)": "cleave_sha256(%1)", "sha512(bytea)": "cleave_sha512(%1)",
		"encode(bytea,text)":           "cleave_encode(%1, %2)",
		"decode(text,text)":            "cleave_decode(%1, %2)",
		"quote_ident(text)":            "cleave_quote_ident(%1)",
		"quote_literal(text)":          "cleave_quote_literal(%1)",
		"overlay(text,text,int4)":      "cleave_overlay(%1, %2, %3, length(%2))",
		"overlay(text,text,int4,int4)": "cleave_overlay(%1, %2, %3, %4)",
		"like_escape(text,text)":       "cleave_like_escape(%1, %2)",
	})
	for _, ty := range []string{"text", "name", "bpchar"} {
		prefix := ty
		arg := "%1"
		if ty == "bpchar" {
			// LIKE of character(n) sees the padding; regular expressions do not differ.
			prefix, arg = "bpchar", "%1"
		}
		emitters[prefix+"like("+ty+",text)"] = tpl("cleave_like(" + arg + ", %2)")
		emitters[prefix+"nlike("+ty+",text)"] = tpl("(NOT cleave_like(" + arg + ", %2))")
		emitters[prefix+"iclike("+ty+",text)"] = tpl("cleave_like(cleave_lower(" + arg + "), cleave_lower(%2))")
		emitters[prefix+"icnlike("+ty+",text)"] = tpl("(NOT cleave_like(cleave_lower(" + arg + "), cleave_lower(%2)))")
		emitters[prefix+"regexeq("+ty+",text)"] = tpl("cleave_regex(" + arg + ", %2, 0)")
		emitters[prefix+"regexne("+ty+",text)"] = tpl("(NOT cleave_regex(" + arg + ", %2, 0))")
		emitters[prefix+"icregexeq("+ty+",text)"] = tpl("cleave_regex(" + arg + ", %2, 1)")
		emitters[prefix+"icregexne("+ty+",text)"] = tpl("(NOT cleave_regex(" + arg + ", %2, 1))")
	}
	emitters["like(text,text)"] = tpl("cleave_like(%1, %2)")
	// The concatenation of text with any other type uses that type's cast to text.
	emitters["textanycat(text,anynonarray)"] = func(t *Translator, a []expr) string {
		return "(" + a[0].sql + " || " + t.asText(a[1]).sql + ")"
	}
	emitters["anytextcat(anynonarray,text)"] = func(t *Translator, a []expr) string {
		return "(" + t.asText(a[0]).sql + " || " + a[1].sql + ")"
	}
	// concat prints with output functions: booleans are t and f there.
	out := func(t *Translator, e expr) string {
		switch {
		case e.typ == pgoid.Bool:
			return "(CASE " + e.sql + " WHEN 1 THEN 't' WHEN 0 THEN 'f' END)"
		case e.typ == pgoid.Bpchar:
			return e.sql
		case e.typ == pgoid.Text || e.typ == pgoid.Varchar || e.typ == pgoid.Name:
			return e.sql
		}
		return t.asText(e).sql
	}
	emitters["concat(any)"] = func(t *Translator, a []expr) string {
		args := make([]any, len(a))
		for i, e := range a {
			args[i] = out(t, e)
		}
		return call("cleave_concat", args...)
	}
	emitters["concat_ws(text,any)"] = func(t *Translator, a []expr) string {
		args := []any{a[0].sql}
		for _, e := range a[1:] {
			args = append(args, out(t, e))
		}
		return call("cleave_concat_ws", args...)
	}
	emitters["format(text,any)"] = func(t *Translator, a []expr) string {
		args := []any{a[0].sql}
		for _, e := range a[1:] {
			args = append(args, out(t, e))
		}
		return call("cleave_format", args...)
	}
	emitters["format(text)"] = tpl("cleave_format(%1)")
	variadicEmitters["format(text,any)"] = true
	variadicEmitters["concat(any)"], variadicEmitters["concat_ws(text,any)"] = true, true
	emitters["array_to_string(anyarray,text)"] = func(t *Translator, a []expr) string {
		return call("cleave_array_to_string", a[0].typ, a[0].sql, a[1].sql)
	}
	emitters["array_to_string(anyarray,text,text)"] = func(t *Translator, a []expr) string {
		return call("cleave_array_to_string", a[0].typ, a[0].sql, a[1].sql, a[2].sql)
	}
	emitters["array_length(anyarray,int4)"] = func(t *Translator, a []expr) string {
		return call("cleave_array_length", a[0].typ, a[0].sql, a[1].sql)
	}
	emitters["array_upper(anyarray,int4)"] = func(t *Translator, a []expr) string {
		if a[0].typ == pgoid.Int2Vector || a[0].typ == pgoid.OIDVector {
			fault.Refuse("CLV-2054", "array_upper of a vector")
		}
		return call("cleave_array_length", a[0].typ, a[0].sql, a[1].sql)
	}
	emitters["cardinality(anyarray)"] = func(t *Translator, a []expr) string {
		return call("cleave_array_card", a[0].typ, a[0].sql)
	}
	for sig, how := range map[string]int{"array_cat(anycompatiblearray,anycompatiblearray)": 0, "array_append(anycompatiblearray,anycompatible)": 1, "array_prepend(anycompatible,anycompatiblearray)": 2} {
		emitters[sig] = func(t *Translator, a []expr) string {
			arr := a[0].typ
			if how == 2 {
				arr = a[1].typ
			}
			return call("cleave_array_cat", arr, how, a[0].sql, a[1].sql)
		}
	}
	emitters["quote_nullable(text)"] = tpl("coalesce(cleave_quote_literal(%1), 'NULL')")
}

// asText is a cast to text.
func (t *converter) asText(e expr) expr {
	if e.typ == pgoid.Text {
		return e
	}
	return t.coerce(e, pgoid.Text, -1, pgcatalog.Explicit)
}

func timeEmitters() {
	simple(map[string]string{
		"now()": "cleave_now()", "transaction_timestamp()": "cleave_now()",
		"statement_timestamp()": "cleave_statement_now()", "clock_timestamp()": "cleave_clock()",
		"date_pli(date,int4)":                           "cleave_date_add(%1, %2)",
		"date_mii(date,int4)":                           "cleave_date_add(%1, -%2)",
		"integer_pl_date(int4,date)":                    "cleave_date_add(%2, %1)",
		"date_mi(date,date)":                            "cleave_date_diff(%1, %2)",
		"date_pl_interval(date,interval)":               "cleave_ts_add(cleave_date_ts(%1), %2, 1)",
		"date_mi_interval(date,interval)":               "cleave_ts_add(cleave_date_ts(%1), %2, -1)",
		"timestamp_pl_interval(timestamp,interval)":     "cleave_ts_add(%1, %2, 1)",
		"timestamp_mi_interval(timestamp,interval)":     "cleave_ts_add(%1, %2, -1)",
		"interval_pl_timestamp(interval,timestamp)":     "cleave_ts_add(%2, %1, 1)",
		"interval_pl_timestamptz(interval,timestamptz)": "cleave_tstz_add(%2, %1, 1)",
		"interval_pl_date(interval,date)":               "cleave_ts_add(cleave_date_ts(%2), %1, 1)",
		"timestamptz_pl_interval(timestamptz,interval)": "cleave_tstz_add(%1, %2, 1)",
		"timestamptz_mi_interval(timestamptz,interval)": "cleave_tstz_add(%1, %2, -1)",
		"timestamp_mi(timestamp,timestamp)":             "cleave_ts_diff(%1, %2)",
		"timestamptz_mi(timestamptz,timestamptz)":       "cleave_ts_diff(%1, %2)",
		"interval_pl(interval,interval)":                "cleave_interval_add(%1, %2, 1)",
		"interval_mi(interval,interval)":                "cleave_interval_add(%1, %2, -1)",
		"interval_um(interval)":                         "cleave_interval_add(zeroblob(16), %1, -1)",
		"date_trunc(text,timestamp)":                    "cleave_date_trunc(%1, %2)",
		"date_trunc(text,timestamptz)":                  "cleave_date_trunc_tz(%1, %2)",
		"date_trunc(text,timestamptz,text)":             "cleave_date_trunc_tz(%1, %2, %3)",
		"extract(text,date)":                            "cleave_extract(%1, %2, 1082)",
		"extract(text,timestamp)":                       "cleave_extract(%1, %2, 1114)",
		"extract(text,timestamptz)":                     "cleave_extract_tz(%1, %2)",
		"timezone(text,timestamptz)":                    "cleave_at_zone(%1, %2)",
		"timezone(text,timestamp)":                      "cleave_from_zone(%1, %2)",
		"make_date(int4,int4,int4)":                     "cleave_make_date(%1, %2, %3)",
		"to_timestamp(float8)":                          "cleave_to_timestamp(%1)",
		"isfinite(date)":                                "(%1 NOT IN (2147483647, -2147483648))",
		"isfinite(timestamp)":                           "cleave_ts_finite(%1)",
		"isfinite(timestamptz)":                         "cleave_ts_finite(%1)",
		"timedate_pl(time,date)":                        "cleave_dt_combine(%2, %1)",
		"datetime_pl(date,time)":                        "cleave_dt_combine(%1, %2)",
		"gen_random_uuid()":                             "cleave_random_uuid()",
		"random()":                                      "cleave_random()",
	})
}

func jsonEmitters() {
	simple(map[string]string{
		"jsonb_object_field(jsonb,text)":       "cleave_json_get(%1, %2, 0)",
		"jsonb_object_field_text(jsonb,text)":  "cleave_json_get(%1, %2, 1)",
		"jsonb_array_element(jsonb,int4)":      "cleave_json_at(%1, %2, 0)",
		"jsonb_array_element_text(jsonb,int4)": "cleave_json_at(%1, %2, 1)",
	})
}

func aggregateEmitters() {
	ag := func(m map[string]string) {
		for sig, s := range m {
			aggregates[sig] = tpl(s)
		}
	}
	ag(map[string]string{
		"count()":      "count(*)",
		"sum(int2)":    "sum(%1)",
		"sum(int4)":    "sum(%1)",
		"sum(int8)":    "cleave_sum_num(%1)",
		"sum(numeric)": "cleave_sum_num(%1)",
		"sum(float8)":  "cleave_sum_float(%1)",
		"avg(int2)":    "cleave_avg_num(%1)", "avg(int4)": "cleave_avg_num(%1)", "avg(int8)": "cleave_avg_num(%1)",
		"avg(numeric)":    "cleave_avg_num(%1)",
		"avg(float8)":     "cleave_avg_float(%1)",
		"bool_and(bool)":  "min(%1)",
		"every(bool)":     "min(%1)",
		"bool_or(bool)":   "max(%1)",
		"row_number()":    "row_number()",
		"rank()":          "rank()",
		"dense_rank()":    "dense_rank()",
		"percent_rank()":  "percent_rank()",
		"cume_dist()":     "cume_dist()",
		"lag(anyelement)": "lag(%1)", "lead(anyelement)": "lead(%1)",
		"first_value(anyelement)": "first_value(%1)", "last_value(anyelement)": "last_value(%1)",
		"string_agg(text,text)": "cleave_string_agg(%1, %2)",
	})
	aggregates["count(any)"] = func(t *Translator, a []expr) string { return "count(" + comparandOrSelf(a[0]) + ")" }
	for _, ty := range []string{"int2", "int4", "int8", "text", "date", "time", "timestamp", "timestamptz", "numeric", "float8", "oid"} {
		for _, f := range []string{"min", "max"} {
			aggregates[f+"("+ty+")"] = func(t *Translator, a []expr) string { return f + "(" + comparand(a[0]) + ")" }
		}
	}
	offset := func(f string) emitter {
		return func(t *Translator, a []expr) string {
			if !a[1].integer || a[1].intValue < 0 {
				fault.Refuse("CLV-2055", "%s with an offset that is not a literal from 0", f)
			}
			s := f + "(" + a[0].sql + ", " + a[1].sql
			if len(a) == 3 {
				s += ", " + a[2].sql
			}
			return s + ")"
		}
	}
	for _, f := range []string{"lag", "lead"} {
		aggregates[f+"(anyelement,int4)"] = offset(f)
		aggregates[f+"(anycompatible,int4,anycompatible)"] = offset(f)
	}
	positive := func(f string, at int) emitter {
		return func(t *Translator, a []expr) string {
			if !a[at].integer || a[at].intValue < 1 {
				fault.Refuse("CLV-2056", "%s with an argument that is not a literal from 1", f)
			}
			if f == "ntile" {
				return "ntile(" + a[0].sql + ")"
			}
			return f + "(" + a[0].sql + ", " + a[1].sql + ")"
		}
	}
	aggregates["ntile(int4)"] = positive("ntile", 0)
	aggregates["nth_value(anyelement,int4)"] = positive("nth_value", 1)
	aggregates["array_agg(anynonarray)"] = func(t *Translator, a []expr) string {
		if at := value.Builtin.Array(a[0].typ); at == 0 || value.ClassOf(at) != value.ClassArray {
			fault.Refuse("CLV-2057", "an array of %s", value.TypeName(a[0].typ))
		}
		return call("cleave_array_agg", a[0].typ, a[0].sql)
	}
}

func comparandOrSelf(e expr) string {
	if value.Comparable(e.typ) || value.ClassOf(e.typ) == value.ClassBpchar {
		return comparand(e)
	}
	return e.sql
}
