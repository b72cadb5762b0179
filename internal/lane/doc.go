// Package lane watches sockets with few threads and few system calls. A [Group]
// has some loops, each a goroutine with an epoll of its own; a [Conn] is a
// connection that was taken from Go's network poller and given to a loop.
//
// A Conn is a [net.Conn] for goroutines that wait. In addition a [Handler] may
// watch it: then the loop itself calls the handler when something happens on the
// socket, no goroutine is woken, and [Conn.ReadNow] and [Conn.WriteNow] do what
// can be done without waiting. So a loop relays between many clients and shards
// with one thread that hardly ever sleeps under load.
//
// Where there is no epoll, Start returns nil, which adopts nothing.
package lane
