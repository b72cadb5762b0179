package tpcc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Mix says which transactions are run.
type Mix struct {
	Size
	// Remote is how many of a hundred orders and payments reach another warehouse.
	Remote int
}

// errRollback ends an order with an item that does not exist, as the benchmark
// asks for.
var errRollback = errors.New("an item that does not exist")

// Run runs one transaction, chosen by r, on conn. It is run again when it lost a
// race ([Lost]): nothing of it was done then.
func (m Mix) Run(ctx context.Context, conn *pgx.Conn, r *rand.Rand) error {
	seed := r.Uint64() // a retry draws the same
	for try := 0; ; try++ {
		again := rand.New(rand.NewPCG(seed, 0))
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return m.one(ctx, tx, again) })
		var pe *pgconn.PgError
		switch {
		case err == nil, errors.Is(err, errRollback):
			return nil
		case errors.As(err, &pe) && Lost(pe.Code) && try < 200:
			continue
		}
		return err
	}
}

// Lost reports whether a SQLSTATE says that a transaction lost a race, or waited for too long: nothing
// of it was done, and it may be run again.
func Lost(code string) bool {
	return code == "40001" || code == "40P01" || code == "55P03" || code == "57P03"
}

func (m Mix) one(ctx context.Context, tx pgx.Tx, r *rand.Rand) error {
	w := 1 + r.IntN(m.Warehouses)
	switch n := r.IntN(100); {
	case n < 45:
		return m.newOrder(ctx, tx, r, w)
	case n < 88:
		return m.payment(ctx, tx, r, w)
	case n < 92:
		return m.orderStatus(ctx, tx, r, w)
	case n < 96:
		return m.delivery(ctx, tx, r, w)
	}
	return m.stockLevel(ctx, tx, r, w)
}

// other is another warehouse for Remote of a hundred, else w.
func (m Mix) other(r *rand.Rand, w int) int {
	if r.IntN(100) >= m.Remote {
		return w
	}
	return 1 + (w-1+1+r.IntN(m.Warehouses-1))%m.Warehouses
}

func (m Mix) newOrder(ctx context.Context, tx pgx.Tx, r *rand.Rand, w int) error {
	d, c := 1+r.IntN(m.Districts), 1+r.IntN(m.Customers)
	var order int
	if err := tx.QueryRow(ctx, "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2 RETURNING d_next_o_id - 1", w, d).Scan(&order); err != nil {
		return err
	}
	var discount, tax string
	if err := tx.QueryRow(ctx, "SELECT c_discount::text, w_tax::text FROM customer JOIN warehouse ON w_id = c_w_id WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3", w, d, c).Scan(&discount, &tax); err != nil {
		return err
	}
	lines, local := 2+r.IntN(5), true
	supply := make([]int, lines)
	for i := range supply {
		supply[i] = m.other(r, w)
		local = local && supply[i] == w
	}
	if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1, $2, $3, $4, NULL, $5, $6)", w, d, order, c, lines, local); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO new_order VALUES ($1, $2, $3)", w, d, order); err != nil {
		return err
	}
	// Stock is locked in the items' order, so that orders wait and do not die.
	item := r.IntN(m.Items/lines) + 1
	for i, from := range supply {
		quantity := 1 + r.IntN(10)
		if i == lines-1 && r.IntN(20) == 0 {
			item = m.Items + 1000
		}
		var price string
		err := tx.QueryRow(ctx, "SELECT i_price::text FROM item WHERE i_id = $1", item).Scan(&price)
		if errors.Is(err, pgx.ErrNoRows) {
			return errRollback
		}
		if err != nil {
			return err
		}
		remote := 0
		if from != w {
			remote = 1
		}
		tag, err := tx.Exec(ctx, "UPDATE stock SET s_quantity = CASE WHEN s_quantity >= $3 + 10 THEN s_quantity - $3 ELSE s_quantity - $3 + 91 END, "+
			"s_ytd = s_ytd + $3, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $4 WHERE s_w_id = $1 AND s_i_id = $2", from, item, quantity, remote)
		if err != nil {
			return err
		}
		if tag.RowsAffected() != 1 {
			return fmt.Errorf("the stock of item %d at %d: %s", item, from, tag)
		}
		if _, err := tx.Exec(ctx, "INSERT INTO order_line VALUES ($1, $2, $3, $4, $5, $6, false, $7, $8::numeric * $7::integer)", w, d, order, i+1, item, from, quantity, price); err != nil {
			return err
		}
		item += 1 + r.IntN(m.Items/lines)
		item = min(item, m.Items)
	}
	return nil
}

func (m Mix) payment(ctx context.Context, tx pgx.Tx, r *rand.Rand, w int) error {
	d, amount := 1+r.IntN(m.Districts), fmt.Sprintf("%d.%02d", 1+r.IntN(500), r.IntN(100))
	cw := m.other(r, w)
	cd, c := 1+r.IntN(m.Districts), 1+r.IntN(m.Customers)
	if _, err := tx.Exec(ctx, "UPDATE warehouse SET w_ytd = w_ytd + $2::numeric WHERE w_id = $1", w, amount); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "UPDATE district SET d_ytd = d_ytd + $3::numeric WHERE d_w_id = $1 AND d_id = $2", w, d, amount); err != nil {
		return err
	}
	if r.IntN(100) < 60 {
		// By name: the one in the middle.
		rows, err := tx.Query(ctx, "SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first, c_id", cw, cd, lastName(c%4))
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil {
			return err
		}
		c = ids[len(ids)/2]
	}
	var credit string
	if err := tx.QueryRow(ctx, "UPDATE customer SET c_balance = c_balance - $4::numeric, c_ytd_payment = c_ytd_payment + $4::numeric, c_payment_cnt = c_payment_cnt + 1 "+
		"WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 RETURNING c_credit", cw, cd, c, amount).Scan(&credit); err != nil {
		return err
	}
	if credit == "BC" {
		note := fmt.Sprintf("%d %d %d %s|", c, cd, w, amount)
		if _, err := tx.Exec(ctx, "UPDATE customer SET c_data = substr($4 || c_data, 1, 60) WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3", cw, cd, c, note); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, "INSERT INTO history VALUES ($1, $2, $3, $4, $5, $6::numeric, 'paid')", cw, cd, c, d, w, amount)
	return err
}

