package planner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// TestReadAlike asks PostgreSQL what strings mean as each type of times under many settings: what ReadAlike takes for timeless means the same, or nothing, under all.
func TestReadAlike(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for sql, want := range map[string]bool{
		"SELECT 1": true, "SELECT * FROM t WHERE status = 'open' AND k = $1": true, "SELECT 'it''s', 'a_b', '17', 'x%'": true, "SELECT 'a_1'": false, "SELECT 'ac0b6d3e-4b56-4a52-9ac9-7dfb2b6cf6a6'": true,
		"SELECT 'x' -- don't\n, 'y' /* isn't '1' */": true, `SELECT "it's 1", 'x'`: true, "SELECT $$open$$": true, "SELECT $a$1 2$a$": false,
		"SELECT '2026-01-02'": false, "SELECT '1 day'": false, "SELECT 'NOW'": false, "SELECT '{now}'": false, "SELECT E'\\x6eow'": false, "SELECT U&'n\\006fw'": false, "SELECT '04:05'": false, "SELECT '[1,2)'": false, "SELECT '(a_b,1/2/2026)'": false,
		"SELECT 'Jan 2 26'": false, "SELECT '20260102'": false, "SELECT '1234'": false,
	} {
		if got := ReadAlike(sql); got != want {
			t.Errorf("%s: %v", sql, got)
		}
	}
	types := strings.Fields("date time timetz timestamp timestamptz interval date[] tstzrange")
	settings := []string{"SET datestyle = 'ISO, DMY'; SET intervalstyle = postgres; SET timezone = 'UTC'", "SET datestyle = 'ISO, MDY'; SET intervalstyle = sql_standard; SET timezone = 'America/New_York'", "SET datestyle = 'ISO, YMD'; SET timezone = 'Asia/Tokyo'"}
	timeless := 0
	r := rand.New(rand.NewPCG(1, 2))
	pieces := strings.Fields("1 2 12 42 123 2026 26 0405 - / : . , + T Z day days ago @ _ % infinity epoch now today x open a-1 # am BC Jan { } [ ) ( UTC week allballs yesterday ; $ ( )")
	for range 1500 {
		s := ""
		for range 1 + r.IntN(4) {
			s += pieces[r.IntN(len(pieces))] + []string{"", " "}[r.IntN(2)]
		}
		s = strings.TrimSpace(s)
		if !ReadAlike("SELECT '" + s + "'") {
			continue
		}
		timeless++
		for _, typ := range types {
			var meant []string
			for _, set := range settings {
				if _, err := conn.Exec(t.Context(), set); err != nil {
					t.Fatal(err)
				}
				var out string
				// Its bytes, which no setting changes.
				if err := conn.QueryRow(t.Context(), "SELECT encode(record_send(ROW('"+s+"'::"+typ+")), 'hex')", pgx.QueryExecModeSimpleProtocol).Scan(&out); err != nil {
					out = "error"
				}
				meant = append(meant, out)
			}
			if meant[0] != meant[1] || meant[0] != meant[2] {
				t.Errorf("%q as %s: %s", s, typ, fmt.Sprint(meant))
			}
		}
	}
	if timeless < 40 {
		t.Errorf("%d strings were asked about", timeless)
	}
}
