package main

import (
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
)

// TestVerifyLine: a verification that is at no table names none.
func TestVerifyLine(t *testing.T) {
	for want, so := range map[string]*admin.VerifyProgress{
		"verifying 3 of 3 tables, 10 of about 10 rows, 0 B of 0 B":                    {Tables: 3, TablesAll: 3, Rows: 10},
		"verifying app.a, piece 2 of 4; 1 of 3 tables, 5 of about 9 rows, 0 B of 0 B": {Table: "app.a", Piece: 2, Pieces: 4, Tables: 1, TablesAll: 3, Rows: 5, RowsAll: 9},
	} {
		if got := verifyLine(so, 0, time.Second); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
