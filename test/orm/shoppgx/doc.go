// Package shoppgx is what sqlc makes of the queries in the folder above.
package shoppgx
