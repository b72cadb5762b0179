package shardmap

import "sync"

// Each runs f for every shard, at most atOnce at a time, and waits for all.
func Each(shards []Shard, atOnce int, f func(i int, s *Shard)) {
	slots := make(chan struct{}, atOnce)
	var wait sync.WaitGroup
	for i := range shards {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			f(i, &shards[i])
		})
	}
	wait.Wait()
}
