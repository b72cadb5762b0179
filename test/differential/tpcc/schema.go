package tpcc

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Size is how much there is.
type Size struct {
	Warehouses, Districts, Customers, Items int
}

// Small is for tests.
var Small = Size{Warehouses: 5, Districts: 3, Customers: 12, Items: 30}

// Table is one of the nine tables.
type Table struct {
	Name, Columns, Options string
}

// Create returns the CREATE TABLE statement, with Cleave's options or for one
// plain database.
func (t Table) Create(options bool) string {
	sql := "CREATE TABLE " + t.Name + " (" + t.Columns + ")"
	if options {
		sql += " WITH (" + t.Options + ")"
	}
	return sql
}

// Tables returns the tables in the order in which they are filled.
func Tables() []Table {
	by := func(column string) string { return "cleave.shard_key = '" + column + "'" }
	return []Table{
		{"item", "i_id integer PRIMARY KEY, i_name text, i_price numeric(5,2), i_data text", "cleave.reference = true"},
		{"warehouse", "w_id integer PRIMARY KEY, w_name text, w_tax numeric(4,4), w_ytd numeric(12,2)", by("w_id")},
		{"district", "d_w_id integer, d_id integer, d_name text, d_tax numeric(4,4), d_ytd numeric(12,2), d_next_o_id integer, PRIMARY KEY (d_w_id, d_id)", by("d_w_id")},
		{"customer", "c_w_id integer, c_d_id integer, c_id integer, c_last text, c_first text, c_credit text, c_discount numeric(4,4), c_balance numeric(12,2), " +
			"c_ytd_payment numeric(12,2), c_payment_cnt integer, c_delivery_cnt integer, c_data text, PRIMARY KEY (c_w_id, c_d_id, c_id)", by("c_w_id")},
		{"history", "h_c_w_id integer, h_c_d_id integer, h_c_id integer, h_d_id integer, h_w_id integer NOT NULL, h_amount numeric(6,2), h_data text", by("h_w_id")},
		{"orders", "o_w_id integer, o_d_id integer, o_id integer, o_c_id integer, o_carrier_id integer, o_ol_cnt integer, o_all_local boolean, PRIMARY KEY (o_w_id, o_d_id, o_id)", by("o_w_id")},
		{"new_order", "no_w_id integer, no_d_id integer, no_o_id integer, PRIMARY KEY (no_w_id, no_d_id, no_o_id)", by("no_w_id")},
		{"order_line", "ol_w_id integer, ol_d_id integer, ol_o_id integer, ol_number integer, ol_i_id integer, ol_supply_w_id integer, ol_delivered boolean, " +
			"ol_quantity integer, ol_amount numeric(8,2), PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)", by("ol_w_id")},
		{"stock", "s_w_id integer, s_i_id integer, s_quantity integer, s_ytd integer, s_order_cnt integer, s_remote_cnt integer, s_data text, PRIMARY KEY (s_w_id, s_i_id)", by("s_w_id")},
	}
}

// Rows returns the statements that fill the tables of one plain database. There
// are no orders yet.
func Rows(s Size) []string {
	r := rand.New(rand.NewPCG(13, 1992))
	rows := map[string][]string{}
	add := func(table, format string, args ...any) {
		rows[table] = append(rows[table], fmt.Sprintf("("+format+")", args...))
	}
	for i := 1; i <= s.Items; i++ {
		add("item", "%d, 'item %d', %d.%02d, 'data %d'", i, i, 1+r.IntN(90), r.IntN(100), r.IntN(10))
	}
	for w := 1; w <= s.Warehouses; w++ {
		add("warehouse", "%d, 'house %d', 0.%04d, %d.00", w, w, r.IntN(2000), 100*s.Districts)
		for i := 1; i <= s.Items; i++ {
			add("stock", "%d, %d, %d, 0, 0, 0, 'data'", w, i, 10+r.IntN(90))
		}
		for d := 1; d <= s.Districts; d++ {
			add("district", "%d, %d, 'district %d', 0.%04d, 100.00, 1", w, d, d, r.IntN(2000))
			for c := 1; c <= s.Customers; c++ {
				add("customer", "%d, %d, %d, '%s', 'first %d', '%s', 0.%04d, 0.00, 0.00, 0, 0, ''", w, d, c, lastName(c%4), c, []string{"GC", "GC", "BC"}[r.IntN(3)], r.IntN(5000))
			}
		}
	}
	var out []string
	for _, t := range Tables() {
		if list := rows[t.Name]; list != nil {
			out = append(out, "INSERT INTO "+t.Name+" VALUES "+strings.Join(list, ", "))
		}
	}
	return out
}

func lastName(n int) string { return [...]string{"BAR", "OUGHT", "ABLE", "PRI"}[n] }
