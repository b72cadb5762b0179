// Package etcd keeps the shard map in an etcd cluster: the directory of a
// cluster on many machines.
//
// Keys, below the prefix of the URL:
//
//	map/state/<version>      the map, packed; its creation is the change
//	map/entry/<version>      who, why, when
//	map/id/<change ID>       the version that the change made
//	map/part/<version>/...   what does not fit into one value, see value.go
//	record/<key>             a record
//	member/<id>, node/<n>    a member and its node number, with its lease
//	election/<name>          a leader, with its lease; the creation revision is the token
//	moved                    the cluster goes on elsewhere, or a copy into it is not finished
//
// A change is one transaction: it creates the state of the next version if that
// does not exist, so of two at once one wins. An attempt that failed without an
// answer is tried again: the state holds a number of its own by which a change
// recognises that it was made already. What is not known in the end is an error
// with code 08007.
//
// Every attempt at a request is bounded by a part of the time that the request
// may take, so that a member of the etcd cluster that was stopped, and accepts
// connections but does not answer, does not hold it: the next attempt goes to
// another member. A watch that is silent while the map changes is begun anew.
package etcd
