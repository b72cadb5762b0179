package tpch

import (
	"embed"
	"fmt"
)

//go:embed queries/*.sql
var files embed.FS

// Table is one of the eight tables.
type Table struct {
	Name    string
	Columns string // of CREATE TABLE, constraints included
	Options string // how Cleave places its rows: for WITH (...)
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

// Tables returns the tables in the order in which they are filled. Orders and
// lines are colocated by the order's key, parts and their suppliers by the
// part's; nations and regions are on every shard.
func Tables() []Table {
	return []Table{
		{"region", "r_regionkey bigint PRIMARY KEY, r_name text NOT NULL, r_comment text", "cleave.reference = true"},
		{"nation", "n_nationkey bigint PRIMARY KEY, n_name text NOT NULL, n_regionkey bigint NOT NULL, n_comment text", "cleave.reference = true"},
		{"supplier", `s_suppkey bigint PRIMARY KEY, s_name text NOT NULL, s_address text NOT NULL, s_nationkey bigint NOT NULL,
	s_phone text NOT NULL, s_acctbal numeric(15,2) NOT NULL, s_comment text NOT NULL`, "cleave.shard_key = 's_suppkey'"},
		{"customer", `c_custkey bigint PRIMARY KEY, c_name text NOT NULL, c_address text NOT NULL, c_nationkey bigint NOT NULL,
	c_phone text NOT NULL, c_acctbal numeric(15,2) NOT NULL, c_mktsegment text NOT NULL, c_comment text NOT NULL`, "cleave.shard_key = 'c_custkey'"},
		{"part", `p_partkey bigint PRIMARY KEY, p_name text NOT NULL, p_mfgr text NOT NULL, p_brand text NOT NULL, p_type text NOT NULL,
	p_size integer NOT NULL, p_container text NOT NULL, p_retailprice numeric(15,2) NOT NULL, p_comment text NOT NULL`, "cleave.shard_key = 'p_partkey'"},
		{"partsupp", `ps_partkey bigint NOT NULL, ps_suppkey bigint NOT NULL, ps_availqty integer NOT NULL,
	ps_supplycost numeric(15,2) NOT NULL, ps_comment text NOT NULL, PRIMARY KEY (ps_partkey, ps_suppkey)`, "cleave.shard_key = 'ps_partkey'"},
		{"orders", `o_orderkey bigint PRIMARY KEY, o_custkey bigint NOT NULL, o_orderstatus text NOT NULL, o_totalprice numeric(15,2) NOT NULL,
	o_orderdate date NOT NULL, o_orderpriority text NOT NULL, o_clerk text NOT NULL, o_shippriority integer NOT NULL, o_comment text NOT NULL`, "cleave.shard_key = 'o_orderkey'"},
		{"lineitem", `l_orderkey bigint NOT NULL, l_partkey bigint NOT NULL, l_suppkey bigint NOT NULL, l_linenumber integer NOT NULL,
	l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL, l_discount numeric(15,2) NOT NULL, l_tax numeric(15,2) NOT NULL,
	l_returnflag text NOT NULL, l_linestatus text NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL,
	l_shipinstruct text NOT NULL, l_shipmode text NOT NULL, l_comment text NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber)`, "cleave.shard_key = 'l_orderkey'"},
	}
}

// Query returns the text of a query, 1 to 22.
func Query(number int) string {
	b, err := files.ReadFile(fmt.Sprintf("queries/q%02d.sql", number))
	if err != nil {
		panic(err) // they are embedded
	}
	return string(b)
}
