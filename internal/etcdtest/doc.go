// Package etcdtest runs real etcd clusters for tests: members that are killed,
// stopped with SIGSTOP and started again, with TLS and passwords.
//
// The server is the one that CLEAVE_ETCD_BIN names, one of at least version 3.5
// in PATH, or one that is built once from the module proxy and kept in the cache
// folder of the test harness. Its module is nested, in testdata, so
// that it is no dependency of Cleave. The first build takes about half a minute.
package etcdtest
