// Package semantics says what a statement means before anybody plans it: what each name stands for (Namespace, Scope), of
// which type each expression is (Typer), which tables and views it touches (Touched), what its functions do (Effects), and
// which terms are equal (Equivalence). Analysis holds the parts; BoundStatement, Query and JoinNode are what binding leaves.
// It plans nothing and prints no text.
package semantics

import "github.com/cleavedb/cleave/planner/bail"

// bailout carries an error out of the analysis.
type bailout = bail.Out

func fail(err error) { bail.With(err) }
