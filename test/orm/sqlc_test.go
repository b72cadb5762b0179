package orm

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/test/orm/shoppgx"
	"github.com/cleavedb/cleave/test/orm/shopsql"
)

// TestSQLCPgx runs code that sqlc made for pgx, batches among it.
func TestSQLCPgx(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c target) {
		ctx := context.Background()
		migrate(t, c)
		q := shoppgx.New(c.pool)
		for tenant := int64(1); tenant <= 5; tenant++ {
			customer, err := q.CreateCustomer(ctx, shoppgx.CreateCustomerParams{TenantID: tenant, ID: uuid.New(), Name: "Ada", Email: "ada@example.org"})
			if err != nil || !customer.CreatedAt.Valid {
				t.Fatal(customer, err)
			}
			order := uuid.New()
			err = pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
				q := q.WithTx(tx)
				if _, err := q.CreateOrder(ctx, shoppgx.CreateOrderParams{TenantID: tenant, ID: order, CustomerID: customer.ID}); err != nil {
					return err
				}
				var lines []shoppgx.AddLinesParams
				for i := range int32(50) {
					lines = append(lines, shoppgx.AddLinesParams{TenantID: tenant, OrderID: order, Number: i, Product: "tea", Quantity: 2, Price: "1.25"})
				}
				var failed error
				q.AddLines(ctx, lines).Exec(func(_ int, err error) { failed = errors.Join(failed, err) })
				if failed != nil {
					return failed
				}
				total, err := q.SetTotal(ctx, shoppgx.SetTotalParams{TenantID: tenant, ID: order})
				if total != "125.00" {
					t.Errorf("total %s", total)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []shoppgx.Line
			q.GetLines(ctx, []shoppgx.GetLinesParams{{TenantID: tenant, OrderID: order}}).Query(func(_ int, lines []shoppgx.Line, err error) {
				got = lines
				if err != nil {
					t.Error(err)
				}
			})
			if len(got) != 50 || got[49].Number != 49 || got[49].Price != "1.25" {
				t.Errorf("%d lines", len(got))
			}
			both, err := q.OrderWithCustomer(ctx, shoppgx.OrderWithCustomerParams{TenantID: tenant, ID: order})
			if err != nil || both.Customer.Name != "Ada" || both.Order.Paid || both.Order.Total != "125.00" {
				t.Errorf("%+v, %v", both, err)
			}
			if n, err := q.PayOrder(ctx, shoppgx.PayOrderParams{TenantID: tenant, ID: order}); err != nil || n != 1 {
				t.Error(n, err)
			}
			sums, err := q.Turnover(ctx, tenant)
			if err != nil || len(sums) != 1 || sums[0].Orders != 1 || sums[0].Total != "125.00" {
				t.Errorf("%+v, %v", sums, err)
			}
		}
		if _, err := q.GetCustomer(ctx, shoppgx.GetCustomerParams{TenantID: 1, ID: uuid.New()}); !errors.Is(err, pgx.ErrNoRows) {
			t.Errorf("nobody: %v", err)
		}
	})
}

// TestSQLCDatabaseSQL runs code that sqlc made for database/sql, all of it
// prepared once.
func TestSQLCDatabaseSQL(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c target) {
		ctx := context.Background()
		migrate(t, c)
		q, err := shopsql.Prepare(ctx, c.db)
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		names := []string{"Ada", "Grace", "Edsger"}
		order := uuid.New()
		for i, name := range names {
			customer, err := q.CreateCustomer(ctx, shopsql.CreateCustomerParams{TenantID: 9, ID: uuid.New(), Name: name, Email: name + "@example.org"})
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				continue
			}
			tx, err := c.db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			in := q.WithTx(tx)
			_, err = in.CreateOrder(ctx, shopsql.CreateOrderParams{TenantID: 9, ID: order, CustomerID: customer.ID, Note: sql.NullString{String: "soon", Valid: true}})
			for n := range int32(3) {
				err = errors.Join(err, in.AddLine(ctx, shopsql.AddLineParams{TenantID: 9, OrderID: order, Number: n, Product: "ink", Quantity: 1, Price: "0.10"}))
			}
			// Once more: its quantity changes.
			err = errors.Join(err, in.AddLine(ctx, shopsql.AddLineParams{TenantID: 9, OrderID: order, Number: 0, Product: "ink", Quantity: 8, Price: "0.10"}))
			total, e := in.SetTotal(ctx, shopsql.SetTotalParams{TenantID: 9, ID: order})
			if err := errors.Join(err, e, tx.Commit()); err != nil || total != "1.00" {
				t.Fatal(total, err)
			}
		}
		found, err := q.FindCustomers(ctx, shopsql.FindCustomersParams{TenantID: 9, Name: "%G%", Limit: 10})
		if err != nil || !slices.Equal(namesOf(found), []string{"Edsger", "Grace"}) {
			t.Errorf("%v, %v", namesOf(found), err)
		}
		if n, err := q.RenameCustomer(ctx, shopsql.RenameCustomerParams{TenantID: 9, ID: found[0].ID, Name: "Edsger D."}); err != nil || n != 1 {
			t.Error(n, err)
		}
		both, err := q.OrderWithCustomer(ctx, shopsql.OrderWithCustomerParams{TenantID: 9, ID: order})
		if err != nil || both.Order.Note.String != "soon" || both.Customer.Email != "Ada@example.org" {
			t.Errorf("%+v, %v", both, err)
		}
		if n, err := q.PayOrder(ctx, shopsql.PayOrderParams{TenantID: 9, ID: order}); err != nil || n != 1 {
			t.Error(n, err)
		}
		sums, err := q.Turnover(ctx, 9)
		if err != nil || len(sums) != 1 || sums[0].Total != "1.00" {
			t.Errorf("%+v, %v", sums, err)
		}
		if n, err := q.DeleteLines(ctx, shopsql.DeleteLinesParams{TenantID: 9, OrderID: order}); err != nil || n != 3 {
			t.Error(n, err)
		}
		// A rolled back transaction leaves nothing.
		tx, err := c.db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := q.WithTx(tx).RenameCustomer(ctx, shopsql.RenameCustomerParams{TenantID: 9, ID: found[1].ID, Name: "nobody"}); err != nil || n != 1 {
			t.Error(n, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		if is, err := q.GetCustomer(ctx, shopsql.GetCustomerParams{TenantID: 9, ID: found[1].ID}); err != nil || is.Name != "Grace" {
			t.Errorf("%+v, %v", is, err)
		}
	})
}

func namesOf(all []shopsql.Customer) []string {
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	return names
}
