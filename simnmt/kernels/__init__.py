"""What a decoder step is made of, written for speed: one C source of kernels, a reference and a fallback for each."""
