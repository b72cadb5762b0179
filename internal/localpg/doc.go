// Package localpg finds PostgreSQL on this machine and runs private servers of
// it: for `cleave up --engine postgres`, and for tests.
//
// # One folder, one server
//
// A server belongs to its data folder. [Start] takes an exclusive lock on the
// folder for as long as the [Server] lives in this process, so two processes
// never run the same folder. The kernel lets go of the lock when a process
// dies, however it dies.
//
// # A server that outlived its process
//
// When the process that started a server is killed with SIGKILL, the server
// goes on. It is found again by the file "cleave.pid" in the data folder, which
// holds the process id of the server that localpg started there. The next Start
// on the folder takes it over if it would be started with the same program and arguments now. Else it stops it
// (fast shutdown: open transactions are rolled back,
// committed rows are kept) and starts it anew with the settings now asked for.
// A server in the folder that localpg did not start is never touched: Start
// refuses with 55006.
//
//	folder empty ---------- initdb beside it, rename --> stopped
//	stopped --------------- start, wait until ready ---> running (ours)
//	running (ours) -------- Stop ---------------------> stopped
//	running (ours) -------- our process is killed -----> running (orphan)
//	running (orphan) ------ Start, nothing differs ----> running (ours)
//	running (orphan) ------ Start, something differs --> stopped
//	running (not ours) ---- Start ---------------------> refused, 55006
//
// # Users
//
// PostgreSQL refuses to run as root. Started by root, the server runs as the
// owner of an existing data folder, else as "postgres", else as "nobody"; the
// folder is given to that user, and every folder above it must let that user
// through.
package localpg
