// Package builtin knows PostgreSQL's own functions as a plan has to: of which kind they are, and which of them go beyond
// their arguments, to a session, a server or the catalogue.
package builtin
