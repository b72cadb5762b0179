// Package sqlitedir keeps the shard map in one SQLite file: the directory of a
// cluster on one machine. Any number of processes of that machine may have it
// open. A network file system cannot hold it: its locks are not reliable, and
// SQLite's write-ahead log needs shared memory.
//
// Every version is one row: who, why, when, and the whole map, packed. A change
// is one transaction that takes the write lock, compares the newest version
// with the expected one, and inserts the next; it is acknowledged after the
// file system has confirmed the log (synchronous=FULL). So after a crash or a
// loss of power every acknowledged version is there, and at most one more that
// was being written.
//
// Watchers hear of this handle's own changes at once, and of other handles' and
// processes' by polling SQLite's data_version, which costs some microseconds;
// nothing polls while nobody watches.
package sqlitedir
