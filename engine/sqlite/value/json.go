package value

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/sqlstate"
)

func badJSON(kind string) error {
	return sqlstate.New(sqlstate.InvalidTextRepresentation, "invalid input syntax for type %s", kind)
}

func checkJSON(s string) error {
	if !json.Valid([]byte(s)) {
		return badJSON("json")
	}
	return nil
}

// normalJSON returns the text that jsonb_out prints: keys ordered by length and
// bytes, the last of equal keys, numbers as numeric prints them.
func normalJSON(s string) (string, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	if !json.Valid([]byte(s)) {
		return "", badJSON("json")
	}
	if strings.Contains(s, `\u0000`) {
		return "", sqlstate.New("22P05", "unsupported Unicode escape sequence").WithDetail("\\u0000 cannot be converted to text.")
	}
	var v any
	if err := d.Decode(&v); err != nil {
		return "", badJSON("json")
	}
	out, err := appendJSONB(nil, v)
	if err != nil {
		return "", err
	}
	if bytes.ContainsRune(out, utf8.RuneError) && !strings.ContainsRune(s, utf8.RuneError) {
		return "", badJSON("json") // half a surrogate pair
	}
	return string(out), nil
}

func appendJSONB(dst []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case json.Number:
		n, err := ParseNumeric(v.String())
		if err != nil {
			return dst, err
		}
		return append(dst, n.String()...), nil
	case string:
		return appendJSONString(dst, v), nil
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			if dst, err = appendJSONB(dst, e); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	case map[string]any:
		dst = append(dst, '{')
		for i, k := range slices.SortedFunc(maps.Keys(v), byLength) {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(appendJSONString(dst, k), ": "...)
			if dst, err = appendJSONB(dst, v[k]); err != nil {
				return dst, err
			}
		}
		return append(dst, '}'), nil
	}
	return dst, badJSON("json")
}

// byLength is jsonb's order of keys.
func byLength(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '"':
			dst = append(dst, `\"`...)
		case '\\':
			dst = append(dst, `\\`...)
		default:
			if c < ' ' {
				dst = append(dst, `\u00`...)
				dst = append(dst, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
			} else {
				dst = append(dst, c)
			}
		}
	}
	return append(dst, '"')
}

// JsonField is -> and ->> of jsonb: by key for objects, by index for arrays.
func JsonField(s string, key string, index int64, byIndex, asText bool) (string, bool, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", false, badJSON("json")
	}
	v, ok := member(v, key, index, byIndex)
	if !ok {
		return "", false, nil
	}
	if asText {
		switch e := v.(type) {
		case nil:
			return "", false, nil
		case string:
			return e, true, nil
		}
	}
	out, err := appendJSONB(nil, v)
	return string(out), true, err
}

// member is what a JSON value has under a key, or at an index.
func member(v any, key string, index int64, byIndex bool) (any, bool) {
	switch c := v.(type) {
	case map[string]any:
		e, ok := c[key]
		return e, ok && !byIndex
	case []any:
		if index < 0 {
			index += int64(len(c))
		}
		if !byIndex || index < 0 || index >= int64(len(c)) {
			return nil, false
		}
		return c[index], true
	}
	// PostgreSQL stores a scalar as an array of one element, and it shows here.
	return v, byIndex && (index == 0 || index == -1)
}
