package wiring

import (
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/internal/config"
)

// failoverWait is the setting of that name as the executor takes it.
func failoverWait(cfg *config.Config) time.Duration {
	if cfg.FailoverWait == 0 {
		return -1 // 0 is its default
	}
	return cfg.FailoverWait
}

// readPolicy and replicaLag are the settings of those names as the gateway takes them.
func readPolicy(cfg *config.Config) executor.ReadPolicy {
	p, _ := settings.ParseReadPolicy(cfg.ReadPolicy) // one of the choices
	return p
}

func replicaLag(cfg *config.Config) time.Duration {
	if cfg.MaxReplicaLag == 0 {
		return executor.AnyLag
	}
	return cfg.MaxReplicaLag
}

// socketDirs are the folders for postgres.Driver.
func socketDirs(cfg *config.Config) []string {
	if cfg.LocalSockets != "auto" {
		return nil
	}
	var dirs []string
	for dir := range strings.SplitSeq(cfg.LocalSocketDirs, ",") {
		if dir = strings.TrimSpace(dir); dir != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
