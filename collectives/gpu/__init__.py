"""Arrays in the memory of GPUs: what they are, their order, and what moves them."""
