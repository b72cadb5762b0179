-- name: CreateCustomer :one
INSERT INTO customers (tenant_id, id, name, email) VALUES ($1, $2, $3, $4)
RETURNING *;

-- name: GetCustomer :one
SELECT * FROM customers WHERE tenant_id = $1 AND id = $2;

-- name: FindCustomers :many
SELECT * FROM customers
WHERE tenant_id = $1 AND name ILIKE $2
ORDER BY name
LIMIT $3 OFFSET $4;

-- name: RenameCustomer :execrows
UPDATE customers SET name = sqlc.arg(name) WHERE tenant_id = sqlc.arg(tenant_id) AND id = sqlc.arg(id);

-- name: CreateOrder :one
INSERT INTO orders (tenant_id, id, customer_id, note) VALUES ($1, $2, $3, $4)
RETURNING *;

-- name: AddLine :exec
INSERT INTO lines (tenant_id, order_id, number, product, quantity, price)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant_id, order_id, number) DO UPDATE SET quantity = excluded.quantity, price = excluded.price;

-- name: SetTotal :one
UPDATE orders SET total = (
    SELECT coalesce(sum(l.quantity * l.price), 0) FROM lines l
    WHERE l.tenant_id = orders.tenant_id AND l.order_id = orders.id
)
WHERE orders.tenant_id = $1 AND orders.id = $2
RETURNING total;

-- name: PayOrder :execrows
UPDATE orders SET paid = true WHERE tenant_id = $1 AND id = $2 AND NOT paid;

-- name: OrderWithCustomer :one
SELECT sqlc.embed(orders), sqlc.embed(customers)
FROM orders JOIN customers ON customers.tenant_id = orders.tenant_id AND customers.id = orders.customer_id
WHERE orders.tenant_id = $1 AND orders.id = $2;

-- name: Turnover :many
SELECT c.name, count(*) AS orders, sum(o.total)::numeric AS total
FROM orders o JOIN customers c ON c.tenant_id = o.tenant_id AND c.id = o.customer_id
WHERE o.tenant_id = $1 AND o.paid
GROUP BY c.name
ORDER BY total DESC, c.name;

-- name: DeleteLines :execrows
DELETE FROM lines WHERE tenant_id = $1 AND order_id = $2;
