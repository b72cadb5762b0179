package differential

import "flag"

var (
	orders   = flag.Int("orders", 1000, "orders of TPC-H; an order has about four lines")
	rewrite  = flag.Bool("rewrite", false, "lower the ceilings of refusals to what is refused now")
	oneTopic = flag.String("topic", "", "run this topic of the corpus only")
)
