// Package sqltext has what planner's packages do with the text of a statement: it is guarded and parsed, its literals are
// told from its shape, names are quoted, and places of one text are found in another.
package sqltext