func (m Mix) orderStatus(ctx context.Context, tx pgx.Tx, r *rand.Rand, w int) error {
	d, c := 1+r.IntN(m.Districts), 1+r.IntN(m.Customers)
	var order int
	err := tx.QueryRow(ctx, "SELECT o_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1", w, d, c).Scan(&order)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, "SELECT ol_number FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3", w, d, order)
	if err != nil {
		return err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err == nil && len(lines) == 0 {
		err = fmt.Errorf("order %d of district %d of %d has no lines", order, d, w)
	}
	return err
}

func (m Mix) delivery(ctx context.Context, tx pgx.Tx, r *rand.Rand, w int) error {
	carrier := 1 + r.IntN(10)
	for d := 1; d <= m.Districts; d++ {
		var order, c int
		err := tx.QueryRow(ctx, "SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 ORDER BY no_o_id LIMIT 1 FOR UPDATE", w, d).Scan(&order)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3", w, d, order)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			continue // another delivery was faster
		}
		if err := tx.QueryRow(ctx, "UPDATE orders SET o_carrier_id = $4 WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3 RETURNING o_c_id", w, d, order, carrier).Scan(&c); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE order_line SET ol_delivered = true WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3", w, d, order); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE customer SET c_delivery_cnt = c_delivery_cnt + 1, c_balance = c_balance + "+
			"(SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3) WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $4", w, d, order, c); err != nil {
			return err
		}
	}
	return nil
}

func (m Mix) stockLevel(ctx context.Context, tx pgx.Tx, r *rand.Rand, w int) error {
	var low int
	return tx.QueryRow(ctx, "SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id JOIN district ON d_w_id = ol_w_id AND d_id = ol_d_id "+
		"WHERE d_w_id = $1 AND d_id = $2 AND ol_o_id >= d_next_o_id - 20 AND s_quantity < $3", w, 1+r.IntN(m.Districts), 10+r.IntN(11)).Scan(&low)
}

// Conditions are queries that find nothing as long as the tables agree with each
// other; each has a name. The first four are the benchmark's.
func Conditions() map[string]string {
	return map[string]string{
		"1: a warehouse's sum is that of its districts": "SELECT w_id, w_ytd, sum(d_ytd) FROM warehouse JOIN district ON d_w_id = w_id GROUP BY w_id, w_ytd HAVING w_ytd <> sum(d_ytd)",
		"2: the next order's number follows the last's": "SELECT d_w_id, d_id, d_next_o_id, max(o_id) FROM district JOIN orders ON o_w_id = d_w_id AND o_d_id = d_id " +
			"GROUP BY d_w_id, d_id, d_next_o_id HAVING d_next_o_id - 1 <> max(o_id)",
		"3: new orders have no gaps": "SELECT no_w_id, no_d_id FROM new_order GROUP BY no_w_id, no_d_id HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)",
		"4: orders have their lines": "SELECT o.w, o.d, o.n, l.n FROM (SELECT o_w_id AS w, o_d_id AS d, sum(o_ol_cnt) AS n FROM orders GROUP BY o_w_id, o_d_id) o " +
			"FULL JOIN (SELECT ol_w_id AS w, ol_d_id AS d, count(*) AS n FROM order_line GROUP BY ol_w_id, ol_d_id) l ON l.w = o.w AND l.d = o.d WHERE o.n IS DISTINCT FROM l.n",
		"5: an order is new or has a carrier": "SELECT o_w_id, o_d_id, o_id FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id " +
			"WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
		"8: payments are what warehouses took": "SELECT w_id FROM warehouse LEFT JOIN history ON h_w_id = w_id GROUP BY w_id, w_ytd HAVING w_ytd - coalesce(sum(h_amount), 0) <> " +
			"(SELECT 100 * count(*) FROM district WHERE d_w_id = w_id)",
		"payments are what customers paid, on whatever shard": "SELECT 1 WHERE (SELECT sum(c_ytd_payment) FROM customer) <> (SELECT coalesce(sum(h_amount), 0) FROM history)",
		"stock went out as ordered, from whatever shard": "SELECT s_w_id, s_i_id FROM stock LEFT JOIN order_line ON ol_supply_w_id = s_w_id AND ol_i_id = s_i_id " +
			"GROUP BY s_w_id, s_i_id, s_ytd HAVING s_ytd <> coalesce(sum(ol_quantity), 0)",
		"balances are deliveries less payments": "SELECT 1 WHERE (SELECT sum(c_balance) FROM customer) <> " +
			"(SELECT coalesce(sum(ol_amount), 0) FROM order_line WHERE ol_delivered) - (SELECT coalesce(sum(h_amount), 0) FROM history)",
	}
}
