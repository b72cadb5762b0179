// Package shopsql is what sqlc makes of the queries in the folder above.
package shopsql
