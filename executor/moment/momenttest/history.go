// Package momenttest checks what clients saw of moments: strict snapshots, in the order of real time.
package momenttest

import (
	"fmt"
	"sync"
	"time"
)

// History is what clients did and saw. One client at a time writes to a key: the numbers 1, 2, 3 and so on. Methods are safe for
// concurrent use.
type History struct {
	origin time.Time

	mu     sync.Mutex
	writes map[string][]span // by key; the number is the index plus 1
	reads  []read
}

// span is from before something was asked for until its answer was there.
type span struct{ began, ended time.Duration }

// never is the end of what goes on.
const never = 1<<63 - 1

type read struct {
	span
	saw map[string]int
}

// New begins a history.
func New() *History { return &History{origin: time.Now(), writes: map[string][]span{}} }

// Write has a client commit the next number of a key. An error says that it was not committed, and is returned.
func (h *History) Write(key string, commit func(n int) error) error {
	h.mu.Lock()
	n := len(h.writes[key]) + 1
	h.writes[key] = append(h.writes[key], span{time.Since(h.origin), never})
	h.mu.Unlock()
	err := commit(n)
	now := time.Since(h.origin)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.writes[key] = h.writes[key][:n-1]
		return err
	}
	h.writes[key][n-1].ended = now
	return nil
}

// Read has a client read the numbers of keys in one snapshot. An error says that it has none, and is returned.
func (h *History) Read(snapshot func() (saw map[string]int, err error)) error {
	s := span{began: time.Since(h.origin)}
	saw, err := snapshot()
	if err != nil {
		return err
	}
	s.ended = time.Since(h.origin)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads = append(h.reads, read{s, saw})
	return nil
}

// Reads is how many snapshots were read.
func (h *History) Reads() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.reads)
}

// Check returns what no strict snapshot could have seen. Clients may go on.
func (h *History) Check() (wrong []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.reads {
		if why := h.reads[i].wrong(h.writes); why != "" {
			wrong = append(wrong, fmt.Sprintf("the snapshot asked for at %v saw %v: %s", h.reads[i].began, h.reads[i].saw, why))
		}
	}
	return wrong
}

func (r *read) wrong(writes map[string][]span) string {
	// The youngest of what it saw: all that ended before that began has to be there as well.
	young, youngest := time.Duration(-1), ""
	for key, n := range r.saw {
		list := writes[key]
		if n > len(list) {
			return fmt.Sprintf("number %d of %s was not written", n, key)
		}
		if n > 0 && list[n-1].began > young {
			young, youngest = list[n-1].began, key
		}
	}
	if young > r.ended {
		return fmt.Sprintf("that of %s was written later", youngest)
	}
	for key, n := range r.saw {
		if n == len(writes[key]) {
			continue
		}
		switch lacks := writes[key][n]; {
		case lacks.ended < r.began:
			return fmt.Sprintf("number %d of %s was told of at %v", n+1, key, lacks.ended)
		case lacks.ended < young:
			return fmt.Sprintf("number %d of %s was told of at %v, before that of %s began at %v", n+1, key, lacks.ended, youngest, young)
		}
	}
	return ""
}
