package differential

import "flag"

var (
	orders     = flag.Int("orders", 1000, "orders of TPC-H; an order has about four lines")
	rewrite    = flag.Bool("rewrite", false, "lower the ceilings of refusals to what is refused now")
	oneTopic   = flag.String("topic", "", "run this topic of the corpus only")
	seed       = flag.Uint64("seed", 1, "of the statements made at random")
	everywhere = flag.Bool("everywhere", false, "run every topic of the corpus on every configuration, not on one of each engine")
	count      = flag.Uint64("statements", 0, "how many statements are made at random; 0: 10,000, of which the first 1,500 are the short run")
	moving     = flag.Bool("moving", false, "put all keys on the move on every configuration of the statements made at random, not on every second one")
	cutovers   = flag.Int64("cutovers", 3, "how many cutovers there are in each part of TPC-C, and of pgbench")
	settings   = flag.String("settings", "", "run the corpus under this set of unusual settings, or under all, instead of each topic under one")
	begunWith  = flag.Bool("begun", false, "have the default shard's database give sessions the unusual settings")
	first      = flag.Uint64("statement", 0, "the first of them")
)
