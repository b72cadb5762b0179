// Package coordinator carries workflows out. Any number of processes have one; they
// elect a leader, which runs the workflows that the directory has stored, each from
// its stored step, on the shards (engine.Mover) and in the map.
//
// The leader stores every step before it does what the step says, with the token of
// its leadership, and changes the map with it. It seizes each shard for its token
// before it changes something there. So one that was deposed, and does not know it,
// changes nothing. docs/design/workflow.md says what each effect does and how it is repeated.
package coordinator
