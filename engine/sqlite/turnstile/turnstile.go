// Package turnstile makes processes take turns at the write lock of a file.
package turnstile

import (
	"os"
	"sync"
	"syscall"
)

// End is what the name of a file's turnstile has behind the file's own.
const End = "-turn"

// Turnstile makes processes take turns at a file's write lock. SQLite has no queue for that: who waits looks now and
// then whether the lock is free, and a process with many writers of its own would take it again each time before another one looks.
// A process that wants the lock passes the turnstile first, and leaves it with the lock in its hand. So one waits for
// the lock, and nobody overtakes it. The kernel opens the turnstile when a process dies. It is an empty file beside the shard's,
// and only about fairness: where it cannot be made the file is used without.
//
// Within a process it is used by who has the slot of the file.
type Turnstile struct {
	mu     sync.Mutex
	file   *os.File
	closed bool
}

// Enter reports whether the turnstile was free.
func (t *Turnstile) Enter(path string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return true
	}
	if t.file == nil {
		f, err := os.OpenFile(path+End, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return true
		}
		t.file = f
	}
	err := syscall.Flock(int(t.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	return err != syscall.EWOULDBLOCK && err != syscall.EINTR
}

// Leave lets the next process in.
func (t *Turnstile) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != nil {
		// An error would be one of the descriptor, which is closed with the process.
		_ = syscall.Flock(int(t.file.Fd()), syscall.LOCK_UN)
	}
}

// Close lets go of the file.
func (t *Turnstile) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.file != nil {
		_ = t.file.Close()
		t.file = nil
	}
}
