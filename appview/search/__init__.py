"""Search: what a query means, which memories answer it, in which order, and where in them."""
