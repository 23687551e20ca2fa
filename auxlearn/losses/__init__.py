"""One file per loss of the primary task, and the bias models of four of them."""
