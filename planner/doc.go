// Package planner turns SQL and a shard map snapshot into plans. Pure: no
// engine, no network, no clock.
//
// A statement is analysed once ([Planner.Analyze]): what kind it is, which
// tables it reads and writes, and which expressions fix its shard key. The
// result is valid for one (text, search_path, SchemaVersion) and is cached by
// the caller under these. Routing ([plan.Statement.Route]) then evaluates the key
// expressions on the bound parameters and looks the position up in the current
// snapshot: no parsing, no catalogue, no allocation.
package planner
