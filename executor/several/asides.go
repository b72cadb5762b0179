package several

import (
	"sync"

	"github.com/cleavedb/cleave/internal/wire"
)

// asides are what shards say beside their answers, until the client is told.
type asides struct {
	mu     sync.Mutex
	frames []byte
	cut    map[string]bool // notices of names that are too long, since the last ReadyForQuery
	// setting: a statement that changes settings is run.
	setting bool
}

// nameTooLong is the code with which PostgreSQL says that it cuts a name short.
const nameTooLong = "42622"

// notice passes a shard's notice on.
func (a *asides) notice(frame []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(frame) > wire.Header && frame[0] == wire.NoticeResponse && wire.ParseReport(frame[wire.Header:]).Code == nameTooLong {
		if a.cut[string(frame)] {
			return // the notice is about the text, which several shards read
		}
		if a.cut == nil {
			a.cut = map[string]bool{}
		}
		a.cut[string(frame)] = true
	}
	if len(a.frames)+len(frame) <= noticesMax {
		a.frames = append(a.frames, frame...)
	}
}

// noticesMax bounds the notices that wait to be passed on, bytes.
const noticesMax = 1 << 20

// take appends what the client is to be told.
func (a *asides) take(out []byte) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	out = append(out, a.frames...)
	a.frames = a.frames[:0]
	return out
}

// parameter passes a changed parameter on, if the statement was one that changes
// the session's settings.
func (a *asides) parameter(name, value string) {
	if !a.setting {
		return
	}
	a.notice(wire.AppendParameterStatus(nil, name, value))
}
