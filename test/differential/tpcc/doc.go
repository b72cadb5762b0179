// Package tpcc runs the five transactions of TPC-C on few, small warehouses, and
// checks the benchmark's conditions of consistency. Warehouses are what is
// sharded: orders with stock of another warehouse and payments of another
// warehouse's customers make transactions over several shards.
package tpcc
