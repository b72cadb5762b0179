// Package leaseuse knows by which map a process answers, under which lease, and what is under way by older maps: a
// version of the map is acknowledged to the directory when nothing is that it concerns. docs/design/leases.md says why.
package leaseuse
