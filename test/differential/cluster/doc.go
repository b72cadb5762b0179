// Package cluster starts a router in this process over fresh shards, and reaches
// past it: tests fill tables and read them on the shards themselves, whatever
// the router can do by then.
package cluster
