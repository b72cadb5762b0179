package crash

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/etcdtest"
)

// program is the path of a program that was built with crash points, built once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "cleave-crash-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "cleave")
	if out, err := exec.Command("go", "build", "-tags", "crashpoint", "-o", path, "github.com/cleavedb/cleave/cmd/cleave").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// logMax is how much of a process's log is kept, bytes.
const logMax = 64 << 10

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.b = append(w.b, p...); len(w.b) > 2*logMax {
		w.b = append([]byte(nil), w.b[len(w.b)-logMax:]...)
	}
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.b)
}

// process is a `cleave coordinator` or a `cleave router`.
type process struct {
	name string
	args []string
	env  []string
	// way is its own way to the directory; nil with a file.
	way *etcdtest.Network
	log tail

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
	wanted bool // its end is
	fell   string
}

// start starts it and waits until it is ready. One that cannot start yet is started again.
func (p *process) start() error {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := p.once()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

func (p *process) once() error {
	bin, err := program()
	if err != nil {
		return err
	}
	cmd := exec.Command(bin, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stderr = &p.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	// It ends when the other end of this is closed, also by our death.
	hold, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Fprintf(&p.log, "-- started, process %d\n", cmd.Process.Pid)
	exited, ready := make(chan struct{}), make(chan struct{})
	go func() {
		told := false
		for in := bufio.NewScanner(out); in.Scan(); {
			if !told && strings.Contains(in.Text(), "ready") {
				told = true
				close(ready)
			}
		}
		err := cmd.Wait()
		_ = hold.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		if told && !p.wanted && p.cmd == cmd {
			p.fell = fmt.Sprintf("%s ended by itself: %v", p.name, err)
		}
		close(exited)
	}()
	p.mu.Lock()
	p.cmd, p.exited, p.wanted = cmd, exited, false
	p.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-exited:
		return fmt.Errorf("%s did not start:\n%s", p.name, p.log.String())
	case <-time.After(patience):
		p.kill()
		return fmt.Errorf("%s did not get ready:\n%s", p.name, p.log.String())
	}
}

// kill ends the process as a loss of power would.
func (p *process) kill() {
	p.mu.Lock()
	cmd, exited := p.cmd, p.exited
	p.wanted = true
	p.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		<-exited
	}
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// trouble says that the process has ended although nobody wanted that.
func (p *process) trouble() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fell
}

// signalTree sends a signal to a process and its children, and waits for a stop to take effect.
func signalTree(t testing.TB, pid int, s syscall.Signal) {
	t.Helper()
	_ = syscall.Kill(pid, s)
	pids := []int{pid}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, f := range strings.Fields(string(b)) {
		var child int
		if _, err := fmt.Sscan(f, &child); err == nil {
			_ = syscall.Kill(child, s)
			pids = append(pids, child)
		}
	}
	if s != syscall.SIGSTOP {
		return
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if stopped(pids) {
			return
		}
	}
	t.Fatalf("process %d does not stop", pid)
}

// stopped reports whether all threads of processes are, or are gone.
func stopped(pids []int) bool {
	for _, pid := range pids {
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, stat := range stats {
			b, err := os.ReadFile(stat)
			if err != nil {
				continue
			}
			// The state follows the name, which is in parentheses (proc(5)).
			if _, rest, _ := strings.Cut(string(b), ") "); !strings.HasPrefix(rest, "T") && !strings.HasPrefix(rest, "Z") {
				return false
			}
		}
	}
	return true
}
