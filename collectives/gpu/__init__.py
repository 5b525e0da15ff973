"""GPUs: device arrays, their streams, and what is done with them."""
