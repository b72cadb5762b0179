package repository

import (
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// Limits of names. S3 takes keys of 1024 bytes, with the prefix of the URL; file systems take 255 bytes a folder.
const (
	maxName    = 512
	maxSegment = 200
)

// suffix ends the keys of objects, so that "a" and "a/b" can be names at the same time in a folder.
const suffix = ".obj"

// CheckName reports what is wrong with the name of an object. Names are segments of letters, digits and ._=@+- with
// slashes between them; no segment begins with a dot or ends in ".obj".
func CheckName(name string) error {
	if name == "" || len(name) > maxName {
		return badName(name, "it has %d characters, and 1 to %d are allowed", len(name), maxName)
	}
	for segment := range strings.SplitSeq(name, "/") {
		switch {
		case segment == "":
			return badName(name, "a part between slashes is empty")
		case len(segment) > maxSegment:
			return badName(name, "a part has more than %d characters", maxSegment)
		case segment[0] == '.':
			return badName(name, "a part begins with a dot")
		case strings.HasSuffix(segment, suffix):
			return badName(name, `a part ends in "%s"`, suffix)
		}
		if i := strings.IndexFunc(segment, func(r rune) bool { return !plainRune(r) }); i >= 0 {
			return badName(name, "%q is not allowed", []rune(segment[i:])[0])
		}
	}
	return nil
}

func plainRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._=@+-", r)
}

func badName(name, why string, args ...any) error {
	return sqlstate.New(sqlstate.InvalidParameterValue, "%q is no name of an object in a repository", cut(name)).WithDetail(why, args...)
}

// cut bounds what an error repeats.
func cut(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}

const objects = "objects/"

func keyOf(name string) string { return objects + name + suffix }

// nameOf returns the name of the object with a key, and false if the key is none of an object.
func nameOf(key string) (string, bool) {
	name, ok := strings.CutPrefix(key, objects)
	if !ok {
		return "", false
	}
	name, ok = strings.CutSuffix(name, suffix)
	return name, ok && CheckName(name) == nil
}
