"""Inference engines behind a router: started, kept alive, given new weights."""
