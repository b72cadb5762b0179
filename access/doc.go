// Package access knows who may use the cluster: users with a role, kept in the
// directory's records as SCRAM-SHA-256 verifiers (never as passwords), and the
// server's side of the SCRAM exchange with and without channel binding.
//
// It does no network and asks nobody: the gateway carries the messages, the
// directory keeps the users. docs/design/access.md has the rules.
package access
