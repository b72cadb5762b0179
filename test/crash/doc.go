// Package crash kills, stops and cuts off each process of a cluster at each stored step of
// each workflow while clients write, and then looks whether all that they were told is true
// and nothing is left of it.
package crash
