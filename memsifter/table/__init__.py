"""Every method on every data set, scored."""
