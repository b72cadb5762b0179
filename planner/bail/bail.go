// Package bail ends an analysis from deep inside. The planner's entries turn what is thrown into an error.
package bail

// Out carries an error out of an analysis, by a panic.
type Out struct{ Err error }

// With ends the analysis with an error.
func With(err error) { panic(Out{err}) }
