package shardmap

import "github.com/cleavedb/cleave/placement"

// PlacementShards is what placement has to know of shards.
func PlacementShards(shards []Shard) []placement.Shard {
	out := make([]placement.Shard, len(shards))
	for i := range shards {
		out[i] = placement.Shard{Name: shards[i].Name, Weight: shards[i].Weight, Labels: shards[i].Labels}
	}
	return out
}
