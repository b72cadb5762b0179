// Package config holds Cleave's settings. A setting has one name, used as the
// key in a YAML file (idle-timeout), as an environment variable
// (CLEAVE_IDLE_TIMEOUT) and as a flag (--idle-timeout). A flag wins over the
// environment, the environment over the file, the file over the default.
//
// Everything is validated before anything starts, and all problems are
// reported at once: each names the setting, where its value came from, and what
// is allowed. Keys that do not exist are refused with the nearest name that
// does.
//
// A running router reads the file again on SIGHUP (see [Effective.Reload]).
// Settings that can change while it runs are marked so in [Settings]; of the
// others it says that they need a restart, and keeps the old value.
package config
