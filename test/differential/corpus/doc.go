// Package corpus holds the hand-written statements of the differential tests, a
// text file for each topic, and reads them. docs/differential.md has the format.
package corpus
