package main

import (
	"os"
	"strings"
	"syscall"
)

// dataSize returns the size of the SQLite files in a data folder, with their
// write-ahead logs, and the space that is free for this user on its file system.
func dataSize(folder string) (used, free uint64, ok bool) {
	var fs syscall.Statfs_t
	if syscall.Statfs(folder, &fs) != nil {
		return 0, 0, false
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0, 0, false
	}
	for _, e := range entries {
		if !strings.Contains(e.Name(), ".db") {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() { // else it went meanwhile
			used += uint64(info.Size())
		}
	}
	return used, fs.Bavail * uint64(fs.Bsize), true
}
