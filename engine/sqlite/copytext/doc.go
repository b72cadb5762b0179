// Package copytext has the text, CSV and binary forms of COPY: their options, the cutting of a stream into lines and
// fields, and the writing of fields.
package copytext
