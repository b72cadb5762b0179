package engine

import "strings"

var inFileURL = strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23")

// FileURL is the URL of a shard that is the file at a path. Drivers take escapes and options out of a URL.
func FileURL(path string) string { return "file:" + inFileURL.Replace(path) }
