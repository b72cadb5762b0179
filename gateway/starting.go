package gateway

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// startingMax bounds the clients that are told at the same time that there is nothing to connect to yet.
const startingMax = 64

// Refuse tells every client why there is no session yet, until ctx ends, and returns when all have been told. The listener stays
// open, for [Server.Serve].
func Refuse(ctx context.Context, l net.Listener, why *sqlstate.Error) {
	const allowed = 2 * time.Second
	t, ok := l.(*net.TCPListener)
	if !ok {
		<-ctx.Done()
		return
	}
	var told sync.WaitGroup
	defer told.Wait()
	defer func() { _ = t.SetDeadline(time.Time{}) }()
	stop := context.AfterFunc(ctx, func() { _ = t.SetDeadline(time.Now()) })
	defer stop()
	e := *why
	e.Severity = "FATAL"
	answer := wire.AppendError(nil, &e)
	slots := make(chan struct{}, startingMax)
	for ctx.Err() == nil {
		nc, err := l.Accept()
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond): // out of descriptors, say
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = nc.Close()
			continue
		}
		told.Go(func() {
			defer func() { <-slots }()
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(allowed))
			for {
				code, _, err := readStartup(nc)
				if err != nil || code == codeCancel {
					return
				}
				if code != codeSSL && code != codeGSS {
					break
				}
				if _, err := nc.Write([]byte{'N'}); err != nil {
					return
				}
			}
			_, _ = nc.Write(answer) // the client may be gone
		})
	}
}
