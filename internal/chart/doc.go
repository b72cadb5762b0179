// Package chart draws what a simulation found, as SVG and PNG: for each
// strategy bars of rows per shard with a line where they would be even, all on
// one scale, and below them the share of rows that each change of the cluster moves.
//
// The colours are those of Okabe and Ito, which people with any kind of colour
// vision tell apart; nothing is shown by colour alone. The same figure gives the same
// bytes.
package chart
