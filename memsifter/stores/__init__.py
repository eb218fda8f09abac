"""What is computed once for each text: vectors and token counts."""
