-- +goose Up
CREATE TABLE currencies (
    code text PRIMARY KEY,
    name text NOT NULL
);

CREATE TABLE customers (
    tenant_id bigint NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    email text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, email)
) WITH (cleave.shard_key = 'tenant_id');

CREATE TABLE orders (
    tenant_id bigint NOT NULL,
    id uuid NOT NULL,
    customer_id uuid NOT NULL,
    total numeric(12, 2) NOT NULL DEFAULT 0,
    paid boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, customer_id) REFERENCES customers (tenant_id, id)
) WITH (cleave.shard_key = 'tenant_id');

-- +goose Down
DROP TABLE orders;
DROP TABLE customers;
DROP TABLE currencies;
