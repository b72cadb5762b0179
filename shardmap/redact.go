package shardmap

import (
	"log/slog"
	"net/url"
	"strings"
)

// hidden stands where a secret was.
const hidden = "xxxxx"

// Redacted returns a shard's URL without its secrets, for people and logs: the
// password of the authority, and every parameter whose name says that it is
// one. It knows URLs (postgres://, file:) and libpq's key=value strings. Where
// the form is broken or ambiguous it hides too much rather than too little.
func Redacted(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		if head, query, ok := strings.Cut(url, "?"); ok && strings.HasPrefix(head, "file:") {
			return redactUserinfo(head) + "?" + redactQuery(query)
		}
		if strings.HasPrefix(url, "file:") || !strings.Contains(url, "=") {
			return redactUserinfo(url)
		}
		return redactPairs(url)
	}
	if strings.ContainsAny(scheme, "=@ '") {
		// Not a scheme: a key=value string with a URL inside.
		return redactPairs(url)
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	path, query, hasQuery := strings.Cut(tail, "?")
	if strings.Contains(tail, "@") && strings.Contains(authority, ":") {
		// Perhaps a password with an unescaped slash, question mark or the
		// like: nobody can tell where it ends, so all before the last @ goes.
		return scheme + "://" + hidden + rest[strings.LastIndexByte(rest, '@'):]
	}
	out := scheme + "://" + redactUserinfo(authority) + path
	if hasQuery {
		query, fragment, _ := strings.Cut(query, "#")
		out += "?" + redactQuery(query)
		if fragment != "" {
			out += "#" + hidden
		}
	}
	return out
}

// redactUserinfo hides what is between the first colon and the last @.
func redactUserinfo(authority string) string {
	at := strings.LastIndexByte(authority, '@')
	if at < 0 {
		return authority
	}
	user, _, hasPassword := strings.Cut(authority[:at], ":")
	if !hasPassword {
		return authority
	}
	return user + ":" + hidden + authority[at:]
}

func redactQuery(query string) string {
	parts := strings.Split(query, "&")
	for i, p := range parts {
		name, _, ok := strings.Cut(p, "=")
		if !ok {
			continue
		}
		if plain, err := url.QueryUnescape(name); err != nil || isSecret(plain) {
			parts[i] = name + "=" + hidden
		}
	}
	return strings.Join(parts, "&")
}

// isSecret goes by what a parameter's name contains, so that it also knows
// sslpassword, oauth_client_secret and the names of engines to come. passfile
// and sslkey name files and are not secrets.
func isSecret(name string) bool {
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "key" || name == "hexkey" {
		return true
	}
	for _, part := range []string{"password", "passwd", "pwd", "passphrase", "secret", "token"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// redactPairs hides the secrets of a libpq key=value string, whose values may
// be in single quotes with backslashes.
func redactPairs(dsn string) string {
	var out strings.Builder
	rest := dsn
	for {
		rest = strings.TrimLeft(rest, " \t\r\n\v\f")
		if rest == "" {
			return out.String()
		}
		eq := strings.IndexByte(rest, '=')
		if eq < 0 {
			// Not a pair: it may be the tail of a badly quoted password.
			return appendPair(&out, hidden)
		}
		name := strings.TrimSpace(rest[:eq])
		if strings.ContainsAny(name, " \t\r\n\v\f'") {
			return appendPair(&out, hidden)
		}
		rest = strings.TrimLeft(rest[eq+1:], " \t\r\n\v\f")
		n, closed := pairValue(rest)
		value := rest[:n]
		rest = rest[n:]
		if !closed {
			return appendPair(&out, name+"="+hidden)
		}
		if isSecret(name) || strings.Contains(value, "://") {
			// libpq takes a whole URL as dbname.
			value = hidden
		}
		appendPair(&out, name+"="+value)
	}
}

func appendPair(out *strings.Builder, pair string) string {
	if out.Len() > 0 {
		out.WriteByte(' ')
	}
	out.WriteString(pair)
	return out.String()
}

// pairValue returns the length of the value at the start of s, and whether its
// quotes are closed.
func pairValue(s string) (n int, closed bool) {
	if !strings.HasPrefix(s, "'") {
		for n < len(s) && !strings.ContainsRune(" \t\r\n\v\f", rune(s[n])) {
			if s[n] == '\\' && n+1 < len(s) {
				n++
			}
			n++
		}
		return n, true
	}
	for n = 1; n < len(s); n++ {
		switch s[n] {
		case '\\':
			n++
		case '\'':
			return n + 1, true
		}
	}
	return len(s), false
}

// String returns the shard for people: name, engine and URL without secrets.
func (s Shard) String() string { return s.Name + " (" + s.Engine + " " + Redacted(s.URL) + ")" }

// LogValue keeps secrets out of structured logs.
func (s Shard) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("name", s.Name),
		slog.String("engine", s.Engine),
		slog.String("url", Redacted(s.URL)),
	)
}
